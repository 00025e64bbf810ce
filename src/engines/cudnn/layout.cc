// Dims put in the order in which cuDNN's engines take them. What pointwise nodes, reductions and products mean does not
// depend on it, as long as all their operands are turned alike.
#include <algorithm>
#include <set>

#include "engines/cudnn/lowering.h"
#include "ir/op_def.h"
#include "ops/pointwise.h"

namespace tilewright::cudnn {
namespace {

using ir::NodeId;
using ir::TensorId;

// All tensors of the nodes, if each node is one of these ops; else none.
std::set<TensorId> tensors_of(const Lowering& l, const std::vector<NodeId>& nodes,
                              std::initializer_list<std::string_view> ops) {
  std::set<TensorId> all;
  for (NodeId id : nodes) {
    const ir::Node& n = l.node(id);
    if (std::find(ops.begin(), ops.end(), n.op->name) == ops.end()) return {};
    if (std::string_view(n.op->name) == "pointwise" && pointwise_mode(n) == PointwiseMode_t::GEN_INDEX) return {};
    all.insert(n.in.begin(), n.in.end());
    all.insert(n.out.begin(), n.out.end());
  }
  all.erase(ir::kNone);
  return all;
}

// Engines reduce what lies channels last, in at least four dims: the fastest dim becomes dim 1.
void arrange_reductions(Lowering& l, const std::vector<NodeId>& nodes) {
  const auto reduction = std::find_if(nodes.begin(), nodes.end(),
                                      [&](NodeId id) { return std::string_view(l.node(id).op->name) == "reduction"; });
  if (reduction == nodes.end()) return;
  const View x = l.view(l.node(*reduction).in[0]);
  size_t fastest = 1;
  for (size_t d = 0; d < x.dim.size(); ++d)
    if (x.stride[d] == 1 && x.dim[d] > 1) fastest = d;
  for (TensorId t : tensors_of(l, nodes, {"pointwise", "reduction"})) {
    View v = l.view(t);
    for (Dims* list : {&v.dim, &v.stride}) {
      const int64_t moved = (*list)[fastest];
      list->erase(list->begin() + long(fastest));
      list->insert(list->begin() + 1, moved);
    }
    while (v.dim.size() < 4) v.stride.push_back(v.dim[1] * v.stride[1]), v.dim.push_back(1);
    l.set_view(t, v);
  }
}

// Batch dims as one; null where they do not lie so.
std::optional<View> folded(const View& v) {
  const size_t rank = v.dim.size();
  View to{{1, v.dim[rank - 2], v.dim[rank - 1]}, {1, v.stride[rank - 2], v.stride[rank - 1]}};
  bool any = false;
  for (size_t d = rank - 2; d-- > 0;) {
    if (v.dim[d] == 1) continue;
    if (!any) to.stride[0] = v.stride[d];
    else if (v.stride[d] != to.dim[0] * to.stride[0]) return std::nullopt;
    any = true;
    to.dim[0] *= v.dim[d];
  }
  if (!any) to.stride[0] = v.stride[0];
  return to;
}

// Engines multiply matrices in batches of one dim.
void fold_batches(Lowering& l, const std::vector<NodeId>& nodes) {
  int64_t batches = 1;
  bool products = false;
  std::map<TensorId, View> views;
  for (TensorId t : tensors_of(l, nodes, {"pointwise", "matmul", "reduction"})) {
    if (l.view(t).dim.size() < 4) return;
    const std::optional<View> v = folded(l.view(t));
    if (!v) return;
    batches = std::max(batches, v->dim[0]);
    views[t] = *v;
  }
  for (NodeId id : nodes) products |= std::string_view(l.node(id).op->name) == "matmul";
  if (!products) return;
  for (const auto& [t, v] : views)
    if (v.dim[0] != 1 && v.dim[0] != batches) return;
  for (const auto& [t, v] : views) l.set_view(t, v);
}

}  // namespace

void arrange(Lowering& l, const std::vector<NodeId>& nodes) {
  arrange_reductions(l, nodes);
  fold_batches(l, nodes);
}

}  // namespace tilewright::cudnn
