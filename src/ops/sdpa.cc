// SDPA: O = P V with P = softmax(scale Q K^T + bias + alibi) over the keys that the masks keep. A row that keeps no key
// gives O = 0, Stats = Max = -inf, Sum_exp = 0, also where there is a sink token.
#include "ops/attention_common.h"

namespace tilewright::ops {
namespace {

using namespace ir;

// O takes [b, hq, sq, dv] packed in the order of Q's strides, so that a program that keeps its heads interleaved
// ([b, s, h, d]) gets its output the same way. (The field's frontend refuses an O without dims.)
Status infer(InferContext& c) {
  for (size_t port : {size_t(kQ), size_t(kK), size_t(kV)})
    if (c.in(port).dim.size() != 4)
      return not_set("{}: {} \"{}\" is {}, expected four dims [batch, heads, sequence, head size]", node_label(c.node),
                     c.node.op->inputs[port].name, c.in(port).name, to_text(c.in(port).dim));
  const AttentionOptions o = attention_options(c.graph, c.node);
  infer_like(c, kOutO, {o.b, o.hq, o.sq, o.dv}, c.in(kQ));
  for (size_t port : {size_t(kOutStats), size_t(kOutMax), size_t(kOutSumExp), size_t(kOutRngDump)}) {
    if (!c.has_out(port)) continue;
    Tensor& t = c.out(port);
    if (t.type == DataType_t::NOT_SET) t.type = DataType_t::FLOAT;
    c.set_dim(t, port == kOutRngDump ? o.score_dims() : Dims{o.b, o.hq, o.sq, 1});
    c.set_stride(t, row_major_strides(t.dim));
  }
  return {};
}

bool has_out(const Node& n, size_t port) { return port < n.out.size() && n.out[port] != kNone; }

Status verify(const Graph& g, const Node& n) {
  for (size_t port : {size_t(kPageTableK), size_t(kPageTableV), size_t(kBlockMask)})
    if (port < n.in.size() && n.in[port] != kNone)
      return not_supported("{}: {} \"{}\" is given; {} are not available in this version: {}", node_label(n),
                           n.op->inputs[port].name, g.tensor(n.in[port]).name,
                           port == kBlockMask ? "block masks" : "paged keys and values",
                           port == kBlockMask ? "put -inf in a bias" : "pass K and V as whole tensors");
  TW_RETURN_IF_BAD(verify_attention(g, n));
  if (n.has_attr("max_seq_len_kv"))
    return not_supported("{}: max_seq_len_kv belongs to paged keys and values, which are not available in this version",
                         node_label(n));
  const AttentionOptions o = attention_options(g, n);
  for (size_t port = 0; port < n.out.size(); ++port) {
    if (!has_out(n, port)) continue;
    const Dims want = port == kOutO         ? Dims{o.b, o.hq, o.sq, o.dv}
                      : port == kOutRngDump ? o.score_dims()
                                            : Dims{o.b, o.hq, o.sq, 1};
    TW_RETURN_IF_BAD(expect_dims(g, n, n.out[port], n.op->outputs[port].name, want));
  }
  if (has_out(n, kOutRngDump) && !n.has_attr("dropout_probability"))
    return not_set("{}: RNG_DUMP \"{}\" needs dropout by probability", node_label(n),
                   g.tensor(n.out[kOutRngDump]).name);
  return {};
}

void reference(RefContext& c) {
  const ReferenceAttention a(c);
  const AttentionOptions& o = a.o;
  auto put = [&](size_t port, int64_t at, Bounded value) {
    if (c.has_out(port)) c.out(port).values[size_t(at)] = value;
  };
  c.for_each(o.b * o.hq * o.sq, [&](int64_t row) {
    const int64_t i = row % o.sq, h = row / o.sq % o.hq, b = row / o.sq / o.hq;
    std::vector<Bounded> s;
    std::vector<char> kept;
    a.scores(b, h, i, s, kept);
    if (c.has_out(kOutRngDump))
      for (int64_t j = 0; j < o.skv; ++j) put(kOutRngDump, row * o.skv + j, a.keep_mask(b, h, i, j));

    double max = -kInfinity, max_error = 0;
    bool any = false, nan = false;
    for (int64_t j = 0; j < o.skv; ++j) {
      if (!kept[size_t(j)]) continue;
      any = true, nan = nan || std::isnan(s[size_t(j)].v);
      max = std::max(max, s[size_t(j)].v), max_error = std::max(max_error, s[size_t(j)].e);
    }
    if (!any || (max == -kInfinity && !nan)) {
      put(kOutStats, row, Bounded(-kInfinity)), put(kOutMax, row, Bounded(-kInfinity)),
          put(kOutSumExp, row, Bounded(0));
      for (int64_t d = 0; d < o.dv; ++d) put(kOutO, row * o.dv + d, Bounded(0));
      return;
    }
    if (nan) max = std::numeric_limits<double>::quiet_NaN();
    Bounded sink;
    if (c.has_in(kSinkToken)) sink = c.in(kSinkToken).at_linear(h), max = nan ? max : std::max(max, sink.v);

    // P does not depend on what is subtracted, so the shift is exact here; only Max and Sum_exp feel its error.
    auto weight = [&](Bounded x) { return bounded::apply([](double t) { return std::exp(t); }, x - Bounded(max)); };
    BoundedSum z_sum;
    for (int64_t j = 0; j < o.skv; ++j)
      if (kept[size_t(j)]) s[size_t(j)] = weight(s[size_t(j)]), z_sum.add(s[size_t(j)]);
    if (c.has_in(kSinkToken)) z_sum.add(weight(sink));
    const Bounded z = z_sum.total();
    BoundedRow out{size_t(o.dv)};
    for (int64_t j = 0; j < o.skv; ++j)
      if (kept[size_t(j)]) {
        const Bounded p = a.as_factor(s[size_t(j)] / z * a.dropout_factor(b, h, i, j));
        out.add(p, a.v.values(b, o.v_head(h), j), a.v.errors(b, o.v_head(h), j));
      }
    for (int64_t d = 0; d < o.dv; ++d) put(kOutO, row * o.dv + d, out.total(size_t(d)));
    // The maximum may be held in base 2, one more rounding of it each way.
    Bounded log_z = bounded::apply([](double t) { return std::log(t); }, z);
    log_z.e += 2 * t_rounding.u * std::fabs(max);
    put(kOutStats, row, log_z + Bounded(max));
    put(kOutMax, row, bounded::rounded(max, std::max(max_error, sink.e), 2));
    // exp(-(the shift's error)) scales the sum.
    put(kOutSumExp, row, z * Bounded(1, std::expm1(max_error + 2 * t_rounding.u * std::fabs(max))));
  });
}

double flops(const Graph& g, const Node& n) {
  const AttentionOptions o = attention_options(g, n);
  return 2 * visible_pairs(o) * double(o.dqk + o.dv);
}

}  // namespace

extern const OpDef kSdpa;
const OpDef kSdpa = {
    .name = "sdpa",
    .tag = "SDPA",
    .inputs = attention_inputs({{"Page_table_K", PortKind::Optional},
                                {"Page_table_V", PortKind::Optional},
                                {"Block_mask", PortKind::Optional}}),
    .outputs = {{"O"},
                {"Stats", PortKind::Required, wants_stats},
                {"Max", PortKind::Optional},
                {"Sum_exp", PortKind::Optional},
                {"RNG_DUMP", PortKind::Optional}},
    .attrs = attention_attrs({{"generate_stats", AttrKind::Bool},
                              {"implementation", AttrKind::Enum, false, is_name_of<AttentionImplementation_t>},
                              {"is_mxfp8", AttrKind::Bool},
                              {"max_seq_len_kv", AttrKind::Int},
                              {"mma_core_mode", AttrKind::Enum, false, is_name_of<DataType_t>},
                              {"rescale_threshold", AttrKind::Float},
                              {"unfuse_fma", AttrKind::Bool}}),
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .flops = flops,
};

}  // namespace tilewright::ops
