// Arrays of vectors need vectors of a size that the compiler knows.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engines/cpu/direct_loops.cc"
// clang-format off
#include <hwy/foreach_target.h>
// clang-format on
#include "engines/cpu/direct_loops.h"

#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace tilewright::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using V = hn::Vec<Tag<T>>;
template <class T>
using Rows = typename DirectLoops<T>::Rows;
template <class T>
using Sums = typename DirectLoops<T>::Sums;

// How a tap's factors come: a vector of them, or one for all lanes.
struct PerLane {
  template <class T>
  static HWY_INLINE V<T> load(const T* w, int64_t l) {
    return hn::LoadU(Tag<T>(), w + l);
  }
  template <class T>
  static T scalar(const T* w, int64_t l) {
    return w[l];
  }
};
struct PerTap {
  template <class T>
  static HWY_INLINE V<T> load(const T* w, int64_t) {
    return hn::Set(Tag<T>(), *w);
  }
  template <class T>
  static T scalar(const T* w, int64_t) {
    return *w;
  }
};

// Stores the sums of neighbouring positions. All that it needs is in registers before the first store: the compiler
// cannot tell that none of it is overwritten.
template <class T, class Factor, int kP>
HWY_INLINE void finish(const Rows<T>& r, V<T> (&sum)[kP], int64_t p, int64_t l) {
  const Tag<T> d;
  const int64_t step = r.out_step;
  T* out = r.out + p * step + l;
  if (r.finish.add) {
    const auto add = Factor::load(r.finish.add, l);
#pragma GCC unroll 16
    for (int i = 0; i < kP; ++i) sum[i] = hn::Add(sum[i], add);
  }
  if (r.finish.clips) {
    const auto lower = hn::Set(d, r.finish.lower);
#pragma GCC unroll 16
    for (int i = 0; i < kP; ++i) sum[i] = hn::IfThenElse(hn::Lt(sum[i], lower), lower, sum[i]);  // NaN stays
  }
#pragma GCC unroll 16
  for (int i = 0; i < kP; ++i, out += step) hn::StoreU(sum[i], d, out);
}
template <class T, class Factor>
void finish_scalar(const Rows<T>& r, T sum, int64_t p, int64_t l) {
  if (r.finish.add) sum += Factor::scalar(r.finish.add, l);
  r.out[p * r.out_step + l] = r.finish.clips && sum < r.finish.lower ? r.finish.lower : sum;
}

// kP positions of kV vectors.
template <class T, class Factor, int kP, int kV>
HWY_INLINE void block(const Rows<T>& r, int64_t p, int64_t l) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  V<T> sum[kV][kP];
#pragma GCC unroll 16
  for (int i = 0; i < kP; ++i)
    for (int v = 0; v < kV; ++v) sum[v][i] = hn::Zero(d);
  for (int64_t t = 0; t < r.taps; ++t) {
    const T* x = r.x[t] + p * r.x_step + l;
    V<T> w[kV];
    for (int v = 0; v < kV; ++v) w[v] = Factor::load(r.w[t], l + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < kP; ++i, x += r.x_step)
      for (int v = 0; v < kV; ++v) sum[v][i] = hn::MulAdd(hn::LoadU(d, x + v * lanes), w[v], sum[v][i]);
  }
  for (int v = 0; v < kV; ++v) finish<T, Factor>(r, sum[v], p, l + v * lanes);
}

