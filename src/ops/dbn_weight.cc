// dbn_weight: batchnorm's parameter gradients, and the three factors per channel with which its data gradient is
// DX = EQ_SCALE_DY * dy + EQ_SCALE_X * x + EQ_BIAS:
//   eq_scale_dy = scale * inv
//   eq_scale_x = -eq_scale_dy * inv * dscale / n
//   eq_bias = -eq_scale_dy * dbias / n - eq_scale_x * mean
// n is the number of elements of a channel. Computed in FLOAT whatever the node asks for.
#include "ops/norm_common.h"

namespace tilewright::ops {
namespace {

enum In { kDy, kX, kScale, kMean, kInvVariance };
enum Out { kDscale, kDbias, kEqScaleDy, kEqScaleX, kEqBias };

Status infer(ir::InferContext& c) {
  TW_RETURN_IF_BAD(norm::need_rank_two(c, kX));
  c.node.compute = DataType_t::FLOAT;
  const Dims channels = norm::channel_dims(c.in(kX).dim);
  norm::fill_same(c, c.mutable_in(kDy), c.in(kX));
  for (size_t port : {kScale, kMean, kInvVariance}) norm::fill(c, c.mutable_in(port), channels, channels_last_strides);
  for (size_t port : {kDscale, kDbias, kEqScaleDy, kEqScaleX, kEqBias})
    norm::fill(c, c.out(port), channels, channels_last_strides);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  const Dims& x = g.tensor(n.in[kX]).dim;
  const Dims channels = norm::channel_dims(x);
  norm::Rules rules(g, n);
  rules.in_is(kDy, x);
  for (size_t port : {kScale, kMean, kInvVariance}) rules.in_is(port, channels);
  for (size_t port : {kDscale, kDbias, kEqScaleDy, kEqScaleX, kEqBias}) rules.out_is(port, channels);
  return rules.status();
}

void reference(RefContext& c) {
  const Dims& dims = c.in(kX).dim();
  const norm::Values x(c.in(kX)), dy(c.in(kDy)), scale(c.in(kScale)), mean(c.in(kMean)), inv(c.in(kInvVariance));
  const norm::Groups channels(dims, norm::channel_dims(dims));
  const Bounded n = double(channels.size());
  c.for_each(channels.count(), [&](int64_t i) {
    BoundedSum dscale_sum, dbias_sum;
    for (int64_t k = 0; k < channels.size(); ++k) {
      const int64_t e = channels.element(i, k);
      dscale_sum.add(dy[e] * ((x[e] - mean[i]) * inv[i]));
      dbias_sum.add(dy[e]);
    }
    const Bounded dscale = dscale_sum.total(), dbias = dbias_sum.total();
    const Bounded scale_dy = scale[i] * inv[i];
    const Bounded scale_x = -(scale_dy * inv[i] * (dscale / n));
    c.out(kDscale).values[size_t(i)] = dscale;
    c.out(kDbias).values[size_t(i)] = dbias;
    c.out(kEqScaleDy).values[size_t(i)] = scale_dy;
    c.out(kEqScaleX).values[size_t(i)] = scale_x;
    c.out(kEqBias).values[size_t(i)] = -(scale_dy * (dbias / n)) - scale_x * mean[i];
  });
}

void decompose(Rewriter& r) {
  const Dims x = r.dim(r.in(kX)), channels = norm::channel_dims(x);
  const ir::TensorId n = r.constant(double(norm::group_size(x, channels)));
  const auto mean_of = [&](ir::TensorId sum) { return r.pointwise(PointwiseMode_t::DIV, {sum, n}); };
  const auto negative = [&](ir::TensorId v) { return r.pointwise(PointwiseMode_t::NEG, {v}); };
  const ir::TensorId xhat = r.mul(r.minus(r.in(kX), r.in(kMean)), r.in(kInvVariance));
  const ir::TensorId dscale = r.reduce(ReductionMode_t::ADD, r.mul(r.in(kDy), xhat), channels);
  const ir::TensorId dbias = r.reduce(ReductionMode_t::ADD, r.in(kDy), channels);
  const ir::TensorId scale_dy = r.mul(r.in(kScale), r.in(kInvVariance));
  const ir::TensorId scale_x = negative(r.mul(r.mul(scale_dy, r.in(kInvVariance)), mean_of(dscale)));
  r.minus(negative(r.mul(scale_dy, mean_of(dbias))), r.mul(scale_x, r.in(kMean)), r.out(kEqBias));
  norm::emit_copy(r, dscale, kDscale);
  norm::emit_copy(r, dbias, kDbias);
  norm::emit_copy(r, scale_dy, kEqScaleDy);
  norm::emit_copy(r, scale_x, kEqScaleX);
}

double flops(const ir::Graph& g, const ir::Node& n) { return 5.0 * double(volume(g.tensor(n.in[kX]).dim)); }

}  // namespace

extern const ir::OpDef kDbnWeight;
const ir::OpDef kDbnWeight{
    .name = "dbn_weight",
    .tag = "DBN_WEIGHT",
    .inputs = {{"DY"}, {"X"}, {"SCALE"}, {"MEAN"}, {"INV_VARIANCE"}},
    .outputs = {{"DSCALE"}, {"DBIAS"}, {"EQ_SCALE_DY"}, {"EQ_SCALE_X"}, {"EQ_BIAS"}},
    .attrs = {},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .decompose = decompose,
    .flops = flops,
};

}  // namespace tilewright::ops
