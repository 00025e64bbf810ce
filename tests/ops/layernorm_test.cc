// layernorm, adalayernorm and their gradients.
#include <gmock/gmock.h>

#include "ops/norm_cases.h"

namespace tilewright {
namespace {

using namespace norm_test;
using testing::HasSubstr;

struct Shape {
  Dims x, scale, statistics;
};
// [T, C, 1, 1], [B, S, H, 1], one value per channel, all but the batch, an extent of one, rank 2 and 3.
const Shape kLayerShapes[] = {
    {{6, 16, 1, 1}, {1, 16, 1, 1}, {6, 1, 1, 1}}, {{2, 5, 9, 1}, {1, 1, 9, 1}, {2, 5, 1, 1}},
    {{2, 3, 4, 5}, {1, 3, 1, 1}, {2, 1, 4, 5}},   {{2, 3, 4, 5}, {1, 3, 4, 5}, {2, 1, 1, 1}},
    {{1, 7, 1, 1}, {1, 7, 1, 1}, {1, 1, 1, 1}},   {{5, 11}, {1, 11}, {5, 1}},
    {{2, 3, 13}, {1, 1, 13}, {2, 3, 1}},          {{4, 1, 3, 1}, {1, 1, 1, 1}, {4, 1, 3, 1}},
};
const Shape kAdaShapes[] = {
    {{3, 4, 8, 1}, {3, 1, 8, 1}, {3, 4, 1, 1}},
    {{3, 4, 8, 1}, {1, 1, 8, 1}, {3, 4, 1, 1}},
    {{2, 6, 1, 1}, {2, 6, 1, 1}, {2, 1, 1, 1}},
    {{2, 3, 4, 5}, {2, 3, 4, 5}, {2, 1, 1, 1}},
};

struct Kind {
  const char *forward, *backward;
  std::vector<Shape> shapes;
};
std::vector<Kind> kinds() {
  return {{"layernorm", "layernorm_backward", {std::begin(kLayerShapes), std::end(kLayerShapes)}},
          {"adalayernorm", "adalayernorm_backward", {std::begin(kAdaShapes), std::end(kAdaShapes)}}};
}

OpGraph forward(const Kind& kind, const Shape& s, Layout layout, DataType_t io, DataType_t compute,
                const AttrMap& attrs = kTraining) {
  OpGraph g(io, compute);
  const Status status = g.add(kind.forward,
                              {{"X", g.input("X", s.x, strides(layout, s.x))},
                               {"SCALE", g.input("SCALE", s.scale)},
                               {"BIAS", g.input("BIAS", s.scale)},
                               {"EPSILON", g.scalar("EPSILON", 1e-3)}},
                              attrs);
  EXPECT_TRUE(status.is_good()) << status.err_msg;
  return g;
}

OpGraph backward(const Kind& kind, const Shape& s, Layout layout, DataType_t io, DataType_t compute) {
  OpGraph g(io, compute);
  const Status status = g.add(kind.backward, {{"DY", g.input("DY", s.x)},
                                              {"X", g.input("X", s.x, strides(layout, s.x))},
                                              {"SCALE", g.input("SCALE", s.scale)},
                                              {"MEAN", g.input("MEAN", s.statistics)},
                                              {"INV_VARIANCE", g.input("INV_VARIANCE", s.statistics)}});
  EXPECT_TRUE(status.is_good()) << status.err_msg;
  return g;
}

TEST(Layernorm, IsTheFormula) {
  for (const Kind& kind : kinds())
    for (const Shape& s : kind.shapes)
      for (Layout layout : kLayouts) {
        const OpGraph g = forward(kind, s, layout, DataType_t::DOUBLE, DataType_t::DOUBLE);
        const Harness h(g.graph, {.seed = 1});
        const Reader x(h, g, g.in("X")), scale(h, g, g.in("SCALE")), bias(h, g, g.in("BIAS"));
        Statistics stats = statistics(s.x, s.statistics, x, 1e-3);
        EXPECT_EQ(g[g.out("MEAN")].dim, s.statistics);
        expect_values(g, h, g.out("MEAN"), [&](const Dims& i) { return stats.mean[i]; });
        expect_values(g, h, g.out("INV_VARIANCE"), [&](const Dims& i) { return stats.inv[i]; });
        expect_values(g, h, g.out("Y"), [&](const Dims& i) {
          const Dims k = masked(i, s.statistics);
          return scale(i) * (x(i) - stats.mean[k]) * stats.inv[k] + bias(i);
        });
      }
}

TEST(Layernorm, GradientsAreTheFormula) {
  for (const Kind& kind : kinds())
    for (const Shape& s : kind.shapes)
      for (Layout layout : kLayouts) {
        OpGraph g = backward(kind, s, layout, DataType_t::DOUBLE, DataType_t::DOUBLE);
        const Harness h(g.graph, {.seed = 2});
        expect_gradients(g, h, saved(g, h));
      }
}

TEST(Layernorm, DecompositionAgrees) {
  for (const Kind& kind : kinds())
    for (const Shape& s : kind.shapes)
      for (auto [io, compute] :
           {std::pair(DataType_t::FLOAT, DataType_t::FLOAT), std::pair(DataType_t::HALF, DataType_t::FLOAT),
            std::pair(DataType_t::BFLOAT16, DataType_t::FLOAT), std::pair(DataType_t::DOUBLE, DataType_t::DOUBLE)}) {
        for (const AttrMap& phase : {kTraining, kInference}) {
          const OpGraph g = forward(kind, s, Layout::kRowMajor, io, compute, phase);
          expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 3}).bindings());
        }
        const OpGraph g = backward(kind, s, Layout::kChannelsLast, io, compute);
        expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 4}).bindings());
      }
}

