// The CPU's attention against the reference, and the same bits for any number of threads.
#include <gtest/gtest.h>

#include <cstring>

#include "base/thread_pool.h"
#include "engines/cpu/attention.h"
#include "plan/harness.h"
#include "support/attention_case.h"

namespace tilewright {
namespace {

using testing::AttentionCase;
using testing::Random;

std::unique_ptr<Executable> plan_of(const ir::Graph& g) {
  auto step = cpu::make_attention_step(
      g, g.nodes[0], [](ir::TensorId id, const Bindings& bindings, void*) { return bindings[size_t(id)]; });
  EXPECT_TRUE(step) << step.status().err_msg;
  return std::make_unique<StepList>(std::vector<Step>{{step->name,
                                                       [run = step->run](const Bindings& bindings, void* workspace) {
                                                         run(bindings, nullptr, static_cast<char*>(workspace));
                                                       }}},
                                    step->scratch_bytes);
}

void check(const ir::Graph& g, uint64_t seed, const std::string& what) {
  Harness harness(g, {.seed = seed});
  const Status status = harness.check_run(*plan_of(g));
  EXPECT_TRUE(status.is_good()) << what << " (seed " << seed << "): " << status.err_msg;
}

TEST(CpuAttention, RandomForward) {
  for (uint64_t seed : testing::seeds(1, 120)) {
    Random random(seed);
    const AttentionCase c = testing::random_attention(random, random.one_in(5) ? 230 : 24, false);
    check(c.forward(), seed, c.text());
  }
}

TEST(CpuAttention, RandomBackward) {
  for (uint64_t seed : testing::seeds(1001, 100)) {
    Random random(seed);
    const AttentionCase c = testing::random_attention(random, random.one_in(5) ? 230 : 24, true);
    check(c.backward(), seed, c.text());
  }
}

// Every output's bytes, one run after another.
std::vector<std::vector<uint8_t>> outputs(const ir::Graph& g, Harness& harness, const Executable& plan) {
  harness.poison_outputs();
  EXPECT_TRUE(plan.run(harness.bindings(), harness.workspace(plan.workspace_bytes())).is_good());
  std::vector<std::vector<uint8_t>> bytes;
  for (size_t i = 0; i < g.tensors.size(); ++i)
    if (g.tensors[i].role == ir::Role::Output) {
      const auto* memory = static_cast<const uint8_t*>(harness.memory(ir::TensorId(i)));
      bytes.emplace_back(memory, memory + g.tensors[i].storage_bytes());
    }
  return bytes;
}

TEST(CpuAttention, SameBitsForAnyNumberOfThreads) {
  for (uint64_t seed : testing::seeds(2001, 6))
    for (bool backward : {false, true}) {
      Random random(seed);
      AttentionCase c = testing::random_attention(random, 200, backward);
      c.sq = 200, c.skv = 230, c.bias.clear(), c.dbias = backward ? Dims{1, 1, c.sq, c.skv} : Dims{};
      const ir::Graph g = backward ? c.backward() : c.forward();
      Harness harness(g, {.seed = seed});
      const auto plan = plan_of(g);
      set_thread_count(1);
      const auto one = outputs(g, harness, *plan);
      for (int threads : {2, 3}) {
        set_thread_count(threads);
        EXPECT_TRUE(outputs(g, harness, *plan) == one) << threads << " threads, " << c.text();
      }
      set_thread_count(0);
    }
}

}  // namespace
}  // namespace tilewright
