// instancenorm_backward: the gradients of instancenorm, from the saved statistics.
#include "ops/norm_common.h"

namespace tilewright::ops {
namespace {

constexpr norm::GradientPorts kPorts{.dy = 0, .x = 1, .scale = 2, .mean = 3, .inv = 4};

Status infer(ir::InferContext& c) {
  TW_RETURN_IF_BAD(norm::infer_backward(c, kPorts, norm::channel_dims(c.in(kPorts.x).dim), channels_last_strides));
  for (size_t port : {size_t(kPorts.mean), kPorts.inv})
    norm::fill(c, c.mutable_in(port), norm::instance_dims(c.in(kPorts.x).dim), channels_last_strides);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  return norm::verify_backward(g, n, kPorts, norm::instance_dims(g.tensor(n.in[kPorts.x]).dim));
}
void reference(RefContext& c) { norm::reference_backward(c, kPorts, norm::instance_dims(c.in(kPorts.x).dim())); }
void decompose(Rewriter& r) { norm::decompose_backward(r, kPorts, norm::instance_dims(r.dim(r.in(kPorts.x)))); }

}  // namespace

extern const ir::OpDef kInstancenormBackward;
const ir::OpDef kInstancenormBackward{
    .name = "instancenorm_backward",
    .tag = "INSTANCE_NORM_BPROP",
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