TEST(Layernorm, GradientsAreTheDerivatives) {
  expect_numeric_gradients("layernorm", "layernorm_backward", {3, 6, 1, 1}, {1, 6, 1, 1}, true, 1e-2);
  expect_numeric_gradients("layernorm", "layernorm_backward", {2, 3, 4, 1}, {1, 1, 4, 1}, true, 1e-2);
  expect_numeric_gradients("adalayernorm", "adalayernorm_backward", {2, 3, 5, 1}, {2, 1, 5, 1}, true, 1e-2);
}

TEST(Layernorm, FillsWhatIsOpen) {
  OpGraph g;
  const Dims x = {4, 8, 2, 2};
  ASSERT_TRUE(g.add("layernorm",
                    {{"X", g.input("X", x, channels_last_strides(x))},
                     {"SCALE", g.open_input("SCALE")},
                     {"BIAS", g.open_input("BIAS")},
                     {"EPSILON", g.scalar("EPSILON", 1e-5)}},
                    kTraining)
                  .is_good());
  EXPECT_EQ(g[g.in("SCALE")].dim, (Dims{1, 8, 2, 2}));
  EXPECT_EQ(g[g.in("SCALE")].stride, channels_last_strides({1, 8, 2, 2}));
  EXPECT_EQ(g[g.in("BIAS")].dim, (Dims{1, 8, 2, 2}));
  EXPECT_EQ(g[g.out("Y")].stride, channels_last_strides(x));
  EXPECT_EQ(g[g.out("MEAN")].dim, (Dims{4, 1, 1, 1}));
}

TEST(Layernorm, KeepsThePaddedStridesOfX) {
  OpGraph g;
  const Dims x = {4, 8, 1, 1}, stride = {12, 1, 8, 8};
  ASSERT_TRUE(g.add("layernorm",
                    {{"X", g.input("X", x, stride)},
                     {"SCALE", g.input("SCALE", {1, 8, 1, 1})},
                     {"BIAS", g.input("BIAS", {1, 8, 1, 1})},
                     {"EPSILON", g.scalar("EPSILON", 1e-5)}},
                    kInference)
                  .is_good());
  EXPECT_EQ(g[g.out("Y")].stride, stride);
  EXPECT_EQ(g.out("MEAN"), ir::kNone);
  EXPECT_EQ(g.out("INV_VARIANCE"), ir::kNone);
}

