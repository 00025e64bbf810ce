// The loops of LaneOps. Included once per target by lane_ops.cc, inside its namespace, after lane_math-inl.h. Those of
// float are explicit vectors; those of double plain loops, for graphs that need exactness more than speed.

using fast::D;
using fast::Floats;

// --- partial vectors: no memory beyond the lanes is touched ----------------------------------------------------------
HWY_INLINE Floats load_some(const float* from, int64_t count) {
  const D d;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(d, size_t(count)), d, from);
#else
  HWY_ALIGN float lanes[fast::kWidth] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#endif
}
HWY_INLINE void store_some(Floats v, float* to, int64_t count) {
  const D d;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v.v, hn::FirstN(d, size_t(count)), d, to);
#else
  HWY_ALIGN float lanes[fast::kWidth];
  hn::Store(v.v, d, lanes);
  for (int64_t i = 0; i < count; ++i) to[i] = lanes[i];
#endif
}

// --- pointwise -------------------------------------------------------------------------------------------------------
template <PointwiseMode_t kMode>
void pointwise_lanes(float* out, const float* x, const float* y, const float* m, int64_t n, const PwParams& params) {
  const PwParams p = params;
  constexpr int kArity = arity_of(kMode);
  const D d;
  const int64_t width = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    const Floats a = hn::LoadU(d, x + i), b = kArity > 1 ? Floats(hn::LoadU(d, y + i)) : Floats(),
                 c = kArity > 2 ? Floats(hn::LoadU(d, m + i)) : Floats();
    hn::StoreU(fast::value<kMode>(a, b, c, p).v, d, out + i);
  }
  if (i == n) return;
  const Floats a = load_some(x + i, n - i), b = kArity > 1 ? load_some(y + i, n - i) : Floats(),
               c = kArity > 2 ? load_some(m + i, n - i) : Floats();
  store_some(fast::value<kMode>(a, b, c, p), out + i, n - i);
}
template <PointwiseMode_t kMode>
void pointwise_lanes(double* out, const double* x, const double* y, const double* m, int64_t n,
                     const PwParams& params) {
  const PwParams p = params;
  constexpr int kArity = arity_of(kMode);
  for (int64_t i = 0; i < n; ++i)
    out[i] = pointwise_value<kMode>(x[i], kArity > 1 ? y[i] : 0.0, kArity > 2 ? m[i] : 0.0, p);
}

// --- two operations at once ---------------------------------------------------------------------------------------
template <int kOp, class F>
HWY_INLINE F arithmetic(F x, F y) {
  if constexpr (kOp == 0) return x + y;
  else if constexpr (kOp == 1) return x - y;
  else if constexpr (kOp == 2) return x * y;
  else return y - x;
}
template <int kFirst, int kSecond>
void fused_lanes(float* out, const float* x, const float* y, const float* m, int64_t n, const PwParams&) {
  const D d;
  const int64_t width = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    const Floats a = hn::LoadU(d, x + i), b = hn::LoadU(d, y + i), c = hn::LoadU(d, m + i);
    hn::StoreU(arithmetic<kSecond>(arithmetic<kFirst>(a, b), c).v, d, out + i);
  }
  if (i == n) return;
  const Floats first = arithmetic<kFirst>(load_some(x + i, n - i), load_some(y + i, n - i));
  store_some(arithmetic<kSecond>(first, load_some(m + i, n - i)), out + i, n - i);
}
template <int kFirst, int kSecond>
void fused_lanes(double* out, const double* x, const double* y, const double* m, int64_t n, const PwParams&) {
  for (int64_t i = 0; i < n; ++i) out[i] = arithmetic<kSecond>(arithmetic<kFirst>(x[i], y[i]), m[i]);
}

template <class T>
void fill_lanes(T* out, T value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = value;
}

