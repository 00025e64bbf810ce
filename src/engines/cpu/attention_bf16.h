// Products of BFLOAT16 tiles by instructions that multiply pairs of them, twice as fast as FLOAT. Those instructions
// take numbers below the normal range as 0, so they serve only where no factor is such a number: `in_range` tells.
#pragma once

#include <array>
#include <cstdint>

#include "tilewright/types.h"

namespace tilewright::cpu {

// A pair is two elements in one word, the first in the lower half. Row pitches are in words where rows hold pairs.
struct Bf16Math {
  // c [m, n] = scale times, or += (scale is 1), the sum over p of A(i, p) b(p, j), pairs multiplied element by element;
  // A(i, p) = a[i * a_row + p * a_col]. Whole vectors of kTilePad columns of b and c are read and written.
  void (*multiply)(int64_t m, int64_t n, int64_t pairs, const uint32_t* a, int64_t a_row, int64_t a_col,
                   const uint32_t* b, int64_t ldb, float* c, int64_t ldc, float scale, bool accumulate);
  // Rows 2 r and 2 r + 1 of x as row r of pairs, up to the next multiple of kTilePad columns; a missing row is 0.
  void (*pair_rows)(int64_t rows, int64_t cols, const uint16_t* x, int64_t ld, uint32_t* to, int64_t ld_to);
  // The same of rounded floats, in a tile. False when some are too small or not finite: then `to` is of no use.
  bool (*pair_weights)(int64_t rows, int64_t cols, const float* x, int64_t ld, uint32_t* to, int64_t ld_to);
  // Neighbours of a row of floats, rounded, as pairs.
  void (*pair_columns)(int64_t rows, int64_t cols, const float* x, int64_t ld, uint32_t* to, int64_t ld_to);
  // Whether all elements are 0 or normal numbers.
  bool (*in_range)(int64_t rows, int64_t cols, const uint16_t* x, int64_t ld);
};
// BFLOAT16 with these strides, whose rows can be read as words of two elements.
inline bool has_pairs(DataType_t type, const std::array<int64_t, 4>& stride, const void* memory) {
  return type == DataType_t::BFLOAT16 && stride[3] == 1 && stride[0] % 2 == 0 && stride[1] % 2 == 0 &&
         stride[2] % 2 == 0 && reinterpret_cast<uintptr_t>(memory) % 4 == 0;
}
// Null where the processor has no such instructions.
const Bf16Math* bf16_math();

}  // namespace tilewright::cpu
