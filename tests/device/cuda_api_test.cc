// The names, values and functions of the CUDA driver and of NVRTC that we declare ourselves, against the toolkit's
// headers where they are installed.
#include <gtest/gtest.h>

#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "support/same_interface.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#define TW_HAS_CUDA_HEADERS 1
#endif
#if __has_include(<nvrtc.h>)
#include <nvrtc.h>
#define TW_HAS_NVRTC_HEADERS 1
#endif

namespace tilewright::cuda {
namespace {

#ifdef TW_HAS_CUDA_HEADERS

#define TW_CUDA(MEMBER, SYMBOL, ARGUMENTS) \
  static_assert(SameFunction<CUresult(*) ARGUMENTS, decltype(&::SYMBOL)>::value, #SYMBOL);
#include "device/cuda/driver.def"
#undef TW_CUDA

TEST(CudaApi, NumbersAreThoseOfTheHeader) {
#define SAME(OURS, THEIRS) EXPECT_EQ(int64_t(OURS), int64_t(THEIRS)) << #OURS
  SAME(kSuccess, CUDA_SUCCESS);
  SAME(kErrorInvalidValue, CUDA_ERROR_INVALID_VALUE);
  SAME(kErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  SAME(kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  SAME(kPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  SAME(kMemoryTypeHost, CU_MEMORYTYPE_HOST);
  SAME(kMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);
  SAME(kCaptureGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
  SAME(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  SAME(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
  SAME(kNotCapturing, CU_STREAM_CAPTURE_STATUS_NONE);
  SAME(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  SAME(kPageableMemoryAccess, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
#define TW_ATTRIBUTE(KEY, NAME, NUMBER) SAME(NUMBER, CU_DEVICE_ATTRIBUTE_##NAME);
#include "device/cuda/attributes.def"
#undef TW_ATTRIBUTE
#undef SAME
}

#else
TEST(CudaApi, NumbersAreThoseOfTheHeader) { GTEST_SKIP() << "the headers of CUDA are not installed"; }
#endif

#ifdef TW_HAS_NVRTC_HEADERS
#define TW_NVRTC(MEMBER, SYMBOL, RESULT, ARGUMENTS) \
  static_assert(SameFunction<RESULT(*) ARGUMENTS, decltype(&::SYMBOL)>::value, #SYMBOL);
#define TW_NVRTC_LATER TW_NVRTC
#include "device/cuda/nvrtc.def"
#undef TW_NVRTC_LATER
#undef TW_NVRTC
TEST(NvrtcApi, SuccessIsZero) { EXPECT_EQ(int(NVRTC_SUCCESS), 0); }
#else
TEST(NvrtcApi, SuccessIsZero) { GTEST_SKIP() << "the headers of NVRTC are not installed"; }
#endif

}  // namespace
}  // namespace tilewright::cuda
