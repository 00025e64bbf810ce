#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tilewright {

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(data, size, seed); }

}  // namespace tilewright
