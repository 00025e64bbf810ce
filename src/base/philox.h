// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): random bits as a
// pure function of a key and a counter. The key is the seed; the counter holds the offset and the number of a block of
// four words. Element i of a tensor, counted row-major over its dims, takes word i % 4 of block i / 4, so the numbers
// depend neither on layout nor on who computes them in which order. The rng op, attention's dropout and every engine
// draw from here.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/numeric_types.h"

namespace tilewright {

// A seed or offset in memory. An INT64 keeps all its bits, which a double would not.
inline int64_t integer_key(const void* memory, DataType_t type) {
  if (type != DataType_t::INT64) return int64_t(load_element(memory, type, 0));
  int64_t v;
  std::memcpy(&v, memory, sizeof v);
  return v;
}

struct Philox {
  uint64_t seed = 0, offset = 0;

  Philox() = default;
  // Seeds of INT32 and INT64 tensors with the same value give the same numbers.
  Philox(int64_t seed_value, int64_t offset_value) : seed(uint64_t(seed_value)), offset(uint64_t(offset_value)) {}

  std::array<uint32_t, 4> block(uint64_t number) const {
    std::array<uint32_t, 4> x = {uint32_t(number), uint32_t(number >> 32), uint32_t(offset), uint32_t(offset >> 32)};
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t(0xD2511F53) * x[0], p1 = uint64_t(0xCD9E8D57) * x[2];
      x = {uint32_t(p1 >> 32) ^ x[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ x[3] ^ k1, uint32_t(p0)};
      k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    }
    return x;
  }
  uint32_t word(uint64_t element) const { return block(element / 4)[element % 4]; }

  // True with probability p. This is the one definition of "kept" for masks and dropout.
  static uint64_t threshold(double p) { return !(p > 0) ? 0 : p >= 1 ? uint64_t(1) << 32 : uint64_t(p * 0x1p32); }
  bool below(uint64_t element, uint64_t threshold_value) const { return word(element) < threshold_value; }
  bool keep(uint64_t element, double p) const { return below(element, threshold(p)); }

  // In [0, 1), a multiple of 2^-24: exact in FLOAT.
  double uniform(uint64_t element) const { return double(word(element) >> 8) * 0x1p-24; }
  // Mean 0, variance 1 (Box and Muller): elements 2i and 2i + 1 share two words.
  double normal(uint64_t element) const {
    const std::array<uint32_t, 4> w = block(element / 4);
    const size_t pair = element % 4 / 2 * 2;
    const double radius = std::sqrt(-2 * std::log((double(w[pair]) + 0.5) * 0x1p-32));
    const double angle = 6.283185307179586477 * (double(w[pair + 1]) + 0.5) * 0x1p-32;
    return radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }
};

}  // namespace tilewright
