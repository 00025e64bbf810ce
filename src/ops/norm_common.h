// What the normalisations share: which elements share a statistic, the rules on dims, the direct formulas (reference)
// and the same formulas as nodes (decomposition).
//
// X is cut into groups of n elements. The statistics have X's dims with the normalised ones set to 1: one entry per
// group. Scale and bias ("parameters") have X's rank and broadcast to X.
#pragma once

#include <vector>

#include "ops/reference.h"
#include "ops/rewriter.h"

namespace tilewright::ops::norm {

// --- dims --------------------------------------------------------------------------------------------------------
Dims channel_dims(const Dims& x);   // [1, C, 1, ...]
Dims instance_dims(const Dims& x);  // [N, C, 1, ...]
Dims sample_dims(const Dims& x);    // [1, X1, X2, ...]
// Statistics of the norms that normalise where scale is not 1, from dim `first` on.
Dims statistic_dims(const Dims& x, const Dims& scale, size_t first = 0);
int64_t group_size(const Dims& x, const Dims& statistics);

// --- inference ---------------------------------------------------------------------------------------------------
// Every norm needs an X with a channel dim (1), or dims to normalise.
Status need_rank_two(const ir::InferContext&, size_t x_port);
void fill(ir::InferContext&, ir::Tensor&, const Dims& dim, Dims (*strides)(const Dims&));
// Packed strides in the order of X's.
void fill_like(ir::InferContext&, ir::Tensor&, const Dims& dim, const ir::Tensor& x);
// X's dims and X's strides, gaps included.
void fill_same(ir::InferContext&, ir::Tensor&, const ir::Tensor& x);
void fill_scalar(ir::InferContext&, size_t in_port);

// Whether a forward norm yields its statistics: the `wanted` of their ports.
bool in_training(const AttrMap&, const std::vector<std::string>& given_ports);

// --- rules -------------------------------------------------------------------------------------------------------
// Keeps the first rule that is broken. Ports that are absent pass.
class Rules {
 public:
  Rules(const ir::Graph& graph, const ir::Node& node) : graph_(graph), node_(node) {}
  Rules& phase_is_set();
  Rules& scalar(size_t in_port, const Dims& x);      // one element, rank not above X's
  Rules& broadcasts(size_t in_port, const Dims& x);  // X's rank, each dim 1 or X's
  Rules& in_is(size_t in_port, const Dims& dim);
  Rules& out_is(size_t out_port, const Dims& dim);
  Rules& all_or_none(std::initializer_list<size_t> in_ports);
  Status status() const { return status_; }

 private:
  const ir::Tensor* in(size_t port) const;
  std::string label(const char* port, const ir::Tensor&) const;  // `layernorm "ln": SCALE "w"`
  const ir::Graph& graph_;
  const ir::Node& node_;
  Status status_;
};

// --- reference -----------------------------------------------------------------------------------------------------
// Groups of X's row-major indices that share one entry of a tensor with some of X's dims set to 1.
class Groups {
 public:
  Groups(const Dims& x, const Dims& shared);
  int64_t count() const { return int64_t(base_.size()); }
  int64_t size() const { return int64_t(inner_.size()); }
  int64_t element(int64_t group, int64_t k) const { return base_[size_t(group)] + inner_[size_t(k)]; }

 private:
  std::vector<int64_t> base_, inner_;
};

// All elements of a tensor in row-major order.
class Values {
 public:
  explicit Values(const RefTensor& t) : dense_(t.dense()) {}
  Bounded operator[](int64_t i) const {
    return {dense_.values[size_t(i)], dense_.errors.empty() ? 0 : dense_.errors[size_t(i)]};
  }
  int64_t size() const { return int64_t(dense_.values.size()); }

