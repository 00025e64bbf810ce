// The three convolutions. Groups follow from the dims of X and W.
#include "engines/cudnn/lower_ops.h"

namespace tilewright::cudnn {
namespace {

struct Attributes {
  Kind kind;
  Attr x, w, y, convolution, alpha, beta;
};

RawDescriptor geometry(Lowering& l, const ir::Node& n) {
  const auto spatial = [&](const char* key) { return n.attr<std::vector<int64_t>>(key); };
  Descriptor d(Kind::CONVOLUTION);
  d.type(Attr::CONVOLUTION_COMP_TYPE, n.compute)
      .value(Attr::CONVOLUTION_CONV_MODE, AttrType::CONVOLUTION_MODE,
             number(n.attr_enum("math_mode", ConvolutionMode_t::CROSS_CORRELATION)))
      .integer(Attr::CONVOLUTION_SPATIAL_DIMS, int64_t(spatial("stride").size()))
      .integers(Attr::CONVOLUTION_PRE_PADDINGS, spatial("pre_padding"))
      .integers(Attr::CONVOLUTION_POST_PADDINGS, spatial("post_padding"))
      .integers(Attr::CONVOLUTION_DILATIONS, spatial("dilation"))
      .integers(Attr::CONVOLUTION_FILTER_STRIDES, spatial("stride"));
  return l.keep(std::move(d));
}

void convolution(Lowering& l, ir::NodeId id, const Attributes& a, RawDescriptor x, RawDescriptor w, RawDescriptor y) {
  Descriptor op(a.kind);
  op.descriptor(a.x, x)
      .descriptor(a.w, w)
      .descriptor(a.y, y)
      .descriptor(a.convolution, geometry(l, l.node(id)))
      .real(a.alpha, 1.0f)
      .real(a.beta, 0.0f);
  l.operation(std::move(op));
}

}  // namespace

void lower_conv_fprop(Lowering& l, ir::NodeId id) {
  static constexpr Attributes kForward = {
      Kind::OPERATION_CONVOLUTION_FORWARD,           Attr::OPERATION_CONVOLUTION_FORWARD_X,
      Attr::OPERATION_CONVOLUTION_FORWARD_W,         Attr::OPERATION_CONVOLUTION_FORWARD_Y,
      Attr::OPERATION_CONVOLUTION_FORWARD_CONV_DESC, Attr::OPERATION_CONVOLUTION_FORWARD_ALPHA,
      Attr::OPERATION_CONVOLUTION_FORWARD_BETA};
  convolution(l, id, kForward, l.in(id, 0), l.in(id, 1), l.out(id, 0));
}

void lower_conv_dgrad(Lowering& l, ir::NodeId id) {
  static constexpr Attributes kData = {
      Kind::OPERATION_CONVOLUTION_BACKWARD_DATA,      Attr::OPERATION_CONVOLUTION_BWD_DATA_DX,
      Attr::OPERATION_CONVOLUTION_BWD_DATA_W,         Attr::OPERATION_CONVOLUTION_BWD_DATA_DY,
      Attr::OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, Attr::OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      Attr::OPERATION_CONVOLUTION_BWD_DATA_BETA};
  convolution(l, id, kData, l.out(id, 0), l.in(id, 1), l.in(id, 0));
}

void lower_conv_wgrad(Lowering& l, ir::NodeId id) {
  static constexpr Attributes kFilter = {
      Kind::OPERATION_CONVOLUTION_BACKWARD_FILTER,      Attr::OPERATION_CONVOLUTION_BWD_FILTER_X,
      Attr::OPERATION_CONVOLUTION_BWD_FILTER_DW,        Attr::OPERATION_CONVOLUTION_BWD_FILTER_DY,
      Attr::OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, Attr::OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
      Attr::OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  convolution(l, id, kFilter, l.in(id, 1), l.out(id, 0), l.in(id, 0));
}

}  // namespace tilewright::cudnn
