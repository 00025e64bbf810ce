// Attention by kernels of ours. Without a GPU: what they are and that they compile; on one: results against the
// reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "device/cuda/compiler.h"
#include "device/cuda/nvrtc.h"
#include "engines/cuda/engine.h"
#include "engines/cuda/kernel_headers.h"
#include "engines/cuda/region.h"
#include "plan/harness.h"
#include "support/attention_case.h"

namespace tilewright::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Result<std::vector<cuda::Launch>> launches(const ir::Graph& graph, int arch = 90) {
  auto fused = fuse::fuse(graph);
  const cuda::KernelOptions options{132, arch};
  for (fuse::Region& r : fused.regions) r.scratch_bytes = cuda::region_scratch_bytes(fused, r, options);
  place_intermediates(fused);
  return cuda::region_launches(fused, fused.regions.at(0), options);
}

AttentionCase plain_case(DataType_t type, int64_t d) {
  AttentionCase c;
  c.type = type, c.plain = true, c.scale = 0.125, c.stats = true;
  c.b = 2, c.hq = 4, c.hk = c.hv = 2, c.sq = 200, c.skv = 300, c.dqk = c.dv = d;
  return c;
}

AttentionCase with_everything(DataType_t type, int64_t d) {
  AttentionCase c = plain_case(type, d);
  c.plain = false, c.layout_seed = 7;
  c.padding = c.alibi = c.bottom_right = c.max = c.sum_exp = c.sink = c.dump = true;
  c.left = 50, c.right = 0, c.dropout = 0.25, c.bias = c.dbias = {1, 4, 200, 300};
  return c;
}

void expect_compiles(const ir::Graph& graph, int arch) {
  const auto list = launches(graph, arch);
  ASSERT_TRUE(list) << list.status();
  for (const cuda::Launch& l : *list) {
    const auto kernel =
        cuda::compile({l.text, cuda::kernel_headers(), cuda::kernel_header_count()}, cuda::native_arch(arch));
    ASSERT_TRUE(kernel) << arch << ": " << kernel.status() << "\n" << l.text;
    EXPECT_EQ((*kernel)->spill_bytes, 0) << arch << " " << l.name << "\n" << (*kernel)->log;
    EXPECT_LE((*kernel)->shared_bytes, 48 << 10) << l.name;
  }
}

TEST(CudaAttention, KernelsAreOfAClassOfShapes) {
  AttentionCase c = plain_case(DataType_t::HALF, 64);
  const auto text = [](const ir::Graph& g) { return launches(g)->at(0).text; };
  const std::string one = text(c.forward());
  EXPECT_THAT(one, HasSubstr("attention_forward"));
  AttentionCase other = c;
  other.b = 7, other.sq = 33, other.hk = 1, other.dqk = 48, other.right = 0, other.scale = 2;
  EXPECT_EQ(one, text(other.forward())) << "sizes, bounds and the scale are arguments";
  other = c, other.sink = true;
  EXPECT_NE(one, text(other.forward()));
}

TEST(CudaAttention, ScratchIsLinear) {
  AttentionCase c = plain_case(DataType_t::HALF, 64);
  c.sq = c.skv = 65536;
  const ir::Graph graph = c.backward();
  auto fused = fuse::fuse(graph);
  EXPECT_LE(cuda::region_scratch_bytes(fused, fused.regions.at(0), {}), 8 * c.b * c.hq * c.sq);
}

TEST(CudaAttention, CompilesWithoutSpills) {
  if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
  expect_compiles(with_everything(DataType_t::HALF, 128).forward(), 75);
  expect_compiles(with_everything(DataType_t::BFLOAT16, 256).forward(), 90);
  expect_compiles(with_everything(DataType_t::FLOAT, 128).backward(), 75);
  expect_compiles(with_everything(DataType_t::DOUBLE, 128).backward(), 90);
  for (int arch : {80, 86, 89, 100, 120}) expect_compiles(plain_case(DataType_t::HALF, 64).forward(), arch);
}

TEST(CudaAttention, WhatItDoesNotTakeHasAReason) {
  AttentionCase c = plain_case(DataType_t::HALF, 64);
  ir::Graph g = c.forward();
  for (ir::Tensor& t : g.tensors)
    if (t.name == "K") t.type = DataType_t::FP4_E2M1;
  const auto list = launches(g);
  ASSERT_FALSE(list);
  EXPECT_THAT(list.status().err_msg, HasSubstr("\"K\""));
  EXPECT_THAT(list.status().err_msg, HasSubstr("FP4_E2M1"));
}

// --- on a GPU --------------------------------------------------------------------------------------------------------

class CudaAttentionGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::driver_lookup().problem;
    if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
    device_ = std::make_unique<cuda::ScopedDevice>(0);
  }
  std::unique_ptr<Executable> plan_of(const ir::Graph& graph) {
    const Target target = *Target::of_gpu(0);
    const Verdict v = cuda_engine().propose(graph, target);
    EXPECT_TRUE(v.proposal) << (v.reasons.empty() ? "" : v.reasons[0].text);
    if (!v.proposal) return nullptr;
    const auto artifact = v.proposal->compile(v.proposal->candidates()[0].config, nullptr);
    EXPECT_TRUE(artifact) << artifact.status();
    auto plan = cuda_engine().load(graph, *artifact, target, nullptr);
    EXPECT_TRUE(plan) << plan.status();
    return plan ? std::move(*plan) : nullptr;
  }
  void check(const AttentionCase& c, bool backward, uint64_t seed) {
    const ir::Graph graph = backward ? c.backward() : c.forward();
    const auto plan = plan_of(graph);
    if (!plan) return;
    Harness harness(graph, {.seed = seed});
    const Status s = harness.check_run(*plan, {0, nullptr, nullptr});
    EXPECT_TRUE(s.is_good()) << c.text() << " (seed " << seed << "): " << s;
  }

 private:
  std::unique_ptr<cuda::ScopedDevice> device_;
};

TEST_F(CudaAttentionGpu, RandomForward) {
  for (uint64_t seed : seeds(1, 60)) {
    Random random(seed);
    check(random_attention(random, random.one_in(3) ? 230 : 40, false), false, seed);
  }
}

TEST_F(CudaAttentionGpu, RandomBackward) {
  for (uint64_t seed : seeds(1001, 40)) {
    Random random(seed);
    check(random_attention(random, random.one_in(3) ? 230 : 40, true), true, seed);
  }
}

TEST_F(CudaAttentionGpu, HeadSizes) {
  uint64_t seed = 3000;
  for (DataType_t type : {DataType_t::HALF, DataType_t::BFLOAT16, DataType_t::FLOAT, DataType_t::DOUBLE})
    for (int64_t d : {8, 40, 64, 96, 128, 192, 256, 320})
      for (bool backward : {false, true}) {
        AttentionCase c = plain_case(type, d);
        c.b = 1, c.hq = 2, c.hk = c.hv = 1, c.sq = 70, c.skv = 130,
        c.right = d % 3 ? std::optional<int64_t>(0) : std::nullopt;
        if (d == 192) c.dv = 128;
        if (d == 128 && backward) c.dv = 64;
        check(c, backward, ++seed);
      }
}

}  // namespace
}  // namespace tilewright::testing
