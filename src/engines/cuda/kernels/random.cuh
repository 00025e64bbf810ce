// Numbers of a distribution from words of the generator.
#pragma once

#include "tilewright/philox.cuh"

namespace tw {

// In [0, 1), a multiple of 2^-24.
DEV float uniform(u32 word) { return float(word >> 8) * from_bits(0x33800000u); }

// Mean 0, variance 1 (Box and Muller): two words make two numbers.
DEV double normal(u32 first, u32 second, bool odd) {
  const double scale = 1.0 / 4294967296.0;
  const double radius = ::sqrt(-2 * ::log((double(first) + 0.5) * scale));
  const double angle = 6.283185307179586477 * (double(second) + 0.5) * scale;
  return radius * (odd ? ::sin(angle) : ::cos(angle));
}

}  // namespace tw
