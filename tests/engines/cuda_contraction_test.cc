// Contraction regions on GPUs: how they are computed, that their kernels compile without spills, and on a GPU that they
// are right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "device/cuda/compiler.h"
#include "device/cuda/nvrtc.h"
#include "engines/cuda/engine.h"
#include "engines/cuda/kernel_headers.h"
#include "engines/cuda/region.h"
#include "plan/harness.h"
#include "support/conv_cases.h"
#include "support/ir_builder.h"
#include "support/random.h"

namespace tilewright::testing {
namespace {

using testing::ConvCase;
using testing::convolved;
using ::testing::HasSubstr;
using testing::kConvCases;
using testing::layout;
using ::testing::Not;
using P = PointwiseMode_t;
using R = ReductionMode_t;
using D = DataType_t;

std::vector<cuda::Launch> launches(const ir::Graph& graph, cuda::KernelOptions options = {132, 90}) {
  auto fused = fuse::fuse(graph);
  std::vector<cuda::Launch> all;
  for (fuse::Region& r : fused.regions) r.scratch_bytes = cuda::region_scratch_bytes(fused, r, options);
  place_intermediates(fused);
  for (const fuse::Region& r : fused.regions) {
    auto list = cuda::region_launches(fused, r, options);
    EXPECT_TRUE(list) << list.status();
    if (list) all.insert(all.end(), list->begin(), list->end());
  }
  return all;
}

IrBuilder matmul(const Dims& mnk, D type = D::HALF, D out = D::HALF, bool b_columns = false) {
  IrBuilder b;
  if (type == D::DOUBLE) b.compute = b.intermediate = type;
  b.output(b.op("matmul", {b.input({mnk[0], mnk[2]}, type),
                           b.input({mnk[2], mnk[1]}, type, b_columns ? Dims{1, mnk[2]} : Dims{mnk[1], 1})}),
           out);
  return b;
}

// op: conv_fprop, conv_dgrad or conv_wgrad.
IrBuilder convolution(const std::string& op, const ConvCase& c, D type, bool last, D out = D::FLOAT) {
  const Dims y = convolved(c);
  const bool fprop = op == "conv_fprop", dgrad = op == "conv_dgrad";
  const Dims &a = fprop ? c.x : y, &b = fprop || dgrad ? c.w : c.x, &result = fprop ? y : dgrad ? c.x : c.w;
  IrBuilder builder;
  if (type == D::DOUBLE) builder.compute = builder.intermediate = type;
  builder.output(builder.conv(op.c_str(), builder.input(a, type, layout(a, last)),
                              builder.input(b, type, layout(b, last)), c.pad, c.stride, c.dilation, result),
                 out, layout(result, last));
  return builder;
}

// What surrounds a convolution in a network: operands normalised as they are read, a bias, statistics of the result.
IrBuilder normalised_convolution(bool last) {
  IrBuilder b;
  b.intermediate = D::HALF;
  const Dims x = {2, 16, 12, 10}, w = {24, 16, 3, 3};
  auto in = b.input(x, D::HALF, layout(x, last));
  auto normed = b.pw(P::ADD, {b.pw(P::MUL, {in, b.input({1, 16, 1, 1})}), b.input({1, 16, 1, 1})});
  auto y =
      b.conv("conv_fprop", b.pw(P::RELU_FWD, {normed}), b.input(w, D::HALF, layout(w, last)), {1, 1}, {1, 1}, {1, 1});
  b.output(y, D::HALF, layout(b.dim(y), last));
  auto stats = b.node("genstats", {y});
  b.output(stats[0]);
  b.output(stats[1]);
  return b;
}

IrBuilder scaled_matmul() {
  IrBuilder b;
  auto product = b.op("matmul", {b.input({2, 100, 72}, D::HALF), b.input({2, 72, 88}, D::HALF)});
  auto scaled = b.pw(P::MUL, {product, b.scalar(std::nullopt, 3)});
  auto y = b.pw(P::GELU_FWD, {b.pw(P::ADD, {scaled, b.input({1, 1, 88})})});
  b.output(y, D::HALF);
  b.output(b.reduce(R::AMAX, y, {1, 1, 1}));
  return b;
}

TEST(CudaContraction, TensorCoresServeWhatTheyHoldExactly) {
  EXPECT_THAT(launches(matmul({256, 256, 256}).graph)[0].text, HasSubstr("TensorCores<A, B, float"));
  EXPECT_THAT(launches(matmul({256, 256, 256}, D::BFLOAT16).graph)[0].text, HasSubstr("typedef bf16 Element"));
  EXPECT_THAT(launches(matmul({256, 256, 256}, D::FP8_E4M3).graph)[0].text, HasSubstr("typedef f16 Element"));
  EXPECT_THAT(launches(matmul({256, 256, 256}, D::INT8).graph)[0].text, HasSubstr("TensorCores<A, B, int"));
  EXPECT_THAT(launches(matmul({256, 256, 256}, D::FLOAT).graph)[0].text, HasSubstr("Cores<A, B, float"));
  EXPECT_THAT(launches(matmul({256, 256, 256}, D::FLOAT).graph)[0].text, Not(HasSubstr("TensorCores")));
  EXPECT_THAT(launches(matmul({256, 256, 256}, D::DOUBLE).graph)[0].text, HasSubstr("Cores<A, B, double"));
  EXPECT_THAT(launches(matmul({256, 256, 256}).graph, {132, 90, false})[0].text, Not(HasSubstr("TensorCores")));
  EXPECT_THAT(launches(matmul({256, 256, 256}, D::BFLOAT16).graph, {40, 75})[0].text, Not(HasSubstr("TensorCores")));
  // What a prologue makes is FLOAT unless the graph says otherwise.
  IrBuilder b;
  b.output(b.op("matmul", {b.pw(P::ABS, {b.input({64, 64}, D::HALF)}), b.input({64, 64}, D::HALF)}));
  EXPECT_THAT(launches(b.graph)[0].text, Not(HasSubstr("TensorCores")));
}

TEST(CudaContraction, KernelsAreOfAClassOfShapes) {
  EXPECT_EQ(launches(matmul({256, 512, 256}).graph)[0].text, launches(matmul({300, 320, 640}).graph)[0].text);
  EXPECT_THAT(launches(matmul({256, 512, 256}).graph)[0].text, HasSubstr("kWidth = 8")) << "16 bytes at once";
  EXPECT_THAT(launches(matmul({256, 512, 257}).graph)[0].text, HasSubstr("kWidth = 1"));
  ConvCase a = kConvCases[7], b = a;
  b.x = {4, 80, 33, 35}, b.w = {64, 80, 5, 5}, b.pad = {2, 2};
  EXPECT_EQ(launches(convolution("conv_fprop", a, D::HALF, true).graph)[0].text,
            launches(convolution("conv_fprop", b, D::HALF, true).graph)[0].text);
}

TEST(CudaContraction, FewTilesOfManySumsAreCutIntoSlices) {
  const auto list = launches(matmul({64, 64, 100000}).graph);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_GT(list[0].grid, 100);
  EXPECT_THAT(list[1].text, HasSubstr("join_parts"));
  EXPECT_EQ(launches(matmul({4096, 4096, 4096}).graph).size(), 1u);
}

TEST(CudaContraction, StridedGradientsAreDenseParts) {
  EXPECT_EQ(launches(convolution("conv_dgrad", kConvCases[2], D::FLOAT, true).graph).size(), 6u);
  const auto many = launches(convolution("conv_dgrad", kConvCases[8], D::FLOAT, true).graph);
  EXPECT_LE(many.size(), 2u) << "the sums of one problem, and their slices";
  EXPECT_THAT(many[0].text, HasSubstr("_divisor"));
}

TEST(CudaContraction, IndicesBeyond31BitsAreWide) {
  EXPECT_THAT(launches(matmul({100000, 512, 512}).graph)[0].text, HasSubstr("typedef int Index"));
  EXPECT_THAT(launches(matmul({100000, 512, 20000}).graph)[0].text, HasSubstr("typedef i64 Index"));
}

TEST(CudaContraction, NothingIsPlannedToo) {
  for (const Dims& mnk : {Dims{0, 5, 7}, Dims{5, 0, 7}, Dims{5, 7, 0}, Dims{300, 300, 0}})
    for (const cuda::Launch& l : launches(matmul(mnk).graph)) EXPECT_GE(l.grid, 1) << to_text(mnk);
}

// Compiles in two threads: each text for each architecture.
void expect_no_spills(const std::vector<ir::Graph>& graphs, const std::vector<int>& archs) {
  struct Task {
    std::string text, arch, problem;
  };
  std::vector<Task> tasks;
  for (const ir::Graph& g : graphs)
    for (int arch : archs)
      for (const cuda::Launch& l : launches(g, {132, arch}))
        if (std::none_of(tasks.begin(), tasks.end(),
                         [&](const Task& t) { return t.text == l.text && t.arch == cuda::native_arch(arch); }))
          tasks.push_back({l.text, cuda::native_arch(arch), ""});
  const auto work = [&](size_t first) {
    for (size_t k = first; k < tasks.size(); k += 2) {
      const auto kernel =
          cuda::compile({tasks[k].text, cuda::kernel_headers(), cuda::kernel_header_count()}, tasks[k].arch);
      if (!kernel) tasks[k].problem = kernel.status().err_msg;
      else if ((*kernel)->spill_bytes > 0) tasks[k].problem = (*kernel)->log;
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  for (const Task& t : tasks) EXPECT_EQ(t.problem, "") << t.arch << "\n" << t.text;
}

TEST(CudaContraction, KernelsCompileForEveryArchitectureWithoutSpills) {
  if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
  expect_no_spills({matmul({4096, 4096, 512}).graph, convolution("conv_fprop", kConvCases[7], D::HALF, true).graph},
                   {75, 80, 86, 89, 90, 100, 120});
  std::vector<ir::Graph> more = {matmul({4096, 4096, 512}, D::FLOAT).graph,
                                 matmul({4096, 4096, 512}, D::INT8, D::INT8, true).graph,
                                 matmul({4096, 4095, 511}, D::FP8_E4M3).graph,
                                 matmul({64, 64, 70000}, D::BFLOAT16).graph,
                                 matmul({1, 4096, 512}).graph,
                                 scaled_matmul().graph,
                                 normalised_convolution(false).graph,
                                 convolution("conv_wgrad", kConvCases[2], D::DOUBLE, true).graph,
                                 matmul({100000, 512, 20000}).graph};
  expect_no_spills(more, {80});
}

TEST(CudaContraction, TensorCoreKernelsHaveTheirInstruction) {
  if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
  for (const auto& [graph, arch, instruction] :
       {std::tuple{matmul({256, 256, 256}).graph, 75, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"},
        std::tuple{matmul({256, 256, 256}, D::BFLOAT16).graph, 80, "mma.sync.aligned.m16n8k16.row.col.f32.bf16"},
        std::tuple{matmul({256, 256, 256}, D::INT8, D::INT8).graph, 80,
                   "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8"}}) {
    const auto list = launches(graph, {132, arch});
    const auto kernel = cuda::compile({list[0].text, cuda::kernel_headers(), cuda::kernel_header_count()},
                                      "compute_" + std::to_string(arch));
    ASSERT_TRUE(kernel) << kernel.status();
    EXPECT_THAT(std::string((*kernel)->image.begin(), (*kernel)->image.end()), HasSubstr(instruction));
  }
}

// --- on a GPU --------------------------------------------------------------------------------------------------------

class CudaContractionGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::driver_lookup().problem;
    if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
    device_ = std::make_unique<cuda::ScopedDevice>(0);
  }
  static void check(const IrBuilder& b, HarnessOptions options = {}) {
    Harness harness(b.graph, options);
    check(b, harness);
  }
  static void check(const IrBuilder& b, Harness& harness) {
    const Target target = *Target::of_gpu(0);
    const Verdict v = cuda_engine().propose(b.graph, target);
    ASSERT_TRUE(v.proposal) << v.reasons[0].text << "\n" << describe(b.graph);
    for (const Candidate& c : v.proposal->candidates()) {
      const auto artifact = v.proposal->compile(c.config, nullptr);
      ASSERT_TRUE(artifact) << artifact.status();
      const auto plan = cuda_engine().load(b.graph, *artifact, target, nullptr);
      ASSERT_TRUE(plan) << plan.status();
      const Status s = harness.check_run(**plan, {0, nullptr, nullptr});
      EXPECT_TRUE(s.is_good()) << c.config << ": " << s << "\n" << describe(b.graph) << v.proposal->explain();
    }
  }

  // Graphs whose kernels are compiled by all processors before the first runs.
  void add(IrBuilder b, HarnessOptions options = {}) { cases_.emplace_back(std::move(b), options); }
  void check_all() {
    const Target target = *Target::of_gpu(0);
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
      threads.emplace_back([&] {
        for (size_t k = next++; k < cases_.size(); k = next++) {
          const Verdict v = cuda_engine().propose(cases_[k].first.graph, target);
          if (!v.proposal) continue;
          for (const Candidate& c : v.proposal->candidates()) (void)v.proposal->compile(c.config, nullptr);
        }
      });
    for (std::thread& t : threads) t.join();
    for (const auto& [b, options] : cases_) {
      SCOPED_TRACE("seed " + std::to_string(options.seed));
      check(b, options);
    }
  }
  std::vector<std::pair<IrBuilder, HarnessOptions>> cases_;
  std::unique_ptr<cuda::ScopedDevice> device_;
};

class CudaContractionGpuOf : public CudaContractionGpu, public ::testing::WithParamInterface<D> {};
INSTANTIATE_TEST_SUITE_P(Types, CudaContractionGpuOf,
                         ::testing::Values(D::HALF, D::BFLOAT16, D::FLOAT, D::DOUBLE, D::FP8_E4M3, D::FP8_E5M2, D::INT8,
                                           D::UINT8),
                         [](const auto& info) { return to_string(info.param); });

TEST_P(CudaContractionGpuOf, MatmulsOfEverySize) {
  const D type = GetParam(), out = type == D::DOUBLE ? D::DOUBLE : D::FLOAT;
  for (const Dims& mnk :
       {Dims{1, 1, 1}, Dims{7, 5, 3}, Dims{33, 70, 65}, Dims{1, 300, 40}, Dims{300, 1, 40}, Dims{130, 264, 304},
        Dims{2, 2, 1000}, Dims{64, 64, 8192}, Dims{16, 512, 512}, Dims{512, 16, 512}, Dims{1100, 1304, 72}})
    for (bool columns : {false, true}) {
      add(matmul(mnk, type, out, columns), {.fill = Fill::Integers});
      add(matmul(mnk, type, out, columns));
    }
  check_all();
}

TEST_P(CudaContractionGpuOf, ConvolutionsOfEveryKind) {
  const D type = GetParam(), out = type == D::DOUBLE ? D::DOUBLE : D::FLOAT;
  for (const ConvCase& c : kConvCases)
    for (const char* op : {"conv_fprop", "conv_dgrad", "conv_wgrad"})
      for (bool last : {true, false}) add(convolution(op, c, type, last, out), {.fill = Fill::Integers});
  check_all();
}

TEST_F(CudaContractionGpu, MatmulsOfEveryLayout) {
  const Dims row_major = {2000, 50, 1}, column_major = {2000, 1, 50}, gaps = {9000, 150, 3};
  for (const Dims& a : {row_major, column_major, gaps})
    for (const Dims& bs : {row_major, column_major, gaps})
      for (const Dims& c : {row_major, column_major, gaps})
        for (D type : {D::FLOAT, D::HALF}) {
          IrBuilder b;
          auto product = b.op("matmul", {b.input({3, 31, 40}, type, a), b.input({3, 40, 29}, D::HALF, bs)});
          b.output(product, D::FLOAT, c);
          add(std::move(b));
        }
  check_all();
}

TEST_F(CudaContractionGpu, BroadcastBatchesAndSizesPerBatch) {
  IrBuilder broadcast;
  broadcast.output(
      broadcast.op("matmul", {broadcast.input({2, 1, 9, 20}, D::HALF), broadcast.input({1, 3, 20, 11}, D::HALF)}));
  check(broadcast);
  for (double padding : {0.0, 0.1}) {
    IrBuilder b;
    auto a = b.input({3, 20, 30}, D::HALF), c = b.input({3, 30, 25}, D::HALF);
    auto m = b.input({3, 1, 1}, D::INT32), n = b.input({3, 1, 1}, D::INT32), k = b.input({3, 1, 1}, D::INT32);
    b.output(b.op("matmul", {a, c, m, n, k}, {{"padding_value", padding}}));
    Harness harness(b.graph);
    const int32_t sizes[3][3] = {{20, 7, 0}, {25, 1, 13}, {30, 12, 5}};
    for (int i = 0; i < 3; ++i) memcpy(harness.memory(std::array{m, n, k}[size_t(i)]), sizes[i], sizeof sizes[i]);
    harness.inputs_changed();
    check(b, harness);
  }
}

TEST_F(CudaContractionGpu, IntegerSumsAreExact) {
  for (const Dims& mnk : {Dims{40, 33, 500}, Dims{160, 96, 640}, Dims{5, 5, 70000}}) {
    IrBuilder b;
    b.compute = D::INT32;
    b.output(b.op("matmul", {b.input({mnk[0], mnk[2]}, D::INT8), b.input({mnk[2], mnk[1]}, D::UINT8)}), D::INT32);
    check(b);
  }
}

TEST_F(CudaContractionGpu, FlippedFiltersAndUnevenPadding) {
  for (const char* op : {"conv_fprop", "conv_dgrad", "conv_wgrad"}) {
    const Dims x = {2, 3, 9, 8}, w = {4, 3, 3, 2}, y = {2, 4, 5, 4};
    const bool fprop = std::string(op) == "conv_fprop", dgrad = std::string(op) == "conv_dgrad";
    IrBuilder b;
    b.output(b.op(op, {b.input(fprop ? x : y, D::HALF), b.input(fprop || dgrad ? w : x, D::HALF)},
                  {{"pre_padding", Dims{2, 0}},
                   {"post_padding", Dims{0, 1}},
                   {"stride", Dims{2, 2}},
                   {"dilation", Dims{1, 1}},
                   {"math_mode", to_string(ConvolutionMode_t::CONVOLUTION)}},
                  fprop   ? y
                  : dgrad ? x
                          : w));
    check(b, {.fill = Fill::Integers});
  }
}

TEST_F(CudaContractionGpu, ProloguesAndEpilogues) {
  check(scaled_matmul());
  check(normalised_convolution(true));
  check(normalised_convolution(false));
  for (bool last : {true, false}) {
    IrBuilder b;
    const Dims x = {2, 8, 9, 9};
    auto in = b.input(x, D::HALF, layout(x, last));
    auto y = b.conv("conv_fprop", in, b.input({8, 8, 3, 3}, D::HALF), {1, 1}, {1, 1}, {1, 1});
    auto biased = b.pw(P::RELU_FWD, {b.pw(P::ADD, {b.pw(P::ADD, {y, b.input({1, 8, 1, 1})}), in})});
    auto z = b.conv("conv_fprop", biased, b.input({5, 8, 1, 1}), {0, 0}, {1, 1}, {1, 1});
    b.output(z, D::FLOAT, layout(b.dim(z), last));
    b.output(biased, D::FLOAT, layout(x, last));
    check(b);
  }
}

TEST_F(CudaContractionGpu, SideReductionsOfEveryShape) {
  for (const int64_t sums : {20, 6000})
    for (const Dims& dim : {Dims{1, 1, 1}, Dims{3, 1, 1}, Dims{3, 130, 1}, Dims{3, 1, 272}, Dims{1, 130, 1},
                            Dims{1, 1, 272}, Dims{1, 130, 272}})
      for (R mode : {R::ADD, R::MAX, R::MIN, R::AMAX, R::AVG, R::NORM1, R::NORM2}) {
        IrBuilder b;
        auto product = b.op("matmul", {b.input({3, 130, sums}, D::BFLOAT16), b.input({3, sums, 272}, D::BFLOAT16)});
        b.output(b.reduce(mode, product, dim));
        if (mode == R::MIN) b.output(product, D::HALF, {130 * 272, 1, 130});
        add(std::move(b), {.fill = mode == R::NORM2 ? Fill::Random : Fill::Integers});
      }
  check_all();
}

TEST_F(CudaContractionGpu, ElementsBelowAByteAndProducts) {
  for (D type : {D::INT4, D::FP4_E2M1, D::BOOLEAN, D::FP8_E8M0})
    for (D out : {D::FLOAT, D::INT4})
      for (const int64_t n : {6, 90}) {
        IrBuilder b;
        auto x = b.input({2, 70, 40}, type), y = b.input({2, 40, n}, D::HALF);
        b.graph.tensors[size_t(x)].bit_packed = type == D::BOOLEAN;
        auto product = b.op("matmul", {x, y});
        b.output(product, out);
        auto capped =
            b.pw(P::ADD, {b.pw(P::MUL, {b.pw(P::TANH_FWD, {product}), b.scalar(0.125f, 3)}), b.scalar(1.f, 3)});
        b.output(b.reduce(R::MUL, capped, {2, 70, 1}));
        add(std::move(b));
      }
  check_all();
}

TEST_F(CudaContractionGpu, InfinitiesAndNaN) {
  for (D type : {D::HALF, D::FLOAT}) {
    IrBuilder b;
    auto x = b.input({70, 90}, type), y = b.input({90, 80}, type);
    auto product = b.op("matmul", {x, y});
    b.output(b.pw(P::RELU_FWD, {product}));
    b.output(b.reduce(R::MAX, product, {70, 1}));
    Harness harness(b.graph);
    const auto put = [&](ir::TensorId t, int64_t at, double v) { store_element(harness.memory(t), type, at, v); };
    put(x, 5 * 90 + 3, INFINITY), put(x, 9 * 90 + 89, NAN), put(y, 7 * 80 + 79, -INFINITY), put(y, 0, NAN);
    harness.inputs_changed();
    check(b, harness);
  }
}

// A graph around a product, with everything that may vary.
IrBuilder random_graph(Random& r) {
  IrBuilder b;
  const D type = r.of({D::HALF, D::HALF, D::BFLOAT16, D::BFLOAT16, D::FLOAT, D::INT8, D::FP8_E4M3});
  b.intermediate = r.one_in(3) && type != D::INT8 && type != D::FP8_E4M3 && type != D::HALF ? type : D::FLOAT;
  const auto size = [&] {
    return r.one_in(2) ? r.between(1, 40) : r.one_in(2) ? 8 * r.between(1, 30) : r.between(60, 300);
  };
  const int64_t batch = r.one_in(2) ? 1 : r.between(2, 4), m = size(), n = size(),
                k = r.one_in(6) ? r.between(1000, 9000) : size();
  const Dims da = {r.one_in(4) ? 1 : batch, m, k}, db = {r.one_in(4) ? 1 : batch, k, n};
  auto a = b.input(da, type, r.input_strides(da)), c = b.input(db, type, r.input_strides(db));
  if (r.one_in(3)) a = b.pw(P::MUL, {a, b.input({1, 1, k})});
  if (r.one_in(4)) c = b.pw(P::RELU_FWD, {b.pw(P::SUB, {c, b.input({1, k, n}, D::HALF)})});
  auto y = b.op("matmul", {a, c});
  const Dims dim = b.dim(y);
  if (r.one_in(2)) y = b.pw(P::ADD, {y, b.input({1, 1, n}, r.of({D::FLOAT, D::HALF}))});
  if (r.one_in(2)) y = b.pw(r.of({P::TANH_FWD, P::RELU_FWD, P::ABS}), {y});
  if (r.one_in(3)) y = b.pw(P::MAX, {y, b.input(dim, D::BFLOAT16, r.input_strides(dim))});
  b.output(y, r.of({D::FLOAT, D::FLOAT, D::HALF, D::BFLOAT16, D::DOUBLE}), r.strides(dim));
  if (r.one_in(3)) {
    Dims to = dim;
    for (int64_t& d : to)
      if (r.one_in(2)) d = 1;
    if (to != dim) b.output(b.reduce(r.of({R::ADD, R::AMAX, R::MAX, R::AVG}), y, to));
  }
  return b;
}

// A failure names its seed: TILEWRIGHT_TEST_SEED runs it alone.
TEST_F(CudaContractionGpu, RandomGraphs) {
  for (uint64_t seed : seeds(1, 100)) {
    Random random(seed);
    IrBuilder b = random_graph(random);
    const Fill fill = random.one_in(2) ? Fill::Integers : Fill::Random;
    add(std::move(b), {.seed = seed, .fill = fill, .tight_alignment = random.one_in(4)});
  }
  check_all();
}

}  // namespace
}  // namespace tilewright::testing
