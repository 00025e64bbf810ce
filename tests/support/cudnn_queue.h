// A stream and a cuDNN handle on the first GPU, for tests of plans that run there.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "device/cuda/gpu.h"
#include "engines/cudnn/loader.h"
#include "plan/engine.h"
#include "plan/target.h"

namespace tilewright::testing {

// Whether the reference's bound, which follows from the types alone, holds for it.
inline bool exact_enough(const Candidate& c) {
  return std::none_of(c.notes.begin(), c.notes.end(), [](const std::string& n) { return n == "tf32 inside"; }) &&
         std::none_of(c.numerical_notes.begin(), c.numerical_notes.end(), [](NumericalNote_t n) {
           return n == NumericalNote_t::REDUCED_PRECISION_REDUCTION || n == NumericalNote_t::WINOGRAD ||
                  n == NumericalNote_t::FFT;
         });
}

class CudnnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no NVIDIA GPU: " << cuda::driver_lookup().problem;
    if (!cudnn::lookup().calls) GTEST_SKIP() << cudnn::lookup().error_text();
    device_ = std::make_unique<cuda::ScopedDevice>(0);
    ASSERT_TRUE(device_->status().is_good()) << device_->status().err_msg;
    auto target = Target::of_gpu(0);
    ASSERT_TRUE(target) << target.status().err_msg;
    target_ = *target;
    ASSERT_EQ(cuda::driver().stream_create(&stream_, cuda::kStreamNonBlocking), cuda::kSuccess);
    ASSERT_EQ(cudnn::library().create(&handle_), cudnn::kSuccess);
    ASSERT_EQ(cudnn::library().set_stream(handle_, stream_), cudnn::kSuccess);
    queue_ = {0, stream_, handle_};
  }
  void TearDown() override {
    if (handle_) cudnn::library().destroy(handle_);
    if (stream_) cuda::driver().stream_destroy(stream_);
  }
  void wait() { ASSERT_EQ(cuda::driver().stream_synchronize(stream_), cuda::kSuccess); }

  Target target_;
  Queue queue_;
  cuda::CUstream stream_ = nullptr;
  cudnn::Handle handle_ = nullptr;

 private:
  std::unique_ptr<cuda::ScopedDevice> device_;
};

}  // namespace tilewright::testing
