#pragma once

#include <optional>

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

class Pointwise_attributes : public Attributes<Pointwise_attributes> {
 public:
  Pointwise_attributes& set_mode(PointwiseMode_t v) { return put_enum("mode", v); }
  PointwiseMode_t get_mode() const { return enum_value("mode", PointwiseMode_t::NOT_SET); }
  // The dimension whose index GEN_INDEX yields.
  Pointwise_attributes& set_axis(int64_t v) { return put("axis", v); }
  std::optional<int64_t> get_axis() const {
    return values.count("axis") ? std::optional<int64_t>(value<int64_t>("axis")) : std::nullopt;
  }
  Pointwise_attributes& set_relu_lower_clip(float v) { return put("relu_lower_clip", double(v)); }
  Pointwise_attributes& set_relu_upper_clip(float v) { return put("relu_upper_clip", double(v)); }
  Pointwise_attributes& set_relu_lower_clip_slope(float v) { return put("relu_lower_clip_slope", double(v)); }
  Pointwise_attributes& set_swish_beta(float v) { return put("swish_beta", double(v)); }
  std::optional<float> get_swish_beta() const {
    return values.count("swish_beta") ? std::optional<float>(float(value<double>("swish_beta"))) : std::nullopt;
  }
  Pointwise_attributes& set_elu_alpha(float v) { return put("elu_alpha", double(v)); }
  Pointwise_attributes& set_softplus_beta(float v) { return put("softplus_beta", double(v)); }
};

}  // namespace tilewright::graph
