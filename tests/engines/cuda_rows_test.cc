// Kernels of maps, reductions and normalisations: every shape that they may have, on every architecture, within
// registers; and on a GPU against the reference, at sizes where blocks, vectors and parts end unevenly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "device/cuda/compiler.h"
#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "engines/cuda/engine.h"
#include "engines/cuda/kernel_headers.h"
#include "engines/cuda/region.h"
#include "plan/harness.h"
#include "support/ir_builder.h"
#include "support/random.h"

namespace tilewright::testing {
namespace {

using ::testing::HasSubstr;
using D = DataType_t;
using P = PointwiseMode_t;
using R = ReductionMode_t;

struct Norm {
  std::string op;  // "layernorm"
  Dims dim;
  D type = D::BFLOAT16, scale = D::FLOAT;
  bool backward = false, channels_last = false;
};

Dims strides_of(const Norm& n, const Dims& dim) {
  return n.channels_last ? channels_last_strides(dim) : row_major_strides(dim);
}

ir::Graph norm(const Norm& n) {
  IrBuilder b;
  const size_t rank = n.dim.size();
  const bool by_channel = n.op == "batchnorm" || n.op == "instancenorm", centred = n.op != "rmsnorm";
  Dims parameter = n.dim, statistic(rank, 1);
  parameter[0] = 1;
  if (by_channel) {
    parameter = Dims(rank, 1);
    parameter[1] = statistic[1] = n.dim[1];
  }
  if (n.op != "batchnorm") statistic[0] = n.dim[0];
  const auto data = [&] { return b.input(n.dim, n.type, strides_of(n, n.dim)); };
  const auto of_channel = [&] { return b.input(parameter, n.scale, channels_last_strides(parameter)); };
  const auto of_group = [&] { return b.input(statistic, D::FLOAT, channels_last_strides(statistic)); };
  std::vector<ir::TensorId> in, out;
  AttrMap attrs;
  if (n.backward) {
    in = {data(), data(), of_channel()};
    if (centred) in.push_back(of_group());
    else attrs["use_dbias"] = false;
    in.push_back(of_group());
    out = b.node((n.op + "_backward").c_str(), in, attrs);
  } else {
    in = {data(), of_channel(), centred ? of_channel() : ir::kNone, b.scalar(1e-5f, rank)};
    if (n.op != "batchnorm") attrs["forward_phase"] = std::string("TRAINING");
    out = b.node(n.op.c_str(), in, attrs);
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] != ir::kNone)
      b.output(out[i],
               i == 0       ? n.type
               : n.backward ? n.scale
                            : D::FLOAT,
               i == 0 ? strides_of(n, n.dim) : channels_last_strides(b.dim(out[i])));
  return b.graph;
}

ir::Graph softmax(int64_t rows, int64_t columns, D type) {
  IrBuilder b;
  b.output(b.op("softmax", {b.input({rows, columns}, type)}), type, {columns, 1});
  return b.graph;
}

// A sum of two tensors whose fastest dims differ, stored as one of them lies, or as each.
ir::Graph crossing(const Dims& dim, D type, bool both) {
  IrBuilder b;
  const Dims rows = row_major_strides(dim), columns = {dim[1] * dim[2], 1, dim[1]};
  const auto sum = b.pw(P::ADD, {b.input(dim, type, rows), b.input(dim, type, columns)});
  b.output(b.pw(P::IDENTITY, {sum}), type, columns);
  if (both) b.output(b.pw(P::NEG, {sum}), D::FLOAT, rows);
  return b.graph;
}

std::vector<cuda::Launch> launches(const ir::Graph& graph, int shape = 0, int* shapes = nullptr) {
  cuda::KernelOptions options{132, 90};
  options.shape = shape;
  auto fused = fuse::fuse(graph);
  for (fuse::Region& r : fused.regions) r.scratch_bytes = cuda::region_scratch_bytes(fused, r, options);
  place_intermediates(fused);
  std::vector<cuda::Launch> all;
  for (const fuse::Region& r : fused.regions) {
    if (shapes) *shapes = std::max(*shapes, cuda::region_shapes(fused, r, options));
    auto list = cuda::region_launches(fused, r, options);
    EXPECT_TRUE(list) << list.status();
    if (list) all.insert(all.end(), list->begin(), list->end());
  }
  return all;
}

TEST(CudaRows, NarrowRowsShareABlock) {
  const auto list = launches(norm({"rmsnorm", {8192, 128}}));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].grid, 512) << "sixteen rows of sixteen threads";
  EXPECT_THAT(list[0].text, HasSubstr("lanes_reduce<Average, 16>"));
}

