// Regions of one node: attention through its own steps, and what no fused loop covers as the op's reference describes
// it, which is slower but never refused.
#include "engines/cpu/attention.h"
#include "engines/cpu/kernel.h"
#include "ops/reference.h"

namespace tilewright::cpu {
namespace {

class NodeKernel : public Kernel {
 public:
  NodeKernel(const fuse::FusedGraph& fused, ir::NodeId node) : fused_(fused), node_(fused.graph.nodes[size_t(node)]) {}

  void run(const Memory& memory, char*) const override {
    const ir::Graph& graph = fused_.graph;
    std::vector<RefTensor> tensors(graph.tensors.size());
    for (ir::TensorId id : node_.in) {
      if (id == ir::kNone) continue;
      RefTensor& t = tensors[size_t(id)];
      t.tensor = &graph.tensor(id);
      if (t.tensor->value) t.values = {Bounded(ir::scalar_value(*t.tensor->value))};
      else t.memory = memory.tensor(id);
    }
    for (ir::TensorId id : node_.out) {
      if (id == ir::kNone) continue;
      RefTensor& t = tensors[size_t(id)];
      t.tensor = &graph.tensor(id);
      t.values.assign(size_t(t.volume()), Bounded());
    }
    const Rounding saved = t_rounding;
    t_rounding = rounding_of(node_.compute);
    RefContext context(graph, node_, tensors);
    node_.op->reference(context);
    t_rounding = saved;
    for (ir::TensorId id : node_.out)
      if (id != ir::kNone) store_reference(tensors[size_t(id)], memory.tensor(id));
  }

  std::string describe() const override { return "node by node, in double"; }
  bool slow() const override { return true; }

 private:
  const fuse::FusedGraph& fused_;
  const ir::Node& node_;
};

class AttentionKernel : public Kernel {
 public:
  explicit AttentionKernel(AttentionStep step) : step_(std::move(step)) {}
  int64_t scratch_bytes() const override { return step_.scratch_bytes; }
  void run(const Memory& memory, char* scratch) const override {
    step_.run(memory.bindings(), memory.workspace(), scratch);
  }
  std::string describe() const override { return step_.name; }

 private:
  AttentionStep step_;
};

}  // namespace

std::unique_ptr<Kernel> make_attention(const fuse::FusedGraph& fused, const fuse::Region& region) {
  const AddressOf address = [&fused](ir::TensorId t, const Bindings& bindings, void* workspace) {
    return Memory(fused, bindings, workspace).tensor(t);
  };
  Result<AttentionStep> step = make_attention_step(fused.graph, fused.graph.nodes[size_t(region.heavy)], address);
  return step ? std::make_unique<AttentionKernel>(std::move(*step)) : nullptr;
}

std::unique_ptr<Kernel> make_node(const fuse::FusedGraph& fused, const fuse::Region& region) {
  return std::make_unique<NodeKernel>(fused, region.heavy);
}

}  // namespace tilewright::cpu
