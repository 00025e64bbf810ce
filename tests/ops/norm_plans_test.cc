// The normalisations through the public API: every plan, several layouts and types, and the fusions around them.
#include <gmock/gmock.h>

#include <algorithm>

#include "support/every_plan.h"
#include "tilewright/graph.h"

namespace tilewright {
namespace {

using namespace graph;
using testing::coded;
using testing::EveryPlan;
using ::testing::HasSubstr;

struct Case {
  const char* name;
  DataType_t io, parameters;
  std::vector<int64_t> (*strides)(const std::vector<int64_t>&);
};
// Rows with gaps: the last dim is three elements longer in memory.
Dims gapped(const Dims& dim) {
  Dims wider = dim;
  wider.back() += 3;
  return row_major_strides(wider);
}
const Case kCases[] = {
    {"float", DataType_t::FLOAT, DataType_t::FLOAT, row_major_strides},
    {"float, channels last", DataType_t::FLOAT, DataType_t::FLOAT, channels_last_strides},
    {"float, gaps", DataType_t::FLOAT, DataType_t::FLOAT, gapped},
    {"half, float scale", DataType_t::HALF, DataType_t::FLOAT, channels_last_strides},
    {"half", DataType_t::HALF, DataType_t::HALF, row_major_strides},
    {"bfloat16, float scale", DataType_t::BFLOAT16, DataType_t::FLOAT, row_major_strides},
    {"bfloat16", DataType_t::BFLOAT16, DataType_t::BFLOAT16, gapped},
    {"double", DataType_t::DOUBLE, DataType_t::DOUBLE, row_major_strides},
};

class Norms {
 public:
  Graph g;
  explicit Norms(const Case& c) : case_(c) {
    const DataType_t wide = c.io == DataType_t::DOUBLE ? DataType_t::DOUBLE : DataType_t::FLOAT;
    g.set_io_data_type(c.io).set_intermediate_data_type(wide).set_compute_data_type(wide);
  }
  TensorPtr data(const char* name, const Dims& dim) {
    return g.tensor(Tensor_attributes().set_name(name).set_dim(dim).set_stride(case_.strides(dim)));
  }
  TensorPtr parameter(const char* name, const Dims& dim) {
    return g.tensor(Tensor_attributes()
                        .set_name(name)
                        .set_dim(dim)
                        .set_stride(row_major_strides(dim))
                        .set_data_type(case_.parameters));
  }
  TensorPtr epsilon() { return g.tensor(Tensor_attributes(1e-3f).set_name("epsilon")); }
  // Statistics are of the parameters' type.
  void statistic(const TensorPtr& t) {
    if (t) t->set_output(true).set_data_type(case_.parameters);
  }
  void check(const char* what, uint64_t seed = 1) {
    EveryPlan plans(g, {.seed = seed});
    EXPECT_TRUE(plans.run()) << what << ", " << case_.name;
  }

