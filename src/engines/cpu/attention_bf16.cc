#include "engines/cpu/attention_bf16.h"

#include "engines/cpu/attention_tile.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own intrinsics
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,avx2,prefer-vector-width=512")

namespace tilewright::cpu {
namespace {

constexpr int64_t kVector = 16;
static_assert(kTilePad == kVector);
// Exponent fields of normal numbers. A product or a sum below them may become 0, a factor may not.
constexpr int kLeast = 1, kMost = 254;
constexpr float kLeastWeight = 0x1p-126f, kMostWeight = 0x1p127f;

template <int R, int V>
inline __attribute__((always_inline)) void block(int64_t pairs, const uint32_t* a, int64_t a_row, int64_t a_col,
                                                 const uint32_t* b, int64_t ldb, float* c, int64_t ldc, float scale,
                                                 bool accumulate) {
  __m512 sum[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      sum[r][v] = accumulate ? _mm512_loadu_ps(c + r * ldc + v * kVector) : _mm512_setzero_ps();
  for (int64_t p = 0; p < pairs; ++p) {
    __m512bh row[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) row[v] = (__m512bh)_mm512_loadu_si512(b + p * ldb + v * kVector);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      int word;  // two elements of a tensor, perhaps
      __builtin_memcpy(&word, a + r * a_row + p * a_col, sizeof word);
      const __m512bh x = (__m512bh)_mm512_set1_epi32(word);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, row[v]);
    }
  }
  const __m512 factor = _mm512_set1_ps(scale);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      _mm512_storeu_ps(c + r * ldc + v * kVector, accumulate ? sum[r][v] : _mm512_mul_ps(sum[r][v], factor));
}

template <int R>
void rows_of(int64_t n, int64_t pairs, const uint32_t* a, int64_t a_row, int64_t a_col, const uint32_t* b, int64_t ldb,
             float* c, int64_t ldc, float scale, bool accumulate) {
  const int64_t end = padded(n);
  int64_t j = 0;
  for (; j + 2 * kVector <= end; j += 2 * kVector)
    block<R, 2>(pairs, a, a_row, a_col, b + j, ldb, c + j, ldc, scale, accumulate);
  if (j < end) block<R, 1>(pairs, a, a_row, a_col, b + j, ldb, c + j, ldc, scale, accumulate);
}

void multiply(int64_t m, int64_t n, int64_t pairs, const uint32_t* a, int64_t a_row, int64_t a_col, const uint32_t* b,
              int64_t ldb, float* c, int64_t ldc, float scale, bool accumulate) {
  int64_t i = 0;
  for (; i + 6 <= m; i += 6)
    rows_of<6>(n, pairs, a + i * a_row, a_row, a_col, b, ldb, c + i * ldc, ldc, scale, accumulate);
  for (; i + 2 <= m; i += 2)
    rows_of<2>(n, pairs, a + i * a_row, a_row, a_col, b, ldb, c + i * ldc, ldc, scale, accumulate);
  if (i < m) rows_of<1>(n, pairs, a + i * a_row, a_row, a_col, b, ldb, c + i * ldc, ldc, scale, accumulate);
}

void pair_rows(int64_t rows, int64_t cols, const uint16_t* x, int64_t ld, uint32_t* to, int64_t ld_to) {
  for (int64_t r = 0; r < rows; r += 2, to += ld_to) {
    const uint16_t *first = x + r * ld, *second = first + ld;
    for (int64_t c = 0; c < cols; c += kVector) {
      const __mmask16 there = __mmask16(cols - c >= kVector ? 0xffff : (1 << (cols - c)) - 1);
      const __mmask16 too = r + 1 < rows ? there : __mmask16(0);
      const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, first + c));
      const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(too, second + c));
      _mm512_storeu_si512(to + c, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
  }
}

bool pair_weights(int64_t rows, int64_t cols, const float* x, int64_t ld, uint32_t* to, int64_t ld_to) {
  const __m512 least = _mm512_set1_ps(kLeastWeight), most = _mm512_set1_ps(kMostWeight), zero = _mm512_setzero_ps();
  __mmask16 outside = 0;
  const auto check = [&](__m512 v) {
    const __m512 size = _mm512_abs_ps(v);
    const __mmask16 some = _mm512_cmp_ps_mask(size, zero, _CMP_NEQ_UQ);
    outside |= _mm512_mask_cmp_ps_mask(some, size, least, _CMP_NGE_UQ);
    outside |= _mm512_mask_cmp_ps_mask(some, size, most, _CMP_NLE_UQ);
  };
  for (int64_t r = 0; r < rows; r += 2, to += ld_to)
    for (int64_t c = 0; c < cols; c += kVector) {
      const __m512 low = _mm512_loadu_ps(x + r * ld + c);
      const __m512 high = r + 1 < rows ? _mm512_loadu_ps(x + (r + 1) * ld + c) : zero;
      check(low), check(high);
      const __m512i l = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
      const __m512i h = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
      _mm512_storeu_si512(to + c, _mm512_or_si512(l, _mm512_slli_epi32(h, 16)));
    }
  return outside == 0;
}

void pair_columns(int64_t rows, int64_t cols, const float* x, int64_t ld, uint32_t* to, int64_t ld_to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; c += kVector)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + r * ld_to + c / 2),
                          (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + r * ld + c)));
}

bool in_range(int64_t rows, int64_t cols, const uint16_t* x, int64_t ld) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff), least = _mm512_set1_epi16(kLeast << 7);
  const __m512i span = _mm512_set1_epi16(((kMost - kLeast) << 7) + 127);
  __mmask32 outside = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; c += 32) {
      const __mmask32 there = cols - c >= 32 ? ~__mmask32(0) : (__mmask32(1) << (cols - c)) - 1;
      const __m512i v = _mm512_and_si512(_mm512_maskz_loadu_epi16(there, x + r * ld + c), magnitude);
      // Zero stays zero; all others must lie in the span from the least on.
      const __mmask32 some = _mm512_test_epi16_mask(v, v);
      outside |= _mm512_mask_cmpgt_epu16_mask(some, _mm512_sub_epi16(v, least), span);
    }
  return outside == 0;
}

}  // namespace
}  // namespace tilewright::cpu
#pragma GCC pop_options

namespace tilewright::cpu {

const Bf16Math* bf16_math() {
  static const Bf16Math math = {multiply, pair_rows, pair_weights, pair_columns, in_range};
  static const bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has ? &math : nullptr;
}

}  // namespace tilewright::cpu
#else
namespace tilewright::cpu {
const Bf16Math* bf16_math() { return nullptr; }
}  // namespace tilewright::cpu
#endif
