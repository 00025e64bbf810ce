#include "ir/op_def.h"

namespace tilewright {

namespace ops {
#define OP(name) extern const ir::OpDef name;
#include "ops/op_list.def"
#undef OP
}  // namespace ops

namespace ir {

const std::vector<const OpDef*>& all_ops() {
  static const std::vector<const OpDef*> list = {
#define OP(name) &ops::name,
#include "ops/op_list.def"
#undef OP
  };
  return list;
}

const OpDef* find_op(std::string_view name_or_tag) {
  for (const OpDef* op : all_ops())
    if (name_or_tag == op->name || name_or_tag == op->tag) return op;
  return nullptr;
}

int OpDef::input_port(std::string_view port) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (port == inputs[i].name) return int(i);
  return -1;
}

int OpDef::output_port(std::string_view port) const {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (port == outputs[i].name) return int(i);
  return -1;
}

Cost cost(const Graph& g, const Node& n) {
  Cost c;
  if (n.op->flops) c.flops = n.op->flops(g, n);
  else if (!n.out.empty() && n.out[0] != kNone) c.flops = double(volume(g.tensor(n.out[0]).dim));
  return c;
}

Cost cost(const Graph& g) {
  Cost c;
  for (const Node& n : g.nodes) c.flops += cost(g, n).flops;
  for (const Tensor& t : g.tensors)
    if (t.role == Role::Input || t.role == Role::Output)
      c.bytes += double(volume(t.dim)) * element_bits(t.storage_type()) / 8;
  return c;
}

}  // namespace ir
}  // namespace tilewright
