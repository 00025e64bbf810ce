#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engines/cpu/lane_steps.cc"
// clang-format off
#include <hwy/foreach_target.h>
// clang-format on
#include "engines/cpu/lane_steps.h"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "base/numeric_types.h"

HWY_BEFORE_NAMESPACE();
namespace tilewright::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "base/numeric_vectors-inl.h"

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using D16 = hn::Rebind<uint16_t, D>;
using Kind = LaneStepKind;
constexpr int kWidth = int(hn::MaxLanes(D())), kVectors = 16, kInFlight = kVectors * kWidth, kParts = 4;
static_assert(kInFlight <= kStepLanes);

// Of lambdas: what is not inlined puts the value in hand in memory.
#define TW_INLINE HWY_ATTR __attribute__((always_inline))

// The value in hand: as many vectors as leave registers for the operands of a step.
struct Hand {
  HWY_ATTR Hand() {}  // the implicit one would not be compiled for the target
  V a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};
template <class Body>
HWY_INLINE void each(Hand& x, Body body) {
  body(x.a, 0), body(x.b, 1), body(x.c, 2), body(x.d, 3), body(x.e, 4), body(x.f, 5), body(x.g, 6), body(x.h, 7);
  body(x.i, 8), body(x.j, 9), body(x.k, 10), body(x.l, 11), body(x.m, 12), body(x.n, 13), body(x.o, 14), body(x.p, 15);
}

// Vector k of lanes of which `rest` exist: no memory beyond them is touched.
template <bool kWhole, class T, class DT>
HWY_INLINE hn::Vec<DT> load_lanes(DT d, const void* from, int k, int64_t rest) {
  const T* const p = static_cast<const T*>(from) + k * kWidth;
  const int64_t count = rest - k * kWidth;
  if (kWhole || count >= kWidth) return hn::LoadU(d, p);
  HWY_ALIGN T lanes[kWidth] = {};
  if (count > 0) std::memcpy(lanes, p, size_t(count) * sizeof(T));
  return hn::Load(d, lanes);
}
template <bool kWhole, class T, class DT>
HWY_INLINE void store_lanes(hn::Vec<DT> v, DT d, void* to, int k, int64_t rest) {
  T* const p = static_cast<T*>(to) + k * kWidth;
  const int64_t count = rest - k * kWidth;
  if (kWhole || count >= kWidth) return hn::StoreU(v, d, p);
  HWY_ALIGN T lanes[kWidth];
  hn::Store(v, d, lanes);
  if (count > 0) std::memcpy(p, lanes, size_t(count) * sizeof(T));
}
template <bool kWhole, class T, class DT>
HWY_INLINE void stream_lanes(hn::Vec<DT> v, DT d, void* to, int k, int64_t rest) {
  T* const p = static_cast<T*>(to) + k * kWidth;
  if (kWhole && reinterpret_cast<uintptr_t>(p) % (kWidth * sizeof(T)) == 0) return hn::Stream(v, d, p);
  store_lanes<kWhole, T>(v, d, to, k, rest);
}
template <bool kWhole>
HWY_INLINE V existing(V v, int k, int64_t rest) {
  return kWhole ? v : hn::IfThenElseZero(hn::FirstN(D(), size_t(std::clamp<int64_t>(rest - k * kWidth, 0, kWidth))), v);
}

template <bool kWhole>
void call(const LaneStep& s, const char* x, const char* y, const char* z, int64_t rest, Hand& hand) {
  const D d;
  HWY_ALIGN float lanes[kInFlight];
  each(hand, [&](V& v, int k) HWY_ATTR { hn::Store(v, d, lanes + k * kWidth); });
  const auto argument = [&](const char* p) { return p ? reinterpret_cast<const float*>(p) : lanes; };
  s.function(lanes, argument(x), argument(y), argument(z), kWhole ? kInFlight : std::min<int64_t>(rest, kInFlight),
             *s.params);
  each(hand, [&](V& v, int k) HWY_ATTR { v = hn::Load(d, lanes + k * kWidth); });
}

