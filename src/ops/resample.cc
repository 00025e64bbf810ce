// resample: the maximum or average of each window. Index holds the position of the maximum, row-major in its window:
// the first one where several are equal, the first NaN where there is one. A window of padding alone gives -inf and 0.
#include "ops/pooling.h"
#include "ops/reference.h"

namespace tilewright::ops {
namespace {

enum { kX };
enum { kY, kIndex };

Dims y_dims(const Dims& x, const Pooling& pool) {
  Dims dim = {x[0], x[1]};
  dim.insert(dim.end(), pool.out.begin(), pool.out.end());
  return dim;
}

Status infer(ir::InferContext& ctx) {
  const ir::Tensor& x = ctx.in(kX);
  TW_ASSIGN_OR_RETURN(const Pooling pool, plan_pooling(ctx.node, x.name.c_str(), x.dim));
  for (size_t port : {size_t(kY), size_t(kIndex)}) {
    if (!ctx.has_out(port)) continue;
    ctx.set_dim(ctx.out(port), y_dims(x.dim, pool));
    ctx.set_stride(ctx.out(port), channels_last_strides(ctx.out(port).dim));
  }
  if (ctx.has_out(kIndex) && ctx.out(kIndex).type == DataType_t::NOT_SET) ctx.out(kIndex).type = DataType_t::INT8;
  return {};
}

Status verify(const ir::Graph& graph, const ir::Node& node) {
  const ir::Tensor& x = graph.tensor(node.in[kX]);
  TW_ASSIGN_OR_RETURN(const Pooling pool, plan_pooling(node, x.name.c_str(), x.dim));
  const Dims want = y_dims(x.dim, pool);
  for (size_t port = 0; port < node.out.size(); ++port) {
    if (node.out[port] == ir::kNone) continue;
    const ir::Tensor& y = graph.tensor(node.out[port]);
    if (y.dim != want)
      return invalid("resample \"{}\": {} \"{}\" has dims {}, but window, stride and padding give {}", node.name,
                     node.op->outputs[port].name, y.name, to_text(y.dim), to_text(want));
    const double last = double(volume(pool.window) - 1);
    if (port == kIndex && round_to_type(y.type, last) != last)
      return invalid("resample \"{}\": Index \"{}\" of type {} cannot hold position {} of a window {}", node.name,
                     y.name, to_string(y.type), last, to_text(pool.window));
  }
  return {};
}

void reference(RefContext& ctx) {
  const Pooling pool = pooling_of(ctx.graph, ctx.node);
  const RefTensor& x = ctx.in(kX);
  const int64_t in = volume(pool.in), out = volume(pool.out), size = volume(pool.window);
  Bounded* const y = ctx.out(kY).values.data();
  Bounded* const index = ctx.has_out(kIndex) ? ctx.out(kIndex).values.data() : nullptr;

  ctx.for_each(pool.planes * out, [&](int64_t i) {
    const int64_t plane = i / out, p = i % out;
    auto value = [&](int64_t position) { return x.at_linear(plane * in + position); };
    if (!pool.max()) {
      BoundedSum sum;
      const int64_t count = for_each_in_window(pool, p, [&](int64_t, int64_t q) { sum.add(value(q)); });
      const int64_t divisor = pool.mode == ResampleMode_t::AVGPOOL_INCLUDE_PADDING ? size : count;
      y[i] = sum.total() / Bounded(double(divisor));
      return;
    }
    Bounded best(-kInfinity);
    int64_t best_w = 0;
    double low = -kInfinity, high = -kInfinity;  // the true maximum lies between
    bool first = true;
    for_each_in_window(pool, p, [&](int64_t w, int64_t q) {
      const Bounded b = value(q);
      if (first || b.v > best.v || (std::isnan(b.v) && !std::isnan(best.v))) best = b, best_w = w;
      first = false;
      low = std::max(low, b.v - b.e), high = std::max(high, b.v + b.e);
    });
    const bool exact = best.e == 0;
    if (std::isfinite(best.v)) best.e = std::max(best.v - low, high - best.v);
    y[i] = best;
    if (!index) return;
    // Uncertain values may have their maximum elsewhere; among certain ones the first maximum is the one.
    double spread = 0;
    for_each_in_window(pool, p, [&](int64_t w, int64_t q) {
      const Bounded b = value(q);
      if (b.v + b.e >= low && !(exact && b.e == 0)) spread = std::max(spread, std::fabs(double(w - best_w)));
    });
    index[i] = Bounded(double(best_w), spread);
  });
}

double flops(const ir::Graph& graph, const ir::Node& node) {
  const Pooling pool = pooling_of(graph, node);
  return double(pool.planes) * double(volume(pool.out)) * double(volume(pool.window));
}

bool wants_index(const AttrMap& attrs, const std::vector<std::string>&) {
  auto generate = attrs.find("generate_index"), mode = attrs.find("resample_mode");
  const bool* on = generate == attrs.end() ? nullptr : std::get_if<bool>(&generate->second);
  const std::string* name = mode == attrs.end() ? nullptr : std::get_if<std::string>(&mode->second);
  return on && *on && name && *name == "MAXPOOL";
}

std::vector<ir::AttrSpec> attrs() {
  std::vector<ir::AttrSpec> list = pooling_attrs();
  list.push_back({"generate_index", ir::AttrKind::Bool, true});
  return list;
}

}  // namespace

extern const ir::OpDef kResample;
const ir::OpDef kResample = {
    .name = "resample",
    .tag = "RESAMPLE",
    .inputs = {{"X"}},
    .outputs = {{"Y"}, {"Index", ir::PortKind::Required, wants_index}},
    .attrs = attrs(),
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .flops = flops,
};

}  // namespace tilewright::ops
