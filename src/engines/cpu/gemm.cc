#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engines/cpu/gemm.cc"
// Arrays of vectors, which hold the tile, need vectors of a size that the compiler knows.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// clang-format off
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "engines/cpu/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace tilewright::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// kMr rows of kNv vectors: they, kNv vectors of B and an element of A fill the registers.
template <class T, int kMr, int kNv>
struct Tile {
  using D = hn::ScalableTag<T>;
  hn::Vec<D> sum[kMr][kNv];
  HWY_ATTR Tile() {}  // the implicit one would not be compiled for the target

  HWY_INLINE void clear() {
#pragma GCC unroll 24
    for (int i = 0; i < kMr; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kNv; ++j) sum[i][j] = hn::Zero(D());
  }
  // One term of the sums: column `at` of the rows of A times a row of B.
  HWY_INLINE void add(const T* const* rows, int64_t at, const T* b) {
    const D d;
    hn::Vec<D> right[kNv];
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) right[j] = hn::LoadU(d, b + j * int(hn::Lanes(d)));
#pragma GCC unroll 24
    for (int i = 0; i < kMr; ++i) {
      const auto left = hn::Set(d, rows[i][at]);
#pragma GCC unroll 4
      for (int j = 0; j < kNv; ++j) sum[i][j] = hn::MulAdd(left, right[j], sum[i][j]);
    }
  }
  HWY_INLINE void store(T* c, int64_t ldc, bool accumulate) {
    const D d;
#pragma GCC unroll 24
    for (int i = 0; i < kMr; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kNv; ++j) {
        T* const at = c + i * ldc + j * int(hn::Lanes(d));
        hn::StoreU(accumulate ? hn::Add(hn::LoadU(d, at), sum[i][j]) : sum[i][j], d, at);
      }
  }
  HWY_INLINE void finish(T* c, int64_t ldc, bool accumulate, const Finish<T>& f) {
    const D d;
    const auto lower = hn::Set(d, f.lower);
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) {
      const int at = j * int(hn::Lanes(d));
      const auto add = f.add ? hn::LoadU(d, f.add + at) : hn::Zero(d);
#pragma GCC unroll 24
      for (int i = 0; i < kMr; ++i) {
        auto x = accumulate ? hn::Add(hn::LoadU(d, c + i * ldc + at), sum[i][j]) : sum[i][j];
        x = hn::Add(x, add);
        if (f.clips) x = hn::IfThenElse(hn::Lt(x, lower), lower, x);  // NaN stays
        hn::StoreU(x, d, c + i * ldc + at);
      }
    }
  }
};

template <class T, int kMr>
HWY_INLINE void start_of_run(const RowRuns<T>& a, int64_t r, const T** row) {
#pragma GCC unroll 24
  for (int i = 0; i < kMr; ++i) row[i] = a.offset ? a.row[i] + a.offset[r] : a.row[r * kMr + i];
}

template <class T, int kMr, int kNv>
void run(const RowRuns<T>& a, const T* b, int64_t ldb, T* c, int64_t ldc, bool accumulate, const RowRuns<T>* next,
         const Finish<T>* finish) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t len = a.len, step = a.step;
  Tile<T, kMr, kNv> tile;
  tile.clear();
  // The result's lines arrive while the sums are made.
  for (int i = 0; i < kMr; ++i)
    for (int j = 0; j < kNv * int(hn::Lanes(hn::ScalableTag<T>())); j += int(kLine))
      __builtin_prefetch(c + i * ldc + j, 1);
  for (int64_t r = 0; r < a.runs; ++r) {
    const T* row[kMr];
    start_of_run<T, kMr>(a, r, row);
    int64_t k = 0;
    if (step == 1)
      for (; k + 4 <= len; k += 4, b += 4 * ldb) {
        if (next && k % kLine == 0)
          for (int i = 0; i < kMr; ++i) hwy::Prefetch(next->row[i] + next->offset[r] + k);
        tile.add(row, k, b);
        tile.add(row, k + 1, b + ldb);
        tile.add(row, k + 2, b + 2 * ldb);
        tile.add(row, k + 3, b + 3 * ldb);
      }
    for (; k < len; ++k, b += ldb) tile.add(row, k * step, b);
  }
  if (finish) tile.finish(c, ldc, accumulate, *finish);
  else tile.store(c, ldc, accumulate);
}

