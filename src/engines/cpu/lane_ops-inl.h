// Included once per instruction set by lane_ops.cc, inside a namespace of its own and under a target pragma. Everything
// here has internal linkage, so that code for one set never serves another.

template <PointwiseMode_t kMode, class T>
void pointwise_lanes(T* out, const T* x, const T* y, const T* m, int64_t n, const PwParams& params) {
  const PwParams p = params;
  constexpr int kArity = arity_of(kMode);
  for (int64_t i = 0; i < n; ++i) {
    const T second = kArity > 1 ? y[i] : T(0), third = kArity > 2 ? m[i] : T(0);
    if constexpr (sizeof(T) == 4) out[i] = fast::value<kMode>(x[i], second, third, p);
    else out[i] = pointwise_value<kMode>(x[i], second, third, p);
  }
}

template <class T>
void fill_lanes(T* out, T value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = value;
}

// Sums go in kWays interleaved partial sums: vector adds, and a shorter chain of roundings.
constexpr int kWays = 32;

template <class T, class Element, class Join>
T fold_ways(const T* x, int64_t n, T start, Element element, Join join) {
  T part[kWays];
  for (int w = 0; w < kWays; ++w) part[w] = start;
  int64_t i = 0;
  for (; i + kWays <= n; i += kWays)
    for (int w = 0; w < kWays; ++w) part[w] = join(part[w], element(x[i + w]));
  for (int w = 0; i < n; ++i, ++w) part[w] = join(part[w], element(x[i]));
  for (int half = kWays / 2; half > 0; half /= 2)
    for (int w = 0; w < half; ++w) part[w] = join(part[w], part[w + half]);
  return part[0];
}

// Calls body(element, join, start) with the mode's functions on T.
template <class T, class Body>
void with_fold(ReductionMode_t mode, Body body) {
  const auto same = [](T v) { return v; };
  const auto magnitude = [](T v) { return v < 0 ? -v : v; };
  const auto add = [](T a, T b) { return a + b; };
  const auto times = [](T a, T b) { return a * b; };
  // NaN on either side wins: a comparison with it is false, and a + b is then NaN.
  const auto larger = [](T a, T b) { return a > b ? a : (b >= a ? b : a + b); };
  const auto smaller = [](T a, T b) { return a < b ? a : (b <= a ? b : a + b); };
  const T infinity = std::numeric_limits<T>::infinity();
  switch (mode) {
    case ReductionMode_t::ADD:
    case ReductionMode_t::AVG: return body(same, add, T(0));
    case ReductionMode_t::NORM1: return body(magnitude, add, T(0));
    case ReductionMode_t::NORM2: return body([](T v) { return v * v; }, add, T(0));
    case ReductionMode_t::MUL: return body(same, times, T(1));
    case ReductionMode_t::MUL_NO_ZEROS: return body([](T v) { return v == 0 ? T(1) : v; }, times, T(1));
    case ReductionMode_t::MAX: return body(same, larger, -infinity);
    case ReductionMode_t::MIN: return body(same, smaller, infinity);
    case ReductionMode_t::AMAX: return body(magnitude, larger, T(0));
    default: return;
  }
}

template <class T>
double fold(ReductionMode_t mode, const T* x, int64_t n, double total) {
  // A product of a block overflows where that of all blocks need not: multiply in double.
  if (mode == ReductionMode_t::MUL || mode == ReductionMode_t::MUL_NO_ZEROS) {
    for (int64_t i = 0; i < n; ++i) total *= x[i] == 0 && mode == ReductionMode_t::MUL_NO_ZEROS ? 1 : double(x[i]);
    return total;
  }
  with_fold<T>(mode, [&](auto element, auto join, T start) {
    const T part = fold_ways(x, n, start, element, join);
    if (mode == ReductionMode_t::MAX || mode == ReductionMode_t::AMAX)
      total = total > part ? total : (part >= total ? double(part) : total + part);
    else if (mode == ReductionMode_t::MIN) total = total < part ? total : (part <= total ? double(part) : total + part);
    else total += part;
  });
  return total;
}

template <class T>
void fold_lanes(ReductionMode_t mode, const T* x, int64_t n, double* total) {
  with_fold<double>(mode, [&](auto element, auto join, double) {
    for (int64_t i = 0; i < n; ++i) total[i] = join(total[i], element(double(x[i])));
  });
}

template <class T>
void cast_lanes(DataType_t type, T* out, const T* x, int64_t n) {
  const auto clamped = [&](T low, T high) {
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
#define PW(MODE, ...) t.pointwise[int(PointwiseMode_t::MODE)] = pointwise_lanes<PointwiseMode_t::MODE, T>;
#include "ops/pw_ops.def"
#undef PW
  t.fold = fold<T>;
  t.fold_lanes = fold_lanes<T>;
  t.cast = cast_lanes<T>;
  t.fill = fill_lanes<T>;
  return t;
}
