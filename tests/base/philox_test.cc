#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tilewright {
namespace {

// The known answers that the generator's authors publish with it.
TEST(Philox, GivesTheKnownAnswers) {
  Philox zero;
  EXPECT_EQ(zero.block(0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  Philox ones(-1, -1);
  EXPECT_EQ(ones.block(~uint64_t(0)), (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Counter and key made of the digits of pi, least significant word first.
  Philox pi(int64_t(0x299f31d0a4093822), int64_t(0x0370734413198a2e));
  EXPECT_EQ(pi.block(0x85a308d3243f6a88), (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, ElementsTakeTheWordsOfTheirBlock) {
  const Philox p(1234, 5);
  for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(p.word(i), p.block(i / 4)[i % 4]);
  EXPECT_NE(p.word(7), Philox(1234, 6).word(7));
  EXPECT_NE(p.word(7), Philox(1235, 5).word(7));
  EXPECT_NE(p.word(7), p.word(7 + (uint64_t(1) << 34)));
}

TEST(Philox, KeepsWithTheGivenProbability) {
  const Philox p(42, 0);
  EXPECT_FALSE(p.keep(0, 0));
  EXPECT_TRUE(p.keep(0, 1));
  EXPECT_EQ(Philox::threshold(1), uint64_t(1) << 32);
  EXPECT_EQ(Philox::threshold(0.5), uint64_t(1) << 31);
  constexpr int64_t kCount = 100000;
  for (double probability : {0.1, 0.5, 0.9}) {
    int64_t kept = 0, pairs = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const bool now = p.keep(uint64_t(i), probability);
      kept += now, pairs += now && p.keep(uint64_t(i + 1), probability);
    }
    // Five standard deviations, for the rate and for neighbours.
    const double rate = probability, both = probability * probability;
    EXPECT_NEAR(double(kept) / kCount, rate, 5 * std::sqrt(rate * (1 - rate) / kCount));
    EXPECT_NEAR(double(pairs) / kCount, both, 5 * std::sqrt(3 * both * (1 - both) / kCount));
  }
}

TEST(Philox, UniformAndNormalHaveTheirMoments) {
  const Philox p(7, 7);
  constexpr int64_t kCount = 100000;
  double u1 = 0, u2 = 0, n1 = 0, n2 = 0, n4 = 0, cross = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double u = p.uniform(i), z = p.normal(i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ASSERT_EQ(double(float(u)), u);
    u1 += u, u2 += u * u, n1 += z, n2 += z * z, n4 += z * z * z * z, cross += z * p.normal(i ^ 1);
  }
  const double root = std::sqrt(double(kCount));
  EXPECT_NEAR(u1 / kCount, 0.5, 5 * std::sqrt(1. / 12) / root);
  EXPECT_NEAR(u2 / kCount, 1. / 3, 5 * 0.3 / root);
  EXPECT_NEAR(n1 / kCount, 0, 5 / root);
  EXPECT_NEAR(n2 / kCount, 1, 5 * std::sqrt(2.) / root);
  EXPECT_NEAR(n4 / kCount, 3, 5 * std::sqrt(96.) / root);
  EXPECT_NEAR(cross / kCount, 0, 5 * std::sqrt(2.) / root);
}

}  // namespace
}  // namespace tilewright
