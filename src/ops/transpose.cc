// transpose: dim i of Y is dim permutation[i] of X. Unless the caller sets Y's strides they are X's, permuted alike.
#include "ops/reference.h"

namespace tilewright::ops {
namespace {

enum { kX };

Result<Dims> permutation_of(const ir::Node& node, const ir::Tensor& x) {
  if (!node.has_attr("permutation")) return not_set("transpose \"{}\": permutation is not set", node.name);
  Dims order = node.attr<Dims>("permutation");
  std::vector<bool> seen(x.dim.size(), false);
  bool ok = order.size() == x.dim.size();
  for (int64_t d : order) {
    ok = ok && d >= 0 && size_t(d) < seen.size() && !seen[size_t(d)];
    if (!ok) break;
    seen[size_t(d)] = true;
  }
  if (!ok)
    return invalid("transpose \"{}\": permutation {} is not one of the {} dims of \"{}\" {}", node.name, to_text(order),
                   x.dim.size(), x.name, to_text(x.dim));
  return order;
}

Dims pick(const Dims& from, const Dims& order) {
  Dims to;
  for (int64_t d : order) to.push_back(from[size_t(d)]);
  return to;
}

Status infer(ir::InferContext& ctx) {
  const ir::Tensor& x = ctx.in(kX);
  ir::Tensor& y = ctx.out(0);
  TW_ASSIGN_OR_RETURN(const Dims order, permutation_of(ctx.node, x));
  ctx.set_dim(y, pick(x.dim, order));
  ctx.set_stride(y, pick(x.stride, order));
  if (y.type == DataType_t::NOT_SET) y.type = x.type;
  return {};
}

Status verify(const ir::Graph& graph, const ir::Node& node) {
  const ir::Tensor &x = graph.tensor(node.in[kX]), &y = graph.tensor(node.out[0]);
  TW_ASSIGN_OR_RETURN(const Dims order, permutation_of(node, x));
  if (y.dim == pick(x.dim, order)) return {};
  return invalid("transpose \"{}\": Y \"{}\" has dims {}, but X \"{}\" {} permuted by {} has {}", node.name, y.name,
                 to_text(y.dim), x.name, to_text(x.dim), to_text(order), to_text(pick(x.dim, order)));
}

void reference(RefContext& ctx) {
  const RefTensor& x = ctx.in(kX);
  RefTensor& y = ctx.out(0);
  const Dims order = ctx.node.attr<Dims>("permutation");
  ctx.for_each(y.volume(), [&](int64_t i) {
    thread_local Dims at_y, at_x;
    at_y.resize(order.size()), at_x.resize(order.size());
    unravel(i, y.dim(), at_y.data());
    for (size_t d = 0; d < order.size(); ++d) at_x[size_t(order[d])] = at_y[d];
    y.values[size_t(i)] = x.at(at_x);
  });
}

}  // namespace

extern const ir::OpDef kTranspose;
const ir::OpDef kTranspose = {
    .name = "transpose",
    .tag = "TRANSPOSE",
    .inputs = {{"X"}},
    .outputs = {{"Y"}},
    .attrs = {{"permutation", ir::AttrKind::Ints, true}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
};

}  // namespace tilewright::ops
