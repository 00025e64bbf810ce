// The vocabulary in which pw_ops.def is written, for float, double and Bounded, and the evaluation of a mode.
#pragma once

#include <cmath>
#include <limits>

#include "ops/bounded.h"
#include "tilewright/types.h"

namespace tilewright {

// A pointwise node's parameters, defaults filled in.
struct PwParams {
  double lower = 0, upper = std::numeric_limits<double>::infinity(), slope = 0;  // RELU
  double swish_beta = 1, elu_alpha = 1, softplus_beta = 1;
  int64_t axis = -1;  // GEN_INDEX
};

namespace pw {

template <class F>
F num(double value) {
  return F(value);
}

// --- float and double: conditions are bools ------------------------------------------------------------------------
// max, min: NaN in either operand is NaN.
template <class F>
F max(F x, F y) {
  return x > y ? x : (y >= x ? y : x + y);
}
template <class F>
F min(F x, F y) {
  return x < y ? x : (y <= x ? y : x + y);
}
// clang-format off
template <class F> F abs(F x) { return std::fabs(x); }
template <class F> F mod(F x, F y) { return std::fmod(x, y); }
template <class F> F pow(F x, F y) { return std::pow(x, y); }
template <class F> F ceil(F x) { return std::ceil(x); }
template <class F> F floor(F x) { return std::floor(x); }
template <class F> F cos(F x) { return std::cos(x); }
template <class F> F sin(F x) { return std::sin(x); }
template <class F> F tan(F x) { return std::tan(x); }
template <class F> F exp(F x) { return std::exp(x); }
template <class F> F expm1(F x) { return std::expm1(x); }
template <class F> F log(F x) { return std::log(x); }
template <class F> F sqrt(F x) { return std::sqrt(x); }
template <class F> F rsqrt(F x) { return F(1) / std::sqrt(x); }
template <class F> F erf(F x) { return std::erf(x); }
template <class F> F tanh(F x) { return std::tanh(x); }
// clang-format on
// 1 / (1 + e^-x), without overflow on either side.
template <class F>
F sigmoid(F x) {
  const F e = std::exp(-std::fabs(x));
  return (x >= F(0) ? F(1) : e) / (F(1) + e);
}
// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|).
template <class F>
F softplus(F x) {
  return (x > F(0) ? x : F(0) * x) + std::log1p(std::exp(-std::fabs(x)));
}
template <>
inline float softplus(float x) {
  return std::isinf(x) ? (x > 0 ? x : 0.f) : (x > 0 ? x : 0.f * x) + std::log1p(std::exp(-std::fabs(x)));
}
template <>
inline double softplus(double x) {
  return std::isinf(x) ? (x > 0 ? x : 0.) : (x > 0 ? x : 0. * x) + std::log1p(std::exp(-std::fabs(x)));
}
// clang-format off
template <class F> bool gt(F x, F y) { return x > y; }
template <class F> bool ge(F x, F y) { return x >= y; }
template <class F> bool eq(F x, F y) { return x == y; }
template <class F> bool ne(F x, F y) { return x != y; }
// clang-format on
inline bool both(bool a, bool b) { return a && b; }
inline bool either(bool a, bool b) { return a || b; }
template <class F>
F where(bool c, F x, F y) {
  return c ? x : y;
}
template <class F>
F truth(bool c) {
  return c ? F(1) : F(0);
}
// slope * x where a slope of 0 gives 0 even for infinite x, and NaN stays NaN.
template <class F>
F leak(double slope, F x) {
  return slope == 0 ? (x == x ? F(0) : x) : F(slope) * x;
}

// --- Bounded: conditions know whether they are sure ------------------------------------------------------------------
struct Maybe {
  bool value, sure;
};
using Bd = Bounded;
inline Bd max(Bd x, Bd y) {
  return bounded::apply([](double a, double b) { return max(a, b); }, x, y, 0);
}
inline Bd min(Bd x, Bd y) {
  return bounded::apply([](double a, double b) { return min(a, b); }, x, y, 0);
}
inline Bd abs(Bd x) { return {std::fabs(x.v), x.e}; }
inline Bd mod(Bd x, Bd y) {
  return bounded::apply([](double a, double b) { return std::fmod(a, b); }, x, y);
}
inline Bd pow(Bd x, Bd y) {
  return bounded::apply([](double a, double b) { return std::pow(a, b); }, x, y, 16);
}
inline Bd ceil(Bd x) {
  return bounded::apply([](double a) { return std::ceil(a); }, x, 0);
}
inline Bd floor(Bd x) {
  return bounded::apply([](double a) { return std::floor(a); }, x, 0);
}
// Not monotone over a wide interval: the slope is at most 1, the range 2.
inline Bd cos(Bd x) { return bounded::rounded(std::cos(x.v), std::min(x.e, 2.0), kFunctionUlps); }
inline Bd sin(Bd x) { return bounded::rounded(std::sin(x.v), std::min(x.e, 2.0), kFunctionUlps); }
inline Bd tan(Bd x) {
  return bounded::apply([](double a) { return std::tan(a); }, x);
}
inline Bd exp(Bd x) {
  return bounded::apply([](double a) { return std::exp(a); }, x);
}
inline Bd expm1(Bd x) {
  return bounded::apply([](double a) { return std::expm1(a); }, x);
}
inline Bd log(Bd x) {
  return bounded::apply([](double a) { return std::log(a); }, x);
}
inline Bd sqrt(Bd x) {
  return bounded::apply([](double a) { return std::sqrt(a); }, x);
}
inline Bd rsqrt(Bd x) {
  return bounded::apply([](double a) { return 1 / std::sqrt(a); }, x);
}
inline Bd erf(Bd x) {
  return bounded::apply([](double a) { return std::erf(a); }, x);
}
inline Bd tanh(Bd x) {
  Bd y = bounded::apply([](double a) { return std::tanh(a); }, x);
  y.e += t_rounding.tanh * std::fabs(y.v);
  return y;
}
inline Bd sigmoid(Bd x) {
  return bounded::apply([](double a) { return sigmoid(a); }, x, 8);
}
inline Bd softplus(Bd x) {
  return bounded::apply([](double a) { return softplus(a); }, x, 8);
}
inline Bd leak(double slope, Bd x) { return slope == 0 ? Bd(leak(0, x.v)) : Bd(slope) * x; }
inline bool apart(Bd x, Bd y) {  // the order of x and y is certain
  return (x.e == 0 && y.e == 0) || std::fabs(x.v - y.v) > x.e + y.e || std::isnan(x.v) || std::isnan(y.v);
}
inline Maybe gt(Bd x, Bd y) { return {x.v > y.v, apart(x, y)}; }
inline Maybe ge(Bd x, Bd y) { return {x.v >= y.v, apart(x, y)}; }
inline Maybe eq(Bd x, Bd y) { return {x.v == y.v, apart(x, y)}; }
inline Maybe ne(Bd x, Bd y) { return {x.v != y.v, apart(x, y)}; }
inline Maybe both(Maybe a, Maybe b) {
  return {a.value && b.value, (a.sure && b.sure) || (a.sure && !a.value) || (b.sure && !b.value)};
}
inline Maybe either(Maybe a, Maybe b) {
  return {a.value || b.value, (a.sure && b.sure) || (a.sure && a.value) || (b.sure && b.value)};
}
// An unsure condition may take either branch.
inline Bd where(Maybe c, Bd x, Bd y) {
  const Bd& taken = c.value ? x : y;
  const Bd& other = c.value ? y : x;
  if (c.sure) return taken;
  // The last factor covers the rounding of the subtraction itself.
  const double d = (std::fabs(other.v - taken.v) + other.e) * (1 + 0x1p-50);
  return {taken.v, std::isnan(d) ? kInfinity : std::max(taken.e, d)};
}
template <class F>
F truth(Maybe c) {
  return where(c, F(1), F(0));
}

// d/dx of GELU_APPROX_TANH_FWD.
template <class F>
F gelu_tanh_derivative(F x) {
  const F t = tanh(num<F>(0.79788456080286536) * (x + num<F>(0.044715) * x * x * x));
  const F du = num<F>(0.79788456080286536) * (num<F>(1) + num<F>(3 * 0.044715) * x * x);
  // Far out 1 - t^2 is 0 and du may be huge: their product must not become inf * 0.
  return num<F>(0.5) * (num<F>(1) + t) + num<F>(0.5) * x * ((num<F>(1) - t * t) * min(du, num<F>(1e30)));
}

}  // namespace pw

// The modes' arity, 0 for NOT_SET; GEN_INDEX counts its shape-giving operand.
int pointwise_arity(PointwiseMode_t);
// Where a mode may be tested with random data.
enum class PwDomain { kAny, kSmall, kPositive, kNonZero, kLogical };
PwDomain pointwise_domain(PointwiseMode_t);
// The formula's text, for printing and for the CUDA generator.
const char* pointwise_formula(PointwiseMode_t);

// The mode's value. GEN_INDEX is not here: it depends on where, not on what.
template <PointwiseMode_t kMode, class F>
inline F pointwise_value(F x, F y, F m, const PwParams& p) {
  using namespace pw;
  (void)x, (void)y, (void)m, (void)p;
#define PW(MODE, ARITY, DOMAIN_, ...) \
  if constexpr (kMode == PointwiseMode_t::MODE) return __VA_ARGS__;
#include "ops/pw_ops.def"
#undef PW
  return x;
}

}  // namespace tilewright
