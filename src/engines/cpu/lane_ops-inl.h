// The loops of LaneOps. Included once per target by lane_ops.cc, inside its namespace, after lane_math-inl.h. Those of
// float are explicit vectors; those of double plain loops, for graphs that need exactness more than speed.

using fast::D;
using fast::Floats;

// --- partial vectors: no memory beyond the lanes is touched
// -----------------------------------------------------------
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

// --- pointwise
// --------------------------------------------------------------------------------------------------------
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

template <class T>
void fill_lanes(T* out, T value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = value;
}

// --- folds
// ------------------------------------------------------------------------------------------------------------ Calls
// body(element, join, start) with the mode's functions on double.
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

template <class T>
void fold_lanes(ReductionMode_t mode, const T* x, int64_t n, double* total) {
  with_fold(mode, [&](auto element, auto join, double) HWY_ATTR {
    for (int64_t i = 0; i < n; ++i) total[i] = join(total[i], element(double(x[i])));
  });
}

// --- casts
// ------------------------------------------------------------------------------------------------------------
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
  t.fold = fold;
  t.fold_lanes = fold_lanes<T>;
  t.cast = cast_lanes<T>;
  t.fill = fill_lanes<T>;
  return t;
}
LaneOps<float> float_table() { return table<float>(); }
LaneOps<double> double_table() { return table<double>(); }