// kP positions of a vector, taps in runs of kS: what is loaded serves all positions that meet it.
template <class T, class Factor, int kS, int kP>
HWY_INLINE void run_block(const Rows<T>& r, int64_t p, int64_t l) {
  const Tag<T> d;
  V<T> sum[kP];
#pragma GCC unroll 16
  for (int i = 0; i < kP; ++i) sum[i] = hn::Zero(d);
  if (r.next)
#pragma GCC unroll 16
    for (int i = 0; i < kP; ++i) __builtin_prefetch(r.next + (p + i) * r.x_step + l);
  if (r.next_out)
#pragma GCC unroll 16
    for (int i = 0; i < kP; ++i) __builtin_prefetch(r.next_out + (p + i) * r.out_step + l, 1);
  for (int64_t t = 0; t < r.taps; t += kS) {
    const T* x = r.x[t] + p * r.x_step + l;
    V<T> w[kS];
    for (int s = 0; s < kS; ++s) w[s] = Factor::load(r.w[t + s], l);
#pragma GCC unroll 32
    for (int j = 0; j < kP + kS - 1; ++j, x += r.x_step) {
      const auto v = hn::LoadU(d, x);
#pragma GCC unroll 8
      for (int s = 0; s < kS; ++s)
        if (j >= s && j - s < kP) sum[j - s] = hn::MulAdd(v, w[s], sum[j - s]);
    }
  }
  finish<T, Factor>(r, sum, p, l);
}

// Calls body(first) for pieces of `size` that cover n >= size, the last one overlapping its neighbour: what is made
// twice comes out the same.
template <class Body>
HWY_INLINE void for_pieces(int64_t n, int64_t size, const Body& body) {
  int64_t i = 0;
  for (; i + size <= n; i += size) body(i);
  if (i < n) body(n - size);
}

// Calls body(p) for blocks of positions: many share the loads of their factors, seven or four, whichever covers them
// with less overlap.
template <class Body>
HWY_INLINE void for_blocks(int64_t n, const Body& body) {
  if (n >= 7 && (n + 6) / 7 * 7 <= (n + 3) / 4 * 4)
    for_pieces(n, 7, [&](int64_t p) HWY_ATTR { body(std::integral_constant<int, 7>(), p); });
  else if (n >= 4) for_pieces(n, 4, [&](int64_t p) HWY_ATTR { body(std::integral_constant<int, 4>(), p); });
  else
    for (int64_t p = 0; p < n; ++p) body(std::integral_constant<int, 1>(), p);
}

// Blocks of positions outside, lanes inside: that reads memory in its order, and what positions share stays in the
// first-level cache.
template <class T, class Factor, int kS>
void runs(const Rows<T>& r) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  for_blocks(r.positions, [&](auto positions, int64_t p) HWY_ATTR {
    for_pieces(r.lanes, lanes, [&](int64_t l) HWY_ATTR { run_block<T, Factor, kS, positions()>(r, p, l); });
  });
}
template <class T, class Factor, int kV>
void blocks(const Rows<T>& r) {
  const int64_t lanes = kV * int64_t(hn::Lanes(Tag<T>()));
  for_blocks(r.positions, [&](auto positions, int64_t p) HWY_ATTR {
    for_pieces(r.lanes, lanes, [&](int64_t l) HWY_ATTR { block<T, Factor, positions(), kV>(r, p, l); });
  });
}

template <class T, class Factor>
void rows(const Rows<T>& r) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  if (r.lanes < lanes) {
    for (int64_t p = 0; p < r.positions; ++p)
      for (int64_t l = 0; l < r.lanes; ++l) {
        T sum = 0;
        for (int64_t t = 0; t < r.taps; ++t) sum += r.x[t][p * r.x_step + l] * Factor::scalar(r.w[t], l);
        finish_scalar<T, Factor>(r, sum, p, l);
      }
    return;
  }
  if (r.positions >= 4 && r.run == 3) runs<T, Factor, 3>(r);
  else if (r.positions >= 4 && r.run == 5) runs<T, Factor, 5>(r);
  else if (r.positions >= 4 && r.run == 7) runs<T, Factor, 7>(r);
  else if (r.lanes >= 2 * lanes) blocks<T, Factor, 2>(r);
  else blocks<T, Factor, 1>(r);
}

// Where the lanes of a vector of groups find channel c of their group, for all c.
template <class T>
class GroupTables {
 public:
  explicit GroupTables(int64_t group) {
    for (int64_t c = 0; c < group; ++c)
      for (int64_t l = 0; l < kLanes; ++l) index_[c][l] = I(l / group * group + c);
  }
  auto operator[](int64_t c) const { return hn::SetTableIndices(Tag<T>(), index_[c]); }

