// batchnorm (training, inference, gradients) and the ops that it is made of in pieces: genstats, bn_finalize,
// dbn_weight.
#include <gmock/gmock.h>

#include "ops/norm_cases.h"

namespace tilewright {
namespace {

using namespace norm_test;
using testing::HasSubstr;

const Dims kShapes[] = {{4, 3, 2, 5}, {9, 4}, {2, 3, 8}, {2, 2, 2, 3, 2}, {1, 5, 3, 1}};
constexpr std::pair<DataType_t, DataType_t> kTypes[] = {{DataType_t::FLOAT, DataType_t::FLOAT},
                                                        {DataType_t::HALF, DataType_t::FLOAT},
                                                        {DataType_t::BFLOAT16, DataType_t::FLOAT},
                                                        {DataType_t::DOUBLE, DataType_t::DOUBLE}};

Dims channels(const Dims& x) {
  Dims d(x.size(), 1);
  d[1] = x[1];
  return d;
}

OpGraph training(const Dims& x, Layout layout, bool running, DataType_t io, DataType_t compute) {
  OpGraph g(io, compute);
  OpGraph::Ports in = {{"X", g.input("X", x, strides(layout, x))},
                       {"SCALE", g.input("SCALE", channels(x))},
                       {"BIAS", g.input("BIAS", channels(x))},
                       {"EPSILON", g.scalar("EPSILON", 1e-3)}};
  if (running) {
    in.emplace_back("PREV_RUNNING_MEAN", g.input("PREV_RUNNING_MEAN", channels(x)));
    in.emplace_back("PREV_RUNNING_VAR", g.input("PREV_RUNNING_VAR", channels(x)));
    in.emplace_back("MOMENTUM", g.scalar("MOMENTUM", 0.1));
  }
  const Status s = g.add("batchnorm", in);
  EXPECT_TRUE(s.is_good()) << s.err_msg;
  return g;
}

// next = (1 - momentum) * previous + momentum * batch, the variance unbiased.
void expect_running(const OpGraph& g, const Harness& h, Statistics& stats, long double momentum) {
  const Reader mean(h, g, g.in("PREV_RUNNING_MEAN")), variance(h, g, g.in("PREV_RUNNING_VAR"));
  expect_values(g, h, g.out("NEXT_RUNNING_MEAN"),
                [&](const Dims& i) { return (1 - momentum) * mean(i) + momentum * stats.mean[i]; });
  const long double unbiased = stats.n > 1 ? stats.n / (stats.n - 1) : 1;
  expect_values(g, h, g.out("NEXT_RUNNING_VAR"),
                [&](const Dims& i) { return (1 - momentum) * variance(i) + momentum * stats.variance[i] * unbiased; });
}

TEST(Batchnorm, IsTheFormula) {
  for (const Dims& dims : kShapes)
    for (Layout layout : kLayouts) {
      const OpGraph g = training(dims, layout, true, DataType_t::DOUBLE, DataType_t::DOUBLE);
      const Harness h(g.graph, {.seed = 1});
      const Reader x(h, g, g.in("X")), scale(h, g, g.in("SCALE")), bias(h, g, g.in("BIAS"));
      Statistics stats = statistics(dims, channels(dims), x, 1e-3);
      expect_values(g, h, g.out("MEAN"), [&](const Dims& i) { return stats.mean[i]; });
      expect_values(g, h, g.out("INV_VARIANCE"), [&](const Dims& i) { return stats.inv[i]; });
      expect_values(g, h, g.out("Y"), [&](const Dims& i) {
        const Dims k = masked(i, stats.dim);
        return scale(i) * (x(i) - stats.mean[k]) * stats.inv[k] + bias(i);
      });
      expect_running(g, h, stats, 0.1L);
    }
}

TEST(Batchnorm, OneElementPerChannelHasAFiniteRunningVariance) {
  const OpGraph g = training({1, 3, 1, 1}, Layout::kRowMajor, true, DataType_t::FLOAT, DataType_t::FLOAT);
  const Harness h(g.graph, {.seed = 1});
  Statistics stats = statistics({1, 3, 1, 1}, {1, 3, 1, 1}, Reader(h, g, g.in("X")), 1e-3);
  expect_running(g, h, stats, 0.1L);
  expect_decomposition_agrees(g.graph, h.bindings());
}

TEST(Batchnorm, RunningStatisticsAreOptional) {
  const OpGraph g = training(kShapes[0], Layout::kRowMajor, false, DataType_t::FLOAT, DataType_t::FLOAT);
  EXPECT_EQ(g.out("NEXT_RUNNING_MEAN"), ir::kNone);
  EXPECT_EQ(g.out("NEXT_RUNNING_VAR"), ir::kNone);
  EXPECT_NE(g.out("MEAN"), ir::kNone);
  expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 2}).bindings());
}

