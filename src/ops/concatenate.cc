// concatenate: the inputs one after the other along `axis`. With in_place_index that input's memory may be its own part
// of Y's: the values are the same either way, and whoever copies them leaves them where they are.
#include "ops/reference.h"

namespace tilewright::ops {
namespace {

Status infer(ir::InferContext& ctx) {
  if (!ctx.node.has_attr("axis")) return not_set("concatenate \"{}\": axis is not set", ctx.node.name);
  const int64_t axis = ctx.node.attr<int64_t>("axis");
  for (size_t i = 0; i < std::max<size_t>(ctx.node.in.size(), 1); ++i)
    if (!ctx.has_in(i)) return not_set("concatenate \"{}\": input {} is not set", ctx.node.name, i);
  const ir::Tensor& first = ctx.in(0);
  if (axis < 0 || size_t(axis) >= first.dim.size())
    return invalid("concatenate \"{}\": axis {} is not a dim of \"{}\" {}", ctx.node.name, axis, first.name,
                   to_text(first.dim));
  Dims dim = first.dim;
  for (size_t i = 1; i < ctx.node.in.size(); ++i) {
    const ir::Tensor& x = ctx.in(i);
    bool fits = x.dim.size() == dim.size();
    for (size_t d = 0; fits && d < dim.size(); ++d) fits = d == size_t(axis) || x.dim[d] == dim[d];
    if (!fits)
      return invalid("concatenate \"{}\": input {} \"{}\" has dims {}, input 0 \"{}\" {}; all but dim {} must agree",
                     ctx.node.name, i, x.name, to_text(x.dim), first.name, to_text(first.dim), axis);
    dim[size_t(axis)] += x.dim[size_t(axis)];
  }
  ir::Tensor& y = ctx.out(0);
  ctx.set_dim(y, dim);
  if (y.dim != dim)
    return invalid("concatenate \"{}\": Y \"{}\" has dims {}, but the inputs give {}", ctx.node.name, y.name,
                   to_text(y.dim), to_text(dim));
  ctx.set_stride(y, strides_like(dim, first.stride));
  if (y.type == DataType_t::NOT_SET) y.type = first.type;
  return {};
}

Status verify(const ir::Graph&, const ir::Node& node) {
  const int64_t in_place = node.attr<int64_t>("in_place_index", 0);
  if (in_place >= 0 && in_place < int64_t(node.in.size())) return {};
  return invalid("concatenate \"{}\": in_place_index {} is not one of the {} inputs", node.name, in_place,
                 node.in.size());
}

void reference(RefContext& ctx) {
  const size_t axis = size_t(ctx.node.attr<int64_t>("axis"));
  RefTensor& y = ctx.out(0);
  const Dims y_stride = row_major_strides(y.dim());
  int64_t before = 0;  // elements along the axis that earlier inputs filled
  for (size_t i = 0; i < ctx.node.in.size(); ++i) {
    const RefTensor& x = ctx.in(i);
    const View part = {x.dim(), y_stride};
    ctx.for_each(x.volume(), [&](int64_t at) {
      y.values[size_t(before * y_stride[axis] + offset_of_linear(at, part))] = x.at_linear(at);
    });
    before += x.dim()[axis];
  }
}

}  // namespace

extern const ir::OpDef kConcatenate;
const ir::OpDef kConcatenate = {
    .name = "concatenate",
    .tag = "CONCATENATE",
    .inputs = {{"X", ir::PortKind::Variadic}},
    .outputs = {{"Y"}},
    .attrs = {{"axis", ir::AttrKind::Int, true}, {"in_place_index", ir::AttrKind::Int}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
};

}  // namespace tilewright::ops