TEST(Layernorm, DoesNotWriteThroughABroadcastX) {
  OpGraph g;
  ASSERT_TRUE(g.add("layernorm",
                    {{"X", g.input("X", {4, 8}, {0, 1})},
                     {"SCALE", g.input("SCALE", {1, 8})},
                     {"BIAS", g.input("BIAS", {1, 8})},
                     {"EPSILON", g.scalar("EPSILON", 1e-5)}},
                    kInference)
                  .is_good());
  EXPECT_FALSE(self_overlaps(g[g.out("Y")].view()));
}

TEST(LayernormBackward, FillsWhatIsOpen) {
  OpGraph g;
  const Dims x = {4, 8, 2, 2};
  ASSERT_TRUE(g.add("layernorm_backward", {{"DY", g.open_input("DY")},
                                           {"X", g.input("X", x)},
                                           {"SCALE", g.open_input("SCALE")},
                                           {"MEAN", g.open_input("MEAN")},
                                           {"INV_VARIANCE", g.open_input("INV_VARIANCE")}})
                  .is_good());
  for (const char* port : {"DX", "DSCALE", "DBIAS"})
    EXPECT_EQ(g[g.out(port)].stride, channels_last_strides(g[g.out(port)].dim)) << port;
  EXPECT_EQ(g[g.in("DY")].dim, x);
  EXPECT_EQ(g[g.out("DX")].dim, x);
  EXPECT_EQ(g[g.out("DSCALE")].dim, (Dims{1, 8, 2, 2}));
  EXPECT_EQ(g[g.out("DBIAS")].dim, (Dims{1, 8, 2, 2}));
  EXPECT_EQ(g[g.in("MEAN")].dim, (Dims{4, 1, 1, 1}));
}

TEST(AdalayernormBackward, IsRowMajorWithGradientsPerSample) {
  OpGraph g;
  ASSERT_TRUE(g.add("adalayernorm_backward", {{"DY", g.open_input("DY")},
                                              {"X", g.input("X", {3, 4, 8, 1})},
                                              {"SCALE", g.input("SCALE", {3, 1, 8, 1})},
                                              {"MEAN", g.open_input("MEAN")},
                                              {"INV_VARIANCE", g.open_input("INV_VARIANCE")}})
                  .is_good());
  EXPECT_EQ(g[g.out("DSCALE")].dim, (Dims{3, 1, 8, 1}));
  EXPECT_EQ(g[g.out("DBIAS")].dim, (Dims{3, 1, 8, 1}));
  EXPECT_EQ(g[g.out("DX")].stride, row_major_strides({3, 4, 8, 1}));
  EXPECT_EQ(g[g.in("MEAN")].dim, (Dims{3, 4, 1, 1}));
}

Status layernorm_status(const Dims& x, const Dims& scale, const Dims& bias, const AttrMap& attrs) {
  OpGraph g;
  return g.add("layernorm",
               {{"X", g.input("X", x)},
                {"SCALE", g.input("gamma", scale)},
                {"BIAS", g.input("beta", bias)},
                {"EPSILON", g.scalar("EPSILON", 1e-5)}},
               attrs);
}

