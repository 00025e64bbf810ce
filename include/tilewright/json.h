// A small JSON value. It keeps the JSON library out of user code: parsing and printing are inside the library.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace tilewright {

class Json {
 public:
  Json();
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(Json);
  ~Json();

  // A null value with `ok` = false when the text is not JSON.
  static Json parse(const std::string& text, bool* ok = nullptr);
  std::string dump(int indent = -1) const;

  bool is_null() const;
  bool is_array() const;
  bool is_object() const;
  bool contains(const std::string& key) const;
  size_t size() const;
  Json operator[](const std::string& key) const;  // null when absent
  Json operator[](const char* key) const { return (*this)[std::string(key)]; }
  Json operator[](size_t index) const;
  Json operator[](int index) const { return (*this)[size_t(index)]; }
  Json at(const std::string& key) const { return (*this)[key]; }
  std::vector<std::string> keys() const;

  // The value as T (bool, int64_t, int, double, std::string), or T{} when it is something else.
  template <class T>
  T get() const;

  bool operator==(const Json& other) const;
  bool operator!=(const Json& other) const { return !(*this == other); }

  struct Rep;  // wraps the JSON library's value
  explicit Json(std::unique_ptr<Rep> rep);
  const Rep& rep() const { return *rep_; }

 private:
  std::unique_ptr<Rep> rep_;
};

template <>
bool Json::get<bool>() const;
template <>
int Json::get<int>() const;
template <>
int64_t Json::get<int64_t>() const;
template <>
double Json::get<double>() const;
template <>
std::string Json::get<std::string>() const;

std::ostream& operator<<(std::ostream&, const Json&);

}  // namespace tilewright
#pragma GCC visibility pop