TEST(Batchnorm, DecompositionAgrees) {
  for (const Dims& x : kShapes)
    for (auto [io, compute] : kTypes) {
      const OpGraph g = training(x, Layout::kChannelsLast, true, io, compute);
      expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 3}).bindings());
    }
}

TEST(Batchnorm, FillsWhatIsOpen) {
  OpGraph g;
  const Dims x = {2, 3, 4, 5};
  ASSERT_TRUE(g.add("batchnorm", {{"X", g.input("X", x)},
                                  {"SCALE", g.open_input("SCALE")},
                                  {"BIAS", g.open_input("BIAS")},
                                  {"EPSILON", g.scalar("EPSILON", 1e-5)},
                                  {"PREV_RUNNING_MEAN", g.open_input("PREV_RUNNING_MEAN")},
                                  {"PREV_RUNNING_VAR", g.open_input("PREV_RUNNING_VAR")},
                                  {"MOMENTUM", g.scalar("MOMENTUM", 0.1)}})
                  .is_good());
  for (const char* port : {"SCALE", "BIAS", "PREV_RUNNING_MEAN", "PREV_RUNNING_VAR"}) {
    EXPECT_EQ(g[g.in(port)].dim, channels(x)) << port;
    EXPECT_EQ(g[g.in(port)].stride, channels_last_strides(channels(x))) << port;
  }
  for (const char* port : {"MEAN", "INV_VARIANCE", "NEXT_RUNNING_MEAN", "NEXT_RUNNING_VAR"})
    EXPECT_EQ(g[g.out(port)].dim, channels(x)) << port;
  EXPECT_EQ(g[g.out("Y")].stride, row_major_strides(x));
}

TEST(BatchnormRules, RunningStatisticsComeTogether) {
  OpGraph g;
  const Dims x = {2, 3, 4, 5};
  const Status s = g.add("batchnorm", {{"X", g.input("X", x)},
                                       {"SCALE", g.open_input("SCALE")},
                                       {"BIAS", g.open_input("BIAS")},
                                       {"EPSILON", g.scalar("EPSILON", 1e-5)},
                                       {"PREV_RUNNING_MEAN", g.open_input("PREV_RUNNING_MEAN")},
                                       {"MOMENTUM", g.scalar("MOMENTUM", 0.1)}});
  EXPECT_EQ(s.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(s.err_msg, HasSubstr("PREV_RUNNING_VAR is not set"));
}

TEST(BatchnormRules, ParametersArePerChannel) {
  OpGraph g;
  const Dims x = {2, 3, 4, 5};
  const Status s = g.add("batchnorm", {{"X", g.input("X", x)},
                                       {"SCALE", g.input("gamma", {1, 3, 4, 5})},
                                       {"BIAS", g.open_input("BIAS")},
                                       {"EPSILON", g.scalar("EPSILON", 1e-5)}});
  EXPECT_EQ(s.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(s.err_msg, HasSubstr("SCALE \"gamma\" is [1, 3, 4, 5], [1, 3, 1, 1] is needed"));
}

// --- inference -------------------------------------------------------------------------------------------------------

OpGraph inference(const Dims& x, Layout layout, DataType_t io, DataType_t compute) {
  OpGraph g(io, compute);
  const Status s = g.add("batchnorm_inference", {{"X", g.input("X", x, strides(layout, x))},
                                                 {"MEAN", g.input("MEAN", channels(x))},
                                                 {"INV_VARIANCE", g.input("INV_VARIANCE", channels(x))},
                                                 {"SCALE", g.input("SCALE", channels(x))},
                                                 {"BIAS", g.input("BIAS", channels(x))}});
  EXPECT_TRUE(s.is_good()) << s.err_msg;
  return g;
}

TEST(BatchnormInference, IsTheFormula) {
  for (const Dims& dims : kShapes)
    for (Layout layout : kLayouts) {
      const OpGraph g = inference(dims, layout, DataType_t::DOUBLE, DataType_t::DOUBLE);
      const Harness h(g.graph, {.seed = 1});
      const Reader x(h, g, g.in("X")), mean(h, g, g.in("MEAN")), inv(h, g, g.in("INV_VARIANCE"));
      const Reader scale(h, g, g.in("SCALE")), bias(h, g, g.in("BIAS"));
      expect_values(g, h, g.out("Y"), [&](const Dims& i) { return scale(i) * (x(i) - mean(i)) * inv(i) + bias(i); });
    }
}

TEST(BatchnormInference, DecompositionAgrees) {
  for (const Dims& x : kShapes)
    for (auto [io, compute] : kTypes) {
      const OpGraph g = inference(x, Layout::kChannelsLast, io, compute);
      expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 3}).bindings());
    }
}

