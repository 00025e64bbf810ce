#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engines/cpu/attention_tile.cc"
// clang-format off
#include <hwy/foreach_target.h>
// clang-format on
#include "engines/cpu/attention_tile.h"

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <limits>

HWY_BEFORE_NAMESPACE();
namespace tilewright::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of at most kTilePad lanes, so that a padded row is a whole number of them.
template <class T>
using Tag = hn::CappedTag<T, kTilePad>;

constexpr int64_t kRows = 6;  // of c, held in registers with two vectors each

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

// x * 0 is NaN exactly where x is not finite.
template <class T>
bool all_finite(const T* x, int64_t rows, int64_t cols, int64_t ld) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  auto sum = zero;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t c = 0;
    for (; c + lanes <= cols; c += lanes) sum = hn::MulAdd(hn::LoadU(d, x + r * ld + c), zero, sum);
    T rest = 0;
    for (; c < cols; ++c) rest += x[r * ld + c] * 0;
    sum = hn::Add(sum, hn::Set(d, rest));
  }
  return hn::AllTrue(d, hn::Eq(sum, zero));
}

// exp for x <= 0, or NaN: 0 for -inf, NaN for NaN.
template <class D, class V>
HWY_INLINE V exp_of_negative(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}

// The same for any x; inf beyond the range.
template <class D, class V>
HWY_INLINE V exp_of(D d, V x) {
  using T = hn::TFromD<D>;
  const auto safe = hn::Set(d, sizeof(T) == 4 ? T(88) : T(709));
  const auto big = hn::Gt(x, safe);
  const auto y = exp_of_negative(d, hn::IfThenElse(big, safe, x));
  if (hn::AllFalse(d, big)) return y;
  const auto end = hn::Set(d, sizeof(T) == 4 ? T(88.8) : T(709.8));
  // The square of the half keeps the scaling step of exp in range up to the end of the type.
  const auto half = hn::Exp(d, hn::Mul(hn::IfThenElse(hn::Gt(x, end), end, x), hn::Set(d, T(0.5))));
  const auto inf = hn::Set(d, std::numeric_limits<T>::infinity());
  return hn::IfThenElse(big, hn::IfThenElse(hn::Gt(x, end), inf, hn::Mul(half, half)), y);
}

template <class T>
void softmax_step(int64_t rows, int64_t cols, T* s, int64_t ld, T* max, T* sum, T* rescale) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), end = padded(cols);
  const auto none = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (int64_t c = 0; c < end; c += lanes) {
    const auto old = hn::LoadU(d, max + c);
    auto top = old;
    for (int64_t r = 0; r < rows; ++r) {
      const auto x = hn::LoadU(d, s + r * ld + c);
      top = hn::IfThenElse(hn::Or(hn::Gt(x, top), hn::IsNaN(x)), x, top);  // a NaN stays
    }
    // Nothing kept so far: any finite shift does, and gives weights of 0.
    const auto shift = hn::IfThenElse(hn::Eq(top, none), hn::Zero(d), top);
    auto total = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      const auto p = exp_of_negative(d, hn::Sub(hn::LoadU(d, s + r * ld + c), shift));
      total = hn::Add(total, p);
      hn::StoreU(p, d, s + r * ld + c);
    }
    const auto again = exp_of_negative(d, hn::Sub(old, shift));
    hn::StoreU(again, d, rescale + c);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + c), again, total), d, sum + c);
    hn::StoreU(top, d, max + c);
  }
}

template <class T>
void gradient_step(int64_t rows, int64_t cols, T* s, T* dp, int64_t ld, const T* f, const T* lse, const T* delta,
                   bool per_column) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), end = padded(cols);
  const auto none = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < end; c += lanes) {
      const auto x = hn::LoadU(d, s + r * ld + c);
      const auto l = per_column ? hn::LoadU(d, lse + c) : hn::Set(d, lse[r]);
      const auto e = per_column ? hn::LoadU(d, delta + c) : hn::Set(d, delta[r]);
      const auto excluded = hn::Eq(x, none);
      const auto p = hn::IfThenElse(excluded, hn::Zero(d), exp_of(d, hn::Sub(x, l)));
      auto g = hn::LoadU(d, dp + r * ld + c);
      auto pf = p;
      if (f) {
        const auto factor = hn::LoadU(d, f + r * ld + c);
        g = hn::Mul(g, factor), pf = hn::Mul(p, factor);
      }
      hn::StoreU(pf, d, s + r * ld + c);
      hn::StoreU(hn::IfThenElse(excluded, hn::Zero(d), hn::Mul(p, hn::Sub(g, e))), d, dp + r * ld + c);
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

TileMath<float> float_math() {
  return {multiply<float>, all_finite<float>, softmax_step<float>, gradient_step<float>, scale_rows<float>};
}
TileMath<double> double_math() {
  return {multiply<double>, all_finite<double>, softmax_step<double>, gradient_step<double>, scale_rows<double>};
}

}  // namespace tilewright::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewright::cpu {

HWY_EXPORT(float_math);
HWY_EXPORT(double_math);

template <>
const TileMath<float>& tile_math<float>() {
  static const TileMath<float> math = HWY_DYNAMIC_DISPATCH(float_math)();
  return math;
}
template <>
const TileMath<double>& tile_math<double>() {
  static const TileMath<double> math = HWY_DYNAMIC_DISPATCH(double_math)();
  return math;
}

}  // namespace tilewright::cpu
#endif  // HWY_ONCE
