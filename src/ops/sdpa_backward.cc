// SDPA_BWD: the gradients of sdpa from dO, the forward's O and its Stats:
//   P = exp(S - Stats), D = sum_d dO O, dV = (P f)^T dO, dS = P (dO V^T f - D), dQ = scale dS K, dK = scale dS^T Q,
//   dBias = dS summed over the dims that it lacks, dSink = -sum exp(sink - Stats) D;
// f is what dropout multiplied P with. Heads of K and V sum over the query heads that read them. Rows whose Stats are
// -inf, and what the masks exclude, contribute nothing.
#include "ops/attention_common.h"

namespace tilewright::ops {
namespace {

using namespace ir;

Status infer(InferContext& c) {
  for (size_t port : {size_t(kQ), size_t(kK), size_t(kV)})
    if (c.in(port).dim.size() != 4)
      return not_set("{}: {} \"{}\" is {}, expected four dims [batch, heads, sequence, head size]", node_label(c.node),
                     c.node.op->inputs[port].name, c.in(port).name, to_text(c.in(port).dim));
  const AttentionOptions o = attention_options(c.graph, c.node);
  // Each gradient is laid out as what it is the gradient of.
  infer_like(c, kOutDQ, c.in(kQ).dim, c.in(kQ));
  infer_like(c, kOutDK, c.in(kK).dim, c.in(kK));
  infer_like(c, kOutDV, c.in(kV).dim, c.in(kV));
  for (size_t port : {size_t(kOutDBias), size_t(kOutRngDumpBackward), size_t(kOutDSink)}) {
    if (!c.has_out(port)) continue;
    Tensor& t = c.out(port);
    if (t.type == DataType_t::NOT_SET && port != kOutDBias) t.type = DataType_t::FLOAT;
    c.set_dim(t, port == kOutDSink                      ? Dims{1, o.hq, 1, 1}
                 : port == kOutDBias && c.has_in(kBias) ? c.in(kBias).dim
                                                        : o.score_dims());
    c.set_stride(t, row_major_strides(t.dim));
  }
  return {};
}

Status verify(const Graph& g, const Node& n) {
  TW_RETURN_IF_BAD(verify_attention(g, n));
  const AttentionOptions o = attention_options(g, n);
  const Dims out_dims = {o.b, o.hq, o.sq, o.dv};
  TW_RETURN_IF_BAD(expect_dims(g, n, n.in[kO], "O", out_dims));
  TW_RETURN_IF_BAD(expect_dims(g, n, n.in[kDO], "dO", out_dims));
  TW_RETURN_IF_BAD(expect_dims(g, n, n.in[kStatsIn], "Stats", {o.b, o.hq, o.sq, 1}));
  for (const char* key : {"max_total_seq_len_q", "max_total_seq_len_kv"})
    if (n.has_attr(key))
      return not_supported("{}: {} belongs to packed sequences, which are not available in this version", node_label(n),
                           key);
  for (size_t port = 0; port < n.out.size(); ++port) {
    if (n.out[port] == kNone) continue;
    const char* name = n.op->outputs[port].name;
    const Tensor& t = g.tensor(n.out[port]);
    switch (port) {
      case kOutDQ: TW_RETURN_IF_BAD(expect_dims(g, n, n.out[port], name, g.tensor(n.in[kQ]).dim)); break;
      case kOutDK: TW_RETURN_IF_BAD(expect_dims(g, n, n.out[port], name, g.tensor(n.in[kK]).dim)); break;
      case kOutDV: TW_RETURN_IF_BAD(expect_dims(g, n, n.out[port], name, g.tensor(n.in[kV]).dim)); break;
      case kOutDSink: TW_RETURN_IF_BAD(expect_dims(g, n, n.out[port], name, {1, o.hq, 1, 1})); break;
      case kOutRngDumpBackward: TW_RETURN_IF_BAD(expect_dims(g, n, n.out[port], name, o.score_dims())); break;
      default: {
        const auto both = broadcast_dims({t.dim, o.score_dims()});
        if (t.dim.size() != 4 || !both || *both != o.score_dims())
          return invalid("{}: dBias \"{}\" is {}, expected {} or 1 in any of its dims", node_label(n), t.name,
                         to_text(t.dim), to_text(o.score_dims()));
      }
    }
  }
  auto has_out = [&](size_t port) { return port < n.out.size() && n.out[port] != kNone; };
  if (has_out(kOutDSink) && n.in[kSinkToken] == kNone)
    return not_set("{}: DSINK_TOKEN \"{}\" needs SINK_TOKEN", node_label(n), g.tensor(n.out[kOutDSink]).name);
  if (has_out(kOutRngDumpBackward) && !n.has_attr("dropout_probability"))
    return not_set("{}: RNG_DUMP \"{}\" needs dropout by probability", node_label(n),
                   g.tensor(n.out[kOutRngDumpBackward]).name);
  return {};
}

// The rows [first, first + rows) of one batch and query head: P f and dS, element by element.
struct RowBlock {
  int64_t b = 0, h = 0, first = 0, rows = 0;
  std::vector<Bounded> p, ds;  // [rows, skv]
  std::vector<char> kept;
};

void write_rows(RefTensor& out, int64_t first_row, const std::vector<BoundedRow>& rows) {
  const size_t cols = rows.empty() ? 0 : rows[0].v.size();
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t c = 0; c < cols; ++c) out.values[size_t(first_row) * cols + r * cols + c] = rows[r].total(c);
}

class BackwardReference {
 public:
  explicit BackwardReference(RefContext& c)
      : c_(c),
        a_(c),
        o_(a_.o),
        out_(ReferenceAttention::operand(c.in(kO))),
        d_out_(ReferenceAttention::operand(c.in(kDO))) {
    if (c.has_out(kOutDBias)) {
      const Dims& dim = c.out(kOutDBias).dim();
      bias_stride_ = broadcast_strides({dim, row_major_strides(dim)}, o_.score_dims());
      d_bias_.resize(size_t(volume(dim)));
    }
    if (c.has_out(kOutDSink)) d_sink_.resize(size_t(o_.hq));
  }