TEST(LayernormRules, ScaleMustBroadcast) {
  const Status s = layernorm_status({4, 8, 1, 1}, {1, 6, 1, 1}, {1, 8, 1, 1}, kTraining);
  EXPECT_EQ(s.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(s.err_msg, HasSubstr("layernorm \"the layernorm\": SCALE \"gamma\" is [1, 6, 1, 1]"));
  EXPECT_THAT(s.err_msg, HasSubstr("X, which is [4, 8, 1, 1]"));
}

TEST(LayernormRules, BiasMustBroadcast) {
  const Status s = layernorm_status({4, 8, 1, 1}, {1, 8, 1, 1}, {1, 8, 2, 1}, kTraining);
  EXPECT_EQ(s.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(s.err_msg, HasSubstr("BIAS \"beta\" is [1, 8, 2, 1]"));
}

TEST(LayernormRules, ScaleHasTheRankOfX) {
  const Status s = layernorm_status({4, 8, 1, 1}, {8}, {1, 8, 1, 1}, kTraining);
  EXPECT_EQ(s.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(s.err_msg, HasSubstr("SCALE \"gamma\" is [8]"));
}

TEST(LayernormRules, PhaseMustBeSet) {
  for (const AttrMap& attrs : {AttrMap{}, AttrMap{{"forward_phase", std::string("NOT_SET")}}}) {
    const Status s = layernorm_status({4, 8, 1, 1}, {1, 8, 1, 1}, {1, 8, 1, 1}, attrs);
    EXPECT_EQ(s.code, error_code_t::ATTRIBUTE_NOT_SET);
    EXPECT_THAT(s.err_msg, HasSubstr("forward_phase"));
  }
}

TEST(LayernormRules, EpsilonIsOneElement) {
  OpGraph g;
  const Status s = g.add("layernorm",
                         {{"X", g.input("X", {4, 8})},
                          {"SCALE", g.input("SCALE", {1, 8})},
                          {"BIAS", g.input("BIAS", {1, 8})},
                          {"EPSILON", g.input("eps", {1, 8})}},
                         kTraining);
  EXPECT_EQ(s.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(s.err_msg, HasSubstr("EPSILON \"eps\" is [1, 8]"));
}

TEST(LayernormRules, XNeedsTwoDims) {
  const Status s = layernorm_status({8}, {8}, {8}, kTraining);
  EXPECT_EQ(s.code, error_code_t::SHAPE_DEDUCTION_FAILED);
  EXPECT_THAT(s.err_msg, HasSubstr("X \"X\" has dims [8]"));
}

TEST(LayernormRules, SavedStatisticsMustFit) {
  OpGraph g;
  const Status s = g.add("layernorm_backward", {{"DY", g.input("DY", {4, 8})},
                                                {"X", g.input("X", {4, 8})},
                                                {"SCALE", g.input("SCALE", {1, 8})},
                                                {"MEAN", g.input("mu", {1, 8})},
                                                {"INV_VARIANCE", g.input("rstd", {4, 1})}});
  EXPECT_EQ(s.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(s.err_msg, HasSubstr("MEAN \"mu\" is [1, 8], [4, 1] is needed"));
}

// A long row has a useful bound: its variance is not sensitive to the error of its mean.
TEST(LayernormBounds, StayTightOnLongRows) {
  OpGraph g;
  ASSERT_TRUE(g.add("layernorm",
                    {{"X", g.input("X", {4, 4096})},
                     {"SCALE", g.input("SCALE", {1, 4096})},
                     {"BIAS", g.input("BIAS", {1, 4096})},
                     {"EPSILON", g.scalar("EPSILON", 1e-5)}},
                    kTraining)
                  .is_good());
  const auto values = evaluate_reference(g.graph, Harness(g.graph, {.seed = 7}).bindings());
  ASSERT_TRUE(values);
  for (const char* port : {"Y", "MEAN", "INV_VARIANCE"}) {
    double worst = 0;
    for (const Bounded& b : (*values)[size_t(g.out(port))].values) worst = std::max(worst, b.e);
    EXPECT_GT(worst, 0) << port;
    EXPECT_LT(worst, 1e-3) << port;
  }
}

// Equal elements have variance 0; the sums' rounding must not make the bound of 1 / sqrt(variance + epsilon) infinite.
TEST(LayernormBounds, ConstantRowsAreBounded) {
  OpGraph g;
  ASSERT_TRUE(g.add("layernorm",
                    {{"X", g.input("X", {2, 64}, {1, 0})},
                     {"SCALE", g.input("SCALE", {1, 64})},
                     {"BIAS", g.input("BIAS", {1, 64})},
                     {"EPSILON", g.scalar("EPSILON", 1e-3)}},
                    kTraining)
                  .is_good());
  const auto values = evaluate_reference(g.graph, Harness(g.graph, {.seed = 8}).bindings());
  ASSERT_TRUE(values);
  for (const Bounded& b : (*values)[size_t(g.out("Y"))].values) EXPECT_LT(b.e, 1e-2);
}

// A known case: 3 rows of 8, the numbers of a calculation in double precision elsewhere.
TEST(Layernorm, KnownNumbers) {
  OpGraph g;
  const Dims x = {3, 8, 1, 1}, row = {1, 8, 1, 1};
  ASSERT_TRUE(g.add("layernorm",
                    {{"X", g.input("X", x)},
                     {"SCALE", g.input("SCALE", row)},
                     {"BIAS", g.input("BIAS", row)},
                     {"EPSILON", g.scalar("EPSILON", 1e-3)}},
                    kTraining)
                  .is_good());
  const ir::TensorId x_id = g.in("X"), scale_id = g.in("SCALE"), bias_id = g.in("BIAS");
  const ir::TensorId y_id = g.out("Y"), mean_id = g.out("MEAN"), inv_id = g.out("INV_VARIANCE");
  const ir::TensorId dy_id = g.input("DY", x);
  const ir::TensorId saved_mean = g.input("saved mean", {3, 1, 1, 1}), saved_inv = g.input("saved inv", {3, 1, 1, 1});
  ASSERT_TRUE(
      g.add("layernorm_backward",
            {{"DY", dy_id}, {"X", x_id}, {"SCALE", scale_id}, {"MEAN", saved_mean}, {"INV_VARIANCE", saved_inv}})
          .is_good());
  Harness h(g.graph, {.fill = Fill::None});
  const auto fill = [&](ir::TensorId id, auto value) {
    float* p = static_cast<float*>(h.memory(id));
    for (int64_t i = 0; i < volume(g[id].dim); ++i) p[i] = float(value(i));
  };
  const double w[] = {.5, 1, 1.5, 2, -1, .25, 3, -.5};
  fill(x_id, [](int64_t i) { return double((5 * i + 3) % 17 - 8) / 8; });
  fill(dy_id, [](int64_t i) { return double((13 * i + 3) % 17 - 8) / 8; });
  fill(scale_id, [&](int64_t i) { return w[i]; });
  fill(bias_id, [](int64_t i) { return 0.1 * double(i); });
  const double mean[] = {-0.03125, -0.078125, 0.140625}, inv[] = {1.6329421, 1.7648234, 1.54179};
  fill(saved_mean, [&](int64_t i) { return mean[i]; });
  fill(saved_inv, [&](int64_t i) { return inv[i]; });
  h.inputs_changed();
  const auto values = evaluate_reference(g.graph, h.bindings());
  ASSERT_TRUE(values);
  const auto at = [&](ir::TensorId id) -> const std::vector<Bounded>& { return (*values)[size_t(id)].values; };
  const auto sum = [&](ir::TensorId id, auto term) {
    double s = 0;
    for (const Bounded& b : at(id)) s += term(b.v);
    return s;
  };
  const auto same = [](double v) { return v; };
  const auto magnitude = [](double v) { return std::fabs(v); };
  // The numbers are printed with 9 digits; the bias 0.1 i is rounded to FLOAT here.
  EXPECT_NEAR(sum(y_id, same), 11.5750624, 1e-6);
  EXPECT_NEAR(sum(y_id, magnitude), 26.2085009, 1e-6);
  EXPECT_NEAR(sum(y_id, [](double v) { return v > 0 ? v : 0; }), 18.8917817, 1e-6);
  EXPECT_EQ(sum(y_id, [](double v) { return v > 0 ? 1 : 0; }), 17);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(at(mean_id)[i].v, mean[i]);
    EXPECT_NEAR(at(inv_id)[i].v, inv[i], 1e-7);
  }
  const ir::TensorId dx = g.out("DX");
  EXPECT_NEAR(sum(dx, same), 0, 1e-6);
  EXPECT_NEAR(sum(dx, magnitude), 24.7413172, 2e-6);
  EXPECT_NEAR(at(dx).front().v, -0.429414617, 1e-6);
  EXPECT_NEAR(at(dx).back().v, -0.083279762, 1e-6);
  const double dscale[] = {0.3300132, -0.4900075, -0.5703106, 0.3527208, -0.0764691, 0.857958, 0.2326847, 0.9495857};
  const double dbias[] = {-1.125, -0.5, 2.25, 0.75, -0.75, -2.25, 0.5, 1.125};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(at(g.out("DSCALE"))[i].v, dscale[i], 1e-6);
    EXPECT_EQ(at(g.out("DBIAS"))[i].v, dbias[i]);
  }
}

}  // namespace
}  // namespace tilewright
