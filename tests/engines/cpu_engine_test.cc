// What cpu.fused says of itself, and what holds for all its plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "engines/cpu/engine.h"
#include "support/allocations.h"
#include "support/engine_check.h"
#include "support/ir_builder.h"

namespace tilewright::testing {
namespace {

using P = PointwiseMode_t;
using R = ReductionMode_t;
using D = DataType_t;
using ::testing::Contains;
using ::testing::HasSubstr;

IrBuilder matmul_gelu_amax() {
  IrBuilder b;
  auto y = b.op("matmul", {b.input({2, 300, 170}), b.input({2, 170, 410})});
  y = b.pw(P::GELU_FWD, {b.pw(P::ADD, {y, b.input({1, 1, 410})})});
  b.output(y);
  b.output(b.reduce(R::AMAX, y, {1, 1, 1}));
  b.output(b.reduce(R::ADD, y, {1, 1, 410}));
  return b;
}
IrBuilder batchnorm(bool channels_last) {
  IrBuilder b;
  const Dims dim = {8, 20, 60, 50};
  auto x = b.input(dim, D::FLOAT, channels_last ? channels_last_strides(dim) : row_major_strides(dim));
  auto out = b.node("batchnorm", {x, b.input({1, 20, 1, 1}), b.input({1, 20, 1, 1}), b.scalar(1e-3f, 4)});
  for (auto t : out)
    if (t != ir::kNone) b.output(t);
  return b;
}

TEST(CpuEngine, ListsTwoWaysToRunWithNotes) {
  const IrBuilder b = matmul_gelu_amax();
  const Verdict v = cpu_fused_engine().propose(b.graph, test_target());
  ASSERT_TRUE(v.proposal);
  const std::vector<Candidate> list = v.proposal->candidates();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].config, "fuse=all");
  EXPECT_EQ(list[0].kernel_count, 1);
  EXPECT_EQ(list[1].kernel_count, 5);
  EXPECT_EQ(list[1].config, "fuse=anchors");
  EXPECT_LT(list[0].workspace_bytes, list[1].workspace_bytes);
  EXPECT_LT(list[0].estimated_ms, list[1].estimated_ms);
  EXPECT_THAT(list[0].notes, Contains("1 kernel"));
  EXPECT_THAT(list[0].notes, Contains("deterministic"));
}

TEST(CpuEngine, ExplainsItsRegions) {
  const IrBuilder b = matmul_gelu_amax();
  const Verdict v = cpu_fused_engine().propose(b.graph, test_target());
  EXPECT_THAT(v.proposal->explain(), HasSubstr("contraction matmul+add+gelu_fwd+reduce_amax+reduce_add"));
  EXPECT_THAT(v.proposal->explain(), HasSubstr("300 x 410 x 170 (batch 2)"));
  const std::vector<RegionInfo> regions = v.proposal->regions();
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].nodes, (std::vector<ir::NodeId>{0, 1, 2, 3, 4}));
}

TEST(CpuEngine, NamesDecomposedOpsByTheUsersNode) {
  const IrBuilder b = batchnorm(true);
  const Verdict v = cpu_fused_engine().propose(b.graph, test_target());
  for (const RegionInfo& r : v.proposal->regions()) {
    EXPECT_EQ(r.name, "rows batchnorm");
    EXPECT_EQ(r.nodes, (std::vector<ir::NodeId>{0}));
  }
}

TEST(CpuEngine, SaysNoToOtherDevicesAndToComplexNumbers) {
  Target gpu;
  gpu.device = "cuda";
  const std::vector<Reason> reasons = cpu_fused_engine().unavailable(gpu);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_EQ(reasons[0].why, Why::Arch);
  EXPECT_THAT(reasons[0].text, HasSubstr("cuda"));
  EXPECT_TRUE(cpu_fused_engine().unavailable(test_target()).empty());

  IrBuilder b;
  auto x = b.input({4});
  b.output(b.pw(P::NEG, {x}));
  b.graph.tensors[size_t(x)].type = D::COMPLEX_FP32;
  const Verdict v = cpu_fused_engine().propose(b.graph, test_target());
  EXPECT_FALSE(v.proposal);
  ASSERT_EQ(v.reasons.size(), 1u);
  EXPECT_EQ(v.reasons[0].why, Why::Dtype);
  EXPECT_THAT(v.reasons[0].text, HasSubstr("COMPLEX_FP32"));
}