  void run() {
    // Rows at once: two buffers of at most a million elements.
    const int64_t step = std::clamp<int64_t>((1 << 20) / std::max<int64_t>(o_.skv, 1), 1, std::max<int64_t>(o_.sq, 1));
    RowBlock block;
    for (int64_t b = 0; b < o_.b; ++b) {
      d_k_.assign(size_t(o_.hk * o_.skv), BoundedRow(size_t(o_.dqk)));
      d_v_.assign(size_t(o_.hv * o_.skv), BoundedRow(size_t(o_.dv)));
      for (int64_t h = 0; h < o_.hq; ++h)
        for (int64_t first = 0; first < o_.sq; first += step) {
          block.b = b, block.h = h, block.first = first, block.rows = std::min(step, o_.sq - first);
          const size_t n = size_t(block.rows * o_.skv);
          block.p.assign(n, Bounded()), block.ds.assign(n, Bounded()), block.kept.assign(n, 0);
          c_.for_each(block.rows, [&](int64_t r) { row(block, r); });
          c_.for_each(o_.skv, [&](int64_t j) { column(block, j); });
          if (!d_bias_.empty()) add_bias(block);
          if (!d_sink_.empty()) add_sink(block);
        }
      write_rows(c_.out(kOutDK), b * o_.hk * o_.skv, d_k_);
      write_rows(c_.out(kOutDV), b * o_.hv * o_.skv, d_v_);
    }
    for (size_t i = 0; i < d_bias_.size(); ++i) c_.out(kOutDBias).values[i] = d_bias_[i].total();
    for (size_t h = 0; h < d_sink_.size(); ++h) c_.out(kOutDSink).values[h] = -d_sink_[h].total();
  }

 private:
  int64_t row_index(const RowBlock& block, int64_t r) const {
    return (block.b * o_.hq + block.h) * o_.sq + block.first + r;
  }
  Bounded stats(const RowBlock& block, int64_t r) const { return c_.in(kStatsIn).at_linear(row_index(block, r)); }
  // D of a row.
  Bounded delta(const RowBlock& block, int64_t r) const {
    const int64_t i = block.first + r;
    return bounded_dot(d_out_.values(block.b, block.h, i), d_out_.errors(block.b, block.h, i),
                       out_.values(block.b, block.h, i), out_.errors(block.b, block.h, i), o_.dv);
  }

  void row(RowBlock& block, int64_t r) {
    const int64_t b = block.b, h = block.h, i = block.first + r;
    if (c_.has_out(kOutRngDumpBackward))
      for (int64_t j = 0; j < o_.skv; ++j)
        c_.out(kOutRngDumpBackward).values[size_t(row_index(block, r) * o_.skv + j)] = a_.keep_mask(b, h, i, j);
    std::vector<Bounded> s;
    std::vector<char> kept;
    a_.scores(b, h, i, s, kept);
    const Bounded lse = stats(block, r);
    BoundedRow d_q{size_t(o_.dqk)};
    if (lse.v != -kInfinity) {
      const Bounded d = delta(block, r);
      for (int64_t j = 0; j < o_.skv; ++j) {
        if (!kept[size_t(j)]) continue;
        const size_t at = size_t(r * o_.skv + j);
        const Bounded p = bounded::apply([](double t) { return std::exp(t); }, s[size_t(j)] - lse);
        const Bounded f = a_.dropout_factor(b, h, i, j);
        const int64_t vh = o_.v_head(h), kh = o_.k_head(h);
        const Bounded dp = bounded_dot(d_out_.values(b, h, i), d_out_.errors(b, h, i), a_.v.values(b, vh, j),
                                       a_.v.errors(b, vh, j), o_.dv);
        block.kept[at] = 1;
        block.p[at] = a_.as_factor(p * f);
        block.ds[at] = p * (dp * f - d);
        d_q.add(scaled(block.ds[at]), a_.k.values(b, kh, j), a_.k.errors(b, kh, j));
      }
    }
    for (int64_t d = 0; d < o_.dqk; ++d)
      c_.out(kOutDQ).values[size_t(row_index(block, r) * o_.dqk + d)] = d_q.total(size_t(d));
  }

