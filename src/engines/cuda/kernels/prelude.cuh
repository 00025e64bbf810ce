// What every generated kernel starts with: element types and their conversions, the vocabulary of pointwise formulas,
// reductions over a block. Compiled by NVRTC without any other header, for sm_75 and newer.
#pragma once

#define DEV static __device__ __forceinline__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

namespace tw {

// --- bits ------------------------------------------------------------------------------------------------------------
DEV u32 bits(float x) { return __float_as_uint(x); }
DEV float from_bits(u32 x) { return __uint_as_float(x); }
DEV bool is_nan(float x) { return x != x; }
DEV bool is_nan(double x) { return x != x; }

// A double as the float that rounds to the same narrower value: the last bit says that something was cut off.
DEV float to_odd(double x) {
  float f = __double2float_rz(x);
  if (double(f) != x && x == x) f = from_bits(bits(f) | 1u);
  return f;
}
DEV float to_odd(float x) { return x; }

// --- element types: what memory holds, get() its value, set() the value rounded to it ----------------------------------
struct f32 {
  float v;
  DEV float get(f32 e) { return e.v; }
  DEV f32 set(float x) { return {x}; }
  DEV f32 set(double x) { return {float(x)}; }
};
struct f64 {
  double v;
  DEV double get(f64 e) { return e.v; }
  DEV f64 set(double x) { return {x}; }
};
struct f16 {
  u16 v;
  DEV float get(f16 e) {
    float x;
    asm("{.reg .b16 h; mov.b16 h, %1; cvt.f32.f16 %0, h;}" : "=f"(x) : "h"(e.v));
    return x;
  }
  template <class F>
  DEV f16 set(F x) {
    f16 e;
    asm("{.reg .b16 h; cvt.rn.f16.f32 h, %1; mov.b16 %0, h;}" : "=h"(e.v) : "f"(to_odd(x)));
    return e;
  }
};
struct bf16 {
  u16 v;
  DEV float get(bf16 e) { return from_bits(u32(e.v) << 16); }
  template <class F>
  DEV bf16 set(F y) {
    const float x = to_odd(y);
#if __CUDA_ARCH__ >= 800
    bf16 e;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(e.v) : "f"(x));
    return e;
#else
    const u32 b = bits(x);
    return {u16(is_nan(x) ? 0x7fffu : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16)};
#endif
  }
};
// Eight bits: a sign, kExponent bits, the rest mantissa. No infinity where kFinite: e4m3, whose one NaN is 0x7f.
template <int kExponent, bool kFinite>
struct fp8 {
  u8 v;
  static constexpr int kMantissa = 7 - kExponent, kBias = (1 << (kExponent - 1)) - 1;
  DEV float get(fp8 e) {
    const u32 magnitude = e.v & 0x7fu, exponent = magnitude >> kMantissa, mantissa = magnitude & ((1u << kMantissa) - 1);
    const float sign = e.v & 0x80u ? -1.f : 1.f;
    if (kFinite ? magnitude == 0x7fu : magnitude > (31u << 2)) return from_bits(0x7fc00000u);
    if (!kFinite && magnitude == (31u << 2)) return sign * from_bits(0x7f800000u);
    if (exponent == 0) return sign * float(mantissa) * from_bits(u32(127 + 1 - kBias - kMantissa) << 23);
    return sign * from_bits(((exponent + 127u - kBias) << 23) | (mantissa << (23 - kMantissa)));
  }
  template <class F>
  DEV fp8 set(F y) {
    const float x = to_odd(y);
    const u32 sign = (bits(x) >> 24) & 0x80u, largest = kFinite ? 0x7eu : 0x7bu;
    if (is_nan(x)) return {u8(0x7fu)};
    const float a = fabsf(x);
    const float least = from_bits(u32(127 + 1 - kBias) << 23);  // the smallest normal value
    u32 m;
    if (a < least) {
      // Adding a number whose last bit is worth the smallest subnormal rounds to that.
      const float magic = from_bits(u32(127 + 1 - kBias - kMantissa + 23) << 23);
      m = bits(a + magic) - bits(magic);
    } else {
      const u32 b = bits(a), half = (1u << (22 - kMantissa)) - 1u + ((b >> (23 - kMantissa)) & 1u);
      const u32 rounded = (b + half) >> (23 - kMantissa);
      const u32 zero = u32(127 - kBias) << kMantissa;
      m = rounded > zero + largest ? largest : rounded - zero;
    }
    return {u8(sign | (m > largest ? largest : m))};
  }
};
using e4m3 = fp8<4, true>;
using e5m2 = fp8<5, false>;
// Integers saturate; NaN becomes 0.
template <class T, int kBits, bool kSigned>
struct integer {
  T v;
  DEV auto get(integer e) { return typename pick<(kBits > 24)>::type(e.v); }
  template <class F>
  DEV integer set(F x) {
    if (is_nan(x)) return {T(0)};
    const double low = kSigned ? -double(u64(1) << (kBits - 1)) : 0.0;
    const double high = double((u64(1) << (kBits - (kSigned ? 1 : 0))) - 1);
    const double r = rint(double(x));
    if (r <= low) return {T(i64(low))};
    if (r >= high) return {T((u64(1) << (kBits - (kSigned ? 1 : 0))) - 1)};
    return {T(i64(r))};
  }

