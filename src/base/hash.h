// 64-bit content hashes (xxHash): keys and checksums, not cryptography.
#pragma once

#include <cstdint>
#include <string_view>

namespace tilewright {
uint64_t hash_bytes(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t hash_text(std::string_view text, uint64_t seed = 0) {
  return hash_bytes(text.data(), text.size(), seed);
}
}  // namespace tilewright
