// Random graphs of pooling and its gradient, with pointwise nodes around them: one region each.
#pragma once

#include "support/ir_builder.h"
#include "support/random.h"

namespace tilewright::testing {

struct Window {
  ResampleMode_t mode = ResampleMode_t::MAXPOOL;
  Dims x = {2, 5, 12, 13}, window = {3, 3}, stride = {2, 2}, pre = {1, 1}, post = {1, 1};

  AttrMap attrs() const {
    return {{"resample_mode", to_string(mode)},
            {"window", window},
            {"stride", stride},
            {"pre_padding", pre},
            {"post_padding", post}};
  }
  Dims y() const {
    Dims dim = {x[0], x[1]};
    for (size_t d = 0; d < window.size(); ++d) dim.push_back((x[d + 2] + pre[d] + post[d] - window[d]) / stride[d] + 1);
    return dim;
  }
};

inline Window random_window(Random& random) {
  Window w;
  w.mode = random.of(
      {ResampleMode_t::MAXPOOL, ResampleMode_t::AVGPOOL_EXCLUDE_PADDING, ResampleMode_t::AVGPOOL_INCLUDE_PADDING});
  w.x = {random.between(1, 3), random.of({int64_t{1}, int64_t{5}, int64_t{17}, int64_t{300}})};
  w.window = {}, w.stride = {}, w.pre = {}, w.post = {};
  const int64_t rank = random.between(1, 3);
  for (int64_t d = 0; d < rank; ++d) {
    w.window.push_back(random.between(1, 4)), w.stride.push_back(random.between(1, 3));
    w.x.push_back(random.between(w.window.back(), w.window.back() + 7));
    w.pre.push_back(random.between(0, w.window.back() - 1)), w.post.push_back(random.between(0, w.window.back() - 1));
  }
  return w;
}

// The pooling, what may make its operand and what may follow.
inline ir::Graph random_pooling(Random& random) {
  using P = PointwiseMode_t;
  using D = DataType_t;
  const Window w = random_window(random);
  const D type = random.of({D::FLOAT, D::HALF, D::BFLOAT16, D::DOUBLE, D::INT8, D::FP4_E2M1});
  IrBuilder b;
  auto x = b.input(w.x, type, random.input_strides(w.x));
  Dims channel(w.x.size(), 1);
  channel[1] = w.x[1];
  if (random.one_in(2)) x = b.pw(P::MUL, {x, b.input(channel)});
  if (random.one_in(2)) x = b.pw(P::RELU_FWD, {x});
  AttrMap attrs = w.attrs();
  attrs["generate_index"] = w.mode == ResampleMode_t::MAXPOOL && random.one_in(2);
  auto out = b.node("resample", {x}, attrs);
  if (out[1] != ir::kNone) b.output(out[1], D::INT8, random.strides(w.y()));
  auto y = out[0];
  if (random.one_in(3)) b.output(y, type, random.strides(w.y()));
  if (random.one_in(2)) y = b.pw(P::ADD, {b.input(channel, type), y});
  if (random.one_in(2)) y = b.pw(P::SUB, {y, b.input(w.y(), type, random.input_strides(w.y()))});
  b.output(y, type, random.strides(w.y()));
  return b.graph;
}

inline ir::Graph random_pooling_backward(Random& random) {
  using P = PointwiseMode_t;
  using D = DataType_t;
  const Window w = random_window(random);
  const D type = random.of({D::FLOAT, D::HALF, D::BFLOAT16, D::DOUBLE});
  const bool by_index = w.mode == ResampleMode_t::MAXPOOL && random.one_in(2);
  IrBuilder b;
  auto dy = b.input(w.y(), type, random.input_strides(w.y())), x = ir::kNone, index = ir::kNone;
  if (random.one_in(2)) dy = b.pw(P::MUL, {dy, b.scalar(random.one_in(2) ? std::optional(0.5f) : std::nullopt)});
  if (by_index) index = b.input(w.y(), D::INT8);
  else x = b.input(w.x, type, random.input_strides(w.x));
  if (!by_index && random.one_in(2)) x = b.pw(P::ABS, {x});
  auto dx = b.op("resample_backward", {dy, x, index}, w.attrs(), w.x);
  if (random.one_in(2)) dx = b.pw(P::RELU_BWD, {dx, b.input(w.x, type, random.input_strides(w.x))});
  b.output(dx, type, random.strides(w.x));
  return b.graph;
}

}  // namespace tilewright::testing
