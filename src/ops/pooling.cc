#include "ops/pooling.h"

#include "ops/window.h"

namespace tilewright::ops {
namespace {

using ir::Node;

// The padding that the mode can use, and whether a window of nothing else has a value under it: -inf is the maximum of
// NEG_INF_PAD, 0 the average of ZERO_PAD with padding included.
Status check_padding_mode(const Node& node, ResampleMode_t mode, bool& padding_has_value) {
  const PaddingMode_t padding = node.attr_enum("padding_mode", PaddingMode_t::NOT_SET);
  padding_has_value = false;
  if (padding == PaddingMode_t::NOT_SET || mode == ResampleMode_t::AVGPOOL_EXCLUDE_PADDING) return {};
  const bool max = mode == ResampleMode_t::MAXPOOL;
  const PaddingMode_t fits = max ? PaddingMode_t::NEG_INF_PAD : PaddingMode_t::ZERO_PAD;
  if (padding != fits)
    return not_supported("{} \"{}\": {} with {} is not available; use {}", node.op->name, node.name, to_string(mode),
                         to_string(padding), to_string(fits));
  padding_has_value = true;
  return {};
}

}  // namespace

std::vector<ir::AttrSpec> pooling_attrs() {
  using ir::AttrKind;
  return {{"resample_mode", AttrKind::Enum, true, ir::is_name_of<ResampleMode_t>},
          {"padding_mode", AttrKind::Enum, false, ir::is_name_of<PaddingMode_t>},
          {"window", AttrKind::Ints, true},
          {"stride", AttrKind::Ints, true},
          {"pre_padding", AttrKind::Ints, true},
          {"post_padding", AttrKind::Ints, true}};
}

Result<Pooling> plan_pooling(const Node& node, const char* x_name, const Dims& x_dim) {
  const char* op = node.op->name;
  Pooling pool;
  pool.mode = node.attr_enum("resample_mode", ResampleMode_t::NOT_SET);
  if (pool.mode == ResampleMode_t::NOT_SET) return not_set("{} \"{}\": resample_mode is not set", op, node.name);
  if (pool.mode == ResampleMode_t::BILINEAR || pool.mode == ResampleMode_t::NEAREST)
    return not_supported(
        "{} \"{}\": {} interpolation is not available in this version; MAXPOOL, "
        "AVGPOOL_INCLUDE_PADDING and AVGPOOL_EXCLUDE_PADDING are",
        op, node.name, to_string(pool.mode));
  if (x_dim.size() < 3 || x_dim.size() > 5)
    return invalid("{} \"{}\": \"{}\" has dims {}; pooling takes [N, C, spatial...] with 1 to 3 spatial dims", op,
                   node.name, x_name, to_text(x_dim));
  const size_t rank = x_dim.size() - 2;
  TW_RETURN_IF_BAD(read_spatial(node, "window", rank, 1, pool.window));
  TW_RETURN_IF_BAD(read_spatial(node, "stride", rank, 1, pool.stride));
  TW_RETURN_IF_BAD(read_spatial(node, "pre_padding", rank, 0, pool.pre));
  TW_RETURN_IF_BAD(read_spatial(node, "post_padding", rank, 0, pool.post));
  bool padding_has_value = false;
  TW_RETURN_IF_BAD(check_padding_mode(node, pool.mode, padding_has_value));
  if (!volume_checked(pool.window))
    return invalid("{} \"{}\": window {} is too large", op, node.name, to_text(pool.window));

  pool.planes = x_dim[0] * x_dim[1];
  for (size_t d = 0; d < rank; ++d) {
    const int64_t in = x_dim[d + 2], pre = pool.pre[d], post = pool.post[d], window = pool.window[d];
    if (in > kLargestDim) return invalid("{} \"{}\": \"{}\" is too large", op, node.name, x_name);
    if (in + pre + post < window)
      return error(error_code_t::SHAPE_DEDUCTION_FAILED,
                   "{} \"{}\": spatial dim {} of \"{}\" is {} with padding ({} + {} + {}), smaller than the window {}",
                   op, node.name, d, x_name, in + pre + post, pre, in, post, to_text(pool.window));
    const int64_t out = (in + pre + post - window) / pool.stride[d] + 1;
    const int64_t last_start = (out - 1) * pool.stride[d] - pre;
    if ((pre >= window || last_start >= in) && !padding_has_value)
      return invalid(
          "{} \"{}\": a window of {} in spatial dim {} of \"{}\" sees only padding (pre_padding {}, "
          "post_padding {}), which has no {} unless padding_mode {} says so",
          op, node.name, window, d, x_name, pre, post, pool.max() ? "maximum" : "average",
          pool.max() ? "NEG_INF_PAD" : "ZERO_PAD of AVGPOOL_INCLUDE_PADDING");
    pool.in.push_back(in), pool.out.push_back(out);
  }
  return pool;
}

Pooling pooling_of(const ir::Graph& graph, const Node& node) {
  const ir::Tensor& x = graph.tensor(std::string_view(node.op->name) == "resample" ? node.in[0] : node.out[0]);
  Result<Pooling> pool = plan_pooling(node, x.name.c_str(), x.dim);
  TW_CHECK(pool);
  return *pool;
}

}  // namespace tilewright::ops
