// Engine "cuda" without a GPU: what it takes, that its kernels compile for every architecture and keep to registers.
#include "engines/cuda/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/compiler.h"
#include "device/cuda/nvrtc.h"
#include "engines/cuda/kernel_headers.h"
#include "engines/cuda/rows.h"
#include "plan/device_copy.h"
#include "plan/harness.h"
#include "support/pointwise_graph.h"

namespace tilewright::testing {
namespace {

using ::testing::HasSubstr;

// layernorm of 16-bit rows with FLOAT scale and bias, written in pointwise and reduction nodes by its decomposition.
ir::Graph layernorm(int64_t rows, int64_t columns) {
  IrBuilder b;
  const auto x = b.input({rows, columns}, DataType_t::BFLOAT16);
  const auto mean = b.reduce(ReductionMode_t::AVG, x, {rows, 1});
  const auto centred = b.pw(PointwiseMode_t::SUB, {x, mean});
  const auto square = b.pw(PointwiseMode_t::MUL, {centred, centred});
  const auto variance = b.reduce(ReductionMode_t::AVG, square, {rows, 1});
  const auto inverse = b.pw(PointwiseMode_t::RSQRT, {b.pw(PointwiseMode_t::ADD, {variance, b.scalar(1e-5f, 2)})});
  const auto normal = b.pw(PointwiseMode_t::MUL, {centred, inverse});
  const auto scaled = b.pw(PointwiseMode_t::MUL, {normal, b.input({1, columns})});
  const auto y = b.pw(PointwiseMode_t::ADD, {scaled, b.input({1, columns})});
  b.output(y, DataType_t::BFLOAT16, {columns, 1});
  b.output(mean, DataType_t::FLOAT, {1, 1});
  return b.graph;
}

ir::Graph add_gelu(int64_t n) {
  IrBuilder b;
  const auto sum =
      b.pw(PointwiseMode_t::ADD, {b.input({n, n}, DataType_t::BFLOAT16), b.input({n, n}, DataType_t::BFLOAT16)});
  b.output(b.pw(PointwiseMode_t::GELU_FWD, {sum}), DataType_t::BFLOAT16, {n, 1});
  return b.graph;
}

// What folds all of a tensor, or its outer dims, is shared out to all blocks.
ir::Graph amax(const Dims& dim, const Dims& to, DataType_t type = DataType_t::BFLOAT16) {
  IrBuilder b;
  const auto x = b.input(dim, type);
  b.output(b.reduce(ReductionMode_t::AMAX, x, to), DataType_t::FLOAT, row_major_strides(to));
  b.output(b.reduce(ReductionMode_t::ADD, b.pw(PointwiseMode_t::MUL, {x, x}), to), DataType_t::FLOAT,
           row_major_strides(to));
  return b.graph;
}

// A batchnorm's statistics and normalisation, channels fastest.
ir::Graph batch_statistics(int64_t pixels, int64_t channels) {
  IrBuilder b;
  const auto x = b.input({pixels, channels}, DataType_t::BFLOAT16);
  const auto mean = b.reduce(ReductionMode_t::AVG, x, {1, channels});
  const auto centred = b.pw(PointwiseMode_t::SUB, {x, mean});
  const auto variance = b.reduce(ReductionMode_t::AVG, b.pw(PointwiseMode_t::MUL, {centred, centred}), {1, channels});
  const auto inverse = b.pw(PointwiseMode_t::RSQRT, {b.pw(PointwiseMode_t::ADD, {variance, b.scalar(1e-5f, 2)})});
  b.output(b.pw(PointwiseMode_t::MUL, {centred, inverse}), DataType_t::BFLOAT16, {channels, 1});
  b.output(variance, DataType_t::FLOAT, {channels, 1});
  return b.graph;
}

std::vector<cuda::Launch> launches(const ir::Graph& graph) {
  auto fused = fuse::fuse(graph);
  std::vector<cuda::Launch> all;
  for (fuse::Region& r : fused.regions) r.scratch_bytes = cuda::rows_scratch_bytes(r, {132});
  place_intermediates(fused);
  for (const fuse::Region& r : fused.regions) {
    auto list = cuda::rows_launches(fused, r, {132}, r.scratch_offset);
    EXPECT_TRUE(list) << list.status();
    if (list) all.insert(all.end(), list->begin(), list->end());
  }
  return all;
}

Result<std::shared_ptr<const cuda::CompiledKernel>> compile(const cuda::Launch& l, const std::string& arch) {
  return cuda::compile({l.text, cuda::kernel_headers(), cuda::kernel_header_count()}, arch);
}

TEST(CudaEngine, ServesGpusOnly) {
  EXPECT_THAT(cuda_engine().unavailable(Target::this_machine())[0].text, HasSubstr("cpu:"));
  if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
  EXPECT_TRUE(cuda_engine().unavailable(*Target::parse("h200")).empty());
}

TEST(CudaKernels, ReadAsWhatTheyCompute) {
  const std::vector<cuda::Launch> list = launches(layernorm(8, 4096));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_THAT(list[0].text, HasSubstr("#include \"tilewright/prelude.cuh\""));
  EXPECT_THAT(list[0].text, HasSubstr("lanes_reduce<Average, 32>"));
  EXPECT_THAT(list[0].text, HasSubstr("vec<bf16, 8>")) << "16 bytes at once";
  EXPECT_EQ(list[0].grid, 8) << "a block for each row";
}

TEST(CudaKernels, AreOfAClassOfShapes) {
  EXPECT_EQ(launches(layernorm(8, 4096))[0].text, launches(layernorm(200, 3072))[0].text);
  EXPECT_EQ(launches(add_gelu(64))[0].text, launches(add_gelu(512))[0].text);
  EXPECT_NE(launches(add_gelu(64))[0].text, launches(add_gelu(63))[0].text) << "rows that are not aligned";
}

TEST(CudaKernels, CompileForEveryArchitectureWithoutSpills) {
  if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
  for (int arch : {75, 80, 86, 89, 90, 100, 120})
    for (const ir::Graph& graph : {layernorm(32, 4096), layernorm(32, 100), layernorm(4, 100000), add_gelu(64),
                                   batch_statistics(100000, 64), amax({1024, 1024}, {1, 1})})
      for (const cuda::Launch& l : launches(graph)) {
        const auto kernel = compile(l, cuda::native_arch(arch));
        ASSERT_TRUE(kernel) << arch << ": " << kernel.status() << "\n" << l.text;
        EXPECT_EQ((*kernel)->spill_bytes, 0) << arch << "\n" << l.text;
        EXPECT_GT((*kernel)->registers, 0) << (*kernel)->log;
        EXPECT_GT((*kernel)->image.size(), 1000u);
      }
}

TEST(CudaKernels, RandomGraphsCompile) {
  if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
  int compiled = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Random random(seed);
    const ir::Graph graph = PointwiseGraphMaker(random).make();
    const auto fused = fuse::fuse(graph);
    for (const fuse::Region& r : fused.regions) {
      if (r.anchor != fuse::Anchor::Rows) continue;
      const auto list = cuda::rows_launches(fused, r, {132}, 0);
      if (!list) continue;
      for (const cuda::Launch& l : *list) {
        const auto kernel = compile(l, "compute_75");
        ASSERT_TRUE(kernel) << "seed " << seed << ": " << kernel.status() << "\n" << l.text;
        ++compiled;
      }
    }
  }
  EXPECT_GT(compiled, 10);
}

// --- on a GPU
// ----------------------------------------------------------------------------------------------------------

TEST(CudaKernels, ReductionsOfFewRowsAreSharedOutToAllBlocks) {
  const auto whole = launches(amax({1024, 1024}, {1, 1}));
  EXPECT_GT(whole[0].grid, 50);
  EXPECT_THAT(whole[0].text, HasSubstr("block_reduce<AbsoluteMax>"));
  const auto norm = launches(batch_statistics(100000, 64));
  ASSERT_EQ(norm.size(), 3u) << "average and variance in one walk, what joins their parts, and the normalisation";
  EXPECT_GT(norm[0].grid, 100);
  EXPECT_THAT(norm[0].text, HasSubstr("F w0[8]")) << "each thread keeps its columns";
  EXPECT_THAT(norm[2].text, HasSubstr("F h")) << "and what is computed of them alone";
}

void check_on_gpu(const ir::Graph& graph, HarnessOptions options = {}) {
  const Target target = *Target::of_gpu(0);
  const Verdict v = cuda_engine().propose(graph, target);
  if (!v.proposal) return;
  Harness harness(graph, options);
  for (const Candidate& c : v.proposal->candidates()) {
    const auto artifact = v.proposal->compile(c.config, nullptr);
    ASSERT_TRUE(artifact) << artifact.status();
    const auto plan = cuda_engine().load(graph, *artifact, target, nullptr);
    ASSERT_TRUE(plan) << plan.status();
    const Status s = harness.check_run(**plan, {0, nullptr, nullptr});
    EXPECT_TRUE(s.is_good()) << s << "\n" << describe(graph) << v.proposal->explain();
  }
}

class CudaGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::driver_lookup().problem;
    if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
    device_ = std::make_unique<cuda::ScopedDevice>(0);
  }
  std::unique_ptr<cuda::ScopedDevice> device_;
};

