// Running error analysis: a double and a bound on how far an honest engine's value may be from it. Each operation
// propagates the errors of its operands and adds what one rounding in the compute type adds. So a tolerance is derived
// from types and reduction lengths, element by element, and is written nowhere else.
// Model: |fl(a op b) - (a op b)| <= u |a op b| + eta, u the unit roundoff, eta the smallest normal number (an engine
// may flush subnormals). Functions (exp, erf, ...) may err by kFunctionUlps such steps.
// Past the largest number: an interval that lies beyond half of it and reaches past it stands for the infinity there
// too: a mask's -FLT_MAX less a little may be either. What is too large and not surely so has no bound: e is infinite.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tilewright {

struct Rounding {
  double u = 0x1p-24;                // unit roundoff of the compute type
  double eta = 0x1p-126;             // its smallest normal number
  double overflow = 0x1.fffffep127;  // beyond this a value may become inf
  double tanh = 0;                   // relative error that a tanh may have besides
};
inline thread_local Rounding t_rounding;  // of the node being evaluated

constexpr double kFunctionUlps = 4;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Bounded {
  double v = 0, e = 0;
  Bounded() = default;
  Bounded(double value) : v(value) {}
  Bounded(double value, double error) : v(value), e(error) {}
};

namespace bounded {

// x * y with 0 * inf = 0: an exact zero has no error to amplify.
inline double product(double x, double y) { return x == 0 || y == 0 ? 0 : x * y; }

// Whether an engine may have an infinity where this is finite.
inline bool may_be_infinite(Bounded x) { return std::isfinite(x.v) && !(std::fabs(x.v) + x.e <= t_rounding.overflow); }

// A value just computed in the compute type: adds the rounding.
inline Bounded rounded(double v, double propagated, double ulps = 1) {
  const Rounding& r = t_rounding;
  const double a = std::fabs(v);
  if (std::isinf(v) || std::isnan(v)) return {v, propagated};
  const double e = propagated + ulps * r.u * a + (a < r.eta / r.u && a != 0 ? ulps * r.eta : 0);
  return {v, a <= r.overflow || a - e >= r.overflow / 2 ? e : kInfinity};
}
// The same of operands that may be infinite: only what may then be so too has a bound.
inline Bounded rounded(double v, double propagated, Bounded x, Bounded y, double ulps = 1) {
  const Bounded b = rounded(v, propagated, ulps);
  const bool lost = (may_be_infinite(x) || may_be_infinite(y)) && std::isfinite(v) && !may_be_infinite(b);
  return lost ? Bounded(v, kInfinity) : b;
}

// Of the interval that an engine's value lies in.
inline std::array<double, 2> ends(Bounded x) {
  if (!may_be_infinite(x)) return {x.v - x.e, x.v + x.e};
  return x.v < 0 ? std::array{-kInfinity, x.v + x.e} : std::array{x.v - x.e, kInfinity};
}

// f piecewise monotone: the largest change lies at the ends of the operand's interval (to second order).
template <class F>
Bounded apply(F f, Bounded x, double ulps = kFunctionUlps) {
  const double v = f(x.v);
  double e = 0;
  if (x.e > 0)
    for (double at : ends(x)) {
      const double d = std::fabs(f(at) - v);
      e = std::isnan(d) ? (std::isnan(v) ? e : kInfinity) : std::max(e, d);
    }
  return rounded(v, e, ulps);
}
template <class F>
Bounded apply(F f, Bounded x, Bounded y, double ulps = kFunctionUlps) {
  const double v = f(x.v, y.v);
  double e = 0;
  if (x.e > 0 || y.e > 0)
    for (double at_x : ends(x))
      for (double at_y : ends(y)) {
        const double d = std::fabs(f(at_x, at_y) - v);
        e = std::isnan(d) ? (std::isnan(v) ? e : kInfinity) : std::max(e, d);
      }
  return rounded(v, e, ulps);
}

}  // namespace bounded

inline Bounded operator+(Bounded a, Bounded b) { return bounded::rounded(a.v + b.v, a.e + b.e, a, b); }
inline Bounded operator-(Bounded a, Bounded b) { return bounded::rounded(a.v - b.v, a.e + b.e, a, b); }
inline Bounded operator-(Bounded a) { return {-a.v, a.e}; }
inline Bounded operator*(Bounded a, Bounded b) {
  using bounded::product;
  const double e = product(std::fabs(a.v), b.e) + product(std::fabs(b.v), a.e) + product(a.e, b.e);
  return bounded::rounded(a.v * b.v, e, a, b);
}
inline Bounded operator/(Bounded a, Bounded b) {
  const double v = a.v / b.v;
  double e = 0;
  if (a.e > 0 || b.e > 0)
    e = std::fabs(b.v) > b.e ? (a.e + bounded::product(std::fabs(v), b.e)) / (std::fabs(b.v) - b.e) : kInfinity;
  return bounded::rounded(v, e, a, b, 2);
}

// A sum of many terms in any order: (terms) roundings of partial sums, each at most the sum of magnitudes.
struct BoundedSum {
  double v = 0, e = 0, magnitude = 0;
  int64_t terms = 0;
  void add(Bounded x) { v += x.v, e += x.e, magnitude += std::fabs(x.v), ++terms; }
  Bounded total() const {
    const Rounding& r = t_rounding;
    const double m = magnitude + e;
    if (!(m <= r.overflow)) return {v, std::isfinite(m) ? kInfinity : (std::isnan(v) || std::isinf(v) ? 0 : kInfinity)};
    return {v, e + double(terms > 1 ? terms : 0) * (r.u * m) + (terms > 0 ? r.eta : 0)};
  }
};

}  // namespace tilewright
