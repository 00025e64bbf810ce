// Error bounds at and past the largest number.
#include "ops/bounded.h"

#include <gtest/gtest.h>

#include "ops/pointwise_math.h"
#include "ops/reference.h"

namespace tilewright {
namespace {

constexpr double kLargest = 0x1.fffffep127;  // of FLOAT

TEST(Bounded, WhatIsSurelyPastTheLargestNumberHasABound) {
  const Bounded lowest(-kLargest), score(3.5, 1e-6);
  const Bounded masked = lowest - score;  // -FLT_MAX or -inf
  EXPECT_TRUE(bounded::may_be_infinite(masked));
  EXPECT_LT(masked.e, kLargest / 2);
  const Bounded weight = pw::exp(masked);
  EXPECT_EQ(weight.v, 0);
  EXPECT_EQ(weight.e, 0);
  EXPECT_EQ(pw::max(masked, score).v, 3.5);
  EXPECT_LT(pw::max(masked, score).e, 1e-5);
  EXPECT_EQ(pw::tanh(masked).v, -1);
  EXPECT_LT(pw::tanh(masked).e, 1e-6);
}

TEST(Bounded, WhatMayBeInfiniteHasNoneWhereThatMatters) {
  const Bounded lowest(-kLargest), masked = lowest - Bounded(3);
  EXPECT_EQ((masked - masked).e, kInfinity) << "0 or NaN";
  EXPECT_EQ((masked * Bounded(0)).e, kInfinity);
  EXPECT_EQ((masked * Bounded(1e-30)).e, kInfinity) << "finite, or -inf";
  EXPECT_EQ((Bounded(1) / masked).e, kInfinity);
  EXPECT_EQ((Bounded(kLargest, kLargest * 0.75) + Bounded(1e32)).e, kInfinity) << "ordinary, or too large";
  EXPECT_LT((masked - Bounded(kLargest)).e, kLargest) << "below the least number all the more";
}

TEST(Bounded, AnInfinityIsStoredAsItIs) {
  ir::Tensor t;
  t.type = DataType_t::HALF, t.dim = {2}, t.stride = {1};
  RefTensor r;
  r.tensor = &t, r.values = {Bounded(-kInfinity), Bounded(65000, 400)};
  r.read_u = 0x1p-11, r.read_limit = 65504, r.read_eta = 0x1p-24;
  EXPECT_EQ(r.at_linear(0).v, -kInfinity);
  EXPECT_EQ(r.at_linear(0).e, 0);
  EXPECT_LT(r.at_linear(1).e, 500) << "65504 or an infinity, both past half of the largest";
}

TEST(Bounded, AnIntervalThatLeavesAFunctionsDomainHasNone) {
  EXPECT_EQ(pw::sqrt(Bounded(1e-3, 1e-2)).e, kInfinity) << "NaN below 0";
  EXPECT_EQ(pw::log(Bounded(1e-3, 1e-2)).e, kInfinity);
  EXPECT_LT(pw::sqrt(Bounded(1e-2, 1e-3)).e, 1e-2);
}

}  // namespace
}  // namespace tilewright
