// Micro-kernels on the bits of bfloat16 numbers, for processors with an instruction that adds products of pairs of
// them.
#include "engines/cpu/gemm.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own header (its bug 105593)
#endif
#include <immintrin.h>
#define TILEWRIGHT_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#endif

namespace tilewright::cpu {

#ifdef TILEWRIGHT_BF16
namespace {

// Both products of a pair, added to the sum.
struct Fast {
  TILEWRIGHT_BF16 static inline __m512 add(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
};
// The same in float arithmetic, subnormal numbers included.
struct Careful {
  TILEWRIGHT_BF16 static inline __m512 low(__m512i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
  TILEWRIGHT_BF16 static inline __m512 high(__m512i x) {
    return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(int(0xffff0000))));
  }
  TILEWRIGHT_BF16 static inline __m512 add(__m512 sum, __m512i a, __m512i b) {
    return _mm512_fmadd_ps(low(a), low(b), _mm512_fmadd_ps(high(a), high(b), sum));
  }
};

template <class Add, int kMr, int kNv>
TILEWRIGHT_BF16 inline void add_pair(__m512 (&sum)[kMr][kNv], const Bfloat16Bits* const* row, int64_t k,
                                     const Bfloat16Bits* b) {
  __m512i right[kNv];
#pragma GCC unroll 4
  for (int j = 0; j < kNv; ++j) right[j] = _mm512_loadu_si512(b + j * 32);
#pragma GCC unroll 16
  for (int i = 0; i < kMr; ++i) {
    int pair;
    __builtin_memcpy(&pair, row[i] + k, 4);
    const __m512i left = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) sum[i][j] = Add::add(sum[i][j], left, right[j]);
  }
}

template <int kMr, int kNv>
TILEWRIGHT_BF16 inline void store(const __m512 (&sum)[kMr][kNv], float* c, int64_t ldc, bool accumulate,
                                  const Finish<float>* finish) {
#pragma GCC unroll 16
  for (int i = 0; i < kMr; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) {
      float* const at = c + i * ldc + j * 16;
      __m512 x = sum[i][j];
      if (accumulate) x = _mm512_add_ps(_mm512_loadu_ps(at), x);
      if (finish && finish->add) x = _mm512_add_ps(x, _mm512_loadu_ps(finish->add + j * 16));
      if (finish && finish->clips) {
        const __m512 lower = _mm512_set1_ps(finish->lower);
        x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, lower, _CMP_LT_OQ), lower);  // NaN stays
      }
      _mm512_storeu_ps(at, x);
    }
}

template <class Add, int kMr, int kNv>
TILEWRIGHT_BF16 void run(const RowRuns<Bfloat16Bits>& a, const Bfloat16Bits* b, int64_t ldb, float* c, int64_t ldc,
                         bool accumulate, const RowRuns<Bfloat16Bits>* next, const Finish<float>* finish) {
  __m512 sum[kMr][kNv];
#pragma GCC unroll 16
  for (int i = 0; i < kMr; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) {
      sum[i][j] = _mm512_setzero_ps();
      __builtin_prefetch(c + i * ldc + j * 16, 1);  // the result's lines arrive while the sums are made
    }
  for (int64_t r = 0; r < a.runs; ++r) {
    const Bfloat16Bits* row[kMr];
#pragma GCC unroll 16
    for (int i = 0; i < kMr; ++i) row[i] = a.offset ? a.row[i] + a.offset[r] : a.row[r * kMr + i];
    int64_t k = 0;
    for (; k + 4 <= a.len; k += 4, b += 4 * ldb) {
      if (next && k % 32 == 0)
        for (int i = 0; i < kMr; ++i)
          _mm_prefetch(reinterpret_cast<const char*>(next->row[i] + next->offset[r] + k), _MM_HINT_T0);
      add_pair<Add>(sum, row, k, b);
      add_pair<Add>(sum, row, k + 2, b + 2 * ldb);
    }
    for (; k < a.len; k += 2, b += 2 * ldb) add_pair<Add>(sum, row, k, b);
  }
  store(sum, c, ldc, accumulate, finish);
}

template <int kMr, int kNv>
MicroKernel<Bfloat16Bits> kernel() {
  return {kMr, kNv * 16, run<Fast, kMr, kNv>, run<Careful, kMr, kNv>};
}

TILEWRIGHT_BF16 bool any_tiny(const Bfloat16Bits* x, int64_t n) {
  constexpr uint16_t kLeast = (127 - 50) << 7;  // the bits of 2^-50
  const __m512i magnitude = _mm512_set1_epi16(0x7fff), one = _mm512_set1_epi16(1);
  __m512i smallest = _mm512_set1_epi16(-1);  // magnitude - 1, unsigned: 0 is the largest
  const auto fold = [&](__m512i v) TILEWRIGHT_BF16 {
    smallest = _mm512_min_epu16(smallest, _mm512_sub_epi16(_mm512_and_si512(v, magnitude), one));
  };
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) fold(_mm512_loadu_si512(x + i));
  if (i < n) fold(_mm512_maskz_loadu_epi16((__mmask32(1) << (n - i)) - 1, x + i));
  return _mm512_cmplt_epu16_mask(smallest, _mm512_set1_epi16(kLeast - 1)) != 0;
}

}  // namespace

template <>
const std::vector<MicroKernel<Bfloat16Bits>>& micro_kernels<Bfloat16Bits>() {
  static const std::vector<MicroKernel<Bfloat16Bits>> list =
      __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw")
          ? std::vector{kernel<6, 4>(), kernel<8, 3>(), kernel<12, 2>(), kernel<14, 1>()}
          : std::vector<MicroKernel<Bfloat16Bits>>();
  return list;
}

bool has_tiny(const Bfloat16Bits* x, int64_t n) { return !micro_kernels<Bfloat16Bits>().empty() && any_tiny(x, n); }

#else

template <>
const std::vector<MicroKernel<Bfloat16Bits>>& micro_kernels<Bfloat16Bits>() {
  static const std::vector<MicroKernel<Bfloat16Bits>> none;
  return none;
}

bool has_tiny(const Bfloat16Bits*, int64_t) { return false; }

#endif

}  // namespace tilewright::cpu
