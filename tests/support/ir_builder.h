// Builds ir graphs op by op for tests of the layers below the public Graph: shapes by the ops' own inference, each node
// checked by its op's rules.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ir/op_def.h"

namespace tilewright::testing {

class IrBuilder {
 public:
  using Id = ir::TensorId;
  ir::Graph graph;
  DataType_t compute = DataType_t::FLOAT;
  DataType_t intermediate = DataType_t::FLOAT;

  Id input(const Dims& dim, DataType_t type = DataType_t::FLOAT, Dims stride = {}) {
    ir::Tensor t = named("x");
    t.dim = dim;
    t.stride = stride.empty() ? row_major_strides(dim) : std::move(stride);
    t.type = type;
    t.role = ir::Role::Input;
    return add(std::move(t));
  }
  // A by-value tensor: with a value, stored in the graph; else read through a host pointer.
  Id scalar(std::optional<float> value, size_t rank = 1) {
    ir::Tensor t = named("s");
    t.dim = t.stride = Dims(rank, 1);
    t.type = DataType_t::FLOAT;
    t.role = ir::Role::Scalar;
    if (value) t.value = *value;
    return add(std::move(t));
  }

  // All outputs of the node, by port; kNone where it has none. `dim`: of the first output, for ops that need it.
  std::vector<Id> node(const char* op, std::vector<Id> in, AttrMap attrs = {}, const Dims& dim = {}) {
    ir::Node n;
    n.op = ir::find_op(op);
    EXPECT_NE(n.op, nullptr) << op;
    n.name = std::string(op) + std::to_string(graph.nodes.size());
    n.compute = compute;
    n.attrs = std::move(attrs);
    n.in = std::move(in);
    if (n.in.size() < n.op->inputs.size()) n.in.resize(n.op->inputs.size(), ir::kNone);
    std::vector<std::string> given;
    for (size_t i = 0; i < n.op->inputs.size(); ++i)
      if (n.in[i] != ir::kNone) given.push_back(n.op->inputs[i].name);
    for (const ir::Port& port : n.op->outputs) {
      if (port.kind == ir::PortKind::Optional || (port.wanted && !port.wanted(n.attrs, given))) {
        n.out.push_back(ir::kNone);
        continue;
      }
      ir::Tensor t = named("t");
      t.type = intermediate;
      if (n.out.empty()) t.dim = dim;
      n.out.push_back(add(std::move(t)));
    }
    ir::InferContext context(graph, n);
    Status s = n.op->infer(context);
    EXPECT_TRUE(s.is_good()) << s.err_msg;
    if (n.op->verify) s = n.op->verify(graph, n);
    EXPECT_TRUE(s.is_good()) << s.err_msg;
    graph.nodes.push_back(n);
    return n.out;
  }
  Id op(const char* name, std::vector<Id> in, AttrMap attrs = {}, const Dims& dim = {}) {
    return node(name, std::move(in), std::move(attrs), dim)[0];
  }
  Id pw(PointwiseMode_t mode, std::vector<Id> in, AttrMap attrs = {}) {
    attrs["mode"] = to_string(mode);
    return op("pointwise", std::move(in), std::move(attrs));
  }
  Id reduce(ReductionMode_t mode, Id x, const Dims& dim) {
    return op("reduction", {x}, {{"mode", to_string(mode)}}, dim);
  }
  Id conv(const char* name, Id a, Id b, Dims pad, Dims stride, Dims dilation, const Dims& dim = {}) {
    return op(name, {a, b}, {{"pre_padding", pad}, {"post_padding", pad}, {"stride", stride}, {"dilation", dilation}},
              dim);
  }
  // Makes a result a real tensor.
  Id output(Id t, DataType_t type = DataType_t::FLOAT, Dims stride = {}) {
    ir::Tensor& tensor = graph.tensors[size_t(t)];
    tensor.role = ir::Role::Output;
    tensor.type = type;
    if (!stride.empty()) tensor.stride = std::move(stride);
    return t;
  }
  const Dims& dim(Id t) const { return graph.tensor(t).dim; }

 private:
  ir::Tensor named(const char* stem) {
    ir::Tensor t;
    t.name = stem + std::to_string(graph.tensors.size());
    t.uid = int64_t(graph.tensors.size()) + 1;
    return t;
  }
  Id add(ir::Tensor t) {
    graph.tensors.push_back(std::move(t));
    return Id(graph.tensors.size() - 1);
  }
};

}  // namespace tilewright::testing