// The steps on lanes i, i + 1, ... of which `rest` exist.
template <bool kWhole>
HWY_INLINE void run_steps(const LaneStep* steps, int64_t count, char* const* pointers, int64_t i, int64_t rest,
                          float (*totals)[kParts * kWidth]) {
  const D d;
  const D16 d16;
  Hand x;
  each(x, [&](V& v, int) TW_INLINE { v = hn::Zero(d); });
  const auto at = [&](const LaneStep::Lanes& l) { return l.pointer < 0 ? nullptr : pointers[l.pointer] + i * l.size; };
  const auto lanes = [&](const void* p, int k) TW_INLINE { return load_lanes<kWhole, float>(d, p, k, rest); };
  for (const LaneStep* s = steps; s < steps + count; ++s) {
    char* const p = at(s->lanes);
    const auto add_total = [&](auto&& element) TW_INLINE {
      float* const total = totals[s->total];
      each(x, [&](V& v, int k) TW_INLINE {
        float* const part = total + k % kParts * kWidth;
        hn::Store(hn::Add(hn::Load(d, part), existing<kWhole>(element(v, k), k, rest)), d, part);
      });
    };
    const auto with_one = [&](auto&& op) TW_INLINE {
      float number;
      std::memcpy(&number, p, sizeof number);
      const V one = hn::Set(d, number);
      each(x, [&](V& v, int) TW_INLINE { v = op(v, one); });
    };
    // Memory reads while it writes if both take turns line by line.
    const auto stream_each = [&](auto&& stream) TW_INLINE {
      const char *const ahead = at(s->second), *const beside = at(s->third);
      each(x, [&](V& v, int k) TW_INLINE {
        if (ahead && (s->fetched >> k & 1)) __builtin_prefetch(ahead + k * kWidth * s->second.size, 0, 3);
        if (beside && (s->fetched >> k & 1)) __builtin_prefetch(beside + k * kWidth * s->third.size, 0, 3);
        stream(v, k);
      });
    };
    switch (s->kind) {
      case Kind::Load: each(x, [&](V& v, int k) TW_INLINE { v = lanes(p, k); }); break;
      case Kind::LoadHalf:
        each(x, [&](V& v, int k) TW_INLINE { v = float_of_half(d, load_lanes<kWhole, uint16_t>(d16, p, k, rest)); });
        break;
      case Kind::LoadBfloat16:
        each(x,
             [&](V& v, int k) TW_INLINE { v = float_of_bfloat16(d, load_lanes<kWhole, uint16_t>(d16, p, k, rest)); });
        break;
      case Kind::Spread: with_one([](V, V one) TW_INLINE { return one; }); break;
      case Kind::Add: each(x, [&](V& v, int k) TW_INLINE { v = hn::Add(v, lanes(p, k)); }); break;
      case Kind::Subtract: each(x, [&](V& v, int k) TW_INLINE { v = hn::Sub(v, lanes(p, k)); }); break;
      case Kind::SubtractFrom: each(x, [&](V& v, int k) TW_INLINE { v = hn::Sub(lanes(p, k), v); }); break;
      case Kind::Multiply: each(x, [&](V& v, int k) TW_INLINE { v = hn::Mul(v, lanes(p, k)); }); break;
      case Kind::AddOne: with_one([](V v, V one) TW_INLINE { return hn::Add(v, one); }); break;
      case Kind::SubtractOne: with_one([](V v, V one) TW_INLINE { return hn::Sub(v, one); }); break;
      case Kind::SubtractFromOne: with_one([](V v, V one) TW_INLINE { return hn::Sub(one, v); }); break;
      case Kind::MultiplyOne: with_one([](V v, V one) TW_INLINE { return hn::Mul(v, one); }); break;
      case Kind::Square: each(x, [&](V& v, int) TW_INLINE { v = hn::Mul(v, v); }); break;
      case Kind::Call: call<kWhole>(*s, p, at(s->second), at(s->third), rest, x); break;
      case Kind::Store: each(x, [&](V& v, int k) TW_INLINE { store_lanes<kWhole, float>(v, d, p, k, rest); }); break;
      case Kind::StoreHalf:
        each(x, [&](V& v, int k) TW_INLINE { store_lanes<kWhole, uint16_t>(half_of_float(d, v), d16, p, k, rest); });
        break;
      case Kind::StoreBfloat16:
        each(x,
             [&](V& v, int k) TW_INLINE { store_lanes<kWhole, uint16_t>(bfloat16_of_float(d, v), d16, p, k, rest); });
        break;
      case Kind::Stream:
        stream_each([&](V& v, int k) TW_INLINE { stream_lanes<kWhole, float>(v, d, p, k, rest); });
        break;
      case Kind::StreamHalf:
        stream_each([&](V& v, int k)
                        TW_INLINE { stream_lanes<kWhole, uint16_t>(half_of_float(d, v), d16, p, k, rest); });
        break;
      case Kind::StreamBfloat16:
        stream_each([&](V& v, int k)
                        TW_INLINE { stream_lanes<kWhole, uint16_t>(bfloat16_of_float(d, v), d16, p, k, rest); });
        break;
      case Kind::Fetch:
        for (int k = 0; k < kVectors; ++k)
          if (s->fetched >> k & 1) __builtin_prefetch(p + k * kWidth * s->lanes.size, 0, 3);
        break;
      case Kind::Sum: add_total([](V v, int) TW_INLINE { return v; }); break;
      case Kind::SumSquares: add_total([](V v, int) TW_INLINE { return hn::Mul(v, v); }); break;
      case Kind::SumProducts: add_total([&](V v, int k) TW_INLINE { return hn::Mul(v, lanes(p, k)); }); break;
      case Kind::AddTo:
        each(x, [&](V& v, int k) TW_INLINE { store_lanes<kWhole, float>(hn::Add(lanes(p, k), v), d, p, k, rest); });
        break;
      case Kind::AddProductTo: {
        const char* const q = at(s->second);
        each(x, [&](V& v, int k)
                    TW_INLINE { store_lanes<kWhole, float>(hn::MulAdd(v, lanes(q, k), lanes(p, k)), d, p, k, rest); });
        break;
      }
    }
  }
}

