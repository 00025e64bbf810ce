// Contraction regions on the CPU against the reference.
#include <gtest/gtest.h>

#include "base/numeric_types.h"
#include "base/thread_pool.h"
#include "engines/cpu/engine.h"
#include "support/conv_cases.h"
#include "support/engine_check.h"
#include "support/ir_builder.h"

namespace tilewright::testing {
namespace {

using testing::convolved;
using testing::kConvCases;
using testing::layout;
using P = PointwiseMode_t;
using R = ReductionMode_t;
using D = DataType_t;

void check(const IrBuilder& b, HarnessOptions options = {}) { check_engine(cpu_fused_engine(), b.graph, options); }

TEST(CpuContraction, MatmulOfAwkwardSizes) {
  for (const Dims& mnk : {Dims{1, 1, 1}, Dims{7, 5, 3}, Dims{33, 70, 65}, Dims{1, 300, 40}, Dims{300, 1, 40},
                          Dims{130, 260, 300}, Dims{2, 2, 1000}}) {
    IrBuilder b;
    b.output(b.op("matmul", {b.input({mnk[0], mnk[2]}), b.input({mnk[2], mnk[1]})}));
    check(b, {.fill = Fill::Integers});
    check(b);
  }
}

// Results of half a register's type: finished in registers, then converted a stretch at a time.
TEST(CpuContraction, NarrowResultsWithBiasAndRelu) {
  for (D type : {D::HALF, D::BFLOAT16, D::FLOAT})
    for (const Dims& size : {Dims{2, 64, 9, 64}, Dims{1, 20, 7, 128}, Dims{3, 33, 5, 50}, Dims{1, 700, 3, 64}})
      for (int64_t gap : {0, 3}) {
        IrBuilder b;
        const Dims x = {size[0], size[1], size[2], 5}, w = {size[3], size[1], 1, 1}, y = {size[0], size[3], size[2], 5};
        Dims out = channels_last_strides(y);
        for (size_t d : {0, 2, 3}) out[d] = out[d] / size[3] * (size[3] + gap);
        auto conv = b.conv("conv_fprop", b.input(x, type, channels_last_strides(x)),
                           b.input(w, type, channels_last_strides(w)), {0, 0}, {1, 1}, {1, 1}, y);
        b.output(b.pw(P::RELU_FWD, {b.pw(P::ADD, {conv, b.input({1, size[3], 1, 1})})}), type, out);
        check(b);
      }
}

TEST(CpuContraction, MatmulOfEveryLayout) {
  const Dims row_major = {2000, 50, 1}, column_major = {2000, 1, 50}, gaps = {9000, 150, 3};
  for (const Dims& a : {row_major, column_major, gaps})
    for (const Dims& bs : {row_major, column_major, gaps})
      for (const Dims& c : {row_major, column_major, gaps}) {
        IrBuilder b;
        auto product = b.op("matmul", {b.input({3, 31, 40}, D::FLOAT, a), b.input({3, 40, 29}, D::HALF, bs)});
        b.output(product, D::FLOAT, c);
        check(b);
      }
}

TEST(CpuContraction, MatmulBroadcastsBatches) {
  IrBuilder b;
  b.output(b.op("matmul", {b.input({2, 1, 9, 20}), b.input({1, 3, 20, 11})}));
  check(b);
}

TEST(CpuContraction, MatmulSizesPerBatch) {
  IrBuilder b;
  auto a = b.input({3, 20, 30}), c = b.input({3, 30, 25});
  auto m = b.input({3, 1, 1}, D::INT32), n = b.input({3, 1, 1}, D::INT32), k = b.input({3, 1, 1}, D::INT32);
  b.output(b.op("matmul", {a, c, m, n, k}, {{"padding_value", 0.5}}));
  HarnessOptions options;
  Harness harness(b.graph, options);
  const int32_t sizes[3][3] = {{20, 7, 0}, {25, 1, 13}, {30, 12, 5}};
  for (int i = 0; i < 3; ++i) memcpy(harness.memory(std::array{m, n, k}[size_t(i)]), sizes[i], sizeof sizes[i]);
  harness.inputs_changed();
  for (const char* config : {"fuse=all", "fuse=anchors"}) {
    auto plan = load_plan(cpu_fused_engine(), b.graph, config);
    ASSERT_TRUE(plan);
    const Status s = harness.check_run(*plan);
    EXPECT_TRUE(s.is_good()) << s.err_msg;
  }
}

TEST(CpuContraction, IntegerMatmulIsExact) {
  IrBuilder b;
  b.compute = D::INT32;
  b.output(b.op("matmul", {b.input({40, 500}, D::INT8), b.input({500, 30}, D::INT8)}), D::INT32);
  check(b);
}

TEST(CpuContraction, DoubleMatmulIsInDouble) {
  IrBuilder b;
  b.compute = b.intermediate = D::DOUBLE;
  b.output(b.op("matmul", {b.input({20, 50}, D::DOUBLE), b.input({50, 30}, D::DOUBLE)}), D::DOUBLE);
  check(b);
}

TEST(CpuContraction, MatmulScaleBiasGeluAmax) {
  IrBuilder b;
  auto product = b.op("matmul", {b.input({2, 100, 70}, D::HALF), b.input({2, 70, 90}, D::HALF)});
  auto scaled = b.pw(P::MUL, {product, b.scalar(std::nullopt, 3)});
  auto y = b.pw(P::GELU_FWD, {b.pw(P::ADD, {scaled, b.input({1, 1, 90})})});
  b.output(y, D::HALF);
  b.output(b.reduce(R::AMAX, y, {1, 1, 1}));
  check(b);
}

TEST(CpuContraction, SideReductionsOfEveryShape) {
  for (const Dims& dim : {Dims{1, 1, 1}, Dims{3, 1, 1}, Dims{3, 130, 1}, Dims{3, 1, 270}, Dims{1, 130, 1},
                          Dims{1, 1, 270}, Dims{1, 130, 270}})
    for (R mode : {R::ADD, R::MAX, R::AVG, R::NORM2}) {
      IrBuilder b;
      auto product = b.op("matmul", {b.input({3, 130, 20}), b.input({3, 20, 270})});
      b.output(b.reduce(mode, product, dim));
      check(b, {.fill = mode == R::NORM2 ? Fill::Random : Fill::Integers});
    }
}

TEST(CpuContraction, SideReductionsThatKeepTheSameRows) {
  for (const Dims& shape : {Dims{6, 7, 20}, Dims{100, 16, 300}}) {
    IrBuilder b;
    auto y = b.op("matmul", {b.input({2, shape[0], shape[1]}), b.input({2, shape[1], shape[2]})});
    for (R mode : {R::MAX, R::AVG, R::AMAX}) b.output(b.reduce(mode, y, {2, shape[0], 1}));
    check(b);
  }
}

TEST(CpuContraction, ConvolutionsOfEveryKind) {
  for (const ConvCase& c : kConvCases)
    for (bool last : {true, false}) {
      const Dims y = convolved(c);
      IrBuilder fprop;
      fprop.output(fprop.conv("conv_fprop", fprop.input(c.x, D::FLOAT, layout(c.x, last)),
                              fprop.input(c.w, D::FLOAT, layout(c.w, last)), c.pad, c.stride, c.dilation),
                   D::FLOAT, layout(y, last));
      check(fprop, {.fill = Fill::Integers});
      IrBuilder dgrad;
      dgrad.output(dgrad.conv("conv_dgrad", dgrad.input(y, D::FLOAT, layout(y, last)),
                              dgrad.input(c.w, D::FLOAT, layout(c.w, last)), c.pad, c.stride, c.dilation, c.x),
                   D::FLOAT, layout(c.x, last));
      check(dgrad, {.fill = Fill::Integers});
      IrBuilder wgrad;
      wgrad.output(wgrad.conv("conv_wgrad", wgrad.input(y, D::FLOAT, layout(y, last)),
                              wgrad.input(c.x, D::FLOAT, layout(c.x, last)), c.pad, c.stride, c.dilation, c.w),
                   D::FLOAT, layout(c.w, last));
      check(wgrad, {.fill = Fill::Integers});
    }
}

TEST(CpuContraction, FlippedFilters) {
  for (const char* op : {"conv_fprop", "conv_dgrad", "conv_wgrad"}) {
    const Dims x = {2, 3, 9, 8}, w = {4, 3, 3, 2}, y = {2, 4, 5, 4};
    const bool fprop = std::string(op) == "conv_fprop", dgrad = std::string(op) == "conv_dgrad";
    IrBuilder b;
    b.output(b.op(op, {b.input(fprop ? x : y), b.input(fprop || dgrad ? w : x)},
                  {{"pre_padding", Dims{1, 0}},
                   {"post_padding", Dims{1, 0}},
                   {"stride", Dims{2, 2}},
                   {"dilation", Dims{1, 1}},
                   {"math_mode", to_string(ConvolutionMode_t::CONVOLUTION)}},
                  fprop   ? y
                  : dgrad ? x
                          : w));
    check(b, {.fill = Fill::Integers});
  }
}

TEST(CpuContraction, ScaleBiasReluConvGenstats) {
  IrBuilder b;
  const Dims x = {2, 16, 12, 10};
  auto in = b.input(x, D::HALF, channels_last_strides(x));
  auto normed = b.pw(P::ADD, {b.pw(P::MUL, {in, b.input({1, 16, 1, 1})}), b.input({1, 16, 1, 1})});
  auto y = b.conv("conv_fprop", b.pw(P::RELU_FWD, {normed}),
                  b.input({24, 16, 3, 3}, D::HALF, channels_last_strides({24, 16, 3, 3})), {1, 1}, {1, 1}, {1, 1});
  b.output(y, D::HALF);
  auto stats = b.node("genstats", {y});
  b.output(stats[0]);
  b.output(stats[1]);
  check(b);
}

TEST(CpuContraction, ResidualConvolutionsBothLayouts) {
  for (bool last : {true, false}) {
    IrBuilder b;
    const Dims x = {2, 8, 9, 9};
    auto in = b.input(x, D::FLOAT, layout(x, last));
    auto y = b.conv("conv_fprop", in, b.input({8, 8, 3, 3}), {1, 1}, {1, 1}, {1, 1});
    auto biased = b.pw(P::RELU_FWD, {b.pw(P::ADD, {b.pw(P::ADD, {y, b.input({1, 8, 1, 1})}), in})});
    auto z = b.conv("conv_fprop", biased, b.input({5, 8, 1, 1}), {0, 0}, {1, 1}, {1, 1});
    b.output(z, D::FLOAT, layout(b.dim(z), last));
    b.output(biased, D::FLOAT, layout(x, last));
    check(b);
  }
}

// Sizes that need several tiles, several slices of the sums, panels that many tiles share, and edges of all of them.
TEST(CpuContraction, MatmulsOfManyTiles) {
  struct Case {
    Dims mnk;
    D a, b;
    bool a_columns, b_columns;
  };
  for (const Case& c :
       {Case{{1100, 300, 40}, D::FLOAT, D::FLOAT, false, false},
        Case{{1030, 65, 700}, D::FLOAT, D::BFLOAT16, false, true}, Case{{70, 600, 1100}, D::HALF, D::HALF, true, false},
        Case{{1, 700, 900}, D::FLOAT, D::FLOAT, false, true}, Case{{5, 1000, 300}, D::FLOAT, D::FLOAT, true, false},
        Case{{700, 3, 500}, D::BFLOAT16, D::FP8_E4M3, false, false},
        Case{{130, 130, 2100}, D::FLOAT, D::INT8, true, true}}) {
    const int64_t m = c.mnk[0], n = c.mnk[1], k = c.mnk[2];
    IrBuilder b;
    auto product = b.op("matmul", {b.input({m, k}, c.a, c.a_columns ? Dims{1, m} : Dims{k, 1}),
                                   b.input({k, n}, c.b, c.b_columns ? Dims{1, k} : Dims{n, 1})});
    b.output(product, D::FLOAT);
    check(b);
    b.output(b.pw(P::RELU_FWD, {b.pw(P::ADD, {product, b.input({1, n}, D::BFLOAT16)})}), D::HALF);
    check(b);
  }
}

TEST(CpuContraction, FirstLayersWithFewChannels) {
  for (D type : {D::FLOAT, D::BFLOAT16, D::INT8})
    for (bool last : {true, false})
      for (int64_t channels : {1, 3}) {
        const Dims x = {2, channels, 37, 41}, w = {20, channels, 7, 7};
        IrBuilder b;
        auto y = b.conv("conv_fprop", b.input(x, type, layout(x, last)), b.input(w, type, layout(w, last)), {3, 3},
                        {2, 2}, {1, 1});
        b.output(b.pw(P::RELU_FWD, {b.pw(P::ADD, {y, b.input({1, 20, 1, 1})})}), D::FLOAT, layout(b.dim(y), last));
        check(b);
      }
}

// Subnormal operands count, also where the processor's own bfloat16 products would drop them.
TEST(CpuContraction, TinyBfloat16Elements) {
  for (bool b_columns : {false, true})
    for (bool constant : {false, true})
      for (int which : {0, 1}) {
        IrBuilder b;
        const int64_t m = 200, n = 70, k = 96;
        auto x = b.input({m, k}, D::BFLOAT16), y = b.input({k, n}, D::BFLOAT16, b_columns ? Dims{1, k} : Dims{n, 1});
        b.graph.tensors[size_t(y)].constant = constant;
        b.output(b.op("matmul", {x, y}));
        auto plan = load_plan(cpu_fused_engine(), b.graph, "fuse=all");
        ASSERT_TRUE(plan);
        Harness harness(b.graph);
        auto* tiny = static_cast<uint16_t*>(harness.memory(which ? x : y));
        auto* large = static_cast<uint16_t*>(harness.memory(which ? y : x));
        for (int64_t i = 0; i < (which ? m : n) * k; ++i) tiny[i] = uint16_t(1 + i % 100);  // about 1e-39
        for (int64_t i = 0; i < (which ? n : m) * k; ++i) large[i] = float_to_bfloat16(0x1.8p120f);
        harness.inputs_changed();
        const Status s = harness.check_run(*plan);
        EXPECT_TRUE(s.is_good()) << s.err_msg;
      }
}

// Narrow operands of overlapping windows are converted once.
TEST(CpuContraction, ConvolutionsOfNarrowTypes) {
  for (D type : {D::HALF, D::BFLOAT16, D::FP8_E5M2, D::UINT8})
    for (const Dims& gaps : {Dims{}, Dims{40 * 13 * 30, 1, 13 * 40, 40}})
      for (int64_t channels : {6, 32}) {
        const Dims x = {2, channels, 12, 13}, w = {20, channels, 3, 3};
        IrBuilder b;
        auto in = b.input(x, type, gaps.empty() ? channels_last_strides(x) : gaps);
        auto y = b.conv("conv_fprop", in, b.input(w, type, channels_last_strides(w)), {1, 1}, {1, 1}, {1, 1});
        b.output(b.pw(P::RELU_FWD, {y}), D::FLOAT, channels_last_strides(b.dim(y)));
        check(b);
        check(b, {.tight_alignment = true});
      }
}

TEST(CpuContraction, ResultsDoNotDependOnTheNumberOfThreads) {
  IrBuilder b;
  const Dims x = {3, 24, 30, 31}, w = {70, 24, 3, 3};
  auto y = b.conv("conv_fprop", b.input(x, D::FLOAT, channels_last_strides(x)), b.input(w), {1, 1}, {1, 1}, {1, 1});
  b.output(y, D::FLOAT, channels_last_strides(b.dim(y)));
  b.output(b.reduce(R::ADD, y, {1, 70, 1, 1}));
  auto plan = load_plan(cpu_fused_engine(), b.graph, "fuse=all");
  ASSERT_TRUE(plan);
  std::vector<std::vector<uint8_t>> results;
  for (int threads : {1, 2, 3, 7}) {
    set_thread_count(threads);
    Harness harness(b.graph);
    ASSERT_TRUE(harness.check_run(*plan).is_good());
    std::vector<uint8_t> bytes;
    for (size_t t = 0; t < b.graph.tensors.size(); ++t)
      if (b.graph.tensors[t].role == ir::Role::Output) {
        const auto* p = static_cast<const uint8_t*>(harness.memory(ir::TensorId(t)));
        bytes.insert(bytes.end(), p, p + b.graph.tensors[t].storage_bytes());
      }
    results.push_back(bytes);
  }
  set_thread_count(0);
  for (const auto& r : results) EXPECT_EQ(r, results[0]);
}

// Weights marked constant are packed by the first execute, and used by those that bind the same memory; other memory is
// read as ever.
TEST(CpuContraction, ConstantWeightsAreKept) {
  IrBuilder b;
  auto x = b.input({9, 50}), w = b.input({50, 40}), y = b.op("matmul", {x, w});
  b.output(y);
  b.graph.tensors[size_t(w)].constant = true;
  check(b);
  auto plan = load_plan(cpu_fused_engine(), b.graph, "fuse=all");
  ASSERT_TRUE(plan);
  Harness harness(b.graph);
  ASSERT_TRUE(harness.check_run(*plan).is_good());

  std::vector<float> other(50 * 40, 2), workspace(size_t(plan->workspace_bytes()) / 4 + 16);
  Bindings moved = harness.bindings();
  moved[size_t(w)] = other.data();
  ASSERT_TRUE(plan->run(moved, workspace.data(), {}).is_good());
  const float* in = static_cast<const float*>(harness.memory(x));
  const float* out = static_cast<const float*>(harness.memory(y));
  double sum = 0;
  for (int k = 0; k < 50; ++k) sum += 2 * double(in[k]);
  EXPECT_NEAR(out[0], sum, 1e-4);

  ASSERT_TRUE(plan->run(harness.bindings(), workspace.data(), {}).is_good());
  const float before = out[0];
  static_cast<float*>(harness.memory(w))[0] += 1000;  // a broken promise, to see that the plan relies on it
  ASSERT_TRUE(plan->run(harness.bindings(), workspace.data(), {}).is_good());
  EXPECT_EQ(out[0], before);
}

}  // namespace
}  // namespace tilewright::testing
