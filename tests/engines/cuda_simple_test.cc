// Kernels of engine "cuda" for what is neither rows nor a contraction nor attention: pooling, random numbers, elements
// below a byte, copies. Without a GPU: that they compile everywhere and keep to registers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/nvrtc.h"
#include "engines/cuda/engine.h"
#include "engines/cuda/kernel_headers.h"
#include "engines/cuda/plain_rows.h"
#include "engines/cuda/region.h"
#include "engines/host/engine.h"
#include "plan/device_copy.h"
#include "plan/harness.h"
#include "support/ir_builder.h"
#include "support/pooling_graph.h"

namespace tilewright::testing {
namespace {

using P = PointwiseMode_t;
using R = ReductionMode_t;
using D = DataType_t;
using ::testing::HasSubstr;

ir::Graph rng(RngDistribution_t distribution, D type, const Dims& dim, const Dims& stride, bool seed_in_memory) {
  IrBuilder b;
  AttrMap attrs = {{"distribution", to_string(distribution)}, {"bernoulli_probability", 0.3}, {"dim", dim}};
  std::vector<ir::TensorId> in;
  if (seed_in_memory) in = {b.input({1}, D::INT64), b.input({1}, D::INT32)};
  else attrs["seed"] = int64_t{77};
  b.output(b.node("rng", in, attrs)[0], type, stride);
  return b.graph;
}

// Pointwise nodes and reductions on elements of any type, such as masks of bits.
ir::Graph any_types(Random& random) {
  const std::vector<D> types = {D::BOOLEAN, D::INT4, D::FP4_E2M1, D::FP8_E8M0, D::HALF, D::FLOAT, D::DOUBLE};
  IrBuilder b;
  const Dims dim = {random.between(1, 5), random.between(1, 9), random.between(1, 70)};
  const auto input = [&] {
    const D type = random.of(types);
    const auto x = b.input(dim, type, random.input_strides(dim));
    b.graph.tensors[size_t(x)].bit_packed = type == D::BOOLEAN;
    return x;
  };
  const auto output = [&](ir::TensorId t, const Dims& of) {
    const D type = random.of(types);
    b.output(t, type, random.strides(of));
    b.graph.tensors[size_t(t)].bit_packed = type == D::BOOLEAN;
  };
  auto x = b.pw(P::ADD, {input(), input()});
  if (random.one_in(2)) {
    Dims to = dim;
    to[size_t(random.between(0, 2))] = 1;
    const auto folded = b.reduce(random.of({R::MAX, R::ADD, R::MUL, R::AMAX}), x, to);
    if (random.one_in(2)) output(folded, to);
    else x = b.pw(P::SUB, {x, b.pw(P::NEG, {folded})});  // once for a row
  }
  output(b.pw(P::RELU_FWD, {x}), dim);
  if (random.one_in(2)) output(b.pw(P::CMP_GT, {x, b.scalar(0.5f, 3)}), dim);
  if (random.one_in(3)) output(b.reduce(R::MUL, x, {1, dim[1], 1}), {1, dim[1], 1});
  return b.graph;
}

// A node that moves elements which are no whole bytes.
ir::Graph moved(Random& random) {
  IrBuilder b;
  const Dims dim = {4, 6, 10};
  const D type = random.of({D::INT4, D::FP4_E2M1, D::BOOLEAN});
  const auto packed = [&](ir::TensorId t) {
    b.graph.tensors[size_t(t)].bit_packed = type == D::BOOLEAN;
    return t;
  };
  const auto x = packed(b.input(dim, type, random.strides(dim)));
  ir::TensorId y = ir::kNone;
  b.intermediate = type;
  switch (random.between(0, 3)) {
    case 0: y = b.op("transpose", {x}, {{"permutation", Dims{2, 0, 1}}}); break;
    case 1: y = b.op("slice", {x}, {{"slices", Dims{1, 4, 0, 6, 2, 9}}, {"slice_strides", Dims{1, 2, 3}}}); break;
    case 2:
      y = b.op("reshape", {x}, {{"dim", Dims{8, 30}}, {"reshape_mode", to_string(ReshapeMode_t::LOGICAL)}}, {8, 30});
      break;
    default: y = b.op("concatenate", {x, packed(b.input({4, 3, 10}, type))}, {{"axis", int64_t{1}}}); break;
  }
  b.output(y, type, random.strides(b.graph.tensor(y).dim));
  packed(y);
  return b.graph;
}

std::vector<cuda::Launch> launches(const ir::Graph& graph) {
  auto fused = fuse::fuse(graph);
  const cuda::KernelOptions options;
  std::vector<cuda::Launch> all;
  for (fuse::Region& r : fused.regions) r.scratch_bytes = cuda::region_scratch_bytes(fused, r, options);
  place_intermediates(fused);
  for (const fuse::Region& r : fused.regions) {
    const auto list = cuda::region_launches(fused, r, options);
    EXPECT_TRUE(list) << list.status() << fused.text();
    if (list) all.insert(all.end(), list->begin(), list->end());
  }
  return all;
}

// Every graph of this file, each class of them once.
std::vector<ir::Graph> corpus() {
  std::vector<ir::Graph> graphs;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Random random(seed);
    graphs.push_back(random_pooling(random));
    graphs.push_back(random_pooling_backward(random));
    graphs.push_back(any_types(random));
    graphs.push_back(moved(random));
  }
  for (auto d : {RngDistribution_t::BERNOULLI, RngDistribution_t::UNIFORM, RngDistribution_t::NORMAL})
    graphs.push_back(rng(d, D::HALF, {3, 50}, {50, 1}, d != RngDistribution_t::NORMAL));
  // Offsets of more than 31 bits.
  Window huge;
  huge.x = {40, 64, 1000, 1000};
  IrBuilder b;
  AttrMap attrs = huge.attrs();
  attrs["generate_index"] = true;
  const auto out = b.node("resample", {b.input(huge.x, D::HALF)}, attrs);
  b.output(out[0], D::HALF), b.output(out[1], D::INT8);
  graphs.push_back(b.graph);
  return graphs;
}

TEST(CudaSimple, CompilesForOldAndNewWithoutSpills) {
  if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
  for (const ir::Graph& graph : corpus())
    for (const cuda::Launch& l : launches(graph))
      for (const char* arch : {"sm_75", "sm_90a"}) {
        const auto kernel = cuda::compile({l.text, cuda::kernel_headers(), cuda::kernel_header_count()}, arch);
        ASSERT_TRUE(kernel) << arch << ": " << kernel.status() << "\n" << l.text;
        EXPECT_EQ((*kernel)->spill_bytes, 0) << arch << "\n" << l.text;
      }
}

TEST(CudaSimple, PoolingIsOfAClassOfShapes) {
  const auto text = [](const Dims& x) {
    Window w;
    w.x = x;
    IrBuilder b;
    AttrMap attrs = w.attrs();
    attrs["generate_index"] = false;
    b.output(b.op("resample", {b.input(w.x)}, attrs), D::FLOAT, row_major_strides(w.y()));
    return launches(b.graph)[0].text;
  };
  EXPECT_EQ(text({2, 5, 12, 13}), text({3, 64, 56, 57}));
}

TEST(CudaSimple, ResultsBesideAreFoldedFromTheWorkspace) {
  IrBuilder b;
  const auto x = b.input({4, 6, 8});
  b.output(b.reduce(R::ADD, x, {4, 6, 1}));
  b.output(b.reduce(R::MUL, x, {1, 6, 1}));
  const auto list = launches(b.graph);
  ASSERT_GE(list.size(), 2u);
  EXPECT_THAT(list.back().text, HasSubstr("Product"));
}

TEST(CudaSimple, WhatHasNoKernelSaysWhyAndTheHostTakesIt) {
  if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
  IrBuilder b;
  const auto x = b.input({128, 128});
  b.graph.tensors[size_t(x)].reordering = TensorReordering_t::F8_128x4;
  b.output(b.pw(P::ABS, {x}));
  const Target h200 = *Target::parse("h200");
  const Verdict v = cuda_engine().propose(b.graph, h200);
  ASSERT_EQ(v.reasons.size(), 1u);
  EXPECT_THAT(v.reasons[0].text, HasSubstr("no kernel of ours computes pointwise on such tensors"));
  EXPECT_TRUE(host_engine().propose(b.graph, h200).proposal);
}

class CudaSimpleGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::driver_lookup().problem;
    if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
    device_ = std::make_unique<cuda::ScopedDevice>(0);
  }
  void check(const ir::Graph& graph, HarnessOptions options = {}) {
    const Target target = *Target::of_gpu(0);
    const Verdict v = cuda_engine().propose(graph, target);
    ASSERT_TRUE(v.proposal) << v.reasons[0].text << "\n" << describe(graph);
    Harness harness(graph, options);
    const auto artifact = v.proposal->compile(v.proposal->candidates()[0].config, nullptr);
    ASSERT_TRUE(artifact) << artifact.status();
    const auto plan = cuda_engine().load(graph, *artifact, target, nullptr);
    ASSERT_TRUE(plan) << plan.status();
    const Status s = harness.check_run(**plan, {0, nullptr, nullptr});
    EXPECT_TRUE(s.is_good()) << s << "\n" << describe(graph) << v.proposal->explain();
  }
  template <class Make>
  void check_random(uint64_t count, const Make& make) {
    for (uint64_t seed : seeds(1, count)) {
      Random random(seed);
      const ir::Graph graph = make(random);
      check(graph, {.seed = seed, .fill = random.of({Fill::Random, Fill::Integers})});
      ASSERT_FALSE(HasFailure()) << "TILEWRIGHT_TEST_SEED=" << seed;
    }
  }
  std::unique_ptr<cuda::ScopedDevice> device_;
};

