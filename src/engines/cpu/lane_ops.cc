// Three targets are enough: AVX-512 and AVX2 on x86, NEON; everything else takes Highway's portable one. Vectors whose
// size the compiler does not know cannot be members of a class.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engines/cpu/lane_ops.cc"
// clang-format off
#include <hwy/foreach_target.h>
// clang-format on
#include "engines/cpu/lane_ops.h"

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/numeric_types.h"

#ifndef TILEWRIGHT_ARITY_OF
#define TILEWRIGHT_ARITY_OF
namespace tilewright::cpu {
constexpr int arity_of(PointwiseMode_t mode) {
  switch (mode) {
#define PW(MODE, ARITY, ...) \
  case PointwiseMode_t::MODE: \
    return ARITY;
#include "ops/pw_ops.def"
#undef PW
    default: return 0;
  }
}
}  // namespace tilewright::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tilewright::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "engines/cpu/lane_math-inl.h"
//
#include "engines/cpu/lane_ops-inl.h"
}  // namespace tilewright::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewright::cpu {

HWY_EXPORT(float_table);
HWY_EXPORT(double_table);

template <>
LaneOps<float> make_lane_ops<float>() {
  return HWY_DYNAMIC_DISPATCH(float_table)();
}
template <>
LaneOps<double> make_lane_ops<double>() {
  return HWY_DYNAMIC_DISPATCH(double_table)();
}
template <>
const LaneOps<float>& lane_ops<float>() {
  static const LaneOps<float> ops = make_lane_ops<float>();
  return ops;
}
template <>
const LaneOps<double>& lane_ops<double>() {
  static const LaneOps<double> ops = make_lane_ops<double>();
  return ops;
}

}  // namespace tilewright::cpu
#endif
