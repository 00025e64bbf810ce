// What a machine of the target's kind does at best, roughly: from it engines estimate times, to rank plans before any
// is measured.
#pragma once

#include <algorithm>

#include "plan/target.h"

namespace tilewright {

struct Rates {
  double flops_per_ms;  // of FLOAT
  double bytes_per_ms;  // from and to memory
};

inline Rates peak_rates(const Target& target) {
  const double threads = std::max(1, target.threads);
  const double flops = target.arch == "avx512" ? 250e6 : target.arch == "avx2" ? 100e6 : 10e6;
  return {threads * flops, std::min(threads, 8.0) * 25e6};
}

}  // namespace tilewright
