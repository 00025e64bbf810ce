// How graphs are cut into regions, and that the regions' programs mean what the nodes mean.
#include "fuse/regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/numeric_types.h"
#include "layout/view.h"
#include "plan/harness.h"
#include "support/ir_builder.h"

namespace tilewright::testing {
namespace {

using fuse::Anchor;
using fuse::FusedGraph;
using P = PointwiseMode_t;
using R = ReductionMode_t;
using D = DataType_t;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(const FusedGraph& f) {
  std::vector<std::string> list;
  for (const fuse::Region& r : f.regions) list.push_back(r.name);
  return list;
}

// Runs the Rows regions with the plain walker and compares with the reference.
void check_programs(const IrBuilder& b) {
  FusedGraph f = fuse::fuse(b.graph);
  fuse::place_intermediates(f);
  Harness harness(b.graph);
  std::vector<char> workspace(size_t(f.workspace_bytes));
  const auto memory = [&](ir::TensorId t) -> void* {
    return f.place[size_t(t)].workspace >= 0 ? workspace.data() + f.place[size_t(t)].workspace : harness.memory(t);
  };
  for (const fuse::Region& r : f.regions) {
    ASSERT_EQ(r.anchor, Anchor::Rows) << f.text();
    std::vector<std::map<int64_t, double>> totals(r.side.size());  // by element of the output
    fuse::walk(r.program, memory, {}, [&](const int64_t* index, const std::vector<double>& value) {
      for (size_t s = 0; s < r.side.size(); ++s) {
        const fuse::SideReduction& side = r.side[s];
        const auto [at, fresh] = totals[s].emplace(side.out.offset + offset_of(side.out.stride, index), 0);
        if (fresh) at->second = fuse::reduction_start(side.mode);
        at->second =
            fuse::reduction_join(side.mode, at->second, fuse::reduction_element(side.mode, value[size_t(side.value)]));
      }
    });
    for (size_t s = 0; s < r.side.size(); ++s)
      for (const auto& [at, total] : totals[s])
        store_element(memory(r.side[s].out.tensor), r.side[s].out.type, at,
                      fuse::reduction_finish(r.side[s].mode, total, r.side[s].count));
  }
  const Status s = harness.check();
  EXPECT_TRUE(s.is_good()) << s.err_msg << f.text();
}

TEST(Regions, ConvolutionTakesItsEpilogue) {
  IrBuilder b;
  auto y = b.conv("conv_fprop", b.input({2, 8, 9, 9}), b.input({16, 8, 3, 3}), {1, 1}, {1, 1}, {1, 1});
  b.output(b.pw(P::RELU_FWD, {b.pw(P::ADD, {y, b.input({1, 16, 1, 1})})}));
  EXPECT_THAT(names(fuse::fuse(b.graph)), ElementsAre("contraction conv_fprop+add+relu_fwd"));
}

TEST(Regions, MatmulTakesSideReductions) {
  IrBuilder b;
  auto y = b.op("matmul", {b.input({4, 32, 16}), b.input({4, 16, 24})});
  y = b.pw(P::GELU_FWD, {b.pw(P::ADD, {b.pw(P::MUL, {y, b.scalar(2.f, 3)}), b.input({1, 1, 24})})});
  b.output(y);
  b.output(b.reduce(R::AMAX, y, {1, 1, 1}));
  EXPECT_THAT(names(fuse::fuse(b.graph)), ElementsAre("contraction matmul+mul+add+gelu_fwd+reduce_amax"));
}

TEST(Regions, ReductionThatIsReadAgainEndsAnEpilogue) {
  IrBuilder b;
  auto y = b.op("matmul", {b.input({32, 16}), b.input({16, 24})});
  b.output(b.pw(P::SUB, {y, b.reduce(R::MAX, y, {32, 1})}));
  EXPECT_THAT(names(fuse::fuse(b.graph)), ElementsAre("contraction matmul+reduce_max", "map sub"));
}

TEST(Regions, LayernormIsOneLaunch) {
  IrBuilder b;
  auto x = b.input({6, 40, 1, 1});
  auto out = b.node("layernorm", {x, b.input({1, 40, 1, 1}), b.input({1, 40, 1, 1}), b.scalar(1e-5f, 4)},
                    {{"forward_phase", std::string("TRAINING")}});
  for (auto t : out) b.output(t);
  EXPECT_THAT(names(fuse::fuse(b.graph)), ElementsAre("rows layernorm"));
  check_programs(b);
}

TEST(Regions, SoftmaxJoinsWhatComesBefore) {
  IrBuilder b;
  auto x = b.pw(P::MUL, {b.input({2, 3, 8, 16}), b.scalar(0.125f, 4)});
  b.output(b.op("softmax", {x}));
  EXPECT_EQ(fuse::fuse(b.graph).regions.size(), 1u);
  check_programs(b);
}

TEST(Regions, GradientsReduceOverRowsInTheSameLaunch) {
  IrBuilder b;
  auto dy = b.input({6, 40, 1, 1}), x = b.input({6, 40, 1, 1});
  auto out =
      b.node("layernorm_backward", {dy, x, b.input({1, 40, 1, 1}), b.input({6, 1, 1, 1}), b.input({6, 1, 1, 1})});
  for (auto t : out)
    if (t != ir::kNone) b.output(t);
  const FusedGraph f = fuse::fuse(b.graph);
  ASSERT_EQ(f.regions.size(), 1u) << f.text();
  EXPECT_EQ(f.regions[0].side.size(), 2u);
  check_programs(b);
}

TEST(Regions, BiasGradientBesideTheActivations) {
  IrBuilder b;
  auto dx = b.output(b.pw(P::RELU_BWD, {b.input({30, 40}), b.input({30, 40})}));
  b.output(b.reduce(R::ADD, dx, {1, 40}));
  b.output(b.reduce(R::AMAX, dx, {1, 1}));
  const FusedGraph f = fuse::fuse(b.graph);
  EXPECT_THAT(names(f), ElementsAre("rows relu_bwd+reduce_add+reduce_amax"));
  EXPECT_EQ(f.regions[0].side.size(), 1u);
  EXPECT_THAT(f.text(), HasSubstr("fold ADD"));
  check_programs(b);
}

TEST(Regions, AmaxBesideANorm) {
  IrBuilder b;
  auto x = b.input({6, 40, 1, 1});
  auto out = b.node("layernorm", {x, b.input({1, 40, 1, 1}), b.input({1, 40, 1, 1}), b.scalar(1e-5f, 4)},
                    {{"forward_phase", std::string("INFERENCE")}});
  b.output(out[0]);
  b.output(b.reduce(R::AMAX, out[0], {1, 1, 1, 1}));
  const FusedGraph f = fuse::fuse(b.graph);
  EXPECT_EQ(f.regions.size(), 1u) << f.text();
  check_programs(b);
}

TEST(Regions, ReductionsOfDifferentDimsThatAreReadAgainArePutApart) {
  IrBuilder b;
  auto x = b.input({30, 40});
  auto y = b.pw(P::SUB, {x, b.reduce(R::AVG, x, {30, 1})});
  b.output(b.pw(P::MUL, {y, b.reduce(R::MAX, y, {1, 40})}));
  EXPECT_EQ(fuse::fuse(b.graph).regions.size(), 2u) << fuse::fuse(b.graph).text();
  check_programs(b);
}

TEST(Regions, ManyResultsOverOtherDimsAreNoSideReduction) {
  IrBuilder b;
  auto x = b.input({3, 70000});
  b.output(b.pw(P::SUB, {x, b.reduce(R::AVG, x, {3, 1})}));
  b.output(b.reduce(R::ADD, x, {1, 70000}));
  EXPECT_EQ(fuse::fuse(b.graph).regions.size(), 2u);
}

TEST(Regions, NormedOperandIsComputedWhileItIsRead) {
  IrBuilder b;
  auto x = b.input({2, 8, 9, 9});
  auto normed = b.pw(P::RELU_FWD, {b.pw(P::ADD, {b.pw(P::MUL, {x, b.input({1, 8, 1, 1})}), b.input({1, 8, 1, 1})})});
  auto y = b.output(b.conv("conv_fprop", normed, b.input({16, 8, 3, 3}), {1, 1}, {1, 1}, {1, 1}));
  for (auto t : b.node("genstats", {y})) b.output(t);
  const FusedGraph f = fuse::fuse(b.graph);
  ASSERT_EQ(f.regions.size(), 1u) << f.text();
  EXPECT_GT(f.regions[0].operand[0].code.size(), 1u);
  EXPECT_EQ(f.regions[0].side.size(), 2u);
  EXPECT_TRUE(f.notes.empty());
}

TEST(Regions, EpilogueRatherThanPrologueBetweenConvolutions) {
  IrBuilder b;
  auto y = b.conv("conv_fprop", b.input({1, 4, 9, 9}), b.input({4, 4, 3, 3}), {1, 1}, {1, 1}, {1, 1});
  auto z = b.conv("conv_fprop", b.pw(P::RELU_FWD, {y}), b.input({4, 4, 3, 3}), {1, 1}, {1, 1}, {1, 1});
  b.output(z);
  const FusedGraph f = fuse::fuse(b.graph);
  EXPECT_THAT(names(f), ElementsAre("contraction conv_fprop+relu_fwd", "contraction conv_fprop"));
  ASSERT_EQ(f.notes.size(), 1u);
  EXPECT_THAT(f.notes[0], HasSubstr("region 0 makes it, region 1 reads it"));
}

TEST(Regions, StayAcyclic) {
  // relu(x) feeds the matmul and, with its product, the sum: one region of both would wait for itself.
  IrBuilder b;
  auto r = b.output(b.pw(P::RELU_FWD, {b.input({16, 16})}));
  auto y = b.op("matmul", {r, b.input({16, 16})});
  b.output(b.pw(P::ADD, {y, r}));
  EXPECT_THAT(names(fuse::fuse(b.graph)), ElementsAre("map relu_fwd", "contraction matmul+add"));
}

TEST(Regions, SiblingsShareOneLaunch) {
  IrBuilder b;
  auto x = b.input({5, 30}), y = b.input({5, 30});
  b.output(b.pw(P::ADD, {x, y}));
  b.output(b.pw(P::SUB, {x, y}));
  EXPECT_EQ(fuse::fuse(b.graph).regions.size(), 1u);
  EXPECT_EQ(fuse::fuse(b.graph, {.fuse = false}).regions.size(), 2u);
  check_programs(b);
}

TEST(Regions, ViewsOfRealTensorsNeedNoMemory) {
  IrBuilder b;
  auto x = b.input({6, 20, 10});
  auto s = b.op("slice", {x}, {{"slices", Dims{1, 5, 2, 20, 0, 10}}, {"slice_strides", Dims{1, 3, 2}}});
  b.output(b.pw(P::EXP, {b.op("transpose", {s}, {{"permutation", Dims{2, 0, 1}}})}));
  const FusedGraph f = fuse::fuse(b.graph);
  EXPECT_EQ(f.regions.size(), 1u);
  EXPECT_TRUE(f.notes.empty());
  check_programs(b);
}

// No launch beside the first, and nothing in memory between.
void expect_one_launch(const IrBuilder& b) {
  const FusedGraph f = fuse::fuse(b.graph);
  EXPECT_EQ(f.regions.size(), 1u) << f.text();
  EXPECT_TRUE(f.notes.empty()) << f.text();
}

TEST(Regions, OperandsAreReadThroughAViewOfWhatTheyMake) {
  for (const char* op : {"transpose", "slice", "reshape"}) {
    IrBuilder b;
    auto x = b.pw(P::ADD, {b.pw(P::NEG, {b.input({6, 20})}), b.input({20})});
    AttrMap attrs = {{"permutation", Dims{1, 0}}};
    if (op == std::string("slice")) attrs = {{"slices", Dims{1, 5, 2, 20}}, {"slice_strides", Dims{1, 3}}};
    if (op == std::string("reshape")) attrs = {{"dim", Dims{6, 4, 5}}, {"stride", Dims{20, 5, 1}}};
    auto y = b.pw(P::EXP, {b.op(op, {x}, attrs)});
    Dims rows(b.dim(y).size(), 1);
    rows[0] = b.dim(y)[0];
    b.output(b.reduce(R::ADD, y, rows));
    expect_one_launch(b);
    check_programs(b);
  }
}

TEST(Regions, ResultsAreStoredThroughTheViewTurnedAround) {
  for (bool reshaped : {false, true}) {
    IrBuilder b;
    auto x = b.input({2, 6, 20});
    auto softened = b.pw(P::DIV, {x, b.reduce(R::NORM1, x, {2, 6, 1})});
    const Dims dim = reshaped ? Dims{2, 2, 3, 4, 5} : Dims{20, 2, 6};
    auto y = reshaped ? b.op("reshape", {softened}, {{"dim", dim}, {"stride", row_major_strides(dim)}})
                      : b.op("transpose", {softened}, {{"permutation", Dims{2, 0, 1}}});
    auto z = b.output(b.pw(P::MUL, {y, b.input(dim)}), D::HALF);
    b.output(b.pw(P::ADD, {b.pw(P::EXP, {z}), b.input(Dims(dim.size(), 1))}));
    expect_one_launch(b);
    check_programs(b);
  }
}

TEST(Regions, ContractionsWriteThroughViews) {
  IrBuilder b;
  auto c = b.op("matmul", {b.input({3, 16, 8}), b.input({3, 8, 12})});
  auto heads = b.op("reshape", {c}, {{"dim", Dims{3, 16, 4, 3}}, {"stride", Dims{192, 12, 3, 1}}});
  auto t = b.op("transpose", {heads}, {{"permutation", Dims{0, 2, 1, 3}}});
  b.output(b.pw(P::GELU_FWD, {b.pw(P::ADD, {t, b.input({1, 4, 1, 3})})}));
  b.output(b.op("transpose", {c}, {{"permutation", Dims{0, 2, 1}}}));
  expect_one_launch(b);
}

TEST(Regions, WhatIsFoldedBehindAViewIsPutInMemory) {
  IrBuilder b;
  auto c = b.op("matmul", {b.input({16, 8}), b.input({8, 12})});
  auto t = b.op("transpose", {c}, {{"permutation", Dims{1, 0}}});
  b.output(b.reduce(R::MAX, b.pw(P::EXP, {t}), {12, 1}));
  const FusedGraph f = fuse::fuse(b.graph);
  EXPECT_EQ(f.regions.size(), 2u) << f.text();
  ASSERT_EQ(f.notes.size(), 1u);
  EXPECT_THAT(f.notes[0], HasSubstr("is a view of it"));
}

TEST(Regions, IntermediatesShareMemoryWhenTheirLivesDoNotMeet) {
  IrBuilder b;
  auto x = b.input({64, 64});
  for (int i = 0; i < 4; ++i) x = b.op("matmul", {x, b.input({64, 64})});
  b.output(x);
  FusedGraph f = fuse::fuse(b.graph);
  fuse::place_intermediates(f);
  EXPECT_EQ(f.workspace_bytes, 2 * 64 * 64 * 4);
}

TEST(Regions, UnusedNodesAreDropped) {
  IrBuilder b;
  auto x = b.input({4, 4});
  b.pw(P::EXP, {x});
  b.output(b.pw(P::NEG, {x}));
  EXPECT_THAT(names(fuse::fuse(b.graph)), ElementsAre("map neg"));
}

TEST(Regions, TextShowsProgramsWithNames) {
  IrBuilder b;
  auto x = b.input({4, 7});
  b.output(b.pw(P::SUB, {x, b.reduce(R::AVG, x, {4, 1})}));
  const std::string text = fuse::fuse(b.graph).text();
  EXPECT_THAT(text, HasSubstr("region 0: rows reduce_avg+sub"));
  EXPECT_THAT(text, HasSubstr("domain [4, 7], reduced over dim 1, 2 passes"));
  EXPECT_THAT(text, HasSubstr("%1   = reduce AVG %0"));
  EXPECT_THAT(text, HasSubstr("; {0}"));
}

}  // namespace
}  // namespace tilewright::testing
