// bfloat16 under its CUDA names.
#pragma once

#define TILEWRIGHT_NO_CUDA_BF16 1

#include "tilewright/types.h"

using __nv_bfloat16 = tilewright::bfloat16;
using nv_bfloat16 = tilewright::bfloat16;

inline float __bfloat162float(nv_bfloat16 v) { return v; }
inline nv_bfloat16 __float2bfloat16(float v) { return v; }
inline nv_bfloat16 __float2bfloat16_rn(float v) { return v; }