// --- layout ---------------------------------------------------------------------------------------------------------
template <class T>
void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns) {
  int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == 4) {
    const hn::Simd<float, 4, 0> d;  // squares of four
    for (; r + 4 <= rows; r += 4) {
      int64_t c = 0;
      for (; c + 4 <= columns; c += 4) {
        const float* const in = from + r * from_stride + c;
        float* const out = to + c * to_stride + r;
        const auto a = hn::LoadU(d, in), b = hn::LoadU(d, in + from_stride), e = hn::LoadU(d, in + 2 * from_stride),
                   f = hn::LoadU(d, in + 3 * from_stride);
        const auto low_ab = hn::InterleaveLower(d, a, b), low_ef = hn::InterleaveLower(d, e, f);
        const auto high_ab = hn::InterleaveUpper(d, a, b), high_ef = hn::InterleaveUpper(d, e, f);
        hn::StoreU(hn::ConcatLowerLower(d, low_ef, low_ab), d, out);
        hn::StoreU(hn::ConcatUpperUpper(d, low_ef, low_ab), d, out + to_stride);
        hn::StoreU(hn::ConcatLowerLower(d, high_ef, high_ab), d, out + 2 * to_stride);
        hn::StoreU(hn::ConcatUpperUpper(d, high_ef, high_ab), d, out + 3 * to_stride);
      }
      for (; c < columns; ++c)
        for (int64_t k = r; k < r + 4; ++k) to[c * to_stride + k] = from[k * from_stride + c];
    }
  }
#endif
  for (; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
}

// --- folds -----------------------------------------------------------------------------------------------------------
// Calls body(element, join, start) with the mode's functions on double.
template <class Body>
HWY_INLINE void with_fold(ReductionMode_t mode, Body body) {
  const auto same = [](double v) HWY_ATTR { return v; };
  const auto magnitude = [](double v) HWY_ATTR { return v < 0 ? -v : v; };
  const auto add = [](double a, double b) HWY_ATTR { return a + b; };
  const auto times = [](double a, double b) HWY_ATTR { return a * b; };
  // NaN on either side wins: a comparison with it is false, and a + b is then NaN.
  const auto larger = [](double a, double b) HWY_ATTR { return a > b ? a : (b >= a ? b : a + b); };
  const auto smaller = [](double a, double b) HWY_ATTR { return a < b ? a : (b <= a ? b : a + b); };
  const double infinity = std::numeric_limits<double>::infinity();
  switch (mode) {
    case ReductionMode_t::ADD:
    case ReductionMode_t::AVG: return body(same, add, 0.0);
    case ReductionMode_t::NORM1: return body(magnitude, add, 0.0);
    case ReductionMode_t::NORM2: return body([](double v) HWY_ATTR { return v * v; }, add, 0.0);
    case ReductionMode_t::MUL: return body(same, times, 1.0);
    case ReductionMode_t::MUL_NO_ZEROS: return body([](double v) HWY_ATTR { return v == 0 ? 1.0 : v; }, times, 1.0);
    case ReductionMode_t::MAX: return body(same, larger, -infinity);
    case ReductionMode_t::MIN: return body(same, smaller, infinity);
    case ReductionMode_t::AMAX: return body(magnitude, larger, 0.0);
    default: return;
  }
}

constexpr int kWays = 4;  // independent partial results, each a vector: a shorter chain of waiting and of roundings

// element(v) summed.
template <class Element>
HWY_INLINE double sum_of(const float* x, int64_t n, Element element) {
  const D d;
  const int64_t width = int64_t(hn::Lanes(d));
  Floats part[kWays];
  int64_t i = 0;
  for (; i + kWays * width <= n; i += kWays * width)
    for (int w = 0; w < kWays; ++w) part[w] = part[w] + element(hn::LoadU(d, x + i + w * width));
  for (int w = 0; i + width <= n; i += width, ++w) part[w] = part[w] + element(hn::LoadU(d, x + i));
  if (i < n) part[kWays - 1] = part[kWays - 1] + element(load_some(x + i, n - i));
  return double(hn::GetLane(hn::SumOfLanes(d, ((part[0] + part[1]) + (part[2] + part[3])).v)));
}

