// What this machine reaches at best, measured: how fast it copies memory and how fast it multiplies matrices. Plans are
// told as shares of these. Measured once per machine, and kept in a file beside the tuned plans.
#pragma once

#include <string>

#include "plan/engine.h"

namespace tilewright {

struct Roofline {
  double bytes_per_s = 0;  // of a large copy, read and written
  double flops_per_s = 0;  // of a large product: of BFLOAT16 on a GPU, of FLOAT on a CPU

  // The share of the limit that bounds work of so many operations and bytes, done in `ms`.
  double share(double flops, double bytes, double ms) const;
};

// From the file, else measured and written there.
Result<Roofline> roofline(const Target&, const Queue&);
Result<Roofline> measure_roofline(const Target&, const Queue&);
std::string roofline_path();  // empty: nothing is kept

}  // namespace tilewright
