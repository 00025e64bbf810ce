// instancenorm and its gradients.
#include <gmock/gmock.h>

#include "ops/norm_cases.h"

namespace tilewright {
namespace {

using namespace norm_test;
using testing::HasSubstr;

const Dims kShapes[] = {{2, 3, 4, 5}, {3, 2, 7}, {2, 4, 2, 3, 2}, {1, 1, 6, 1}};

Dims channels(const Dims& x) {
  Dims d(x.size(), 1);
  d[1] = x[1];
  return d;
}
Dims instances(const Dims& x) {
  Dims d = channels(x);
  d[0] = x[0];
  return d;
}

OpGraph forward(const Dims& x, Layout layout, DataType_t io, DataType_t compute, const AttrMap& attrs) {
  OpGraph g(io, compute);
  const Status status = g.add("instancenorm",
                              {{"X", g.input("X", x, strides(layout, x))},
                               {"SCALE", g.input("SCALE", channels(x))},
                               {"BIAS", g.input("BIAS", channels(x))},
                               {"EPSILON", g.scalar("EPSILON", 1e-3)}},
                              attrs);
  EXPECT_TRUE(status.is_good()) << status.err_msg;
  return g;
}

OpGraph backward(const Dims& x, const Dims& scale, Layout layout, DataType_t io, DataType_t compute) {
  OpGraph g(io, compute);
  const Status status = g.add("instancenorm_backward", {{"DY", g.input("DY", x)},
                                                        {"X", g.input("X", x, strides(layout, x))},
                                                        {"SCALE", g.input("SCALE", scale)},
                                                        {"MEAN", g.input("MEAN", instances(x))},
                                                        {"INV_VARIANCE", g.input("INV_VARIANCE", instances(x))}});
  EXPECT_TRUE(status.is_good()) << status.err_msg;
  return g;
}

TEST(Instancenorm, IsTheFormula) {
  for (const Dims& dims : kShapes)
    for (Layout layout : kLayouts) {
      const OpGraph g = forward(dims, layout, DataType_t::DOUBLE, DataType_t::DOUBLE, kTraining);
      const Harness h(g.graph, {.seed = 1});
      const Reader x(h, g, g.in("X")), scale(h, g, g.in("SCALE")), bias(h, g, g.in("BIAS"));
      Statistics stats = statistics(dims, instances(dims), x, 1e-3);
      expect_values(g, h, g.out("MEAN"), [&](const Dims& i) { return stats.mean[i]; });
      expect_values(g, h, g.out("INV_VARIANCE"), [&](const Dims& i) { return stats.inv[i]; });
      expect_values(g, h, g.out("Y"), [&](const Dims& i) {
        const Dims k = masked(i, stats.dim);
        return scale(i) * (x(i) - stats.mean[k]) * stats.inv[k] + bias(i);
      });
    }
}

TEST(Instancenorm, GradientsAreTheFormula) {
  for (const Dims& x : kShapes)
    for (const Dims& scale : {channels(x), instances(x)})
      for (Layout layout : kLayouts) {
        OpGraph g = backward(x, scale, layout, DataType_t::DOUBLE, DataType_t::DOUBLE);
        const Harness h(g.graph, {.seed = 2});
        expect_gradients(g, h, saved(g, h));
      }
}

TEST(Instancenorm, DecompositionAgrees) {
  for (const Dims& x : kShapes)
    for (auto [io, compute] :
         {std::pair(DataType_t::FLOAT, DataType_t::FLOAT), std::pair(DataType_t::HALF, DataType_t::FLOAT),
          std::pair(DataType_t::DOUBLE, DataType_t::DOUBLE)}) {
      for (const AttrMap& phase : {kTraining, kInference}) {
        const OpGraph g = forward(x, Layout::kChannelsLast, io, compute, phase);
        expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 3}).bindings());
      }
      const OpGraph g = backward(x, channels(x), Layout::kPadded, io, compute);
      expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 4}).bindings());
    }
}

TEST(Instancenorm, GradientsAreTheDerivatives) {
  expect_numeric_gradients("instancenorm", "instancenorm_backward", {2, 2, 3, 2}, {1, 2, 1, 1}, true, 1e-2);
}

TEST(Instancenorm, FillsWhatIsOpen) {
  OpGraph g;
  const Dims x = {2, 3, 4, 5};
  ASSERT_TRUE(g.add("instancenorm",
                    {{"X", g.input("X", x)},
                     {"SCALE", g.open_input("SCALE")},
                     {"BIAS", g.open_input("BIAS")},
                     {"EPSILON", g.scalar("EPSILON", 1e-5)}},
                    kTraining)
                  .is_good());
  EXPECT_EQ(g[g.in("SCALE")].dim, channels(x));
  EXPECT_EQ(g[g.out("MEAN")].dim, instances(x));
  EXPECT_EQ(g[g.out("MEAN")].stride, channels_last_strides(instances(x)));
  EXPECT_EQ(g[g.out("Y")].stride, row_major_strides(x));

  OpGraph b;
  ASSERT_TRUE(b.add("instancenorm_backward", {{"DY", b.open_input("DY")},
                                              {"X", b.input("X", x)},
                                              {"SCALE", b.open_input("SCALE")},
                                              {"MEAN", b.open_input("MEAN")},
                                              {"INV_VARIANCE", b.open_input("INV_VARIANCE")}})
                  .is_good());
  EXPECT_EQ(b[b.out("DSCALE")].dim, channels(x));
  EXPECT_EQ(b[b.out("DBIAS")].dim, channels(x));
  EXPECT_EQ(b[b.out("DX")].stride, channels_last_strides(x));
  EXPECT_EQ(b[b.in("INV_VARIANCE")].dim, instances(x));
}

TEST(InstancenormRules, StatisticsMustFit) {
  OpGraph g;
  const Dims x = {2, 3, 4, 5};
  const Status s = g.add("instancenorm_backward", {{"DY", g.input("DY", x)},
                                                   {"X", g.input("X", x)},
                                                   {"SCALE", g.input("SCALE", channels(x))},
                                                   {"MEAN", g.input("MEAN", instances(x))},
                                                   {"INV_VARIANCE", g.input("rstd", channels(x))}});
  EXPECT_EQ(s.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(s.err_msg, HasSubstr("INV_VARIANCE \"rstd\" is [1, 3, 1, 1], [2, 3, 1, 1] is needed"));
}

}  // namespace
}  // namespace tilewright
