#include "plan/device_timer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tilewright {
namespace {

// Copies on a stream of the test's own.
class DeviceTimerGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::driver_lookup().problem;
    device_ = std::make_unique<cuda::ScopedDevice>(0);
    ASSERT_EQ(cuda::driver().stream_create(&stream_, cuda::kStreamNonBlocking), cuda::kSuccess);
    queue_.ordinal = 0, queue_.stream = stream_;
  }
  void TearDown() override {
    if (stream_) cuda::driver().stream_destroy(stream_);
  }
  DeviceTimer::Run copy(int64_t bytes, const Queue& queue) {
    auto memory = cuda::DeviceMemory::allocate(0, 2 * bytes);
    EXPECT_TRUE(memory) << memory.status().err_msg;
    memory_ = std::move(*memory);
    return [this, bytes, queue](int64_t turn) {
      most_turn_ = std::max(most_turn_, turn);
      const auto to = reinterpret_cast<cuda::CUdeviceptr>(memory_.data());
      return cuda::check(cuda::driver().memcpy_dtod_async(to, to + cuda::CUdeviceptr(bytes), size_t(bytes),
                                                          static_cast<cuda::CUstream>(queue.stream)),
                         "copy");
    };
  }

  std::unique_ptr<cuda::ScopedDevice> device_;
  cuda::CUstream stream_ = nullptr;
  cuda::DeviceMemory memory_;
  Queue queue_;
  int64_t most_turn_ = 0;
};

double middle(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

TEST_F(DeviceTimerGpu, BriefRunsAreCapturedInBatchesThatRotate) {
  auto timer = DeviceTimer::make(queue_, copy(1 << 20, queue_), 3);
  ASSERT_TRUE(timer) << timer.status().err_msg;
  EXPECT_TRUE(timer->captured());
  EXPECT_GT(timer->batch(), 3);
  EXPECT_EQ(timer->batch() % 3, 0);
  EXPECT_EQ(most_turn_, 2);
  const auto ms = timer->samples(20);
  ASSERT_TRUE(ms) << ms.status().err_msg;
  ASSERT_EQ(ms->size(), 20u);
  EXPECT_GT(middle(*ms), 1e-4);
  EXPECT_LT(middle(*ms), 0.2);
}

TEST_F(DeviceTimerGpu, LongRunsAreSamplesOfTheirOwn) {
  constexpr int64_t kBytes = int64_t{2} << 30;
  auto timer = DeviceTimer::make(queue_, copy(kBytes, queue_), 2);
  ASSERT_TRUE(timer) << timer.status().err_msg;
  EXPECT_FALSE(timer->captured());
  EXPECT_EQ(timer->batch(), 1);
  const auto ms = timer->samples(5);
  ASSERT_TRUE(ms) << ms.status().err_msg;
  const double bytes_per_s = 2.0 * double(kBytes) / middle(*ms) * 1e3;
  EXPECT_GT(bytes_per_s, 1e9);
  EXPECT_LT(bytes_per_s, 2e13);
}

TEST_F(DeviceTimerGpu, TheDefaultStreamIsTimedWithoutCapturing) {
  Queue queue = queue_;
  queue.stream = nullptr;
  auto timer = DeviceTimer::make(queue, copy(1 << 20, queue), 2);
  ASSERT_TRUE(timer) << timer.status().err_msg;
  EXPECT_FALSE(timer->captured());
  EXPECT_GT(middle(*timer->samples(3)), 0);
}

TEST_F(DeviceTimerGpu, ARunThatFailsIsAnError) {
  const auto timer = DeviceTimer::make(
      queue_, [](int64_t) { return invalid("no run"); }, 1);
  EXPECT_EQ(timer.status().err_msg, "no run");
}

// One that waits cannot be captured: it is timed all the same.
TEST_F(DeviceTimerGpu, ARunThatCannotBeCapturedIsLaunched) {
  const auto run = copy(1 << 20, queue_);
  auto timer = DeviceTimer::make(
      queue_,
      [&](int64_t turn) {
        cuda::CUstreamCaptureStatus capturing = cuda::kNotCapturing;
        TW_RETURN_IF_BAD(cuda::check(cuda::driver().stream_is_capturing(stream_, &capturing), "cuStreamIsCapturing"));
        return capturing == cuda::kNotCapturing ? run(turn) : invalid("not while capturing");
      },
      1);
  ASSERT_TRUE(timer) << timer.status().err_msg;
  EXPECT_FALSE(timer->captured());
  EXPECT_TRUE(timer->samples(3));
}

}  // namespace
}  // namespace tilewright
