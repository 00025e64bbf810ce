// layernorm_backward: the gradients of layernorm, from the saved statistics.
#include "ops/norm_common.h"

namespace tilewright::ops {
namespace {

constexpr norm::GradientPorts kPorts{.dy = 0, .x = 1, .scale = 2, .mean = 3, .inv = 4};

Dims statistics(const Dims& x, const Dims& scale) { return norm::statistic_dims(x, scale); }

Status infer(ir::InferContext& c) {
  TW_RETURN_IF_BAD(norm::infer_backward(c, kPorts, norm::sample_dims(c.in(kPorts.x).dim), channels_last_strides));
  for (size_t port : {size_t(kPorts.mean), kPorts.inv})
    norm::fill(c, c.mutable_in(port), statistics(c.in(kPorts.x).dim, c.in(kPorts.scale).dim), channels_last_strides);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  return norm::verify_backward(g, n, kPorts,
                               statistics(g.tensor(n.in[kPorts.x]).dim, g.tensor(n.in[kPorts.scale]).dim));
}
void reference(RefContext& c) {
  norm::reference_backward(c, kPorts, statistics(c.in(kPorts.x).dim(), c.in(kPorts.scale).dim()));
}
void decompose(Rewriter& r) {
  norm::decompose_backward(r, kPorts, statistics(r.dim(r.in(kPorts.x)), r.dim(r.in(kPorts.scale))));
}

}  // namespace

extern const ir::OpDef kLayernormBackward;
const ir::OpDef kLayernormBackward{
    .name = "layernorm_backward",
    .tag = "LAYER_NORM_BPROP",
    .inputs = {{"DY"}, {"X"}, {"SCALE"}, {"MEAN"}, {"INV_VARIANCE"}},
    .outputs = {{"DX"}, {"DSCALE"}, {"DBIAS"}},
    .attrs = {},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .decompose = decompose,
    .flops = norm::backward_flops,
};

}  // namespace tilewright::ops
