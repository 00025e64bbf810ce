// Small graphs that cuDNN has engines for, or is known not to take as one.
#pragma once

#include "support/ir_builder.h"

namespace tilewright::testing {

// relu(conv(x, w) + bias), channels last, padding 1.
inline IrBuilder conv_bias_relu(const Dims& x, const Dims& w, DataType_t type = DataType_t::HALF) {
  IrBuilder b;
  const Dims bias = {1, w[0], 1, 1};
  const auto in = [&](const Dims& d) { return b.input(d, type, channels_last_strides(d)); };
  const auto xi = in(x), wi = in(w), bi = in(bias);
  const auto y = b.conv("conv_fprop", xi, wi, {1, 1}, {1, 1}, {1, 1});
  const auto z = b.pw(PointwiseMode_t::RELU_FWD, {b.pw(PointwiseMode_t::ADD, {y, bi})});
  b.output(z, type, channels_last_strides(b.dim(z)));
  return b;
}

// Two convolutions one after the other, which no operation graph of cuDNN may have.
inline IrBuilder two_convolutions() {
  IrBuilder b;
  b.intermediate = DataType_t::HALF;
  const Dims x = {2, 16, 12, 12}, w = {16, 16, 3, 3};
  const auto in = [&](const Dims& d) { return b.input(d, DataType_t::HALF, channels_last_strides(d)); };
  const auto xi = in(x), w1 = in(w), w2 = in(w);
  const auto y = b.conv("conv_fprop", xi, w1, {1, 1}, {1, 1}, {1, 1});
  b.graph.tensors[size_t(y)].stride = channels_last_strides(x);
  const auto z = b.conv("conv_fprop", y, w2, {1, 1}, {1, 1}, {1, 1});
  b.output(z, DataType_t::HALF, channels_last_strides(x));
  return b;
}

inline IrBuilder batched_matmul(int64_t batch, int64_t m, int64_t k, int64_t n, DataType_t type = DataType_t::HALF) {
  IrBuilder b;
  const auto x = b.input({batch, m, k}, type), w = b.input({batch, k, n}, type);
  b.output(b.op("matmul", {x, w}), type);
  return b;
}

inline IrBuilder matmul_scale_bias_gelu(int64_t batch, int64_t m, int64_t k, int64_t n,
                                        DataType_t type = DataType_t::HALF) {
  IrBuilder b;
  const auto x = b.input({batch, m, k}, type), w = b.input({batch, k, n}, type), bias = b.input({1, 1, n}, type);
  const auto scale = b.scalar(0.5f, 3);
  const auto y = b.pw(PointwiseMode_t::MUL, {b.op("matmul", {x, w}), scale});
  b.output(b.pw(PointwiseMode_t::GELU_FWD, {b.pw(PointwiseMode_t::ADD, {y, bias})}), type);
  return b;
}

inline IrBuilder add_relu(const Dims& dim, DataType_t type) {
  IrBuilder b;
  const auto x = b.input(dim, type), y = b.input(dim, type);
  b.output(b.pw(PointwiseMode_t::RELU_FWD, {b.pw(PointwiseMode_t::ADD, {x, y})}), type);
  return b;
}

}  // namespace tilewright::testing
