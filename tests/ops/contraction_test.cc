#include "ops/contraction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/random.h"

namespace tilewright {
namespace {

using testing::Random;

struct Sides {
  ContractionTerms terms;
  RefTensor::Dense b;
  int64_t width;
};
Sides random_sides(Random& random, int64_t count, int64_t width, bool errors) {
  Sides s;
  s.width = width;
  RefTensor::Dense a;
  auto draw = [&](RefTensor::Dense& d, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      d.values.push_back(float(double(random.between(-1000000, 1000000)) / 777777));
      if (errors) d.errors.push_back(double(random.between(0, 10)) * 1e-6);
    }
  };
  draw(a, count), draw(s.b, count * width);
  for (int64_t t = 0; t < count; ++t) s.terms.add(a, t, t * width);
  return s;
}

TEST(Contraction, SumsRowsAtAnyWidthAndStride) {
  Random random(3);
  for (int64_t width : {1, 2, 15, 16, 17, 40}) {
    const Sides s = random_sides(random, 7, width, false);
    std::vector<Bounded> out(size_t(width * 3));
    contract(s.terms, s.b, width, out.data(), 3);
    for (int64_t j = 0; j < width; ++j) {
      double want = 0, magnitude = 0;
      for (size_t t = 0; t < 7; ++t) {
        const double p = s.terms.a[t] * s.b.values[t * size_t(width) + size_t(j)];
        want += p, magnitude += std::fabs(p);
      }
      EXPECT_EQ(out[size_t(j * 3)].v, want);
      EXPECT_EQ(out[size_t(j * 3)].e, sum_of_products(want, magnitude, 0, 7).e);
      EXPECT_EQ(out[size_t(j * 3 + 1)].v, 0);
    }
  }
}

// Single-precision sums in several orders, with operands anywhere in their intervals, stay within the bound.
TEST(Contraction, BoundHoldsForEveryOrderAndForUncertainOperands) {
  for (uint64_t seed : testing::seeds(1, 50)) {
    Random random(seed);
    const bool errors = random.one_in(2);
    const int64_t count = random.between(1, 300);
    const Sides s = random_sides(random, count, 1, errors);
    Bounded y;
    contract(s.terms, s.b, 1, &y, 1);
    std::vector<size_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), size_t{0});
    for (int trial = 0; trial < 20; ++trial) {
      if (trial % 2) std::reverse(order.begin(), order.end());
      else std::shuffle(order.begin(), order.end(), std::minstd_rand(unsigned(seed * 20 + uint64_t(trial))));
      float sum = 0;
      for (size_t t : order) {
        const double shift = double(random.between(-1, 1));
        const double a = s.terms.a[t] + (errors ? shift * s.terms.a_error[t] : 0);
        const double b = s.b.values[t] + (errors ? shift * s.b.errors[t] : 0);
        // The rounding of a shifted operand is not the operand's error.
        sum += errors ? float(a * b) : float(a) * float(b);
      }
      ASSERT_LE(std::fabs(double(sum) - y.v), y.e) << "seed " << seed;
    }
  }
}

TEST(Contraction, NothingSummedIsExactlyZero) {
  Bounded y(5, 5);
  contract({}, {{1.0}, {}}, 1, &y, 1);
  EXPECT_EQ(y.v, 0);
  EXPECT_EQ(y.e, 0);
}

TEST(Contraction, PermutedKeepsValuesAndErrorsTogether) {
  RefTensor::Dense d;
  for (int i = 0; i < 24; ++i) d.values.push_back(i), d.errors.push_back(i + 100);
  const RefTensor::Dense p = permuted(d, {2, 3, 4}, {2, 0, 1});
  for (int64_t a = 0; a < 4; ++a)
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t c = 0; c < 3; ++c) {
        const size_t at = size_t((a * 2 + b) * 3 + c);
        EXPECT_EQ(p.values[at], double((b * 3 + c) * 4 + a));
        EXPECT_EQ(p.errors[at], p.values[at] + 100);
      }
}

}  // namespace
}  // namespace tilewright
