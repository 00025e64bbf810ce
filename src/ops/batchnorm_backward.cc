// batchnorm_backward: the gradients of batchnorm. Without saved statistics they are computed from X; the op has no
// epsilon port, so that inverse deviation is 1 / sqrt(variance).
#include "ops/norm_common.h"

namespace tilewright::ops {
namespace {

constexpr norm::GradientPorts kPorts{.dy = 0, .x = 1, .scale = 2, .mean = 3, .inv = 4};

Status infer(ir::InferContext& c) {
  const Dims channels = norm::channel_dims(c.in(kPorts.x).dim);
  TW_RETURN_IF_BAD(norm::infer_backward(c, kPorts, channels, channels_last_strides));
  for (size_t port : {size_t(kPorts.mean), kPorts.inv})
    if (c.has_in(port)) norm::fill(c, c.mutable_in(port), channels, channels_last_strides);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  const Dims channels = norm::channel_dims(g.tensor(n.in[kPorts.x]).dim);
  TW_RETURN_IF_BAD(norm::Rules(g, n)
                       .all_or_none({size_t(kPorts.mean), kPorts.inv})
                       .in_is(kPorts.scale, channels)
                       .in_is(size_t(kPorts.mean), channels)
                       .in_is(kPorts.inv, channels)
                       .status());
  return norm::verify_backward(g, n, kPorts, channels);
}

void reference(RefContext& c) {
  const Dims channels = norm::channel_dims(c.in(kPorts.x).dim());
  if (c.has_in(kPorts.inv)) return norm::reference_backward(c, kPorts, channels);
  norm::reference_gradients(c, kPorts, channels, norm::moments(c, c.in(kPorts.x), channels, 0, true));
}

void decompose(Rewriter& r) {
  const Dims channels = norm::channel_dims(r.dim(r.in(kPorts.x)));
  if (r.has_in(kPorts.inv)) return norm::decompose_backward(r, kPorts, channels);
  norm::emit_gradients(r, kPorts, channels, norm::emit_moments(r, r.in(kPorts.x), channels, ir::kNone, true));
}

}  // namespace

extern const ir::OpDef kBatchnormBackward;
const ir::OpDef kBatchnormBackward{
    .name = "batchnorm_backward",
    .tag = "DBN",
    .inputs = {{"DY"}, {"X"}, {"SCALE"}, {"MEAN", ir::PortKind::Optional}, {"INV_VARIANCE", ir::PortKind::Optional}},
    .outputs = {{"DX"}, {"DSCALE"}, {"DBIAS"}},
    .attrs = {},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .decompose = decompose,
    .flops = norm::backward_flops,
};

}  // namespace tilewright::ops