// The largest element(v) and `start`; NaN if there is one. Instructions for maxima lose NaN, so it is looked for
// beside.
template <class Element>
HWY_INLINE double largest_of(const float* x, int64_t n, float start, Element element) {
  const D d;
  const int64_t width = int64_t(hn::Lanes(d));
  const Floats least = hn::Set(d, start);
  Floats part[kWays] = {least, least, least, least};
  auto nan = hn::MaskFromVec(hn::Zero(d));
  const auto take = [&](int w, Floats v) HWY_ATTR {
    nan = hn::Or(nan, hn::IsNaN(v.v));
    part[w] = hn::Max(part[w].v, v.v);
  };
  int64_t i = 0;
  for (; i + kWays * width <= n; i += kWays * width)
    for (int w = 0; w < kWays; ++w) take(w, element(hn::LoadU(d, x + i + w * width)));
  for (; i + width <= n; i += width) take(0, element(hn::LoadU(d, x + i)));
  if (i < n) {
    const auto rest = hn::FirstN(d, size_t(n - i));
    take(0, hn::IfThenElse(rest, element(load_some(x + i, n - i)).v, least.v));
  }
  if (!hn::AllFalse(d, nan)) return std::numeric_limits<double>::quiet_NaN();
  const auto best = hn::Max(hn::Max(part[0].v, part[1].v), hn::Max(part[2].v, part[3].v));
  return double(hn::GetLane(hn::MaxOfLanes(d, best)));
}

inline double larger_of(double a, double b) { return a > b ? a : (b >= a ? b : a + b); }

double fold(ReductionMode_t mode, const float* x, int64_t n, double total) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto same = [](Floats v) HWY_ATTR { return v; };
  const auto magnitude = [](Floats v) HWY_ATTR { return fast::abs(v); };
  switch (mode) {
    case ReductionMode_t::ADD:
    case ReductionMode_t::AVG: return total + sum_of(x, n, same);
    case ReductionMode_t::NORM1: return total + sum_of(x, n, magnitude);
    case ReductionMode_t::NORM2: return total + sum_of(x, n, [](Floats v) HWY_ATTR { return v * v; });
    case ReductionMode_t::MAX: return larger_of(total, largest_of(x, n, -infinity, same));
    case ReductionMode_t::AMAX: return larger_of(total, largest_of(x, n, 0, magnitude));
    case ReductionMode_t::MIN:
      return -larger_of(-total, largest_of(x, n, -infinity, [](Floats v) HWY_ATTR { return -v; }));
    // A product of a block overflows where that of all blocks need not: multiply in double.
    case ReductionMode_t::MUL:
    case ReductionMode_t::MUL_NO_ZEROS:
      for (int64_t i = 0; i < n; ++i) total *= x[i] == 0 && mode == ReductionMode_t::MUL_NO_ZEROS ? 1 : double(x[i]);
      return total;
    default: return total;
  }
}

double fold(ReductionMode_t mode, const double* x, int64_t n, double total) {
  constexpr int kParts = 16;
  with_fold(mode, [&](auto element, auto join, double start) HWY_ATTR {
    double part[kParts];
    for (double& p : part) p = start;
    int64_t i = 0;
    for (; i + kParts <= n; i += kParts)
      for (int w = 0; w < kParts; ++w) part[w] = join(part[w], element(x[i + w]));
    for (int w = 0; i < n; ++i, ++w) part[w] = join(part[w], element(x[i]));
    for (int half = kParts / 2; half > 0; half /= 2)
      for (int w = 0; w < half; ++w) part[w] = join(part[w], part[w + half]);
    total = join(total, part[0]);
  });
  return total;
}

double fold_products(const float* x, const float* y, int64_t n, double total) {
  const D d;
  const int64_t width = int64_t(hn::Lanes(d));
  Floats part[kWays];
  int64_t i = 0;
  for (; i + kWays * width <= n; i += kWays * width)
    for (int w = 0; w < kWays; ++w)
      part[w] = fast::fma(hn::LoadU(d, x + i + w * width), hn::LoadU(d, y + i + w * width), part[w]);
  for (int w = 0; i + width <= n; i += width, ++w)
    part[w] = fast::fma(hn::LoadU(d, x + i), hn::LoadU(d, y + i), part[w]);
  if (i < n) part[kWays - 1] = fast::fma(load_some(x + i, n - i), load_some(y + i, n - i), part[kWays - 1]);
  return total + double(hn::GetLane(hn::SumOfLanes(d, ((part[0] + part[1]) + (part[2] + part[3])).v)));
}
double fold_products(const double* x, const double* y, int64_t n, double total) {
  for (int64_t i = 0; i < n; ++i) total += x[i] * y[i];
  return total;
}

