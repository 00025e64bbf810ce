// The vocabulary of pw_ops.def on a vector of floats. Included once per target by lane_ops.cc, inside its namespace.
// Polynomials interpolate at Chebyshev nodes; each function stays within two units in the last place
// (tests/engines/cpu_lane_ops_test.cc), NaN and infinities included.

namespace fast {

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
constexpr size_t kWidth = hn::MaxLanes(D());

struct Floats {
  hn::Vec<D> v;
  HWY_INLINE Floats() : v(hn::Zero(D())) {}
  HWY_INLINE Floats(hn::Vec<D> x) : v(x) {}
  HWY_INLINE explicit Floats(double x) : v(hn::Set(D(), float(x))) {}
};
struct Bools {
  hn::Mask<D> m;
};
struct Ints {
  hn::Vec<DI> v;
};

// clang-format off
HWY_INLINE Floats operator+(Floats x, Floats y) { return hn::Add(x.v, y.v); }
HWY_INLINE Floats operator-(Floats x, Floats y) { return hn::Sub(x.v, y.v); }
HWY_INLINE Floats operator*(Floats x, Floats y) { return hn::Mul(x.v, y.v); }
HWY_INLINE Floats operator/(Floats x, Floats y) { return hn::Div(x.v, y.v); }
HWY_INLINE Floats operator-(Floats x) { return hn::Neg(x.v); }
HWY_INLINE Bools gt(Floats x, Floats y) { return {hn::Gt(x.v, y.v)}; }
HWY_INLINE Bools ge(Floats x, Floats y) { return {hn::Ge(x.v, y.v)}; }
HWY_INLINE Bools eq(Floats x, Floats y) { return {hn::Eq(x.v, y.v)}; }
HWY_INLINE Bools ne(Floats x, Floats y) { return {hn::Not(hn::Eq(x.v, y.v))}; }  // true of NaN
HWY_INLINE Bools both(Bools a, Bools b) { return {hn::And(a.m, b.m)}; }
HWY_INLINE Bools either(Bools a, Bools b) { return {hn::Or(a.m, b.m)}; }
HWY_INLINE Floats where(Bools c, Floats x, Floats y) { return hn::IfThenElse(c.m, x.v, y.v); }
HWY_INLINE Floats abs(Floats x) { return hn::Abs(x.v); }
HWY_INLINE Floats ceil(Floats x) { return hn::Ceil(x.v); }
HWY_INLINE Floats floor(Floats x) { return hn::Floor(x.v); }
HWY_INLINE Floats sqrt(Floats x) { return hn::Sqrt(x.v); }
HWY_INLINE Floats rsqrt(Floats x) { return Floats(1) / sqrt(x); }
template <class F> HWY_INLINE F num(double x) { return F(x); }
template <class F> HWY_INLINE F truth(Bools c) { return hn::IfThenElseZero(c.m, F(1).v); }
HWY_INLINE Floats fma(Floats x, Floats y, Floats z) { return hn::MulAdd(x.v, y.v, z.v); }    // x * y + z
HWY_INLINE Floats fnma(Floats x, Floats y, Floats z) { return hn::NegMulAdd(x.v, y.v, z.v); }  // z - x * y
HWY_INLINE Ints bits_of(Floats x) { return {hn::BitCast(DI(), x.v)}; }
HWY_INLINE Floats float_of(Ints x) { return hn::BitCast(D(), x.v); }
HWY_INLINE Floats with_sign_of(Floats x, Floats sign) { return hn::CopySign(x.v, sign.v); }
// clang-format on

// NaN in either operand is NaN: a comparison with it is false, and x + y is then NaN.
HWY_INLINE Floats max(Floats x, Floats y) { return where(gt(x, y), x, where(ge(y, x), y, x + y)); }
HWY_INLINE Floats min(Floats x, Floats y) { return where(gt(y, x), x, where(ge(x, y), y, x + y)); }
// Between two numbers; NaN stays.
HWY_INLINE Floats clamp(Floats x, double low, double high) {
  const Floats l(low), h(high);
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  return where(gt(l, x), l, where(gt(x, h), h, x));
#else
  return hn::Min(h.v, hn::Max(l.v, x.v));  // of a NaN and a number, the second operand
#endif
}
HWY_INLINE Floats leak(double slope, Floats x) { return slope == 0 ? where(eq(x, x), Floats(), x) : Floats(slope) * x; }

// c[kFrom] + c[kFrom + 1] x + ..., kCount terms, by halves: a chain of multiply-adds would wait for each in turn.
template <size_t kFrom, size_t kCount, size_t kAll>
HWY_INLINE Floats terms(const double (&c)[kAll], Floats x, Floats x2, Floats x4, Floats x8) {
  if constexpr (kCount == 1) return Floats(c[kFrom]);
  constexpr size_t kLow = kCount > 8 ? 8 : kCount > 4 ? 4 : kCount > 2 ? 2 : 1;
  if constexpr (kCount > 1)
    return fma(kLow == 8   ? x8
               : kLow == 4 ? x4
               : kLow == 2 ? x2
                           : x,
               terms<kFrom + kLow, kCount - kLow>(c, x, x2, x4, x8), terms<kFrom, kLow>(c, x, x2, x4, x8));
}
template <size_t kCount>
HWY_INLINE Floats polynomial(Floats x, const double (&c)[kCount]) {
  const Floats x2 = x * x, x4 = x2 * x2;
  return terms<0, kCount>(c, x, x2, x4, x4 * x4);
}

// The result of a library function in the lanes of `which`, v in the others.
template <class Function>
HWY_INLINE Floats mend(Floats v, Bools which, Floats x, Floats y, Function function) {
  const D d;
  if (HWY_LIKELY(hn::AllFalse(d, which.m))) return v;
  HWY_ALIGN float a[kWidth], b[kWidth];
  hn::Store(x.v, d, a);
  hn::Store(y.v, d, b);
  for (size_t i = 0; i < hn::Lanes(d); ++i) a[i] = function(a[i], b[i]);
  return where(which, hn::Load(d, a), v);
}

// x * scale to the nearest integer, for results below 2^22: adding 1.5 * 2^23 leaves it in the low bits.
HWY_INLINE Floats shifted(Floats x, double scale) { return fma(x, Floats(scale), Floats(0x1.8p23)); }
HWY_INLINE Floats whole(Floats shifted) { return shifted - Floats(0x1.8p23); }
HWY_INLINE hn::Vec<DI> whole_bits(Floats shifted) { return hn::Sub(bits_of(shifted).v, hn::Set(DI(), 0x4b400000)); }

// x = n ln 2 + r with |r| <= ln 2 / 2: n, shifted, and r. ln 2 in two parts, the first short enough for n times it to
// be exact.
HWY_INLINE Floats powers_in(Floats x) { return shifted(x, 1.44269504); }
HWY_INLINE Floats rest_of(Floats x, Floats powers) {
  const Floats n = whole(powers);
  return fnma(n, Floats(-2.12194442e-4), fnma(n, Floats(0.693359375), x));
}
// e^r - 1.
HWY_INLINE Floats exp_minus_one(Floats r) {
  return fma(r * r, polynomial(r, {0.5, 0.166665734, 0.0416665503, 0.00836377382, 0.00139268749}), r);
}
HWY_INLINE Floats power_of_two(hn::Vec<DI> n) { return float_of({hn::ShiftLeft<23>(hn::Add(n, hn::Set(DI(), 127)))}); }
// p * 2^n. 2^n itself may be out of range.
HWY_INLINE Floats scaled(Floats p, Floats powers) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return hn::Vec<D>{_mm512_scalef_ps(p.v.raw, whole(powers).v.raw)};
#else
  const auto n = whole_bits(powers), half = hn::ShiftRight<1>(n);
  return p * power_of_two(half) * power_of_two(hn::Sub(n, half));
#endif
}

