// The API under the name that the field's programs use: cudnn_frontend, with the few helpers around it. A program
// written for cuDNN Frontend 1.23 compiles against this header unchanged.
//
// It includes <cudnn.h> and the CUDA headers where the compiler finds them; where it does not, no_cudnn/ stands in.
#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#else
#include "no_cudnn/cudnn.h"
#endif
#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#else
#include "no_cudnn/cuda_runtime.h"
#endif
#if __has_include(<cuda_fp16.h>) && __has_include(<cuda_bf16.h>)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include "no_cudnn/cuda_bf16.h"
#include "no_cudnn/cuda_fp16.h"
#endif

#include "tilewright/score_modifiers.h"
#include "tilewright/tilewright.h"

#define CUDNN_FRONTEND_MAJOR_VERSION 1
#define CUDNN_FRONTEND_MINOR_VERSION 23
#define CUDNN_FRONTEND_PATCH_VERSION 0
#define CUDNN_FRONTEND_VERSION \
  (CUDNN_FRONTEND_MAJOR_VERSION * 10000 + CUDNN_FRONTEND_MINOR_VERSION * 100 + CUDNN_FRONTEND_PATCH_VERSION)

// CUDA's own 16-bit types are graph scalars too.
#if !defined(TILEWRIGHT_NO_CUDA_FP16)
template <>
struct tilewright::graph::scalar_convert<__half> : std::true_type {
  static half from(__half v) {
    half r;
    return std::memcpy(&r.bits, &v, sizeof r.bits), r;
  }
};
#endif
#if !defined(TILEWRIGHT_NO_CUDA_BF16)
template <>
struct tilewright::graph::scalar_convert<__nv_bfloat16> : std::true_type {
  static bfloat16 from(__nv_bfloat16 v) {
    bfloat16 r;
    return std::memcpy(&r.bits, &v, sizeof r.bits), r;
  }
};
#endif

using json = tilewright::Json;

namespace cudnn_frontend {

namespace graph = tilewright::graph;

// Names one by one rather than the whole namespace: `using namespace cudnn_frontend` must not make `half` ambiguous.
#define TILEWRIGHT_COMPAT_USING(type, list) using tilewright::type;
TILEWRIGHT_ENUMS(TILEWRIGHT_COMPAT_USING)
#undef TILEWRIGHT_COMPAT_USING
using tilewright::create_handle;
using tilewright::destroy_handle;
using tilewright::DeviceProperties;
using tilewright::error_code_t;
using tilewright::error_object;
using tilewright::error_t;
using tilewright::from_string;
using tilewright::Handle;
using tilewright::KernelCache;
using tilewright::Knob;
using tilewright::LaunchList;
using tilewright::PlanInfo;
using tilewright::PlanState;
using tilewright::to_string;

class cudnnException : public std::runtime_error {
 public:
  explicit cudnnException(const std::string& message, cudnnStatus_t status) : runtime_error(message), status_(status) {}
  cudnnStatus_t getCudnnStatus() const { return status_; }

