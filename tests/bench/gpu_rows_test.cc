// The rows of the GPU benchmark, where there is no GPU: each can be described, and its samples are parts of the whole.
#include "gpu_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "ir/op_def.h"
#include "sampling.h"

namespace tilewright::bench {
namespace {

const ir::Tensor* find(const ir::Graph& g, const std::string& name) {
  for (const ir::Tensor& t : g.tensors)
    if (t.bound_by_caller() && memory_name(t) == name) return &t;
  return nullptr;
}

TEST(BenchRows, EveryRowIsAValidGraphWithSamplesInsideIt) {
  std::set<std::string> names;
  for (const GpuRow& row : gpu_rows()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(names.insert(row.name).second);
    const auto whole = frozen(row.make());
    ASSERT_TRUE(whole) << whole.status().err_msg;
    std::set<std::string> judged;
    for (const Sample& sample : row.samples(7)) {
      const auto part = frozen(sample.graph);
      ASSERT_TRUE(part) << part.status().err_msg;
      EXPECT_LT(ir::cost(**part).flops, 2e9);  // seconds of the reference
      for (const ir::Tensor& t : (*part)->tensors) {
        const ir::Tensor* all = t.bound_by_caller() ? find(**whole, t.name) : nullptr;
        if (!all) continue;
        EXPECT_EQ(t.type, all->type) << t.name;
        const auto at = sample.offsets.find(t.name);
        const int64_t offset = at == sample.offsets.end() ? 0 : at->second;
        EXPECT_GE(offset, 0) << t.name;
        EXPECT_LE(offset + storage_elements(t.view()), storage_elements(all->view())) << t.name;
        if (t.role == ir::Role::Output) judged.insert(t.name);
      }
    }
    for (const ir::Tensor& t : (*whole)->tensors)
      EXPECT_TRUE(t.role != ir::Role::Output || judged.count(t.name)) << "nothing judges " << t.name;
  }
  EXPECT_GE(names.size(), 45u);
}

// The memory of a small row, with the outputs that the reference computes.
struct Computed {
  std::shared_ptr<const ir::Graph> graph;
  Tensors tensors{1, nullptr};

  void add(const std::shared_ptr<const ir::Graph>& g, const GpuRow& row) {
    tensors.add(*g);
    plant(row, *g, tensors);
    Bindings inputs(g->tensors.size(), nullptr);
    for (size_t id = 0; id < g->tensors.size(); ++id)
      if (g->tensors[id].bound_by_caller() && g->tensors[id].role != ir::Role::Output)
        inputs[id] = tensors.at(memory_name(g->tensors[id]), 0);
    const auto values = evaluate_reference(*g, inputs);
    ASSERT_TRUE(values) << values.status().err_msg;
    for (size_t id = 0; id < g->tensors.size(); ++id)
      if (g->tensors[id].role == ir::Role::Output)
        store_reference((*values)[id], tensors.at(memory_name(g->tensors[id]), 0));
  }
  explicit Computed(const GpuRow& row) {
    if (row.inputs_from) add(*frozen(row.inputs_from()), row);
    graph = *frozen(row.make());
    add(graph, row);
  }
};

// What the reference computes of the whole is right for every sample, and one wrong element is seen.
TEST(BenchRows, SamplesJudgeTheWhole) {
  for (const GpuRow& row : gpu_rows(true)) {
    SCOPED_TRACE(row.name);
    Computed computed(row);
    if (HasFatalFailure()) return;
    const auto reference = SampledReference::make(row, *computed.graph, computed.tensors, 3);
    ASSERT_TRUE(reference) << reference.status().err_msg;
    int reads = 0, spoilt = -1;
    const auto read = [&](const std::string& name, int64_t offset, int64_t bytes, void* to) {
      std::memcpy(to, static_cast<const char*>(computed.tensors.at(name, 0)) + offset, size_t(bytes));
      const ir::Tensor& t = *find(*computed.graph, name);
      if (reads++ == spoilt) {  // more than an eighth off
        const double right = load_element(to, t.storage_type(), 0);
        store_element(to, t.storage_type(), 0, right + std::fabs(right) / 8 + 8);
      }
      return Status{};
    };
    const auto right = reference->judge(read);
    ASSERT_TRUE(right);
    EXPECT_EQ(right->wrong, "");
    EXPECT_GT(right->elements, 0);
    const int all = reads;
    for (spoilt = 0; spoilt < all; ++spoilt) {
      reads = 0;
      EXPECT_NE(reference->judge(read)->wrong, "") << "element 0 of output part " << spoilt;
    }
  }
}

TEST(BenchRows, AResultThatCannotBeReadIsAnError) {
  const GpuRow row = gpu_rows(true)[0];
  Computed computed(row);
  const auto reference = SampledReference::make(row, *computed.graph, computed.tensors, 3);
  const auto judged = reference->judge([](const std::string&, int64_t, int64_t, void*) { return invalid("gone"); });
  EXPECT_EQ(judged.status().err_msg, "gone");
}

}  // namespace
}  // namespace tilewright::bench