// More than 65535 samples, which a launch grid's second dim cannot count. All numbers are exact in FLOAT.
TEST(BatchnormInference, ManySamples) {
  const Dims x = {65540, 16, 1, 1};
  const OpGraph g = inference(x, Layout::kRowMajor, DataType_t::FLOAT, DataType_t::FLOAT);
  Harness h(g.graph, {.fill = Fill::None});
  const auto fill = [&](const char* port, auto value) {
    float* p = static_cast<float*>(h.memory(g.in(port)));
    for (int64_t i = 0; i < volume(g[g.in(port)].dim); ++i) p[i] = float(value(i));
  };
  fill("X", [](int64_t i) { return double((5 * i + 3) % 17 - 8) / 8; });
  fill("MEAN", [](int64_t c) { return double(c - 8) / 8; });
  fill("INV_VARIANCE", [](int64_t c) { return 1 + double(c) / 16; });
  fill("SCALE", [](int64_t c) { return double(c % 5 - 2) / 2; });
  fill("BIAS", [](int64_t c) { return double(c) / 4; });
  h.inputs_changed();
  const auto values = *evaluate_reference(g.graph, h.bindings());
  const auto& y = values[size_t(g.out("Y"))].values;
  double sum = 0, magnitude = 0;
  for (const Bounded& b : y) sum += b.v, magnitude += std::fabs(b.v);
  EXPECT_NEAR(sum, 1908339.74, 0.005);
  EXPECT_NEAR(magnitude, 2084174.77, 0.005);
  EXPECT_EQ(y.front().v, -0.375);
  EXPECT_EQ(y.back().v, 5.6875);
  const double row[] = {-1.875, 0.1171875, 0.5, 1.4921875};
  for (size_t c = 0; c < 4; ++c) EXPECT_EQ(y[65536 * 16 + c].v, row[c]);
}

// --- gradients -------------------------------------------------------------------------------------------------------

OpGraph backward(const Dims& x, Layout layout, bool with_saved, DataType_t io, DataType_t compute) {
  OpGraph g(io, compute);
  OpGraph::Ports in = {
      {"DY", g.input("DY", x)}, {"X", g.input("X", x, strides(layout, x))}, {"SCALE", g.input("SCALE", channels(x))}};
  if (with_saved) {
    in.emplace_back("MEAN", g.input("MEAN", channels(x)));
    in.emplace_back("INV_VARIANCE", g.input("INV_VARIANCE", channels(x)));
  }
  const Status s = g.add("batchnorm_backward", in);
  EXPECT_TRUE(s.is_good()) << s.err_msg;
  return g;
}

TEST(BatchnormBackward, IsTheFormula) {
  for (const Dims& x : kShapes)
    for (Layout layout : kLayouts) {
      OpGraph g = backward(x, layout, true, DataType_t::DOUBLE, DataType_t::DOUBLE);
      const Harness h(g.graph, {.seed = 2});
      expect_gradients(g, h, saved(g, h));
    }
}

