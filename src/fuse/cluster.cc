#include "fuse/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "ops/pointwise.h"

namespace tilewright::fuse {
namespace {

using ir::kNone;
using ir::Node;
using ir::NodeId;
using ir::Role;
using ir::Tensor;
using ir::TensorId;

// Limits that keep a region's registers and parameters within reason for every engine.
constexpr size_t kMaxNodes = 64;
constexpr size_t kMaxTensors = 56;

std::string_view op_name(const Node& n) { return n.op->name; }

class Clustering {
 public:
  Clustering(const FusedGraph& f, const FuseOptions& options) : f_(f), g_(f.graph), options_(options) {
    producer_.assign(g_.tensors.size(), -1);
    consumers_.resize(g_.tensors.size());
    viewed_.assign(g_.tensors.size(), false);
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      for (TensorId t : g_.nodes[i].out)
        if (t != kNone) producer_[size_t(t)] = NodeId(i);
      for (TensorId t : g_.nodes[i].in)
        if (t != kNone) consumers_[size_t(t)].push_back(NodeId(i));
    }
    // Nodes that write a part of a tensor come before those that read it.
    parts_.resize(g_.tensors.size());
    for (size_t t = 0; t < g_.tensors.size(); ++t)
      if (const TensorId root = f.place[t].root; root != kNone && root != TensorId(t) && producer_[t] >= 0)
        parts_[size_t(root)].push_back(TensorId(t));
    // What reads a view reads its root.
    for (size_t t = 0; t < g_.tensors.size(); ++t) {
      const TensorId root = f.place[t].root;
      if (root == kNone || root == TensorId(t)) continue;
      auto& of_root = consumers_[size_t(root)];
      of_root.insert(of_root.end(), consumers_[t].begin(), consumers_[t].end());
      viewed_[size_t(root)] = true;
    }
    for (size_t t = 0; t < g_.tensors.size(); ++t)
      for (TensorId part : parts_[t]) consumers_[size_t(part)] = consumers_[t];
  }

  std::vector<Cluster> run() {
    start();
    if (options_.fuse) {
      for (bool changed = true; changed;) {
        changed = false;
        changed |= merge_along_edges();
        changed |= merge_siblings();
      }
    }
    return ordered();
  }

 private:
  TensorId root(TensorId t) const {
    const TensorId r = f_.place[size_t(t)].root;
    return r == kNone ? t : r;
  }
  bool is_view(TensorId t) const { return root(t) != t; }

  static Dims aligned(const Dims& dim, size_t rank) {
    Dims d(rank - dim.size(), 1);
    d.insert(d.end(), dim.begin(), dim.end());
    return d;
  }

  // --- start: one cluster per node, contractions with what only they read
  // ---------------------------------------------
  bool can_be_rows(const Node& n) const {
    for (const auto* list : {&n.in, &n.out})
      for (TensorId t : *list)
        if (t != kNone && (g_.tensor(t).dim.size() > size_t(kMaxRank) || g_.tensor(t).ragged_offset != kNone ||
                           g_.tensor(t).reordering != TensorReordering_t::NONE))
          return false;
    if (op_name(n) == "pointwise") return true;
    if (op_name(n) != "reduction") return false;
    // A product over nothing turns a zero into a one; leave that to the op itself.
    return n.attr_enum("mode", ReductionMode_t::NOT_SET) != ReductionMode_t::MUL_NO_ZEROS ||
           g_.tensor(n.in[0]).dim != g_.tensor(n.out[0]).dim;
  }

  // Elements of strides and types, and an Index in memory, that it is read from as it is.
  bool can_be_pooling(const Node& n) const {
    for (const auto* list : {&n.in, &n.out})
      for (TensorId t : *list)
        if (t != kNone && (g_.tensor(t).ragged_offset != kNone || g_.tensor(t).reordering != TensorReordering_t::NONE))
          return false;
    const TensorId index = n.in.size() > 2 ? n.in[2] : kNone;
    return index == kNone || (g_.tensor(index).role != Role::Scalar && !g_.tensor(index).value);
  }

  void add_prologue(const Node& heavy, Cluster& c) {
    for (size_t port = 0; options_.fuse && port < std::min<size_t>(2, heavy.in.size()); ++port)
      if (heavy.in[port] != kNone) find_prologue(heavy, port, c);
    for (const auto& p : c.prologue) c.nodes.insert(c.nodes.end(), p.begin(), p.end());
    std::sort(c.nodes.begin(), c.nodes.end());
  }

