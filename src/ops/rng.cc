// rng: Y filled with numbers that depend on the seed, the offset and the row-major index of the element alone.
// BERNOULLI: 1 with bernoulli_probability, else 0. UNIFORM: in [0, 1). NORMAL: mean 0, variance 1.
#include "ops/rng.h"

#include "ops/reference.h"

namespace tilewright::ops {
namespace {

enum { kSeed, kOffset };

bool present(const ir::Node& node, size_t port) { return port < node.in.size() && node.in[port] != ir::kNone; }

Status infer(ir::InferContext& ctx) {
  ir::Tensor& y = ctx.out(0);
  ctx.set_dim(y, ctx.node.attr<Dims>("dim"));
  if (y.dim.empty())
    return not_set("rng \"{}\": neither Y \"{}\" nor the node has dims; set one of them", ctx.node.name, y.name);
  ctx.set_stride(y, ctx.node.attr<Dims>("stride"));
  ctx.set_stride(y, row_major_strides(y.dim));
  return {};
}

Status verify(const ir::Graph& graph, const ir::Node& node) {
  const RngDistribution_t distribution = node.attr_enum("distribution", RngDistribution_t::NOT_SET);
  if (distribution == RngDistribution_t::NOT_SET) return not_set("rng \"{}\": distribution is not set", node.name);
  if (distribution == RngDistribution_t::BERNOULLI) {
    if (!node.has_attr("bernoulli_probability"))
      return not_set("rng \"{}\": BERNOULLI needs bernoulli_probability", node.name);
    const double p = node.attr<double>("bernoulli_probability");
    if (!(p >= 0 && p <= 1))
      return invalid("rng \"{}\": bernoulli_probability {} is not between 0 and 1", node.name, p);
  }
  const Dims asked = node.attr<Dims>("dim");
  const ir::Tensor& y = graph.tensor(node.out[0]);
  if (!asked.empty() && asked != y.dim)
    return invalid("rng \"{}\": the node's dim {} and Y \"{}\" {} differ", node.name, to_text(asked), y.name,
                   to_text(y.dim));
  if (!present(node, kSeed) && !node.has_attr("seed"))
    return not_set("rng \"{}\": it needs a Seed tensor or the seed attribute", node.name);
  for (size_t port : {size_t(kSeed), size_t(kOffset)}) {
    if (!present(node, port)) continue;
    const ir::Tensor& t = graph.tensor(node.in[port]);
    if (volume(t.dim) != 1 || (t.type != DataType_t::INT32 && t.type != DataType_t::INT64))
      return invalid("rng \"{}\": {} \"{}\" is {} {}, expected one INT32 or INT64 element", node.name,
                     node.op->inputs[port].name, t.name, to_string(t.type), to_text(t.dim));
    if (t.role == ir::Role::Virtual)
      return not_supported("rng \"{}\": {} \"{}\" is computed by the graph itself; pass it as an input", node.name,
                           node.op->inputs[port].name, t.name);
  }
  return {};
}

void reference(RefContext& ctx) {
  auto memory = [&](size_t port) { return ctx.has_in(port) ? ctx.in(port).memory : nullptr; };
  const RngNumbers numbers = rng_numbers(ctx.node, philox_of(ctx.graph, ctx.node, memory(kSeed), memory(kOffset)));
  RefTensor& y = ctx.out(0);
  ctx.for_each(y.volume(), [&](int64_t i) {
    const double v = numbers.at(i);
    // 0, 1 and multiples of 2^-24 are exact; a logarithm, a root and a cosine are not.
    y.values[size_t(i)] =
        numbers.distribution == RngDistribution_t::NORMAL ? bounded::rounded(v, 0, 4 * kFunctionUlps) : Bounded(v);
  });
}

}  // namespace

int64_t key_value(const ir::Tensor& t, const void* memory) {
  if (!t.value) return integer_key(memory, t.type);
  if (const int64_t* v = std::get_if<int64_t>(&*t.value)) return *v;
  return int64_t(ir::scalar_value(*t.value));
}

Philox philox_of(const ir::Graph& graph, const ir::Node& node, const void* seed, const void* offset) {
  return Philox(present(node, kSeed) ? key_value(graph.tensor(node.in[kSeed]), seed) : node.attr<int64_t>("seed"),
                present(node, kOffset) ? key_value(graph.tensor(node.in[kOffset]), offset) : 0);
}

RngNumbers rng_numbers(const ir::Node& node, const Philox& philox) {
  return {philox, node.attr_enum("distribution", RngDistribution_t::BERNOULLI),
          Philox::threshold(node.attr<double>("bernoulli_probability"))};
}

extern const ir::OpDef kRng;
const ir::OpDef kRng = {
    .name = "rng",
    .tag = "RNG",
    .inputs = {{"Seed", ir::PortKind::Optional}, {"Offset", ir::PortKind::Optional}},
    .outputs = {{"Y"}},
    .attrs = {{"distribution", ir::AttrKind::Enum, true, ir::is_name_of<RngDistribution_t>},
              {"dim", ir::AttrKind::Ints},
              {"stride", ir::AttrKind::Ints},
              {"seed", ir::AttrKind::Int},
              {"bernoulli_probability", ir::AttrKind::Float}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
};

}  // namespace tilewright::ops
