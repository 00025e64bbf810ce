// What a machine of the target's kind does at best, roughly: from it engines estimate times, to rank plans before any
// is measured.
#pragma once

#include <algorithm>

#include "plan/target.h"

namespace tilewright {

struct Rates {
  double flops_per_ms;  // of FLOAT on a CPU, of HALF on a GPU's tensor cores
  double bytes_per_ms;  // from and to memory
};

inline Rates peak_rates(const Target& target) {
  if (target
          .is_gpu()) {  // multiply-adds of a multiprocessor in a clock of about 1.7 GHz; the memory that the parts have
    const int arch = target.gpu->arch;
    const double flops = arch >= 100 && arch < 120 ? 8192 : arch == 90 ? 4096 : arch == 80 ? 2048 : 1024;
    const double bytes = arch >= 100 && arch < 120 ? 7e9 : arch == 90 ? 4e9 : arch == 80 ? 1.6e9 : 0.5e9;
    return {target.gpu->sms * flops * 1.7e6, bytes};
  }
  const double threads = std::max(1, target.threads);
  const double flops = target.arch == "avx512" ? 250e6 : target.arch == "avx2" ? 100e6 : 10e6;
  return {threads * flops, std::min(threads, 8.0) * 25e6};
}

}  // namespace tilewright