  // Nodes before the contraction that make its operand and nothing else, from what is in memory anyway.
  void find_prologue(const Node& heavy, size_t port, Cluster& c) {
    std::vector<NodeId> found;
    std::vector<TensorId> todo = {heavy.in[port]};
    const Dims& dim = g_.tensor(heavy.in[port]).dim;
    while (!todo.empty()) {
      const TensorId t = todo.back();
      todo.pop_back();
      const NodeId p = producer_[size_t(t)];
      if (p < 0 || cluster_of_[size_t(p)] >= 0) continue;
      const Node& n = g_.nodes[size_t(p)];
      const bool only_here = g_.tensor(t).role == Role::Virtual && !viewed_[size_t(t)] &&
                             f_.place[size_t(t)].root == kNone && consumers_[size_t(t)].size() == 1 &&
                             n.out.size() == 1;
      if (!only_here || op_name(n) != "pointwise" || !can_be_rows(n)) continue;
      if (g_.tensor(t).dim != dim || !reads_memory(n, dim)) continue;
      found.push_back(p);
      for (TensorId in : n.in)
        if (in != kNone) todo.push_back(in);
    }
    std::sort(found.begin(), found.end());
    c.prologue[port] = found;
  }

  // Whether the operands of the operand's own size come from memory or from further pointwise nodes, and not fresh out
  // of a contraction whose epilogue is the better place for the node.
  bool reads_memory(const Node& n, const Dims& dim) const {
    for (TensorId t : n.in) {
      if (t == kNone || g_.tensor(t).dim != dim) continue;
      const NodeId p = producer_[size_t(t)];
      if (p < 0) continue;
      if (op_name(g_.nodes[size_t(p)]) == "pointwise") continue;
      if (g_.tensor(t).role == Role::Output || consumers_[size_t(t)].size() > 1) continue;
      return false;
    }
    return true;
  }

  void start() {
    cluster_of_.assign(g_.nodes.size(), -1);
    for (size_t i = g_.nodes.size(); i-- > 0;) {  // a contraction before what it reads
      if (cluster_of_[i] >= 0) continue;
      const Node& n = g_.nodes[i];
      Cluster c;
      c.nodes = {NodeId(i)};
      if (is_contraction(n) && g_.tensor(n.out[0]).dim.size() + 1 <= size_t(kMaxRank)) {
        c.anchor = Anchor::Contraction;
        c.heavy = NodeId(i);
        add_prologue(n, c);
      } else if (is_pooling(n) && can_be_pooling(n)) {
        c.anchor = Anchor::Pooling;
        c.heavy = NodeId(i);
        add_prologue(n, c);
      } else if (can_be_rows(n) && rows_shape(c.nodes, c.domain, c.inner)) {
        c.anchor = Anchor::Rows;
      } else {
        c.anchor = op_name(n) == "sdpa" || op_name(n) == "sdpa_backward" ? Anchor::Attention : Anchor::Node;
        c.heavy = NodeId(i);
      }
      for (NodeId id : c.nodes) cluster_of_[size_t(id)] = int(clusters_.size());
      clusters_.push_back(std::move(c));
    }
  }

  // --- what one loop nest can compute
  // --------------------------------------------------------------------------------- The domain and the reduced dims
  // of pointwise nodes and reductions, if they fit together.
  bool rows_shape(const std::vector<NodeId>& nodes, Dims& domain, DimMask& inner) const {
    size_t rank = 1;
    for (NodeId id : nodes) rank = std::max(rank, node_domain(g_.nodes[size_t(id)]).size());
    domain.assign(rank, 1);
    inner = 0;
    int64_t largest = 0;
    for (NodeId id : nodes) {
      const Dims d = aligned(node_domain(g_.nodes[size_t(id)]), rank);
      largest = std::max(largest, volume(d));
      for (size_t k = 0; k < rank; ++k) {
        if (d[k] != domain[k] && d[k] != 1 && domain[k] != 1) return false;
        if (d[k] != 1) domain[k] = d[k];
      }
    }
    if (volume(domain) != largest) return false;
    return reductions_fit(nodes, domain, inner);
  }

