#include "plan/tf32.h"

#include "fuse/regions.h"
#include "ir/op_def.h"

namespace tilewright {

const char* const kTf32Note = "tf32 inside";

ir::Graph with_tf32(const ir::Graph& graph) {
  ir::Graph g = graph;
  g.nodes.clear();
  for (ir::Node node : graph.nodes) {
    for (size_t port = 0; port < 2 && fuse::is_contraction(node); ++port) {
      const ir::TensorId operand = node.in[port];
      if (operand == ir::kNone || g.tensor(operand).type != DataType_t::FLOAT) continue;
      ir::Tensor rounded = g.tensor(operand);
      rounded.name += " as TF32", rounded.uid = 0;
      rounded.type = DataType_t::HALF, rounded.role = ir::Role::Virtual, rounded.value.reset();
      ir::Node identity;
      identity.op = ir::find_op("pointwise"), identity.name = node.name + "/tf32", identity.compute = DataType_t::FLOAT;
      identity.attrs["mode"] = std::string("IDENTITY");
      identity.in.assign(identity.op->inputs.size(), ir::kNone);
      identity.in[0] = operand;
      node.in[port] = ir::TensorId(g.tensors.size());
      identity.out = {node.in[port]};
      g.tensors.push_back(std::move(rounded));
      g.nodes.push_back(std::move(identity));
    }
    g.nodes.push_back(std::move(node));
  }
  return g;
}

}  // namespace tilewright