TEST(BatchnormBackward, FindsTheStatisticsItself) {
  for (const Dims& x : kShapes) {
    OpGraph g = backward(x, Layout::kPadded, false, DataType_t::DOUBLE, DataType_t::DOUBLE);
    const Harness h(g.graph, {.seed = 2});
    expect_gradients(g, h, statistics(x, channels(x), Reader(h, g, g.in("X")), 0));
    expect_decomposition_agrees(g.graph, h.bindings());
  }
}

TEST(BatchnormBackward, DecompositionAgrees) {
  for (const Dims& x : kShapes)
    for (auto [io, compute] : kTypes) {
      const OpGraph g = backward(x, Layout::kChannelsLast, true, io, compute);
      expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 3}).bindings());
    }
}

TEST(BatchnormBackward, IsTheDerivative) {
  expect_numeric_gradients("batchnorm", "batchnorm_backward", {3, 2, 2, 2}, {1, 2, 1, 1}, true, 1e-2);
}

TEST(BatchnormBackward, FillsWhatIsOpen) {
  OpGraph g;
  const Dims x = {2, 3, 4, 5};
  ASSERT_TRUE(g.add("batchnorm_backward",
                    {{"DY", g.open_input("DY")}, {"X", g.input("X", x)}, {"SCALE", g.open_input("SCALE")}})
                  .is_good());
  EXPECT_EQ(g[g.out("DX")].stride, channels_last_strides(x));
  EXPECT_EQ(g[g.out("DSCALE")].dim, channels(x));
  EXPECT_EQ(g[g.out("DBIAS")].dim, channels(x));
}

