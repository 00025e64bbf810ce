// Graphs of a few ops made at the level of the IR, without a front end: for tests of an op's inference, rules,
// reference and decomposition.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ops/rewriter.h"
#include "plan/harness.h"

namespace tilewright {

class OpGraph {
 public:
  ir::Graph graph;

  explicit OpGraph(DataType_t io = DataType_t::FLOAT, DataType_t compute = DataType_t::FLOAT) {
    graph.io_type = io;
    graph.compute_type = compute;
  }

  // Packed row-major unless a stride is given. Type NOT_SET: the graph's.
  ir::TensorId input(const char* name, Dims dim, Dims stride = {}, DataType_t type = DataType_t::NOT_SET) {
    ir::Tensor t;
    t.role = ir::Role::Input;
    t.stride = stride.empty() ? row_major_strides(dim) : std::move(stride);
    t.dim = std::move(dim);
    return append(name, type, std::move(t));
  }
  // An input whose dims and strides the op fills.
  ir::TensorId open_input(const char* name) {
    ir::Tensor t;
    t.role = ir::Role::Input;
    return append(name, DataType_t::NOT_SET, std::move(t));
  }
  ir::TensorId scalar(const char* name, double value) {
    ir::Tensor t;
    t.role = ir::Role::Scalar;
    t.dim = t.stride = {1};
    t.value = value;
    return append(name, DataType_t::DOUBLE, std::move(t));
  }

  using Ports = std::vector<std::pair<const char*, ir::TensorId>>;
  // Appends the op with its wanted outputs, all real and of the graph's type. The status of inference and rules.
  Status add(const char* op, const Ports& in, AttrMap attrs = {}) {
    ir::Node n;
    n.op = ir::find_op(op);
    TW_CHECK(n.op);
    n.name = "the " + std::string(op);
    n.compute = graph.compute_type;
    n.in.assign(n.op->inputs.size(), ir::kNone);
    std::vector<std::string> given;
    for (const auto& [port, id] : in) {
      TW_CHECK(n.op->input_port(port) >= 0);
      n.in[size_t(n.op->input_port(port))] = id;
      given.push_back(port);
    }
    n.attrs = std::move(attrs);
    for (const ir::Port& port : n.op->outputs) {
      const bool wanted = !port.wanted || port.wanted(n.attrs, given);
      ir::Tensor t;
      t.role = ir::Role::Output;
      n.out.push_back(wanted ? append(port.name, DataType_t::NOT_SET, std::move(t)) : ir::kNone);
    }
    graph.nodes.push_back(n);
    ir::Node& node = graph.nodes.back();
    ir::InferContext context(graph, node);
    TW_RETURN_IF_BAD(node.op->infer(context));
    return node.op->verify(graph, node);
  }
  // By port, of the last op.
  ir::TensorId in(const char* port) const {
    return graph.nodes.back().in[size_t(graph.nodes.back().op->input_port(port))];
  }
  ir::TensorId out(const char* port) const {
    return graph.nodes.back().out[size_t(graph.nodes.back().op->output_port(port))];
  }
  const ir::Tensor& operator[](ir::TensorId id) const { return graph.tensor(id); }

 private:
  ir::TensorId append(const char* name, DataType_t type, ir::Tensor t) {
    t.name = name;
    t.type = type == DataType_t::NOT_SET ? graph.io_type : type;
    t.uid = int64_t(graph.tensors.size()) + 1;
    graph.tensors.push_back(std::move(t));
    return ir::TensorId(graph.tensors.size() - 1);
  }
};

// Runs the reference on the graph and on its decomposition: two derivations of the same values, so their intervals
// overlap, element by element.
inline void expect_decomposition_agrees(const ir::Graph& graph, const Bindings& bindings) {
  const ir::Graph simple = decompose(graph);
  for (const ir::Node& n : simple.nodes) EXPECT_FALSE(n.op->decompose) << n.op->name;
  ASSERT_GT(simple.nodes.size(), graph.nodes.size());
  const auto direct = evaluate_reference(graph, bindings), indirect = evaluate_reference(simple, bindings);
  ASSERT_TRUE(direct) << direct.status().err_msg;
  ASSERT_TRUE(indirect) << indirect.status().err_msg;
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].role != ir::Role::Output) continue;
    const auto &a = (*direct)[t].values, &b = (*indirect)[t].values;
    ASSERT_EQ(a.size(), b.size()) << graph.tensors[t].name;
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(a[i].v) && std::isnan(b[i].v)) continue;
      if (a[i].v == b[i].v) continue;  // also the infinities
      ASSERT_LE(std::fabs(a[i].v - b[i].v), a[i].e + b[i].e)
          << ir::describe(graph) << graph.tensors[t].name << "[" << i << "]: " << a[i].v << ", decomposed " << b[i].v;
      ASSERT_LT(a[i].e, kInfinity) << graph.tensors[t].name << "[" << i << "]";
    }
  }
}

}  // namespace tilewright
