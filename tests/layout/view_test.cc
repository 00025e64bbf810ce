#include "layout/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>

namespace tilewright {
namespace {

using testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::vector<int64_t> addresses(const View& view) {
  std::vector<int64_t> all;
  Dims index(view.dim.size());
  for (int64_t i = 0; i < volume(view.dim); ++i) {
    unravel(i, view.dim, index.data());
    all.push_back(offset_of(view.stride, index.data()));
  }
  return all;
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  Dims dims(size_t rank, int64_t largest) {
    Dims d(rank);
    for (int64_t& x : d) x = between(1, largest);
    return d;
  }
  // Packed in a random order of dims, sometimes with padding, sometimes with dims broadcast.
  Dims strides(const Dims& dim, bool broadcasts) {
    std::vector<size_t> order(dim.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (between(0, 2) == 0) std::shuffle(order.begin(), order.end(), engine_);
    Dims stride(dim.size());
    int64_t step = 1;
    for (size_t i = order.size(); i-- > 0;) {
      if (broadcasts && between(0, 4) == 0) continue;  // stays 0
      stride[order[i]] = step;
      step = step * dim[order[i]] + (between(0, 3) == 0 ? between(1, 3) : 0);
    }
    return stride;
  }

 private:
  std::mt19937 engine_;
};

TEST(Dims, Text) {
  EXPECT_EQ(to_text({2, 3, 4}), "[2, 3, 4]");
  EXPECT_EQ(to_text({}), "[]");
  EXPECT_EQ(to_text({-1}), "[-1]");
}

TEST(Volume, IsCheckedForOverflow) {
  EXPECT_EQ(volume({}), 1);
  EXPECT_EQ(volume({3, 4}), 12);
  EXPECT_EQ(volume({3, 0, 4}), 0);
  EXPECT_EQ(volume_checked({1 << 20, 1 << 20}), int64_t{1} << 40);
  EXPECT_EQ(volume_checked({int64_t{1} << 31, int64_t{1} << 31, 1}), int64_t{1} << 62);
  EXPECT_EQ(volume_checked({int64_t{1} << 31, int64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(volume({int64_t{1} << 31, int64_t{1} << 32}), kMax);
  EXPECT_EQ(volume_checked({int64_t{1} << 40, int64_t{1} << 40, 0}), 0);
  EXPECT_EQ(volume_checked({4, -1}), std::nullopt);
}

TEST(StorageElements, IsTheLastAddressPlusOne) {
  EXPECT_EQ(storage_elements({{2, 3}, {3, 1}}), 6);
  EXPECT_EQ(storage_elements({{2, 3}, {10, 2}}), 15);
  EXPECT_EQ(storage_elements({{2, 3}, {0, 0}}), 1);
  EXPECT_EQ(storage_elements({{}, {}}), 1);
  EXPECT_EQ(storage_elements({{2, 0}, {1, 1}}), 0);
  EXPECT_EQ(storage_elements({{kMax / 2, 9}, {9, 1}}), kMax);
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    View v;
    v.dim = random.dims(size_t(random.between(0, 4)), 5);
    v.stride = random.strides(v.dim, true);
    const auto all = addresses(v);
    ASSERT_EQ(storage_elements(v), *std::max_element(all.begin(), all.end()) + 1) << to_text(v.dim);
  }
}

TEST(SelfOverlaps, AgreesWithBruteForce) {
  Random random(2);
  int overlapping = 0;
  constexpr int kViews = 20000;
  for (int i = 0; i < kViews; ++i) {
    View v;
    v.dim = random.dims(size_t(random.between(0, 4)), 4);
    for (size_t d = 0; d < v.dim.size(); ++d) v.stride.push_back(random.between(-3, 40));
    auto all = addresses(v);
    std::sort(all.begin(), all.end());
    const bool expected = std::adjacent_find(all.begin(), all.end()) != all.end();
    overlapping += expected;
    ASSERT_EQ(self_overlaps(v), expected) << to_text(v.dim) << " stride " << to_text(v.stride);
  }
  EXPECT_GT(overlapping, kViews / 10);
  EXPECT_LT(overlapping, kViews * 9 / 10);
}

TEST(SelfOverlaps, KnowsRealLayouts) {
  EXPECT_FALSE(self_overlaps({{8, 64, 56, 56}, {64 * 56 * 56, 1, 56 * 64, 64}}));
  EXPECT_FALSE(self_overlaps({{1, 3}, {0, 1}}));  // a stride that nothing walks
  EXPECT_TRUE(self_overlaps({{2, 3}, {0, 1}}));
  // Interleaved: dim 0 steps over rows that dim 1 leaves room for.
  EXPECT_FALSE(self_overlaps({{3, 4}, {1, 3}}));
  EXPECT_FALSE(self_overlaps({{2, 5}, {7, 2}}));
  EXPECT_TRUE(self_overlaps({{2, 5}, {8, 2}}));
  // Batch 1 begins one token after batch 0.
  EXPECT_TRUE(self_overlaps({{2, 2, 3, 8}, {16, 8, 16, 1}}));
  EXPECT_FALSE(self_overlaps({{2, 2, 3, 8}, {48, 8, 16, 1}}));
  // The last element of a row of 8 falls into the next batch of 6.
  EXPECT_TRUE(self_overlaps({{2, 2, 3}, {6, 1, 3}}));
  EXPECT_FALSE(self_overlaps({{2, 2, 3}, {6, 1, 2}}));
}

TEST(SelfOverlaps, AnswersQuicklyForHugeDims) {
  EXPECT_FALSE(self_overlaps({{int64_t{1} << 30, int64_t{1} << 30}, {1, int64_t{1} << 30}}));
  EXPECT_TRUE(self_overlaps({{int64_t{1} << 30, int64_t{1} << 30}, {1, int64_t{1} << 29}}));
  EXPECT_FALSE(self_overlaps({{1000000, 1000000, 2}, {2, 2000000, 1}}));
  EXPECT_FALSE(self_overlaps({{2, 1000000}, {1000001, 2}}));
  EXPECT_TRUE(self_overlaps({{3, 1000002}, {1000001, 2}}));
}

// --- strides ---------------------------------------------------------------------------------------------------------

TEST(Strides, FollowAnOrder) {
  EXPECT_EQ(strides_from_order({2, 3, 4, 5}, {3, 0, 2, 1}), (Dims{60, 1, 15, 3}));
  EXPECT_EQ(strides_from_order({}, {}), Dims{});
}

TEST(Strides, RowMajor) {
  EXPECT_EQ(row_major_strides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(row_major_strides({7}), (Dims{1}));
  EXPECT_EQ(row_major_strides({2, 0, 3}), (Dims{3, 3, 1}));
}

TEST(Strides, ColumnMajorSwapsTheLastTwoFromRankThreeOn) {
  EXPECT_EQ(column_major_strides({2, 3, 4}), (Dims{12, 1, 3}));
  EXPECT_EQ(column_major_strides({5, 2, 3, 4}), (Dims{24, 12, 1, 3}));
  EXPECT_EQ(column_major_strides({3, 4}), (Dims{4, 1}));
}

TEST(Strides, ChannelsLast) {
  EXPECT_EQ(channels_last_strides({2, 3, 4, 5}), (Dims{60, 1, 15, 3}));
  EXPECT_EQ(channels_last_strides({2, 3, 4, 5, 6}), (Dims{360, 1, 90, 18, 3}));
  EXPECT_EQ(channels_last_strides({2, 3, 7}), (Dims{21, 1, 3}));
  EXPECT_EQ(channels_last_strides({2, 3}), (Dims{3, 1}));
  EXPECT_EQ(channels_last_strides({4}), (Dims{1}));
}

TEST(Strides, LikeAnother) {
  const Dims dim = {2, 6, 4, 5};
  EXPECT_EQ(strides_like(dim, row_major_strides({9, 8, 7, 6})), row_major_strides(dim));
  EXPECT_EQ(strides_like(dim, channels_last_strides({9, 8, 7, 6})), channels_last_strides(dim));
  EXPECT_EQ(strides_like(dim, {100000, 1, 1000, 10}), channels_last_strides(dim));  // padding does not matter
  EXPECT_EQ(strides_like({3, 4}, {1, 10}), (Dims{1, 3}));
  // Dims that the model lacks are the slowest.
  EXPECT_EQ(strides_like({2, 3, 4}, {3, 1}), (Dims{3, 1, 6}));
}

TEST(Strides, LikeOneWithASingleChannel) {
  const Dims y = {2, 4, 3, 3};
  EXPECT_EQ(strides_like(y, {36, 36, 6, 1}), row_major_strides(y));     // [2, 1, 6, 6] packed
  EXPECT_EQ(strides_like(y, {36, 1, 6, 1}), channels_last_strides(y));  // the same, channels last
}

TEST(Strides, GeneratorsArePackedWithoutOverlap) {
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    const Dims dim = random.dims(size_t(random.between(1, 5)), 4);
    const Dims like = random.strides(random.dims(dim.size(), 4), true);
    for (const Dims& stride :
         {row_major_strides(dim), column_major_strides(dim), channels_last_strides(dim), strides_like(dim, like)}) {
      ASSERT_EQ(storage_elements({dim, stride}), volume(dim)) << to_text(dim) << to_text(stride);
      ASSERT_FALSE(self_overlaps({dim, stride})) << to_text(dim) << to_text(stride);
    }
  }
}

// --- broadcast -------------------------------------------------------------------------------------------------------

TEST(BroadcastDims, FollowNumpy) {
  EXPECT_EQ(*broadcast_dims({{2, 3}, {3}}), (Dims{2, 3}));
  EXPECT_EQ(*broadcast_dims({{2, 1, 4}, {3, 1}}), (Dims{2, 3, 4}));
  EXPECT_EQ(*broadcast_dims({{1}, {5, 1, 1}}), (Dims{5, 1, 1}));
  EXPECT_EQ(*broadcast_dims({{}, {2, 2}}), (Dims{2, 2}));
}

TEST(BroadcastDims, SaysWhichSizesClash) {
  const auto clash = broadcast_dims({{2, 3}, {4, 3}});
  EXPECT_EQ(clash.status().code, error_code_t::SHAPE_DEDUCTION_FAILED);
  EXPECT_THAT(clash.status().err_msg, HasSubstr("[2, 3] and [4, 3]"));
  EXPECT_THAT(clash.status().err_msg, HasSubstr("2 and 4 clash"));
  EXPECT_EQ(broadcast_dims({{}, {}}).status().code, error_code_t::SHAPE_DEDUCTION_FAILED);
}

TEST(BroadcastStrides, ReadTheElementThatTheRulesName) {
  Random random(4);
  for (int i = 0; i < 300; ++i) {
    const Dims to = random.dims(size_t(random.between(1, 4)), 4);
    const size_t rank = size_t(random.between(0, int64_t(to.size())));
    View v;
    v.dim.assign(to.end() - int64_t(rank), to.end());
    for (int64_t& d : v.dim)
      if (random.between(0, 2) == 0) d = 1;
    v.stride = random.strides(v.dim, true);
    const Dims stride = broadcast_strides(v, to);
    Dims index(to.size());
    for (int64_t linear = 0; linear < volume(to); ++linear) {
      unravel(linear, to, index.data());
      int64_t expected = 0;
      for (size_t d = 0; d < rank; ++d) expected += (v.dim[d] == 1 ? 0 : index[to.size() - rank + d]) * v.stride[d];
      ASSERT_EQ(offset_of(stride, index.data()), expected);
    }
  }
  EXPECT_EQ(broadcast_strides({{1, 3}, {3, 1}}, {4, 2, 3}), (Dims{0, 0, 1}));
}

// --- walking ---------------------------------------------------------------------------------------------------------

TEST(Unravel, CountsInRowMajorOrder) {
  const Dims dim = {2, 1, 3};
  Dims index(3), expected = {0, 0, 0};
  for (int64_t i = 0; i < 6; ++i) {
    unravel(i, dim, index.data());
    EXPECT_EQ(index, (Dims{i / 3, 0, i % 3}));
    EXPECT_EQ(offset_of_linear(i, {dim, {100, 7, 10}}), i / 3 * 100 + i % 3 * 10);
  }
}

TEST(Collapse, KeepsEveryAddressInOrder) {
  Random random(5);
  int64_t merged = 0;
  for (int i = 0; i < 3000; ++i) {
    const Dims domain = random.dims(size_t(random.between(0, 6)), 4);
    std::vector<Dims> strides;
    for (int64_t t = random.between(0, 3); t > 0; --t) strides.push_back(random.strides(domain, true));
    const Collapsed c = collapse(domain, strides);
    ASSERT_GE(c.dim.size(), 1u);
    ASSERT_EQ(c.stride.size(), strides.size());
    ASSERT_EQ(volume(c.dim), volume(domain));
    for (size_t t = 0; t < strides.size(); ++t) {
      ASSERT_EQ(c.stride[t].size(), c.dim.size());
      ASSERT_EQ(addresses({c.dim, c.stride[t]}), addresses({domain, strides[t]})) << to_text(domain);
    }
    merged += int64_t(domain.size()) > int64_t(c.dim.size());
    // Nothing more to merge, and no dim of size 1 unless it is alone.
    for (size_t d = 0; d + 1 < c.dim.size(); ++d) {
      ASSERT_GT(c.dim[d], 1);
      bool mergeable = true;
      for (const Dims& s : c.stride) mergeable &= s[d] == s[d + 1] * c.dim[d + 1];
      ASSERT_FALSE(mergeable);
    }
  }
  EXPECT_GT(merged, 500);
}

TEST(Collapse, PackedTensorsBecomeOneRow) {
  const Dims domain = {2, 1, 3, 4};
  const Collapsed c = collapse(domain, {row_major_strides(domain), {12, 99, 4, 1}});
  EXPECT_EQ(c.dim, (Dims{24}));
  EXPECT_EQ(c.stride, (std::vector<Dims>{{1}, {1}}));
}

TEST(Collapse, KeepsBroadcastDimSeparate) {
  const Collapsed c = collapse({2, 3, 4, 5}, {{60, 20, 5, 1}, {0, 1, 0, 0}});
  EXPECT_EQ(c.dim, (Dims{2, 3, 20}));
  EXPECT_EQ(c.stride, (std::vector<Dims>{{60, 20, 1}, {0, 1, 0}}));
}

TEST(Collapse, OneElementAndNone) {
  EXPECT_EQ(collapse({1, 1}, {{5, 5}}).dim, (Dims{1}));
  EXPECT_EQ(collapse({}, {{}}).dim, (Dims{1}));
  EXPECT_EQ(collapse({3, 0, 2}, {{0, 2, 1}}).dim, (Dims{0}));
}

}  // namespace
}  // namespace tilewright
