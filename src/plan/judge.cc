#include "plan/judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "fuse/regions.h"
#include "ir/op_def.h"

namespace tilewright {

const char* const kTf32Note = "tf32 inside";
const char* const kTanhNote = "tanh of the hardware inside";
const char* const kDbiasNote = "rounds dBias times the scale";

namespace {

bool computes_tanh(const ir::Node& node) {
  if (std::string_view(node.op->name) != "pointwise") return false;
  switch (node.attr_enum("mode", PointwiseMode_t::NOT_SET)) {
    case PointwiseMode_t::TANH_FWD:
    case PointwiseMode_t::TANH_BWD:
    case PointwiseMode_t::GELU_APPROX_TANH_FWD:
    case PointwiseMode_t::GELU_APPROX_TANH_BWD: return true;
    default: return false;
  }
}

// The port of dBias; -1: there is none.
int dbias_port(const ir::Node& node) {
  if (std::string_view(node.op->name) != "sdpa_backward") return -1;
  const int port = node.op->output_port("dBias");
  return port >= 0 && size_t(port) < node.out.size() && node.out[size_t(port)] != ir::kNone ? port : -1;
}

// A graph that is made node by node.
class Maker {
 public:
  explicit Maker(const ir::Graph& from) : g(from) { g.nodes.clear(); }
  ir::Graph g;

  ir::TensorId add(ir::Tensor like, const char* suffix, DataType_t type) {
    like.name += suffix, like.uid = 0, like.role = ir::Role::Virtual, like.type = type;
    g.tensors.push_back(std::move(like));
    return ir::TensorId(g.tensors.size() - 1);
  }
  ir::TensorId constant(double value) {
    ir::Tensor t;
    t.name = "constant", t.dim = {1, 1, 1, 1}, t.stride = {1, 1, 1, 1}, t.type = DataType_t::FLOAT;
    t.role = ir::Role::Constant, t.value = float(value);
    g.tensors.push_back(std::move(t));
    return ir::TensorId(g.tensors.size() - 1);
  }
  void node(const char* op, const char* mode, DataType_t compute, const std::vector<ir::TensorId>& in,
            ir::TensorId out) {
    ir::Node n;
    n.op = ir::find_op(op), n.name = fmt::format("judge{}", g.nodes.size()), n.compute = compute;
    n.attrs["mode"] = std::string(mode);
    n.in.assign(n.op->inputs.size(), ir::kNone);
    std::copy(in.begin(), in.end(), n.in.begin());
    n.out = {out};
    g.nodes.push_back(std::move(n));
  }
};

}  // namespace

bool has_tanh(const ir::Graph& g) { return std::any_of(g.nodes.begin(), g.nodes.end(), computes_tanh); }

bool has_dbias(const ir::Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const ir::Node& n) { return dbias_port(n) >= 0; });
}

ir::Graph with_coarse_tanh(const ir::Graph& graph) {
  ir::Graph g = graph;
  for (ir::Node& node : g.nodes)
    if (computes_tanh(node)) node.attrs["tanh_error"] = 0x1p-11;
  return g;
}

ir::Graph with_coarse_dbias(const ir::Graph& graph) {
  Maker m(graph);
  for (ir::Node node : graph.nodes) {
    const int port = dbias_port(node);
    const double scale = node.attr<double>("attn_scale_value", 1);
    if (port < 0 || scale == 0) {
      m.g.nodes.push_back(std::move(node));
      continue;
    }
    const ir::TensorId whole = node.out[size_t(port)];
    const ir::Tensor dbias = graph.tensor(whole);
    ir::Tensor each = dbias;
    each.dim[0] = graph.tensor(node.in[0]).dim[0];
    each.stride = row_major_strides(each.dim);
    const ir::TensorId exact = node.out[size_t(port)] = m.add(each, " of each batch", DataType_t::FLOAT);
    m.g.nodes.push_back(std::move(node));
    ir::TensorId scaled = m.add(each, " of each batch, scaled", dbias.type);
    m.node("pointwise", "MUL", DataType_t::FLOAT, {exact, m.constant(scale)}, scaled);
    if (each.dim[0] > dbias.dim[0]) {
      const ir::TensorId sum = m.add(dbias, ", scaled", dbias.type);
      m.node("reduction", "ADD", DataType_t::FLOAT, {scaled}, sum);
      scaled = sum;
    }
    m.node("pointwise", "MUL", DataType_t::FLOAT, {scaled, m.constant(1 / scale)}, whole);
  }
  return m.g;
}

const ir::Graph& Judges::of(const std::vector<std::string>& notes) {
  static constexpr struct {
    const char* const* note;
    ir::Graph (*allow)(const ir::Graph&);
  } kAdmitted[] = {{&kTf32Note, with_tf32}, {&kTanhNote, with_coarse_tanh}, {&kDbiasNote, with_coarse_dbias}};
  const ir::Graph* graph = &graph_;
  std::string admitted;
  for (const auto& a : kAdmitted) {
    if (std::find(notes.begin(), notes.end(), *a.note) == notes.end()) continue;
    admitted += *a.note;
    auto made = made_.find(admitted);
    if (made == made_.end()) made = made_.emplace(admitted, a.allow(*graph)).first;
    graph = &made->second;
  }
  return *graph;
}

ir::Graph with_tf32(const ir::Graph& graph) {
  Maker m(graph);
  for (ir::Node node : graph.nodes) {
    for (size_t port = 0; port < 2 && fuse::is_contraction(node); ++port) {
      const ir::TensorId operand = node.in[port];
      if (operand == ir::kNone || graph.tensor(operand).type != DataType_t::FLOAT) continue;
      ir::Tensor like = graph.tensor(operand);
      like.value.reset();
      node.in[port] = m.add(std::move(like), " as TF32", DataType_t::HALF);
      m.node("pointwise", "IDENTITY", DataType_t::FLOAT, {operand}, node.in[port]);
    }
    m.g.nodes.push_back(std::move(node));
  }
  return m.g;
}

}  // namespace tilewright