  // Reductions whose results the region reads again all fold the same dims, the inner ones. Of the others some do too,
  // and some are side reductions.
  bool reductions_fit(const std::vector<NodeId>& nodes, const Dims& domain, DimMask& inner) const {
    std::vector<NodeId> unread;
    bool chosen = false;
    const auto choose = [&](DimMask dims) {
      const bool agrees = !chosen || inner == dims;
      inner = dims;
      chosen = true;
      return agrees;
    };
    for (NodeId id : nodes) {
      const DimMask dims = reduced_dims(g_, id, domain.size());
      if (dims == 0) continue;
      const auto& readers = consumers_[size_t(g_.nodes[size_t(id)].out[0])];
      const bool read = std::any_of(readers.begin(), readers.end(), [&](NodeId r) { return contains(nodes, r); });
      if (!read) unread.push_back(id);
      else if (!choose(dims)) return false;
    }
    for (NodeId id : unread)
      if (!chosen && !can_be_side(id, domain)) choose(reduced_dims(g_, id, domain.size()));
    for (NodeId id : unread)
      if (!chosen && reduces_fastest(id)) choose(reduced_dims(g_, id, domain.size()));
    for (NodeId id : unread)
      if (reduced_dims(g_, id, domain.size()) != inner && !can_be_side(id, domain)) return false;
    for (NodeId id : nodes) {
      const DimMask dims = reduced_dims(g_, id, domain.size());
      if (dims == 0 || dims != inner) continue;
      const Dims x = aligned(g_.tensor(g_.nodes[size_t(id)].in[0]).dim, domain.size());
      for (size_t k = 0; k < domain.size(); ++k)
        if ((inner >> k & 1) && x[k] != domain[k]) return false;
    }
    return true;
  }

  // Side reductions keep an array of results per task: it must be small beside the domain.
  bool can_be_side(NodeId id, const Dims& domain) const {
    const Node& n = g_.nodes[size_t(id)];
    const int64_t kept = volume(g_.tensor(n.out[0]).dim);
    const bool wide =
        n.compute == DataType_t::DOUBLE || n.compute == DataType_t::INT32 || n.compute == DataType_t::INT64;
    return !wide && aligned(g_.tensor(n.in[0]).dim, domain.size()) == domain &&
           (kept <= 4096 || (kept <= 65536 && kept <= volume(domain) / 8));
  }

  // Folds the dim along which neighbours lie in memory, so that whole vectors fold into one result.
  bool reduces_fastest(NodeId id) const {
    const Node& n = g_.nodes[size_t(id)];
    const Tensor& x = g_.tensor(n.in[0]);
    size_t fastest = x.dim.size();
    for (size_t d = 0; d < x.dim.size(); ++d)
      if (x.dim[d] > 1 && (fastest == x.dim.size() || std::abs(x.stride[d]) < std::abs(x.stride[fastest]))) fastest = d;
    return fastest == x.dim.size() || g_.tensor(n.out[0]).dim[fastest] != x.dim[fastest];
  }

  const Dims& node_domain(const Node& n) const { return g_.tensor(op_name(n) == "reduction" ? n.in[0] : n.out[0]).dim; }

  bool contains(const std::vector<NodeId>& nodes, NodeId id) const {
    return std::binary_search(nodes.begin(), nodes.end(), id);
  }

  // Reads something of its own through a view, or something of which it writes a part: that would have to be in memory
  // before the launch is over.
  bool reads_own_view(const std::vector<NodeId>& nodes) const {
    for (NodeId id : nodes)
      for (TensorId t : g_.nodes[size_t(id)].in) {
        if (t == kNone) continue;
        if (is_view(t) && producer_[size_t(root(t))] >= 0 && contains(nodes, producer_[size_t(root(t))])) return true;
        for (TensorId part : parts_[size_t(root(t))])
          if (contains(nodes, producer_[size_t(part)])) return true;
      }
    return false;
  }

  size_t tensor_count(const std::vector<NodeId>& nodes) const {
    std::set<TensorId> all;
    for (NodeId id : nodes) {
      for (TensorId t : g_.nodes[size_t(id)].in) all.insert(t);
      for (TensorId t : g_.nodes[size_t(id)].out) all.insert(t);
    }
    return all.size();
  }

