// instancenorm: Y = scale * (X - mean) / sqrt(variance + epsilon) + bias, normalised over the spatial dims per (n, c).
#include "ops/norm_common.h"

namespace tilewright::ops {
namespace {

enum In { kX, kScale, kBias, kEpsilon };
enum Out { kY, kMean, kInvVariance };

Status infer(ir::InferContext& c) {
  TW_RETURN_IF_BAD(norm::need_rank_two(c, kX));
  const ir::Tensor& x = c.in(kX);
  norm::fill(c, c.mutable_in(kScale), norm::channel_dims(x.dim), channels_last_strides);
  norm::fill(c, c.mutable_in(kBias), c.in(kScale).dim, channels_last_strides);
  norm::fill_scalar(c, kEpsilon);
  norm::fill_same(c, c.out(kY), x);
  for (size_t port : {kMean, kInvVariance})
    if (c.has_out(port)) norm::fill(c, c.out(port), norm::instance_dims(x.dim), channels_last_strides);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  return norm::verify_forward(g, n, norm::instance_dims(g.tensor(n.in[kX]).dim));
}
void reference(RefContext& c) { norm::reference_forward(c, norm::instance_dims(c.in(kX).dim())); }
void decompose(Rewriter& r) { norm::decompose_forward(r, norm::instance_dims(r.dim(r.in(kX)))); }

}  // namespace

extern const ir::OpDef kInstancenorm;
const ir::OpDef kInstancenorm{
    .name = "instancenorm",
    .tag = "INSTANCE_NORM",
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
