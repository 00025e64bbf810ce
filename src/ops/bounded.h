// Running error analysis: a double and a bound on how far an honest engine's value may be from it. Each operation
// propagates the errors of its operands and adds what one rounding in the compute type adds. So a tolerance is derived
// from types and reduction lengths, element by element, and is written nowhere else.
// Model: |fl(a op b) - (a op b)| <= u |a op b| + eta, u the unit roundoff, eta the smallest normal number (an engine
// may flush subnormals). Functions (exp, erf, ...) may err by kFunctionUlps such steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace tilewright {

struct Rounding {
  double u = 0x1p-24;                // unit roundoff of the compute type
  double eta = 0x1p-126;             // its smallest normal number
  double overflow = 0x1.fffffep127;  // beyond this a value may become inf
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

// A value just computed in the compute type: adds the rounding.
inline Bounded rounded(double v, double propagated, double ulps = 1) {
  const Rounding& r = t_rounding;
  const double a = std::fabs(v);
  if (!(a <= r.overflow)) return {v, std::isinf(v) || std::isnan(v) ? propagated : kInfinity};
  return {v, propagated + ulps * r.u * a + (a < r.eta / r.u && a != 0 ? ulps * r.eta : 0)};
}

// f piecewise monotone: the largest change lies at the ends of the operand's interval (to second order).
template <class F>
Bounded apply(F f, Bounded x, double ulps = kFunctionUlps) {
  const double v = f(x.v);
  double e = 0;
  if (x.e > 0) {
    e = std::max(std::fabs(f(x.v + x.e) - v), std::fabs(f(x.v - x.e) - v));
    if (std::isnan(e)) e = std::isnan(v) ? 0 : kInfinity;
  }
  return rounded(v, e, ulps);
}
template <class F>
Bounded apply(F f, Bounded x, Bounded y, double ulps = kFunctionUlps) {
  const double v = f(x.v, y.v);
  double e = 0;
  if (x.e > 0 || y.e > 0)
    for (double sx : {-1., 1.})
      for (double sy : {-1., 1.}) {
        const double d = std::fabs(f(x.v + sx * x.e, y.v + sy * y.e) - v);
        e = std::isnan(d) ? (std::isnan(v) ? e : kInfinity) : std::max(e, d);
      }
  return rounded(v, e, ulps);
}

}  // namespace bounded

inline Bounded operator+(Bounded a, Bounded b) { return bounded::rounded(a.v + b.v, a.e + b.e); }
inline Bounded operator-(Bounded a, Bounded b) { return bounded::rounded(a.v - b.v, a.e + b.e); }
inline Bounded operator-(Bounded a) { return {-a.v, a.e}; }
inline Bounded operator*(Bounded a, Bounded b) {
  using bounded::product;
  return bounded::rounded(a.v * b.v, product(std::fabs(a.v), b.e) + product(std::fabs(b.v), a.e) + product(a.e, b.e));
}
inline Bounded operator/(Bounded a, Bounded b) {
  const double v = a.v / b.v;
  double e = 0;
  if (a.e > 0 || b.e > 0)
    e = std::fabs(b.v) > b.e ? (a.e + bounded::product(std::fabs(v), b.e)) / (std::fabs(b.v) - b.e) : kInfinity;
  return bounded::rounded(v, e, 2);
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
