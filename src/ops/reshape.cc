// reshape. VIEW_ONLY: Y's dims and strides laid over X's memory, element for element. LOGICAL: the elements in
// row-major order of the dims, whatever the strides. Where Y has another type than X, values are converted.
#include <algorithm>

#include "ops/reference.h"

namespace tilewright::ops {
namespace {

enum { kX };

ReshapeMode_t mode_of(const ir::Node& node) {
  const ReshapeMode_t mode = node.attr_enum("reshape_mode", ReshapeMode_t::VIEW_ONLY);
  return mode == ReshapeMode_t::NOT_SET ? ReshapeMode_t::VIEW_ONLY : mode;
}

Status infer(ir::InferContext& ctx) {
  ir::Tensor& y = ctx.out(0);
  ctx.set_dim(y, ctx.node.attr<Dims>("dim"));
  if (y.dim.empty())
    return error(error_code_t::SHAPE_DEDUCTION_FAILED,
                 "reshape \"{}\": neither Y \"{}\" nor the node has dims; set one of them", ctx.node.name, y.name);
  ctx.set_stride(y, ctx.node.attr<Dims>("stride"));
  ctx.set_stride(y, channels_last_strides(y.dim));
  if (y.type == DataType_t::NOT_SET) y.type = ctx.in(kX).type;
  return {};
}

Status verify(const ir::Graph& graph, const ir::Node& node) {
  const ir::Tensor &x = graph.tensor(node.in[kX]), &y = graph.tensor(node.out[0]);
  const Dims asked = node.attr<Dims>("dim");
  if (!asked.empty() && asked != y.dim)
    return invalid("reshape \"{}\": the node's dim {} and Y \"{}\" {} differ", node.name, to_text(asked), y.name,
                   to_text(y.dim));
  if (mode_of(node) == ReshapeMode_t::LOGICAL) {
    if (volume(x.dim) == volume(y.dim)) return {};
    return invalid("reshape \"{}\": X \"{}\" {} has {} elements, Y \"{}\" {} has {}; they must be as many", node.name,
                   x.name, to_text(x.dim), volume(x.dim), y.name, to_text(y.dim), volume(y.dim));
  }
  if (storage_elements(y.view()) > storage_elements(x.view()))
    return invalid(
        "reshape \"{}\": Y \"{}\" {} with strides {} reaches {} elements of memory, X \"{}\" {} with strides {} "
        "has {}",
        node.name, y.name, to_text(y.dim), to_text(y.stride), storage_elements(y.view()), x.name, to_text(x.dim),
        to_text(x.stride), storage_elements(x.view()));
  return {};
}

void reference(RefContext& ctx) {
  const RefTensor& x = ctx.in(kX);
  RefTensor& y = ctx.out(0);
  if (mode_of(ctx.node) == ReshapeMode_t::LOGICAL) {
    ctx.for_each(y.volume(), [&](int64_t i) { y.values[size_t(i)] = x.at_linear(i); });
    return;
  }
  const View from = x.tensor->view(), to = y.tensor->view();
  if (x.memory) {
    ctx.for_each(y.volume(), [&](int64_t i) {
      y.values[size_t(i)] = load_element(x.memory, x.tensor->storage_type(), offset_of_linear(i, to));
    });
    return;
  }
  // The memory that X would have. What lies between its elements may be anything.
  std::vector<Bounded> image(size_t(storage_elements(from)), Bounded(0, kInfinity));
  for (int64_t i = 0; i < x.volume(); ++i) image[size_t(offset_of_linear(i, from))] = x.at_linear(i);
  ctx.for_each(y.volume(), [&](int64_t i) { y.values[size_t(i)] = image[size_t(offset_of_linear(i, to))]; });
}

}  // namespace

extern const ir::OpDef kReshape;
const ir::OpDef kReshape = {
    .name = "reshape",
    .tag = "RESHAPE",
    .inputs = {{"X"}},
    .outputs = {{"Y"}},
    .attrs = {{"dim", ir::AttrKind::Ints},
              {"stride", ir::AttrKind::Ints},
              {"reshape_mode", ir::AttrKind::Enum, false, ir::is_name_of<ReshapeMode_t>}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
};

}  // namespace tilewright::ops