TEST(BatchnormBackwardRules, SavedStatisticsComeTogether) {
  OpGraph g;
  const Dims x = {2, 3, 4, 5};
  const Status s = g.add("batchnorm_backward", {{"DY", g.input("DY", x)},
                                                {"X", g.input("X", x)},
                                                {"SCALE", g.open_input("SCALE")},
                                                {"MEAN", g.open_input("MEAN")}});
  EXPECT_EQ(s.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(s.err_msg, HasSubstr("INV_VARIANCE is not set, though MEAN is"));
}

TEST(BatchnormBounds, StayTightOnLongChannels) {
  for (bool with_saved : {true, false}) {
    const OpGraph g = backward({16, 2, 16, 16}, Layout::kRowMajor, with_saved, DataType_t::FLOAT, DataType_t::FLOAT);
    const auto values = evaluate_reference(g.graph, Harness(g.graph, {.seed = 7}).bindings());
    ASSERT_TRUE(values);
    for (const Bounded& b : (*values)[size_t(g.out("DX"))].values) EXPECT_LT(b.e, 5e-3);
  }
}

// --- in pieces -------------------------------------------------------------------------------------------------------

TEST(Genstats, IsTheFormula) {
  for (const Dims& dims : kShapes)
    for (auto [io, compute] : kTypes)
      for (Layout layout : kLayouts) {
        OpGraph g(io, compute);
        ASSERT_TRUE(g.add("genstats", {{"X", g.input("X", dims, strides(layout, dims))}}).is_good());
        EXPECT_EQ(g[g.out("SUM")].dim, channels(dims));
        EXPECT_EQ(g[g.out("SQ_SUM")].stride, channels_last_strides(channels(dims)));
        const Harness h(g.graph, {.seed = 1});
        const Reader x(h, g, g.in("X"));
        ByIndex sum = sums(dims, channels(dims), x);
        ByIndex square = sums(dims, channels(dims), [&](const Dims& i) { return x(i) * x(i); });
        expect_values(g, h, g.out("SUM"), [&](const Dims& i) { return sum[i]; });
        expect_values(g, h, g.out("SQ_SUM"), [&](const Dims& i) { return square[i]; });
        expect_decomposition_agrees(g.graph, h.bindings());
      }
}

OpGraph finalize(DataType_t io, DataType_t compute, bool running) {
  OpGraph g(io, compute);
  const Dims c = {1, 5, 1, 1};
  OpGraph::Ports in = {{"SUM", g.input("SUM", c)},
                       {"SQ_SUM", g.input("SQ_SUM", c)},
                       {"SCALE", g.input("SCALE", c)},
                       {"BIAS", g.input("BIAS", c)},
                       {"EPSILON", g.scalar("EPSILON", 1e-3)},
                       {"ACCUM_COUNT", g.scalar("ACCUM_COUNT", 64)}};
  if (running) {
    in.emplace_back("PREV_RUNNING_MEAN", g.input("PREV_RUNNING_MEAN", c));
    in.emplace_back("PREV_RUNNING_VAR", g.input("PREV_RUNNING_VAR", c));
    in.emplace_back("MOMENTUM", g.scalar("MOMENTUM", 0.1));
  }
  const Status s = g.add("bn_finalize", in);
  EXPECT_TRUE(s.is_good()) << s.err_msg;
  return g;
}

TEST(BnFinalize, IsTheFormula) {
  const OpGraph g = finalize(DataType_t::DOUBLE, DataType_t::DOUBLE, true);
  const Harness h(g.graph, {.seed = 1});
  const Reader sum(h, g, g.in("SUM")), square(h, g, g.in("SQ_SUM"));
  const Reader scale(h, g, g.in("SCALE")), bias(h, g, g.in("BIAS"));
  Statistics s;
  s.n = 64;
  each_index({1, 5, 1, 1}, [&](const Dims& i) {
    s.mean[i] = sum(i) / s.n;
    s.variance[i] = square(i) / s.n - s.mean[i] * s.mean[i];
    s.inv[i] = 1 / std::sqrt(s.variance[i] + 1e-3L);
  });
  expect_values(g, h, g.out("MEAN"), [&](const Dims& i) { return s.mean[i]; });
  expect_values(g, h, g.out("INV_VARIANCE"), [&](const Dims& i) { return s.inv[i]; });
  expect_values(g, h, g.out("EQ_SCALE"), [&](const Dims& i) { return scale(i) * s.inv[i]; });
  expect_values(g, h, g.out("EQ_BIAS"), [&](const Dims& i) { return bias(i) - s.mean[i] * scale(i) * s.inv[i]; });
  expect_running(g, h, s, 0.1L);
}

TEST(BnFinalize, DecompositionAgrees) {
  for (auto [io, compute] : kTypes)
    for (bool running : {false, true}) {
      const OpGraph g = finalize(io, compute, running);
      EXPECT_EQ(g.out("NEXT_RUNNING_MEAN") != ir::kNone, running);
      expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 3}).bindings());
    }
}

// sq_sum / n - mean^2 of equal elements is 0 up to rounding, perhaps below.
TEST(BnFinalize, EqualElementsHaveNoNegativeVariance) {
  const OpGraph g = finalize(DataType_t::FLOAT, DataType_t::FLOAT, true);
  Harness h(g.graph, {.fill = Fill::None});
  for (int64_t i = 0; i < 5; ++i)
    for (const char* port : {"SUM", "SQ_SUM", "SCALE", "BIAS", "PREV_RUNNING_MEAN", "PREV_RUNNING_VAR"}) {
      const double x = 0.1 * double(i + 1);
      const double value = std::string(port) == "SUM" ? 64 * x : std::string(port) == "SQ_SUM" ? 63.9999 * x * x : 1;
      static_cast<float*>(h.memory(g.in(port)))[i] = float(value);
    }
  h.inputs_changed();
  const auto values = *evaluate_reference(g.graph, h.bindings());
  for (const Bounded& b : values[size_t(g.out("INV_VARIANCE"))].values) {
    EXPECT_NEAR(b.v, 1 / std::sqrt(1e-3), 1e-9);
    EXPECT_LT(b.e, 0.1);
  }
}

