// batchnorm_inference: Y = scale * (X - mean) * inv_variance + bias, all four per channel.
#include "ops/norm_common.h"

namespace tilewright::ops {
namespace {

enum In { kX, kMean, kInvVariance, kScale, kBias };

Status infer(ir::InferContext& c) {
  TW_RETURN_IF_BAD(norm::need_rank_two(c, kX));
  const Dims channels = norm::channel_dims(c.in(kX).dim);
  for (size_t port : {kMean, kInvVariance, kScale, kBias})
    norm::fill(c, c.mutable_in(port), channels, channels_last_strides);
  norm::fill_same(c, c.out(0), c.in(kX));
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  const Dims& x = g.tensor(n.in[kX]).dim;
  norm::Rules rules(g, n);
  for (size_t port : {kMean, kInvVariance, kScale, kBias}) rules.in_is(port, norm::channel_dims(x));
  return rules.out_is(0, x).status();
}

void reference(RefContext& c) {
  const norm::Moments m = norm::saved_moments(&c.in(kMean), c.in(kInvVariance));
  norm::normalize(c, c.in(kX), norm::channel_dims(c.in(kX).dim()), m, c.in(kScale), &c.in(kBias), c.out(0));
}

void decompose(Rewriter& r) {
  norm::MomentIds m;
  m.centred = r.minus(r.in(kX), r.in(kMean));
  m.inv = r.in(kInvVariance);
  norm::emit_normalize(r, m, r.in(kScale), r.in(kBias), 0);
}

// subtract, multiply twice, add
double flops(const ir::Graph& g, const ir::Node& n) { return 4.0 * double(volume(g.tensor(n.out[0]).dim)); }

}  // namespace

extern const ir::OpDef kBatchnormInference;
const ir::OpDef kBatchnormInference{
    .name = "batchnorm_inference",
    .tag = "BATCHNORM_INFERENCE",
    .inputs = {{"X"}, {"MEAN"}, {"INV_VARIANCE"}, {"SCALE"}, {"BIAS"}},
    .outputs = {{"Y"}},
    .attrs = {},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .decompose = decompose,
    .flops = flops,
};

}  // namespace tilewright::ops
