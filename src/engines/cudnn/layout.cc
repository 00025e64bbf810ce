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

// Whether dim 1 is the fastest and the others are in order behind each other, as channels-last tensors are.
bool channels_last(const View& v) {
  int64_t before = 0;  // the stride of the last dim that has more than one element
  for (size_t d = v.dim.size(); d-- > 0;) {
    if (d == 1 || v.dim[d] == 1) continue;
    if (v.stride[d] <= before) return false;
    before = v.stride[d];
  }
  if (v.dim[1] == 1) return true;
  for (size_t d = 0; d < v.dim.size(); ++d)
    if (d != 1 && v.dim[d] > 1 && v.stride[d] <= v.stride[1]) return false;
  return v.stride[1] == 1;
}

// The tensors over as few dims as they have in common, slowest first. Null where they have no domain in common, or one
// repeats elements.
std::optional<std::map<TensorId, View>> in_few_dims(const Lowering& l, const std::set<TensorId>& tensors,
                                                    TensorId largest) {
  const size_t rank = l.view(largest).dim.size();
  Dims domain(rank, 1), order(rank);
  for (TensorId t : tensors) {
    const View& v = l.view(t);
    if (v.dim.size() != rank) return std::nullopt;
    for (size_t d = 0; d < rank; ++d) {
      if (v.dim[d] == 1) continue;
      if (v.stride[d] == 0 || (domain[d] != 1 && domain[d] != v.dim[d])) return std::nullopt;
      domain[d] = v.dim[d];
    }
  }
  for (size_t d = 0; d < rank; ++d) order[d] = int64_t(d);
  const Dims& slowest = l.view(largest).stride;
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return slowest[size_t(a)] > slowest[size_t(b)]; });
  Dims sorted;
  for (int64_t d : order) sorted.push_back(domain[size_t(d)]);
  std::vector<Dims> strides;
  for (TensorId t : tensors) {
    const View& v = l.view(t);
    // A tensor that exists between nodes only lies as the largest does.
    const Dims own =
        l.graph().tensor(t).role == ir::Role::Virtual && !l.memory(t) ? strides_like(v.dim, slowest) : v.stride;
    strides.emplace_back();
    for (int64_t d : order) strides.back().push_back(v.dim[size_t(d)] == 1 ? 0 : own[size_t(d)]);
  }
  const Collapsed c = collapse(sorted, strides);
  std::map<TensorId, View> views;
  auto stride = c.stride.begin();
  for (TensorId t : tensors) {
    View& v = views[t] = {c.dim, *stride++};
    int64_t outer = 1;
    for (size_t d = 0; d < v.dim.size(); ++d) outer = std::max(outer, v.dim[d] * v.stride[d]);
    for (size_t d = 0; d < v.dim.size(); ++d)
      if (v.stride[d] == 0) v.dim[d] = 1, v.stride[d] = outer;
  }
  return views;
}

// Of three dims, the engine of pointwise nodes reads wrong elements of an operand in memory that repeats along the
// first (seen with cuDNN 9.19 on an H200). kNone: there is none such.
TensorId repeats_along_first(const Lowering& l, const std::map<TensorId, View>& views, TensorId largest) {
  const View& whole = views.at(largest);
  for (const auto& [t, v] : views) {
    const ir::Role role = l.graph().tensor(t).role;
    if (role == ir::Role::Scalar || role == ir::Role::Constant || whole.dim.size() != 3) continue;
    if (v.dim[0] == 1 && whole.dim[0] > 1) return t;
  }
  return ir::kNone;
}