TEST_F(CudaSimpleGpu, Pooling) { check_random(60, random_pooling); }
TEST_F(CudaSimpleGpu, PoolingBackward) { check_random(60, random_pooling_backward); }
TEST_F(CudaSimpleGpu, AnyTypes) { check_random(60, any_types); }
TEST_F(CudaSimpleGpu, Copies) { check_random(24, moved); }

TEST_F(CudaSimpleGpu, RandomNumbersAreTheGeneratorsBits) {
  for (auto d : {RngDistribution_t::BERNOULLI, RngDistribution_t::UNIFORM, RngDistribution_t::NORMAL})
    for (D type : {D::FLOAT, D::HALF, D::FP8_E4M3, D::DOUBLE, D::BOOLEAN, D::INT4, D::FP8_E8M0})
      for (const Dims& dim : {Dims{1}, Dims{7, 3, 5}, Dims{3, 1000}})
        for (bool seed_in_memory : {false, true}) {
          check(rng(d, type, dim, row_major_strides(dim), seed_in_memory), {.fill = Fill::Integers});
          Dims apart = row_major_strides(dim);
          for (int64_t& s : apart) s *= 2;
          check(rng(d, type, dim, apart, seed_in_memory));
        }
}

}  // namespace
}  // namespace tilewright::testing
