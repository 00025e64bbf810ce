#include "engines/cudnn/descriptor.h"

#include <algorithm>

namespace tilewright::cudnn {

namespace {

std::string trimmed(std::string s) {
  for (char& c : s)
    if (c == '\n' || c == '\t' || c == '\r') c = ' ';
  s.erase(std::unique(s.begin(), s.end(), [](char a, char b) { return a == ' ' && b == ' '; }), s.end());
  const size_t first = s.find_first_not_of(' ');
  return first == s.npos ? "" : s.substr(first, s.find_last_not_of(' ') - first + 1);
}

}  // namespace

std::string condense(const std::string& pages) {
  constexpr size_t kMost = 240;
  std::string text = pages;
  if (const size_t reason = pages.find("Reason: "); reason != pages.npos) {
    text = pages.substr(reason + 8, pages.find('\n', reason) - reason - 8);
    const size_t line = pages.rfind('\n', reason) + 1;  // "Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: ..."
    const size_t status = pages.find("CUDNN_STATUS_", line);
    if (status < reason) text = pages.substr(status + 13, pages.find(';', status) - status - 13) + ": " + text;
  }
  text = trimmed(text);
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

std::string failure_text(StatusCode code) {
  const char* name = library().get_error_string(code);
  std::string text = name ? name : "?";
  if (text.rfind("CUDNN_STATUS_", 0) == 0) text = text.substr(13);
  std::vector<char> pages(16384, '\0');
  library().get_last_error_string(pages.data(), pages.size() - 1);
  const std::string why = condense(pages.data());
  return why.empty() ? text : why.rfind(text, 0) == 0 ? why : fmt::format("{}: {}", text, why);
}

Descriptor::Descriptor(Kind kind) : kind_(kind) {
  const StatusCode code = library().backend_create_descriptor(kind, &raw_);
  if (code != kSuccess) status_ = failure("cannot be created", nullptr, code), raw_ = nullptr;
}

Descriptor& Descriptor::operator=(Descriptor&& from) noexcept {
  if (this == &from) return *this;
  reset();
  kind_ = from.kind_;
  raw_ = std::exchange(from.raw_, nullptr);
  status_ = std::move(from.status_);
  return *this;
}

void Descriptor::reset() {
  if (raw_) library().backend_destroy_descriptor(raw_);
  raw_ = nullptr;
}

Status Descriptor::failure(const char* what, const char* name, StatusCode code) const {
  return error(error_code_t::CUDNN_BACKEND_API_FAILED, "cuDNN {}: {}{}: {}", to_text(kind_), what, name ? name : "",
               failure_text(code));
}

Descriptor& Descriptor::set(Attr name, AttrType type, int64_t count, const void* elements) {
  if (status_.is_bad()) return *this;
  const StatusCode code = library().backend_set_attribute(raw_, name, type, count, elements);
  if (code != kSuccess) status_ = failure("attribute ", to_text(name), code);
  return *this;
}

Descriptor& Descriptor::integer(Attr name, int64_t v) { return set(name, AttrType::INT64, 1, &v); }
Descriptor& Descriptor::integers(Attr name, const std::vector<int64_t>& v) {
  return set(name, AttrType::INT64, int64_t(v.size()), v.data());
}
Descriptor& Descriptor::int32(Attr name, int32_t v) { return set(name, AttrType::INT32, 1, &v); }
Descriptor& Descriptor::real(Attr name, float v) { return set(name, AttrType::FLOAT, 1, &v); }
Descriptor& Descriptor::real(Attr name, double v) { return set(name, AttrType::DOUBLE, 1, &v); }
Descriptor& Descriptor::boolean(Attr name, bool v) { return set(name, AttrType::BOOLEAN, 1, &v); }
Descriptor& Descriptor::value(Attr name, AttrType kind, int number) { return set(name, kind, 1, &number); }
Descriptor& Descriptor::handle(Attr name, Handle v) { return set(name, AttrType::HANDLE, 1, &v); }
Descriptor& Descriptor::pointer(Attr name, const void* v) { return set(name, AttrType::VOID_PTR, 1, &v); }
Descriptor& Descriptor::pointers(Attr name, void* const* v, int64_t count) {
  return set(name, AttrType::VOID_PTR, count, v);
}
Descriptor& Descriptor::text(Attr name, const std::string& v) {
  return set(name, AttrType::CHAR, int64_t(v.size()), v.data());
}

Descriptor& Descriptor::type(Attr name, DataType_t type) {
  const int n = number(type);
  if (n < 0 && status_.is_good())
    status_ =
        not_supported("cuDNN {}: attribute {}: cuDNN has no type {}", to_text(kind_), to_text(name), to_string(type));
  return value(name, AttrType::DATA_TYPE, n);
}

Descriptor& Descriptor::descriptor(Attr name, RawDescriptor d) {
  if (!d && status_.is_good())
    status_ = invalid("cuDNN {}: attribute {}: there is no descriptor", to_text(kind_), to_text(name));
  return set(name, AttrType::BACKEND_DESCRIPTOR, 1, &d);
}

Descriptor& Descriptor::descriptors(Attr name, const std::vector<RawDescriptor>& list) {
  return set(name, AttrType::BACKEND_DESCRIPTOR, int64_t(list.size()), list.data());
}

Status Descriptor::finalize() {
  if (status_.is_bad()) return status_;
  const StatusCode code = library().backend_finalize(raw_);
  if (code != kSuccess) status_ = failure("cannot be finalized", nullptr, code);
  return status_;
}

Result<int64_t> Descriptor::count(Attr name, AttrType type) const {
  if (status_.is_bad()) return status_;
  int64_t there = 0;
  const StatusCode code = library().backend_get_attribute(raw_, name, type, 0, &there, nullptr);
  if (code != kSuccess) return failure("count of ", to_text(name), code);
  return there;
}

Result<int64_t> Descriptor::get_integer(Attr name) const {
  if (status_.is_bad()) return status_;
  int64_t there = 0, v = 0;
  const StatusCode code = library().backend_get_attribute(raw_, name, AttrType::INT64, 1, &there, &v);
  if (code != kSuccess) return failure("attribute ", to_text(name), code);
  return v;
}

Result<std::vector<int>> Descriptor::get_values(Attr name, AttrType type, int64_t most) const {
  if (status_.is_bad()) return status_;
  std::vector<int> v(static_cast<size_t>(most));
  int64_t there = 0;
  const StatusCode code = library().backend_get_attribute(raw_, name, type, most, &there, v.data());
  if (code != kSuccess) return failure("attribute ", to_text(name), code);
  v.resize(size_t(std::clamp<int64_t>(there, 0, most)));
  return v;
}

Result<std::string> Descriptor::get_text(Attr name) const {
  TW_ASSIGN_OR_RETURN(int64_t size, count(name, AttrType::CHAR));
  std::string s(size_t(size), '\0');
  const StatusCode code = library().backend_get_attribute(raw_, name, AttrType::CHAR, size, &size, s.data());
  if (code != kSuccess) return failure("attribute ", to_text(name), code);
  s.resize(std::min(s.size(), size_t(size)));
  return s;
}

Result<std::vector<Descriptor>> Descriptor::get_descriptors(Attr name, Kind kind, int64_t most) const {
  if (status_.is_bad()) return status_;
  std::vector<Descriptor> list;
  std::vector<RawDescriptor> raw;
  for (int64_t i = 0; i < most; ++i) {
    list.emplace_back(kind);
    if (list.back().status().is_bad()) return list.back().status();
    raw.push_back(list.back().raw());
  }
  int64_t there = 0;
  const StatusCode code =
      library().backend_get_attribute(raw_, name, AttrType::BACKEND_DESCRIPTOR, most, &there, raw.data());
  if (code != kSuccess) return failure("attribute ", to_text(name), code);
  list.resize(size_t(std::clamp<int64_t>(there, 0, most)));
  return list;
}

}  // namespace tilewright::cudnn
