// The number formats of tensors: sizes, conversions, roundoff. Narrow floats are converted by rounding to nearest even;
// fp8 and integers saturate at their ends (an infinity too), NaN becomes NaN (0 for integers). Exceptions: FP4 has no
// NaN and stores its largest value; a BOOLEAN is whether the value differs from 0, which a NaN does.
#pragma once

#include <cstdint>

#include "tilewright/types.h"

namespace tilewright {

// BOOLEAN stored as one bit per element, least significant first (norm fusions); an ordinary BOOLEAN takes a byte.
constexpr DataType_t kBitBoolean = DataType_t(100);

int element_bits(DataType_t);  // in storage; 0 for NOT_SET
// Storage of n elements; sub-byte types are packed, the even element in the low nibble.
int64_t storage_bytes(DataType_t, int64_t elements);
bool is_float_type(DataType_t);    // real floating-point types, narrow ones included
bool is_integer_type(DataType_t);  // integer types and BOOLEAN
// Half the distance from 1 to the next value: 2^-24 for FLOAT. 0 for integer types.
double unit_roundoff(DataType_t);
// The smallest positive (subnormal) value; 0 for integer types.
double smallest_subnormal(DataType_t);
double largest_finite(DataType_t);

float half_to_float(uint16_t);
uint16_t float_to_half(float);
inline float bfloat16_to_float(uint16_t b) {
  uint32_t u = uint32_t(b) << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
uint16_t float_to_bfloat16(float);
// Rounds a double straight to the type (no double rounding through float).
uint16_t double_to_half(double);
uint16_t double_to_bfloat16(double);
float fp8_e4m3_to_float(uint8_t);
uint8_t double_to_fp8_e4m3(double);
float fp8_e5m2_to_float(uint8_t);
uint8_t double_to_fp8_e5m2(double);
float fp8_e8m0_to_float(uint8_t);
uint8_t double_to_fp8_e8m0(double);

// Element `index` of memory that holds `type`, and the store of a value rounded to it.
double load_element(const void* memory, DataType_t type, int64_t index);
void store_element(void* memory, DataType_t type, int64_t index, double value);
// The value that a store followed by a load gives.
double round_to_type(DataType_t, double value);

// Whole rows: `count` elements from `index` on, `stride` apart. Fast for stride 1.
void load_floats(const void* memory, DataType_t, int64_t index, int64_t stride, int64_t count, float* out);
void store_floats(void* memory, DataType_t, int64_t index, int64_t stride, int64_t count, const float* in);
void load_doubles(const void* memory, DataType_t, int64_t index, int64_t stride, int64_t count, double* out);
void store_doubles(void* memory, DataType_t, int64_t index, int64_t stride, int64_t count, const double* in);

}  // namespace tilewright
