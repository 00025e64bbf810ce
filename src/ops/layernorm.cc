// layernorm: Y = scale * (X - mean) / sqrt(variance + epsilon) + bias, normalised over the dims where scale is not 1.
#include "ops/norm_common.h"

namespace tilewright::ops {
namespace {

enum In { kX, kScale, kBias, kEpsilon };
enum Out { kY, kMean, kInvVariance };

Dims statistics(const Dims& x, const Dims& scale) { return norm::statistic_dims(x, scale); }

Status infer(ir::InferContext& c) {
  TW_RETURN_IF_BAD(norm::need_rank_two(c, kX));
  const ir::Tensor& x = c.in(kX);
  norm::fill_like(c, c.mutable_in(kScale), norm::sample_dims(x.dim), x);
  norm::fill_like(c, c.mutable_in(kBias), c.in(kScale).dim, x);
  norm::fill_scalar(c, kEpsilon);
  norm::fill_same(c, c.out(kY), x);
  for (size_t port : {kMean, kInvVariance})
    if (c.has_out(port)) norm::fill_like(c, c.out(port), statistics(x.dim, c.in(kScale).dim), x);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  return norm::verify_forward(g, n, statistics(g.tensor(n.in[kX]).dim, g.tensor(n.in[kScale]).dim));
}
void reference(RefContext& c) { norm::reference_forward(c, statistics(c.in(kX).dim(), c.in(kScale).dim())); }
void decompose(Rewriter& r) { norm::decompose_forward(r, statistics(r.dim(r.in(kX)), r.dim(r.in(kScale)))); }

}  // namespace

extern const ir::OpDef kLayernorm;
const ir::OpDef kLayernorm{
    .name = "layernorm",
    .tag = "LAYER_NORM",
    .inputs = {{"X"}, {"SCALE"}, {"BIAS"}, {"EPSILON"}},
    .outputs = {{"Y"},
                {"MEAN", ir::PortKind::Required, norm::in_training},
                {"INV_VARIANCE", ir::PortKind::Required, norm::in_training}},
    .attrs = {{"forward_phase", ir::AttrKind::Enum, true, ir::is_name_of<NormFwdPhase_t>}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .decompose = decompose,
    .flops = norm::forward_flops,
};

}  // namespace tilewright::ops