void run(const LaneStepList* lists, int count, int64_t n) {
  const D d;
  HWY_ALIGN float parts[kMaxLaneStepLists][kMaxTotals][kParts * kWidth];
  for (int k = 0; k < count; ++k)
    for (int t = 0; t < lists[k].total_count; ++t) std::fill_n(parts[k][t], kParts * kWidth, 0.f);
  int64_t i = 0;
  for (; i + kInFlight <= n; i += kInFlight)
    for (int k = 0; k < count; ++k)
      run_steps<true>(lists[k].steps, lists[k].count, lists[k].pointers, i, n - i, parts[k]);
  if (i < n)
    for (int k = 0; k < count; ++k)
      run_steps<false>(lists[k].steps, lists[k].count, lists[k].pointers, i, n - i, parts[k]);
  for (int k = 0; k < count; ++k)
    for (int t = 0; t < lists[k].total_count; ++t) {
      V sum = hn::Zero(d);
      for (int part = 0; part < kParts; ++part) sum = hn::Add(sum, hn::Load(d, parts[k][t] + part * kWidth));
      *lists[k].totals[t] += double(hn::GetLane(hn::SumOfLanes(d, sum)));
    }
}

bool converts() { return HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128; }

}  // namespace tilewright::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewright::cpu {

HWY_EXPORT(run);
HWY_EXPORT(converts);

bool lane_steps_convert() { return HWY_DYNAMIC_DISPATCH(converts)(); }

void run_lane_steps(const LaneStepList* lists, int count, int64_t n) { HWY_DYNAMIC_DISPATCH(run)(lists, count, n); }

}  // namespace tilewright::cpu
#endif
