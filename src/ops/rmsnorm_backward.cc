// rmsnorm_backward: the gradients of rmsnorm, from the saved INV_VARIANCE.
#include "ops/norm_common.h"

namespace tilewright::ops {
namespace {

constexpr norm::GradientPorts kPorts{.dy = 0, .x = 1, .scale = 2, .mean = -1, .inv = 3};

Status infer(ir::InferContext& c) {
  const Dims x = c.in(kPorts.x).dim;
  TW_RETURN_IF_BAD(norm::infer_backward(c, kPorts, norm::sample_dims(x), channels_last_strides));
  norm::fill(c, c.mutable_in(kPorts.inv), norm::statistic_dims(x, c.in(kPorts.scale).dim), channels_last_strides);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  return norm::verify_backward(g, n, kPorts,
                               norm::statistic_dims(g.tensor(n.in[kPorts.x]).dim, g.tensor(n.in[kPorts.scale]).dim));
}
void reference(RefContext& c) {
  norm::reference_backward(c, kPorts, norm::statistic_dims(c.in(kPorts.x).dim(), c.in(kPorts.scale).dim()));
}
void decompose(Rewriter& r) {
  norm::decompose_backward(r, kPorts, norm::statistic_dims(r.dim(r.in(kPorts.x)), r.dim(r.in(kPorts.scale))));
}

bool has_dbias(const AttrMap& attrs, const std::vector<std::string>&) {
  auto it = attrs.find("has_dbias");
  return it != attrs.end() && it->second == AttrValue(true);
}

}  // namespace

extern const ir::OpDef kRmsnormBackward;
const ir::OpDef kRmsnormBackward{
    .name = "rmsnorm_backward",
    .tag = "RMS_NORM_BPROP",
    .inputs = {{"DY"}, {"X"}, {"SCALE"}, {"INV_VARIANCE"}},
    .outputs = {{"DX"}, {"DSCALE"}, {"DBIAS", ir::PortKind::Required, has_dbias}},
    .attrs = {{"has_dbias", ir::AttrKind::Bool, true}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .decompose = decompose,
    .flops = norm::backward_flops,
};

}  // namespace tilewright::ops
