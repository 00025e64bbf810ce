#include "plan/roofline.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

TEST(Roofline, ShareIsOfTheLimitThatBinds) {
  const Roofline r = {1e12, 1e15};
  EXPECT_DOUBLE_EQ(r.share(1e12, 1e9, 2), 0.5);    // 1 ms of flops, 1 ms of bytes, in 2 ms
  EXPECT_DOUBLE_EQ(r.share(1e12, 4e9, 8), 0.5);    // 4 ms of bytes
  EXPECT_DOUBLE_EQ(r.share(16e12, 4e9, 32), 0.5);  // 16 ms of flops
  EXPECT_EQ(r.share(1e12, 1e9, 0), 0);
  EXPECT_EQ(Roofline{}.share(1e12, 1e9, 1), 0);  // nothing is known
}

TEST(Roofline, OfThisCpu) {
  const auto r = measure_roofline(Target::this_machine(), {});
  ASSERT_TRUE(r) << r.status().err_msg;
  EXPECT_GT(r->bytes_per_s, 1e8);
  EXPECT_LT(r->bytes_per_s, 1e13);
  EXPECT_GT(r->flops_per_s, 1e7);
  EXPECT_LT(r->flops_per_s, 1e15);
}

}  // namespace
}  // namespace tilewright
