// Types that few kernels take: elements below a byte, several in one, and scales of eight bits.
#pragma once

#include "tilewright/prelude.cuh"

namespace tw {

// A power of two from 2^-127 to 2^127, or NaN.
struct e8m0 {
  u8 v;
  DEV float get(e8m0 e) {
    if (e.v == 0xffu) return from_bits(0x7fc00000u);
    return from_bits(e.v == 0 ? 0x400000u : u32(e.v) << 23);
  }
  template <class F>
  DEV e8m0 set(F y) {
    const double x = double(y);
    if (is_nan(x)) return {0xff};
    if (x <= 5.877471754111438e-39) return {0};
    if (x >= 1.7014118346046923e38) return {0xfe};
    const u64 bits = u64(__double_as_longlong(x)), code = (bits >> 52) - (1023 - 127);
    const u64 fraction = bits << 12, tie = u64(1) << 63;
    return {u8(code + (fraction > tie || (fraction == tie && (code & 1))))};
  }
};

// Of the types below a byte: how many bits, and values from and to codes.
struct bit {
  static constexpr int kBits = 1;
  DEV float decode(u32 code) { return float(code); }
  template <class F>
  DEV u32 encode(F x) {
    return x != F(0);
  }
};
struct int4 {
  static constexpr int kBits = 4;
  DEV float decode(u32 code) { return float(int(code ^ 8u) - 8); }
  template <class F>
  DEV u32 encode(F x) {
    return u32(s4::set(x).v) & 15u;
  }
};
// No infinity and no NaN: both become the largest value.
struct e2m1 {
  static constexpr int kBits = 4;
  DEV float decode(u32 code) {
    const u32 m = code & 7u;
    const float magnitude = m < 2 ? 0.5f * float(m) : from_bits(((m >> 1) + 126u) << 23 | (m & 1u) << 22);
    return code & 8u ? -magnitude : magnitude;
  }
  template <class F>
  DEV u32 encode(F y) {
    const float x = to_odd(y), a = fabsf(x);
    if (is_nan(x)) return 7u;
    const u32 m = a <= 0.25f  ? 0u
                  : a < 0.75f ? 1u
                  : a <= 1.25f ? 2u
                  : a < 1.75f ? 3u
                  : a <= 2.5f ? 4u
                  : a < 3.5f  ? 5u
                  : a <= 5.f  ? 6u
                              : 7u;
    return m | (bits(x) >> 28 & 8u);
  }
};

template <class T>
DEV float load_packed(const u8* memory, i64 i) {
  constexpr int per_byte = 8 / T::kBits;
  return T::decode(memory[i / per_byte] >> (i % per_byte * T::kBits) & ((1u << T::kBits) - 1u));
}
// Other threads may be writing the neighbours.
template <class T, class F>
DEV void store_packed(u8* memory, i64 i, F x) {
  constexpr int per_byte = 8 / T::kBits;
  const u64 byte = reinterpret_cast<u64>(memory + i / per_byte);
  u32* const word = reinterpret_cast<u32*>(byte & ~u64(3));
  const u32 shift = u32(byte & 3) * 8u + u32(i % per_byte) * T::kBits, mask = ((1u << T::kBits) - 1u) << shift;
  u32 before = *reinterpret_cast<volatile u32*>(word), seen;
  do {
    seen = before;
    before = atomicCAS(word, seen, (seen & ~mask) | (T::encode(x) << shift));
  } while (before != seen);
}

}  // namespace tw
