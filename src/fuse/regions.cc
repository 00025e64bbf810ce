#include "fuse/regions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include "fuse/cluster.h"
#include "fuse/recompute.h"
#include "fuse/views.h"
#include "ops/pointwise.h"
#include "ops/rewriter.h"

namespace tilewright::fuse {

const char* to_string(Anchor a) {
  switch (a) {
    case Anchor::Rows: return "rows";
    case Anchor::Contraction: return "contraction";
    case Anchor::Pooling: return "pooling";
    case Anchor::Attention: return "attention";
    case Anchor::Node: return "node";
  }
  return "";
}

bool is_contraction(const ir::Node& n) {
  const std::string_view op = n.op->name;
  return op == "matmul" || op == "conv_fprop" || op == "conv_dgrad" || op == "conv_wgrad";
}

bool is_pooling(const ir::Node& n) {
  const std::string_view op = n.op->name;
  return op == "resample" || op == "resample_backward";
}

std::string contraction_dims(const ir::Graph& g, const ir::Node& n) {
  const std::string_view op = n.op->name;
  const size_t rank = g.tensor(n.out[0]).dim.size();
  if (op == "matmul") return std::string(rank - 2, 'b') + "mn";
  if (op == "conv_wgrad") return "m" + std::string(rank - 1, 'n');
  return "mn" + std::string(rank - 2, 'm');
}

namespace {

using ir::kNone;
using ir::Node;
using ir::NodeId;
using ir::Role;
using ir::Tensor;
using ir::TensorId;

bool keep_whole(const Node& n) {
  const std::string_view op = n.op->name;
  return is_contraction(n) || op == "sdpa" || op == "sdpa_backward";
}

// Decomposes and remembers which node each new node came from: the rewriter hands names on, so each node gets a unique
// one for the time being.
void decompose_with_origin(const ir::Graph& given, FusedGraph& fused) {
  ir::Graph marked = given;
  for (size_t i = 0; i < marked.nodes.size(); ++i) marked.nodes[i].name = fmt::format("#{}#", i);
  fused.graph = decompose(marked, keep_whole);
  auto restore = [&](std::string& name) -> NodeId {
    if (name.size() < 3 || name[0] != '#') return -1;
    const size_t end = name.find('#', 1);
    if (end == std::string::npos) return -1;
    const NodeId id = NodeId(std::stol(name.substr(1, end - 1)));
    name = given.nodes[size_t(id)].name + name.substr(end + 1);
    return id;
  };
  for (Node& n : fused.graph.nodes) fused.origin.push_back(restore(n.name));
  for (size_t t = given.tensors.size(); t < fused.graph.tensors.size(); ++t) restore(fused.graph.tensors[t].name);
}

// Nodes whose results nobody reads.
void drop_dead(FusedGraph& f) {
  std::vector<bool> wanted(f.graph.tensors.size());
  for (size_t t = 0; t < wanted.size(); ++t) {
    const TensorId root = f.place[t].root;
    wanted[t] = f.graph.tensors[t].role == Role::Output || (root != kNone && root != TensorId(t));  // a part of one
  }
  std::vector<Node> nodes;
  std::vector<NodeId> origin;
  for (size_t i = f.graph.nodes.size(); i-- > 0;) {
    Node& n = f.graph.nodes[i];
    const bool live =
        std::any_of(n.out.begin(), n.out.end(), [&](TensorId t) { return t != kNone && wanted[size_t(t)]; });
    if (!live) continue;
    for (TensorId t : n.in)
      if (t != kNone) {
        wanted[size_t(t)] = true;
        if (f.place[size_t(t)].root != kNone) wanted[size_t(f.place[size_t(t)].root)] = true;
        if (f.graph.tensor(t).ragged_offset != kNone) wanted[size_t(f.graph.tensor(t).ragged_offset)] = true;
      }
    nodes.push_back(std::move(n));
    origin.push_back(f.origin[i]);
  }
  std::reverse(nodes.begin(), nodes.end());
  std::reverse(origin.begin(), origin.end());
  f.graph.nodes = std::move(nodes);
  f.origin = std::move(origin);
}

// --- programs -----------------------------------------------------------------------------------------------------
class ProgramBuilder {
 public:
  ProgramBuilder(const FusedGraph& fused, PwProgram& program) : f_(fused), p_(program) {}

