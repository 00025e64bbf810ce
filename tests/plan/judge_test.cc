#include "plan/judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "plan/harness.h"
#include "support/attention_case.h"
#include "support/ir_builder.h"

namespace tilewright {
namespace {

using testing::IrBuilder;

// Cut to 10 bits of fraction.
float as_tf32(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits &= 0xffffe000u;
  std::memcpy(&x, &bits, 4);
  return x;
}

// The product of operands, each of them first changed.
template <class Change>
bool right(const ir::Graph& graph, const Change& change) {
  Harness harness(graph, {1});
  const auto* a = static_cast<const float*>(harness.memory(0));
  const auto* b = static_cast<const float*>(harness.memory(1));
  auto* y = static_cast<float*>(harness.memory(2));
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) {
      double sum = 0;
      for (int k = 0; k < 16; ++k) sum += double(change(a[i * 16 + k])) * double(change(b[k * 8 + j]));
      y[i * 8 + j] = float(sum);
    }
  return harness.check().is_good();
}

TEST(Tf32, RoundedAndUnroundedOperandsAreRightAndCoarserOnesAreNot) {
  IrBuilder b;
  const auto x = b.input({1, 8, 16}), w = b.input({1, 16, 8});
  b.output(b.node("matmul", {x, w})[0]);
  const ir::Graph wide = with_tf32(b.graph);
  ASSERT_EQ(wide.nodes.size(), 3u);
  const auto same = [](float v) { return v; };
  EXPECT_TRUE(right(b.graph, same));
  EXPECT_FALSE(right(b.graph, as_tf32));
  EXPECT_TRUE(right(wide, same));
  EXPECT_TRUE(right(wide, [](float v) { return as_tf32(v + v / 4096); }));  // rounded to nearest, about
  EXPECT_FALSE(right(wide, [](float v) { return v * 1.01f; }));
}

TEST(Tf32, OtherTypesAndOtherOpsStay) {
  IrBuilder b;
  const auto x = b.input({1, 8, 16}, DataType_t::HALF), w = b.input({1, 16, 8}, DataType_t::HALF);
  b.output(b.pw(PointwiseMode_t::RELU_FWD, {b.node("matmul", {x, w})[0]}));
  EXPECT_EQ(with_tf32(b.graph).nodes.size(), 2u);
}

// What a GPU's instruction may give for a tanh, and not more.
TEST(CoarseTanh, ErrsByItsShareOfTheTanhAlone) {
  for (PointwiseMode_t mode : {PointwiseMode_t::TANH_FWD, PointwiseMode_t::GELU_APPROX_TANH_FWD}) {
    IrBuilder b;
    b.output(b.pw(mode, {b.input({64})}));
    const ir::Graph coarse = with_coarse_tanh(b.graph);
    ASSERT_TRUE(has_tanh(b.graph));
    const auto right = [&](const ir::Graph& g, double error) {
      Harness harness(g, {1});
      const auto* x = static_cast<const float*>(harness.memory(0));
      auto* y = static_cast<float*>(harness.memory(1));
      for (int i = 0; i < 64; ++i) {
        const double v = double(x[i]), u = 0.79788456080286536 * (v + 0.044715 * v * v * v);
        const double t = std::tanh(mode == PointwiseMode_t::TANH_FWD ? v : u) * (1 + error);
        y[i] = float(mode == PointwiseMode_t::TANH_FWD ? t : 0.5 * v * (1 + t));
      }
      return harness.check().is_good();
    };
    EXPECT_TRUE(right(b.graph, 0));
    EXPECT_FALSE(right(b.graph, 0x1p-12));
    EXPECT_TRUE(right(coarse, 0x1p-12) && right(coarse, -0x1p-12) && right(coarse, 0));
    EXPECT_FALSE(right(coarse, 0x1p-10));
  }
  IrBuilder b;
  b.output(b.pw(PointwiseMode_t::GELU_FWD, {b.input({4})}));
  EXPECT_FALSE(has_tanh(b.graph));
}

TEST(CoarseDbias, AllowsTheRoundingOfEachBatchTimesTheScale) {
  for (bool shared : {false, true}) {
    testing::AttentionCase c;
    c.b = 2, c.sq = c.skv = 5, c.dqk = c.dv = 8, c.type = DataType_t::HALF, c.plain = true, c.scale = 0x1p-6;
    c.bias = c.dbias = {shared ? 1 : 2, 1, 5, 5};
    ir::Graph graph = c.backward();
    for (ir::Tensor& t : graph.tensors)
      if (t.role == ir::Role::Output && t.dim == c.dbias) t.type = DataType_t::HALF;
    const ir::Graph coarse = with_coarse_dbias(graph);
    EXPECT_TRUE(has_dbias(graph));
    EXPECT_EQ(coarse.nodes.size(), graph.nodes.size() + (shared ? 3 : 2));
    Harness exact(graph, {1}), judge(coarse, {1});
    const auto a = exact.reference(), b = judge.reference();
    ASSERT_TRUE(a && b);
    for (size_t t = 0; t < graph.tensors.size(); ++t) {
      if (graph.tensors[t].role != ir::Role::Output) continue;
      const auto &x = (**a)[t].values, &y = (**b)[t].values;
      ASSERT_EQ(x.size(), y.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const double allowed = graph.tensors[t].dim == c.dbias ? 0x1p-24 / *c.scale : 0;  // a step of the least HALFs
        EXPECT_NEAR(x[i].v, y[i].v, 1e-12);
        EXPECT_GE(y[i].e, x[i].e + allowed);
        EXPECT_LE(y[i].e, (x[i].e + allowed) * 4 + std::fabs(x[i].v) * 0x1p-8 * (allowed > 0));
      }
    }
  }
  IrBuilder b;
  b.output(b.pw(PointwiseMode_t::GELU_FWD, {b.input({4})}));
  EXPECT_FALSE(has_dbias(b.graph));
}

TEST(Judges, AllowWhatNotesAdmitAndKeepWhatTheyMade) {
  IrBuilder b;
  const auto x = b.input({1, 8, 16}), w = b.input({1, 16, 8});
  b.output(b.pw(PointwiseMode_t::TANH_FWD, {b.node("matmul", {x, w})[0]}));
  Judges judges(b.graph);
  EXPECT_EQ(&judges.of({"3 kernels"}), &b.graph);
  const ir::Graph& both = judges.of({kTanhNote, kTf32Note});
  EXPECT_EQ(both.nodes.size(), 4u);
  EXPECT_EQ(both.nodes.back().attr<double>("tanh_error"), 0x1p-11);
  EXPECT_EQ(&judges.of({kTf32Note, kTanhNote}), &both);
  EXPECT_EQ(judges.of({kTf32Note}).nodes.back().attr<double>("tanh_error"), 0);
}

}  // namespace
}  // namespace tilewright
