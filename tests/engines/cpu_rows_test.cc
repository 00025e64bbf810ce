// Rows regions on the CPU against the reference.
#include <gtest/gtest.h>

#include <cstring>

#include "base/thread_pool.h"
#include "engines/cpu/engine.h"
#include "support/engine_check.h"
#include "support/ir_builder.h"

namespace tilewright::testing {
namespace {

using P = PointwiseMode_t;
using R = ReductionMode_t;
using D = DataType_t;

void check(const IrBuilder& b, HarnessOptions options = {}) { check_engine(cpu_fused_engine(), b.graph, options); }

TEST(CpuRows, AddsAndRectifies) {
  IrBuilder b;
  auto x = b.input({3, 5, 7}), y = b.input({3, 5, 7});
  b.output(b.pw(P::RELU_FWD, {b.pw(P::ADD, {x, y})}));
  check(b);
}

TEST(CpuRows, BroadcastsAlongEveryDim) {
  for (const Dims& dim : {Dims{4, 1, 1}, Dims{1, 300, 1}, Dims{1, 1, 6}, Dims{1, 1, 1}, Dims{4, 1, 6}}) {
    IrBuilder b;
    auto x = b.input({4, 300, 6}), y = b.input(dim);
    b.output(b.pw(P::MUL, {y, x}));
    check(b);
  }
}

TEST(CpuRows, PermutedAndPaddedStrides) {
  IrBuilder b;
  auto x = b.input({2, 30, 5, 7}, D::FLOAT, {30 * 35, 1, 7 * 30, 30});
  auto y = b.input({2, 30, 5, 7}, D::HALF, {9000, 300, 50, 7});
  auto z = b.pw(P::SUB, {x, y});
  b.output(z, D::BFLOAT16, {2000, 1, 400, 50});
  b.output(b.pw(P::ABS, {z}), D::FLOAT, {1050, 35, 7, 1});
  check(b);
}

TEST(CpuRows, TransposedCopies) {
  for (const Dims& dim : {Dims{300, 70}, Dims{65, 257}, Dims{2, 33, 17, 19}, Dims{3, 70, 300}}) {
    IrBuilder b;
    b.output(b.pw(P::NEG, {b.input(dim)}), D::FLOAT,
             dim.size() == 4 ? channels_last_strides(dim) : column_major_strides(dim));
    check(b);
    IrBuilder two;
    const Dims swapped = {dim.back(), dim.front()};
    auto x = two.input({dim.front(), dim.back()}), y = two.op("transpose", {x}, {{"permutation", Dims{1, 0}}});
    two.output(two.pw(P::MUL, {y, two.input({dim.back(), 1})}), D::HALF, row_major_strides(swapped));
    check(two);
  }
}

TEST(CpuRows, TransposedMapsWithSideReductionsAndIndices) {
  for (const Dims& dim : {Dims{33, 70}, Dims{129, 64}, Dims{5, 300}, Dims{300, 5}})
    for (D type : {D::FLOAT, D::HALF, D::INT8, D::INT32}) {
      IrBuilder b;
      auto x = b.input(dim, type), y = b.input(dim, D::FLOAT, column_major_strides(dim));
      auto row = b.pw(P::GEN_INDEX, {x}, {{"axis", int64_t(0)}});
      auto z = b.output(b.pw(P::ADD, {b.pw(P::SUB, {x, b.pw(P::MUL, {y, row})}), b.input({1, dim[1]})}), D::FLOAT,
                        column_major_strides(dim));
      b.output(b.pw(P::MAX, {z, b.input({dim[0], 1})}), type);
      b.output(b.reduce(R::AMAX, z, {1, dim[1]}));
      check(b, {.fill = Fill::Integers});
    }
}

TEST(CpuRows, ScalarsStoredAndBound) {
  IrBuilder b;
  auto x = b.input({8, 40});
  b.output(b.pw(P::ADD, {b.pw(P::MUL, {x, b.scalar(0.5f, 2)}), b.scalar(std::nullopt, 2)}));
  check(b);
}

TEST(CpuRows, EveryReductionModeAlongEveryDim) {
  for (R mode : {R::ADD, R::MUL, R::MIN, R::MAX, R::AMAX, R::AVG, R::NORM1, R::NORM2, R::MUL_NO_ZEROS})
    for (const Dims& dim :
         {Dims{1, 6, 40}, Dims{5, 1, 40}, Dims{5, 6, 1}, Dims{5, 1, 1}, Dims{1, 1, 40}, Dims{1, 1, 1}}) {
      IrBuilder b;
      b.output(b.reduce(mode, b.input({5, 6, 40}), dim));
      check(b, {.fill = mode == R::MUL || mode == R::MUL_NO_ZEROS ? Fill::Random : Fill::Integers});
    }
}

TEST(CpuRows, ReductionsThatReduceNothing) {
  for (R mode : {R::ADD, R::MIN, R::AMAX, R::NORM1, R::NORM2, R::MUL_NO_ZEROS}) {
    IrBuilder b;
    b.output(b.reduce(mode, b.input({3, 4}), {3, 4}));
    check(b);
  }
}

TEST(CpuRows, LongReductionsAreCutIntoChunks) {
  for (bool rows : {true, false}) {
    IrBuilder b;
    auto x = rows ? b.input({3, 100000}) : b.input({100000, 3});
    const Dims stat = rows ? Dims{3, 1} : Dims{1, 3};
    auto mean = b.reduce(R::AVG, x, stat);
    auto centred = b.pw(P::SUB, {x, mean});
    auto variance = b.reduce(R::AVG, b.pw(P::MUL, {centred, centred}), stat);
    b.output(b.pw(P::DIV, {centred, b.pw(P::SQRT, {variance})}));
    b.output(mean);
    check(b);
  }
}

TEST(CpuRows, Layernorm) {
  for (const Dims& dim : {Dims{7, 33, 1, 1}, Dims{3, 1000, 1, 1}, Dims{300, 8, 1, 1}}) {
    IrBuilder b;
    auto x = b.input(dim);
    auto scale = b.input({1, dim[1], 1, 1}), bias = b.input({1, dim[1], 1, 1});
    auto out = b.node("layernorm", {x, scale, bias, b.scalar(1e-5f, 4)}, {{"forward_phase", std::string("TRAINING")}});
    for (auto t : out) b.output(t);
    check(b);
  }
}

TEST(CpuRows, SideReductionsOverEverySetOfDims) {
  const Dims dim = {5, 70, 33};
  for (const Dims& stride : {row_major_strides(dim), Dims{70 * 33, 1, 70}, Dims{1, 165, 5}})
    for (R mode : {R::ADD, R::AMAX, R::AVG, R::NORM2, R::MIN, R::MAX, R::NORM1})
      for (const Dims& kept : {Dims{1, 70, 33}, Dims{5, 1, 33}, Dims{5, 70, 1}, Dims{1, 1, 33}, Dims{1, 70, 1},
                               Dims{5, 1, 1}, Dims{1, 1, 1}}) {
        IrBuilder b;
        auto x = b.input(dim, D::FLOAT, stride), y = b.input(dim, D::BFLOAT16, stride);
        auto z = b.output(b.pw(P::MUL, {x, y}), D::HALF, stride);
        b.output(b.reduce(mode, z, kept));
        b.output(b.pw(P::SUB, {z, b.reduce(R::AVG, z, {5, 70, 1})}), D::FLOAT, stride);
        check(b);
      }
}

TEST(CpuRows, SideReductionsOfLongAndOfManyRows) {
  for (const Dims& dim : {Dims{2, 150000}, Dims{700, 300}, Dims{20000, 3}, Dims{1, 1}, Dims{0, 5}, Dims{5, 0}}) {
    IrBuilder b;
    auto x = b.input(dim), y = b.pw(P::SUB, {x, b.reduce(R::AVG, x, {dim[0], 1})});
    b.output(y);
    b.output(b.reduce(R::ADD, y, {1, 1}));
    b.output(b.reduce(R::ADD, b.pw(P::MUL, {y, x}), {1, dim[1]}));
    check(b);
  }
}

TEST(CpuRows, LayernormBackwardInOnePass) {
  for (const Dims& dim : {Dims{70, 33, 1, 1}, Dims{30, 1500, 1, 1}, Dims{600, 8, 1, 1}})
    for (D type : {D::FLOAT, D::BFLOAT16}) {
      IrBuilder b;
      auto dy = b.input(dim, type), x = b.input(dim, type);
      auto out = b.node("layernorm_backward",
                        {dy, x, b.input({1, dim[1], 1, 1}), b.input({dim[0], 1, 1, 1}), b.input({dim[0], 1, 1, 1})});
      b.output(out[0], type);
      b.output(out[1]);
      b.output(out[2]);
      check(b);
    }
}

TEST(CpuRows, FewChannelsRepeatInABlock) {
  for (int64_t channels : {2, 3, 24, 64, 500, 513}) {
    const Dims dim = {3, channels, 7, 11}, c = {1, channels, 1, 1}, stride = channels_last_strides(dim);
    for (D type : {D::FLOAT, D::HALF}) {
      IrBuilder b;
      auto x = b.input(dim, type, stride), s = b.input(c, type);
      b.output(b.pw(P::RELU_FWD, {b.pw(P::ADD, {b.pw(P::MUL, {x, s}), b.input(c)})}), type, stride);
      check(b);
      IrBuilder stats;
      x = stats.input(dim, type, stride);
      for (auto t : stats.node("genstats", {x})) stats.output(t);
      check(stats);
      IrBuilder norm;
      x = norm.input(dim, type, stride);
      auto out = norm.node("batchnorm", {x, norm.input(c), norm.input(c), norm.scalar(1e-3f, 4)});
      norm.output(out[0], type, stride);
      for (size_t k = 1; k < out.size(); ++k)
        if (out[k] != ir::kNone) norm.output(out[k]);
      check(norm);
    }
  }
}

// Larger than half of the last-level cache of most machines: stored past the caches.
TEST(CpuRows, StreamedResults) {
  for (D type : {D::FLOAT, D::BFLOAT16}) {
    IrBuilder b;
    b.output(b.pw(P::NEG, {b.input({3, type == D::FLOAT ? 1500001 : 3000001}, D::INT8)}), type);
    check(b);
  }
}

TEST(CpuRows, SoftmaxOverRows) {
  IrBuilder b;
  b.output(b.op("softmax", {b.input({2, 3, 17, 130})}));
  check(b);
}

TEST(CpuRows, BatchnormChannelsLast) {
  IrBuilder b;
  const Dims dim = {4, 24, 6, 5};
  auto x = b.input(dim, D::FLOAT, channels_last_strides(dim));
  auto out = b.node("batchnorm", {x, b.input({1, 24, 1, 1}), b.input({1, 24, 1, 1}), b.scalar(1e-3f, 4)});
  for (auto t : out)
    if (t != ir::kNone) b.output(t);
  check(b);
}

TEST(CpuRows, IntegersAreExactAndRoundWhenRead) {
  IrBuilder b;
  b.compute = b.intermediate = D::INT32;
  auto x = b.input({4, 100}, D::INT32), y = b.input({4, 100}, D::INT8);
  auto z = b.pw(P::ADD, {b.pw(P::MUL, {x, y}), x});
  b.output(z, D::INT32);
  b.output(b.pw(P::CMP_GT, {z, y}), D::BOOLEAN);
  check(b);
}

TEST(CpuRows, RoundsNarrowIntegersBetweenNodes) {
  IrBuilder b;
  auto x = b.input({50, 9});
  b.intermediate = D::INT8;
  auto q = b.pw(P::MUL, {x, b.scalar(40.f, 2)});
  b.intermediate = D::FLOAT;
  b.output(b.pw(P::MUL, {q, b.scalar(0.025f, 2)}));
  check(b);
}

TEST(CpuRows, GenIndexAndSelect) {
  IrBuilder b;
  auto x = b.input({5, 20, 30});
  auto row = b.pw(P::GEN_INDEX, {x}, {{"axis", int64_t(1)}}), column = b.pw(P::GEN_INDEX, {x}, {{"axis", int64_t(2)}});
  b.output(b.pw(P::BINARY_SELECT, {x, b.scalar(-1e9f, 3), b.pw(P::CMP_GE, {row, column})}));
  check(b);
}

TEST(CpuRows, GenIndexOfOneElementIsZero) {
  IrBuilder b;
  auto x = b.input({5, 20});
  auto row = b.pw(P::GEN_INDEX, {b.input({1, 20})}, {{"axis", int64_t(0)}});
  b.output(b.pw(P::ADD, {x, row}));
  check(b, {.fill = Fill::Integers});
}

// What is folded after a block must not lose its buffer to a later value of the block.
TEST(CpuRows, FoldsAValueThatOthersReadToo) {
  IrBuilder b;
  auto x = b.input({6, 8}, D::HALF);
  b.output(b.reduce(R::AVG, x, {6, 1}));
  b.output(b.reduce(R::MAX, b.pw(P::NEG, {b.pw(P::FLOOR, {x})}), {6, 1}));
  check(b);
}

TEST(CpuRows, EmptyTensors) {
  IrBuilder b;
  auto x = b.input({0, 4});
  b.output(b.pw(P::ABS, {x}));
  b.output(b.reduce(R::ADD, b.input({3, 0}), {3, 1}));
  check(b);
}

TEST(CpuRows, BitPackedBooleans) {
  IrBuilder b;
  auto x = b.input({3, 70});
  auto mask = b.output(b.pw(P::CMP_GT, {x, b.scalar(0.f, 2)}), D::BOOLEAN);
  b.graph.tensors[size_t(mask)].bit_packed = true;
  b.output(b.pw(P::MUL, {x, mask}));
  check(b);
}

TEST(CpuRows, ViewsAreStrides) {
  IrBuilder b;
  auto x = b.input({6, 20, 10});
  auto s = b.op("slice", {x}, {{"slices", Dims{1, 5, 2, 20, 0, 10}}, {"slice_strides", Dims{1, 3, 2}}});
  auto t = b.op("transpose", {s}, {{"permutation", Dims{2, 0, 1}}});
  b.output(b.pw(P::EXP, {t}));
  b.output(b.op("transpose", {b.pw(P::NEG, {x})}, {{"permutation", Dims{1, 2, 0}}}));
  b.output(b.op("reshape", {b.pw(P::ABS, {x})}, {}, {60, 20}), D::FLOAT, {20, 1});
  check(b);
}

// Rotary embedding in place: two outputs over two inputs, each output from both inputs.
TEST(CpuRows, OutputsMayOverwriteInputs) {
  IrBuilder b;
  const Dims dim = {2, 3, 50, 40};
  auto x1 = b.input(dim), x2 = b.input(dim), cos = b.input({1, 1, 50, 40}), sin = b.input({1, 1, 50, 40});
  auto o1 = b.output(b.pw(P::SUB, {b.pw(P::MUL, {x1, cos}), b.pw(P::MUL, {x2, sin})}));
  auto o2 = b.output(b.pw(P::ADD, {b.pw(P::MUL, {x2, cos}), b.pw(P::MUL, {x1, sin})}));
  auto plan = load_plan(cpu_fused_engine(), b.graph, "fuse=all");
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->steps().size(), 1u);
  Harness apart(b.graph);
  Bindings bindings = apart.bindings();
  ASSERT_TRUE(plan->run(bindings, apart.workspace(plan->workspace_bytes()), {}).is_good());
  const size_t bytes = size_t(volume(dim)) * sizeof(float);
  std::vector<char> a(bytes), c(bytes);
  memcpy(a.data(), apart.memory(x1), bytes);
  memcpy(c.data(), apart.memory(x2), bytes);
  bindings[size_t(x1)] = bindings[size_t(o1)] = a.data();
  bindings[size_t(x2)] = bindings[size_t(o2)] = c.data();
  ASSERT_TRUE(plan->run(bindings, apart.workspace(plan->workspace_bytes()), {}).is_good());
  EXPECT_EQ(memcmp(a.data(), apart.memory(o1), bytes), 0);
  EXPECT_EQ(memcmp(c.data(), apart.memory(o2), bytes), 0);
}

IrBuilder layernorm(const char* op, const Dims& dim) {
  IrBuilder b;
  const Dims channel = {1, dim[1], 1, 1}, row = {dim[0], 1, 1, 1};
  const auto x = b.input(dim), y = b.input(std::strcmp(op, "layernorm") ? dim : channel);
  std::vector<ir::TensorId> out;
  if (!std::strcmp(op, "layernorm"))
    out = b.node(op, {x, y, b.input(channel), b.scalar(1e-5f, 4)}, {{"forward_phase", std::string("TRAINING")}});
  else out = b.node(op, {x, y, b.input(channel), b.input(row), b.input(row)});
  for (auto t : out) b.output(t);
  return b;
}

// The last pass over a row goes beside the first one over the next, which must not have been written yet.
TEST(CpuRows, RowsThatOverlapMayBeOverwritten) {
  for (const Dims& dim : {Dims{90, 300, 1, 1}, Dims{9, 9000, 1, 1}}) {
    const IrBuilder b = layernorm("layernorm", dim);
    const auto verdict = cpu_fused_engine().propose(b.graph, test_target());
    ASSERT_TRUE(verdict.proposal);
    EXPECT_NE(verdict.proposal->explain().find("rows overlap"), std::string::npos) << verdict.proposal->explain();
    auto plan = load_plan(cpu_fused_engine(), b.graph, "fuse=all");
    ASSERT_TRUE(plan);
    Harness apart(b.graph);
    Bindings bindings = apart.bindings();
    ASSERT_TRUE(plan->run(bindings, apart.workspace(plan->workspace_bytes()), {}).is_good());
    const ir::TensorId x = b.graph.nodes[0].in[0], y = b.graph.nodes[0].out[0];
    const size_t bytes = size_t(volume(dim)) * sizeof(float);
    std::vector<char> both(bytes);
    memcpy(both.data(), apart.memory(x), bytes);
    bindings[size_t(x)] = bindings[size_t(y)] = both.data();
    ASSERT_TRUE(plan->run(bindings, apart.workspace(plan->workspace_bytes()), {}).is_good());
    EXPECT_EQ(memcmp(both.data(), apart.memory(y), bytes), 0);
  }
}

TEST(CpuRows, SameBitsForAnyNumberOfThreads) {
  for (const char* op : {"layernorm", "layernorm_backward"}) {
    const IrBuilder b = layernorm(op, {400, 700, 1, 1});
    Harness harness(b.graph);
    const auto plan = load_plan(cpu_fused_engine(), b.graph, "fuse=all");
    ASSERT_TRUE(plan);
    std::vector<std::vector<char>> one;
    for (int threads : {1, 2, 3}) {
      set_thread_count(threads);
      harness.poison_outputs();
      ASSERT_TRUE(plan->run(harness.bindings(), harness.workspace(plan->workspace_bytes()), {}).is_good());
      std::vector<std::vector<char>> now;
      for (ir::TensorId out : b.graph.nodes[0].out) {
        const char* bytes = static_cast<const char*>(harness.memory(out));
        now.emplace_back(bytes, bytes + b.graph.tensor(out).storage_bytes());
      }
      if (threads == 1) one = now;
      EXPECT_TRUE(now == one) << op << ", " << threads << " threads";
    }
    set_thread_count(0);
  }
}

}  // namespace
}  // namespace tilewright::testing
