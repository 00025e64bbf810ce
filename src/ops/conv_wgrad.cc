// conv_wgrad: DW[k, c, r] = sum over n, p of DY[n, k, p] * X[n, c, p * stride + r * dilation - pre].
// The filter's size does not follow from X and DY, so the caller sets DW's dims.
#include "ops/contraction.h"
#include "ops/convolution.h"

namespace tilewright::ops {
namespace {

enum { kDy, kX };

Status infer(ir::InferContext& ctx) {
  ir::Tensor& dw = ctx.out(0);
  if (dw.dim.empty())
    return not_set(
        "conv_wgrad \"{}\": the dims of DW \"{}\" are not set; the filter's size does not follow from DY "
        "\"{}\" {} and X \"{}\" {}, so the caller sets them",
        ctx.node.name, dw.name, ctx.in(kDy).name, to_text(ctx.in(kDy).dim), ctx.in(kX).name, to_text(ctx.in(kX).dim));
  ctx.set_stride(dw, channels_last_strides(dw.dim));
  return {};
}

Status verify(const ir::Graph& graph, const ir::Node& node) {
  TW_ASSIGN_OR_RETURN(const Convolution conv,
                      plan_convolution(node, graph.tensor(node.in[kX]), graph.tensor(node.out[0])));
  return check_convolved(node, conv, "DY", graph.tensor(node.in[kDy]));
}

void reference(RefContext& ctx) {
  const Convolution conv = convolution_of(ctx.graph, ctx.node);
  const int64_t in = volume(conv.in), out = volume(conv.out), taps = volume(conv.filter);
  const int64_t c_group = conv.c_per_group(), k_group = conv.k_per_group();
  const RefTensor::Dense dy = ctx.in(kDy).dense();
  // X as [n, position, c]: the products of one element of DY lie side by side.
  const RefTensor::Dense x = permuted(ctx.in(kX).dense(), {conv.n, conv.c, in}, {0, 2, 1});
  const Dims in_stride = row_major_strides(conv.in);
  Bounded* const dw = ctx.out(0).values.data();

  ctx.for_each(conv.k * taps, [&](int64_t i) {
    const int64_t r = i % taps, k = i / taps, group = k / k_group;
    thread_local ContractionTerms terms;
    terms.clear();
    int64_t at_p[3], at_r[3];
    unravel(r, conv.filter, at_r);
    for (int64_t p = 0; p < out; ++p) {
      unravel(p, conv.out, at_p);
      int64_t position = 0;
      bool inside = true;
      for (size_t d = 0; d < conv.rank(); ++d) {
        const int64_t q = at_p[d] * conv.stride[d] + at_r[d] * conv.dilation[d] - conv.pre[d];
        inside = inside && q >= 0 && q < conv.in[d];
        position += q * in_stride[d];
      }
      if (!inside) continue;
      for (int64_t n = 0; n < conv.n; ++n)
        terms.add(dy, (n * conv.k + k) * out + p, (n * in + position) * conv.c + group * c_group);
    }
    contract(terms, x, c_group, dw + k * c_group * taps + conv.tap(r), taps);
  });
}

}  // namespace

extern const ir::OpDef kConvWgrad;
const ir::OpDef kConvWgrad = {
    .name = "conv_wgrad",
    .tag = "CONV_WGRAD",
    .inputs = {{"DY"}, {"X"}},
    .outputs = {{"DW"}},
    .attrs = convolution_attrs(),
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .flops = convolution_flops,
};

}  // namespace tilewright::ops