 private:
  const Case case_;
};

struct LayerShape {
  Dims x, scale;
};
const LayerShape kLayerShapes[] = {{{6, 40, 1, 1}, {1, 40, 1, 1}}, {{2, 5, 24, 1}, {1, 1, 24, 1}}};

TEST(EveryPlanOf, Layernorm) {
  for (const Case& c : kCases)
    for (const LayerShape& s : kLayerShapes)
      for (auto phase : {NormFwdPhase_t::TRAINING, NormFwdPhase_t::INFERENCE}) {
        Norms n(c);
        auto [y, mean, inv] =
            n.g.layernorm(n.data("X", s.x), n.parameter("SCALE", s.scale), n.parameter("BIAS", s.scale),
                          Layernorm_attributes().set_forward_phase(phase).set_epsilon(n.epsilon()));
        EXPECT_EQ(mean != nullptr, phase == NormFwdPhase_t::TRAINING);
        EXPECT_EQ(inv != nullptr, phase == NormFwdPhase_t::TRAINING);
        y->set_output(true);
        n.statistic(mean), n.statistic(inv);
        n.check("layernorm");
      }
}

TEST(EveryPlanOf, LayernormBackward) {
  for (const Case& c : kCases)
    for (const LayerShape& s : kLayerShapes) {
      Norms n(c);
      Dims stats = s.x;
      for (size_t d = 0; d < stats.size(); ++d)
        if (s.scale[d] != 1) stats[d] = 1;
      auto [dx, dscale, dbias] =
          n.g.layernorm_backward(n.data("DY", s.x), n.data("X", s.x), n.parameter("SCALE", s.scale),
                                 Layernorm_backward_attributes().set_saved_mean_and_inv_variance(
                                     n.parameter("MEAN", stats), n.parameter("INV_VARIANCE", stats)));
      dx->set_output(true);
      n.statistic(dscale), n.statistic(dbias);
      n.check("layernorm_backward");
    }
}

TEST(EveryPlanOf, Adalayernorm) {
  for (const Case& c : kCases) {
    const Dims x = {3, 5, 24, 1}, scale = {3, 1, 24, 1};
    Norms n(c);
    auto [y, mean, inv] = n.g.adalayernorm(
        n.data("X", x), n.parameter("SCALE", scale), n.parameter("BIAS", scale),
        AdaLayernorm_attributes().set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(n.epsilon()));
    y->set_output(true);
    n.statistic(mean), n.statistic(inv);
    n.check("adalayernorm");

    Norms b(c);
    auto [dx, dscale, dbias] =
        b.g.adalayernorm_backward(b.data("DY", x), b.data("X", x), b.parameter("SCALE", scale),
                                  AdaLayernorm_backward_attributes().set_saved_mean_and_inv_variance(
                                      b.parameter("MEAN", {3, 5, 1, 1}), b.parameter("INV_VARIANCE", {3, 5, 1, 1})));
    dx->set_output(true);
    b.statistic(dscale), b.statistic(dbias);
    b.check("adalayernorm_backward");
  }
}

TEST(EveryPlanOf, Instancenorm) {
  for (const Case& c : kCases) {
    const Dims x = {2, 6, 5, 7}, channels = {1, 6, 1, 1}, instances = {2, 6, 1, 1};
    Norms n(c);
    auto [y, mean, inv] = n.g.instancenorm(
        n.data("X", x), n.parameter("SCALE", channels), n.parameter("BIAS", channels),
        Instancenorm_attributes().set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(n.epsilon()));
    y->set_output(true);
    n.statistic(mean), n.statistic(inv);
    n.check("instancenorm");

    Norms b(c);
    auto [dx, dscale, dbias] =
        b.g.instancenorm_backward(b.data("DY", x), b.data("X", x), b.parameter("SCALE", channels),
                                  Instancenorm_backward_attributes().set_saved_mean_and_inv_variance(
                                      b.parameter("MEAN", instances), b.parameter("INV_VARIANCE", instances)));
    dx->set_output(true);
    b.statistic(dscale), b.statistic(dbias);
    b.check("instancenorm_backward");
  }
}

TEST(EveryPlanOf, Rmsnorm) {
  for (const Case& c : kCases)
    for (bool bias : {false, true}) {
      const Dims x = {6, 40, 1, 1}, scale = {1, 40, 1, 1}, stats = {6, 1, 1, 1};
      Norms n(c);
      Rmsnorm_attributes attr;
      attr.set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(n.epsilon());
      if (bias) attr.set_bias(n.parameter("BIAS", scale));
      auto [y, inv] = n.g.rmsnorm(n.data("X", x), n.parameter("SCALE", scale), attr);
      y->set_output(true);
      n.statistic(inv);
      n.check("rmsnorm");

      Norms b(c);
      auto [dx, dscale, dbias] =
          b.g.rmsnorm_backward(b.data("DY", x), b.data("X", x), b.parameter("SCALE", scale),
                               b.parameter("INV_VARIANCE", stats), Rmsnorm_backward_attributes().has_dbias(bias));
      EXPECT_EQ(dbias != nullptr, bias);
      dx->set_output(true);
      b.statistic(dscale), b.statistic(dbias);
      b.check("rmsnorm_backward");
    }
}

TEST(EveryPlanOf, Batchnorm) {
  for (const Case& c : kCases)
    for (bool running : {false, true}) {
      const Dims x = {4, 6, 3, 5}, channels = {1, 6, 1, 1};
      Norms n(c);
      Batchnorm_attributes attr;
      attr.set_epsilon(n.epsilon());
      if (running)
        attr.set_previous_running_stats(n.parameter("previous mean", channels),
                                        n.parameter("previous variance", channels),
                                        n.g.tensor(Tensor_attributes(0.1f).set_name("momentum")));
      auto [y, mean, inv, next_mean, next_variance] =
          n.g.batchnorm(n.data("X", x), n.parameter("SCALE", channels), n.parameter("BIAS", channels), attr);
      EXPECT_EQ(next_mean != nullptr, running);
      EXPECT_EQ(next_variance != nullptr, running);
      y->set_output(true);
      for (const TensorPtr& t : {mean, inv, next_mean, next_variance}) n.statistic(t);
      n.check("batchnorm");
    }
}

TEST(EveryPlanOf, BatchnormInference) {
  for (const Case& c : kCases) {
    const Dims x = {4, 6, 3, 5}, channels = {1, 6, 1, 1};
    Norms n(c);
    n.g.batchnorm_inference(n.data("X", x), n.parameter("MEAN", channels), n.parameter("INV_VARIANCE", channels),
                            n.parameter("SCALE", channels), n.parameter("BIAS", channels),
                            Batchnorm_inference_attributes())
        ->set_output(true);
    n.check("batchnorm_inference");
  }
}

TEST(EveryPlanOf, BatchnormBackward) {
  for (const Case& c : kCases)
    for (bool saved : {false, true}) {
      const Dims x = {4, 6, 3, 5}, channels = {1, 6, 1, 1};
      Norms n(c);
      Batchnorm_backward_attributes attr;
      if (saved)
        attr.set_saved_mean_and_inv_variance(n.parameter("MEAN", channels), n.parameter("INV_VARIANCE", channels));
      auto [dx, dscale, dbias] =
          n.g.batchnorm_backward(n.data("DY", x), n.data("X", x), n.parameter("SCALE", channels), attr);
      dx->set_output(true);
      n.statistic(dscale), n.statistic(dbias);
      n.check("batchnorm_backward");
    }
}

TEST(EveryPlanOf, GenstatsAndBnFinalize) {
  for (const Case& c : kCases) {
    const Dims x = {4, 6, 3, 5}, channels = {1, 6, 1, 1};
    Norms n(c);
    auto [sum, sq_sum] = n.g.genstats(n.data("X", x), Genstats_attributes());
    n.statistic(sum), n.statistic(sq_sum);
    n.check("genstats");

    Norms f(c);
    BN_finalize_attributes attr;
    attr.set_previous_running_stats(f.parameter("previous mean", channels), f.parameter("previous variance", channels),
                                    f.g.tensor(Tensor_attributes(0.1f).set_name("momentum")));
    for (const TensorPtr& t :
         f.g.bn_finalize(f.parameter("SUM", channels), f.parameter("SQ_SUM", channels), f.parameter("SCALE", channels),
                         f.parameter("BIAS", channels), f.epsilon(),
                         f.g.tensor(Tensor_attributes(int64_t(64)).set_name("count")), attr))
      f.statistic(t);
    f.check("bn_finalize");
  }
}

TEST(EveryPlanOf, DbnWeight) {
  for (const Case& c : kCases) {
    const Dims x = {4, 6, 3, 5}, channels = {1, 6, 1, 1};
    Norms n(c);
    for (const TensorPtr& t :
         n.g.dbn_weight(n.data("DY", x), n.data("X", x), n.parameter("MEAN", channels),
                        n.parameter("INV_VARIANCE", channels), n.parameter("SCALE", channels), DBN_weight_attributes()))
      n.statistic(t);
    n.check("dbn_weight");
  }
}

TEST(EveryPlanOf, Softmax) {
  for (const Case& c : kCases)
    for (int64_t axis : {1, 3}) {
      Norms n(c);
      auto [y, stats] = n.g.softmax_with_stats(n.data("X", {2, 3, 4, 33}), Softmax_attributes().set_axis(axis));
      y->set_output(true), stats->set_output(true).set_data_type(c.parameters);
      n.check("softmax");

      Norms without(c);
      without.g.softmax(without.data("X", {5, 70}), Softmax_attributes())->set_output(true);
      without.check("softmax");
    }
}

// --- known numbers ---------------------------------------------------------------------------------------------------

// More than 65535 samples. All numbers are exact in FLOAT, so every plan gives the same bits.
TEST(NormCases, BatchnormInferenceOfManySamples) {
  for (auto strides : {row_major_strides, channels_last_strides}) {
    const Dims x = {65540, 16, 1, 1}, channels = {1, 16, 1, 1};
    Norms n({"", DataType_t::FLOAT, DataType_t::FLOAT, strides});
    TensorPtr X = n.data("X", x), mean = n.parameter("MEAN", channels), inv = n.parameter("INV_VARIANCE", channels);
    TensorPtr scale = n.parameter("SCALE", channels), bias = n.parameter("BIAS", channels);
    TensorPtr y = n.g.batchnorm_inference(X, mean, inv, scale, bias, Batchnorm_inference_attributes());
    y->set_output(true);
    EveryPlan plans(n.g, {.fill = Fill::None});
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    plans.fill(X, coded(5))
        .fill(mean, [](int64_t c) { return double(c - 8) / 8; })
        .fill(inv, [](int64_t c) { return 1 + double(c) / 16; })
        .fill(scale, [](int64_t c) { return double(c % 5 - 2) / 2; })
        .fill(bias, [](int64_t c) { return double(c) / 4; });
    EXPECT_TRUE(plans.run([&](const std::string& plan) {
      const std::vector<double> got = plans.read(y);
      double sum = 0, magnitude = 0;
      for (double v : got) sum += v, magnitude += std::fabs(v);
      EXPECT_NEAR(sum, 1908339.74, 0.005) << plan;
      EXPECT_NEAR(magnitude, 2084174.77, 0.005) << plan;
      EXPECT_EQ(got.front(), -0.375) << plan;
      EXPECT_EQ(got.back(), 5.6875) << plan;
      const double row[] = {-1.875, 0.1171875, 0.5, 1.4921875};
      for (size_t c = 0; c < 4; ++c) EXPECT_EQ(got[65536 * 16 + c], row[c]) << plan;
    }));
  }
}

// Layernorm and the ReLU after it, then the gradients from the same statistics.
TEST(NormCases, LayernormWithReluAndItsGradient) {
  for (auto strides : {row_major_strides, channels_last_strides}) {
    const Dims x = {3, 8, 1, 1}, row = {1, 8, 1, 1};
    const double w[] = {.5, 1, 1.5, 2, -1, .25, 3, -.5};
    Norms n({"", DataType_t::FLOAT, DataType_t::FLOAT, strides});
    TensorPtr X = n.data("X", x), scale = n.parameter("SCALE", row), bias = n.parameter("BIAS", row);
    auto [y, mean, inv] = n.g.layernorm(
        X, scale, bias, Layernorm_attributes().set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(n.epsilon()));
    TensorPtr relu = n.g.pointwise(y, Pointwise_attributes().set_mode(PointwiseMode_t::RELU_FWD));
    TensorPtr dy = n.data("DY", x);
    auto [dx, dscale, dbias] = n.g.layernorm_backward(
        dy, X, scale, Layernorm_backward_attributes().set_saved_mean_and_inv_variance(mean, inv));
    for (const TensorPtr& t : {y, mean, inv, relu, dx, dscale, dbias}) t->set_output(true);
    EveryPlan plans(n.g, {.fill = Fill::None});
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    plans.fill(X, coded(5)).fill(dy, coded(13));
    plans.fill(scale, [&](int64_t i) { return w[i]; }).fill(bias, [](int64_t i) { return 0.1 * double(i); });
    // Of the calculation in double precision, printed with nine digits; the bias 0.1 i is rounded to FLOAT here.
    const std::vector<double> want_y = plans.expected(y);
    double sum = 0, magnitude = 0, relu_sum = 0;
    for (double v : want_y) sum += v, magnitude += std::fabs(v), relu_sum += std::max(v, 0.);
    EXPECT_NEAR(sum, 11.5750624, 1e-6);
    EXPECT_NEAR(magnitude, 26.2085009, 1e-6);
    EXPECT_NEAR(relu_sum, 18.8917817, 1e-6);
    EXPECT_TRUE(plans.run([&](const std::string& plan) {
      const std::vector<double> positive = plans.read(relu);
      EXPECT_EQ(std::count_if(positive.begin(), positive.end(), [](double v) { return v > 0; }), 17) << plan;
      const double bias_gradient[] = {-1.125, -0.5, 2.25, 0.75, -0.75, -2.25, 0.5, 1.125};
      EXPECT_THAT(plans.read(dbias), ::testing::ElementsAreArray(bias_gradient)) << plan;
      EXPECT_THAT(plans.read(mean), ::testing::ElementsAre(-0.03125, -0.078125, 0.140625)) << plan;
    }));
  }
}

// --- fusions ---------------------------------------------------------------------------------------------------------

const Case kHalf = {"half", DataType_t::HALF, DataType_t::FLOAT, channels_last_strides};

// A mask beside a norm is one bit per element: least significant first, in the order of its strides.
TEST(NormFusions, LayernormWithABitPackedMask) {
  Norms n(kHalf);
  const Dims x = {5, 24, 1, 1}, row = {1, 24, 1, 1};
  auto [y, mean, inv] =
      n.g.layernorm(n.data("X", x), n.parameter("SCALE", row), n.parameter("BIAS", row),
                    Layernorm_attributes().set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(n.epsilon()));
  const auto compare = [&](PointwiseMode_t mode, float against) {
    TensorPtr t = n.g.pointwise(y, n.g.tensor(Tensor_attributes(against)),
                                Pointwise_attributes().set_mode(mode).set_compute_data_type(DataType_t::FLOAT));
    t->set_data_type(DataType_t::BOOLEAN);
    return t;
  };
  TensorPtr above = compare(PointwiseMode_t::CMP_GT, -0.5f), below = compare(PointwiseMode_t::CMP_LT, 0.75f);
  TensorPtr mask = n.g.pointwise(
      above, below,
      Pointwise_attributes().set_mode(PointwiseMode_t::LOGICAL_AND).set_compute_data_type(DataType_t::BOOLEAN));
  mask->set_output(true).set_data_type(DataType_t::BOOLEAN);
  TensorPtr clamped = n.g.pointwise(
      y,
      Pointwise_attributes().set_mode(PointwiseMode_t::RELU_FWD).set_relu_lower_clip(-0.5f).set_relu_upper_clip(0.75f));
  clamped->set_output(true);
  n.statistic(mean), n.statistic(inv);
  EveryPlan plans(n.g, {.seed = 3});
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  EXPECT_TRUE(plans.ir().tensor(plans.id(mask)).bit_packed);
  EXPECT_EQ(plans.ir().tensor(plans.id(mask)).storage_bytes(), 5 * 24 / 8);
  EXPECT_TRUE(plans.run([&](const std::string& plan) {
    // The packed rows of channels in memory, element by element.
    const std::vector<double> want = plans.expected(mask);
    const uint8_t* bits = static_cast<const uint8_t*>(plans.harness().memory(plans.id(mask)));
    EXPECT_THAT(want, ::testing::Contains(1));
    EXPECT_THAT(want, ::testing::Contains(0));
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(bits[i / 8] >> (i % 8) & 1, int(want[i])) << plan << " " << i;
  }));
}

TEST(NormFusions, ABitPackedMaskFeedsBatchnormBackward) {
  Norms n(kHalf);
  const Dims x = {4, 16, 3, 5}, channels = {1, 16, 1, 1};
  TensorPtr mask = n.g.tensor(Tensor_attributes()
                                  .set_name("mask")
                                  .set_dim(x)
                                  .set_stride(channels_last_strides(x))
                                  .set_data_type(DataType_t::BOOLEAN));
  TensorPtr dy = n.g.pointwise(n.data("dy", x), mask, Pointwise_attributes().set_mode(PointwiseMode_t::MUL));
  dy->set_output(true).set_data_type(DataType_t::HALF);
  std::vector<TensorPtr> peers = {n.parameter("peer 0", {2, 64, 1, 1}), n.parameter("peer 1", {2, 64, 1, 1})};
  auto [dx, dscale, dbias] = n.g.batchnorm_backward(
      dy, n.data("X", x), n.parameter("SCALE", channels),
      Batchnorm_backward_attributes()
          .set_saved_mean_and_inv_variance(n.parameter("MEAN", channels), n.parameter("INV_VARIANCE", channels))
          .set_peer_stats(peers));
  dx->set_output(true);
  n.statistic(dscale), n.statistic(dbias);
  EveryPlan plans(n.g, {.seed = 4});
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  EXPECT_TRUE(plans.ir().tensor(plans.id(mask)).bit_packed);
  EXPECT_EQ(plans.ir().tensor(plans.id(mask)).storage_bytes(), volume(x) / 8);
  EXPECT_TRUE(plans.run());
}

// Inference, the gradient of its ReLU, the gradients of the norm.
TEST(NormFusions, BatchnormInferenceReluBackwardBatchnormBackward) {
  Norms n(kHalf);
  const Dims x = {4, 16, 3, 5}, channels = {1, 16, 1, 1};
  TensorPtr X = n.data("X", x), mean = n.parameter("MEAN", channels), inv = n.parameter("INV_VARIANCE", channels);
  TensorPtr scale = n.parameter("SCALE", channels);
  TensorPtr y =
      n.g.batchnorm_inference(X, mean, inv, scale, n.parameter("BIAS", channels), Batchnorm_inference_attributes());
  TensorPtr dy = n.g.pointwise(n.data("dy", x), y, Pointwise_attributes().set_mode(PointwiseMode_t::RELU_BWD));
  auto [dx, dscale, dbias] =
      n.g.batchnorm_backward(dy, X, scale, Batchnorm_backward_attributes().set_saved_mean_and_inv_variance(mean, inv));
  dx->set_output(true);
  n.statistic(dscale), n.statistic(dbias);
  n.check("bn inference, relu backward, bn backward");
}

TEST(NormFusions, BatchnormAddReluWithPeers) {
  Norms n(kHalf);
  const Dims x = {4, 16, 3, 5}, channels = {1, 16, 1, 1};
  auto [y, mean, inv, next_mean, next_variance] =
      n.g.batchnorm(n.data("X", x), n.parameter("SCALE", channels), n.parameter("BIAS", channels),
                    Batchnorm_attributes()
                        .set_epsilon(n.epsilon())
                        .set_previous_running_stats(n.parameter("previous mean", channels),
                                                    n.parameter("previous variance", channels),
                                                    n.g.tensor(Tensor_attributes(0.1f).set_name("momentum")))
                        .set_peer_stats({n.parameter("peer 0", {2, 64, 1, 1}), n.parameter("peer 1", {2, 64, 1, 1})}));
  TensorPtr added = n.g.pointwise(y, n.data("A", x), Pointwise_attributes().set_mode(PointwiseMode_t::ADD));
  n.g.pointwise(added, Pointwise_attributes().set_mode(PointwiseMode_t::RELU_FWD))->set_output(true);
  for (const TensorPtr& t : {mean, inv, next_mean, next_variance}) n.statistic(t);
  n.check("batchnorm, add, relu");
}

// Zero-centred gamma: the scale is gamma + 1, a tensor that only exists in the graph.
TEST(NormFusions, LayernormWithAVirtualScale) {
  Norms n({"", DataType_t::BFLOAT16, DataType_t::FLOAT, channels_last_strides});
  const Dims x = {6, 40, 1, 1}, row = {1, 40, 1, 1};
  TensorPtr scale = n.g.pointwise(n.parameter("gamma", row), n.g.tensor(Tensor_attributes(1.0f)),
                                  Pointwise_attributes().set_mode(PointwiseMode_t::ADD));
  scale->set_dim(row).set_stride(row_major_strides(row));
  auto [y, mean, inv] =
      n.g.layernorm(n.data("X", x), scale, n.parameter("BIAS", row),
                    Layernorm_attributes().set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(n.epsilon()));
  y->set_output(true);
  n.statistic(mean), n.statistic(inv);
  n.check("layernorm with gamma + 1");
}

// The running statistics are brought up to date in place.
TEST(NormFusions, RunningStatisticsInPlace) {
  if (testing::test_handle()) GTEST_SKIP() << "of plans on the CPU";
  Norms n(kCases[0]);
  const Dims x = {4, 6, 3, 5}, channels = {1, 6, 1, 1};
  TensorPtr X = n.data("X", x), scale = n.parameter("SCALE", channels), bias = n.parameter("BIAS", channels);
  TensorPtr mean = n.parameter("mean", channels), variance = n.parameter("variance", channels);
  auto out = n.g.batchnorm(X, scale, bias,
                           Batchnorm_attributes()
                               .set_epsilon(n.epsilon())
                               .set_previous_running_stats(mean, variance, n.g.tensor(Tensor_attributes(0.1f))));
  for (const TensorPtr& t : out) t->set_output(true);
  EveryPlan plans(n.g, {.seed = 5});
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  const auto reference = plans.harness().reference();
  ASSERT_TRUE(reference);
  for (int64_t i = 0; i < n.g.get_execution_plan_count(); ++i) {
    auto pack = plans.harness().variant_pack();
    std::vector<float> mean_values(6), variance_values(6);
    for (size_t c = 0; c < 6; ++c)
      mean_values[c] = static_cast<float*>(pack[mean->get_uid()])[c],
      variance_values[c] = static_cast<float*>(pack[variance->get_uid()])[c];
    pack[mean->get_uid()] = pack[out[3]->get_uid()] = mean_values.data();
    pack[variance->get_uid()] = pack[out[4]->get_uid()] = variance_values.data();
    int64_t bytes = 0;
    ASSERT_TRUE(n.g.get_workspace_size_plan_at_index(i, bytes).is_good());
    const auto status = n.g.execute_plan_at_index(Handle{}, pack, plans.harness().workspace(bytes), i);
    ASSERT_TRUE(status.is_good()) << status.err_msg;
    for (auto [tensor, memory] : {std::pair(out[3], mean_values.data()), std::pair(out[4], variance_values.data())}) {
      const Comparison c = compare((**reference)[size_t(plans.id(tensor))], memory);
      EXPECT_TRUE(c.ok()) << n.g.plans()[size_t(i)].name << ": " << c.text();
    }
  }
}

// Rows of 37 bits share bytes with their neighbours, whichever thread computes them.
TEST(NormFusions, BitPackedRowsShareBytes) {
  Norms n(kHalf);
  const Dims x = {509, 37}, row = {1, 37};
  auto [y, mean, inv] =
      n.g.layernorm(n.data("X", x), n.parameter("SCALE", row), n.parameter("BIAS", row),
                    Layernorm_attributes().set_forward_phase(NormFwdPhase_t::INFERENCE).set_epsilon(n.epsilon()));
  TensorPtr mask =
      n.g.pointwise(y, n.g.tensor(Tensor_attributes(0.0f)), Pointwise_attributes().set_mode(PointwiseMode_t::CMP_GT));
  mask->set_output(true).set_data_type(DataType_t::BOOLEAN).set_stride(row_major_strides(x));
  for (uint64_t seed = 1; seed <= 20; ++seed) n.check("layernorm and mask", seed);
}

// --- empty tensors
// -----------------------------------------------------------------------------------------------------

// No samples, no elements to normalise over, no channels: nothing to do, or statistics of nothing, which are NaN.
TEST(EmptyNorms, EveryPlanRuns) {
  for (const Dims& x : {Dims{0, 8}, Dims{3, 0}}) {
    Norms n(kCases[0]);
    auto out =
        n.g.layernorm(n.data("X", x), n.parameter("SCALE", {1, x[1]}), n.parameter("BIAS", {1, x[1]}),
                      Layernorm_attributes().set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(n.epsilon()));
    for (const TensorPtr& t : out) t->set_output(true);
    n.check("empty layernorm");

    Norms s(kCases[0]);
    for (const TensorPtr& t : s.g.softmax_with_stats(s.data("X", x), Softmax_attributes())) t->set_output(true);
    s.check("empty softmax");
  }
  for (const Dims& x : {Dims{0, 3, 2, 2}, Dims{2, 3, 0, 2}, Dims{2, 0, 2, 2}}) {
    const Dims channels = {1, x[1], 1, 1};
    Norms n(kCases[0]);
    auto out = n.g.batchnorm(n.data("X", x), n.parameter("SCALE", channels), n.parameter("BIAS", channels),
                             Batchnorm_attributes().set_epsilon(n.epsilon()));
    for (size_t i = 0; i < 3; ++i) out[i]->set_output(true);
    n.check("empty batchnorm");

    Norms b(kCases[0]);
    for (const TensorPtr& t :
         b.g.batchnorm_backward(b.data("DY", x), b.data("X", x), b.parameter("SCALE", channels),
                                Batchnorm_backward_attributes().set_saved_mean_and_inv_variance(
                                    b.parameter("MEAN", channels), b.parameter("INV_VARIANCE", channels))))
      t->set_output(true);
    b.check("empty batchnorm_backward");
  }
}

// --- what is refused -------------------------------------------------------------------------------------------------

TEST(NormRejections, MissingEpsilonIsNamed) {
  const Dims x = {4, 8, 1, 1}, row = {1, 8, 1, 1};
  const auto status_of = [&](auto add) {
    Norms n(kCases[0]);
    add(n);
    return n.g.validate();
  };
  const auto training = NormFwdPhase_t::TRAINING;
  const Status all[] = {
      status_of([&](Norms& n) {
        n.g.layernorm(n.data("X", x), n.parameter("SCALE", row), n.parameter("BIAS", row),
                      Layernorm_attributes().set_forward_phase(training));
      }),
      status_of([&](Norms& n) {
        n.g.adalayernorm(n.data("X", x), n.parameter("SCALE", row), n.parameter("BIAS", row),
                         AdaLayernorm_attributes().set_forward_phase(training));
      }),
      status_of([&](Norms& n) {
        n.g.rmsnorm(n.data("X", x), n.parameter("SCALE", row), Rmsnorm_attributes().set_forward_phase(training));
      }),
      status_of([&](Norms& n) {
        n.g.instancenorm(n.data("X", x), n.parameter("SCALE", row), n.parameter("BIAS", row),
                         Instancenorm_attributes().set_forward_phase(training));
      }),
      status_of([&](Norms& n) {
        n.g.batchnorm(n.data("X", x), n.parameter("SCALE", row), n.parameter("BIAS", row), Batchnorm_attributes());
      }),
  };
  for (const Status& s : all) {
    EXPECT_EQ(s.code, error_code_t::ATTRIBUTE_NOT_SET);
    EXPECT_THAT(s.err_msg, HasSubstr("EPSILON"));
  }
}

TEST(NormRejections, MissingPhaseIsNamed) {
  Norms n(kCases[0]);
  n.g.layernorm(n.data("X", {4, 8}), n.parameter("SCALE", {1, 8}), n.parameter("BIAS", {1, 8}),
                Layernorm_attributes().set_epsilon(n.epsilon()));
  const auto s = n.g.validate();
  EXPECT_EQ(s.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(s.err_msg, HasSubstr("forward_phase"));
}

TEST(NormRejections, RmsnormBackwardMustSayWhetherDbiasIsWanted) {
  Norms n(kCases[0]);
  n.g.rmsnorm_backward(n.data("DY", {4, 8}), n.data("X", {4, 8}), n.parameter("SCALE", {1, 8}),
                       n.parameter("INV_VARIANCE", {4, 1}), Rmsnorm_backward_attributes());
  const auto s = n.g.validate();
  EXPECT_EQ(s.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(s.err_msg, HasSubstr("has_dbias"));
}

// Files of the field do not have the attribute; the output is listed or it is not.
TEST(NormFiles, TheListedOutputsSayWhetherDbiasIsWanted) {
  for (bool wanted : {false, true}) {
    Norms n(kCases[0]);
    auto out =
        n.g.rmsnorm_backward(n.data("DY", {4, 8}), n.data("X", {4, 8}), n.parameter("SCALE", {1, 8}),
                             n.parameter("INV_VARIANCE", {4, 1}), Rmsnorm_backward_attributes().has_dbias(wanted));
    for (const TensorPtr& t : out)
      if (t) t->set_output(true);
    std::string text = Json(n.g).dump();
    const std::string attribute = fmt::format("\"has_dbias\":{},", wanted);
    ASSERT_NE(text.find(attribute), text.npos) << text;
    text.erase(text.find(attribute), attribute.size());
    Graph read;
    ASSERT_TRUE(read.deserialize(Json::parse(text)).is_good());
    const auto s = read.validate();
    EXPECT_TRUE(s.is_good()) << s.err_msg;
    const ir::Node& node = read.impl().frozen.graph->nodes[0];
    EXPECT_EQ(node.out[2] != ir::kNone, wanted);
  }
}

TEST(NormRejections, MissingStatisticsAreNamed) {
  Norms n(kCases[0]);
  n.g.layernorm_backward(n.data("DY", {4, 8}), n.data("X", {4, 8}), n.parameter("SCALE", {1, 8}),
                         Layernorm_backward_attributes());
  const auto s = n.g.validate();
  EXPECT_EQ(s.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(s.err_msg, HasSubstr("MEAN"));
}

TEST(NormRejections, HalfSetRunningStatisticsAreNamed) {
  Norms n(kCases[0]);
  n.g.batchnorm(n.data("X", {4, 8, 1, 1}), n.parameter("SCALE", {1, 8, 1, 1}), n.parameter("BIAS", {1, 8, 1, 1}),
                Batchnorm_attributes()
                    .set_epsilon(n.epsilon())
                    .set_previous_running_stats(n.parameter("previous mean", {1, 8, 1, 1}), nullptr,
                                                n.g.tensor(Tensor_attributes(0.1f))));
  const auto s = n.g.validate();
  EXPECT_EQ(s.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(s.err_msg, HasSubstr("PREV_RUNNING_VAR"));
}

}  // namespace
}  // namespace tilewright
