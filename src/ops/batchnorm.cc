// batchnorm (training): statistics per channel over all other dims, Y = scale * (X - mean) / sqrt(variance + epsilon)
// + bias, and the running statistics brought up to date.
#include "ops/norm_common.h"

namespace tilewright::ops {
namespace {

enum In { kX, kScale, kBias, kEpsilon, kPrevRunningMean, kPrevRunningVar, kMomentum };
enum Out { kY, kMean, kInvVariance, kNextRunningMean, kNextRunningVar };
constexpr norm::RunningPorts kRunning{kPrevRunningMean, kPrevRunningVar, kMomentum, kNextRunningMean, kNextRunningVar};

Status infer(ir::InferContext& c) {
  TW_RETURN_IF_BAD(norm::need_rank_two(c, kX));
  const ir::Tensor& x = c.in(kX);
  const Dims channels = norm::channel_dims(x.dim);
  for (size_t port : {kScale, kBias}) norm::fill(c, c.mutable_in(port), channels, channels_last_strides);
  for (size_t port : {kMean, kInvVariance}) norm::fill(c, c.out(port), channels, channels_last_strides);
  norm::fill_scalar(c, kEpsilon);
  norm::infer_running(c, kRunning, channels);
  norm::fill_same(c, c.out(kY), x);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  const Dims& x = g.tensor(n.in[kX]).dim;
  const Dims channels = norm::channel_dims(x);
  norm::Rules rules(g, n);
  rules.all_or_none({kPrevRunningMean, kPrevRunningVar, kMomentum}).scalar(kEpsilon, x).scalar(kMomentum, x);
  for (size_t port : {kScale, kBias, kPrevRunningMean, kPrevRunningVar}) rules.in_is(port, channels);
  for (size_t port : {kMean, kInvVariance, kNextRunningMean, kNextRunningVar}) rules.out_is(port, channels);
  return rules.out_is(kY, x).status();
}

void reference(RefContext& c) {
  const Dims& x = c.in(kX).dim();
  const Dims channels = norm::channel_dims(x);
  const norm::Moments m = norm::moments(c, c.in(kX), channels, c.scalar_in(kEpsilon), true);
  norm::normalize(c, c.in(kX), channels, m, c.in(kScale), &c.in(kBias), c.out(kY));
  norm::store(m.mean, c, kMean);
  norm::store(m.inv, c, kInvVariance);
  norm::reference_running(c, kRunning, m, double(norm::group_size(x, channels)));
}

void decompose(Rewriter& r) {
  const Dims x = r.dim(r.in(kX)), channels = norm::channel_dims(x);
  const norm::MomentIds m = norm::emit_moments(r, r.in(kX), channels, r.in(kEpsilon), true);
  norm::emit_normalize(r, m, r.in(kScale), r.in(kBias), kY);
  norm::emit_copy(r, m.mean, kMean);
  norm::emit_copy(r, m.inv, kInvVariance);
  norm::emit_running(r, kRunning, m, r.constant(double(norm::group_size(x, channels))));
}

}  // namespace

extern const ir::OpDef kBatchnorm;
const ir::OpDef kBatchnorm{
    .name = "batchnorm",
    .tag = "BATCHNORM",
    .inputs = {{"X"},
               {"SCALE"},
               {"BIAS"},
               {"EPSILON"},
               {"PREV_RUNNING_MEAN", ir::PortKind::Optional},
               {"PREV_RUNNING_VAR", ir::PortKind::Optional},
               {"MOMENTUM", ir::PortKind::Optional}},
    .outputs = {{"Y"},
                {"MEAN"},
                {"INV_VARIANCE"},
                {"NEXT_RUNNING_MEAN", ir::PortKind::Required, norm::has_running},
                {"NEXT_RUNNING_VAR", ir::PortKind::Required, norm::has_running}},
    .attrs = {},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .decompose = decompose,
    .flops = norm::forward_flops,
};

}  // namespace tilewright::ops