 private:
  using I = hn::TFromD<hn::RebindToSigned<Tag<T>>>;
  static constexpr int64_t kLanes = int64_t(hn::MaxLanes(Tag<T>()));
  HWY_ALIGN I index_[kLanes][kLanes];
};

template <class T, int kP>
HWY_INLINE void group_block(const Rows<T>& r, const GroupTables<T>& tables, int64_t p, int64_t l, int64_t group,
                            int64_t w_step) {
  const Tag<T> d;
  V<T> sum[kP];
#pragma GCC unroll 16
  for (int i = 0; i < kP; ++i) sum[i] = hn::Zero(d);
  for (int64_t c = 0; c < group; ++c) {
    const auto table = tables[c];
    for (int64_t t = 0; t < r.taps; ++t) {
      const T* x = r.x[t] + p * r.x_step + l;
      const auto w = hn::LoadU(d, r.w[t] + c * w_step + l);
#pragma GCC unroll 16
      for (int i = 0; i < kP; ++i, x += r.x_step)
        sum[i] = hn::MulAdd(hn::TableLookupLanes(hn::LoadU(d, x), table), w, sum[i]);
    }
  }
  finish<T, PerLane>(r, sum, p, l);
}

template <class T, int kP>
HWY_INLINE void group_positions(const Rows<T>& r, const GroupTables<T>& tables, int64_t p, int64_t group,
                                int64_t w_step) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  if (r.lanes >= lanes)
    return for_pieces(r.lanes, lanes, [&](int64_t l) { group_block<T, kP>(r, tables, p, l, group, w_step); });
#pragma GCC unroll 16
  for (int i = 0; i < kP; ++i)
    for (int64_t l = 0; l < r.lanes; ++l) {
      T sum = 0;
      for (int64_t c = 0; c < group; ++c)
        for (int64_t t = 0; t < r.taps; ++t)
          sum += r.x[t][(p + i) * r.x_step + l / group * group + c] * r.w[t][c * w_step + l];
      finish_scalar<T, PerLane>(r, sum, p + i, l);
    }
}

template <class T>
void groups(const Rows<T>& r, int64_t group, int64_t w_step) {
  const GroupTables<T> tables(group);
  int64_t p = 0;
  for (; p + 8 <= r.positions; p += 8) group_positions<T, 8>(r, tables, p, group, w_step);
  for (; p + 2 <= r.positions; p += 2) group_positions<T, 2>(r, tables, p, group, w_step);
  for (; p < r.positions; ++p) group_positions<T, 1>(r, tables, p, group, w_step);
}

// --- gradients of the filter -----------------------------------------------------------------------------------------

// kT taps at once. fold: what becomes of the sum of a tap.
template <class T, int kT, class Load, class Fold>
HWY_INLINE void tap_sums(const Sums<T>& s, int64_t t, int64_t l, const Load& load, const Fold& fold) {
  const Tag<T> d;
  V<T> sum[kT];
  for (int i = 0; i < kT; ++i) sum[i] = hn::Zero(d);
  const T* dy = s.dy + l;
  for (int64_t p = 0; p < s.positions; ++p, dy += s.dy_step) {
    const auto y = hn::LoadU(d, dy);
    for (int i = 0; i < kT; ++i) sum[i] = hn::MulAdd(y, load(s.x[t + i] + p * s.x_step + l), sum[i]);
  }
  for (int i = 0; i < kT; ++i) fold(t + i, sum[i]);
}
template <class T, class Load, class Fold>
HWY_INLINE void all_taps(const Sums<T>& s, int64_t l, const Load& load, const Fold& fold) {
  int64_t t = 0;
  for (; t + 9 <= s.taps; t += 9) tap_sums<T, 9>(s, t, l, load, fold);
  for (; t + 3 <= s.taps; t += 3) tap_sums<T, 3>(s, t, l, load, fold);
  for (; t < s.taps; ++t) tap_sums<T, 1>(s, t, l, load, fold);
}

