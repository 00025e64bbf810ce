// The names, values and functions of cuDNN that we declare ourselves, against its headers where they are installed.
#include "engines/cudnn/api.h"

#include <gtest/gtest.h>

#include "support/same_interface.h"

#if __has_include(<cudnn.h>) && __has_include(<cuda_runtime_api.h>)
#include <cudnn.h>
#define TW_HAS_CUDNN_HEADERS 1
#endif

namespace tilewright::cudnn {
namespace {

#ifndef TW_HAS_CUDNN_HEADERS

TEST(CudnnApi, IsThatOfTheHeaders) { GTEST_SKIP() << "the headers of cuDNN and CUDA are not installed"; }

#else

#define X(MEMBER, NAME, RESULT, ARGUMENTS) \
  static_assert(SameFunction<RESULT(*) ARGUMENTS, decltype(&::NAME)>::value, #NAME);
TW_CUDNN_FUNCTIONS(X)
#if CUDNN_VERSION >= 90500
TW_CUDNN_LATER_FUNCTIONS(X)
#endif
#undef X
static_assert(std::is_same_v<Handle, ::cudnnHandle_t> && std::is_same_v<RawDescriptor, ::cudnnBackendDescriptor_t>);

TEST(CudnnApi, NumbersAreThoseOfTheHeaders) {
  if (CUDNN_VERSION < 91900) GTEST_SKIP() << "the headers are of a cuDNN before 9.19, without its latest names";
  EXPECT_EQ(int(kSuccess), int(CUDNN_STATUS_SUCCESS));
#if CUDNN_VERSION >= 91900
#define TW_SAME(NAME, VALUE) EXPECT_EQ(VALUE, int(TW_THEIRS(NAME))) << #NAME;
#define TW_THEIRS(NAME) CUDNN_BACKEND_##NAME##_DESCRIPTOR
  TW_CUDNN_DESCRIPTORS(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_TYPE_##NAME
  TW_CUDNN_ATTRIBUTE_TYPES(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_ATTR_##NAME
  TW_CUDNN_ATTRIBUTES(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_DATA_##NAME
  TW_CUDNN_DATA_TYPES(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_POINTWISE_##NAME
  TW_CUDNN_POINTWISE_MODES(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_REDUCE_TENSOR_##NAME
  TW_CUDNN_REDUCTION_MODES(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_RESAMPLE_##NAME
  TW_CUDNN_RESAMPLE_MODES(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_##NAME
  TW_CUDNN_PADDING_MODES(TW_SAME)
  TW_CUDNN_CONVOLUTION_MODES(TW_SAME)
  TW_CUDNN_NORM_MODES(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_NORM_FWD_##NAME
  TW_CUDNN_NORM_PHASES(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_RNG_DISTRIBUTION_##NAME
  TW_CUDNN_RNG_DISTRIBUTIONS(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_TENSOR_REORDERING_##NAME
  TW_CUDNN_REORDERINGS(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_BEHAVIOR_NOTE_##NAME
  TW_CUDNN_BEHAVIOR_NOTES(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_NUMERICAL_NOTE_##NAME
  TW_CUDNN_NUMERICAL_NOTES(TW_SAME)
#undef TW_THEIRS
#define TW_THEIRS(NAME) CUDNN_KNOB_TYPE_##NAME
  TW_CUDNN_KNOB_TYPES(TW_SAME)
#undef TW_THEIRS
#undef TW_SAME
#endif
}

#endif

}  // namespace
}  // namespace tilewright::cudnn