  // The values that nodes of the region made so far.
  void define(TensorId t, int instr) {
    if (values_.size() < f_.graph.tensors.size()) values_.resize(f_.graph.tensors.size(), -1);
    values_[size_t(t)] = instr;
  }

  int value(TensorId t) {
    if (size_t(t) < values_.size() && values_[size_t(t)] >= 0) return values_[size_t(t)];
    const Tensor& tensor = f_.graph.tensor(t);
    Instr i;
    i.tensor = t;
    i.type = tensor.type;
    if (tensor.value) {
      i.op = PwOp::Const;
      i.value = ir::scalar_value(*tensor.value);
    } else if (tensor.role == Role::Scalar) {
      i.op = PwOp::Scalar;
    } else {
      i.op = PwOp::Load;
      i.access = access(t);
    }
    const int id = append(p_, i);
    define(t, id);
    return id;
  }

  int access(TensorId t) {
    p_.access.push_back(access_of(t));
    return int(p_.access.size()) - 1;
  }

  Access access_of(TensorId t) const {
    const Tensor& tensor = f_.graph.tensor(t);
    const Place& place = f_.place[size_t(t)];
    TW_CHECK(place.root != kNone);
    Access a;
    a.tensor = place.root;
    a.type = tensor.storage_type();
    a.stride = broadcast_strides(tensor.view(), p_.domain);
    for (size_t d = 0; d < a.stride.size(); ++d)
      if (p_.domain[d] == 1) a.stride[d] = 0;
    a.offset = place.offset;
    return a;
  }

  void pointwise(NodeId id) {
    const Node& n = f_.graph.nodes[size_t(id)];
    const TensorId out = n.out[0];
    Instr i;
    i.op = PwOp::Pointwise;
    i.mode = pointwise_mode(n);
    if (i.mode == PointwiseMode_t::IDENTITY) return named(id, out, value(n.in[0]));
    i.params = pointwise_params(n);
    if (i.mode == PointwiseMode_t::GEN_INDEX) {
      i.op = PwOp::Index;
      Access a;
      a.stride.assign(p_.domain.size(), 0);
      // Of the node's own dims: where they have one element the index is 0, however large the region's domain.
      const Dims& dim = f_.graph.tensor(out).dim;
      const size_t axis = size_t(i.params.axis);
      a.stride[axis + p_.domain.size() - dim.size()] = dim[axis] == 1 ? 0 : 1;
      p_.access.push_back(a);
      i.access = int(p_.access.size()) - 1;
    } else {
      for (int k = 0; k < pointwise_arity(i.mode); ++k) i.arg[size_t(k)] = value(n.in[size_t(k)]);
    }
    finish(id, out, i, n.compute);
  }

  void reduction(NodeId id) {
    const Node& n = f_.graph.nodes[size_t(id)];
    Instr i;
    i.op = PwOp::Reduce;
    i.reduce = n.attr_enum("mode", ReductionMode_t::NOT_SET);
    i.arg[0] = value(n.in[0]);
    if (f_.graph.tensor(n.in[0]).dim == f_.graph.tensor(n.out[0]).dim) {  // nothing is folded
      i.op = PwOp::Pointwise;
      i.mode = reduction_element(i.reduce, -1) == 1 ? PointwiseMode_t::ABS : PointwiseMode_t::IDENTITY;
    }
    finish(id, n.out[0], i, n.compute);
  }

  SideReduction side_reduction(NodeId id) {
    const Node& n = f_.graph.nodes[size_t(id)];
    SideReduction s;
    s.value = value(n.in[0]);
    s.mode = n.attr_enum("mode", ReductionMode_t::NOT_SET);
    s.reduced = reduced_dims(f_.graph, id, p_.domain.size());
    for (size_t d = 0; d < p_.domain.size(); ++d)
      if (s.reduced >> d & 1) s.count *= p_.domain[d];
    s.out = access_of(n.out[0]);
    return s;
  }

  void store(TensorId t) {
    if (f_.place[size_t(t)].root == kNone) return;
    Instr i;
    i.op = PwOp::Store;
    i.arg[0] = raw_.count(t) ? raw_.at(t) : value(t);
    i.access = access(t);
    i.tensor = t;
    i.type = f_.graph.tensor(t).type;
    append(p_, i);
  }

 private:
  void finish(NodeId id, TensorId out, Instr i, DataType_t compute) {
    i.origin = id;
    i.tensor = out;
    i.type = compute == DataType_t::NOT_SET ? DataType_t::FLOAT : compute;
    named(id, out, append(p_, i));
  }