HWY_INLINE Floats exp(Floats x) {
  const Floats c = clamp(x, -104, 89), powers = powers_in(c);
  return scaled(Floats(1) + exp_minus_one(rest_of(c, powers)), powers);
}
// Between -30 and 60.
HWY_INLINE Floats expm1_near(Floats x) {
  const Floats powers = powers_in(x), scale = scaled(Floats(1), powers);
  return fma(scale, exp_minus_one(rest_of(x, powers)), scale - Floats(1));
}

HWY_INLINE Floats expm1(Floats x) {
  const Floats v = where(eq(x, Floats()), x, expm1_near(clamp(x, -30, 60)));
  const Bools large = gt(x, Floats(60));
  return HWY_LIKELY(hn::AllFalse(D(), large.m)) ? v : where(large, exp(x), v);
}

// ln of a normal number: 2^k (1 + f) with f between sqrt(1/2) - 1 and sqrt(2) - 1.
HWY_INLINE Floats log_normal(Floats x) {
  const auto bits = bits_of(x).v, k = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(DI(), 0x3f3504f3)));
  const Floats f = float_of({hn::Sub(bits, hn::ShiftLeft<23>(k))}) - Floats(1), n = hn::ConvertTo(D(), k);
  const Floats rest = polynomial(f, {0.333333312, -0.24999997, 0.200007157, -0.166678023, 0.142490576, -0.124256873,
                                     0.116854199, -0.114797338, 0.0697161144});
  const Floats square = f * f;
  return fma(n, Floats(0.693359375), fnma(Floats(0.5), square, fma(square * f, rest, n * Floats(-2.12194442e-4))) + f);
}
HWY_INLINE Floats log(Floats x) {
  const Bools tiny = gt(Floats(0x1p-126), x), in_range = both(gt(x, Floats()), gt(Floats(HUGE_VAL), x));
  Floats v = log_normal(where(tiny, x * Floats(0x1p23), x));
  v = where(tiny, v - Floats(23 * 0.693147181), v);
  if (HWY_LIKELY(hn::AllTrue(D(), in_range.m))) return v;
  const Floats nan(double(std::numeric_limits<float>::quiet_NaN()));
  const Floats end = where(gt(x, Floats()), x, where(eq(x, Floats()), Floats(-HUGE_VAL), nan));
  return where(in_range, v, end);
}
// For z in [0, 1]. What rounding 1 + z lost is put back by the quotient.
HWY_INLINE Floats log1p_unit(Floats z) {
  const Floats w = Floats(1) + z;
  return where(eq(w, Floats(1)), z, log_normal(w) * (z / (w - Floats(1))));
}

