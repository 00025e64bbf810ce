// Philox4x32-10: the same random words as base/philox.h gives. Element i of a tensor, counted row-major over its dims,
// takes word i % 4 of block i / 4.
#pragma once

#include "tilewright/prelude.cuh"

namespace tw {

struct Philox {
  u64 seed, offset;

  struct Block {
    u32 word[4];
  };
  __forceinline__ Block block(u64 number) const {
    u32 x0 = u32(number), x1 = u32(number >> 32), x2 = u32(offset), x3 = u32(offset >> 32);
    u32 k0 = u32(seed), k1 = u32(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const u64 p0 = u64(0xD2511F53u) * x0, p1 = u64(0xCD9E8D57u) * x2;
      x0 = u32(p1 >> 32) ^ x1 ^ k0, x1 = u32(p1), x2 = u32(p0 >> 32) ^ x3 ^ k1, x3 = u32(p0);
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return {{x0, x1, x2, x3}};
  }
  static __forceinline__ u32 pick(const Block& b, u32 k) {
    const u32 low = k & 1 ? b.word[1] : b.word[0], high = k & 1 ? b.word[3] : b.word[2];
    return k & 2 ? high : low;
  }
  __forceinline__ u32 word(u64 element) const { return pick(block(element / 4), u32(element) % 4); }
  // The one definition of "kept": true with probability threshold / 2^32.
  __forceinline__ bool below(u64 element, u64 threshold) const { return word(element) < threshold; }
};

}  // namespace tw
