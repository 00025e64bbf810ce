// rmsnorm: Y = scale * X / sqrt(mean(X^2) + epsilon) [+ bias], over the dims where scale is not 1; over all but dim 0
// when scale has no dims of its own.
#include "ops/norm_common.h"

namespace tilewright::ops {
namespace {

enum In { kX, kScale, kBias, kEpsilon };
enum Out { kY, kInvVariance };

Status infer(ir::InferContext& c) {
  TW_RETURN_IF_BAD(norm::need_rank_two(c, kX));
  const ir::Tensor& x = c.in(kX);
  norm::fill_like(c, c.mutable_in(kScale), norm::sample_dims(x.dim), x);
  if (c.has_in(kBias)) norm::fill_like(c, c.mutable_in(kBias), c.in(kScale).dim, x);
  norm::fill_scalar(c, kEpsilon);
  norm::fill_same(c, c.out(kY), x);
  if (c.has_out(kInvVariance))
    norm::fill_like(c, c.out(kInvVariance), norm::statistic_dims(x.dim, c.in(kScale).dim), x);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  const Dims& x = g.tensor(n.in[kX]).dim;
  return norm::Rules(g, n)
      .phase_is_set()
      .broadcasts(kScale, x)
      .broadcasts(kBias, x)
      .scalar(kEpsilon, x)
      .out_is(kY, x)
      .out_is(kInvVariance, norm::statistic_dims(x, g.tensor(n.in[kScale]).dim))
      .status();
}

void reference(RefContext& c) {
  const Dims statistics = norm::statistic_dims(c.in(kX).dim(), c.in(kScale).dim());
  const norm::Moments m = norm::moments(c, c.in(kX), statistics, c.scalar_in(kEpsilon), false);
  norm::normalize(c, c.in(kX), statistics, m, c.in(kScale), c.has_in(kBias) ? &c.in(kBias) : nullptr, c.out(kY));
  norm::store(m.inv, c, kInvVariance);
}

void decompose(Rewriter& r) {
  const Dims statistics = norm::statistic_dims(r.dim(r.in(kX)), r.dim(r.in(kScale)));
  const norm::MomentIds m = norm::emit_moments(r, r.in(kX), statistics, r.in(kEpsilon), false);
  norm::emit_normalize(r, m, r.in(kScale), r.in(kBias), kY);
  norm::emit_copy(r, m.inv, kInvVariance);
}

}  // namespace

extern const ir::OpDef kRmsnorm;
const ir::OpDef kRmsnorm{
    .name = "rmsnorm",
    .tag = "RMS_NORM",
    .inputs = {{"X"}, {"SCALE"}, {"BIAS", ir::PortKind::Optional}, {"EPSILON"}},
    .outputs = {{"Y"}, {"INV_VARIANCE", ir::PortKind::Required, norm::in_training}},
    .attrs = {{"forward_phase", ir::AttrKind::Enum, true, ir::is_name_of<NormFwdPhase_t>}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .decompose = decompose,
    .flops = norm::forward_flops,
};

}  // namespace tilewright::ops