template <class T>
void channel_sums(const Sums<T>& s) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto load = [&](const T* x) { return hn::LoadU(d, x); };
  int64_t l = 0;
  for (; l + lanes <= s.lanes; l += lanes)
    all_taps<T>(s, l, load,
                [&](int64_t t, V<T> sum) { hn::StoreU(hn::Add(hn::LoadU(d, s.out[t] + l), sum), d, s.out[t] + l); });
  // Sums are added to: no vector may do so twice.
  for (; l < s.lanes; ++l)
    for (int64_t t = 0; t < s.taps; ++t) {
      T sum = 0;
      for (int64_t p = 0; p < s.positions; ++p) sum += s.dy[p * s.dy_step + l] * s.x[t][p * s.x_step + l];
      s.out[t][l] += sum;
    }
}

template <class T>
void group_sums(const Sums<T>& s, int64_t group, int64_t out_step) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const GroupTables<T> tables(group);
  for (int64_t c = 0; c < group; ++c) {
    const auto table = tables[c];
    const auto load = [&](const T* x) { return hn::TableLookupLanes(hn::LoadU(d, x), table); };
    int64_t l = 0;
    for (; l + lanes <= s.lanes; l += lanes)
      all_taps<T>(s, l, load, [&](int64_t t, V<T> sum) {
        T* const out = s.out[t] + c * out_step + l;
        hn::StoreU(hn::Add(hn::LoadU(d, out), sum), d, out);
      });
    for (; l < s.lanes; ++l)
      for (int64_t t = 0; t < s.taps; ++t) {
        T sum = 0;
        for (int64_t p = 0; p < s.positions; ++p)
          sum += s.dy[p * s.dy_step + l] * s.x[t][p * s.x_step + l / group * group + c];
        s.out[t][c * out_step + l] += sum;
      }
  }
}

template <class T>
void along_sums(const Sums<T>& s) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto load = [&](const T* x) { return hn::LoadU(d, x); };
  int64_t l = 0;
  for (; l + lanes <= s.lanes; l += lanes)
    all_taps<T>(s, l, load, [&](int64_t t, V<T> sum) { *s.out[t] += hn::GetLane(hn::SumOfLanes(d, sum)); });
  for (; l < s.lanes; ++l)
    for (int64_t t = 0; t < s.taps; ++t) {
      T sum = 0;
      for (int64_t p = 0; p < s.positions; ++p) sum += s.dy[p * s.dy_step + l] * s.x[t][p * s.x_step + l];
      *s.out[t] += sum;
    }
}

template <class T>
void copy(int64_t lanes, int64_t rows, const T* from, int64_t from_step, T* to) {
  const Tag<T> d;
  const int64_t vector = int64_t(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r, from += from_step, to += lanes) {
    if (lanes >= vector) for_pieces(lanes, vector, [&](int64_t l) { hn::StoreU(hn::LoadU(d, from + l), d, to + l); });
    else
      for (int64_t l = 0; l < lanes; ++l) to[l] = from[l];
  }
}

template <class T>
DirectLoops<T> all_loops() {
  return {int64_t(hn::Lanes(Tag<T>())),
          copy<T>,
          rows<T, PerLane>,
          groups<T>,
          rows<T, PerTap>,
          channel_sums<T>,
          group_sums<T>,
          along_sums<T>};
}
DirectLoops<float> float_loops() { return all_loops<float>(); }
DirectLoops<double> double_loops() { return all_loops<double>(); }

}  // namespace tilewright::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewright::cpu {

HWY_EXPORT(float_loops);
HWY_EXPORT(double_loops);

template <>
DirectLoops<float> direct_loops<float>() {
  return HWY_DYNAMIC_DISPATCH(float_loops)();
}
template <>
DirectLoops<double> direct_loops<double>() {
  return HWY_DYNAMIC_DISPATCH(double_loops)();
}

}  // namespace tilewright::cpu
#endif  // HWY_ONCE
