#include "engines/onednn/engine.h"

#include <gmock/gmock.h>

#include <thread>

#include "engines/onednn/lower.h"
#include "support/engine_check.h"
#include "support/every_plan.h"
#include "support/ir_builder.h"
#include "support/random.h"

namespace tilewright {
namespace {

using testing::check_engine;
using testing::IrBuilder;
using testing::Random;
using testing::seeds;
using P = PointwiseMode_t;
constexpr DataType_t kFloat = DataType_t::FLOAT, kBfloat16 = DataType_t::BFLOAT16;

class Onednn : public ::testing::Test {
 protected:
  void SetUp() override {
    if (auto why = onednn_engine().unavailable(testing::test_target()); !why.empty()) GTEST_SKIP() << why[0].text;
  }
  // The launches of a configuration, by name.
  static std::vector<std::string> launches(const ir::Graph& graph, bool post_ops = true) {
    std::vector<std::string> names;
    const onednn::Program program = onednn::lower(graph, {post_ops, false, false, 2});
    for (const Reason& r : program.reasons) ADD_FAILURE() << describe(graph, r);
    for (const onednn::Launch& launch : program.launches) names.push_back(launch.name);
    return names;
  }
  // The first reason why the engine does not take the graph.
  static std::string refusal(const ir::Graph& graph) {
    const Verdict v = onednn_engine().propose(graph, testing::test_target());
    return v.proposal ? "taken" : describe(graph, v.reasons.at(0));
  }
};

AttrMap convolution(Dims pre, Dims post, Dims stride, Dims dilation) {
  return {{"pre_padding", pre}, {"post_padding", post}, {"stride", stride}, {"dilation", dilation}};
}

TEST_F(Onednn, MatmulTakesItsEpilogueAlong) {
  IrBuilder b;
  const auto x = b.input({2, 3, 17, 40}), w = b.input({1, 3, 40, 33});
  const auto bias = b.input({1, 1, 1, 33}), residual = b.input({2, 3, 17, 33});
  auto y = b.pw(P::ADD, {b.op("matmul", {x, w}), bias});
  y = b.pw(P::RELU_FWD, {y});
  y = b.pw(P::MUL, {b.scalar(0.5f, 4), y});
  b.output(b.pw(P::SUB, {y, residual}));
  EXPECT_THAT(launches(b.graph), ::testing::ElementsAre("matmul+bias+relu_fwd+mul+sub"));
  EXPECT_EQ(launches(b.graph, false).size(), 5u);
  check_engine(onednn_engine(), b.graph);
}

// Two readers of a value, or an operand that is not there yet: the chain ends.
TEST_F(Onednn, AChainEndsWhereAnotherNeedsTheValue) {
  IrBuilder b;
  const auto x = b.input({1, 8, 16}), w = b.input({1, 16, 16});
  const auto c = b.op("matmul", {x, w});
  const auto e = b.pw(P::ABS, {c});
  b.output(b.pw(P::ADD, {c, e}));
  EXPECT_THAT(launches(b.graph), ::testing::ElementsAre("matmul", "eltwise", "binary"));
  check_engine(onednn_engine(), b.graph);
}

TEST_F(Onednn, RandomMatmuls) {
  for (uint64_t seed : seeds(100, 60)) {
    Random r(seed);
    IrBuilder b;
    const DataType_t type = r.of({kFloat, kFloat, kBfloat16});
    const int64_t m = r.between(1, 70), n = r.between(1, 70), k = r.between(1, 130), batch = r.between(1, 3);
    const Dims a_dim = {r.one_in(3) ? 1 : batch, m, k}, b_dim = {r.one_in(3) ? 1 : batch, k, n};
    const auto c = b.op("matmul", {b.input(a_dim, type, r.strides(a_dim)), b.input(b_dim, type, r.strides(b_dim))});
    const Dims dim = b.dim(c);
    auto y = c;
    if (r.one_in(2)) y = b.pw(P::ADD, {y, b.input({1, 1, n})});
    if (r.one_in(2)) y = b.pw(r.of({P::TANH_FWD, P::SIGMOID_FWD, P::GELU_APPROX_TANH_FWD, P::ABS}), {y});
    b.output(y, r.of({kFloat, type}), r.strides(dim));
    if (onednn_engine().propose(b.graph, testing::test_target()).proposal)
      check_engine(onednn_engine(), b.graph, {.seed = seed});
  }
}

TEST_F(Onednn, RandomConvolutions) {
  int taken = 0, asked = 0;
  for (uint64_t seed : seeds(200, 90)) {
    Random r(seed);
    IrBuilder b;
    const DataType_t type = r.of({kFloat, kFloat, kBfloat16});
    const size_t rank = size_t(r.between(1, 3));
    const int64_t groups = r.of({1, 1, 2, 16}), c = groups * r.of({1, 4, 16}), k = groups * r.of({1, 8, 16});
    Dims x = {r.between(1, 2), c}, w = {k, c / groups}, y = {x[0], k}, pre, post, stride, dilation;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t size = r.between(5, 11), tap = r.between(1, 3);
      pre.push_back(r.between(0, 1)), post.push_back(r.between(0, 2));
      stride.push_back(r.between(1, 2)), dilation.push_back(r.between(1, 2));
      x.push_back(size), w.push_back(tap);
      y.push_back((size + pre[d] + post[d] - (tap - 1) * dilation[d] - 1) / stride[d] + 1);
    }
    const bool channels_last = r.one_in(2);
    const auto layout = [&](const Dims& d) { return channels_last ? channels_last_strides(d) : row_major_strides(d); };
    const AttrMap attrs = convolution(pre, post, stride, dilation);
    const int64_t kind = r.between(0, 3);
    if (kind == 2) {
      b.output(b.op("conv_dgrad", {b.input(y, type, layout(y)), b.input(w, type, layout(w))}, attrs, x), type,
               layout(x));
    } else if (kind == 3) {
      b.output(b.op("conv_wgrad", {b.input(y, type, layout(y)), b.input(x, type, layout(x))}, attrs, w), kFloat,
               layout(w));
    } else {
      auto v = b.op("conv_fprop", {b.input(x, type, layout(x)), b.input(w, type, layout(w))}, attrs);
      Dims channel(rank + 2, 1);
      channel[1] = k;
      if (r.one_in(2)) v = b.pw(P::ADD, {v, b.input(channel)});
      if (r.one_in(2)) v = b.pw(P::RELU_FWD, {v});
      b.output(v, type, layout(y));
    }
    ++asked;
    if (!onednn_engine().propose(b.graph, testing::test_target()).proposal) continue;
    ++taken;
    check_engine(onednn_engine(), b.graph, {.seed = seed});
  }
  EXPECT_GE(4 * taken, asked);  // the library has no fast loops for the others
}

TEST_F(Onednn, ConvolutionWithBiasAndReluIsOnePrimitiveAndAReorder) {
  IrBuilder b;
  const Dims x = {2, 32, 9, 9}, w = {48, 32, 3, 3}, y = {2, 48, 9, 9};
  const auto conv = b.conv("conv_fprop", b.input(x, kFloat, channels_last_strides(x)),
                           b.input(w, kFloat, channels_last_strides(w)), {1, 1}, {1, 1}, {1, 1});
  b.output(b.pw(P::RELU_FWD, {b.pw(P::ADD, {conv, b.input({1, 48, 1, 1})})}), kFloat, channels_last_strides(y));
  EXPECT_THAT(launches(b.graph), ::testing::ElementsAre("reorder", "conv_fprop+bias+relu_fwd"));
  check_engine(onednn_engine(), b.graph);
  check_engine(onednn_engine(), b.graph, {.fill = Fill::Integers});
}

// Weights that are marked constant are reordered once, from the memory that they are bound to first; bound to other
// memory they are read there.
TEST_F(Onednn, ConstantWeightsAreReorderedOnce) {
  IrBuilder b;
  const Dims x = {2, 32, 9, 9}, w = {48, 32, 3, 3}, y = {2, 48, 9, 9};
  const auto weights = b.input(w, kFloat, channels_last_strides(w));
  b.graph.tensors[size_t(weights)].constant = true;
  b.output(b.conv("conv_fprop", b.input(x, kFloat, channels_last_strides(x)), weights, {1, 1}, {1, 1}, {1, 1}), kFloat,
           channels_last_strides(y));
  EXPECT_THAT(launches(b.graph), ::testing::ElementsAre("reorder", "conv_fprop"));
  const auto plan = testing::load_plan(onednn_engine(), b.graph, "fuse=post_ops");
  ASSERT_TRUE(plan);
  Harness first(b.graph, {.seed = 1}), second(b.graph, {.seed = 2});
  for (Harness* h : {&first, &second, &first, &second}) {
    const Status s = h->check_run(*plan);
    EXPECT_TRUE(s.is_good()) << s.err_msg;
  }
  // The promise broken: the old values show that nothing was reordered again.
  const std::vector<float> before(static_cast<float*>(first.memory(weights)),
                                  static_cast<float*>(first.memory(weights)) + volume(w));
  std::fill_n(static_cast<float*>(first.memory(weights)), volume(w), 0.0f);
  ASSERT_TRUE(plan->run(first.bindings(), first.workspace(plan->workspace_bytes()), {}).is_good());
  std::copy(before.begin(), before.end(), static_cast<float*>(first.memory(weights)));
  EXPECT_TRUE(first.check().is_good());
}

// Every function over all magnitudes, alone and behind a matmul: whatever is taken stays within the bound.
TEST_F(Onednn, FunctionsOverTheWholeRange) {
  for (const P mode : {P::RELU_FWD, P::TANH_FWD, P::SIGMOID_FWD, P::ELU_FWD, P::GELU_FWD, P::GELU_APPROX_TANH_FWD,
                       P::SWISH_FWD, P::ABS, P::SQRT, P::EXP, P::LOG, P::NEG, P::IDENTITY, P::SOFTPLUS_FWD})
    for (const DataType_t type : {kFloat, kBfloat16}) {
      graph::Graph g;
      g.set_io_data_type(type).set_intermediate_data_type(kFloat).set_compute_data_type(kFloat);
      const int64_t n = 6000;
      auto x = g.tensor(graph::Tensor_attributes().set_name("x").set_dim({1, n, 1}).set_stride({n, 1, 1}));
      auto one = g.tensor(graph::Tensor_attributes().set_name("1").set_dim({1, 1, 1}).set_stride({1, 1, 1}));
      const auto attr = graph::Pointwise_attributes().set_mode(mode);
      g.pointwise(x, attr)->set_output(true);
      auto c = g.matmul(x, one, graph::Matmul_attributes());
      g.pointwise(c, attr)->set_output(true).set_data_type(kFloat);
      testing::EveryPlan plans(g);
      const bool positive = mode == P::SQRT || mode == P::LOG;
      plans.fill(one, [](int64_t) { return 1.0; });
      plans.fill(x, [&](int64_t i) {
        const double sign = i % 2 && !positive ? -1 : 1;
        return sign * (i < n / 2 ? 30.0 * double(i) / double(n)
                                 : std::pow(2.0, double(i - 3 * n / 4) / double(n / 4) * (mode == P::EXP ? 6 : 90)));
      });
      EXPECT_TRUE(plans.run()) << mode << ' ' << type;
    }
}

TEST_F(Onednn, LayernormOfRows) {
  for (const bool training : {false, true})
    for (const DataType_t type : {kFloat, kBfloat16}) {
      IrBuilder b;
      const auto x = b.input({6, 7, 48}, type), scale = b.input({1, 1, 48}), bias = b.input({1, 1, 48});
      const auto out = b.node("layernorm", {x, scale, bias, b.scalar(1e-3f, 3)},
                              {{"forward_phase", std::string(training ? "TRAINING" : "INFERENCE")}});
      b.output(out[0], type);
      if (training) b.output(out[1]), b.output(out[2]);
      EXPECT_EQ(launches(b.graph).size(), training ? 2u : 1u);
      check_engine(onednn_engine(), b.graph);
    }
}

TEST_F(Onednn, Pooling) {
  for (const char* mode : {"MAXPOOL", "AVGPOOL_INCLUDE_PADDING", "AVGPOOL_EXCLUDE_PADDING"})
    for (const DataType_t type : {kFloat, kBfloat16}) {
      IrBuilder b;
      const Dims x = {2, 16, 11, 9};
      const auto out = b.node("resample", {b.input(x, type, channels_last_strides(x))},
                              {{"resample_mode", std::string(mode)},
                               {"window", Dims{3, 2}},
                               {"stride", Dims{2, 2}},
                               {"pre_padding", Dims{1, 0}},
                               {"post_padding", Dims{1, 1}}});
      b.output(out[0], type, b.graph.tensor(out[0]).stride);
      EXPECT_EQ(launches(b.graph).size(), 1u);
      check_engine(onednn_engine(), b.graph);
    }
}

TEST_F(Onednn, RefusalsNameWhatStandsInTheWay) {
  {
    IrBuilder b;
    b.output(b.pw(P::GELU_FWD, {b.input({4, 4})}));
    EXPECT_THAT(refusal(b.graph), ::testing::HasSubstr("less exact than this library's bound"));
  }
  {
    IrBuilder b;
    b.output(b.op("softmax", {b.input({4, 4})}));
    EXPECT_THAT(refusal(b.graph), ::testing::HasSubstr("-inf alone"));
  }
  {
    IrBuilder b;
    b.output(b.pw(P::COS, {b.input({4, 4})}));
    EXPECT_THAT(refusal(b.graph), ::testing::HasSubstr("no primitive for COS (node \"pointwise"));
  }
  {
    IrBuilder b;
    b.output(b.pw(P::ADD, {b.input({4, 4}, DataType_t::INT32), b.input({4, 4})}));
    EXPECT_THAT(refusal(b.graph), ::testing::HasSubstr("is INT32; only products of bytes are taken (node \"pointwise"));
  }
  {
    IrBuilder b;
    b.output(b.pw(P::ADD, {b.input({0, 4}), b.input({1, 4})}));
    EXPECT_THAT(refusal(b.graph), ::testing::HasSubstr("is empty"));
  }
  {
    IrBuilder b;
    b.compute = DataType_t::DOUBLE;
    b.output(b.pw(P::ADD, {b.input({4, 4}), b.input({1, 4})}));
    EXPECT_THAT(refusal(b.graph), ::testing::HasSubstr("computes in DOUBLE"));
  }
}

TEST_F(Onednn, ProductsOfBytesAreExact) {
  const auto features = cpu_info().features;
  if (std::find(features.begin(), features.end(), "avx512_vnni") == features.end()) GTEST_SKIP() << "no avx512_vnni";
  for (const DataType_t result : {DataType_t::INT32, kFloat})
    for (const DataType_t left : {DataType_t::INT8, DataType_t::UINT8}) {
      IrBuilder b;
      b.compute = DataType_t::INT32, b.intermediate = result;
      b.output(b.op("matmul", {b.input({2, 19, 130}, left), b.input({2, 130, 33}, DataType_t::INT8)}), result);
      check_engine(onednn_engine(), b.graph, {.fill = Fill::Integers});

      IrBuilder c;
      c.compute = DataType_t::INT32, c.intermediate = result;
      const Dims x = {2, 32, 9, 9}, w = {48, 32, 3, 3}, y = {2, 48, 9, 9};
      const auto conv = c.conv("conv_fprop", c.input(x, left, channels_last_strides(x)),
                               c.input(w, DataType_t::INT8, channels_last_strides(w)), {1, 1}, {1, 1}, {1, 1});
      c.output(conv, result, channels_last_strides(y));
      check_engine(onednn_engine(), c.graph, {.fill = Fill::Integers});
    }
  // The results of every corner of the range: 127 and -128 against themselves.
  IrBuilder b;
  b.compute = DataType_t::INT32, b.intermediate = DataType_t::INT32;
  const auto x = b.input({1, 2, 64}, DataType_t::INT8), w = b.input({1, 64, 2}, DataType_t::INT8);
  const auto y = b.output(b.op("matmul", {x, w}), DataType_t::INT32);
  Harness harness(b.graph);
  for (int i = 0; i < 128; ++i) {
    static_cast<int8_t*>(harness.memory(x))[i] = i < 64 ? 127 : -128;
    static_cast<int8_t*>(harness.memory(w))[i] = i % 2 ? 127 : -128;
  }
  harness.inputs_changed();
  const auto plan = testing::load_plan(onednn_engine(), b.graph, "fuse=post_ops");
  ASSERT_TRUE(plan);
  EXPECT_TRUE(harness.check_run(*plan).is_good());
  EXPECT_EQ(static_cast<int32_t*>(harness.memory(y))[2], 64 * 128 * 128);
}

TEST_F(Onednn, OnlyPlansThatKeepNanSaySo) {
  const auto note_of = [&](P mode) {
    IrBuilder b;
    b.output(b.pw(mode, {b.input({4, 4})}));
    const auto candidates = onednn_engine().propose(b.graph, testing::test_target()).proposal->candidates();
    return candidates[0].numerical_notes;
  };
  EXPECT_THAT(note_of(P::RELU_FWD), ::testing::IsEmpty());
  EXPECT_THAT(note_of(P::TANH_FWD), ::testing::ElementsAre(NumericalNote_t::STRICT_NAN_PROP));
}

// Four threads, one plan, each with its own memory.
TEST_F(Onednn, OnePlanRunsInSeveralThreadsAtOnce) {
  IrBuilder b;
  const auto c = b.op("matmul", {b.input({1, 30, 50}), b.input({1, 50, 40})});
  b.output(b.pw(P::TANH_FWD, {b.pw(P::ADD, {c, b.input({1, 1, 40})})}));
  const auto plan = testing::load_plan(onednn_engine(), b.graph, "fuse=none");
  ASSERT_TRUE(plan);
  std::vector<std::thread> threads;
  std::vector<Status> status(4);
  for (size_t t = 0; t < status.size(); ++t)
    threads.emplace_back([&, t] {
      Harness harness(b.graph, {.seed = t});
      for (int i = 0; i < 50 && status[t].is_good(); ++i) status[t] = harness.check_run(*plan);
    });
  for (std::thread& t : threads) t.join();
  for (const Status& s : status) EXPECT_TRUE(s.is_good()) << s.err_msg;
}

// A matmul may write its result before it has read all of its operands: they must not share memory.
TEST_F(Onednn, ResultsOverOperandsAreNamedAsHazards) {
  IrBuilder b;
  const auto x = b.input({1, 8, 8}), w = b.input({1, 8, 8}), y = b.output(b.op("matmul", {x, w}));
  const auto plan = testing::load_plan(onednn_engine(), b.graph, "fuse=post_ops");
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->hazards().size(), 2u);
  EXPECT_EQ(plan->hazards()[0].written, y);
}

