// genstats: SUM = sum x and SQ_SUM = sum x^2 per channel, over all other dims.
#include "ops/norm_common.h"

namespace tilewright::ops {
namespace {

enum Out { kSum, kSqSum };

Status infer(ir::InferContext& c) {
  TW_RETURN_IF_BAD(norm::need_rank_two(c, 0));
  for (size_t port : {kSum, kSqSum}) norm::fill(c, c.out(port), norm::channel_dims(c.in(0).dim), channels_last_strides);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  const Dims channels = norm::channel_dims(g.tensor(n.in[0]).dim);
  return norm::Rules(g, n).out_is(kSum, channels).out_is(kSqSum, channels).status();
}

void reference(RefContext& c) {
  const norm::Values x(c.in(0));
  const norm::Groups channels(c.in(0).dim(), norm::channel_dims(c.in(0).dim()));
  c.for_each(channels.count(), [&](int64_t channel) {
    BoundedSum sum, square_sum;
    for (int64_t k = 0; k < channels.size(); ++k) {
      const Bounded v = x[channels.element(channel, k)];
      sum.add(v);
      square_sum.add(v * v);
    }
    c.out(kSum).values[size_t(channel)] = sum.total();
    c.out(kSqSum).values[size_t(channel)] = square_sum.total();
  });
}

void decompose(Rewriter& r) {
  const Dims channels = norm::channel_dims(r.dim(r.in(0)));
  r.reduce(ReductionMode_t::ADD, r.in(0), channels, r.out(kSum));
  r.reduce(ReductionMode_t::ADD, r.mul(r.in(0), r.in(0)), channels, r.out(kSqSum));
}

double flops(const ir::Graph& g, const ir::Node& n) { return 3.0 * double(volume(g.tensor(n.in[0]).dim)); }

}  // namespace

extern const ir::OpDef kGenstats;
const ir::OpDef kGenstats{
    .name = "genstats",
    .tag = "GENSTATS",
    .inputs = {{"X"}},
    .outputs = {{"SUM"}, {"SQ_SUM"}},
    .attrs = {},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .decompose = decompose,
    .flops = flops,
};

}  // namespace tilewright::ops
