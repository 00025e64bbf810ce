// conv_fprop: Y[n, k, p] = sum over c, r of X[n, c, p * stride + r * dilation - pre] * W[k, c, r].
#include "ops/contraction.h"
#include "ops/convolution.h"

namespace tilewright::ops {
namespace {

enum { kX, kW };

Status infer(ir::InferContext& ctx) {
  TW_ASSIGN_OR_RETURN(const Convolution conv, plan_convolution(ctx.node, ctx.in(kX), ctx.in(kW)));
  ir::Tensor& y = ctx.out(0);
  Dims dim = {conv.n, conv.k};
  dim.insert(dim.end(), conv.out.begin(), conv.out.end());
  ctx.set_dim(y, dim);
  ctx.set_stride(y, channels_last_strides(y.dim));
  return {};
}

Status verify(const ir::Graph& graph, const ir::Node& node) {
  TW_ASSIGN_OR_RETURN(const Convolution conv,
                      plan_convolution(node, graph.tensor(node.in[kX]), graph.tensor(node.in[kW])));
  return check_convolved(node, conv, "Y", graph.tensor(node.out[0]));
}

void reference(RefContext& ctx) {
  const Convolution conv = convolution_of(ctx.graph, ctx.node);
  const int64_t in = volume(conv.in), out = volume(conv.out), taps = volume(conv.filter);
  const int64_t c_group = conv.c_per_group(), k_group = conv.k_per_group();
  const RefTensor::Dense x = ctx.in(kX).dense();
  // W as [c, r, k]: the products of one input element lie side by side.
  const RefTensor::Dense w = permuted(ctx.in(kW).dense(), {conv.k, c_group, taps}, {1, 2, 0});
  const Dims in_stride = row_major_strides(conv.in);
  Bounded* const y = ctx.out(0).values.data();

  ctx.for_each(conv.n * out * conv.groups, [&](int64_t i) {
    const int64_t group = i % conv.groups, p = i / conv.groups % out, n = i / conv.groups / out;
    thread_local ContractionTerms terms;
    terms.clear();
    int64_t at_p[3], at_r[3];
    unravel(p, conv.out, at_p);
    for (int64_t r = 0; r < taps; ++r) {
      unravel(r, conv.filter, at_r);
      int64_t position = 0;
      bool inside = true;
      for (size_t d = 0; d < conv.rank(); ++d) {
        const int64_t q = at_p[d] * conv.stride[d] + at_r[d] * conv.dilation[d] - conv.pre[d];
        inside = inside && q >= 0 && q < conv.in[d];
        position += q * in_stride[d];
      }
      if (!inside) continue;
      for (int64_t c = 0; c < c_group; ++c)
        terms.add(x, (n * conv.c + group * c_group + c) * in + position,
                  (c * taps + conv.tap(r)) * conv.k + group * k_group);
    }
    contract(terms, w, k_group, y + (n * conv.k + group * k_group) * out + p, out);
  });
}

}  // namespace

extern const ir::OpDef kConvFprop;
const ir::OpDef kConvFprop = {
    .name = "conv_fprop",
    .tag = "CONV_FPROP",
    .inputs = {{"X"}, {"W"}},
    .outputs = {{"Y"}},
    .attrs = convolution_attrs(),
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .flops = convolution_flops,
};

}  // namespace tilewright::ops