TEST(CudaRows, GradientsOfParametersAreFoldedInOrder) {
  const auto list = launches(norm({"layernorm", {32768, 4096}, D::BFLOAT16, D::BFLOAT16, true}));
  ASSERT_EQ(list.size(), 2u);
  for (const cuda::Launch& l : list) EXPECT_EQ(l.zero_bytes, 0) << "no atomics";
  EXPECT_LE(list[0].grid, 4 * 132);
}

TEST(CudaRows, WhatASoftmaxExponentiatesIsKept) {
  const std::string text = launches(softmax(1000, 4096, D::BFLOAT16))[0].text;
  size_t count = 0;
  for (size_t at = text.find("_EXP(v"); at != text.npos; at = text.find("_EXP(v", at + 1)) ++count;
  EXPECT_EQ(count, 1u) << text;
  EXPECT_THAT(text, HasSubstr("divided(")) << "by the reciprocal of the sum";
}

TEST(CudaRows, CrossedLayoutsGoThroughSharedMemory) {
  EXPECT_THAT(launches(crossing({1, 512, 256}, D::BFLOAT16, false))[0].text, HasSubstr("__shared__"));
  EXPECT_THAT(launches(crossing({1, 512, 256}, D::BFLOAT16, false))[0].text, HasSubstr("vec<bf16, 8>"));
}

TEST(CudaRows, MoreElementsThan31BitsCountAreIndexedBy64) {
  const auto index = [](const ir::Graph& graph) {
    const std::string text = launches(graph)[0].text;
    return text.substr(text.find("typedef", text.find("namespace tw")), 100);
  };
  EXPECT_THAT(index(softmax(70000, 40000, D::BFLOAT16)), HasSubstr("typedef i64 Index"));
  EXPECT_THAT(index(crossing({2, 70000, 40000}, D::BFLOAT16, false)), HasSubstr("typedef i64 Index"));
  EXPECT_THAT(index(norm({"batchnorm", {64, 4096, 100, 100}, D::BFLOAT16, D::FLOAT, false, true})),
              HasSubstr("typedef i64 Index"));
  EXPECT_THAT(index(softmax(700, 4000, D::BFLOAT16)), HasSubstr("typedef int Index"));
}

TEST(CudaRows, CompileForEveryArchitectureWithoutSpills) {
  if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
  std::vector<ir::Graph> graphs;
  for (const int64_t width : {128, 4096, 12288})
    for (const bool backward : {false, true}) {
      graphs.push_back(norm({"layernorm", {4096, width}, D::BFLOAT16, D::BFLOAT16, backward}));
      graphs.push_back(norm({"rmsnorm", {4096, width}, D::BFLOAT16, D::FLOAT, backward}));
    }
  for (const bool backward : {false, true})
    graphs.push_back(norm({"batchnorm", {32, 256, 56, 56}, D::BFLOAT16, D::FLOAT, backward, true}));
  graphs.push_back(softmax(1000, 4096, D::BFLOAT16));
  for (const D type : {D::BFLOAT16, D::FLOAT, D::INT8, D::DOUBLE})
    graphs.push_back(crossing({2, 512, 256}, type, true));
  for (const ir::Graph& graph : graphs) {
    int shapes = 1;
    for (int shape = 0; shape < shapes; ++shape)
      for (const cuda::Launch& l : launches(graph, shape, &shapes))
        for (const int arch : {75, 90}) {
          const auto kernel =
              cuda::compile({l.text, cuda::kernel_headers(), cuda::kernel_header_count()}, cuda::native_arch(arch));
          ASSERT_TRUE(kernel) << arch << ": " << kernel.status() << "\n" << l.text;
          EXPECT_EQ((*kernel)->spill_bytes, 0) << arch << ", shape " << shape << "\n" << l.text;
        }
  }
}

// --- on a GPU --------------------------------------------------------------------------------------------------------

class CudaRowsGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::driver_lookup().problem;
    if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
    device_ = std::make_unique<cuda::ScopedDevice>(0);
  }
  void check(const ir::Graph& graph, const std::string& what, HarnessOptions options = {}) {
    const Target target = *Target::of_gpu(0);
    const Verdict v = cuda_engine().propose(graph, target);
    ASSERT_TRUE(v.proposal) << what << ": " << (v.reasons.empty() ? "" : v.reasons[0].text);
    Harness harness(graph, options);
    for (const Candidate& c : v.proposal->candidates()) {
      const auto artifact = v.proposal->compile(c.config, nullptr);
      ASSERT_TRUE(artifact) << what << ": " << artifact.status();
      const auto plan = cuda_engine().load(graph, *artifact, target, nullptr);
      ASSERT_TRUE(plan) << what << ": " << plan.status();
      const Status s = harness.check_run(**plan, {0, nullptr, nullptr});
      EXPECT_TRUE(s.is_good()) << what << ", " << c.config << ": " << s << "\n" << v.proposal->explain();
      if (std::count(c.notes.begin(), c.notes.end(), "deterministic") == 0) continue;
      const auto first = outputs(graph, harness);
      ASSERT_TRUE(harness.check_run(**plan, {0, nullptr, nullptr}).is_good()) << what;
      EXPECT_TRUE(first == outputs(graph, harness)) << what << ", " << c.config << ": other bits in the second run";
    }
  }
  static std::vector<std::vector<uint8_t>> outputs(const ir::Graph& graph, const Harness& harness) {
    std::vector<std::vector<uint8_t>> all;
    for (size_t t = 0; t < graph.tensors.size(); ++t)
      if (graph.tensors[t].role == ir::Role::Output) {
        const auto* data = static_cast<const uint8_t*>(harness.memory(ir::TensorId(t)));
        all.emplace_back(data, data + graph.tensors[t].storage_bytes());
      }
    return all;
  }
  std::unique_ptr<cuda::ScopedDevice> device_;
};

TEST_F(CudaRowsGpu, NormsOfRows) {
  for (const int64_t width : {1, 7, 8, 48, 100, 128, 256, 512, 1000, 1024, 2048, 4096, 4104, 12288, 20000})
    for (const char* op : {"layernorm", "rmsnorm"})
      for (const bool backward : {false, true}) {
        const D type = width % 3 == 0 ? D::HALF : D::BFLOAT16;
        check(norm({op,
                    {width > 5000  ? 9
                     : width > 500 ? 35
                                   : 135,
                     width},
                    type,
                    width % 2 ? D::FLOAT : type,
                    backward}),
              fmt::format("{}{} {}", op, backward ? "_backward" : "", width));
      }
}

TEST_F(CudaRowsGpu, NormsByChannel) {
  for (const char* op : {"batchnorm", "instancenorm"})
    for (const int64_t channels : {1, 3, 64, 100, 256})
      for (const bool channels_last : {false, true})
        for (const bool backward : {false, true})
          check(norm({op,
                      {3, channels, 60, 270000 / channels / 60 / 3 + 1},
                      D::BFLOAT16,
                      D::FLOAT,
                      backward,
                      channels_last}),
                fmt::format("{}{} of {} channels{}", op, backward ? "_backward" : "", channels,
                            channels_last ? ", channels last" : ""));
}

TEST_F(CudaRowsGpu, Softmax) {
  for (const D type : {D::BFLOAT16, D::FLOAT})
    for (const int64_t columns : {1, 9, 64, 1000, 4096, 16384, 33000}) check(softmax(37, columns, type), "softmax");
  check(softmax(3, 200000, D::BFLOAT16), "softmax of few rows");
}

TEST_F(CudaRowsGpu, CrossedLayouts) {
  for (const D type : {D::BFLOAT16, D::FLOAT, D::INT8, D::DOUBLE})
    for (const Dims& dim : {Dims{1, 128, 64}, {2, 256, 200}, {3, 33, 65}, {3, 130, 66}, {1, 100, 300}, {1, 16, 16}})
      for (const bool both : {false, true}) check(crossing(dim, type, both), "crossing");
}

TEST_F(CudaRowsGpu, NormGraphsOfAllKinds) {
  // More on demand: TILEWRIGHT_TEST_COUNT=5000.
  const char* count = std::getenv("TILEWRIGHT_TEST_COUNT");
  for (const uint64_t seed : seeds(1, count ? std::atoi(count) : 60)) {
    Random random(seed);
    const char* op = random.of({"layernorm", "rmsnorm", "batchnorm", "instancenorm"});
    const bool by_channel = op[0] == 'b' || op[0] == 'i';
    Norm n{op, {random.between(1, 90), random.one_in(3) ? 8 * random.between(1, 200) : random.between(1, 1500)}};
    if (by_channel) n.dim = {random.between(1, 5), random.between(1, 90), random.between(1, 20), random.between(1, 30)};
    n.type = random.of({D::BFLOAT16, D::HALF, D::FLOAT}), n.scale = random.one_in(2) ? n.type : D::FLOAT;
    n.backward = random.one_in(2), n.channels_last = by_channel && random.one_in(2);
    check(norm(n), fmt::format("TILEWRIGHT_TEST_SEED={} {} {}", seed, op, to_text(n.dim)),
          {.seed = seed, .tight_alignment = random.one_in(4)});
    ASSERT_FALSE(HasFailure()) << "TILEWRIGHT_TEST_SEED=" << seed;
  }
}

}  // namespace
}  // namespace tilewright::testing