// What only comparisons use: softmax, its gradient from its nodes, transposed views, gelu.
TEST_F(Onednn, ApproximationsAreNear) {
  IrBuilder b;
  const auto x = b.input({2, 3, 20, 24}), dy = b.input({2, 3, 20, 24});
  const auto y = b.op("softmax", {x}, {{"axis", int64_t(3)}});
  const auto sum = b.reduce(ReductionMode_t::ADD, b.pw(P::MUL, {dy, y}), {2, 3, 20, 1});
  const auto dx = b.pw(P::MUL, {b.pw(P::SUB, {dy, sum}), y});
  const auto turned = b.op("transpose", {dx}, {{"permutation", Dims{0, 1, 3, 2}}});
  b.output(b.pw(P::GELU_FWD, {b.op("matmul", {turned, b.input({2, 3, 20, 8})})}));
  onednn::Program program = onednn::lower(b.graph, {true, false, true, 2});
  ASSERT_TRUE(program.reasons.empty()) << describe(b.graph, program.reasons[0]);
  std::vector<std::string> names;
  for (const onednn::Launch& launch : program.launches) names.push_back(launch.name);
  EXPECT_THAT(names, ::testing::ElementsAre("softmax", "softmax_backward", "matmul+gelu_fwd"));
  const auto plan = onednn::make_executable(b.graph, std::move(program), 2);
  Harness harness(b.graph);
  ASSERT_TRUE(plan->run(harness.bindings(), harness.workspace(plan->workspace_bytes()), {}).is_good());
  EXPECT_TRUE(harness.check_memory().is_good());
  auto outputs = harness.compare_outputs();
  ASSERT_TRUE(outputs);
  EXPECT_LT((*outputs)[0].comparison.worst_error, 1e-5);
}

}  // namespace
}  // namespace tilewright