HWY_INLINE Floats tanh(Floats x) {
  const Floats a = clamp(abs(x), 0, 20), t = expm1_near(a + a);
  return with_sign_of(t / (t + Floats(2)), x);
}

HWY_INLINE Floats sigmoid(Floats x) {
  const Floats e = exp(-abs(x));
  return where(ge(x, Floats()), Floats(1), e) / (Floats(1) + e);
}

HWY_INLINE Floats softplus(Floats x) {
  const Floats rest = log1p_unit(exp(-abs(x)));
  return where(gt(x, Floats()), x + rest, where(ge(Floats(), x), rest, x));
}

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
// Polynomials around n / 4, n of 0 to 15, with coefficients looked up by n. The last one reaches 1.
HWY_INLINE Floats erf(Floats x) {
  HWY_ALIGN static constexpr float kTable[6][16] = {
      {0, 0.2763264, 0.5204999, 0.71115565, 0.8427008, 0.92290014, 0.96610516, 0.9866717, 0.9953223, 0.9985373,
       0.999593, 0.9998994, 0.9999779, 0.9999957, 0.9999993, 0.99999994},
      {1.1283792, 1.0600141, 0.8787826, 0.64293104, 0.4151075, 0.23652112, 0.11893029, 0.052774996, 0.020666985,
       0.007142319, 0.0021782843, 0.00058627734, 0.0001392531, 2.9189046e-05, 5.3994336e-06, 8.814342e-07},
      {1.9726127e-07, -0.264998, -0.43938446, -0.48219463, -0.4151081, -0.2956543, -0.17839809, -0.09235748,
       -0.04133404, -0.016069822, -0.005445327, -0.0016120345, -0.00041765737, -9.482789e-05, -1.888721e-05,
       -3.3026893e-06},
      {-0.37613848, -0.30916858, -0.1464645, 0.026786275, 0.13836709, 0.16753529, 0.13875265, 0.09015811, 0.04822343,
       0.021724647, 0.008350016, 0.0027603002, 0.0007890469, 0.00019578628, 4.228747e-05, 7.967362e-06},
      {0.0002445322, 0.12603486, 0.18191098, 0.15005809, 0.06929073, -0.0056624976, -0.044146877, -0.04789184,
       -0.03443356, -0.019151043, -0.008687857, -0.0032969937, -0.0010617512, -0.00029277944, -6.955409e-05,
       -1.4297547e-05},
      {0.11114099, 0.079675354, 0.007448983, -0.052812286, -0.06883017, -0.047095694, -0.014976748, 0.006482728,
       0.013009878, 0.010641813, 0.0061299577, 0.0027709205, 0.001025707, 0.0003177921, 8.34865e-05, 1.8754949e-05}};
  const D d;
  const Floats a = clamp(abs(x), 0, 3.87), n = shifted(a, 4), r = fnma(whole(n), Floats(0.25), a);
  const auto index = hn::IndicesFromVec(d, hn::And(bits_of(n).v, hn::Set(DI(), 15)));
  const auto coefficient = [&](int k) HWY_ATTR { return Floats(hn::TableLookupLanes(hn::Load(d, kTable[k]), index)); };
  Floats p = coefficient(5);
  for (int k = 4; k >= 0; --k) p = fma(p, r, coefficient(k));
  return with_sign_of(p, x);
}
#else
// A polynomial in x^2 near 0, one in the exponent of 1 - e^-g beyond.
HWY_INLINE Floats erf(Floats x) {
  const Floats s = x * x, a = abs(x), t = clamp(a, 0, 4);
  const Floats near = x * polynomial(s, {1.12837917, -0.376126385, 0.112837825, -0.0268654307, 0.00522103181,
                                         -0.00084840804, 0.00011265959, -9.66704437e-06});
  const Floats g = polynomial(t, {-0.000320138053, 1.13023343, 0.631826052, 0.110080083, -0.026421136, 0.0047595963,
                                  -0.000596805626, 4.60580428e-05, -1.63715142e-06});
  const Floats far = with_sign_of(Floats(1) - exp(-g), x);
  return where(gt(Floats(1), a), near, where(eq(x, x), far, x));
}
#endif

