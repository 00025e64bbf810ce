// Text forms of the vocabulary's enums, from the lists of types.h and status.h.
#include <iterator>
#include <ostream>

#include "base/result.h"
#include "tilewright/types.h"

namespace tilewright {
namespace {

// Enumerators are dense from 0, so a value is its place in the list.
template <class E, size_t N>
std::string text_of(E value, const char* const (&names)[N], const char* type) {
  const auto i = static_cast<long long>(value);
  if (i >= 0 && i < static_cast<long long>(N)) return names[i];
  return std::string(type) + "(" + std::to_string(i) + ")";
}

template <class E, size_t N>
bool value_of(std::string_view text, const char* const (&names)[N], E& value) {
  for (size_t i = 0; i < N; ++i)
    if (text == names[i]) {
      value = static_cast<E>(i);
      return true;
    }
  return false;
}

}  // namespace

#define TILEWRIGHT_NAME(name) #name,
#define TILEWRIGHT_DEFINE_TEXT(type, list) \
  namespace { \
  constexpr const char* const k##type##Names[] = {list(TILEWRIGHT_NAME)}; \
  } \
  std::string to_string(type value) { return text_of(value, k##type##Names, #type); } \
  bool from_string(std::string_view text, type& value) { return value_of(text, k##type##Names, value); } \
  std::ostream& operator<<(std::ostream& out, type value) { return out << to_string(value); }
TILEWRIGHT_ENUMS(TILEWRIGHT_DEFINE_TEXT)
#undef TILEWRIGHT_DEFINE_TEXT

namespace {
constexpr const char* const kErrorCodeNames[] = {TILEWRIGHT_ERROR_CODES(TILEWRIGHT_NAME)};
}
#undef TILEWRIGHT_NAME

std::string to_string(error_code_t code) { return text_of(code, kErrorCodeNames, "error_code_t"); }
std::ostream& operator<<(std::ostream& out, error_code_t code) { return out << to_string(code); }
std::ostream& operator<<(std::ostream& out, const error_object& status) {
  out << to_string(status.code);
  if (!status.err_msg.empty()) out << ": " << status.err_msg;
  return out;
}

}  // namespace tilewright
