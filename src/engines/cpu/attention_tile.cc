// Arrays of vectors need vectors of a size that the compiler knows.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engines/cpu/attention_tile.cc"
// clang-format off
#include <hwy/foreach_target.h>
// clang-format on
#include "engines/cpu/attention_tile.h"

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace tilewright::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of at most kTilePad lanes, so that a padded row is a whole number of them.
template <class T>
using Tag = hn::CappedTag<T, kTilePad>;

constexpr int64_t kRows = 6;  // of c, held in registers with two vectors each
static_assert(kTileRows % kRows == 0);

template <class T, int64_t R, int64_t V>
HWY_INLINE void block(int64_t k, TileFactor<T> a, const T* b, int64_t ldb, T* c, int64_t ldc, bool accumulate) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  hn::Vec<Tag<T>> sum[R][V];
  for (int64_t r = 0; r < R; ++r)
    for (int64_t v = 0; v < V; ++v) sum[r][v] = accumulate ? hn::LoadU(d, c + r * ldc + v * lanes) : hn::Zero(d);
  for (int64_t i = 0; i < k; ++i) {
    hn::Vec<Tag<T>> row[V];
    for (int64_t v = 0; v < V; ++v) row[v] = hn::LoadU(d, b + i * ldb + v * lanes);
    for (int64_t r = 0; r < R; ++r) {
      const auto x = hn::Set(d, a.a[r * a.a_row + i * a.a_col]);
      for (int64_t v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(x, row[v], sum[r][v]);
    }
  }
  for (int64_t r = 0; r < R; ++r)
    for (int64_t v = 0; v < V; ++v) hn::StoreU(sum[r][v], d, c + r * ldc + v * lanes);
}

template <class T, int64_t R>
HWY_INLINE void rows_of(int64_t n, int64_t k, TileFactor<T> a, const T* b, int64_t ldb, T* c, int64_t ldc, bool acc) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>())), end = padded(n);
  int64_t j = 0;
  for (; j + 2 * lanes <= end; j += 2 * lanes) block<T, R, 2>(k, a, b + j, ldb, c + j, ldc, acc);
  for (; j < end; j += lanes) block<T, R, 1>(k, a, b + j, ldb, c + j, ldc, acc);
}

template <class T>
void multiply(int64_t m, int64_t n, int64_t k, TileFactor<T> a, const T* b, int64_t ldb, T* c, int64_t ldc, bool acc) {
  int64_t i = 0;
  for (; i + kRows <= m; i += kRows)
    rows_of<T, kRows>(n, k, {a.a + i * a.a_row, a.a_row, a.a_col}, b, ldb, c + i * ldc, ldc, acc);
  const TileFactor<T> rest{a.a + i * a.a_row, a.a_row, a.a_col};
  switch (m - i) {
    case 5: return rows_of<T, 5>(n, k, rest, b, ldb, c + i * ldc, ldc, acc);
    case 4: return rows_of<T, 4>(n, k, rest, b, ldb, c + i * ldc, ldc, acc);
    case 3: return rows_of<T, 3>(n, k, rest, b, ldb, c + i * ldc, ldc, acc);
    case 2: return rows_of<T, 2>(n, k, rest, b, ldb, c + i * ldc, ldc, acc);
    case 1: return rows_of<T, 1>(n, k, rest, b, ldb, c + i * ldc, ldc, acc);
    default: return;
  }
}

// Rows ahead of those in work that are fetched meanwhile: tensors come from memory.
constexpr int64_t kAhead = 12;
template <class E>
HWY_INLINE void prefetch_row(const E* row, int64_t cols) {
  constexpr int64_t kStep = 64 / int64_t(sizeof(E));
  for (int64_t c = 0; c < cols; c += kStep) __builtin_prefetch(row + c);
}

// c [R, N]: the lanes run along the sum, which is folded at the end.
template <class T, int64_t R, int64_t N>
HWY_INLINE void dots(int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  hn::Vec<Tag<T>> sum[R][N];
  for (int64_t r = 0; r < R; ++r)
    for (int64_t j = 0; j < N; ++j) sum[r][j] = hn::Zero(d);
  for (int64_t i = 0; i < k; i += lanes)
    for (int64_t r = 0; r < R; ++r) {
      const auto x = hn::LoadU(d, a + r * lda + i);
      for (int64_t j = 0; j < N; ++j) sum[r][j] = hn::MulAdd(x, hn::LoadU(d, b + j * ldb + i), sum[r][j]);
    }
  for (int64_t r = 0; r < R; ++r)
    for (int64_t j = 0; j < N; ++j) c[r * ldc + j] = hn::GetLane(hn::SumOfLanes(d, sum[r][j]));
}