  // Whether nodes may be the epilogue of the heavy node: elementwise on its result, or, of a contraction, folding a
  // value of it.
  bool epilogue_fits(const Cluster& c, const std::vector<NodeId>& nodes) const {
    const Node& heavy = g_.nodes[size_t(c.heavy)];
    const Dims& dim = g_.tensor(heavy.out[0]).dim;
    const std::string roles = is_contraction(heavy) ? contraction_dims(g_, heavy) : "";
    for (NodeId id : nodes) {
      if (id == c.heavy || c.in_prologue(id)) continue;
      const Node& n = g_.nodes[size_t(id)];
      for (size_t port = 1; port < heavy.out.size(); ++port)  // other results have no value in the program
        if (heavy.out[port] != kNone && std::count(n.in.begin(), n.in.end(), heavy.out[port])) return false;
      if (op_name(n) == "reduction" && is_contraction(heavy)) {
        const Dims &x = g_.tensor(n.in[0]).dim, &y = g_.tensor(n.out[0]).dim;
        if (x != dim || x == y) return false;
        for (char group : {'m', 'n'}) {  // a tile folds a whole group or none of it
          bool folded = false, kept = false;
          for (size_t d = 0; d < dim.size(); ++d) {
            if (roles[d] != group || dim[d] == 1) continue;
            (y[d] == 1 ? folded : kept) = true;
          }
          if (folded && kept) return false;
        }
        for (NodeId reader : consumers_[size_t(n.out[0])])
          if (contains(nodes, reader)) return false;
      } else if (op_name(n) != "pointwise" || g_.tensor(n.out[0]).dim != dim) {
        return false;
      }
    }
    return true;
  }

  // --- merging
  // --------------------------------------------------------------------------------------------------------
  std::set<int> successors(int c) const {
    std::set<int> next;
    for (NodeId id : clusters_[size_t(c)].nodes)
      for (TensorId t : g_.nodes[size_t(id)].out)
        if (t != kNone)
          for (NodeId reader : consumers_[size_t(t)]) next.insert(cluster_of_[size_t(reader)]);
    next.erase(c);
    return next;
  }

  // A way from a to b through a third cluster: merging would make a cycle.
  bool detour(int a, int b) const {
    std::vector<bool> seen(clusters_.size());
    std::vector<int> todo;
    for (int s : successors(a))
      if (s != b) todo.push_back(s);
    while (!todo.empty()) {
      const int c = todo.back();
      todo.pop_back();
      if (c == b) return true;
      if (c == a || seen[size_t(c)]) continue;
      seen[size_t(c)] = true;
      for (int s : successors(c)) todo.push_back(s);
    }
    return false;
  }

  bool has_epilogue(int c) const {
    return clusters_[size_t(c)].anchor == Anchor::Contraction || clusters_[size_t(c)].anchor == Anchor::Pooling;
  }

  bool try_merge(int a, int b, bool same_domain) {
    if (a == b) return false;
    if (!has_epilogue(a)) std::swap(a, b);  // what has an epilogue is in front, if any
    Cluster &x = clusters_[size_t(a)], &y = clusters_[size_t(b)];
    if (y.anchor != Anchor::Rows || (x.anchor != Anchor::Rows && !has_epilogue(a))) return false;
    if (x.nodes.size() + y.nodes.size() > kMaxNodes) return false;
    if (same_domain && (x.anchor != Anchor::Rows || x.domain != y.domain)) return false;
    std::vector<NodeId> nodes;
    std::merge(x.nodes.begin(), x.nodes.end(), y.nodes.begin(), y.nodes.end(), std::back_inserter(nodes));
    Dims domain;
    DimMask inner = 0;
    if (has_epilogue(a) ? !epilogue_fits(x, nodes) : !rows_shape(nodes, domain, inner)) return false;
    if (tensor_count(nodes) > kMaxTensors || reads_own_view(nodes)) return false;
    if (detour(a, b) || detour(b, a)) return false;
    if (has_epilogue(a) && successors(b).count(a)) return false;  // it makes an operand
    x.nodes = std::move(nodes);
    x.domain = std::move(domain);
    x.inner = inner;
    for (NodeId id : x.nodes) cluster_of_[size_t(id)] = a;
    y.nodes.clear();
    return true;
  }

  bool merge_along_edges() {
    bool changed = false;
    for (size_t i = 0; i < g_.nodes.size(); ++i)
      for (TensorId t : g_.nodes[i].in) {
        if (t == kNone || is_view(t) || producer_[size_t(t)] < 0) continue;
        changed |= try_merge(cluster_of_[size_t(producer_[size_t(t)])], cluster_of_[i], false);
      }
    return changed;
  }

  // Regions over one domain that read the same tensor read it once.
  bool merge_siblings() {
    bool changed = false;
    for (size_t t = 0; t < g_.tensors.size(); ++t) {
      if (g_.tensors[t].role == Role::Scalar || g_.tensors[t].role == Role::Constant) continue;
      const auto& readers = consumers_[t];
      constexpr size_t kMaxReaders = 16;
      for (size_t j = 0; j < readers.size() && j < kMaxReaders; ++j)
        for (size_t k = j + 1; k < readers.size() && k < kMaxReaders; ++k)
          changed |= try_merge(cluster_of_[size_t(readers[j])], cluster_of_[size_t(readers[k])], true);
    }
    return changed;
  }

