// Attention by kernels of ours. Without a GPU: what they are and that they compile; on one: results against the
// reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

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
  expect_compiles(plain_case(DataType_t::FLOAT, 256).forward(), 90);
  expect_compiles(with_everything(DataType_t::FLOAT, 64).backward(), 75);
  expect_compiles(plain_case(DataType_t::DOUBLE, 128).forward(), 90);
  for (int arch : {86, 89, 100, 120}) expect_compiles(plain_case(DataType_t::HALF, 64).forward(), arch);
  AttentionCase c = with_everything(DataType_t::BFLOAT16, 64);
  c.plain = true;
  expect_compiles(c.forward(), 90);
  c = plain_case(DataType_t::BFLOAT16, 128), c.padding = true, c.dropout = 0.25;
  expect_compiles(c.forward(), 80);
  expect_compiles(plain_case(DataType_t::BFLOAT16, 128).backward(), 90);
  expect_compiles(plain_case(DataType_t::BFLOAT16, 256).forward(), 90);
}

// 16-bit operands in aligned rows go through tensor cores from sm_80 on.
TEST(CudaAttention, TensorCoresWhereTheyServe) {
  AttentionCase c = plain_case(DataType_t::BFLOAT16, 128);
  const auto text = [](const AttentionCase& x, int arch = 90) { return launches(x.forward(), arch)->at(0).text; };
  EXPECT_THAT(text(c), HasSubstr("attention_forward_mma"));
  EXPECT_THAT(text(c, 75), Not(HasSubstr("mma")));
  const auto gradients = launches(c.backward());
  ASSERT_TRUE(gradients) << gradients.status();
  ASSERT_EQ(gradients->size(), 3u) << "row sums, dQ, dK with dV";
  EXPECT_THAT(gradients->at(2).text, HasSubstr("attention_dkv_mma"));
  AttentionCase other = c;
  other.type = DataType_t::FLOAT;
  EXPECT_THAT(text(other), Not(HasSubstr("mma")));
  other = c, other.dqk = 100;
  EXPECT_THAT(text(other), Not(HasSubstr("mma"))) << "rows that are not aligned";
  if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
  const auto ptx = cuda::compile({text(c), cuda::kernel_headers(), cuda::kernel_header_count()}, "compute_80");
  ASSERT_TRUE(ptx) << ptx.status();
  EXPECT_THAT(std::string((*ptx)->image.begin(), (*ptx)->image.end()), HasSubstr("mma.sync.aligned.m16n8k16"));
}

// The numbers that a graph keeps by value, or is given when it runs, or has in memory.
ir::Graph with_scalars(bool backward, bool stored, bool in_memory) {
  AttentionCase c = plain_case(DataType_t::FLOAT, 24);
  c.sq = 20, c.skv = 37, c.dropout = 0.3, c.scale_tensor = true, c.dump = !backward;
  ir::Graph g = backward ? c.backward() : c.forward();
  for (ir::Tensor& t : g.tensors) {
    if (t.name == "Seed") t.value = int64_t{0x0123456789abcdef};
    if (t.role != ir::Role::Scalar || stored) continue;
    t.value.reset();
    if (in_memory) t.role = ir::Role::Input;
  }
  return g;
}

TEST(CudaAttention, SeedsKeepAllTheirBits) {
  const cuda::Launch stored = launches(with_scalars(false, true, false))->at(0);
  const uint8_t seed[] = {0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01};
  EXPECT_NE(std::search(stored.arguments.begin(), stored.arguments.end(), seed, seed + 8), stored.arguments.end());
  const cuda::Launch given = launches(with_scalars(false, false, false))->at(0);
  const auto whole = [](const cuda::Patch& p) { return p.kind == cuda::Patch::Integer; };
  EXPECT_EQ(std::count_if(given.patches.begin(), given.patches.end(), whole), 2) << "the seed and the offset";
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

TEST_F(CudaAttentionGpu, NumbersByValueAndInMemory) {
  for (bool backward : {false, true})
    for (bool in_memory : {false, true}) {
      const ir::Graph graph = with_scalars(backward, false, in_memory);
      const auto plan = plan_of(graph);
      ASSERT_TRUE(plan);
      Harness harness(graph, {.seed = 6000});
      const Status s = harness.check_run(*plan, {0, nullptr, nullptr});
      EXPECT_TRUE(s.is_good()) << (backward ? "backward" : "forward") << (in_memory ? ", in memory: " : ": ") << s;
    }
}

// Aligned 16-bit operands: tensor cores.
TEST_F(CudaAttentionGpu, RandomOnTensorCores) {
  for (uint64_t seed : seeds(5001, 40)) {
    Random random(seed);
    const bool backward = random.one_in(3);
    AttentionCase c = random_attention(random, random.one_in(3) ? 500 : 130, backward);
    c.plain = true, c.compute = DataType_t::FLOAT;
    c.type = random.of({DataType_t::HALF, DataType_t::BFLOAT16});
    c.dqk = 8 * random.between(1, 16), c.dv = random.one_in(2) ? c.dqk : 8 * random.between(1, 16);
    check(c, backward, seed);
  }
}

// What no query sees, or only some of a tile, may be no number.
TEST_F(CudaAttentionGpu, NanBehindTheMask) {
  for (int64_t d : {40, 44, 128})
    for (bool backward : {false, true}) {
      AttentionCase c = plain_case(DataType_t::BFLOAT16, d);
      c.right = 0, c.sq = c.skv = 150;
      const ir::Graph graph = backward ? c.backward() : c.forward();
      const auto plan = plan_of(graph);
      ASSERT_TRUE(plan);
      Harness harness(graph, {.seed = uint64_t(d)});
      for (size_t port : {1, 2}) {  // from key 100 on: queries before that see none of it
        const ir::TensorId id = graph.nodes[0].in[port];
        auto* elements = static_cast<bfloat16*>(harness.memory(id));
        const int64_t row = graph.tensor(id).dim[3];
        elements[100 * row + 3] = bfloat16(std::numeric_limits<float>::quiet_NaN());
        elements[120 * row + 5] = bfloat16(std::numeric_limits<float>::infinity());
      }
      harness.inputs_changed();
      const Status s = harness.check_run(*plan, {0, nullptr, nullptr});
      EXPECT_TRUE(s.is_good()) << c.text() << ": " << s;
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
