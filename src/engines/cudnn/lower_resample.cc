// Pooling and its gradient.
#include "engines/cudnn/lower_ops.h"

namespace tilewright::cudnn {
namespace {

struct Fraction {  // cudnnFraction_t
  int64_t numerator, denominator;
};

void set_fractions(Descriptor& d, Attr attribute, const std::vector<int64_t>& whole) {
  std::vector<Fraction> list;
  for (int64_t v : whole) list.push_back({v, 1});
  d.set(attribute, AttrType::FRACTION, int64_t(list.size()), list.data());
}

RawDescriptor window(Lowering& l, const ir::Node& n) {
  const auto mode = n.attr_enum("resample_mode", ResampleMode_t::NOT_SET);
  const bool max = mode == ResampleMode_t::MAXPOOL;
  const auto spatial = [&](const char* key) { return n.attr<std::vector<int64_t>>(key); };
  Descriptor d(Kind::RESAMPLE);
  d.value(Attr::RESAMPLE_MODE, AttrType::RESAMPLE_MODE, number(mode))
      .type(Attr::RESAMPLE_COMP_TYPE, n.compute)
      .value(Attr::RESAMPLE_NAN_PROPAGATION, AttrType::NAN_PROPOGATION, 1)
      // Verified to be what the mode uses, where it is set at all.
      .value(Attr::RESAMPLE_PADDING_MODE, AttrType::PADDING_MODE,
             number(max ? PaddingMode_t::NEG_INF_PAD : PaddingMode_t::ZERO_PAD))
      .integer(Attr::RESAMPLE_SPATIAL_DIMS, int64_t(spatial("window").size()));
  set_fractions(d, Attr::RESAMPLE_WINDOW_DIMS, spatial("window"));
  set_fractions(d, Attr::RESAMPLE_PRE_PADDINGS, spatial("pre_padding"));
  set_fractions(d, Attr::RESAMPLE_POST_PADDINGS, spatial("post_padding"));
  set_fractions(d, Attr::RESAMPLE_STRIDES, spatial("stride"));
  return l.keep(std::move(d));
}

}  // namespace

void lower_resample(Lowering& l, ir::NodeId id) {
  Descriptor op(Kind::OPERATION_RESAMPLE_FWD);
  op.descriptor(Attr::OPERATION_RESAMPLE_FWD_XDESC, l.in(id, 0))
      .descriptor(Attr::OPERATION_RESAMPLE_FWD_YDESC, l.out(id, 0))
      .descriptor(Attr::OPERATION_RESAMPLE_FWD_DESC, window(l, l.node(id)));
  if (const RawDescriptor index = l.out(id, 1)) op.descriptor(Attr::OPERATION_RESAMPLE_FWD_IDXDESC, index);
  l.operation(std::move(op));
}

void lower_resample_backward(Lowering& l, ir::NodeId id) {
  enum { kDy, kX, kIndex };
  const ir::Node& n = l.node(id);
  const bool max = n.attr_enum("resample_mode", ResampleMode_t::NOT_SET) == ResampleMode_t::MAXPOOL;
  Descriptor op(Kind::OPERATION_RESAMPLE_BWD);
  op.descriptor(Attr::OPERATION_RESAMPLE_BWD_DXDESC, l.out(id, 0))
      .descriptor(Attr::OPERATION_RESAMPLE_BWD_DYDESC, l.in(id, kDy))
      .descriptor(Attr::OPERATION_RESAMPLE_BWD_DESC, window(l, n));
  if (max) {
    const RawDescriptor index = l.in(id, kIndex);
    if (!index)
      return l.refuse(Why::Feature, fmt::format("node \"{}\": cuDNN's gradient of MAXPOOL wants Index; X alone does "
                                                "not tell it where the maxima were",
                                                n.name));
    op.descriptor(Attr::OPERATION_RESAMPLE_BWD_IDXDESC, index);
  }
  l.operation(std::move(op));
}

}  // namespace tilewright::cudnn
