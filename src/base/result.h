// Status and Result<T>: errors as values. Status is the public status object.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "tilewright/status.h"

namespace tilewright {

using Status = error_object;

template <class... Args>
Status error(error_code_t code, fmt::format_string<Args...> text, Args&&... args) {
  return {code, fmt::format(text, std::forward<Args>(args)...)};
}
// The commonest kind: a value that cannot be right.
template <class... Args>
Status invalid(fmt::format_string<Args...> text, Args&&... args) {
  return {error_code_t::INVALID_VALUE, fmt::format(text, std::forward<Args>(args)...)};
}
template <class... Args>
Status not_set(fmt::format_string<Args...> text, Args&&... args) {
  return {error_code_t::ATTRIBUTE_NOT_SET, fmt::format(text, std::forward<Args>(args)...)};
}
template <class... Args>
Status not_supported(fmt::format_string<Args...> text, Args&&... args) {
  return {error_code_t::GRAPH_NOT_SUPPORTED, fmt::format(text, std::forward<Args>(args)...)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}
  explicit operator bool() const { return status_.is_good(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define TW_RETURN_IF_BAD(expr) \
  do { \
    if (::tilewright::Status tw_status_ = (expr); tw_status_.is_bad()) return tw_status_; \
  } while (0)
#define TW_CONCAT_(a, b) a##b
#define TW_CONCAT(a, b) TW_CONCAT_(a, b)
#define TW_ASSIGN_OR_RETURN(decl, expr) TW_ASSIGN_(TW_CONCAT(tw_result_, __LINE__), decl, expr)
#define TW_ASSIGN_(tmp, decl, expr) \
  auto tmp = (expr); \
  if (!tmp) return tmp.status(); \
  decl = std::move(*tmp)

// Our own bug, not the caller's: says where and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* what);
#define TW_CHECK(cond) \
  do { \
    if (!(cond)) ::tilewright::check_failed(__FILE__, __LINE__, #cond); \
  } while (0)

}  // namespace tilewright

template <>
struct fmt::formatter<tilewright::error_code_t> : fmt::formatter<std::string> {
  auto format(tilewright::error_code_t c, format_context& ctx) const {
    return formatter<std::string>::format(to_string(c), ctx);
  }
};
