// A comparison whose operands are known within bounds: both answers are right near equality, one elsewhere.
#include <gtest/gtest.h>

#include "support/every_plan.h"

namespace tilewright {
namespace {

using graph::Pointwise_attributes;
using graph::Tensor_attributes;
using testing::EveryPlan;

TEST(UncertainBoolean, BothAnswersAreRightNearEqualityAlone) {
  graph::Graph g;
  g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  auto x = g.tensor(Tensor_attributes().set_name("x").set_dim({4}).set_stride({1}));
  auto limit = g.tensor(Tensor_attributes().set_name("limit").set_dim({4}).set_stride({1}));
  // Kept as BFLOAT16 or not, as a plan pleases.
  auto same = g.pointwise(x, Pointwise_attributes().set_mode(PointwiseMode_t::IDENTITY));
  same->set_data_type(DataType_t::BFLOAT16);
  auto above = g.pointwise(same, limit, Pointwise_attributes().set_mode(PointwiseMode_t::CMP_GT));
  above->set_output(true).set_data_type(DataType_t::BOOLEAN);
  auto chosen = g.pointwise(x, limit, above, Pointwise_attributes().set_mode(PointwiseMode_t::BINARY_SELECT));
  chosen->set_output(true);
  EveryPlan plans(g);
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  const double xs[] = {1.001, 1.001, 2, -2}, limits[] = {1.0005, 1.002, 1, 1};
  plans.fill(x, [&](int64_t i) { return xs[i]; }).fill(limit, [&](int64_t i) { return limits[i]; });
  EXPECT_TRUE(plans.run());

  auto values = plans.harness().reference();
  ASSERT_TRUE(values);
  const RefTensor& mask = (**values)[size_t(plans.id(above))];
  for (uint8_t i = 0; i < 16; ++i) {
    const uint8_t got[] = {uint8_t(i & 1), uint8_t(i >> 1 & 1), uint8_t(i >> 2 & 1), uint8_t(i >> 3 & 1)};
    EXPECT_EQ(compare(mask, got).wrong, (got[2] != 1) + (got[3] != 0)) << int(i);
  }
  const RefTensor& either = (**values)[size_t(plans.id(chosen))];
  const float other[] = {1.0005f, 1.001f, 2, 1};
  EXPECT_TRUE(compare(either, other).ok());
}

}  // namespace
}  // namespace tilewright
