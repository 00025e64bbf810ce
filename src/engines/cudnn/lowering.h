// From nodes of an ir graph to cuDNN's tensors and operations. A node is lowered by the function that the table has for
// its op (lower_table.cc); the function asks for tensors, makes operations, or says why it cannot.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "engines/cudnn/descriptor.h"
#include "plan/engine.h"

namespace tilewright::cudnn {

// Where the pointer of a tensor in the variant pack comes from.
struct Place {
  enum Where { Tensor, Constant, Workspace };
  Where where = Tensor;
  ir::TensorId tensor = ir::kNone;  // Tensor: of the graph (memory, or a host pointer for what is passed by value)
  int64_t offset = 0;               // Tensor, Workspace: bytes from its start; Constant: index
};
struct Bound {
  int64_t uid;
  Place place;
};
// Bytes of the workspace to be set before the plan runs.
struct WorkspaceFill {
  int64_t offset = 0, bytes = 0;
  std::vector<uint8_t> data;  // empty: zeros
};

// What lowering makes. The descriptors are finalized and refer to each other.
struct Lowered {
  std::vector<Descriptor> kept;
  std::vector<RawDescriptor> operations;
  std::vector<Bound> bound;
  std::vector<std::array<uint8_t, 8>> constants;  // host values of what is passed by value
  std::vector<WorkspaceFill> fills;
  int64_t workspace_bytes = 0;              // of tensors that live there
  std::vector<ir::TensorId> reads, writes;  // of the graph, in memory
  std::vector<Reason> reasons;              // not empty: it cannot be expressed
};

class Lowering {
 public:
  // `real`: by tensor, Virtual ones that another part of the graph reads or makes, so that they lie in memory.
  Lowering(const ir::Graph&, const std::vector<ir::NodeId>& nodes, const Target&, std::vector<bool> real = {});
  // Lowers the nodes in order, up to the first that is refused.
  Lowered run();

  // --- for the functions of the table ---
  const ir::Graph& graph() const { return graph_; }
  const ir::Node& node(ir::NodeId id) const { return graph_.nodes[size_t(id)]; }
  const std::vector<ir::NodeId>& nodes() const { return nodes_; }
  const Target& target() const { return target_; }
  int64_t version() const { return lookup().version; }  // 91900: cuDNN 9.19.0
  bool ok() const { return lowered_.reasons.empty(); }

  // The descriptor of a tensor of the graph, made at the first call; null (and a reason) where cuDNN has none such.
  RawDescriptor tensor(ir::TensorId);
  // Of a node's port; null where the node has none.
  RawDescriptor in(ir::NodeId, size_t port);
  RawDescriptor out(ir::NodeId, size_t port);
  // Dims and strides as cuDNN is told them. Operands of pointwise, matmul and reduction nodes all have the rank of the
  // largest, and at least 3: dims of 1 come in front. Another view may be set before the tensor is first asked for.
  const View& view(ir::TensorId id) const { return views_[size_t(id)]; }
  void set_view(ir::TensorId, View);
  // Dims of 1 in front, up to `rank` dims. Their strides are what a dim outside of all others would have.
  static View widened(const View&, size_t rank);
  // Where a tensor lies: elements of a tensor of the graph that has memory, from an offset in bytes on. Null: it is
  // virtual. A virtual tensor may be put somewhere before it is first asked for.
  struct Part {
    ir::TensorId root = ir::kNone;
    int64_t offset = 0;
    View view;
  };
  std::optional<Part> memory(ir::TensorId) const;
  void put(ir::TensorId, Part);
  // Elements of a tensor in memory from `byte_offset` on, as a tensor of its own.
  RawDescriptor part(ir::TensorId of, int64_t byte_offset, const View&);

  // Tensors that the graph does not have. Row-major where no stride is given.
  RawDescriptor scratch(DataType_t, const Dims& dim, Dims stride = {});  // virtual
  RawDescriptor constant(double value, DataType_t, size_t rank);         // one element, by value
  // In the workspace. `data`: what it holds whenever the plan starts; empty with `zeroed`: zeros.
  RawDescriptor workspace(DataType_t, const Dims& dim, Dims stride = {}, bool zeroed = false,
                          std::vector<uint8_t> data = {});

  // Finalizes a helper that operations refer to (a MATMUL, a POINTWISE) and keeps it.
  RawDescriptor keep(Descriptor);
  // Finalizes an operation and appends it.
  void operation(Descriptor);
  // About the node that is being lowered.
  void refuse(Why, std::string text, ir::TensorId = ir::kNone);

 private:
  struct Spec {
    DataType_t type;
    View view;
    int64_t alignment = 16;
    bool is_virtual = false, by_value = false;
    TensorReordering_t reordering = TensorReordering_t::NONE;
    RawDescriptor ragged_offset = nullptr;
  };
  RawDescriptor make(int64_t uid, const Spec&);
  int64_t new_uid() { return next_uid_++; }
  void even_ranks(const std::vector<ir::NodeId>&);
  void add_constant(int64_t uid, double value, DataType_t);
  DataType_t type_of(const ir::Tensor&) const;

  const ir::Graph& graph_;
  std::vector<ir::NodeId> nodes_;
  const Target& target_;
  std::vector<bool> real_;
  std::vector<View> views_;          // by tensor
  std::vector<RawDescriptor> made_;  // by tensor
  std::map<ir::TensorId, Part> put_;
  ir::NodeId current_ = -1;
  int64_t next_uid_;
  Lowered lowered_;
};

using LowerOp = void (*)(Lowering&, ir::NodeId);
// Null: cuDNN has no such operation, and we no way to write it in others that it has.
LowerOp find_lower_op(std::string_view op);

// --- operations that several ops are made of (pieces.cc) ---
// y = mode(x, b, t); of backward modes x is dy and b is x, as the ports of the node are. `node`: has the mode's
// attributes (clips, slopes, axis); null: none is set.
void add_pointwise(Lowering&, PointwiseMode_t, RawDescriptor x, RawDescriptor b, RawDescriptor y, DataType_t compute,
                   const ir::Node* node = nullptr, RawDescriptor t = nullptr);
void add_matmul(Lowering&, RawDescriptor a, RawDescriptor b, RawDescriptor c, DataType_t compute, double padding = 0);
void add_reduction(Lowering&, ReductionMode_t, RawDescriptor x, RawDescriptor y, DataType_t compute,
                   bool deterministic = false);
// Virtual results that are only moved to where another tensor lies are put there at once (lower_move.cc).
void place_moved(Lowering&, const std::vector<ir::NodeId>&);
// Sets the views of tensors to what engines take (layout.cc).
void arrange(Lowering&, const std::vector<ir::NodeId>&);

}  // namespace tilewright::cudnn