  std::vector<Cluster> ordered() {
    std::vector<int> waiting(clusters_.size(), 0);
    for (size_t c = 0; c < clusters_.size(); ++c)
      for (int s : successors(int(c))) ++waiting[size_t(s)];
    auto first_node = [&](int c) { return clusters_[size_t(c)].nodes.front(); };
    auto later = [&](int a, int b) { return first_node(a) < first_node(b); };
    std::set<int, decltype(later)> ready(later);
    for (size_t c = 0; c < clusters_.size(); ++c)
      if (!clusters_[c].nodes.empty() && waiting[c] == 0) ready.insert(int(c));
    std::vector<int> order;
    while (!ready.empty()) {
      const int c = *ready.begin();
      ready.erase(ready.begin());
      order.push_back(c);
      for (int s : successors(c))
        if (--waiting[size_t(s)] == 0) ready.insert(s);
    }
    std::vector<Cluster> result;
    for (int c : order) result.push_back(clusters_[size_t(c)]);
    TW_CHECK(result.size() == size_t(std::count_if(clusters_.begin(), clusters_.end(),
                                                   [](const Cluster& c) { return !c.nodes.empty(); })));
    return result;
  }

  const FusedGraph& f_;
  const ir::Graph& g_;
  const FuseOptions& options_;
  std::vector<NodeId> producer_;
  std::vector<std::vector<NodeId>> consumers_;  // views count as reading their root
  std::vector<bool> viewed_;
  std::vector<std::vector<TensorId>> parts_;  // per tensor: those that nodes write into its memory
  std::vector<int> cluster_of_;
  std::vector<Cluster> clusters_;
};

}  // namespace

DimMask reduced_dims(const ir::Graph& g, NodeId id, size_t rank) {
  const Node& n = g.nodes[size_t(id)];
  if (op_name(n) != "reduction") return 0;
  const Dims &x = g.tensor(n.in[0]).dim, &y = g.tensor(n.out[0]).dim;
  DimMask dims = 0;
  for (size_t k = 0; k < x.size(); ++k)
    if (x[k] != y[k]) dims |= DimMask(1) << (k + rank - x.size());
  return dims;
}

bool Cluster::in_prologue(NodeId id) const {
  for (const auto& p : prologue)
    if (std::binary_search(p.begin(), p.end(), id)) return true;
  return false;
}

std::vector<Cluster> cluster_nodes(const FusedGraph& f, const FuseOptions& options) {
  return Clustering(f, options).run();
}

void materialise(FusedGraph& f, const std::vector<Cluster>& clusters) {
  std::vector<int> maker(f.graph.tensors.size(), -1);
  auto keep = [&](TensorId t, const std::string& why) {
    if (f.graph.tensor(t).role != Role::Virtual || f.place[size_t(t)].root != kNone) return;
    f.place[size_t(t)].root = t;
    f.notes.push_back(fmt::format("virtual tensor \"{}\" is in memory: {}", f.graph.tensor(t).name, why));
  };
  for (size_t c = 0; c < clusters.size(); ++c)
    for (NodeId id : clusters[c].nodes)
      for (TensorId t : f.graph.nodes[size_t(id)].out) {
        if (t == kNone) continue;
        maker[size_t(t)] = int(c);
        if (clusters[c].anchor == Anchor::Node || clusters[c].anchor == Anchor::Attention)
          keep(t, fmt::format("region {} ({}) writes all its results", c, f.graph.nodes[size_t(id)].op->name));
      }
  for (size_t c = 0; c < clusters.size(); ++c)
    for (NodeId id : clusters[c].nodes)
      for (TensorId t : f.graph.nodes[size_t(id)].in)
        if (t != kNone && maker[size_t(t)] >= 0 && maker[size_t(t)] != int(c))
          keep(t, fmt::format("region {} makes it, region {} reads it", maker[size_t(t)], c));
  // Strides that let two elements share memory cannot hold values; a type must be one that can be stored.
  for (size_t t = 0; t < f.place.size(); ++t) {
    Tensor& tensor = f.graph.tensors[t];
    if (tensor.role != Role::Virtual || f.place[t].root != TensorId(t)) continue;
    if (self_overlaps(tensor.view())) tensor.stride = row_major_strides(tensor.dim);
    if (element_bits(tensor.type) == 0) tensor.type = DataType_t::FLOAT;
  }
}

}  // namespace tilewright::fuse