// Engines without a product take three dims of any strides where nothing is reduced, and else four or more that lie
// channels last and packed.
void arrange_loops(Lowering& l, const std::vector<NodeId>& nodes) {
  const std::set<TensorId> tensors = tensors_of(l, nodes, {"pointwise", "reduction"});
  bool reduces = false;
  for (NodeId id : nodes) reduces |= std::string_view(l.node(id).op->name) == "reduction";
  if (tensors.empty()) return;
  const TensorId largest = *std::max_element(tensors.begin(), tensors.end(), [&](TensorId a, TensorId b) {
    return volume(l.view(a).dim) < volume(l.view(b).dim);
  });
  std::map<TensorId, View> given;
  for (TensorId t : tensors) given[t] = l.view(t);
  const View& v = l.view(largest);
  const bool wrong = !reduces && repeats_along_first(l, given, largest) != ir::kNone;
  if (!wrong && (v.dim.size() < 4 ? !reduces : channels_last(v))) return;
  auto views = in_few_dims(l, tensors, largest);
  if (!views && !wrong) return;
  if (!views) views = given;
  const bool few = !reduces && (*views)[largest].dim.size() <= 3;
  if (const TensorId t = few ? repeats_along_first(l, *views, largest) : ir::kNone; t != ir::kNone)
    return l.refuse(Why::Stride,
                    fmt::format("tensor \"{}\" repeats along the first of three dims, where cuDNN's pointwise engine "
                                "reads wrong elements",
                                l.graph().tensor(t).name),
                    t);
  for (auto& [t, view] : *views) {
    if (!few) {
      for (Dims* list : {&view.dim, &view.stride}) {
        const int64_t fastest = list->back();
        list->pop_back();
        list->insert(list->begin() + std::min<long>(1, long(list->size())), fastest);
      }
      if (view.dim.size() == 1) view = Lowering::widened(view, 2);
      while (view.dim.size() < 4) view.stride.push_back(view.dim[1] * view.stride[1]), view.dim.push_back(1);
    }
    l.set_view(t, Lowering::widened(view, 3));
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

// Engines multiply matrices in batches of one dim; but products around a softmax are attention, of two.
void fold_batches(Lowering& l, const std::vector<NodeId>& nodes) {
  int64_t batches = 1, products = 0, reductions = 0;
  for (NodeId id : nodes) {
    products += std::string_view(l.node(id).op->name) == "matmul";
    reductions += std::string_view(l.node(id).op->name) == "reduction";
  }
  if (products == 0 || (products > 1 && reductions > 0)) return;
  std::map<TensorId, View> views;
  for (TensorId t : tensors_of(l, nodes, {"pointwise", "matmul", "reduction"})) {
    if (l.view(t).dim.size() < 4) return;
    const std::optional<View> v = folded(l.view(t));
    if (!v) return;
    batches = std::max(batches, v->dim[0]);
    views[t] = *v;
  }
  for (const auto& [t, v] : views)
    if (v.dim[0] != 1 && v.dim[0] != batches) return;
  for (const auto& [t, v] : views) l.set_view(t, v);
}

// Engines of batchnorm take two spatial dims or three.
void widen_batchnorm(Lowering& l, const std::vector<NodeId>& nodes) {
  const auto is_norm = [&](NodeId id) { return std::string_view(l.node(id).op->name).substr(0, 9) == "batchnorm"; };
  if (std::none_of(nodes.begin(), nodes.end(), is_norm)) return;
  const std::set<TensorId> tensors =
      tensors_of(l, nodes, {"pointwise", "batchnorm", "batchnorm_inference", "batchnorm_backward"});
  for (TensorId t : tensors)
    if (l.view(t).dim.size() != 3 && volume(l.view(t).dim) != 1) return;
  for (TensorId t : tensors) {
    View v = Lowering::widened(l.view(t), 3);
    v.dim.push_back(1);
    v.stride.push_back(v.stride[2]);
    l.set_view(t, v);
  }
}

}  // namespace

void arrange(Lowering& l, const std::vector<NodeId>& nodes) {
  arrange_loops(l, nodes);
  widen_batchnorm(l, nodes);
  fold_batches(l, nodes);
}

}  // namespace tilewright::cudnn