template <class T, int kMr, int kNv>
void add(std::vector<MicroKernel<T>>& list) {
  list.push_back({kMr, kNv * int(hn::Lanes(hn::ScalableTag<T>())), run<T, kMr, kNv>, run<T, kMr, kNv>});
}

template <class T>
std::vector<MicroKernel<T>> kernels() {
  std::vector<MicroKernel<T>> list;
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON  // 32 registers
  add<T, 6, 4>(list);
  add<T, 8, 3>(list);
  add<T, 12, 2>(list);
  add<T, 14, 1>(list);
#else  // 16
  add<T, 4, 3>(list);
  add<T, 6, 2>(list);
  add<T, 12, 1>(list);
#endif
  return list;
}
std::vector<MicroKernel<float>> float_kernels() { return kernels<float>(); }
std::vector<MicroKernel<double>> double_kernels() { return kernels<double>(); }

// Words of four bytes, at any address: out[k * pitch + i] = word k of row i, for four rows and from <= k < to.
void transpose4(const char* const* rows, int64_t from, int64_t to, char* out, int64_t pitch) {
  int64_t k = from;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> wide;
  const auto load = [&](int i) { return hn::LoadU(d, reinterpret_cast<const float*>(rows[i] + 4 * k)); };
  for (; k + 4 <= to; k += 4) {
    const auto a = load(0), b = load(1), c = load(2), e = load(3);
    const auto ab = hn::BitCast(wide, hn::InterleaveLower(d, a, b)),
               ce = hn::BitCast(wide, hn::InterleaveLower(d, c, e));
    const auto AB = hn::BitCast(wide, hn::InterleaveUpper(d, a, b)),
               CE = hn::BitCast(wide, hn::InterleaveUpper(d, c, e));
    const auto store = [&](auto x, int row) {
      hn::StoreU(hn::BitCast(d, x), d, reinterpret_cast<float*>(out + 4 * (k + row) * pitch));
    };
    store(hn::InterleaveLower(wide, ab, ce), 0);
    store(hn::InterleaveUpper(wide, ab, ce), 1);
    store(hn::InterleaveLower(wide, AB, CE), 2);
    store(hn::InterleaveUpper(wide, AB, CE), 3);
  }
#endif
  for (; k < to; ++k)
    for (int i = 0; i < 4; ++i) __builtin_memcpy(out + 4 * (k * pitch + i), rows[i] + 4 * k, 4);
}

}  // namespace tilewright::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewright::cpu {

HWY_EXPORT(float_kernels);
HWY_EXPORT(double_kernels);
HWY_EXPORT(transpose4);

std::vector<MicroKernel<float>> float_micro_kernels() { return HWY_DYNAMIC_DISPATCH(float_kernels)(); }
std::vector<MicroKernel<double>> double_micro_kernels() { return HWY_DYNAMIC_DISPATCH(double_kernels)(); }
template <>
const std::vector<MicroKernel<float>>& micro_kernels<float>() {
  static const auto list = float_micro_kernels();
  return list;
}
template <>
const std::vector<MicroKernel<double>>& micro_kernels<double>() {
  static const auto list = double_micro_kernels();
  return list;
}

namespace {

void transpose_words(const char* const* rows, int64_t count, int64_t length, char* out, int64_t pitch) {
  constexpr int64_t kBlock = 64;  // what is written stays in the first-level cache until its lines are full
  for (int64_t from = 0; from < length; from += kBlock) {
    const int64_t to = std::min(length, from + kBlock);
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) HWY_DYNAMIC_DISPATCH(transpose4)(rows + i, from, to, out + 4 * i, pitch);
    for (; i < count; ++i)
      for (int64_t k = from; k < to; ++k) __builtin_memcpy(out + 4 * (k * pitch + i), rows[i] + 4 * k, 4);
  }
}

}  // namespace

void transpose(const float* const* rows, int64_t count, int64_t length, float* out, int64_t pitch) {
  transpose_words(reinterpret_cast<const char* const*>(rows), count, length, reinterpret_cast<char*>(out), pitch);
}
void transpose(const Bfloat16Bits* const* rows, int64_t count, int64_t length, Bfloat16Bits* out, int64_t pitch) {
  transpose_words(reinterpret_cast<const char* const*>(rows), count, length / 2, reinterpret_cast<char*>(out), pitch);
}
void transpose(const double* const* rows, int64_t count, int64_t length, double* out, int64_t pitch) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < length; ++k) out[k * pitch + i] = rows[i][k];
}

}  // namespace tilewright::cpu
#endif
