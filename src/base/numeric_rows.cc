#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/numeric_rows.cc"
// clang-format off
#include <hwy/foreach_target.h>
// clang-format on
#include "base/numeric_rows.h"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace tilewright::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void stream(char* to, const char* from, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const int64_t width = int64_t(hn::Lanes(d));
  const int64_t head =
      std::min<int64_t>(bytes, (width - int64_t(reinterpret_cast<uintptr_t>(to) % size_t(width))) % width);
  std::memcpy(to, from, size_t(head));
  int64_t i = head;
  for (; i + width <= bytes; i += width)
    hn::Stream(hn::LoadU(d, reinterpret_cast<const uint8_t*>(from) + i), d, reinterpret_cast<uint8_t*>(to) + i);
  std::memcpy(to + i, from + i, size_t(bytes - i));
}

// Highway's portable targets round halves in a way of their own.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
bool load(const void*, DataType_t, int64_t, float*) { return false; }
bool store(void*, DataType_t, int64_t, const float*) { return false; }
#else

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using DU = hn::RebindToUnsigned<D>;
template <class T>
using Narrow = hn::Rebind<T, D>;
using Floats = hn::Vec<D>;
constexpr size_t kWidth = hn::MaxLanes(D());
#include "base/numeric_vectors-inl.h"

// --- loads -----------------------------------------------------------------------------------------------------------
template <class T, class Convert>
HWY_INLINE bool load_each(const void* from, int64_t count, float* to, Convert convert) {
  const D d;
  const int64_t width = int64_t(hn::Lanes(d));
  const T* const in = static_cast<const T*>(from);
  int64_t i = 0;
  for (; i + width <= count; i += width) hn::StoreU(convert(hn::LoadU(Narrow<T>(), in + i)), d, to + i);
  if (i == count) return true;
  HWY_ALIGN T rest[kWidth] = {};
  HWY_ALIGN float lanes[kWidth];
  std::memcpy(rest, in + i, size_t(count - i) * sizeof(T));
  hn::Store(convert(hn::LoadU(Narrow<T>(), rest)), d, lanes);
  std::memcpy(to + i, lanes, size_t(count - i) * sizeof(float));
  return true;
}
template <class V>
HWY_INLINE Floats of_half(V bits) {
  return float_of_half(D(), bits);
}

bool load(const void* from, DataType_t type, int64_t count, float* to) {
  const D d;
  const Narrow<uint16_t> d16;
  switch (type) {
    case DataType_t::HALF: return load_each<uint16_t>(from, count, to, [&](auto x) HWY_ATTR { return of_half(x); });
    case DataType_t::BFLOAT16:
      return load_each<uint16_t>(from, count, to, [&](auto x) HWY_ATTR { return float_of_bfloat16(d, x); });
    case DataType_t::FP8_E5M2:  // the upper byte of a half
      return load_each<uint8_t>(from, count, to,
                                [&](auto x) HWY_ATTR { return of_half(hn::ShiftLeft<8>(hn::PromoteTo(d16, x))); });
    case DataType_t::FP8_E4M3:  // moved to where a half has its magnitude: its exponent is biased by 8 more
      return load_each<uint8_t>(from, count, to, [&](auto x) HWY_ATTR {
        const auto code = hn::PromoteTo(d16, x);
        const auto sign = hn::ShiftLeft<8>(hn::And(code, hn::Set(d16, 0x80)));
        const auto magnitude = hn::ShiftLeft<7>(hn::And(code, hn::Set(d16, 0x7f)));
        const Floats v = hn::Mul(of_half(hn::Or(sign, magnitude)), hn::Set(d, 256.f));
        const Floats nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
        return hn::IfThenElse(hn::Eq(hn::Abs(v), hn::Set(d, 480.f)), nan, v);
      });
    case DataType_t::INT8:
      return load_each<int8_t>(from, count, to,
                               [&](auto x) HWY_ATTR { return hn::ConvertTo(d, hn::PromoteTo(DI(), x)); });
    case DataType_t::UINT8:
      return load_each<uint8_t>(from, count, to,
                                [&](auto x) HWY_ATTR { return hn::ConvertTo(d, hn::PromoteTo(DI(), x)); });
    case DataType_t::BOOLEAN:
      return load_each<uint8_t>(from, count, to, [&](auto x) HWY_ATTR {
        const auto v = hn::PromoteTo(DI(), x);
        return hn::ConvertTo(d, hn::Min(v, hn::Set(DI(), 1)));
      });
    default: return false;
  }
}