  // `out` has the value of an instruction.
  void named(NodeId id, TensorId out, int v) {
    raw_[out] = v;
    const Tensor& t = f_.graph.tensor(out);
    if (is_integer_type(t.type)) {  // whoever reads it sees the rounded value
      Instr cast;
      cast.op = PwOp::Cast;
      cast.arg[0] = v;
      cast.type = t.type;
      cast.tensor = out;
      cast.origin = id;
      v = append(p_, cast);
    }
    define(out, v);
  }

  const FusedGraph& f_;
  PwProgram& p_;
  std::vector<int> values_;
  std::map<TensorId, int> raw_;
};

// Instructions that nothing stores, folds or reads (casts of stored integers, mostly).
void drop_unused(PwProgram& p, std::vector<SideReduction>& side) {
  std::vector<bool> used(p.code.size());
  for (size_t k = p.code.size(); k-- > 0;) {
    const Instr& i = p.code[k];
    if (i.op == PwOp::Store || int(k) == p.result) used[k] = true;
    for (const SideReduction& s : side)
      if (s.value == int(k)) used[k] = true;
    if (!used[k]) continue;
    for (int a : i.arg)
      if (a >= 0) used[size_t(a)] = true;
  }
  std::vector<int> to(p.code.size(), -1);
  std::vector<Instr> code;
  for (size_t k = 0; k < p.code.size(); ++k) {
    if (!used[k]) continue;
    Instr i = p.code[k];
    for (int& a : i.arg)
      if (a >= 0) a = to[size_t(a)];
    to[k] = int(code.size());
    code.push_back(i);
  }
  p.code = std::move(code);
  if (p.result >= 0) p.result = to[size_t(p.result)];
  for (SideReduction& s : side) s.value = to[size_t(s.value)];
}

void build_rows(const FusedGraph& f, const Cluster& c, Region& r) {
  PwProgram& p = r.program;
  p.domain = c.domain;
  p.inner = c.inner;
  ProgramBuilder b(f, p);
  std::vector<NodeId> stored;
  for (NodeId id : c.nodes) {
    const DimMask reduced = reduced_dims(f.graph, id, p.domain.size());
    if (reduced != 0 && reduced != p.inner) {
      r.side.push_back(b.side_reduction(id));
      continue;
    }
    std::string_view(f.graph.nodes[size_t(id)].op->name) == "reduction" ? b.reduction(id) : b.pointwise(id);
    stored.push_back(id);
  }
  for (NodeId id : stored) b.store(f.graph.nodes[size_t(id)].out[0]);
  drop_unused(p, r.side);
}

// Contractions and pooling: the programs around the heavy node.
void build_around(const FusedGraph& f, const Cluster& c, Region& r) {
  const Node& heavy = f.graph.nodes[size_t(c.heavy)];
  for (size_t port = 0; port < std::min<size_t>(2, heavy.in.size()); ++port) {
    if (heavy.in[port] == kNone) continue;
    PwProgram& p = r.operand[port];
    p.domain = f.graph.tensor(heavy.in[port]).dim;
    ProgramBuilder b(f, p);
    for (NodeId id : c.prologue[port]) b.pointwise(id);
    p.result = b.value(heavy.in[port]);
    drop_unused(p, r.side);
  }
  PwProgram& p = r.program;
  const TensorId result = heavy.out[0];
  p.domain = f.graph.tensor(result).dim;
  ProgramBuilder b(f, p);
  Instr in;
  in.op = PwOp::In;
  in.tensor = result;
  in.origin = c.heavy;
  in.type = f.graph.tensor(result).type;
  int v = append(p, in);
  const int raw = v;
  if (is_integer_type(in.type)) {
    Instr cast = in;
    cast.op = PwOp::Cast;
    cast.arg[0] = v;
    v = append(p, cast);
  }
  b.define(result, v);
  std::vector<NodeId> epilogue;
  for (NodeId id : c.nodes)
    if (id != c.heavy && !c.in_prologue(id)) epilogue.push_back(id);
  for (NodeId id : epilogue) {
    const Node& n = f.graph.nodes[size_t(id)];
    if (std::string_view(n.op->name) != "reduction") {
      b.pointwise(id);
      continue;
    }
    r.side.push_back(b.side_reduction(id));
  }
  if (f.place[size_t(result)].root != kNone) {
    Instr store;
    store.op = PwOp::Store;
    store.arg[0] = raw;
    store.access = b.access(result);
    store.tensor = result;
    store.type = in.type;
    append(p, store);
  }
  for (NodeId id : epilogue)
    if (std::string_view(f.graph.nodes[size_t(id)].op->name) != "reduction") b.store(f.graph.nodes[size_t(id)].out[0]);
  drop_unused(p, r.side);
}

std::string node_label(const FusedGraph& f, NodeId id) {
  const Node& n = f.graph.nodes[size_t(id)];
  std::string s = n.op->name;
  if (s == "pointwise") s = tilewright::to_string(pointwise_mode(n));
  if (s == "reduction") s = "reduce_" + tilewright::to_string(n.attr_enum("mode", ReductionMode_t::NOT_SET));
  for (char& ch : s) ch = char(std::tolower(ch));
  return s;
}

// Nodes that came from one op of the user's are named by that op.
std::string region_name(const FusedGraph& f, const ir::Graph& given, const Region& r) {
  std::vector<std::string> parts;
  NodeId last = -1;
  for (NodeId id : r.nodes) {
    const NodeId origin = f.origin[size_t(id)];
    const bool whole = origin >= 0 && given.nodes[size_t(origin)].op == f.graph.nodes[size_t(id)].op;
    if (!whole && origin == last) continue;
    parts.push_back(whole || origin < 0 ? node_label(f, id) : given.nodes[size_t(origin)].op->name);
    last = whole ? -1 : origin;
  }
  std::string s = r.anchor == Anchor::Rows && r.program.inner == 0 && r.side.empty() ? "map" : to_string(r.anchor);
  constexpr size_t kShown = 8;
  for (size_t k = 0; k < parts.size() && k < kShown; ++k) s += (k ? "+" : " ") + parts[k];
  if (parts.size() > kShown) s += fmt::format("+{} more", parts.size() - kShown);
  return s;
}

}  // namespace

FusedGraph fuse(const ir::Graph& given, const FuseOptions& options) {
  FusedGraph f;
  decompose_with_origin(given, f);
  f.place.resize(f.graph.tensors.size());
  for (size_t t = 0; t < f.place.size(); ++t) {
    const Role role = f.graph.tensors[t].role;
    if (role == Role::Input || role == Role::Output) f.place[t].root = TensorId(t);
  }
  drop_dead(f);
  lower_movement(f);
  fold_views(f, options.fuse);
  drop_dead(f);
  std::vector<Cluster> clusters = cluster_nodes(f, options);
  constexpr int kMaxCopies = 16;
  for (int k = 0; options.fuse && k < kMaxCopies && recompute(f, clusters); ++k) clusters = cluster_nodes(f, options);
  materialise(f, clusters);
  for (const Cluster& c : clusters) {
    Region r;
    r.anchor = c.anchor;
    r.nodes = c.nodes;
    r.heavy = c.heavy;
    if (c.anchor == Anchor::Rows) build_rows(f, c, r);
    const bool around = c.anchor == Anchor::Contraction || c.anchor == Anchor::Pooling;
    if (around) build_around(f, c, r);
    std::set<TensorId> reads, writes;
    auto of_program = [&](const PwProgram& p) {
      for (const Instr& i : p.code)
        if (i.op == PwOp::Load) reads.insert(p.access[size_t(i.access)].tensor);
        else if (i.op == PwOp::Store) writes.insert(p.access[size_t(i.access)].tensor);
    };
    of_program(r.program);
    for (const PwProgram& p : r.operand) of_program(p);
    for (const SideReduction& s : r.side) writes.insert(s.out.tensor);
    if (c.heavy >= 0) {
      const Node& n = f.graph.nodes[size_t(c.heavy)];
      for (size_t k = around ? 2 : 0; k < n.in.size(); ++k)
        if (n.in[k] != kNone && f.place[size_t(n.in[k])].root != kNone) reads.insert(f.place[size_t(n.in[k])].root);
      for (size_t k = around ? 1 : 0; k < n.out.size(); ++k)
        if (n.out[k] != kNone && f.place[size_t(n.out[k])].root != kNone) writes.insert(f.place[size_t(n.out[k])].root);
    }
    r.reads.assign(reads.begin(), reads.end());
    r.writes.assign(writes.begin(), writes.end());
    r.name = region_name(f, given, r);
    f.regions.push_back(std::move(r));
  }
  return f;
}

void place_intermediates(FusedGraph& f) {
  struct Block {
    int64_t bytes, first, last, *offset;
  };
  std::vector<Block> blocks;
  for (size_t t = 0; t < f.place.size(); ++t) {
    const Tensor& tensor = f.graph.tensors[t];
    if (tensor.role != Role::Virtual || f.place[t].root != TensorId(t)) continue;
    int64_t first = -1, last = -1;
    for (size_t r = 0; r < f.regions.size(); ++r) {
      const Region& region = f.regions[r];
      const bool here = std::count(region.reads.begin(), region.reads.end(), TensorId(t)) +
                            std::count(region.writes.begin(), region.writes.end(), TensorId(t)) >
                        0;
      if (!here) continue;
      if (first < 0) first = int64_t(r);
      last = int64_t(r);
    }
    if (first >= 0) blocks.push_back({tensor.storage_bytes(), first, last, &f.place[t].workspace});
  }
  for (size_t r = 0; r < f.regions.size(); ++r)
    if (f.regions[r].scratch_bytes > 0)
      blocks.push_back({f.regions[r].scratch_bytes, int64_t(r), int64_t(r), &f.regions[r].scratch_offset});
  // Largest first, each at the lowest offset where it meets none that is alive at the same time.
  std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.bytes > b.bytes; });
  constexpr int64_t kAlign = 64;
  f.workspace_bytes = 0;
  std::vector<const Block*> placed;
  for (Block& b : blocks) {
    b.bytes = (b.bytes + kAlign - 1) / kAlign * kAlign;
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const Block* o : placed)
      if (o->first <= b.last && b.first <= o->last) taken.push_back({*o->offset, *o->offset + o->bytes});
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (at + b.bytes <= begin) break;
      at = std::max(at, end);
    }
    *b.offset = at;
    placed.push_back(&b);
    f.workspace_bytes = std::max(f.workspace_bytes, at + b.bytes);
  }
}

