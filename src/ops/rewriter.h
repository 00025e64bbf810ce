// Decomposition: an op written in simpler ops. The result is an ordinary graph with the same real tensors.
#pragma once

#include <initializer_list>
#include <string>

#include "ir/op_def.h"

namespace tilewright {

class Rewriter {
 public:
  using Id = ir::TensorId;
  Rewriter(const ir::Graph& from, ir::Graph& to, const ir::Node& node) : from_(from), to_(to), node_(node) {}

  const ir::Node& node() const { return node_; }
  bool has_in(size_t port) const { return port < node_.in.size() && node_.in[port] != ir::kNone; }
  bool has_out(size_t port) const { return port < node_.out.size() && node_.out[port] != ir::kNone; }
  Id in(size_t port) const { return node_.in[port]; }
  Id out(size_t port) const { return node_.out[port]; }
  const ir::Tensor& tensor(Id id) const { return to_.tensor(id); }
  const Dims& dim(Id id) const { return tensor(id).dim; }

  // Each appends one node and returns its result: `out` when given, else a new virtual tensor of the node's compute
  // type (FLOAT when unset), row-major.
  Id pointwise(PointwiseMode_t, std::initializer_list<Id> in, Id out = ir::kNone, AttrMap attrs = {});
  Id reduce(ReductionMode_t, Id x, const Dims& dim, Id out = ir::kNone);  // reduces where dim is 1 and x's is not
  Id constant(double value);
  // Any op: ports in the op's order, `dim` of its one output.
  Id add(const char* op, std::vector<Id> in, const Dims& dim, AttrMap attrs, Id out = ir::kNone);

  // Common shorthands.
  Id mul(Id a, Id b, Id out = ir::kNone) { return pointwise(PointwiseMode_t::MUL, {a, b}, out); }
  Id plus(Id a, Id b, Id out = ir::kNone) { return pointwise(PointwiseMode_t::ADD, {a, b}, out); }
  Id minus(Id a, Id b, Id out = ir::kNone) { return pointwise(PointwiseMode_t::SUB, {a, b}, out); }
  Id copy(Id a, Id out) { return pointwise(PointwiseMode_t::IDENTITY, {a}, out); }

 private:
  Id fresh(const Dims& dim);
  const ir::Graph& from_;
  ir::Graph& to_;
  const ir::Node& node_;
};

// The graph with every decomposable node replaced by its decomposition (all the way down). Tensor ids of the original
// stay valid; new tensors follow. `keep(node)` true leaves a node whole.
ir::Graph decompose(const ir::Graph&, bool (*keep)(const ir::Node&) = nullptr);

}  // namespace tilewright
