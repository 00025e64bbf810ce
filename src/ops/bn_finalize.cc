// bn_finalize: from the sums of genstats over n = ACCUM_COUNT elements to batchnorm's statistics, to its running
// statistics, and to the scale and bias of the equivalent Y = EQ_SCALE * X + EQ_BIAS.
//   mean = sum / n, variance = sq_sum / n - mean^2, inv = 1 / sqrt(variance + epsilon)
//   eq_scale = scale * inv, eq_bias = bias - mean * eq_scale
// The difference of the two squares may come out below zero in rounded arithmetic; a variance is never negative.
#include "ops/norm_common.h"
#include "ops/pointwise_math.h"

namespace tilewright::ops {
namespace {

enum In { kSum, kSqSum, kScale, kBias, kEpsilon, kAccumCount, kPrevRunningMean, kPrevRunningVar, kMomentum };
enum Out { kEqScale, kEqBias, kMean, kInvVariance, kNextRunningMean, kNextRunningVar };
constexpr norm::RunningPorts kRunning{kPrevRunningMean, kPrevRunningVar, kMomentum, kNextRunningMean, kNextRunningVar};

Status infer(ir::InferContext& c) {
  TW_RETURN_IF_BAD(norm::need_rank_two(c, kSum));
  const Dims channels = c.in(kSum).dim;
  for (size_t port : {kSqSum, kScale, kBias}) norm::fill(c, c.mutable_in(port), channels, channels_last_strides);
  for (size_t port : {kEqScale, kEqBias, kMean, kInvVariance})
    norm::fill(c, c.out(port), channels, channels_last_strides);
  norm::fill_scalar(c, kEpsilon);
  norm::fill_scalar(c, kAccumCount);
  norm::infer_running(c, kRunning, channels);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  const Dims& sum = g.tensor(n.in[kSum]).dim;
  const Dims channels = norm::channel_dims(sum);
  norm::Rules rules(g, n);
  rules.all_or_none({kPrevRunningMean, kPrevRunningVar, kMomentum});
  for (size_t port : {kEpsilon, kAccumCount, kMomentum}) rules.scalar(port, sum);
  for (size_t port : {kSum, kSqSum, kScale, kBias, kPrevRunningMean, kPrevRunningVar}) rules.in_is(port, channels);
  for (size_t port : {kEqScale, kEqBias, kMean, kInvVariance, kNextRunningMean, kNextRunningVar})
    rules.out_is(port, channels);
  return rules.status();
}

void reference(RefContext& c) {
  const norm::Values sum(c.in(kSum)), sq_sum(c.in(kSqSum)), scale(c.in(kScale)), bias(c.in(kBias));
  const double count = c.scalar_in(kAccumCount), epsilon = c.scalar_in(kEpsilon);
  // A count that the compute type cannot hold is rounded.
  const Bounded n(count, count * t_rounding.u < 0.5 ? 0 : count * t_rounding.u);
  norm::Moments m;
  for (int64_t i = 0; i < sum.size(); ++i) {
    const Bounded mean = sum[i] / n;
    const Bounded variance = pw::max(sq_sum[i] / n - mean * mean, Bounded(0));
    const Bounded inv = norm::inverse_deviation(variance, epsilon);
    const Bounded eq_scale = scale[i] * inv;
    c.out(kEqScale).values[size_t(i)] = eq_scale;
    c.out(kEqBias).values[size_t(i)] = bias[i] - mean * eq_scale;
    m.mean.push_back(mean);
    m.variance.push_back(variance);
    m.inv.push_back(inv);
  }
  norm::store(m.mean, c, kMean);
  norm::store(m.inv, c, kInvVariance);
  norm::reference_running(c, kRunning, m, n);
}

void decompose(Rewriter& r) {
  const ir::TensorId n = r.in(kAccumCount);
  norm::MomentIds m;
  m.mean = r.pointwise(PointwiseMode_t::DIV, {r.in(kSum), n});
  const ir::TensorId squares = r.pointwise(PointwiseMode_t::DIV, {r.in(kSqSum), n});
  m.variance = r.pointwise(PointwiseMode_t::MAX, {r.minus(squares, r.mul(m.mean, m.mean)), r.constant(0)});
  m.inv = r.pointwise(PointwiseMode_t::RSQRT, {r.plus(m.variance, r.in(kEpsilon))});
  const ir::TensorId eq_scale = r.mul(r.in(kScale), m.inv);
  r.minus(r.in(kBias), r.mul(m.mean, eq_scale), r.out(kEqBias));
  norm::emit_copy(r, eq_scale, kEqScale);
  norm::emit_copy(r, m.mean, kMean);
  norm::emit_copy(r, m.inv, kInvVariance);
  norm::emit_running(r, kRunning, m, n);
}

double flops(const ir::Graph& g, const ir::Node& n) { return 16.0 * double(volume(g.tensor(n.out[0]).dim)); }

}  // namespace

extern const ir::OpDef kBnFinalize;
const ir::OpDef kBnFinalize{
    .name = "bn_finalize",
    .tag = "BN_FINALIZE",
    .inputs = {{"SUM"},
               {"SQ_SUM"},
               {"SCALE"},
               {"BIAS"},
               {"EPSILON"},
               {"ACCUM_COUNT"},
               {"PREV_RUNNING_MEAN", ir::PortKind::Optional},
               {"PREV_RUNNING_VAR", ir::PortKind::Optional},
               {"MOMENTUM", ir::PortKind::Optional}},
    .outputs = {{"EQ_SCALE"},
                {"EQ_BIAS"},
                {"MEAN"},
                {"INV_VARIANCE"},
                {"NEXT_RUNNING_MEAN", ir::PortKind::Required, norm::has_running},
                {"NEXT_RUNNING_VAR", ir::PortKind::Required, norm::has_running}},
    .attrs = {},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .decompose = decompose,
    .flops = flops,
};

}  // namespace tilewright::ops