// --- stores ----------------------------------------------------------------------------------------------------------
template <class T, class Convert>
HWY_INLINE bool store_each(void* to, int64_t count, const float* from, Convert convert) {
  const D d;
  const int64_t width = int64_t(hn::Lanes(d));
  T* const out = static_cast<T*>(to);
  int64_t i = 0;
  for (; i + width <= count; i += width) hn::StoreU(convert(hn::LoadU(d, from + i)), Narrow<T>(), out + i);
  if (i == count) return true;
  HWY_ALIGN float lanes[kWidth] = {};
  HWY_ALIGN T rest[kWidth];
  std::memcpy(lanes, from + i, size_t(count - i) * sizeof(float));
  hn::StoreU(convert(hn::Load(d, lanes)), Narrow<T>(), rest);
  std::memcpy(out + i, rest, size_t(count - i) * sizeof(T));
  return true;
}
// The low part of each lane, as the narrower type.
template <class T, class V>
HWY_INLINE auto narrow(V bits) {
  return hn::DemoteTo(Narrow<T>(), hn::BitCast(DI(), bits));
}

// Sign, exponent and kMantissa bits of fraction in a byte; codes beyond kLargest become it, NaN is kNan.
template <int kMantissa, int kBias, int kLargest, int kNan>
bool store_fp8(void* to, int64_t count, const float* from) {
  return store_each<uint8_t>(to, count, from, [](auto v) HWY_ATTR {
    const D d;
    const DU du;
    constexpr int kDropped = 23 - kMantissa;
    const auto bits = hn::BitCast(du, v), sign = hn::ShiftRight<31>(bits);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    // To nearest even: half a unit less one, and one more where the last kept bit is odd.
    const auto odd = hn::And(hn::ShiftRight<kDropped>(magnitude), hn::Set(du, 1u));
    const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(du, (1u << (kDropped - 1)) - 1)), odd);
    const auto normal = hn::Sub(hn::ShiftRight<kDropped>(rounded), hn::Set(du, uint32_t(127 - kBias) << kMantissa));
    // Subnormals: a count of the smallest steps, which is what the addition rounds to.
    const auto step = hn::BitCast(d, hn::Set(du, uint32_t(127 + 23 + 1 - kBias - kMantissa) << 23));
    const auto steps = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), step)), hn::BitCast(du, step));
    const auto smallest = hn::BitCast(d, hn::Set(du, uint32_t(127 + 1 - kBias) << 23));
    const auto tiny = hn::RebindMask(du, hn::Lt(hn::BitCast(d, magnitude), smallest));
    auto code = hn::Min(hn::IfThenElse(tiny, steps, normal), hn::Set(du, uint32_t(kLargest)));
    code = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Set(du, uint32_t(kNan)), code);
    return narrow<uint8_t>(hn::Or(code, hn::ShiftLeft<7>(sign)));
  });
}

template <class T>
bool store_integers(void* to, int64_t count, const float* from, float low, float high) {
  return store_each<T>(to, count, from, [&](auto v) HWY_ATTR {
    const D d;
    const auto number = hn::IfThenElseZero(hn::Eq(v, v), v);
    const auto bounded = hn::Min(hn::Max(number, hn::Set(d, low)), hn::Set(d, high));
    return hn::DemoteTo(Narrow<T>(), hn::NearestInt(bounded));
  });
}

bool store(void* to, DataType_t type, int64_t count, const float* from) {
  switch (type) {
    case DataType_t::HALF:
      return store_each<uint16_t>(to, count, from, [](auto v) HWY_ATTR { return half_of_float(D(), v); });
    case DataType_t::BFLOAT16:
      return store_each<uint16_t>(to, count, from, [](auto v) HWY_ATTR { return bfloat16_of_float(D(), v); });
    case DataType_t::FP8_E4M3: return store_fp8<3, 7, 0x7e, 0x7f>(to, count, from);
    case DataType_t::FP8_E5M2: return store_fp8<2, 15, 0x7b, 0x7e>(to, count, from);
    case DataType_t::INT8: return store_integers<int8_t>(to, count, from, -128, 127);
    case DataType_t::UINT8: return store_integers<uint8_t>(to, count, from, 0, 255);
    case DataType_t::BOOLEAN:
      return store_each<uint8_t>(to, count, from, [](auto v) HWY_ATTR {
        const auto zero = hn::RebindMask(DI(), hn::Eq(v, hn::Zero(D())));
        return narrow<uint8_t>(hn::IfThenZeroElse(zero, hn::Set(DI(), 1)));
      });
    default: return false;
  }
}

#endif

void flush() { hwy::FlushStream(); }

}  // namespace tilewright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewright {

HWY_EXPORT(load);
HWY_EXPORT(store);
HWY_EXPORT(stream);
HWY_EXPORT(flush);

bool load_vectors(const void* from, DataType_t type, int64_t count, float* to) {
  return HWY_DYNAMIC_DISPATCH(load)(from, type, count, to);
}
bool store_vectors(void* to, DataType_t type, int64_t count, const float* from) {
  return HWY_DYNAMIC_DISPATCH(store)(to, type, count, from);
}
void stream_bytes(void* to, const void* from, int64_t bytes) {
  HWY_DYNAMIC_DISPATCH(stream)(static_cast<char*>(to), static_cast<const char*>(from), bytes);
}
void flush_streams() { HWY_DYNAMIC_DISPATCH(flush)(); }

}  // namespace tilewright
#endif
