// The status object that every call returns. No exception leaves the library.
#pragma once

#include <iosfwd>
#include <string>
#include <utility>

#pragma GCC visibility push(default)
namespace tilewright {

// clang-format off
#define TILEWRIGHT_ERROR_CODES(X) \
  X(OK) X(ATTRIBUTE_NOT_SET) X(SHAPE_DEDUCTION_FAILED) X(INVALID_TENSOR_NAME) X(INVALID_VARIANT_PACK) \
  X(GRAPH_NOT_SUPPORTED) X(GRAPH_EXECUTION_PLAN_CREATION_FAILED) X(GRAPH_EXECUTION_FAILED) \
  X(HEURISTIC_QUERY_FAILED) X(UNSUPPORTED_GRAPH_FORMAT) X(CUDA_API_FAILED) X(CUDNN_BACKEND_API_FAILED) \
  X(INVALID_CUDA_DEVICE) X(HANDLE_ERROR) X(INVALID_VALUE) X(NVRTC_COMPILATION_FAILED)

#define TILEWRIGHT_CODE(name) name,
enum class [[nodiscard]] error_code_t { TILEWRIGHT_ERROR_CODES(TILEWRIGHT_CODE) };
#undef TILEWRIGHT_CODE
// clang-format on

std::string to_string(error_code_t);
std::ostream& operator<<(std::ostream&, error_code_t);

class [[nodiscard]] error_object {
 public:
  error_code_t code = error_code_t::OK;
  std::string err_msg;

  error_object() = default;
  error_object(error_code_t c, std::string message) : code(c), err_msg(std::move(message)) {}

  error_code_t get_code() const { return code; }
  std::string get_message() const { return err_msg; }
  bool is_good() const { return code == error_code_t::OK; }
  bool is_bad() const { return !is_good(); }
  bool operator==(error_code_t other) const { return code == other; }
  bool operator!=(error_code_t other) const { return code != other; }
};
std::ostream& operator<<(std::ostream&, const error_object&);

using error_t = error_object;

}  // namespace tilewright
#pragma GCC visibility pop
