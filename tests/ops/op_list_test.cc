// What must hold for every op of the list.
#include <gtest/gtest.h>

#include <set>

#include "frontend/builder.h"
#include "ir/op_def.h"

namespace tilewright {
namespace {

TEST(OpList, NamesAndTagsAreUnique) {
  std::set<std::string> names, tags;
  for (const ir::OpDef* op : ir::all_ops()) {
    EXPECT_TRUE(names.insert(op->name).second) << op->name;
    EXPECT_TRUE(tags.insert(op->tag).second) << op->tag;
    EXPECT_EQ(ir::find_op(op->name), op);
    EXPECT_EQ(ir::find_op(op->tag), op);
  }
  EXPECT_EQ(ir::find_op("no such op"), nullptr);
}

TEST(OpList, EveryOpSaysWhatItIs) {
  for (const ir::OpDef* op : ir::all_ops()) {
    EXPECT_FALSE(op->outputs.empty()) << op->name;
    EXPECT_NE(op->infer, nullptr) << op->name;
    EXPECT_NE(op->verify, nullptr) << op->name;
    std::set<std::string> ports, keys;
    for (const auto& p : op->inputs) EXPECT_TRUE(ports.insert(p.name).second) << op->name << " " << p.name;
    for (const auto& p : op->outputs) EXPECT_TRUE(ports.insert(p.name).second) << op->name << " " << p.name;
    for (const auto& a : op->attrs) {
      EXPECT_TRUE(keys.insert(a.key).second) << op->name << " " << a.key;
      EXPECT_EQ(a.kind == ir::AttrKind::Enum, a.is_name != nullptr) << op->name << " " << a.key;
    }
    // Variadic inputs come last, so that a port's number is its place.
    for (size_t i = 0; i + 1 < op->inputs.size(); ++i)
      EXPECT_NE(op->inputs[i].kind, ir::PortKind::Variadic) << op->name;
  }
}

// Nothing in, nothing set: a sentence that names the op, never a crash.
TEST(OpList, EveryOpRejectsEmptyUse) {
  for (const ir::OpDef* op : ir::all_ops()) {
    graph::Graph g;
    graph::Attributes_base attr;
    attr.name = "bare";
    g.add(op->name, attr, {});
    const error_t e = g.validate();
    EXPECT_TRUE(e.is_bad()) << op->name;
    EXPECT_NE(e.err_msg.find(op->name), std::string::npos) << op->name << ": " << e.err_msg;
  }
}

// A graph of each op with plausible but unset tensors must not crash either.
TEST(OpList, EveryOpSurvivesTensorsWithoutDims) {
  for (const ir::OpDef* op : ir::all_ops()) {
    graph::Graph g;
    g.set_io_data_type(DataType_t::FLOAT)
        .set_intermediate_data_type(DataType_t::FLOAT)
        .set_compute_data_type(DataType_t::FLOAT);
    std::vector<std::pair<std::string, graph::TensorPtr>> inputs;
    for (const auto& p : op->inputs)
      inputs.emplace_back(p.kind == ir::PortKind::Variadic ? "0" : p.name,
                          g.tensor(graph::Tensor_attributes().set_name("T")));
    graph::Attributes_base attr;
    attr.name = "bare";
    g.add(op->name, attr, inputs);
    EXPECT_TRUE(g.validate().is_bad()) << op->name;
  }
}

// Scalars of rank 1 in every port.
TEST(OpList, EveryOpSurvivesTensorsOfRankOne) {
  for (const ir::OpDef* op : ir::all_ops()) {
    graph::Graph g;
    g.set_io_data_type(DataType_t::FLOAT)
        .set_intermediate_data_type(DataType_t::FLOAT)
        .set_compute_data_type(DataType_t::FLOAT);
    std::vector<std::pair<std::string, graph::TensorPtr>> inputs;
    for (const auto& p : op->inputs)
      inputs.emplace_back(p.kind == ir::PortKind::Variadic ? "0" : p.name,
                          g.tensor(graph::Tensor_attributes().set_name("T").set_dim({3}).set_stride({1})));
    graph::Attributes_base attr;
    attr.name = "bare";
    for (const auto& a : op->attrs)
      if (a.kind == ir::AttrKind::Ints) attr.values[a.key] = std::vector<int64_t>{};
    for (const auto& t : g.add(op->name, attr, inputs))
      if (t) t->set_output(true);
    const error_t e = g.validate();  // good or bad, but it returns
    EXPECT_TRUE(e.is_good() || !e.err_msg.empty()) << op->name;
  }
}

}  // namespace
}  // namespace tilewright
