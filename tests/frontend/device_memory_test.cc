#include "tilewright/device_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "device/cuda/gpu.h"

namespace tilewright {
namespace {

// There and back, by way of a second piece of memory of the device.
void round_trip(Handle handle) {
  std::vector<int> from(1000), to(1000, -1);
  for (size_t i = 0; i < from.size(); ++i) from[i] = int(i * i);
  const int64_t bytes = int64_t(from.size() * sizeof(int));
  void *a = nullptr, *b = nullptr;
  ASSERT_TRUE(device_allocate(handle, bytes, &a).is_good());
  ASSERT_TRUE(device_allocate(handle, bytes, &b).is_good());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
  EXPECT_TRUE(device_copy(handle, a, from.data(), bytes).is_good());
  EXPECT_TRUE(device_copy(handle, b, a, bytes).is_good());
  EXPECT_TRUE(device_copy(handle, to.data(), b, bytes).is_good());
  EXPECT_EQ(to, from);
  EXPECT_TRUE(device_synchronize(handle).is_good());
  EXPECT_TRUE(device_free(handle, a).is_good());
  EXPECT_TRUE(device_free(handle, b).is_good());
}

TEST(DeviceMemoryApi, OnTheCpu) {
  round_trip({});
  Handle handle;
  ASSERT_TRUE(create_handle(&handle).is_good());
  round_trip(handle);
  void* memory = &handle;
  EXPECT_TRUE(device_allocate(handle, 0, &memory).is_good());
  EXPECT_EQ(memory, nullptr);
  EXPECT_TRUE(device_free(handle, nullptr).is_good());
  EXPECT_TRUE(device_copy(handle, nullptr, nullptr, 0).is_good());
  ASSERT_TRUE(destroy_handle(handle).is_good());
  EXPECT_EQ(device_synchronize(handle).code, error_code_t::HANDLE_ERROR);
}

TEST(DeviceMemoryApi, SaysWhatIsWrong) {
  void* memory = nullptr;
  EXPECT_NE(device_allocate({}, -1, &memory).err_msg.find("-1 bytes"), std::string::npos);
  EXPECT_TRUE(device_allocate({}, 4, nullptr).is_bad());
  EXPECT_TRUE(device_copy({}, &memory, nullptr, 4).is_bad());
  EXPECT_EQ(device_allocate(Handle(reinterpret_cast<cudnnContext*>(uintptr_t{0x7477} << 48)), 4, &memory).code,
            error_code_t::HANDLE_ERROR);
}

TEST(DeviceMemoryApiGpu, ThereAndBack) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::driver_lookup().problem;
  Handle handle;
  ASSERT_TRUE(create_handle(&handle, "cuda:0").is_good());
  round_trip(handle);
  void* memory = nullptr;
  EXPECT_TRUE(device_allocate(handle, int64_t{1} << 50, &memory).is_bad());
  EXPECT_TRUE(destroy_handle(handle).is_good());
}

}  // namespace
}  // namespace tilewright
