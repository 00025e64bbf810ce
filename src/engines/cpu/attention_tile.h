// The arithmetic of attention on tiles in memory, compiled for several instruction sets and picked at run time.
// A tile is a row-major matrix; its row pitch (ld*) is a multiple of kTilePad elements, so whole vectors may be read
// and written past the last column. Operands may also lie in the caller's tensors, where that is said.
#pragma once

#include <cstdint>

#include "base/numeric_types.h"

namespace tilewright::cpu {

constexpr int64_t kTilePad = 16;
inline int64_t padded(int64_t n) { return (n + kTilePad - 1) / kTilePad * kTilePad; }

// Rows that a product is cut into where masks leave each of them another part of the sum or of the columns: a multiple
// of the rows that the arithmetic works on at once.
constexpr int64_t kTileRows = 12;

// A(i, k) = a[i * a_row + k * a_col]: a matrix or its transpose, in a tile or in a tensor.
template <class T>
struct TileFactor {
  const T* a;
  int64_t a_row, a_col;
};

// Rows of a tensor that will be read soon.
struct TileAhead {
  const void* at;
  int64_t bytes, step;  // of a row, and between rows

  void fetch(int64_t row) const {
    const char* const line = static_cast<const char*>(at) + row * step;
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(line + i);
  }
};

// T is float or double.
template <class T>
struct TileMath {
  // c [m, n] = or += A [m, k] * b [k, n]. b may lie in a tensor where n is a multiple of kTilePad.
  void (*multiply)(int64_t m, int64_t n, int64_t k, TileFactor<T> a, const T* b, int64_t ldb, T* c, int64_t ldc,
                   bool accumulate);
  // c [m, n] = a [m, k] * b [n, k] transposed, for small n. k is a multiple of kTilePad; a may lie in a tensor. `next`:
  // m rows of a tensor that are fetched meanwhile.
  void (*multiply_rows)(int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c,
                        int64_t ldc, TileAhead next);
  // to [rows, ld_to] = from [rows, ld_from] as T, for rows of BFLOAT16 or HALF in a tensor. False for other types.
  bool (*widen)(DataType_t, int64_t rows, int64_t cols, const void* from, int64_t ld_from, T* to, int64_t ld_to);
  // to [cols, ld_to] = from [rows, ld_from] transposed.
  void (*transpose)(int64_t rows, int64_t cols, const T* from, int64_t ld_from, T* to, int64_t ld_to);
  // x may lie in a tensor.
  bool (*all_finite)(int64_t rows, int64_t cols, const T* x, int64_t ld);
  // One step of the online softmax, rows = keys, columns = queries. s becomes exp(s - max); max and sum are per column
  // and updated; rescale is what earlier sums and outputs of the column must be multiplied with. False when that is 1
  // everywhere. A NaN always reaches sum; it reaches max where keep_nan says so.
  bool (*softmax_step)(int64_t rows, int64_t cols, T* s, int64_t ld, T* max, T* sum, T* rescale, bool keep_nan);
  // s: scores (-inf where excluded) in, P * f out. dp: dO V^T in, dS = P (dp * f - delta) out, 0 where excluded. f may
  // be null (1). lse and delta are per row.
  void (*gradient_step)(int64_t rows, int64_t cols, T* s, T* dp, int64_t ld, const T* f, const T* lse, const T* delta);
  // x[r, c] *= factor[r].
  void (*scale_rows)(int64_t rows, int64_t cols, T* x, int64_t ld, const T* factor);
};
template <class T>
TileMath<T> tile_math();

// multiply, accumulating, that leaves out the terms whose A is 0: for a b that holds inf or NaN in rows that a mask
// excludes.
template <class T>
void multiply_nonzero(int64_t m, int64_t n, int64_t k, TileFactor<T> a, const T* b, int64_t ldb, T* c, int64_t ldc) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j) {
      const T x = a.a[i * a.a_row + j * a.a_col];
      if (x == 0) continue;
      for (int64_t d = 0; d < n; ++d) c[i * ldc + d] += x * b[j * ldb + d];
    }
}

}  // namespace tilewright::cpu
