// conv_dgrad: DX[n, c, q] = sum over k and the p, r with p * stride + r * dilation - pre = q of DY[n, k, p] * W[k, c,
// r]. With a stride several sizes of DX have the same DY, so the caller sets DX's dims.
#include "ops/contraction.h"
#include "ops/convolution.h"

namespace tilewright::ops {
namespace {

enum { kDy, kW };

Status infer(ir::InferContext& ctx) {
  ir::Tensor& dx = ctx.out(0);
  if (dx.dim.empty())
    return not_set(
        "conv_dgrad \"{}\": the dims of DX \"{}\" are not set; they do not follow from DY \"{}\" {}, so the "
        "caller sets them",
        ctx.node.name, dx.name, ctx.in(kDy).name, to_text(ctx.in(kDy).dim));
  ctx.set_stride(dx, channels_last_strides(dx.dim));
  return {};
}

Status verify(const ir::Graph& graph, const ir::Node& node) {
  TW_ASSIGN_OR_RETURN(const Convolution conv,
                      plan_convolution(node, graph.tensor(node.out[0]), graph.tensor(node.in[kW])));
  return check_convolved(node, conv, "DY", graph.tensor(node.in[kDy]));
}

void reference(RefContext& ctx) {
  const Convolution conv = convolution_of(ctx.graph, ctx.node);
  const int64_t in = volume(conv.in), out = volume(conv.out), taps = volume(conv.filter);
  const int64_t c_group = conv.c_per_group(), k_group = conv.k_per_group();
  const RefTensor::Dense dy = ctx.in(kDy).dense();
  // W as [k, r, c]: the products of one element of DY lie side by side.
  const RefTensor::Dense w = permuted(ctx.in(kW).dense(), {conv.k, c_group, taps}, {0, 2, 1});
  const Dims out_stride = row_major_strides(conv.out);
  Bounded* const dx = ctx.out(0).values.data();

  ctx.for_each(conv.n * in * conv.groups, [&](int64_t i) {
    const int64_t group = i % conv.groups, q = i / conv.groups % in, n = i / conv.groups / in;
    thread_local ContractionTerms terms;
    terms.clear();
    int64_t at_q[3], at_r[3];
    unravel(q, conv.in, at_q);
    for (int64_t r = 0; r < taps; ++r) {
      unravel(r, conv.filter, at_r);
      int64_t position = 0;
      bool inside = true;
      for (size_t d = 0; d < conv.rank(); ++d) {
        const int64_t scaled = at_q[d] + conv.pre[d] - at_r[d] * conv.dilation[d];
        const int64_t p = scaled / conv.stride[d];
        inside = inside && scaled >= 0 && scaled % conv.stride[d] == 0 && p < conv.out[d];
        position += p * out_stride[d];
      }
      if (!inside) continue;
      for (int64_t k = group * k_group; k < (group + 1) * k_group; ++k)
        terms.add(dy, (n * conv.k + k) * out + position, (k * taps + conv.tap(r)) * c_group);
    }
    contract(terms, w, c_group, dx + (n * conv.c + group * c_group) * in + q, in);
  });
}

}  // namespace

extern const ir::OpDef kConvDgrad;
const ir::OpDef kConvDgrad = {
    .name = "conv_dgrad",
    .tag = "CONV_DGRAD",
    .inputs = {{"DY"}, {"W"}},
    .outputs = {{"DX"}},
    .attrs = convolution_attrs(),
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .flops = convolution_flops,
};

}  // namespace tilewright::ops
