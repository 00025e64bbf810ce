#include "frontend/json_value.h"

#include <ostream>

namespace tilewright {

Json::Json() : rep_(std::make_unique<Rep>()) {}
Json::Json(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
Json::Json(const Json& other) : rep_(std::make_unique<Rep>(*other.rep_)) {}
Json::Json(Json&& other) noexcept : rep_(std::move(other.rep_)) { other.rep_ = std::make_unique<Rep>(); }
Json& Json::operator=(Json other) { return rep_.swap(other.rep_), *this; }
Json::~Json() = default;

Json Json::parse(const std::string& text, bool* ok) {
  auto rep = std::make_unique<Rep>(Rep{nlohmann::json::parse(text, nullptr, false)});
  const bool good = !rep->value.is_discarded();
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
  return rep_->value.is_number() ? rep_->value.get<int64_t>() : 0;
}
template <>
int Json::get<int>() const {
  return int(get<int64_t>());
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
