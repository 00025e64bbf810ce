#include "tilewright/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "frontend/gpu_execution.h"
#include "frontend/handle.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

TEST(Handle, IsKnownUntilDestroyed) {
  Handle a, b;
  ASSERT_TRUE(create_handle(&a).is_good());
  ASSERT_TRUE(create_handle(&b).is_good());
  EXPECT_NE(a.get(), b.get());
  EXPECT_TRUE(queue_of(a).status().is_good());
  EXPECT_TRUE(destroy_handle(a).is_good());
  EXPECT_EQ(queue_of(a).status().code, error_code_t::HANDLE_ERROR);
  EXPECT_EQ(destroy_handle(a).code, error_code_t::HANDLE_ERROR);
  EXPECT_EQ(set_stream(a, nullptr).code, error_code_t::HANDLE_ERROR);
  EXPECT_TRUE(queue_of(b).status().is_good());
  EXPECT_TRUE(destroy_handle(b).is_good());
}

TEST(Handle, ADestroyedOneIsNotTakenForANewOne) {
  Handle old;
  ASSERT_TRUE(create_handle(&old).is_good());
  ASSERT_TRUE(destroy_handle(old).is_good());
  std::vector<Handle> later(100);
  for (Handle& h : later) ASSERT_TRUE(create_handle(&h).is_good());
  EXPECT_EQ(queue_of(old).status().code, error_code_t::HANDLE_ERROR);
  for (Handle h : later) EXPECT_TRUE(destroy_handle(h).is_good());
}

TEST(Handle, NullIsTheCpu) {
  EXPECT_TRUE(queue_of(Handle()).status().is_good());
  EXPECT_TRUE(queue_of(nullptr).status().is_good());
  EXPECT_FALSE(Handle());
}

TEST(Handle, AForeignPointerIsLookedUpAndNeverRead) {
  const Handle foreign(reinterpret_cast<cudnnContext*>(16));
  EXPECT_EQ(queue_of(foreign).status().code, error_code_t::HANDLE_ERROR);
  EXPECT_THAT(queue_of(foreign).status().err_msg, HasSubstr("0x10"));
  EXPECT_EQ(destroy_handle(foreign).code, error_code_t::HANDLE_ERROR);
}

TEST(Handle, KeepsTheStream) {
  Handle h;
  ASSERT_TRUE(create_handle(&h).is_good());
  int some;
  void* stream = &some;
  EXPECT_TRUE(get_stream(h, &stream).is_good());
  EXPECT_EQ(stream, nullptr);
  EXPECT_TRUE(set_stream(h, &some).is_good());
  EXPECT_TRUE(get_stream(h, &stream).is_good());
  EXPECT_EQ(stream, &some);
  EXPECT_TRUE(destroy_handle(h).is_good());
  EXPECT_EQ(get_stream(h, &stream).code, error_code_t::HANDLE_ERROR);
}

TEST(Handle, RefusesNullResults) {
  EXPECT_EQ(create_handle(nullptr).code, error_code_t::INVALID_VALUE);
  EXPECT_EQ(get_stream(nullptr, nullptr).code, error_code_t::INVALID_VALUE);
}

TEST(Handle, IsSafeFromSeveralThreads) {
  std::vector<std::thread> threads;
  std::vector<int> bad(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        Handle h;
        void* stream = nullptr;
        bad[size_t(t)] += create_handle(&h).is_bad();
        bad[size_t(t)] += set_stream(h, &bad).is_bad();
        bad[size_t(t)] += queue_of(h).status().is_bad();
        bad[size_t(t)] += get_stream(h, &stream).is_bad() || stream != &bad;
        bad[size_t(t)] += destroy_handle(h).is_bad();
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(bad, std::vector<int>(4, 0));
}

TEST(Version, IsTheSameInTextAndNumber) {
  const int v = version();
  EXPECT_EQ(version_string(),
            std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100));
}

TEST(Handle, OfADeviceByName) {
  Handle h;
  ASSERT_TRUE(create_handle(&h, "cpu").is_good());
  std::string device;
  EXPECT_TRUE(get_device(h, device).is_good());
  EXPECT_EQ(device, "cpu");
  EXPECT_TRUE(destroy_handle(h).is_good());
  EXPECT_TRUE(get_device(Handle(), device).is_good());
  EXPECT_EQ(device, "cpu");
  EXPECT_EQ(get_device(h, device).code, error_code_t::HANDLE_ERROR);
}

TEST(Handle, ADeviceThatIsNotThereIsNamed) {
  Handle h;
  for (const char* device : {"", "gpu", "cuda:", "cuda:x", "cuda1", "cuda:-1", "cuda:00001"}) {
    const error_t e = create_handle(&h, device);
    EXPECT_EQ(e.code, error_code_t::INVALID_VALUE) << device;
    EXPECT_THAT(e.err_msg, HasSubstr(std::string("\"") + device + "\""));
  }
  const error_t e = create_handle(&h, "cuda:9999");
  EXPECT_EQ(e.code, error_code_t::INVALID_CUDA_DEVICE);
  EXPECT_THAT(e.err_msg, HasSubstr("cuda:9999"));
  if (cuda::device_count() == 0) {
    EXPECT_THAT(e.err_msg, HasSubstr("\nto mend it: ")) << "the second line";
  }
  EXPECT_FALSE(h);
}

TEST(Handle, PlansAreBoundToTheirDevice) {
  Target gpu = *Target::parse("h200");
  EXPECT_THAT(graph::check_device(gpu, {}).err_msg, HasSubstr("without a device"));
  gpu.ordinal = 1;
  EXPECT_TRUE(graph::check_device(gpu, {1, nullptr, nullptr}).is_good());
  EXPECT_THAT(graph::check_device(gpu, {0, nullptr, nullptr}).err_msg, HasSubstr("bound to GPU 1"));
  EXPECT_THAT(graph::check_device(gpu, {}).err_msg, HasSubstr("of the CPU"));
  EXPECT_THAT(graph::check_device(Target::this_machine(), {0, nullptr, nullptr}).err_msg, HasSubstr("of GPU 0"));
  EXPECT_TRUE(graph::check_device(Target::this_machine(), {}).is_good());
}

}  // namespace
}  // namespace tilewright