// total[i] += element(i): vectors of float, in halves of double.
template <class Element>
HWY_INLINE int64_t add_lanes(int64_t n, double* total, Element element) {
  (void)n, (void)total, (void)element;
  int64_t i = 0;
#if HWY_HAVE_FLOAT64 && HWY_TARGET != HWY_SCALAR
  const D d;
  const hn::Half<D> h;
  const hn::Rebind<double, decltype(h)> w;
  const int64_t width = int64_t(hn::Lanes(d)), half = width / 2;
  for (; i + width <= n; i += width) {
    const auto v = element(i).v;
    const auto low = hn::PromoteTo(w, hn::LowerHalf(h, v)), high = hn::PromoteTo(w, hn::UpperHalf(h, v));
    hn::StoreU(hn::Add(hn::LoadU(w, total + i), low), w, total + i);
    hn::StoreU(hn::Add(hn::LoadU(w, total + i + half), high), w, total + i + half);
  }
#endif
  return i;
}
void fold_product_lanes(const float* x, const float* y, int64_t n, double* total) {
  const D d;
  int64_t i =
      add_lanes(n, total, [&](int64_t k) HWY_ATTR { return Floats(hn::LoadU(d, x + k)) * hn::LoadU(d, y + k); });
  for (; i < n; ++i) total[i] += double(x[i] * y[i]);
}
void fold_product_lanes(const double* x, const double* y, int64_t n, double* total) {
  for (int64_t i = 0; i < n; ++i) total[i] += x[i] * y[i];
}

template <class T>
void fold_lanes(ReductionMode_t mode, const T* x, int64_t n, double* total) {
  if constexpr (sizeof(T) == 4) {
    if (mode == ReductionMode_t::ADD || mode == ReductionMode_t::AVG) {
      const D d;
      int64_t i = add_lanes(n, total, [&](int64_t k) HWY_ATTR { return Floats(hn::LoadU(d, x + k)); });
      for (; i < n; ++i) total[i] += double(x[i]);
      return;
    }
  }
  with_fold(mode, [&](auto element, auto join, double) HWY_ATTR {
    for (int64_t i = 0; i < n; ++i) total[i] = join(total[i], element(double(x[i])));
  });
}

// --- casts -----------------------------------------------------------------------------------------------------------
template <class T>
void cast_lanes(DataType_t type, T* out, const T* x, int64_t n) {
  const auto clamped = [&](T low, T high) HWY_ATTR {
    for (int64_t i = 0; i < n; ++i) {
      const T v = x[i] == x[i] ? x[i] : T(0);
      out[i] = __builtin_nearbyint(v < low ? low : (v > high ? high : v));
    }
  };
  switch (type) {
    case DataType_t::BOOLEAN:
      for (int64_t i = 0; i < n; ++i) out[i] = x[i] != 0 ? T(1) : T(0);
      return;
    case DataType_t::INT8: return clamped(-128, 127);
    case DataType_t::UINT8: return clamped(0, 255);
    default:
      for (int64_t i = 0; i < n; ++i) out[i] = T(round_to_type(type, double(x[i])));
  }
}

template <class T>
LaneOps<T> table() {
  LaneOps<T> t = {};
#define PW(MODE, ...) t.pointwise[int(PointwiseMode_t::MODE)] = pointwise_lanes<PointwiseMode_t::MODE>;
#include "ops/pw_ops.def"
#undef PW
  const typename LaneOps<T>::Pointwise fused[3][4] = {
      {fused_lanes<0, 0>, fused_lanes<0, 1>, fused_lanes<0, 2>, fused_lanes<0, 3>},
      {fused_lanes<1, 0>, fused_lanes<1, 1>, fused_lanes<1, 2>, fused_lanes<1, 3>},
      {fused_lanes<2, 0>, fused_lanes<2, 1>, fused_lanes<2, 2>, fused_lanes<2, 3>}};
  for (int first = 0; first < 3; ++first) std::copy_n(fused[first], 4, t.fused[first]);
  t.fold = fold;
  t.fold_products = fold_products;
  t.fold_product_lanes = fold_product_lanes;
  t.fold_lanes = fold_lanes<T>;
  t.cast = cast_lanes<T>;
  t.fill = fill_lanes<T>;
  t.transpose = transpose<T>;
  return t;
}
LaneOps<float> float_table() { return table<float>(); }
LaneOps<double> double_table() { return table<double>(); }
