#include "engines/cpu/lane_ops.h"

#include <cmath>
#include <limits>

#include "base/numeric_types.h"

// Loops here are written to be vectorised, also where the rest of the build is compiled for quick turn-around.
#pragma GCC optimize("O3")

namespace tilewright::cpu {
namespace {

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

namespace baseline {
#include "engines/cpu/lane_math-inl.h"
//
#include "engines/cpu/lane_ops-inl.h"
}  // namespace baseline
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TILEWRIGHT_X86_SETS 1
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#include "engines/cpu/lane_math-inl.h"
//
#include "engines/cpu/lane_ops-inl.h"
}  // namespace avx2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,prefer-vector-width=512")
namespace avx512 {
#include "engines/cpu/lane_math-inl.h"
//
#include "engines/cpu/lane_ops-inl.h"
}  // namespace avx512
#pragma GCC pop_options
#endif

template <class T>
LaneOps<T> best() {
#ifdef TILEWRIGHT_X86_SETS
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma"))
    return avx512::table<T>();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::table<T>();
#endif
  return baseline::table<T>();
}

}  // namespace

template <>
const LaneOps<float>& lane_ops<float>() {
  static const LaneOps<float> ops = best<float>();
  return ops;
}
template <>
const LaneOps<double>& lane_ops<double>() {
  static const LaneOps<double> ops = best<double>();
  return ops;
}

}  // namespace tilewright::cpu
