#include "ir/graph.h"

#include <fmt/format.h>

#include "base/hash.h"
#include "ir/op_def.h"

namespace tilewright::ir {

double scalar_value(const graph::Tensor_attributes::pass_by_values_t& value) {
  return std::visit(
      [](auto v) -> double {
        if constexpr (std::is_same_v<decltype(v), half> || std::is_same_v<decltype(v), bfloat16>)
          return double(float(v));
        else return double(v);
      },
      value);
}

Links links(const Graph& g) {
  Links l;
  l.producer.assign(g.tensors.size(), -1);
  l.consumers.resize(g.tensors.size());
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    for (TensorId t : g.nodes[n].out)
      if (t != kNone) l.producer[size_t(t)] = NodeId(n);
    for (TensorId t : g.nodes[n].in)
      if (t != kNone && (l.consumers[size_t(t)].empty() || l.consumers[size_t(t)].back() != NodeId(n)))
        l.consumers[size_t(t)].push_back(NodeId(n));
  }
  return l;
}

namespace {

std::string text(const AttrValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using V = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<V, std::monostate>) return "none";
        else if constexpr (std::is_same_v<V, Dims>) return to_text(v);
        else return fmt::format("{}", v);
      },
      value);
}

const char* role_name(Role role) {
  switch (role) {
    case Role::Input: return "input";
    case Role::Output: return "output";
    case Role::Virtual: return "virtual";
    case Role::Scalar: return "scalar";
    default: return "constant";
  }
}

}  // namespace

uint64_t content_key(const Graph& g, bool shapes) {
  // Every part is separated, so that no two graphs read alike. Tensors appear by their dense id: the order of first
  // use.
  std::vector<int> ordinal(g.tensors.size(), -1);
  int next = 0;
  std::string s =
      fmt::format("tw1|{}|{}|{}|{}\n", int(g.io_type), int(g.intermediate_type), int(g.compute_type), g.dynamic_shapes);
  auto use = [&](TensorId id) {
    if (id == kNone) {
      s += "-;";
      return;
    }
    int& o = ordinal[size_t(id)];
    const bool first = o < 0;
    if (first) o = next++;
    s += fmt::format("#{}", o);
    if (first) {
      const Tensor& t = g.tensor(id);
      s += fmt::format(":{},{},{},{},{}{},{}", int(t.type), int(t.role), t.alignment, int(t.reordering), t.bit_packed,
                       t.constant ? "c" : "",
                       shapes ? to_text(t.dim) + to_text(t.stride) : std::to_string(t.dim.size()));
      if (t.value) s += fmt::format("={},{}", t.value->index(), scalar_value(*t.value));
      if (t.ragged_offset != kNone) s += "r";
    }
    s += ';';
  };
  for (const Node& n : g.nodes) {
    s += fmt::format("{}|{}|", n.op->tag, int(n.compute));
    for (const auto& [key, value] : n.attrs)
      if (!std::holds_alternative<std::monostate>(value)) s += fmt::format("{}={};", key, text(value));
    s += "<";
    for (TensorId id : n.in) use(id);
    s += ">";
    for (TensorId id : n.out) use(id);
    s += "\n";
  }
  return hash_text(s);
}

std::string describe(const Graph&, const Tensor& t) {
  std::string s = fmt::format("\"{}\" {} {} stride {} {}", t.name, to_string(t.type), to_text(t.dim), to_text(t.stride),
                              role_name(t.role));
  if (t.value) s += fmt::format(" = {}", scalar_value(*t.value));
  return s;
}

std::string describe(const Graph& g) {
  std::string s;
  for (const Node& n : g.nodes) {
    s += fmt::format("{} \"{}\"", n.op->name, n.name);
    for (const auto& [key, value] : n.attrs)
      if (!std::holds_alternative<std::monostate>(value)) s += fmt::format(" {}={}", key, text(value));
    s += '\n';
    for (size_t i = 0; i < n.in.size(); ++i)
      if (n.in[i] != kNone) {
        const char* port = i < n.op->inputs.size() ? n.op->inputs[i].name : n.op->inputs.back().name;
        s += fmt::format("    {:<12} <- {}\n", port, describe(g, g.tensor(n.in[i])));
      }
    for (size_t i = 0; i < n.out.size(); ++i)
      if (n.out[i] != kNone)
        s += fmt::format("    {:<12} -> {}\n", n.op->outputs[i].name, describe(g, g.tensor(n.out[i])));
  }
  return s;
}

}  // namespace tilewright::ir
