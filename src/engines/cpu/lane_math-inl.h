// Functions of float without branches or calls, so that loops over them become vector code. Included once per
// instruction set by lane_ops.cc, before lane_ops-inl.h. Polynomials interpolate at Chebyshev nodes; each function
// stays within two units in the last place (tests/engines/cpu_lane_ops_test.cc), NaN and infinities included.

namespace fast {

inline int bits_of(float x) { return __builtin_bit_cast(int, x); }
inline float float_of(int bits) { return __builtin_bit_cast(float, bits); }
// Wraps around, where a difference of ints would be undefined.
inline int wrapping_difference(int a, int b) { return int(unsigned(a) - unsigned(b)); }
inline float magnitude(float x) { return float_of(bits_of(x) & 0x7fffffff); }
inline float with_sign_of(float x, float sign) {
  return float_of((bits_of(x) & 0x7fffffff) | (bits_of(sign) & int(0x80000000)));
}

// x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
struct Reduced {
  int n;
  float r;
};
inline Reduced reduce(float x) {
  const float shifted = x * 1.44269504f + 0x1.8p23f;
  const float n = shifted - 0x1.8p23f;
  // ln 2 in two parts, the first short enough for n times it to be exact.
  return {wrapping_difference(bits_of(shifted), bits_of(0x1.8p23f)), (x - n * 0.693359375f) - n * -2.12194442e-4f};
}
// (e^r - 1 - r) / r^2.
inline float exp_rest(float r) {
  return 0.5f + r * (0.166665734f + r * (0.0416665503f + r * (0.00836377382f + r * 0.00139268749f)));
}
inline float power_of_two(int n) { return float_of((n + 127) << 23); }

inline float exp(float x) {
  x = x < -104.f ? -104.f : (x > 89.f ? 89.f : x);  // NaN stays
  const Reduced s = reduce(x);
  const float p = 1.f + (s.r + s.r * s.r * exp_rest(s.r));
  const int half = s.n >> 1;  // in two steps: 2^n itself may be out of range
  return p * power_of_two(half) * power_of_two(s.n - half);
}

inline float expm1(float x) {
  const float clamped = x < -30.f ? -30.f : (x > 60.f ? 60.f : x);
  const Reduced s = reduce(clamped);
  const float p = s.r + s.r * s.r * exp_rest(s.r), scale = power_of_two(s.n);
  const float small = scale * p + (scale - 1.f);
  const float large = exp(x);
  return x > 60.f ? large : (x == 0.f ? x : small);
}

// ln of a normal number: 2^k (1 + f) with f between sqrt(1/2) - 1 and sqrt(2) - 1.
inline float log_normal(float x) {
  const int k = wrapping_difference(bits_of(x), 0x3f3504f3) >> 23;
  const float f = float_of(wrapping_difference(bits_of(x), k << 23)) - 1.f;
  const float rest =
      0.333333312f +
      f * (-0.24999997f +
           f * (0.200007157f +
                f * (-0.166678023f +
                     f * (0.142490576f +
                          f * (-0.124256873f + f * (0.116854199f + f * (-0.114797338f + f * 0.0697161144f)))))));
  const float n = float(k);
  return ((f * f * f * rest + n * -2.12194442e-4f) - 0.5f * f * f) + f + n * 0.693359375f;
}
inline float log(float x) {
  const bool tiny = x < 0x1p-126f;
  const float v = log_normal(tiny ? x * 0x1p23f : x) - (tiny ? 23 * 0.693147181f : 0.f);
  const float infinity = std::numeric_limits<float>::infinity();
  return x > 0.f ? (x < infinity ? v : x) : (x == 0.f ? -infinity : std::numeric_limits<float>::quiet_NaN());
}
// For z in [0, 1]. What rounding 1 + z lost is put back by the quotient.
inline float log1p_unit(float z) {
  const float w = 1.f + z;
  const float v = log_normal(w) * (z / (w - 1.f));
  return w == 1.f ? z : v;
}

inline float tanh(float x) {
  const float a = magnitude(x), t = expm1(2.f * (a > 20.f ? 20.f : a));
  return with_sign_of(t / (t + 2.f), x);
}

inline float sigmoid(float x) {
  const float e = exp(-magnitude(x));
  return (x >= 0.f ? 1.f : e) / (1.f + e);
}

inline float softplus(float x) {
  const float rest = log1p_unit(exp(-magnitude(x)));
  return x > 0.f ? x + rest : (x <= 0.f ? rest : x);
}

// A polynomial in x^2 near 0, one in the exponent of 1 - e^-g beyond.
inline float erf(float x) {
  const float s = x * x, a = magnitude(x), t = a > 4.f ? 4.f : a;
  const float near =
      x * (1.12837917f +
           s * (-0.376126385f +
                s * (0.112837825f +
                     s * (-0.0268654307f + s * (0.00522103181f + s * (-0.00084840804f +
                                                                      s * (0.00011265959f + s * -9.66704437e-06f)))))));
  const float g =
      -0.000320138053f +
      t * (1.13023343f +
           t * (0.631826052f +
                t * (0.110080083f +
                     t * (-0.026421136f + t * (0.0047595963f + t * (-0.000596805626f +
                                                                    t * (4.60580428e-05f + t * -1.63715142e-06f)))))));
  const float far = with_sign_of(1.f - exp(-g), x);
  return a < 1.f ? near : (x == x ? far : x);
}

inline float gelu_tanh_derivative(float x) {
  const float t = tanh(0.797884561f * (x + 0.044715f * x * x * x));
  const float du = 0.797884561f * (1.f + 3 * 0.044715f * x * x);
  return 0.5f * (1.f + t) + 0.5f * x * ((1.f - t * t) * (du < 1e30f ? du : 1e30f));
}

// The table's formula with these functions in place of the library's.
template <PointwiseMode_t kMode>
inline float value(float x, float y, float m, const PwParams& p) {
  using F = float;
  using pw::abs, pw::both, pw::ceil, pw::cos, pw::either, pw::eq, pw::floor, pw::ge, pw::gt, pw::leak, pw::max, pw::min,
      pw::mod, pw::ne, pw::num, pw::pow, pw::rsqrt, pw::sin, pw::sqrt, pw::tan, pw::truth, pw::where;
  (void)x, (void)y, (void)m, (void)p;
#define PW(MODE, ARITY, DOMAIN_, ...) \
  if constexpr (kMode == PointwiseMode_t::MODE) return __VA_ARGS__;
#include "ops/pw_ops.def"
#undef PW
  return x;
}

}  // namespace fast
