// rmsnorm and its gradients.
#include <gmock/gmock.h>

#include "ops/norm_cases.h"

namespace tilewright {
namespace {

using namespace norm_test;
using testing::HasSubstr;

struct Shape {
  Dims x, scale, statistics;
};
const Shape kShapes[] = {
    {{6, 16, 1, 1}, {1, 16, 1, 1}, {6, 1, 1, 1}},
    {{2, 5, 9, 1}, {1, 1, 9, 1}, {2, 5, 1, 1}},
    {{2, 3, 4, 5}, {1, 3, 4, 5}, {2, 1, 1, 1}},
    {{5, 11}, {1, 11}, {5, 1}},
    {{1, 6, 1}, {1, 6, 1}, {1, 1, 1}},
};

OpGraph forward(const Shape& s, Layout layout, bool bias, DataType_t io, DataType_t compute, const AttrMap& attrs) {
  OpGraph g(io, compute);
  OpGraph::Ports in = {{"X", g.input("X", s.x, strides(layout, s.x))},
                       {"SCALE", g.input("SCALE", s.scale)},
                       {"EPSILON", g.scalar("EPSILON", 1e-3)}};
  if (bias) in.emplace_back("BIAS", g.input("BIAS", s.scale));
  const Status status = g.add("rmsnorm", in, attrs);
  EXPECT_TRUE(status.is_good()) << status.err_msg;
  return g;
}

OpGraph backward(const Shape& s, Layout layout, bool dbias, DataType_t io, DataType_t compute) {
  OpGraph g(io, compute);
  const Status status = g.add("rmsnorm_backward",
                              {{"DY", g.input("DY", s.x)},
                               {"X", g.input("X", s.x, strides(layout, s.x))},
                               {"SCALE", g.input("SCALE", s.scale)},
                               {"INV_VARIANCE", g.input("INV_VARIANCE", s.statistics)}},
                              {{"has_dbias", dbias}});
  EXPECT_TRUE(status.is_good()) << status.err_msg;
  return g;
}

TEST(Rmsnorm, IsTheFormula) {
  for (const Shape& s : kShapes)
    for (Layout layout : kLayouts)
      for (bool with_bias : {false, true}) {
        const OpGraph g = forward(s, layout, with_bias, DataType_t::DOUBLE, DataType_t::DOUBLE, kTraining);
        const Harness h(g.graph, {.seed = 1});
        const Reader x(h, g, g.in("X")), scale(h, g, g.in("SCALE"));
        Statistics stats = statistics(s.x, s.statistics, x, 1e-3, false);
        expect_values(g, h, g.out("INV_VARIANCE"), [&](const Dims& i) { return stats.inv[i]; });
        expect_values(g, h, g.out("Y"), [&](const Dims& i) {
          const long double y = scale(i) * x(i) * stats.inv[masked(i, s.statistics)];
          return with_bias ? y + Reader(h, g, g.in("BIAS"))(i) : y;
        });
      }
}

TEST(Rmsnorm, GradientsAreTheFormula) {
  for (const Shape& s : kShapes)
    for (Layout layout : kLayouts)
      for (bool dbias : {false, true}) {
        OpGraph g = backward(s, layout, dbias, DataType_t::DOUBLE, DataType_t::DOUBLE);
        EXPECT_EQ(g.out("DBIAS") != ir::kNone, dbias);
        const Harness h(g.graph, {.seed = 2});
        expect_gradients(g, h, saved(g, h, false));
      }
}

TEST(Rmsnorm, DecompositionAgrees) {
  for (const Shape& s : kShapes)
    for (bool bias : {false, true})
      for (auto [io, compute] :
           {std::pair(DataType_t::FLOAT, DataType_t::FLOAT), std::pair(DataType_t::BFLOAT16, DataType_t::FLOAT),
            std::pair(DataType_t::DOUBLE, DataType_t::DOUBLE)}) {
        for (const AttrMap& phase : {kTraining, kInference}) {
          const OpGraph g = forward(s, Layout::kRowMajor, bias, io, compute, phase);
          expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 3}).bindings());
        }
        const OpGraph g = backward(s, Layout::kChannelsLast, bias, io, compute);
        expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 4}).bindings());
      }
}

TEST(Rmsnorm, GradientsAreTheDerivatives) {
  expect_numeric_gradients("rmsnorm", "rmsnorm_backward", {3, 6, 1, 1}, {1, 6, 1, 1}, true, 1e-2);
  expect_numeric_gradients("rmsnorm", "rmsnorm_backward", {2, 3, 4, 1}, {1, 1, 4, 1}, false, 1e-2);
}

TEST(Rmsnorm, FillsWhatIsOpen) {
  OpGraph g;
  const Dims x = {4, 8, 2, 2};
  ASSERT_TRUE(g.add("rmsnorm",
                    {{"X", g.input("X", x, channels_last_strides(x))},
                     {"SCALE", g.open_input("SCALE")},
                     {"EPSILON", g.scalar("EPSILON", 1e-5)}},
                    kTraining)
                  .is_good());
  EXPECT_EQ(g[g.out("Y")].stride, channels_last_strides(x));
  EXPECT_EQ(g[g.out("INV_VARIANCE")].dim, (Dims{4, 1, 1, 1}));
  EXPECT_EQ(g[g.in("SCALE")].dim, (Dims{1, 8, 2, 2}));
}

TEST(Rmsnorm, InferenceHasNoStatistics) {
  const OpGraph g = forward(kShapes[0], Layout::kRowMajor, false, DataType_t::FLOAT, DataType_t::FLOAT, kInference);
  EXPECT_EQ(g.out("INV_VARIANCE"), ir::kNone);
}

TEST(RmsnormRules, ScaleMustBroadcast) {
  OpGraph g;
  const Status s =
      g.add("rmsnorm",
            {{"X", g.input("X", {4, 8})}, {"SCALE", g.input("gamma", {1, 7})}, {"EPSILON", g.scalar("EPSILON", 1e-5)}},
            kTraining);
  EXPECT_EQ(s.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(s.err_msg, HasSubstr("rmsnorm \"the rmsnorm\": SCALE \"gamma\" is [1, 7]"));
}

TEST(RmsnormRules, GradientsMatchX) {
  OpGraph g;
  const Status s = g.add("rmsnorm_backward",
                         {{"DY", g.input("dY", {4, 7})},
                          {"X", g.input("X", {4, 8})},
                          {"SCALE", g.input("SCALE", {1, 8})},
                          {"INV_VARIANCE", g.input("INV_VARIANCE", {4, 1})}},
                         {{"has_dbias", false}});
  EXPECT_EQ(s.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(s.err_msg, HasSubstr("DY \"dY\" is [4, 7], [4, 8] is needed"));
}

TEST(RmsnormBounds, StayTightOnLongRows) {
  const OpGraph g =
      forward({{4, 4096}, {1, 4096}, {4, 1}}, Layout::kRowMajor, true, DataType_t::FLOAT, DataType_t::FLOAT, kTraining);
  const auto values = evaluate_reference(g.graph, Harness(g.graph, {.seed = 7}).bindings());
  ASSERT_TRUE(values);
  for (const char* port : {"Y", "INV_VARIANCE"})
    for (const Bounded& b : (*values)[size_t(g.out(port))].values) {
      EXPECT_GT(b.e, 0) << port;
      EXPECT_LT(b.e, 1e-3) << port;
    }
}

}  // namespace
}  // namespace tilewright