std::string FusedGraph::text() const {
  std::string s;
  auto names = [&](const std::vector<TensorId>& tensors) {
    std::vector<std::string> v;
    for (TensorId t : tensors) v.push_back(fmt::format("\"{}\"", graph.tensor(t).name));
    return fmt::format("{}", fmt::join(v, ", "));
  };
  auto indented = [](const std::string& text, const char* by) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      out += by + text.substr(at, end - at) + "\n";
      at = end == std::string::npos ? text.size() : end + 1;
    }
    return out;
  };
  auto sides = [&](const Region& r) {
    std::string text;
    for (const SideReduction& side : r.side)
      text += fmt::format("    fold {} %{} -> \"{}\"\n", tilewright::to_string(side.mode), side.value,
                          graph.tensor(side.out.tensor).name);
    return text;
  };
  for (size_t k = 0; k < regions.size(); ++k) {
    const Region& r = regions[k];
    s += fmt::format("region {}: {}\n", k, r.name);
    s += fmt::format("  {} node{}, reads {}, writes {}\n", r.nodes.size(), r.nodes.size() == 1 ? "" : "s",
                     names(r.reads), names(r.writes));
    if (r.anchor == Anchor::Rows) {
      s += fmt::format("  domain {}", to_text(r.program.domain));
      if (r.program.inner) {
        std::vector<size_t> dims;
        for (size_t d = 0; d < r.program.domain.size(); ++d)
          if (r.program.inner >> d & 1) dims.push_back(d);
        s += fmt::format(", reduced over dim{} {}", dims.size() > 1 ? "s" : "", fmt::join(dims, ", "));
        s += fmt::format(", {} pass{}", r.program.depth() + 1, r.program.depth() ? "es" : "");
      }
      s += "\n" + indented(program_text(r.program, graph), "    ") + sides(r);
    } else if (r.anchor == Anchor::Contraction || r.anchor == Anchor::Pooling) {
      const char* title[2] = {"A", "B"};
      for (size_t o = 0; o < 2 && !r.operand[o].code.empty(); ++o)
        s += fmt::format("  operand {} {}\n", title[o], to_text(r.operand[o].domain)) +
             indented(program_text(r.operand[o], graph), "    ");
      s += fmt::format("  result {}\n", to_text(r.program.domain)) + indented(program_text(r.program, graph), "    ");
      s += sides(r);
    }
  }
  for (const std::string& note : notes) s += note + "\n";
  return s;
}

}  // namespace tilewright::fuse
