// Normalisations: mean and biased variance over a set of dims, inv = 1/sqrt(var + epsilon),
// Y = scale * (X - mean) * inv + bias. Which dims form the set is said per class.
#pragma once

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

template <class Self>
class Norm_forward_attributes : public Attributes<Self> {
 public:
  // Required. TRAINING also yields the statistics.
  Self& set_forward_phase(NormFwdPhase_t v) { return this->put_enum("forward_phase", v); }
  Self& set_epsilon(TensorPtr v) { return this->port("EPSILON", std::move(v)); }
  Self& set_epsilon(float v) { return set_epsilon(std::make_shared<Tensor_attributes>(v)); }
};

template <class Self>
class Norm_backward_attributes : public Attributes<Self> {
 public:
  Self& set_saved_mean_and_inv_variance(TensorPtr mean, TensorPtr inv_variance) {
    return this->port("MEAN", std::move(mean)), this->port("INV_VARIANCE", std::move(inv_variance));
  }
};

// The dims where scale is not 1.
class Layernorm_attributes : public Norm_forward_attributes<Layernorm_attributes> {};
class Layernorm_backward_attributes : public Norm_backward_attributes<Layernorm_backward_attributes> {};
// As layernorm, with a scale and bias per sample: dim 0 is never reduced.
class AdaLayernorm_attributes : public Norm_forward_attributes<AdaLayernorm_attributes> {};
class AdaLayernorm_backward_attributes : public Norm_backward_attributes<AdaLayernorm_backward_attributes> {};
// The spatial dims, per (n, c).
class Instancenorm_attributes : public Norm_forward_attributes<Instancenorm_attributes> {};
class Instancenorm_backward_attributes : public Norm_backward_attributes<Instancenorm_backward_attributes> {};

// Y = scale * X / sqrt(mean(X^2) + epsilon) [+ bias].
class Rmsnorm_attributes : public Norm_forward_attributes<Rmsnorm_attributes> {
 public:
  Rmsnorm_attributes& set_bias(TensorPtr v) { return port("BIAS", std::move(v)); }
};
class Rmsnorm_backward_attributes : public Attributes<Rmsnorm_backward_attributes> {
 public:
  // Required: whether DBIAS is computed.
  Rmsnorm_backward_attributes& has_dbias(bool v) { return put("has_dbias", v); }
};

}  // namespace tilewright::graph
