#include "ops/convolution.h"

#include "ops/window.h"

namespace tilewright::ops {

using ir::Graph;
using ir::Node;
using ir::Tensor;

std::vector<ir::AttrSpec> convolution_attrs() {
  using ir::AttrKind;
  return {{"pre_padding", AttrKind::Ints, true},
          {"post_padding", AttrKind::Ints, true},
          {"stride", AttrKind::Ints, true},
          {"dilation", AttrKind::Ints, true},
          {"math_mode", AttrKind::Enum, false, ir::is_name_of<ConvolutionMode_t>}};
}

Result<Convolution> plan_convolution(const Node& node, const Tensor& x, const Tensor& w) {
  const char* op = node.op->name;
  Convolution conv;
  if (x.dim.size() < 3 || x.dim.size() > 5)
    return invalid("{} \"{}\": \"{}\" has dims {}; a convolution takes [N, C, spatial...] with 1 to 3 spatial dims", op,
                   node.name, x.name, to_text(x.dim));
  if (w.dim.size() != x.dim.size())
    return invalid("{} \"{}\": \"{}\" has dims {} and the filter \"{}\" {}; their ranks must agree", op, node.name,
                   x.name, to_text(x.dim), w.name, to_text(w.dim));
  const size_t rank = x.dim.size() - 2;
  TW_RETURN_IF_BAD(read_spatial(node, "pre_padding", rank, 0, conv.pre));
  TW_RETURN_IF_BAD(read_spatial(node, "post_padding", rank, 0, conv.post));
  TW_RETURN_IF_BAD(read_spatial(node, "stride", rank, 1, conv.stride));
  TW_RETURN_IF_BAD(read_spatial(node, "dilation", rank, 1, conv.dilation));
  conv.flip = node.attr_enum("math_mode", ConvolutionMode_t::CROSS_CORRELATION) == ConvolutionMode_t::CONVOLUTION;

  conv.n = x.dim[0], conv.c = x.dim[1], conv.k = w.dim[0];
  if (w.dim[1] < 1 || conv.c < 1 || conv.c % w.dim[1] != 0)
    return invalid("{} \"{}\": \"{}\" has {} channels, not a multiple of the {} that \"{}\" takes per group", op,
                   node.name, x.name, conv.c, w.dim[1], w.name);
  conv.groups = conv.c / w.dim[1];
  if (conv.k < 1 || conv.k % conv.groups != 0)
    return invalid(
        "{} \"{}\": \"{}\" makes {} channels, not a multiple of the {} groups ({} channels of \"{}\", {} per "
        "group)",
        op, node.name, w.name, conv.k, conv.groups, conv.c, x.name, w.dim[1]);

  for (size_t d = 0; d < rank; ++d) {
    const int64_t in = x.dim[d + 2], filter = w.dim[d + 2];
    if (filter < 1 || filter > kLargestEntry)
      return invalid("{} \"{}\": the filter \"{}\" has dims {}; its spatial dims must be at least 1", op, node.name,
                     w.name, to_text(w.dim));
    if (in > kLargestDim) return invalid("{} \"{}\": \"{}\" is too large", op, node.name, x.name);
    const int64_t padded = in + conv.pre[d] + conv.post[d], reach = conv.dilation[d] * (filter - 1) + 1;
    if (padded < reach)
      return error(
          error_code_t::SHAPE_DEDUCTION_FAILED,
          "{} \"{}\": spatial dim {} of \"{}\" is {} with padding ({} + {} + {}), smaller than the {} that the "
          "filter \"{}\" spans",
          op, node.name, d, x.name, padded, conv.pre[d], in, conv.post[d], reach, w.name);
    conv.in.push_back(in), conv.filter.push_back(filter);
    conv.out.push_back((padded - reach) / conv.stride[d] + 1);
  }
  return conv;
}

Status check_convolved(const Node& node, const Convolution& conv, const char* port, const Tensor& y) {
  Dims want = {conv.n, conv.k};
  want.insert(want.end(), conv.out.begin(), conv.out.end());
  if (y.dim == want) return {};
  return invalid("{} \"{}\": {} \"{}\" has dims {}, but sizes, padding, stride and dilation give {}", node.op->name,
                 node.name, port, y.name, to_text(y.dim), to_text(want));
}

Convolution convolution_of(const Graph& graph, const Node& node) {
  const std::string_view op = node.op->name;
  const bool dgrad = op == "conv_dgrad", wgrad = op == "conv_wgrad";
  const Tensor& x = graph.tensor(dgrad ? node.out[0] : node.in[wgrad ? 1 : 0]);
  const Tensor& w = graph.tensor(wgrad ? node.out[0] : node.in[1]);
  Result<Convolution> conv = plan_convolution(node, x, w);
  TW_CHECK(conv);
  return *conv;
}

double convolution_flops(const Graph& graph, const Node& node) { return convolution_of(graph, node).flops(); }

}  // namespace tilewright::ops