  Bounded scaled(Bounded ds) const { return a_.as_factor(ds * a_.scale(), a_.scale().v); }

  void column(const RowBlock& block, int64_t j) {
    const int64_t b = block.b, h = block.h;
    BoundedRow& d_k = d_k_[size_t(o_.k_head(h) * o_.skv + j)];
    BoundedRow& d_v = d_v_[size_t(o_.v_head(h) * o_.skv + j)];
    const std::vector<double> k_before = d_k.v, v_before = d_v.v;
    for (int64_t r = 0; r < block.rows; ++r) {
      const size_t at = size_t(r * o_.skv + j);
      if (!block.kept[at]) continue;
      const int64_t i = block.first + r;
      d_v.add(block.p[at], d_out_.values(b, h, i), d_out_.errors(b, h, i));
      d_k.add(scaled(block.ds[at]), a_.q.values(b, h, i), a_.q.errors(b, h, i));
    }
    if (o_.hk != o_.hq) allow_rounding(d_k, k_before);
    if (o_.hv != o_.hq) allow_rounding(d_v, v_before);
  }

  // An engine may keep the gradient of each query head in the narrow type before it adds those that share a head.
  void allow_rounding(BoundedRow& row, const std::vector<double>& before) const {
    for (size_t c = 0; c < before.size(); ++c) row.e[c] += a_.as_factor(Bounded(row.v[c] - before[c])).e;
  }

  // dS as it is kept for dQ and dK.
  void add_bias(const RowBlock& block) {
    for (int64_t r = 0; r < block.rows; ++r)
      for (int64_t j = 0; j < o_.skv; ++j) {
        const size_t at = size_t(r * o_.skv + j);
        const int64_t index[4] = {block.b, block.h, block.first + r, j};
        if (block.kept[at]) d_bias_[size_t(offset_of(bias_stride_, index))].add(a_.as_factor(block.ds[at]));
      }
  }

  void add_sink(const RowBlock& block) {
    const Bounded sink = c_.in(kSinkToken).at_linear(block.h);
    for (int64_t r = 0; r < block.rows; ++r) {
      const Bounded lse = stats(block, r);
      // A row that keeps nothing has no say, whatever its O and dO hold.
      const auto first = block.kept.begin() + r * o_.skv;
      if (lse.v == -kInfinity || std::find(first, first + o_.skv, 1) == first + o_.skv) continue;
      const Bounded p = bounded::apply([](double t) { return std::exp(t); }, sink - lse);
      d_sink_[size_t(block.h)].add(p * delta(block, r));
    }
  }

  RefContext& c_;
  const ReferenceAttention a_;
  const AttentionOptions& o_;
  const ReferenceAttention::Operand out_, d_out_;
  std::vector<BoundedRow> d_k_, d_v_;  // of one batch: [heads, skv]
  Dims bias_stride_;
  std::vector<BoundedSum> d_bias_, d_sink_;
};

void reference(RefContext& c) { BackwardReference(c).run(); }

// Five matrix products: S, dP, dV, dQ, dK.
double flops(const Graph& g, const Node& n) {
  const AttentionOptions o = attention_options(g, n);
  return 2 * visible_pairs(o) * double(3 * o.dqk + 2 * o.dv);
}

}  // namespace

extern const OpDef kSdpaBackward;
const OpDef kSdpaBackward = {
    .name = "sdpa_backward",
    .tag = "SDPA_BWD",
    // Dropout_scale_inv is part of the vocabulary; the gradient does not need it.
    .inputs = attention_inputs({{"O"}, {"dO"}, {"Stats"}, {"Dropout_scale_inv", PortKind::Optional}}),
    .outputs = {{"dQ"},
                {"dK"},
                {"dV"},
                {"dBias", PortKind::Optional},
                {"RNG_DUMP", PortKind::Optional},
                {"DSINK_TOKEN", PortKind::Optional}},
    .attrs = attention_attrs({{"is_deterministic_algorithm", AttrKind::Bool},
                              {"max_total_seq_len_kv", AttrKind::Int},
                              {"max_total_seq_len_q", AttrKind::Int}}),
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .flops = flops,
};

}  // namespace tilewright::ops
