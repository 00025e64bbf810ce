#include "tilewright/device_properties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/target.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

Bytes bytes_of(const DeviceProperties& p) {
  Bytes bytes;
  EXPECT_TRUE(p.serialize(bytes).is_good());
  return bytes;
}

TEST(DeviceProperties, DescribeThisMachine) {
  if (cuda::device_count() > 0) GTEST_SKIP() << "they describe the GPU here";
  DeviceProperties p;
  p.set_device_id(3).set_handle(nullptr);
  ASSERT_TRUE(p.build().is_good()) << p.status();
  EXPECT_EQ(p.target(), Target::this_machine().text());
  EXPECT_THAT(p.describe(), HasSubstr(p.target()));
  EXPECT_THAT(p.describe(), HasSubstr("3"));
}

TEST(DeviceProperties, OfAGpuAreItsJson) {
  const std::string json = Target::parse("h200")->gpu->json;
  DeviceProperties p;
  ASSERT_TRUE(p.deserialize({json.begin(), json.end()}).is_good()) << p.status();
  EXPECT_EQ(p.target(), "cuda:sm_90,sms=132,smem=227,l2=60");
  const Bytes bytes = bytes_of(p);
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), json);
  EXPECT_THAT(DeviceProperties().deserialize({'{', '}'}).err_msg, HasSubstr("\"deviceVer\" is missing"));
}

TEST(DeviceProperties, BytesComeBackTheSame) {
  if (cuda::device_count() > 0) GTEST_SKIP() << "they describe the GPU here";
  DeviceProperties p, q;
  p.set_device_id(7);
  ASSERT_TRUE(p.build().is_good());
  const Bytes bytes = bytes_of(p);
  ASSERT_TRUE(q.deserialize(bytes).is_good()) << q.status();
  EXPECT_EQ(q.target(), p.target());
  EXPECT_EQ(q.describe(), p.describe());
  EXPECT_EQ(bytes_of(q), bytes);
}

TEST(DeviceProperties, NeedBuildFirst) {
  Bytes bytes = {1, 2};
  EXPECT_EQ(DeviceProperties().serialize(bytes).code, error_code_t::INVALID_VALUE);
  EXPECT_EQ(bytes, (Bytes{1, 2}));
}

TEST(DeviceProperties, ForeignHandleIsRefused) {
  DeviceProperties p;
  p.set_handle(Handle(reinterpret_cast<cudnnContext*>(16)));
  EXPECT_EQ(p.build().code, error_code_t::HANDLE_ERROR);
  EXPECT_EQ(p.status().code, error_code_t::HANDLE_ERROR);
}

TEST(DeviceProperties, AnyDamageIsRefusedAndChangesNothing) {
  DeviceProperties p;
  p.set_device_id(7);
  ASSERT_TRUE(p.build().is_good());
  const Bytes good = bytes_of(p);
  const auto refused = [](const Bytes& bytes) {
    DeviceProperties q;
    const bool bad = q.deserialize(bytes) == error_code_t::INVALID_VALUE && q.status().is_bad();
    return bad && q.target().empty() && !q.status().err_msg.empty();
  };
  for (size_t length = 0; length < good.size(); ++length)
    ASSERT_TRUE(refused(Bytes(good.begin(), good.begin() + int64_t(length)))) << length << " bytes";
  for (size_t at = 0; at < good.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      Bytes damaged = good;
      damaged[at] ^= uint8_t(1 << bit);
      ASSERT_TRUE(refused(damaged)) << "byte " << at << " bit " << bit;
    }
  Bytes longer = good;
  longer.push_back(0);
  EXPECT_TRUE(refused(longer));
}

}  // namespace
}  // namespace tilewright
