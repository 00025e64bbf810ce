#include "fuse/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "ir/op_def.h"

namespace tilewright::fuse {
namespace {

using ir::kNone;
using ir::Node;
using ir::NodeId;
using ir::Role;
using ir::TensorId;

constexpr size_t kMaxChain = 12;

class Recompute {
 public:
  Recompute(FusedGraph& f, const std::vector<Cluster>& clusters) : f_(f), clusters_(clusters) {
    producer_.assign(f.graph.tensors.size(), -1);
    cluster_of_.assign(f.graph.nodes.size(), -1);
    for (size_t c = 0; c < clusters.size(); ++c)
      for (NodeId id : clusters[c].nodes) cluster_of_[size_t(id)] = int(c);
    for (size_t i = 0; i < f.graph.nodes.size(); ++i)
      for (TensorId t : f.graph.nodes[i].out)
        if (t != kNone) producer_[size_t(t)] = NodeId(i);
  }

  bool run() {
    for (size_t c = 0; c < clusters_.size(); ++c) {
      if (clusters_[c].anchor != Anchor::Rows && clusters_[c].anchor != Anchor::Contraction) continue;
      for (NodeId id : clusters_[c].nodes)
        for (TensorId t : f_.graph.nodes[size_t(id)].in)
          if (t != kNone && try_copy(t, int(c))) return true;
    }
    return false;
  }

 private:
  // The nodes that make t, as far as they are not in memory.
  bool collect(TensorId t, int maker, std::set<NodeId>& chain, std::set<TensorId>& leaves) const {
    const NodeId p = producer_[size_t(t)];
    if (p < 0 || f_.place[size_t(t)].root != kNone) {
      leaves.insert(t);
      return true;
    }
    const Node& n = f_.graph.nodes[size_t(p)];
    if (cluster_of_[size_t(p)] != maker || std::string_view(n.op->name) != "pointwise") {
      leaves.insert(t);
      return true;
    }
    if (!chain.insert(p).second) return true;
    if (chain.size() > kMaxChain) return false;
    return std::all_of(n.in.begin(), n.in.end(),
                       [&](TensorId in) { return in == kNone || collect(in, maker, chain, leaves); });
  }

  bool try_copy(TensorId t, int reader) {
    const NodeId p = producer_[size_t(t)];
    if (p < 0 || f_.place[size_t(t)].root != kNone || f_.graph.tensor(t).role != Role::Virtual) return false;
    const int maker = cluster_of_[size_t(p)];
    if (maker == reader || clusters_[size_t(maker)].anchor != Anchor::Rows) return false;
    std::set<NodeId> chain;
    std::set<TensorId> leaves;
    if (!collect(t, maker, chain, leaves) || chain.empty()) return false;
    // What the reader would read in place of t, and what would have to be kept for it.
    std::set<TensorId> read;
    for (NodeId id : clusters_[size_t(reader)].nodes)
      read.insert(f_.graph.nodes[size_t(id)].in.begin(), f_.graph.nodes[size_t(id)].in.end());
    int64_t more = 0, kept = 0;
    for (TensorId leaf : leaves) {
      const ir::Tensor& tensor = f_.graph.tensor(leaf);
      const int64_t bytes = volume(tensor.dim) * element_bits(tensor.type) / 8;
      if (tensor.role == Role::Scalar || tensor.role == Role::Constant) continue;
      if (!read.count(leaf)) more += bytes;
      if (f_.place[size_t(leaf)].root == kNone) kept += bytes;
    }
    const int64_t own = volume(f_.graph.tensor(t).dim) * element_bits(f_.graph.tensor(t).type) / 8;
    // Keeping it costs a write and a read; what belongs to rows or columns only counts little beside that.
    if (more * 4 > own * 9 || kept * 4 > own) return false;
    copy(t, chain, reader);
    return true;
  }

  void copy(TensorId t, const std::set<NodeId>& chain, int reader) {
    ir::Graph& g = f_.graph;
    std::vector<Node> copies;
    std::vector<NodeId> origins;
    std::vector<TensorId> renamed(g.tensors.size(), kNone);
    for (NodeId id : chain) {  // ascending: in topological order
      Node n = g.nodes[size_t(id)];
      for (TensorId& in : n.in)
        if (in != kNone && renamed[size_t(in)] != kNone) in = renamed[size_t(in)];
      for (TensorId& out : n.out) {
        if (out == kNone) continue;
        ir::Tensor copied = g.tensor(out);
        copied.role = Role::Virtual;
        renamed[size_t(out)] = TensorId(g.tensors.size());
        out = renamed[size_t(out)];
        g.tensors.push_back(std::move(copied));
        f_.place.push_back({});
      }
      copies.push_back(std::move(n));
      origins.push_back(f_.origin[size_t(id)]);
    }
    NodeId first = NodeId(g.nodes.size());
    for (NodeId id : clusters_[size_t(reader)].nodes)
      for (TensorId& in : g.nodes[size_t(id)].in)
        if (in == t) {
          in = renamed[size_t(t)];
          first = std::min(first, id);
        }
    g.nodes.insert(g.nodes.begin() + first, copies.begin(), copies.end());
    f_.origin.insert(f_.origin.begin() + first, origins.begin(), origins.end());
    f_.notes.push_back(fmt::format("\"{}\" is computed twice instead of being kept in memory", g.tensor(t).name));
  }

  FusedGraph& f_;
  const std::vector<Cluster>& clusters_;
  std::vector<NodeId> producer_;
  std::vector<int> cluster_of_;
};

}  // namespace

bool recompute(FusedGraph& f, const std::vector<Cluster>& clusters) { return Recompute(f, clusters).run(); }

}  // namespace tilewright::fuse