HWY_INLINE Floats gelu_tanh_derivative(Floats x) {
  const Floats t = tanh(Floats(0.797884561) * fma(Floats(0.044715) * x, x * x, x));
  const Floats du = Floats(0.797884561) * fma(Floats(3 * 0.044715) * x, x, Floats(1));
  // Beyond all numbers du meets 1 - t^2 = 0.
  return Floats(0.5) * (Floats(1) + t) +
         Floats(0.5) * x * ((Floats(1) - t * t) * where(gt(Floats(1e30), du), du, Floats(1e30)));
}

// x = n pi / 2 + r: sine and cosine of r, and n. Exact while n times the first part of pi / 2 is: with a fused
// multiply-add, far beyond kLargestAngle. Larger angles go to the library.
constexpr double kLargestAngle = HWY_NATIVE_FMA ? 30000 : 0;
HWY_INLINE hn::Vec<DI> turn(Floats x, Floats& sine, Floats& cosine) {
  const Floats turns = shifted(x, 0.636619772), n = whole(turns);
  const Floats r = fnma(n, Floats(-1.71512451e-15), fnma(n, Floats(-4.37113883e-08), fnma(n, Floats(1.57079637), x)));
  const Floats s = r * r;
  sine = fma(r * s, polynomial(s, {-0.16666664650292085, 0.00833274593638056, -0.0001958738706847972}), r);
  cosine =
      fma(s * s,
          polynomial(s, {0.0416666666643024, -0.0013888887664715074, 2.4800596436288507e-05, -2.730044869151093e-07}),
          fnma(Floats(0.5), s, Floats(1)));
  return bits_of(turns).v;
}
HWY_INLINE Bools too_large(Floats x) { return gt(abs(x), Floats(kLargestAngle)); }
HWY_INLINE Bools has_bit(hn::Vec<DI> n, int bit) { return {hn::RebindMask(D(), hn::TestBit(n, hn::Set(DI(), bit)))}; }
HWY_INLINE Floats sin(Floats x) {
  Floats sine, cosine;
  const auto n = turn(x, sine, cosine);
  const Floats v = where(has_bit(n, 1), cosine, sine);
  return mend(where(eq(x, Floats()), x, where(has_bit(n, 2), -v, v)), too_large(x), x, x,
              [](float a, float) { return std::sin(a); });
}
HWY_INLINE Floats cos(Floats x) {
  Floats sine, cosine;
  const auto n = turn(x, sine, cosine);
  const Floats v = where(has_bit(n, 1), sine, cosine);
  return mend(where(has_bit(hn::Add(n, hn::Set(DI(), 1)), 2), -v, v), too_large(x), x, x,
              [](float a, float) { return std::cos(a); });
}
HWY_INLINE Floats tan(Floats x) {
  Floats sine, cosine;
  const Bools odd = has_bit(turn(x, sine, cosine), 1);
  const Floats v = where(odd, -cosine, sine) / where(odd, sine, cosine);
  return mend(where(eq(x, Floats()), x, v), too_large(x), x, x, [](float a, float) { return std::tan(a); });
}