template <class T>
void multiply_rows(int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc,
                   TileAhead next) {
  for (int64_t i = 0; i < m;) {
    const bool four = i + 4 <= m;
    for (int64_t r = 0; r < (four ? 4 : 1); ++r) prefetch_row(a + (i + kAhead + r) * lda, k), next.fetch(i + r);
    for (int64_t j = 0; j < n;) {
      const T *x = a + i * lda, *y = b + j * ldb;
      T* to = c + i * ldc + j;
      if (j + 4 <= n) {
        if (four) dots<T, 4, 4>(k, x, lda, y, ldb, to, ldc);
        else dots<T, 1, 4>(k, x, lda, y, ldb, to, ldc);
        j += 4;
      } else {
        if (four) dots<T, 4, 1>(k, x, lda, y, ldb, to, ldc);
        else dots<T, 1, 1>(k, x, lda, y, ldb, to, ldc);
        j += 1;
      }
    }
    i += four ? 4 : 1;
  }
}

template <class E>
void widen_rows(int64_t rows, int64_t cols, const E* from, int64_t ld_from, float* to, int64_t ld_to) {
  const Tag<float> d;
  const hn::Rebind<E, Tag<float>> narrow;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r) {
    const E* x = from + r * ld_from;
    float* y = to + r * ld_to;
    prefetch_row(x + kAhead * ld_from, cols);
    int64_t c = 0;
    for (; c + lanes <= cols; c += lanes) hn::StoreU(hn::PromoteTo(d, hn::LoadU(narrow, x + c)), d, y + c);
    if (c == cols) continue;
    HWY_ALIGN E rest[kTilePad] = {};
    std::memcpy(rest, x + c, size_t(cols - c) * sizeof(E));
    hn::StoreU(hn::PromoteTo(d, hn::Load(narrow, rest)), d, y + c);
  }
}

template <class T>
bool widen(DataType_t type, int64_t rows, int64_t cols, const void* from, int64_t ld_from, T* to, int64_t ld_to) {
  if constexpr (sizeof(T) == 4 && HWY_TARGET != HWY_SCALAR) {
    if (type == DataType_t::BFLOAT16)
      return widen_rows(rows, cols, static_cast<const hwy::bfloat16_t*>(from), ld_from, to, ld_to), true;
    if (type == DataType_t::HALF)
      return widen_rows(rows, cols, static_cast<const hwy::float16_t*>(from), ld_from, to, ld_to), true;
  }
  return false;
}

template <class T>
void transpose(int64_t rows, int64_t cols, const T* from, int64_t ld_from, T* to, int64_t ld_to) {
  int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == 4) {
    const hn::Full128<T> d;
    for (; r + 4 <= rows; r += 4) {
      int64_t c = 0;
      for (; c + 4 <= cols; c += 4) {
        const T* x = from + r * ld_from + c;
        T* y = to + c * ld_to + r;
        const auto x0 = hn::LoadU(d, x), x1 = hn::LoadU(d, x + ld_from);
        const auto x2 = hn::LoadU(d, x + 2 * ld_from), x3 = hn::LoadU(d, x + 3 * ld_from);
        const auto low02 = hn::InterleaveLower(d, x0, x2), low13 = hn::InterleaveLower(d, x1, x3);
        const auto high02 = hn::InterleaveUpper(d, x0, x2), high13 = hn::InterleaveUpper(d, x1, x3);
        hn::StoreU(hn::InterleaveLower(d, low02, low13), d, y);
        hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, y + ld_to);
        hn::StoreU(hn::InterleaveLower(d, high02, high13), d, y + 2 * ld_to);
        hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, y + 3 * ld_to);
      }
      for (; c < cols; ++c)
        for (int64_t i = 0; i < 4; ++i) to[c * ld_to + r + i] = from[(r + i) * ld_from + c];
    }
  }
#endif
  for (; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) to[c * ld_to + r] = from[r * ld_from + c];
}

