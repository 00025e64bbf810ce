// resample_backward: the gradient of resample with respect to X. Each element of DY goes to the window's maximum, which
// Index names or X shows (the first of equals), or in equal parts to the window.
#include "ops/pooling.h"
#include "ops/reference.h"

namespace tilewright::ops {
namespace {

enum { kDy, kX, kIndex };

bool present(const ir::Node& node, size_t port) { return port < node.in.size() && node.in[port] != ir::kNone; }

Status infer(ir::InferContext& ctx) {
  ir::Tensor& dx = ctx.out(0);
  if (ctx.has_in(kX)) ctx.set_dim(dx, ctx.in(kX).dim);
  if (dx.dim.empty())
    return not_set(
        "resample_backward \"{}\": the dims of DX \"{}\" are not set; without X they do not follow from DY "
        "\"{}\" {}, so the caller sets them",
        ctx.node.name, dx.name, ctx.in(kDy).name, to_text(ctx.in(kDy).dim));
  ctx.set_stride(dx, channels_last_strides(dx.dim));
  return {};
}

Status verify(const ir::Graph& graph, const ir::Node& node) {
  const ir::Tensor &dx = graph.tensor(node.out[0]), &dy = graph.tensor(node.in[kDy]);
  TW_ASSIGN_OR_RETURN(const Pooling pool, plan_pooling(node, dx.name.c_str(), dx.dim));
  Dims want = {dx.dim[0], dx.dim[1]};
  want.insert(want.end(), pool.out.begin(), pool.out.end());
  if (dy.dim != want)
    return invalid(
        "resample_backward \"{}\": DY \"{}\" has dims {}, but DX \"{}\" {} with this window, stride and "
        "padding pools to {}",
        node.name, dy.name, to_text(dy.dim), dx.name, to_text(dx.dim), to_text(want));
  if (pool.max() && !present(node, kX) && !present(node, kIndex))
    return not_set("resample_backward \"{}\": MAXPOOL needs Index, or X to find the maximum again", node.name);
  if (present(node, kX) && graph.tensor(node.in[kX]).dim != dx.dim)
    return invalid("resample_backward \"{}\": DX \"{}\" has dims {}, X \"{}\" {}; they must agree", node.name, dx.name,
                   to_text(dx.dim), graph.tensor(node.in[kX]).name, to_text(graph.tensor(node.in[kX]).dim));
  if (present(node, kIndex) && graph.tensor(node.in[kIndex]).dim != dy.dim)
    return invalid("resample_backward \"{}\": Index \"{}\" has dims {}, DY \"{}\" {}; they must agree", node.name,
                   graph.tensor(node.in[kIndex]).name, to_text(graph.tensor(node.in[kIndex]).dim), dy.name,
                   to_text(dy.dim));
  return {};
}

void reference(RefContext& ctx) {
  const Pooling pool = pooling_of(ctx.graph, ctx.node);
  const RefTensor& dy = ctx.in(kDy);
  const int64_t in = volume(pool.in), out = volume(pool.out), size = volume(pool.window);
  const bool by_index = pool.max() && ctx.has_in(kIndex);
  Bounded* const dx = ctx.out(0).values.data();

  // Plane by plane, since the windows of one plane add to the same elements.
  ctx.for_each(pool.planes, [&](int64_t plane) {
    std::vector<BoundedSum> sum(size_t(in), BoundedSum{});
    for (int64_t p = 0; p < out; ++p) {
      const Bounded g = dy.at_linear(plane * out + p);
      if (!pool.max()) {
        int64_t count = size;
        if (pool.mode == ResampleMode_t::AVGPOOL_EXCLUDE_PADDING)
          count = for_each_in_window(pool, p, [](int64_t, int64_t) {});
        const Bounded part = g / Bounded(double(count));
        for_each_in_window(pool, p, [&](int64_t, int64_t q) { sum[size_t(q)].add(part); });
        continue;
      }
      if (by_index) {
        const double at = ctx.in(kIndex).at_linear(plane * out + p).v;
        for_each_in_window(pool, p, [&](int64_t w, int64_t q) {
          if (double(w) == at) sum[size_t(q)].add(g);
        });
        continue;
      }
      Bounded best(-kInfinity);
      int64_t best_q = -1;
      double low = -kInfinity;  // the true maximum is not below
      for_each_in_window(pool, p, [&](int64_t, int64_t q) {
        const Bounded b = ctx.in(kX).at_linear(plane * in + q);
        if (best_q < 0 || b.v > best.v || (std::isnan(b.v) && !std::isnan(best.v))) best = b, best_q = q;
        low = std::max(low, b.v - b.e);
      });
      if (best_q < 0) continue;  // nothing but padding
      sum[size_t(best_q)].add(g);
      // Uncertain values may have their maximum elsewhere: then the gradient is missing here and there instead.
      bool elsewhere = false;
      for_each_in_window(pool, p, [&](int64_t, int64_t q) {
        const Bounded b = ctx.in(kX).at_linear(plane * in + q);
        if (q == best_q || !(b.v + b.e >= low) || (b.e == 0 && best.e == 0)) return;
        sum[size_t(q)].e += std::fabs(g.v) + g.e;
        elsewhere = true;
      });
      if (elsewhere) sum[size_t(best_q)].e += std::fabs(g.v) + g.e;
    }
    for (int64_t q = 0; q < in; ++q) dx[plane * in + q] = sum[size_t(q)].total();
  });
}

double flops(const ir::Graph& graph, const ir::Node& node) {
  const Pooling pool = pooling_of(graph, node);
  return double(pool.planes) * double(volume(pool.out)) * (pool.max() ? 1 : double(volume(pool.window)));
}

}  // namespace

extern const ir::OpDef kResampleBackward;
const ir::OpDef kResampleBackward = {
    .name = "resample_backward",
    .tag = "RESAMPLE_BWD",
    .inputs = {{"DY"}, {"X", ir::PortKind::Optional}, {"Index", ir::PortKind::Optional}},
    .outputs = {{"DX"}},
    .attrs = pooling_attrs(),
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .flops = flops,
};

}  // namespace tilewright::ops