 private:
  RefTensor::Dense dense_;
};

// Per group. Without a centre (rmsnorm) mean is empty and variance is the mean of squares.
struct Moments {
  std::vector<Bounded> mean, variance, inv;
};
// 1 / sqrt(variance + epsilon). A variance is never negative, whatever its error.
Bounded inverse_deviation(Bounded variance, double epsilon);
Moments moments(const RefContext&, const RefTensor& x, const Dims& statistics, double epsilon, bool centred);
Moments saved_moments(const RefTensor* mean, const RefTensor& inv);
void store(const std::vector<Bounded>& values, RefContext&, size_t out_port);  // nothing when the port is absent
// y = scale * (x - mean) * inv [+ bias]
void normalize(RefContext&, const RefTensor& x, const Dims& statistics, const Moments&, const RefTensor& scale,
               const RefTensor* bias, RefTensor& y);

// --- decomposition -------------------------------------------------------------------------------------------------
struct MomentIds {
  ir::TensorId centred = ir::kNone;  // x - mean, or x
  ir::TensorId mean = ir::kNone, variance = ir::kNone, inv = ir::kNone;
};
MomentIds emit_moments(Rewriter&, ir::TensorId x, const Dims& statistics, ir::TensorId epsilon, bool centred);
void emit_normalize(Rewriter&, const MomentIds&, ir::TensorId scale, ir::TensorId bias, size_t y_port);
// Intermediates keep the compute type; what leaves the node is a rounded copy.
void emit_copy(Rewriter&, ir::TensorId, size_t out_port);  // nothing when the port is absent

// --- running statistics (batchnorm, bn_finalize) ---------------------------------------------------------------------
// next = (1 - momentum) * previous + momentum * batch, where the batch's variance is the unbiased one: times
// n / max(n - 1, 1).
struct RunningPorts {
  size_t mean, variance, momentum;  // inputs
  size_t next_mean, next_variance;  // outputs
};
void infer_running(ir::InferContext&, const RunningPorts&, const Dims& statistics);
// `wanted` of the outputs: any of the three inputs is given (all of them is a rule).
bool has_running(const AttrMap&, const std::vector<std::string>& given_ports);
void reference_running(RefContext&, const RunningPorts&, const Moments&, Bounded n);
void emit_running(Rewriter&, const RunningPorts&, const MomentIds&, ir::TensorId n);

// --- whole ops -----------------------------------------------------------------------------------------------------
// The forward norms: X, SCALE, BIAS, EPSILON -> Y, MEAN, INV_VARIANCE.
Status verify_forward(const ir::Graph&, const ir::Node&, const Dims& statistics);
void reference_forward(RefContext&, const Dims& statistics);
void decompose_forward(Rewriter&, const Dims& statistics);

// The gradients: DY, X, SCALE, MEAN, INV_VARIANCE -> DX, DSCALE, DBIAS. With xhat = (x - mean) * inv and g = dy *
// scale,
//   dbias = sum dy, dscale = sum dy * xhat (over all dims where scale is 1),
//   dx = inv * (g - avg g - xhat * avg(g * xhat)), averages over a group.
// Where scale is constant over a group (batchnorm), avg g = scale * dbias / n and avg(g * xhat) = scale * dscale / n.
struct GradientPorts {
  size_t dy = 0, x = 1, scale = 2;
  int mean = 3;  // -1: not centred (rmsnorm), no such terms
  size_t inv = 4;
};
Status infer_backward(ir::InferContext&, const GradientPorts&, const Dims& default_scale, Dims (*strides)(const Dims&));
Status verify_backward(const ir::Graph&, const ir::Node&, const GradientPorts&, const Dims& statistics);
void reference_gradients(RefContext&, const GradientPorts&, const Dims& statistics, const Moments&);
void emit_gradients(Rewriter&, const GradientPorts&, const Dims& statistics, const MomentIds&);
// With the saved statistics.
void reference_backward(RefContext&, const GradientPorts&, const Dims& statistics);
void decompose_backward(Rewriter&, const GradientPorts&, const Dims& statistics);

// About one step of work per operation of the formulas above.
double forward_flops(const ir::Graph&, const ir::Node&);
double backward_flops(const ir::Graph&, const ir::Node&);

}  // namespace tilewright::ops::norm