// x * 0 is NaN exactly where x is not finite.
template <class T>
bool all_finite(int64_t rows, int64_t cols, const T* x, int64_t ld) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  auto even = zero, odd = zero;  // two chains of sums
  T rest = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * ld;
    int64_t c = 0;
    for (; c + 2 * lanes <= cols; c += 2 * lanes) {
      even = hn::MulAdd(hn::LoadU(d, row + c), zero, even);
      odd = hn::MulAdd(hn::LoadU(d, row + c + lanes), zero, odd);
    }
    for (; c + lanes <= cols; c += lanes) even = hn::MulAdd(hn::LoadU(d, row + c), zero, even);
    for (; c < cols; ++c) rest += row[c] * 0;
  }
  return rest == 0 && hn::AllTrue(d, hn::Eq(hn::Add(even, odd), zero));
}

// 2^n times p, p in [1/2, 2], for n the nearest integer (as a float) of a number in [-160, 140].
template <class D, class V>
HWY_INLINE V scaled_by_power(D d, V p, V n) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (hn::MaxLanes(d) == 16) return V{_mm512_scalef_ps(p.raw, n.raw)};
#endif
  // In two steps: 2^n itself may be out of range.
  const hn::RebindToSigned<D> di;
  const auto i = hn::ConvertTo(di, n), half = hn::ShiftRight<1>(i);
  const auto power = [&](auto e) { return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(e, hn::Set(di, 127)))); };
  return hn::Mul(hn::Mul(p, power(half)), power(hn::Sub(i, half)));
}

// The smaller, or larger, of x and a limit; NaN for NaN.
template <class D, class V>
HWY_INLINE V at_most(D, V x, V limit) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return hn::Min(limit, x);  // returns the second operand where one is NaN
#else
  return hn::IfThenElse(hn::Gt(x, limit), limit, x);
#endif
}
template <class D, class V>
HWY_INLINE V at_least(D, V x, V limit) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return hn::Max(limit, x);
#else
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
#endif
}

// e^x to about one unit in the last place: inf and 0 beyond the range, NaN for NaN. kNegative: x <= 0 or NaN.
template <bool kNegative, class D, class V>
HWY_INLINE V exp_of(D d, V x) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4) {
    x = at_least(d, x, hn::Set(d, T(-110)));
    if constexpr (!kNegative) x = at_most(d, x, hn::Set(d, T(90)));
    // x = n ln 2 + r; adding 1.5 * 2^23 rounds to the nearest integer. ln 2 in two parts, the first short enough for n
    // times it to be exact.
    const auto shift = hn::Set(d, T(0x1.8p23));
    const auto n = hn::Sub(hn::MulAdd(x, hn::Set(d, T(1.44269504)), shift), shift);
    auto r = hn::NegMulAdd(n, hn::Set(d, T(0.693359375)), x);
    r = hn::NegMulAdd(n, hn::Set(d, T(-2.12194442e-4)), r);
    // (e^r - 1 - r) / r^2, interpolated at Chebyshev nodes.
    auto q = hn::MulAdd(hn::Set(d, T(0.00139268749)), r, hn::Set(d, T(0.00836377382)));
    q = hn::MulAdd(q, r, hn::Set(d, T(0.0416665503)));
    q = hn::MulAdd(q, r, hn::Set(d, T(0.166665734)));
    q = hn::MulAdd(q, r, hn::Set(d, T(0.5)));
    const auto one = hn::Set(d, T(1));
    return scaled_by_power(d, hn::MulAdd(r, hn::MulAdd(r, q, one), one), n);
  } else {
    const auto finite = [&](V v) { return hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, v)); };
    if constexpr (kNegative) return finite(x);
    const auto high = hn::Set(d, T(709));
    const auto big = hn::Gt(x, high);
    const auto y = finite(hn::IfThenElse(big, high, x));
    if (hn::AllFalse(d, big)) return y;
    const auto end = hn::Set(d, T(709.8));
    // The square of the half keeps the scaling step of exp in range up to the end of the type.
    const auto half = hn::Exp(d, hn::Mul(hn::IfThenElse(hn::Gt(x, end), end, x), hn::Set(d, T(0.5))));
    const auto inf = hn::Set(d, std::numeric_limits<T>::infinity());
    return hn::IfThenElse(big, hn::IfThenElse(hn::Gt(x, end), inf, hn::Mul(half, half)), y);
  }
}