 private:
  cudnnStatus_t status_;
};
class cudnnGraphNotSupportedException : public std::runtime_error {
  using runtime_error::runtime_error;
};

// Where messages of programs go, and whether they do. The library has no log of its own.
inline bool& isLoggingEnabled() {
  static bool enabled = false;
  return enabled;
}
inline std::ostream& getLogger() {
  static std::ostream nowhere(nullptr);
  return isLoggingEnabled() ? std::cout : nowhere;
}

namespace detail {

// The backend that programs ask about is Tilewright, which behaves as cuDNN 9.19 does.
constexpr size_t get_backend_version() { return 91900; }
constexpr size_t get_compiled_version() { return 91900; }

inline std::string convert_version_to_str(size_t version) {
  const size_t major = version < 90000 ? 1000 : 10000;
  return std::to_string(version / major) + "." + std::to_string(version % major / 100) + "." +
         std::to_string(version % 100);
}
inline std::string get_backend_version_string() { return convert_version_to_str(get_backend_version()); }

constexpr size_t get_element_size_in_bits(DataType_t type) {
  switch (type) {
    case DataType_t::NOT_SET: return 0;
    case DataType_t::BOOLEAN: return 1;
    case DataType_t::FP4_E2M1:
    case DataType_t::INT4: return 4;
    case DataType_t::INT8:
    case DataType_t::UINT8:
    case DataType_t::FP8_E4M3:
    case DataType_t::FP8_E5M2:
    case DataType_t::FP8_E8M0:
    case DataType_t::FAST_FLOAT_FOR_FP8: return 8;
    case DataType_t::HALF:
    case DataType_t::BFLOAT16: return 16;
    case DataType_t::FLOAT:
    case DataType_t::INT32:
    case DataType_t::INT8x4:
    case DataType_t::UINT8x4: return 32;
    case DataType_t::DOUBLE:
    case DataType_t::INT64:
    case DataType_t::COMPLEX_FP32: return 64;
    case DataType_t::COMPLEX_FP64: return 128;
    case DataType_t::INT8x32: return 256;
  }
  return 0;
}
constexpr size_t get_data_type_size(DataType_t type) { return get_element_size_in_bits(type) / 8; }

constexpr bool is_activation_backward_mode(PointwiseMode_t mode) {
  return mode == PointwiseMode_t::RELU_BWD || mode == PointwiseMode_t::TANH_BWD ||
         mode == PointwiseMode_t::SIGMOID_BWD || mode == PointwiseMode_t::ELU_BWD ||
         mode == PointwiseMode_t::GELU_BWD || mode == PointwiseMode_t::GELU_APPROX_TANH_BWD ||
         mode == PointwiseMode_t::SOFTPLUS_BWD || mode == PointwiseMode_t::SWISH_BWD;
}

// Packed strides where the dim of order 0 is the fastest.
inline std::vector<int64_t> generate_stride(const std::vector<int64_t>& dim, const std::vector<int64_t>& order) {
  std::vector<int64_t> stride(dim.size());
  int64_t step = 1;
  for (size_t rank = 0; rank < dim.size(); ++rank) {
    for (size_t i = 0; i < dim.size(); ++i) {
      if (order[i] == int64_t(rank)) stride[i] = step, step *= dim[i];
    }
  }
  return stride;
}
inline std::vector<int64_t> generate_row_major_stride_order(int64_t rank) {
  std::vector<int64_t> order(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i) order[size_t(i)] = rank - 1 - i;
  return order;
}
inline std::vector<int64_t> generate_column_major_stride_order(int64_t rank) {
  std::vector<int64_t> order = generate_row_major_stride_order(rank);
  if (rank > 2) std::swap(order[size_t(rank) - 1], order[size_t(rank) - 2]);
  return order;
}
// Dim 1 (channels) fastest, then the spatial dims from the last, dim 0 slowest.
inline std::vector<int64_t> generate_NHWC_stride_order(int64_t rank) {
  std::vector<int64_t> order = generate_row_major_stride_order(rank);
  for (size_t i = 2; i < order.size(); ++i) ++order[i];
  if (rank > 1) order[1] = 0;
  return order;
}

}  // namespace detail
}  // namespace cudnn_frontend

// Returns the status from the calling function when it is an error.
#define CHECK_CUDNN_FRONTEND_ERROR(expression) \
  do { \
    if (auto tilewright_status = (expression); tilewright_status.is_bad()) { \
      ::cudnn_frontend::getLogger() << "[cudnn_frontend] ERROR " << #expression << ": " \
                                    << tilewright_status.get_message() << std::endl; \
      return tilewright_status; \
    } \
  } while (0)
#define RETURN_CUDNN_FRONTEND_ERROR_IF(condition, code, message) \
  do { \
    if (condition) { \
      ::cudnn_frontend::getLogger() << "[cudnn_frontend] ERROR " << message << std::endl; \
      return {code, message}; \
    } \
  } while (0)
#define CUDNN_FRONTEND_UNUSED(x) ((void)(x))
#define CUDNN_FE_LOG(message) (void)(::cudnn_frontend::getLogger() << message)
#define CUDNN_FE_LOG_LABEL(message) (void)(::cudnn_frontend::getLogger() << "[cudnn_frontend] " << message)
#define CUDNN_FE_LOG_LABEL_ENDL(message) \
  (void)(::cudnn_frontend::getLogger() << "[cudnn_frontend] " << message << std::endl)
