// Pointwise nodes and reductions.
#include "engines/cudnn/lower_ops.h"
#include "ops/pointwise.h"

namespace tilewright::cudnn {

void lower_pointwise(Lowering& l, ir::NodeId id) {
  const ir::Node& n = l.node(id);
  const PointwiseMode_t mode = pointwise_mode(n);
  if (number(mode) < 0)
    return l.refuse(Why::Op, fmt::format("node \"{}\": cuDNN has no pointwise mode {}", n.name, to_string(mode)));
  ir::Node seen = n;
  if (mode == PointwiseMode_t::GEN_INDEX) {  // its axis counts the dims that were put in front
    const size_t added = l.view(n.out[0]).dim.size() - l.graph().tensor(n.out[0]).dim.size();
    seen.attrs["axis"] = n.attr<int64_t>("axis") + int64_t(added);
  }
  // Operands beyond the mode's own are allowed and have no meaning.
  const int arity = pointwise_arity(mode);
  add_pointwise(l, mode, l.in(id, 0), arity > 1 ? l.in(id, 1) : nullptr, l.out(id, 0), n.compute, &seen,
                arity > 2 ? l.in(id, 2) : nullptr);
}

// Whether no product or norm makes or takes what is reduced, and the elements of a sum lie side by side.
bool is_loop_over_rows(const Lowering& l, const View& from, const View& to) {
  for (ir::NodeId other : l.nodes())
    if (const std::string_view op = l.node(other).op->name; op != "pointwise" && op != "reduction") return false;
  return from.dim[1] > 1 && to.dim[1] == 1 && volume(to.dim) > 1;
}

void lower_reduction(Lowering& l, ir::NodeId id) {
  using P = PointwiseMode_t;
  using R = ReductionMode_t;
  const ir::Node& n = l.node(id);
  const R mode = n.attr_enum("mode", R::NOT_SET);
  const DataType_t c = n.compute;
  const View from = l.view(n.in[0]), to = l.view(n.out[0]);
  // cuDNN 9.19's engine was seen to give wrong sums of rows that are HALF, or changed before they are added, if only by
  // another of its plans.
  const ir::Tensor& summed = l.graph().tensor(n.in[0]);
  if (is_loop_over_rows(l, from, to) &&
      (summed.role != ir::Role::Input || summed.type != DataType_t::FLOAT || mode == R::AVG || mode == R::NORM1))
    return l.refuse(Why::Fusion,
                    fmt::format("node \"{}\": of rows, cuDNN reduces an input of FLOAT as it lies in memory", n.name));
  const RawDescriptor x = l.in(id, 0), y = l.out(id, 0);
  const auto sum_of = [&](P change, RawDescriptor operand) {
    const RawDescriptor changed = l.scratch(c, from.dim, from.stride);
    add_pointwise(l, change, x, operand, changed, c);
    add_reduction(l, R::ADD, changed, y, c, n.attr<bool>("is_deterministic"));
  };
  // cuDNN's engines change elements before they reduce them, but not the result behind.
  if (mode == R::NORM1) return sum_of(P::ABS, nullptr);
  if (mode == R::AVG)
    return sum_of(P::DIV, l.constant(double(volume(from.dim)) / double(volume(to.dim)), c, from.dim.size()));
  if (mode == R::NORM2 || mode == R::MUL_NO_ZEROS)
    return l.refuse(Why::Op, fmt::format("node \"{}\": cuDNN does not reduce by {}", n.name, to_string(mode)));
  add_reduction(l, mode, x, y, c, n.attr<bool>("is_deterministic"));
}

}  // namespace tilewright::cudnn
