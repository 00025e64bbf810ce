// slice: Y[i] = X[start + i * step] in every dim, for start + i * step < limit. Unless the caller sets Y's strides they
// are X's times the step: Y then has the places that the elements have in X, less the offset of the first.
#include "ops/reference.h"

namespace tilewright::ops {
namespace {

enum { kX };

struct Slices {
  Dims start, step, dim;
};

Result<Slices> plan(const ir::Node& node, const ir::Tensor& x) {
  if (!node.has_attr("slices")) return not_set("slice \"{}\": slices is not set", node.name);
  const Dims pairs = node.attr<Dims>("slices");
  const size_t rank = x.dim.size();
  if (pairs.size() != 2 * rank)
    return invalid("slice \"{}\": {} pairs of start and limit for the {} dims of \"{}\" {}", node.name,
                   pairs.size() / 2, rank, x.name, to_text(x.dim));
  Slices s;
  s.step = node.attr<Dims>("slice_strides");
  if (s.step.empty()) s.step.assign(rank, 1);
  if (s.step.size() != rank)
    return invalid("slice \"{}\": slice_strides {} has {} entries, \"{}\" has {} dims", node.name, to_text(s.step),
                   s.step.size(), x.name, rank);
  for (size_t d = 0; d < rank; ++d) {
    const int64_t start = pairs[2 * d], limit = pairs[2 * d + 1];
    if (start < 0 || limit < start || limit > x.dim[d])
      return invalid("slice \"{}\": [{}, {}) of dim {} does not lie in \"{}\" {}", node.name, start, limit, d, x.name,
                     to_text(x.dim));
    if (s.step[d] < 1)
      return invalid("slice \"{}\": slice_strides {} must be at least 1 in every dim", node.name, to_text(s.step));
    s.start.push_back(start);
    s.dim.push_back((limit - start) / s.step[d] + ((limit - start) % s.step[d] != 0));
  }
  return s;
}

Status infer(ir::InferContext& ctx) {
  const ir::Tensor& x = ctx.in(kX);
  ir::Tensor& y = ctx.out(0);
  TW_ASSIGN_OR_RETURN(const Slices s, plan(ctx.node, x));
  ctx.set_dim(y, s.dim);
  Dims stride = x.stride;
  for (size_t d = 0; d < stride.size(); ++d)
    // A dim of one element never takes the step, which may be of any size.
    if (s.dim[d] > 1) stride[d] *= s.step[d];
  ctx.set_stride(y, stride);
  if (y.type == DataType_t::NOT_SET) y.type = x.type;
  return {};
}

Status verify(const ir::Graph& graph, const ir::Node& node) {
  TW_ASSIGN_OR_RETURN(const Slices s, plan(node, graph.tensor(node.in[kX])));
  const ir::Tensor& y = graph.tensor(node.out[0]);
  if (y.dim == s.dim) return {};
  return invalid("slice \"{}\": Y \"{}\" has dims {}, but the slices give {}", node.name, y.name, to_text(y.dim),
                 to_text(s.dim));
}

void reference(RefContext& ctx) {
  const RefTensor& x = ctx.in(kX);
  RefTensor& y = ctx.out(0);
  const Result<Slices> s = plan(ctx.node, *x.tensor);
  TW_CHECK(s);
  ctx.for_each(y.volume(), [&](int64_t i) {
    thread_local Dims index;
    index.resize(y.dim().size());
    unravel(i, y.dim(), index.data());
    for (size_t d = 0; d < index.size(); ++d) index[d] = s->start[d] + index[d] * s->step[d];
    y.values[size_t(i)] = x.at(index);
  });
}

}  // namespace

extern const ir::OpDef kSlice;
const ir::OpDef kSlice = {
    .name = "slice",
    .tag = "SLICE",
    .inputs = {{"X"}},
    .outputs = {{"Y"}},
    .attrs = {{"slices", ir::AttrKind::IntPairs, true}, {"slice_strides", ir::AttrKind::Ints}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
};

}  // namespace tilewright::ops