 private:
  template <bool kWide, int kDummy = 0>
  struct pick {
    typedef float type;
  };
  template <int kDummy>
  struct pick<true, kDummy> {
    typedef double type;
  };
};
using s4 = integer<signed char, 4, true>;
using s8 = integer<signed char, 8, true>;
using s32 = integer<int, 32, true>;
using s64 = integer<i64, 64, true>;
using uint8 = integer<u8, 8, false>;
struct boolean {
  u8 v;
  DEV float get(boolean e) { return e.v ? 1.f : 0.f; }
  template <class F>
  DEV boolean set(F x) {
    return {u8(x != F(0))};
  }
};

// Neighbours in memory that one thread moves at once; 16 bytes where rows are aligned.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount > 16 ? 16 : sizeof(T) * kCount) vec {
  T e[kCount];
};
template <class T, int kCount>
DEV vec<T, kCount> load(const T* p) {
  return *reinterpret_cast<const vec<T, kCount>*>(p);
}
// Two elements that a register holds, from two values; general: not at once.
template <class T>
struct pairs {
  static constexpr bool known = false;
  DEV u32 set(float, float) { return 0; }
};
#if __CUDA_ARCH__ >= 800
template <>
struct pairs<bf16> {
  static constexpr bool known = true;
  DEV u32 set(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
};
template <>
struct pairs<f16> {
  static constexpr bool known = true;
  DEV u32 set(float low, float high) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
};
#endif
template <class T, int kCount, class F>
DEV void store(T* p, const F (&value)[kCount]) {
  if constexpr (pairs<T>::known && kCount % 2 == 0 && sizeof(F) == 4) {
    vec<u32, kCount / 2> all;
#pragma unroll
    for (int k = 0; k < kCount / 2; ++k) all.e[k] = pairs<T>::set(value[2 * k], value[2 * k + 1]);
    *reinterpret_cast<vec<u32, kCount / 2>*>(p) = all;
  } else {
    vec<T, kCount> all;
#pragma unroll
    for (int k = 0; k < kCount; ++k) all.e[k] = T::set(value[k]);
    *reinterpret_cast<vec<T, kCount>*>(p) = all;
  }
}

// Values as they are.
template <int kCount, class F>
DEV void put(F* p, const F (&value)[kCount]) {
  vec<F, kCount> all;
#pragma unroll
  for (int k = 0; k < kCount; ++k) all.e[k] = value[k];
  *reinterpret_cast<vec<F, kCount>*>(p) = all;
}

// Elements on their way to shared memory while the thread that asked goes on; asked in groups, which arrive in order.
template <class V>
DEV void copy_async(V* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  const u32 at = u32(__cvta_generic_to_shared(to));
  if constexpr (sizeof(V) == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(sizeof(V)) : "memory");
#else
  *to = *reinterpret_cast<const V*>(from);
#endif
}
// 16 bytes; zeros where `there` is false.
DEV void copy_async_16(void* to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(u32(__cvta_generic_to_shared(to))), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
#endif
}
DEV void copies_asked() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// All groups but the last kButLast.
template <int kButLast>
DEV void copies_there() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kButLast) : "memory");
#endif
}

