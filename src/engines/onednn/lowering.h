// How a graph becomes primitives: the walk over the nodes (lower.cc) and what each op asks of the library (ops.cc).
#pragma once

#include <functional>
#include <optional>

#include "engines/onednn/lower.h"
#include "ops/convolution.h"

namespace tilewright::onednn {

// One pointwise node that a primitive applies to its result.
struct PostOp {
  ir::NodeId node;
  ir::TensorId operand = ir::kNone;  // binary: the other operand
  AlgKind algorithm;
  float alpha = 0, beta = 0;
  ir::TensorId result;
};

// How the library computes a pointwise mode of two operands, or of one.
std::optional<AlgKind> binary_algorithm(PointwiseMode_t);
bool commutes(AlgKind);
struct Eltwise {
  AlgKind algorithm;
  float alpha = 0, beta = 0;
  bool close = true;  // as exact as the bound asks for; what is not serves comparisons only
};
std::optional<Eltwise> eltwise(const ir::Node&);

std::optional<DataType> data_type(DataType_t);
// Empty where elements share memory in a way that the library does not take.
std::optional<MemoryDesc> describe(const Dims& dim, DataType type, Dims stride);

class Lowering {
 public:
  Lowering(const ir::Graph&, const LowerOptions&);
  Program run();

 private:
  // A primitive that computes a node, to be made together with the pointwise nodes that follow.
  struct Build {
    ir::NodeId node;
    const char* what;  // "matmul"
    std::vector<Argument> arguments;
    ir::TensorId result;
    int result_arg = kArgDst;
    // Fills the op descriptor for weights and a result, whose layout may be open, and a bias (null: none).
    std::function<Status(OpDesc&, const MemoryDesc& weights, const MemoryDesc& result, const MemoryDesc* bias)> init =
        {};
    std::optional<MemoryDesc> result_desc = {};  // where it is not that of the tensor's own dims
    std::optional<size_t> bias_dim = {};         // the dim of the result along which the primitive takes a bias
    bool flat_bias = false;                      // of rank 1
    bool takes_post_ops = true;
    bool elementwise = false;
    std::vector<PostOp> head = {};      // what is applied before the chain
    Handle forward = nullptr;           // of a gradient: the primitive descriptor of the forward pass
    std::vector<ir::NodeId> also = {};  // other nodes that the primitive computes
  };

  const ir::Tensor& tensor(ir::TensorId id) const { return graph_.tensor(id); }
  const ir::Node& node(ir::NodeId id) const { return graph_.nodes[size_t(id)]; }
  void refuse(Why, ir::NodeId, std::string text, ir::TensorId = ir::kNone);
  void check_tensor(ir::TensorId);
  bool multiplies_bytes(ir::NodeId) const;
  bool check_types(ir::NodeId);
  void lower_node(ir::NodeId);

  // --- memory ------------------------------------------------------------------------------------------------------
  // The tensor, with its rank extended on the left.
  std::optional<MemoryDesc> describe(ir::TensorId, size_t rank = 0) const;
  std::optional<MemoryDesc> describe_filter(ir::TensorId, const ops::Convolution&) const;
  bool any_layout(const Build&, ir::TensorId, MemoryDesc&) const;
  int64_t reserve(int64_t bytes);  // in the workspace
  int constant(double);
  Place place(ir::TensorId);
  Argument argument(int index, ir::TensorId id, const MemoryDesc& desc) { return {index, desc, place(id)}; }
  Argument scratch(int index, const MemoryDesc&);  // memory of the workspace for a value that is no tensor

  // --- pointwise nodes behind a primitive --------------------------------------------------------------------------
  bool available(ir::TensorId) const;  // whether it has been computed at this point
  bool usable_number(ir::TensorId) const;
  std::optional<PostOp> post_op(ir::NodeId, ir::TensorId value) const;
  std::vector<PostOp> chain(ir::TensorId value) const;
  std::optional<MemoryDesc> bias(const Build&, const PostOp&) const;
  bool append(const Build&, const std::vector<PostOp>&, const std::optional<MemoryDesc>& bias, Launch&, Handle post);

  // --- making primitives -------------------------------------------------------------------------------------------
  bool build(const Build&);  // with as much of the chain as the library takes; says so where it takes nothing
  bool try_build(const Build&, const std::vector<PostOp>&, bool open);
  bool create(Launch&, const OpDesc&, Handle attributes, Handle forward);
  bool own_layout(Launch&, Argument&, std::optional<Launch>& before, std::optional<Launch>& after);
  void add(Launch);
  std::string mode_text(ir::NodeId) const;
  bool keeps_nan(ir::NodeId) const;

  // --- ops (ops.cc) ------------------------------------------------------------------------------------------------
  void matmul(ir::NodeId);
  void convolution(ir::NodeId);
  void pointwise(ir::NodeId);
  void reduction(ir::NodeId);
  void softmax(ir::NodeId);
  bool softmax_backward(ir::NodeId);
  void layernorm(ir::NodeId);
  void pooling(ir::NodeId);
  void transpose(ir::NodeId);
  ir::NodeId only_consumer(ir::TensorId) const;
  bool is_pointwise(ir::NodeId, PointwiseMode_t) const;

  ir::Graph graph_;  // a copy: transposed virtual tensors get the strides of the view
  const LowerOptions& options_;
  const ir::Links links_;
  std::vector<bool> done_;    // by node
  std::vector<Place> place_;  // by tensor
  int64_t scratch_bytes_ = 0;
  bool only_reference_ = false;  // of what was tried last
  Program program_;
};

}  // namespace tilewright::onednn
