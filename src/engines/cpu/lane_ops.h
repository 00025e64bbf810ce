// The inner loops of pointwise programs: one operation over a block of lanes. Compiled for several instruction sets;
// the best one that the processor has is chosen once.
#pragma once

#include <cstdint>

#include "ops/pointwise_math.h"

namespace tilewright::cpu {

// Lanes of a block. Long enough that choosing the operation costs little, short enough for a block's values to stay in
// the first-level cache.
constexpr int kLanes = 256;

// Operations that two at a time are one loop; as the second one, the last stands for m - first(x, y).
constexpr PointwiseMode_t kFusable[] = {PointwiseMode_t::ADD, PointwiseMode_t::SUB, PointwiseMode_t::MUL,
                                        PointwiseMode_t::SUB};

template <class T>
struct LaneOps {
  // out[i] = mode(x[i], y[i], m[i]); unused operands may be null. out may be one of them.
  using Pointwise = void (*)(T* out, const T* x, const T* y, const T* m, int64_t n, const PwParams&);
  Pointwise pointwise[64];  // by mode; null: no such mode
  // out[i] = second(first(x[i], y[i]), m[i]), by position in kFusable.
  Pointwise fused[3][4];
  // Folds x[0 .. n) into `total`, in an order that depends on n alone.
  double (*fold)(ReductionMode_t, const T* x, int64_t n, double total);
  // total[i] = join(total[i], element(x[i])).
  void (*fold_lanes)(ReductionMode_t, const T* x, int64_t n, double* total);
  // Sums of x[i] * y[i].
  double (*fold_products)(const T* x, const T* y, int64_t n, double total);
  void (*fold_product_lanes)(const T* x, const T* y, int64_t n, double* total);
  // out[i] = round_to_type(type, x[i]) for an integer type.
  void (*cast)(DataType_t type, T* out, const T* x, int64_t n);
  void (*fill)(T* out, T value, int64_t n);
  // to[c * to_stride + r] = from[r * from_stride + c].
  void (*transpose)(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns);
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
