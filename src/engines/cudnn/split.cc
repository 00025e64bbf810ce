// Preparing a graph for cuDNN, and cutting it where cuDNN does not take it as one.
#include <algorithm>

#include "engines/cudnn/program.h"
#include "ir/op_def.h"
#include "ops/rewriter.h"

namespace tilewright::cudnn {

using ir::kNone;
using ir::NodeId;
using ir::Role;
using ir::TensorId;

namespace {

bool lowers(const ir::Node& n) { return find_lower_op(n.op->name) != nullptr; }

}  // namespace

std::vector<bool> crossing(const ir::Graph& g, const std::vector<NodeId>& nodes) {
  std::vector<bool> inside(g.tensors.size()), outside(g.tensors.size()), shared(g.tensors.size());
  std::vector<bool> member(g.nodes.size());
  for (NodeId id : nodes) member[size_t(id)] = true;
  for (size_t i = 0; i < g.nodes.size(); ++i)
    for (const auto* list : {&g.nodes[i].in, &g.nodes[i].out})
      for (TensorId t : *list)
        if (t != kNone) (member[i] ? inside : outside)[size_t(t)] = true;
  for (size_t t = 0; t < shared.size(); ++t) shared[t] = inside[t] && outside[t] && g.tensors[t].role == Role::Virtual;
  return shared;
}

std::vector<NodeId> all_nodes(const ir::Graph& g) {
  std::vector<NodeId> list(g.nodes.size());
  for (size_t i = 0; i < list.size(); ++i) list[i] = NodeId(i);
  return list;
}

namespace {

// What a decomposition makes lies as what it is made from: engines want one layout in all that they touch.
void follow_layout(ir::Graph& g, const ir::Node& n, size_t given_tensors) {
  ir::Tensor& y = g.tensors[size_t(n.out[0])];
  if (size_t(n.out[0]) < given_tensors) return;
  const ir::Tensor* like = nullptr;
  for (TensorId t : n.in)
    if (t != kNone && g.tensor(t).dim.size() == y.dim.size() && (!like || volume(g.tensor(t).dim) > volume(like->dim)))
      like = &g.tensor(t);
  if (like) y.stride = strides_like(y.dim, like->stride);
}

bool decompose_once(Prepared& p, NodeId id) {
  const ir::Graph from = p.graph;
  if (!from.nodes[size_t(id)].op->decompose) return false;
  std::vector<NodeId> origin;
  p.graph.nodes.clear();
  for (size_t i = 0; i < from.nodes.size(); ++i) {
    if (NodeId(i) == id) {
      Rewriter rewriter(from, p.graph, from.nodes[i]);
      const size_t first = p.graph.nodes.size();
      from.nodes[i].op->decompose(rewriter);
      for (size_t k = first; k < p.graph.nodes.size(); ++k)
        follow_layout(p.graph, p.graph.nodes[k], from.tensors.size());
    } else {
      p.graph.nodes.push_back(from.nodes[i]);
    }
    origin.resize(p.graph.nodes.size(), p.origin[i]);
  }
  p.origin = std::move(origin);
  return true;
}

void decompose_unknown(Prepared& p) {
  for (NodeId i = 0; size_t(i) < p.graph.nodes.size();)
    if (lowers(p.graph.nodes[size_t(i)]) || !decompose_once(p, i)) ++i;
}

// A transposed tensor that is no one's memory lies as what it is combined with, should it come to lie somewhere.
void straighten(ir::Graph& g) {
  const ir::Links links = ir::links(g);
  const auto op = [&](NodeId id) {
    return id < 0 ? std::string_view() : std::string_view(g.nodes[size_t(id)].op->name);
  };
  for (const ir::Node& n : g.nodes) {
    if (std::string_view(n.op->name) != "pointwise") continue;
    const ir::Tensor& y = g.tensor(n.out[0]);
    if (y.role == Role::Virtual) continue;
    for (TensorId t : n.in) {
      if (t == kNone || op(links.producer[size_t(t)]) != "transpose") continue;
      ir::Tensor& x = g.tensors[size_t(t)];
      const auto& readers = links.consumers[size_t(t)];
      if (x.role == Role::Virtual && x.dim == y.dim &&
          std::none_of(readers.begin(), readers.end(), [&](NodeId r) { return op(r) == "reshape"; }))
        x.stride = y.stride;
    }
  }
}

}  // namespace

Prepared prepare(const ir::Graph& graph) {
  Prepared p{graph, all_nodes(graph), {}};
  straighten(p.graph);
  decompose_unknown(p);
  return p;
}

bool decompose_node(Prepared& p, NodeId id) {
  if (!decompose_once(p, id)) return false;
  decompose_unknown(p);
  p.decomposed.push_back(id);
  return true;
}

Result<Segment> make_segment(const ir::Graph& g, const std::vector<NodeId>& nodes, const Target& target,
                             std::vector<Reason>& reasons) {
  auto lowered = std::make_shared<const Lowered>(Lowering(g, nodes, target, crossing(g, nodes)).run());
  if (!lowered->reasons.empty()) {
    reasons = lowered->reasons;
    return not_supported("{}", reasons[0].text);
  }
  auto operations = OperationGraph::make(lowered, target, g.dynamic_shapes);
  if (!operations) {
    reasons = {{Why::Fusion, nodes.size() == 1 ? nodes[0] : -1, kNone, operations.status().err_msg}};
    return operations.status();
  }
  return Segment{nodes, std::move(lowered), std::move(*operations)};
}

namespace {

// The longest run of nodes from `first` on that an engine takes; looks a little past one that is refused.
Segment longest(const ir::Graph& g, NodeId first, const Target& target, std::vector<Reason>& reasons) {
  constexpr int kLookAhead = 2;
  Segment best;
  std::vector<NodeId> nodes;
  for (int refused = 0; size_t(first) + nodes.size() < g.nodes.size() && refused < kLookAhead;) {
    nodes.push_back(first + NodeId(nodes.size()));
    std::vector<Reason> why;
    const Result<Segment> s = make_segment(g, nodes, target, why);
    if (s && s->operations->supported()) {
      best = *s;
      refused = 0;
      continue;
    }
    ++refused;
    if (nodes.size() > 1) continue;
    if (s)
      for (const std::string& text : s->operations->heuristics(HeurMode_t::A).refusals)
        why.push_back({why_of(text), first, kNone, text});
    reasons = std::move(why);
  }
  return best;
}

}  // namespace

Split split(Prepared prepared, const Target& target) {
  Split result{std::move(prepared), {}, {}};
  ir::Graph& g = result.prepared.graph;
  for (NodeId at = 0; size_t(at) < g.nodes.size();) {
    std::vector<Reason> reasons;
    Segment s = longest(g, at, target, reasons);
    if (!s.operations) {
      if (decompose_node(result.prepared, at)) continue;
      for (Reason& r : reasons)
        r.text = fmt::format("node \"{}\" ({}): {}", g.nodes[size_t(at)].name, g.nodes[size_t(at)].op->name, r.text),
        r.node = result.prepared.origin[size_t(at)];
      result.reasons = std::move(reasons);
      result.segments.clear();
      return result;
    }
    at += NodeId(s.nodes.size());
    result.segments.push_back(std::move(s));
  }
  return result;
}

}  // namespace tilewright::cudnn
