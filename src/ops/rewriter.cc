#include "ops/rewriter.h"

namespace tilewright {

using ir::TensorId;

TensorId Rewriter::fresh(const Dims& dim) {
  ir::Tensor t;
  t.name = fmt::format("{}::t{}", node_.name, to_.tensors.size());
  t.type = node_.compute == DataType_t::NOT_SET ? DataType_t::FLOAT : node_.compute;
  t.dim = dim;
  t.stride = row_major_strides(dim);
  to_.tensors.push_back(std::move(t));
  return TensorId(to_.tensors.size() - 1);
}

TensorId Rewriter::add(const char* op, std::vector<Id> in, const Dims& dim, AttrMap attrs, Id out) {
  ir::Node n;
  n.op = ir::find_op(op);
  TW_CHECK(n.op);
  n.name = node_.name;
  n.compute = node_.compute;
  n.attrs = std::move(attrs);
  n.in = std::move(in);
  n.in.resize(std::max(n.in.size(), n.op->inputs.size()), ir::kNone);
  n.out.assign(n.op->outputs.size(), ir::kNone);
  n.out[0] = out == ir::kNone ? fresh(dim) : out;
  const Id result = n.out[0];
  to_.nodes.push_back(std::move(n));
  return result;
}

TensorId Rewriter::pointwise(PointwiseMode_t mode, std::initializer_list<Id> in, Id out, AttrMap attrs) {
  std::vector<Dims> shapes;
  for (Id id : in) shapes.push_back(dim(id));
  auto dims = broadcast_dims(shapes);
  TW_CHECK(dims);
  attrs["mode"] = to_string(mode);
  return add("pointwise", in, *dims, std::move(attrs), out);
}

TensorId Rewriter::reduce(ReductionMode_t mode, Id x, const Dims& dim, Id out) {
  return add("reduction", {x}, dim, {{"mode", to_string(mode)}}, out);
}

TensorId Rewriter::constant(double value) {
  const size_t rank = node_.in.empty() || node_.in[0] == ir::kNone ? 1 : dim(node_.in[0]).size();
  ir::Tensor t;
  t.name = fmt::format("{}::{}", node_.name, value);
  t.type = DataType_t::DOUBLE;
  t.dim = t.stride = Dims(rank, 1);
  t.role = ir::Role::Constant;
  t.value = value;
  to_.tensors.push_back(std::move(t));
  return TensorId(to_.tensors.size() - 1);
}

ir::Graph decompose(const ir::Graph& graph, bool (*keep)(const ir::Node&)) {
  ir::Graph current = graph;
  for (bool changed = true; changed;) {
    changed = false;
    ir::Graph next = current;
    next.nodes.clear();
    for (const ir::Node& node : current.nodes) {
      if (!node.op->decompose || (keep && keep(node))) {
        next.nodes.push_back(node);
        continue;
      }
      Rewriter rewriter(current, next, node);
      node.op->decompose(rewriter);
      changed = true;
    }
    current = std::move(next);
  }
  return current;
}

}  // namespace tilewright
