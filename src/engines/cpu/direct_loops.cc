#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engines/cpu/direct_loops.cc"
// clang-format off
#include <hwy/foreach_target.h>
// clang-format on
#include "engines/cpu/direct_loops.h"

#include <hwy/highway.h>

#include <algorithm>

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

// Calls body(first lane) for vectors that cover n lanes, the last one overlapping its neighbour; lanes of less than a
// vector are left to the caller.
template <class Body>
HWY_INLINE void for_vectors(int64_t n, int64_t lanes, const Body& body) {
  for (int64_t l = 0; l + lanes <= n; l += lanes) body(l);
  if (n > lanes && n % lanes != 0) body(n - lanes);
}

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

// kP positions of kV vectors.
template <class T, class Factor, int kP, int kV>
HWY_INLINE void block(const Rows<T>& r, int64_t p, int64_t l) {
  const Tag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  V<T> sum[kP][kV];
  for (int i = 0; i < kP; ++i)
    for (int v = 0; v < kV; ++v) sum[i][v] = hn::Zero(d);
  for (int64_t t = 0; t < r.taps; ++t) {
    const T* x = r.x[t] + p * r.x_step + l;
    V<T> w[kV];
    for (int v = 0; v < kV; ++v) w[v] = Factor::load(r.w[t], l + v * lanes);
    for (int i = 0; i < kP; ++i, x += r.x_step)
      for (int v = 0; v < kV; ++v) sum[i][v] = hn::MulAdd(hn::LoadU(d, x + v * lanes), w[v], sum[i][v]);
  }
  for (int i = 0; i < kP; ++i)
    for (int v = 0; v < kV; ++v) hn::StoreU(sum[i][v], d, r.out + (p + i) * r.out_step + l + v * lanes);
}

template <class T, class Factor, int kP>
HWY_INLINE void positions(const Rows<T>& r, int64_t p) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  int64_t l = 0;
  for (; l + 2 * lanes <= r.lanes; l += 2 * lanes) block<T, Factor, kP, 2>(r, p, l);
  for (; l + lanes <= r.lanes; l += lanes) block<T, Factor, kP, 1>(r, p, l);
  if (l == r.lanes) return;
  if (r.lanes > lanes) return block<T, Factor, kP, 1>(r, p, r.lanes - lanes);
  for (int i = 0; i < kP; ++i)
    for (l = 0; l < r.lanes; ++l) {
      T sum = 0;
      for (int64_t t = 0; t < r.taps; ++t) sum += r.x[t][(p + i) * r.x_step + l] * Factor::scalar(r.w[t], l);
      r.out[(p + i) * r.out_step + l] = sum;
    }
}

template <class T, class Factor>
void rows(const Rows<T>& r) {
  int64_t p = 0;
  for (; p + 4 <= r.positions; p += 4) positions<T, Factor, 4>(r, p);
  for (; p < r.positions; ++p) positions<T, Factor, 1>(r, p);
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
  for (int i = 0; i < kP; ++i) sum[i] = hn::Zero(d);
  for (int64_t c = 0; c < group; ++c) {
    const auto table = tables[c];
    for (int64_t t = 0; t < r.taps; ++t) {
      const T* x = r.x[t] + p * r.x_step + l;
      const auto w = hn::LoadU(d, r.w[t] + c * w_step + l);
      for (int i = 0; i < kP; ++i, x += r.x_step)
        sum[i] = hn::MulAdd(hn::TableLookupLanes(hn::LoadU(d, x), table), w, sum[i]);
    }
  }
  for (int i = 0; i < kP; ++i) hn::StoreU(sum[i], d, r.out + (p + i) * r.out_step + l);
}

template <class T, int kP>
HWY_INLINE void group_positions(const Rows<T>& r, const GroupTables<T>& tables, int64_t p, int64_t group,
                                int64_t w_step) {
  const int64_t lanes = int64_t(hn::Lanes(Tag<T>()));
  for_vectors(r.lanes, lanes, [&](int64_t l) { group_block<T, kP>(r, tables, p, l, group, w_step); });
  if (r.lanes >= lanes) return;
  for (int i = 0; i < kP; ++i)
    for (int64_t l = 0; l < r.lanes; ++l) {
      T sum = 0;
      for (int64_t c = 0; c < group; ++c)
        for (int64_t t = 0; t < r.taps; ++t)
          sum += r.x[t][(p + i) * r.x_step + l / group * group + c] * r.w[t][c * w_step + l];
      r.out[(p + i) * r.out_step + l] = sum;
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
DirectLoops<T> all_loops() {
  return {int64_t(hn::Lanes(Tag<T>())),
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
const DirectLoops<float>& direct_loops<float>() {
  static const DirectLoops<float> loops = HWY_DYNAMIC_DISPATCH(float_loops)();
  return loops;
}
template <>
const DirectLoops<double>& direct_loops<double>() {
  static const DirectLoops<double> loops = HWY_DYNAMIC_DISPATCH(double_loops)();
  return loops;
}

}  // namespace tilewright::cpu
#endif  // HWY_ONCE