// --- the vocabulary of ops/pw_ops.def ----------------------------------------------------------------------------------
struct Params {
  double lower, upper, slope, swish_beta, elu_alpha, softplus_beta;
};
template <class F>
DEV F num(double value) {
  return F(value);
}
template <class F>
DEV F max(F x, F y) {
#if __CUDA_ARCH__ >= 800
  if constexpr (sizeof(F) == 4) {
    F r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
  }
#endif
  return x > y ? x : (y >= x ? y : x + y);
}
template <class F>
DEV F min(F x, F y) {
#if __CUDA_ARCH__ >= 800
  if constexpr (sizeof(F) == 4) {
    F r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    return r;
  }
#endif
  return x < y ? x : (y <= x ? y : x + y);
}
DEV float abs(float x) { return ::fabsf(x); }
DEV double abs(double x) { return ::fabs(x); }
DEV float mod(float x, float y) { return ::fmodf(x, y); }
DEV double mod(double x, double y) { return ::fmod(x, y); }
#define TW_UNARY(NAME) \
  DEV float NAME(float x) { return ::NAME##f(x); } \
  DEV double NAME(double x) { return ::NAME(x); }
TW_UNARY(ceil)
TW_UNARY(floor)
TW_UNARY(cos)
TW_UNARY(sin)
TW_UNARY(tan)
TW_UNARY(exp)
TW_UNARY(expm1)
TW_UNARY(log)
TW_UNARY(log1p)
TW_UNARY(sqrt)
TW_UNARY(erf)
TW_UNARY(tanh)
#undef TW_UNARY
DEV float pow(float x, float y) { return ::powf(x, y); }
DEV double pow(double x, double y) { return ::pow(x, y); }
// x / y for many x: by the reciprocal of y, which two roundings part from the quotient, as many as a division may have.
// y is scaled by a power of two where its reciprocal would not be a normal number.
template <class F>
struct Divisor;
template <>
struct Divisor<float> {
  float reciprocal, scale;
  __device__ explicit Divisor(float y) {
    scale = fabsf(y) > 0x1p100f ? 0x1p-24f : fabsf(y) < 0x1p-100f ? 0x1p64f : 1.f;
    reciprocal = 1.f / (y * scale);
  }
};
template <>
struct Divisor<double> {
  double y;
  __device__ explicit Divisor(double y) : y(y) {}
};
DEV float divided(float x, Divisor<float> y) { return x * y.reciprocal * y.scale; }
DEV double divided(double x, Divisor<double> y) { return x / y.y; }
DEV float rsqrt(float x) { return ::rsqrtf(x); }  // within 2^-22.9 of it
DEV double rsqrt(double x) { return 1 / ::sqrt(x); }
template <class F>
DEV F sigmoid(F x) {
  const F e = exp(-abs(x));
  return (x >= F(0) ? F(1) : e) / (F(1) + e);
}
template <class F>
DEV F softplus(F x) {
  if (abs(x) > F(1e30)) return x > F(0) ? x : F(0);
  return (x > F(0) ? x : F(0) * x) + log1p(exp(-abs(x)));
}
template <class F>
DEV bool gt(F x, F y) {
  return x > y;
}
template <class F>
DEV bool ge(F x, F y) {
  return x >= y;
}
template <class F>
DEV bool eq(F x, F y) {
  return x == y;
}
template <class F>
DEV bool ne(F x, F y) {
  return x != y;
}
DEV bool both(bool a, bool b) { return a && b; }
DEV bool either(bool a, bool b) { return a || b; }
template <class F>
DEV F where(bool c, F x, F y) {
  return c ? x : y;
}
template <class F>
DEV F truth(bool c) {
  return c ? F(1) : F(0);
}
template <class F>
DEV F leak(double slope, F x) {
  return slope == 0 ? (x == x ? F(0) : x) : F(slope) * x;
}
template <class F>
DEV F gelu_tanh_derivative(F x) {
  const F t = tanh(num<F>(0.79788456080286536) * (x + num<F>(0.044715) * x * x * x));
  const F du = num<F>(0.79788456080286536) * (num<F>(1) + num<F>(3 * 0.044715) * x * x);
  return num<F>(0.5) * (num<F>(1) + t) + num<F>(0.5) * x * ((num<F>(1) - t * t) * min(du, num<F>(1e30)));
}

// --- reductions: where a fold starts, how an element joins, how two partial results join, how it ends ------------------
struct Sum {
  template <class F> DEV F start() { return F(0); }
  template <class F> DEV F element(F x) { return x; }
  template <class F> DEV F join(F a, F b) { return a + b; }
  template <class F> DEV F finish(F a, double) { return a; }
};
struct Average : Sum {
  template <class F> DEV F finish(F a, double count) { return divided(a, Divisor<F>(F(count))); }
};
struct AbsoluteSum : Sum {
  template <class F> DEV F element(F x) { return abs(x); }
};
struct Norm2 : Sum {
  template <class F> DEV F element(F x) { return x * x; }
  template <class F> DEV F finish(F a, double) { return sqrt(a); }
};
struct Product {
  template <class F> DEV F start() { return F(1); }
  template <class F> DEV F element(F x) { return x; }
  template <class F> DEV F join(F a, F b) { return a * b; }
  template <class F> DEV F finish(F a, double) { return a; }
};
struct ProductNoZeros : Product {
  template <class F> DEV F element(F x) { return x == F(0) ? F(1) : x; }
};
struct Max {
  template <class F> DEV F start() { return F(-from_bits(0x7f800000u)); }
  template <class F> DEV F element(F x) { return x; }
  template <class F> DEV F join(F a, F b) { return max(a, b); }
  template <class F> DEV F finish(F a, double) { return a; }
};
struct Min : Max {
  template <class F> DEV F start() { return F(from_bits(0x7f800000u)); }
  template <class F> DEV F join(F a, F b) { return min(a, b); }
};
struct AbsoluteMax : Max {
  template <class F> DEV F start() { return F(0); }
  template <class F> DEV F element(F x) { return abs(x); }
};

DEV float shuffle(float x, int lane) { return __shfl_xor_sync(0xffffffffu, x, lane); }
DEV double shuffle(double x, int lane) { return __shfl_xor_sync(0xffffffffu, x, lane); }

// Over groups of kLanes neighbours, a power of two: every lane of a group gets its result.
template <class R, int kLanes, class F>
DEV F lanes_reduce(F x) {
#pragma unroll
  for (int lane = kLanes / 2; lane > 0; lane >>= 1) x = R::join(x, shuffle(x, lane));
  return x;
}
// What kWarps warps left in shared memory.
template <class R, int kWarps, class F>
DEV F warps_reduce(const F* shared) {
  F x = shared[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) x = R::join(x, shared[w]);
  return x;
}
// The same order for every run: lanes, then warps. Every thread of the block gets the result. `shared` has a place for
// each warp; the next call takes other memory, the one after it may take this again.
template <class R, class F>
DEV F block_reduce(F x, F* shared) {
  x = lanes_reduce<R, 32>(x);
  if (blockDim.x == 32) return x;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
  for (u32 w = 1; w < blockDim.x / 32; ++w) x = R::join(x, shared[w]);
  return x;
}

// --- results that several blocks fold: through the memory of the workspace, which starts as zeros ----------------------
// Numbers as integers of the same order, all above 0, which stands for nothing yet: as if it were -inf. NaN above all.
DEV u32 ordered(float x) {
  if (is_nan(x)) return 0xffffffffu;
  const u32 b = bits(x);
  return b & 0x80000000u ? ~b : b | 0x80000000u;
}
DEV float ordered_back(u32 k) {
  if (k == 0xffffffffu) return from_bits(0x7fc00000u);
  if (k == 0) return -from_bits(0x7f800000u);
  return from_bits(k & 0x80000000u ? k & 0x7fffffffu : ~k);
}
DEV u64 ordered(double x) {
  if (is_nan(x)) return ~u64(0);
  const u64 b = u64(__double_as_longlong(x));
  return b >> 63 ? ~b : b | (u64(1) << 63);
}
DEV double ordered_back(u64 k) {
  if (k == ~u64(0)) return double(from_bits(0x7fc00000u));
  if (k == 0) return -double(from_bits(0x7f800000u));
  return __longlong_as_double(i64(k >> 63 ? k & ~(u64(1) << 63) : ~k));
}
DEV void fold(Sum, float* to, float x) { atomicAdd(to, x); }
DEV void fold(Sum, double* to, double x) { atomicAdd(to, x); }
DEV void fold(Max, float* to, float x) { atomicMax(reinterpret_cast<u32*>(to), ordered(x)); }
DEV void fold(Max, double* to, double x) { atomicMax(reinterpret_cast<u64*>(to), ordered(x)); }
DEV void fold(Min, float* to, float x) { atomicMax(reinterpret_cast<u32*>(to), ordered(-x)); }
DEV void fold(Min, double* to, double x) { atomicMax(reinterpret_cast<u64*>(to), ordered(-x)); }
// A product: zeros stand for 1.
DEV float unfold(Product, float x) { return from_bits(bits(x) ^ bits(1.f)); }
DEV double unfold(Product, double x) {
  return __longlong_as_double(__double_as_longlong(x) ^ __double_as_longlong(1.0));
}
DEV void fold(Product, float* to, float x) {
  u32* const at = reinterpret_cast<u32*>(to);
  for (u32 seen = *at, before;; seen = before) {
    before = atomicCAS(at, seen, bits(unfold(Product(), unfold(Product(), from_bits(seen)) * x)));
    if (before == seen) return;
  }
}
DEV void fold(Product, double* to, double x) {
  u64* const at = reinterpret_cast<u64*>(to);
  for (u64 seen = *at, before;; seen = before) {
    const double all = unfold(Product(), __longlong_as_double(i64(seen))) * x;
    before = atomicCAS(at, seen, u64(__double_as_longlong(unfold(Product(), all))));
    if (before == seen) return;
  }
}
DEV float unfold(Sum, float x) { return x; }
DEV double unfold(Sum, double x) { return x; }
DEV float unfold(Max, float x) { return ordered_back(bits(x)); }
DEV double unfold(Max, double x) { return ordered_back(u64(__double_as_longlong(x))); }
DEV float unfold(Min, float x) { return -ordered_back(bits(x)); }
DEV double unfold(Min, double x) { return -ordered_back(u64(__double_as_longlong(x))); }

}  // namespace tw