TEST(CpuEngine, RefusesConfigurationsThatItDoesNotHave) {
  const IrBuilder b = matmul_gelu_amax();
  const Verdict v = cpu_fused_engine().propose(b.graph, test_target());
  EXPECT_EQ(v.proposal->compile("fuse=some", nullptr).status().code, error_code_t::INVALID_VALUE);
  EXPECT_FALSE(cpu_fused_engine().load(b.graph, {"cpu.fused", "fuse=some", {}, nullptr}, test_target(), nullptr));
}

TEST(CpuEngine, SameBitsForAnyNumberOfThreads) {
  IrBuilder sums;
  auto x = sums.input({3, 70000});
  sums.output(sums.pw(P::SUB, {x, sums.reduce(R::AVG, x, {3, 1})}));
  sums.output(sums.reduce(R::NORM2, x, {1, 70000}));
  sums.output(sums.reduce(R::ADD, x, {1, 1}));
  for (const IrBuilder& b : {matmul_gelu_amax(), batchnorm(true), batchnorm(false), sums}) {
    Harness harness(b.graph, {.seed = 3});
    auto plan = load_plan(cpu_fused_engine(), b.graph, "fuse=all");
    ASSERT_TRUE(plan);
    std::vector<std::vector<char>> first;
    for (int threads : {1, 2, 5}) {
      set_thread_count(threads);
      harness.poison_outputs();
      ASSERT_TRUE(plan->run(harness.bindings(), harness.workspace(plan->workspace_bytes()), {}).is_good());
      for (size_t t = 0, k = 0; t < b.graph.tensors.size(); ++t) {
        if (b.graph.tensors[t].role != ir::Role::Output) continue;
        const char* memory = static_cast<const char*>(harness.memory(ir::TensorId(t)));
        const std::vector<char> bits(memory, memory + b.graph.tensors[t].storage_bytes());
        if (threads == 1) first.push_back(bits);
        else EXPECT_EQ(bits, first[k]) << threads << " threads, tensor " << b.graph.tensors[t].name;
        ++k;
      }
    }
    set_thread_count(0);
  }
}

TEST(CpuEngine, RunsWithoutAllocating) {
  IrBuilder conv;
  const Dims x = {1, 8, 12, 12}, w = {16, 8, 3, 3};
  auto scaled = conv.pw(P::MUL, {conv.input(x), conv.input({1, 8, 1, 1})});
  auto y = conv.conv("conv_fprop", scaled, conv.input(w), {1, 1}, {1, 1}, {1, 1});
  conv.output(conv.op("softmax", {conv.pw(P::RELU_FWD, {y})}));
  for (const IrBuilder& b : {matmul_gelu_amax(), batchnorm(true), batchnorm(false), conv}) {
    set_thread_count(1);
    Harness harness(b.graph);
    auto plan = load_plan(cpu_fused_engine(), b.graph, "fuse=all");
    ASSERT_TRUE(plan);
    void* const workspace = harness.workspace(plan->workspace_bytes());
    ASSERT_TRUE(plan->run(harness.bindings(), workspace, {}).is_good());
    const int64_t before = allocations();
    const Status s = plan->run(harness.bindings(), workspace, {});
    EXPECT_EQ(allocations() - before, 0);
    EXPECT_TRUE(s.is_good());
    set_thread_count(0);
  }
}

TEST(CpuEngine, ManySteps) {
  IrBuilder b;
  auto x = b.input({8, 8});
  for (int i = 0; i < 60; ++i) x = b.pw(P::TANH_FWD, {b.op("matmul", {x, b.input({8, 8})})});
  b.output(x);
  const Verdict v = cpu_fused_engine().propose(b.graph, test_target());
  EXPECT_EQ(v.proposal->candidates()[0].kernel_count, 60);
  EXPECT_EQ(v.proposal->candidates()[0].workspace_bytes, 2 * 8 * 8 * 4);
  check_engine(cpu_fused_engine(), b.graph);
}

// A region holds 64 nodes at most; a longer chain goes on in the next one.
TEST(CpuEngine, LongChainsOfPointwiseNodes) {
  IrBuilder b;
  auto x = b.input({40});
  for (int i = 0; i < 150; ++i) x = b.pw(i % 2 ? P::SIN : P::NEG, {x});
  b.output(x);
  const Verdict v = cpu_fused_engine().propose(b.graph, test_target());
  EXPECT_LE(v.proposal->candidates()[0].kernel_count, 4);
  check_engine(cpu_fused_engine(), b.graph);
}

}  // namespace
}  // namespace tilewright::testing