TEST_F(CudaGpu, NormsAndMaps) {
  for (int64_t columns : {1, 7, 8, 100, 256, 1000, 4096, 4104, 20000, 70000}) check_on_gpu(layernorm(33, columns));
  for (int64_t n : {1, 3, 64, 65, 257}) check_on_gpu(add_gelu(n));
}

TEST_F(CudaGpu, ReductionsOverEverythingAndOverOuterDims) {
  for (const Dims& dim : {Dims{1024, 1024}, Dims{513, 1027}, Dims{3, 400000}, Dims{300000, 7}})
    for (const Dims& to : {Dims{1, 1}, Dims{1, dim[1]}, Dims{dim[0], 1}})
      for (DataType_t type : {DataType_t::BFLOAT16, DataType_t::FLOAT, DataType_t::DOUBLE})
        check_on_gpu(amax(dim, to, type));
  for (int64_t channels : {1, 3, 8, 64, 72, 256, 1000}) check_on_gpu(batch_statistics(300000 / channels, channels));
}

TEST_F(CudaGpu, ACudaGraphIsMadeAndGivenOtherMemory) {
  const Target target = *Target::of_gpu(0);
  const ir::Graph graph = layernorm(33, 256);
  const Verdict v = cuda_engine().propose(graph, target);
  ASSERT_TRUE(v.proposal);
  const auto artifact = v.proposal->compile(v.proposal->candidates()[0].config, nullptr);
  ASSERT_TRUE(artifact) << artifact.status();
  const auto plan = cuda_engine().load(graph, *artifact, target, nullptr);
  ASSERT_TRUE(plan) << plan.status();
  const cuda::Driver& d = cuda::driver();
  cuda::CUstream stream = nullptr;
  cuda::CUgraph made = nullptr;
  ASSERT_EQ(d.stream_create(&stream, cuda::kStreamNonBlocking), cuda::kSuccess);
  ASSERT_EQ(d.graph_create(&made, 0), cuda::kSuccess);
  const Queue queue{0, stream, nullptr};
  for (uint64_t round = 0; round < 3; ++round) {
    Harness harness(graph, {.seed = round});
    harness.workspace((*plan)->workspace_bytes());
    auto copy = DeviceCopy::make(graph, harness, 0);
    ASSERT_TRUE(copy && copy->upload().is_good());
    const Status s = round == 0 ? (*plan)->populate_cuda_graph(made, copy->bindings(), copy->workspace(), queue)
                                : (*plan)->update_cuda_graph(made, copy->bindings(), copy->workspace(), queue);
    ASSERT_TRUE(s.is_good()) << s;
    cuda::CUgraphExec exec = nullptr;
    ASSERT_EQ(d.graph_instantiate(&exec, made, 0), cuda::kSuccess);
    ASSERT_EQ(d.graph_launch(exec, stream), cuda::kSuccess);
    ASSERT_EQ(d.stream_synchronize(stream), cuda::kSuccess);
    ASSERT_TRUE(copy->download().is_good());
    EXPECT_TRUE(harness.check().is_good()) << harness.check();
    EXPECT_EQ(d.graph_exec_destroy(exec), cuda::kSuccess);
  }
  EXPECT_EQ(d.graph_destroy(made), cuda::kSuccess);
  EXPECT_EQ(d.stream_destroy(stream), cuda::kSuccess);
}

TEST_F(CudaGpu, RandomGraphs) {
  for (uint64_t seed : seeds(1, 150)) {
    Random random(seed);
    const ir::Graph graph = PointwiseGraphMaker(random).make();
    const Fill fill = random.one_in(2) ? Fill::Integers : Fill::Random;
    check_on_gpu(graph, {.seed = seed, .fill = fill, .tight_alignment = random.one_in(4)});
    ASSERT_FALSE(HasFailure()) << "TILEWRIGHT_TEST_SEED=" << seed;
  }
}

}  // namespace
}  // namespace tilewright::testing
