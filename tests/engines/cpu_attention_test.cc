// The CPU's attention against the reference, and the same bits for any number of threads.
#include <gtest/gtest.h>

#include <cstring>

#include "base/thread_pool.h"
#include "engines/cpu/attention.h"
#include "plan/harness.h"
#include "support/attention_case.h"
#include "support/every_target.h"

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

// Sizes around what the engine cuts by: a tile, its parts of rows, a vector, few columns, heads that share a tile, and
// keys in parts.
AttentionCase edge_case(Random& r, bool backward) {
  AttentionCase c = testing::random_attention(r, 8, backward);
  const auto near = [&](std::vector<int64_t> sizes) { return std::max<int64_t>(1, r.of(sizes) + r.between(-1, 1)); };
  const int64_t kind = r.between(0, 2);
  c.sq = kind == 0 ? r.between(1, 16) : near({12, 16, 32, 48, 96, 192});
  c.skv = kind == 2 ? near({96, 192}) : near({16, 96, 384, 768, 1000});
  c.b = c.skv > 400 ? 1 : c.b;
  c.dqk = near({8, 16, 32, 48, 64}), c.dv = r.one_in(2) ? c.dqk : near({16, 32, 80});
  const int64_t groups = r.between(1, 2), group = r.of({1, 2, 4, 7});
  c.hq = groups * group;
  c.hk = r.one_in(4) ? c.hq : groups, c.hv = r.one_in(4) ? 1 : c.hk;
  if (c.right) c.right = r.of({int64_t{0}, int64_t{0}, int64_t{1}, c.skv / 2});
  if (c.left) c.left = near({1, 12, 96, 200});
  c.alibi = c.alibi && c.right == 0;
  const auto shrink = [&](Dims& dims, const Dims& whole) {
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = dims[d] == 1 ? 1 : whole[d];
  };
  shrink(c.bias, {c.b, c.hq, c.sq, c.skv}), shrink(c.dbias, {c.b, c.hq, c.sq, c.skv});
  c.plain = r.one_in(2);
  return c;
}

TEST(CpuAttention, EdgesForward) {
  for (uint64_t seed : testing::seeds(3001, 120)) {
    Random random(seed);
    const AttentionCase c = edge_case(random, false);
    check(c.forward(), seed, c.text());
  }
}

TEST(CpuAttention, EdgesBackward) {
  for (uint64_t seed : testing::seeds(4001, 80)) {
    Random random(seed);
    const AttentionCase c = edge_case(random, true);
    check(c.backward(), seed, c.text());
  }
}

TEST(CpuAttention, EveryInstructionSet) {
  testing::on_every_target([] {
    for (uint64_t seed : testing::seeds(8001, 20))
      for (bool backward : {false, true}) {
        Random random(seed);
        const AttentionCase c = edge_case(random, backward);
        check(backward ? c.backward() : c.forward(), seed, c.text());
      }
  });
}

// Every output's bytes, one run after another.
std::vector<std::vector<uint8_t>> outputs(const ir::Graph& g, Harness& harness, const Executable& plan) {
  harness.poison_outputs();
  EXPECT_TRUE(plan.run(harness.bindings(), harness.workspace(plan.workspace_bytes()), {}).is_good());
  std::vector<std::vector<uint8_t>> bytes;
  for (size_t i = 0; i < g.tensors.size(); ++i)
    if (g.tensors[i].role == ir::Role::Output) {
      const auto* memory = static_cast<const uint8_t*>(harness.memory(ir::TensorId(i)));
      bytes.emplace_back(memory, memory + g.tensors[i].storage_bytes());
    }
  return bytes;
}

// Numbers that BFLOAT16 instructions would take as 0, in one operand, here and there or all over, while the other
// factor makes up for them.
TEST(CpuAttention, Bfloat16BelowTheNormalRange) {
  for (uint64_t seed : testing::seeds(7001, 160)) {
    Random random(seed);
    AttentionCase c;
    c.type = DataType_t::BFLOAT16, c.plain = true, c.stats = c.max = true;
    c.hq = 2, c.hk = c.hv = random.between(1, 2);
    c.sq = random.between(9, 120), c.skv = random.between(1, 230);
    c.dqk = 2 * random.between(1, 20), c.dv = random.between(1, 40);
    if (random.one_in(2)) c.right = 0;
    if (random.one_in(2)) c.scale = 0.25;
    const bool backward = random.one_in(2);
    const ir::Graph g = backward ? c.backward() : c.forward();
    Harness harness(g, {.seed = seed, .fill = random.one_in(2) ? Fill::Integers : Fill::Random});
    const auto multiply = [&](size_t port, float factor, int64_t step) {
      const ir::TensorId id = g.nodes[0].in[port];
      auto* elements = static_cast<bfloat16*>(harness.memory(id));
      for (int64_t i = 0; i < volume(g.tensor(id).dim); i += step) elements[i] = bfloat16(float(elements[i]) * factor);
    };
    const size_t small = size_t(random.between(0, 2));
    const bool all = random.one_in(2);
    multiply(small, 0x1p-131f, all ? 1 : random.between(2, 500));
    if (all && small < 2) multiply(1 - small, 0x1p100f, 1);
    harness.inputs_changed();
    const Status status = harness.check_run(*plan_of(g));
    EXPECT_TRUE(status.is_good()) << c.text() << " (seed " << seed << "): " << status.err_msg;
  }
}

// Scratch grows with the sequences and not with their product.
TEST(CpuAttention, ScratchIsLinear) {
  const auto scratch = [](bool backward, int64_t s) {
    AttentionCase c;
    c.hq = c.hk = c.hv = 2, c.sq = c.skv = s, c.dqk = c.dv = 64, c.plain = true;
    return plan_of(backward ? c.backward() : c.forward())->workspace_bytes();
  };
  for (bool backward : {false, true}) EXPECT_LE(scratch(backward, 65536), 17 * scratch(backward, 4096) + 65536);
}

TEST(CpuAttention, SameBitsForAnyNumberOfThreads) {
  for (uint64_t seed : testing::seeds(2001, 10))
    for (bool backward : {false, true}) {
      Random random(seed);
      AttentionCase c = testing::random_attention(random, 200, backward);
      c.sq = seed % 2 ? 200 : 3, c.skv = seed % 3 ? 230 : 1500, c.bias.clear();
      c.dbias = backward ? Dims{1, 1, c.sq, c.skv} : Dims{};
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
