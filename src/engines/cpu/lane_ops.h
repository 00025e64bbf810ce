// The inner loops of pointwise programs: one operation over a block of lanes. Compiled for several instruction sets;
// the best one that the processor has is chosen once.
#pragma once

#include <cstdint>

#include "ops/pointwise_math.h"

namespace tilewright::cpu {

// Lanes of a block. Long enough that choosing the operation costs little, short enough for a block's values to stay in
// the first-level cache.
constexpr int kLanes = 256;

template <class T>
struct LaneOps {
  // out[i] = mode(x[i], y[i], m[i]); unused operands may be null. out may be one of them.
  using Pointwise = void (*)(T* out, const T* x, const T* y, const T* m, int64_t n, const PwParams&);
  Pointwise pointwise[64];  // by mode; null: no such mode
  // Folds x[0 .. n) into `total`, in an order that depends on n alone.
  double (*fold)(ReductionMode_t, const T* x, int64_t n, double total);
  // total[i] = join(total[i], element(x[i])).
  void (*fold_lanes)(ReductionMode_t, const T* x, int64_t n, double* total);
  // out[i] = round_to_type(type, x[i]) for an integer type.
  void (*cast)(DataType_t type, T* out, const T* x, int64_t n);
  void (*fill)(T* out, T value, int64_t n);
};

template <class T>
const LaneOps<T>& lane_ops();
// The same, chosen anew from Highway's current targets (tests).
template <class T>
LaneOps<T> make_lane_ops();
template <>
LaneOps<float> make_lane_ops<float>();
template <>
LaneOps<double> make_lane_ops<double>();
template <>
const LaneOps<float>& lane_ops<float>();
template <>
const LaneOps<double>& lane_ops<double>();

}  // namespace tilewright::cpu