TEST(BnFinalizeRules, SumsArePerChannel) {
  OpGraph g;
  const Dims c = {1, 5, 1, 1};
  const Status s = g.add("bn_finalize", {{"SUM", g.input("sum", {2, 5, 1, 1})},
                                         {"SQ_SUM", g.input("SQ_SUM", c)},
                                         {"SCALE", g.input("SCALE", c)},
                                         {"BIAS", g.input("BIAS", c)},
                                         {"EPSILON", g.scalar("EPSILON", 1e-3)},
                                         {"ACCUM_COUNT", g.scalar("ACCUM_COUNT", 64)}});
  EXPECT_EQ(s.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(s.err_msg, HasSubstr("SUM \"sum\" is [2, 5, 1, 1], [1, 5, 1, 1] is needed"));
}

OpGraph weight_gradients(const Dims& x, Layout layout, DataType_t io) {
  OpGraph g(io, io);
  const Status s = g.add("dbn_weight", {{"DY", g.input("DY", x)},
                                        {"X", g.input("X", x, strides(layout, x))},
                                        {"MEAN", g.input("MEAN", channels(x))},
                                        {"INV_VARIANCE", g.input("INV_VARIANCE", channels(x))},
                                        {"SCALE", g.input("SCALE", channels(x))}});
  EXPECT_TRUE(s.is_good()) << s.err_msg;
  return g;
}

// The factors give batchnorm_backward's DX.
TEST(DbnWeight, FactorsGiveTheDataGradient) {
  for (const Dims& dims : kShapes)
    for (Layout layout : kLayouts) {
      const OpGraph g = weight_gradients(dims, layout, DataType_t::DOUBLE);
      const Harness h(g.graph, {.seed = 1});
      Statistics s = saved(g, h);
      const Reader x(h, g, g.in("X")), dy(h, g, g.in("DY")), scale(h, g, g.in("SCALE"));
      const auto xhat = [&](const Dims& i) {
        const Dims k = masked(i, s.dim);
        return (x(i) - s.mean[k]) * s.inv[k];
      };
      ByIndex dscale = sums(dims, s.dim, [&](const Dims& i) { return dy(i) * xhat(i); });
      ByIndex dbias = sums(dims, s.dim, dy);
      expect_values(g, h, g.out("DSCALE"), [&](const Dims& i) { return dscale[i]; });
      expect_values(g, h, g.out("DBIAS"), [&](const Dims& i) { return dbias[i]; });
      // DX is linear in dy and x with one constant per channel; solve for the three from its formula.
      expect_values(g, h, g.out("EQ_SCALE_DY"), [&](const Dims& i) { return scale(i) * s.inv[i]; });
      const auto slope = [&](const Dims& i) { return -scale(i) * s.inv[i] * s.inv[i] * dscale[i] / s.n; };
      expect_values(g, h, g.out("EQ_SCALE_X"), slope);
      const auto value = [&](const char* port, const Dims& k) {
        return (*evaluate_reference(g.graph, h.bindings()))[size_t(g.out(port))].at(k);
      };
      for (int64_t c = 0; c < dims[1]; ++c) {
        Dims k(dims.size(), 0);
        k[1] = c;
        const Bounded a = value("EQ_SCALE_DY", k), b = value("EQ_SCALE_X", k), bias = value("EQ_BIAS", k);
        const long double want = scale(k) * s.inv[k] * (dy(k) - dbias[k] / s.n - xhat(k) * dscale[k] / s.n);
        const double got = a.v * double(dy(k)) + b.v * double(x(k)) + bias.v;
        const double bound = a.e * std::fabs(double(dy(k))) + b.e * std::fabs(double(x(k))) + bias.e;
        EXPECT_NEAR(got, double(want), bound);
      }
    }
}

TEST(DbnWeight, ComputesInFloatWhateverIsAsked) {
  const OpGraph g = weight_gradients(kShapes[0], Layout::kRowMajor, DataType_t::HALF);
  EXPECT_EQ(g.graph.nodes[0].compute, DataType_t::FLOAT);
}

TEST(DbnWeight, DecompositionAgrees) {
  for (const Dims& x : kShapes)
    for (auto [io, compute] : kTypes) {
      const OpGraph g = weight_gradients(x, Layout::kChannelsLast, io);
      expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 3}).bindings());
    }
}

}  // namespace
}  // namespace tilewright
