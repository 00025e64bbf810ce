#include "frontend/json_value.h"

#include <cmath>
#include <limits>
#include <ostream>

namespace tilewright {
namespace {

// Copying and printing a value recurse into it: a text nested deeper than any graph file is refused.
constexpr int kMaxDepth = 1000;

bool deeper_than(const std::string& text, int most) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// The value when it is an integer that Int holds, else 0.
template <class Int>
Int integer_of(const nlohmann::json& value) {
  using Limits = std::numeric_limits<Int>;
  if (value.is_number_float()) {  // "3.0", as some writers print integers
    const double d = value.get<double>();
    return d >= double(Limits::min()) && d < -double(Limits::min()) && d == std::trunc(d) ? Int(d) : 0;
  }
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= uint64_t(Limits::max()) ? value.get<Int>() : 0;
  if (!value.is_number_integer()) return 0;
  const int64_t i = value.get<int64_t>();
  return i >= Limits::min() && i <= Limits::max() ? Int(i) : 0;
}

}  // namespace

Json::Json() : rep_(std::make_unique<Rep>()) {}
Json::Json(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
Json::Json(const Json& other) : rep_(std::make_unique<Rep>(*other.rep_)) {}
Json::Json(Json&& other) noexcept : rep_(std::move(other.rep_)) { other.rep_ = std::make_unique<Rep>(); }
Json& Json::operator=(Json other) { return rep_.swap(other.rep_), *this; }
Json::~Json() = default;

Json Json::parse(const std::string& text, bool* ok) {
  auto rep = std::make_unique<Rep>();
  const bool good = !deeper_than(text, kMaxDepth) && [&] {
    rep->value = nlohmann::json::parse(text, nullptr, false);
    return !rep->value.is_discarded();
  }();
  if (!good) rep->value = nullptr;
  if (ok) *ok = good;
  return Json(std::move(rep));
}

// Bytes that are no UTF-8 are replaced: printing never fails.
std::string Json::dump(int indent) const {
  return rep_->value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool Json::is_null() const { return rep_->value.is_null(); }
bool Json::is_array() const { return rep_->value.is_array(); }
bool Json::is_object() const { return rep_->value.is_object(); }
bool Json::contains(const std::string& key) const { return rep_->value.contains(key); }
size_t Json::size() const { return rep_->value.size(); }

Json Json::operator[](const std::string& key) const {
  return contains(key) ? Json(std::make_unique<Rep>(Rep{rep_->value[key]})) : Json();
}
Json Json::operator[](size_t index) const {
  return is_array() && index < size() ? Json(std::make_unique<Rep>(Rep{rep_->value[index]})) : Json();
}

std::vector<std::string> Json::keys() const {
  std::vector<std::string> keys;
  if (is_object())
    for (const auto& [key, value] : rep_->value.items()) keys.push_back(key);
  return keys;
}

template <>
bool Json::get<bool>() const {
  return rep_->value.is_boolean() && rep_->value.get<bool>();
}
template <>
int64_t Json::get<int64_t>() const {
  return integer_of<int64_t>(rep_->value);
}
template <>
int Json::get<int>() const {
  return integer_of<int>(rep_->value);
}
template <>
double Json::get<double>() const {
  return rep_->value.is_number() ? rep_->value.get<double>() : 0;
}
template <>
std::string Json::get<std::string>() const {
  return rep_->value.is_string() ? rep_->value.get<std::string>() : std::string();
}

bool Json::operator==(const Json& other) const { return rep_->value == other.rep_->value; }

std::ostream& operator<<(std::ostream& out, const Json& j) { return out << j.dump(); }

}  // namespace tilewright
