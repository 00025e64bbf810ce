// The 16-bit float under its CUDA names.
#pragma once

#define TILEWRIGHT_NO_CUDA_FP16 1

#include "tilewright/types.h"

using __half = tilewright::half;
using half = tilewright::half;
struct __half_raw {
  unsigned short x;
};

inline float __half2float(half v) { return v; }
inline half __float2half(float v) { return v; }
inline half __float2half_rn(float v) { return v; }