// The largest of a column and `top`. A NaN counts as the largest, or is passed over, as keep_nan says.
template <class D, class V, class T>
HWY_INLINE V column_max(D d, int64_t rows, const T* s, int64_t ld, V top, bool keep_nan) {
  if (keep_nan) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto x = hn::LoadU(d, s + r * ld);
      top = hn::IfThenElse(hn::Or(hn::Gt(x, top), hn::IsNaN(x)), x, top);
    }
    return top;
  }
  auto a = top, b = top, c = top;  // chains of maxima
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    top = hn::Max(hn::LoadU(d, s + r * ld), top);
    a = hn::Max(hn::LoadU(d, s + (r + 1) * ld), a);
    b = hn::Max(hn::LoadU(d, s + (r + 2) * ld), b);
    c = hn::Max(hn::LoadU(d, s + (r + 3) * ld), c);
  }
  for (; r < rows; ++r) top = hn::Max(hn::LoadU(d, s + r * ld), top);
  return hn::Max(hn::Max(top, a), hn::Max(b, c));
}

template <class T>
bool softmax_step(int64_t rows, int64_t cols, T* s, int64_t ld, T* max, T* sum, T* rescale, bool keep_nan) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), end = padded(cols);
  const auto none = hn::Set(d, -std::numeric_limits<T>::infinity());
  bool moved = false;
  for (int64_t c = 0; c < end; c += lanes) {
    const auto old = hn::LoadU(d, max + c);
    const auto top = column_max(d, rows, s + c, ld, old, keep_nan);
    // Nothing kept so far: any finite shift does, and gives weights of 0.
    const auto shift = hn::IfThenElse(hn::Eq(top, none), hn::Zero(d), top);
    auto total = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      const auto p = exp_of<true>(d, hn::Sub(hn::LoadU(d, s + r * ld + c), shift));
      total = hn::Add(total, p);
      hn::StoreU(p, d, s + r * ld + c);
    }
    const auto again = exp_of<true>(d, hn::Sub(old, shift));
    moved = moved || !hn::AllTrue(d, hn::Eq(again, hn::Set(d, T(1))));
    hn::StoreU(again, d, rescale + c);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + c), again, total), d, sum + c);
    hn::StoreU(top, d, max + c);
  }
  return moved;
}

template <class T>
void gradient_step(int64_t rows, int64_t cols, T* s, T* dp, int64_t ld, const T* f, const T* lse, const T* delta) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), end = padded(cols);
  const auto none = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (int64_t r = 0; r < rows; ++r) {
    const auto l = hn::Set(d, lse[r]), e = hn::Set(d, delta[r]);
    for (int64_t c = 0; c < end; c += lanes) {
      const auto x = hn::LoadU(d, s + r * ld + c);
      const auto kept = hn::Ne(x, none);
      const auto p = hn::IfThenElseZero(kept, exp_of<false>(d, hn::Sub(x, l)));
      auto g = hn::LoadU(d, dp + r * ld + c);
      auto pf = p;
      if (f) {
        const auto factor = hn::LoadU(d, f + r * ld + c);
        g = hn::Mul(g, factor), pf = hn::Mul(p, factor);
      }
      hn::StoreU(pf, d, s + r * ld + c);
      hn::StoreU(hn::IfThenElseZero(kept, hn::Mul(p, hn::Sub(g, e))), d, dp + r * ld + c);
    }
  }
}

template <class T>
void scale_rows(int64_t rows, int64_t cols, T* x, int64_t ld, const T* factor) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), end = padded(cols);
  for (int64_t r = 0; r < rows; ++r) {
    const auto f = hn::Set(d, factor[r]);
    for (int64_t c = 0; c < end; c += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + r * ld + c), f), d, x + r * ld + c);
  }
}

template <class T>
TileMath<T> all_math() {
  return {multiply<T>,   multiply_rows<T>, widen<T>,         transpose<T>,
          all_finite<T>, softmax_step<T>,  gradient_step<T>, scale_rows<T>};
}
TileMath<float> float_math() { return all_math<float>(); }
TileMath<double> double_math() { return all_math<double>(); }

}  // namespace tilewright::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewright::cpu {

HWY_EXPORT(float_math);
HWY_EXPORT(double_math);

template <>
TileMath<float> tile_math<float>() {
  return HWY_DYNAMIC_DISPATCH(float_math)();
}
template <>
TileMath<double> tile_math<double>() {
  return HWY_DYNAMIC_DISPATCH(double_math)();
}

}  // namespace tilewright::cpu
#endif  // HWY_ONCE
