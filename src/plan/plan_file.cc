#include "plan/plan_file.h"

#include <cstring>

#include "base/hash.h"

namespace tilewright {
namespace {

constexpr char kMagic[8] = {'T', 'W', 'P', 'L', 'A', 'N', '\r', '\n'};
constexpr size_t kTagSize = 8;

template <class T>
void put(std::vector<uint8_t>& out, T v) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(uint8_t(v >> (8 * i)));
}

class Reader {
 public:
  explicit Reader(const std::vector<uint8_t>& bytes, size_t end) : bytes_(bytes), end_(end) {}
  bool skip(size_t n) { return n <= end_ - at_ ? (at_ += n, true) : false; }
  template <class T>
  bool get(T& v) {
    if (end_ - at_ < sizeof(T)) return false;
    v = 0;
    for (size_t i = 0; i < sizeof(T); ++i) v |= T(T(bytes_[at_ + i]) << (8 * i));
    at_ += sizeof(T);
    return true;
  }
  const uint8_t* here() const { return bytes_.data() + at_; }
  size_t left() const { return end_ - at_; }

 private:
  const std::vector<uint8_t>& bytes_;
  size_t at_ = 0, end_;
};

}  // namespace

bool is_plan_file(std::string_view bytes) {
  return bytes.substr(0, sizeof kMagic) == std::string_view(kMagic, sizeof kMagic);
}

std::vector<uint8_t> write_sections(const Sections& sections) {
  std::vector<uint8_t> out(kMagic, kMagic + sizeof kMagic);
  put(out, kPlanFileFormat);
  put(out, uint32_t(sections.size()));
  for (const auto& [tag, bytes] : sections) {
    TW_CHECK(tag.size() <= kTagSize);
    char name[kTagSize] = {};
    std::memcpy(name, tag.data(), tag.size());
    out.insert(out.end(), name, name + kTagSize);
    put(out, uint64_t(bytes.size()));
    put(out, hash_bytes(bytes.data(), bytes.size()));
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  put(out, hash_bytes(out.data(), out.size()));
  return out;
}

Result<Sections> read_sections(const std::vector<uint8_t>& bytes) {
  if (bytes.size() < sizeof kMagic || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    return invalid("plan file: {} bytes that do not begin as a plan file of this library does", bytes.size());
  Reader head(bytes, bytes.size());
  uint32_t format = 0, count = 0;
  head.skip(sizeof kMagic);
  if (!head.get(format) || !head.get(count)) return invalid("plan file: cut short after {} bytes", bytes.size());
  if (format != kPlanFileFormat)
    return invalid("plan file: format {}, this library reads format {}; build the plan again", format, kPlanFileFormat);
  if (head.left() < sizeof(uint64_t)) return invalid("plan file: cut short after {} bytes", bytes.size());
  const size_t end = bytes.size() - sizeof(uint64_t);
  Reader tail(bytes, bytes.size());
  uint64_t hash = 0;
  tail.skip(end);
  tail.get(hash);

  Reader r(bytes, end);
  r.skip(sizeof kMagic + 2 * sizeof(uint32_t));
  Sections sections;
  for (uint32_t i = 0; i < count; ++i) {
    char name[kTagSize + 1] = {};
    uint64_t size = 0, section_hash = 0;
    if (r.left() < kTagSize) return invalid("plan file: cut short in section {} of {}", i + 1, count);
    std::memcpy(name, r.here(), kTagSize);
    r.skip(kTagSize);
    if (!r.get(size) || !r.get(section_hash) || size > r.left())
      return invalid("plan file: cut short in section {} of {}", i + 1, count);
    if (hash_bytes(r.here(), size_t(size)) != section_hash)
      return invalid("plan file: section \"{}\" is damaged (its checksum does not match)", name);
    sections[name] = std::vector<uint8_t>(r.here(), r.here() + size);
    r.skip(size_t(size));
  }
  if (r.left() != 0 || hash_bytes(bytes.data(), end) != hash)
    return invalid("plan file: damaged, or cut short (the checksum of the whole does not match)");
  return sections;
}

}  // namespace tilewright