#if HWY_HAVE_FLOAT64 && HWY_TARGET != HWY_SCALAR
// body(x, y) on the lanes in double, in two halves.
template <class Body>
HWY_INLINE Floats in_double(Floats x, Floats y, Body body) {
  const D d;
  const hn::Half<D> h;
  const hn::Rebind<double, decltype(h)> w;
  const auto low = body(hn::PromoteTo(w, hn::LowerHalf(h, x.v)), hn::PromoteTo(w, hn::LowerHalf(h, y.v)));
  const auto high = body(hn::PromoteTo(w, hn::UpperHalf(h, x.v)), hn::PromoteTo(w, hn::UpperHalf(h, y.v)));
  return hn::Combine(d, hn::DemoteTo(h, high), hn::DemoteTo(h, low));
}
// A float's logarithm times a float, in double, has digits to spare for the exponential.
HWY_INLINE Floats pow(Floats x, Floats y) {
  const Floats largest(double(std::numeric_limits<float>::max()));
  const Bools plain = both(both(gt(x, Floats()), ge(largest, x)), gt(Floats(1e6), abs(y)));
  const Floats v = in_double(x, y, [](auto a, auto b) HWY_ATTR {
    const hn::DFromV<decltype(a)> w;
    return hn::Exp(w, hn::Max(hn::Set(w, -700.0), hn::Min(hn::Set(w, 700.0), hn::Mul(b, hn::Log(w, a)))));
  });
  return mend(v, {hn::Not(plain.m)}, x, y, [](float a, float b) { return std::pow(a, b); });
}
// x - trunc(x / y) y. The product is exact in double while the quotient has less than 29 bits; rounded, the quotient
// may be one too large.
HWY_INLINE Floats mod(Floats x, Floats y) {
  const Bools plain = both(gt(abs(y) * Floats(0x1p24), abs(x)), gt(Floats(HUGE_VAL), abs(y)));
  const Floats v = in_double(abs(x), abs(y), [](auto a, auto b) HWY_ATTR {
    const auto r = hn::NegMulAdd(hn::Trunc(hn::Div(a, b)), b, a);
    return hn::IfThenElse(hn::Lt(r, hn::Zero(hn::DFromV<decltype(a)>())), hn::Add(r, b), r);
  });
  return mend(with_sign_of(v, x), {hn::Not(plain.m)}, x, y, [](float a, float b) { return std::fmod(a, b); });
}
#else
HWY_INLINE Floats pow(Floats x, Floats y) {
  return mend(x, {hn::MaskFromVec(hn::BitCast(D(), hn::Set(DI(), -1)))}, x, y,
              [](float a, float b) { return std::pow(a, b); });
}
HWY_INLINE Floats mod(Floats x, Floats y) {
  return mend(x, {hn::MaskFromVec(hn::BitCast(D(), hn::Set(DI(), -1)))}, x, y,
              [](float a, float b) { return std::fmod(a, b); });
}
#endif

// The table's formula.
template <PointwiseMode_t kMode>
HWY_INLINE Floats value(Floats x, Floats y, Floats m, const PwParams& p) {
  using F = Floats;
  (void)y, (void)m, (void)p;
#define PW(MODE, ARITY, DOMAIN_, ...) \
  if constexpr (kMode == PointwiseMode_t::MODE) return __VA_ARGS__;
#include "ops/pw_ops.def"
#undef PW
  return x;
}

}  // namespace fast
