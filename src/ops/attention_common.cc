#include "ops/attention_common.h"

#include "ops/rng.h"

namespace tilewright::ops {

using namespace ir;

std::vector<Port> attention_inputs(std::vector<Port> more) {
  constexpr PortKind kOptional = PortKind::Optional;
  std::vector<Port> ports = {{"Q"},
                             {"K"},
                             {"V"},
                             {"Attn_scale", kOptional},
                             {"Bias", kOptional},
                             {"SEQ_LEN_Q", kOptional},
                             {"SEQ_LEN_KV", kOptional},
                             {"Seed", kOptional},
                             {"Offset", kOptional},
                             {"Dropout_mask", kOptional},
                             {"Dropout_scale", kOptional},
                             {"SINK_TOKEN", kOptional}};
  ports.insert(ports.end(), more.begin(), more.end());
  return ports;
}

std::vector<AttrSpec> attention_attrs(std::vector<AttrSpec> more) {
  std::vector<AttrSpec> attrs = {
      {"alibi_mask", AttrKind::Bool},
      {"attn_scale_value", AttrKind::Float},
      {"diagonal_alignment", AttrKind::Enum, false, is_name_of<DiagonalAlignment_t>},
      {"dropout_probability", AttrKind::Float},
      {"left_bound", AttrKind::Int},
      {"padding_mask", AttrKind::Bool},
      {"right_bound", AttrKind::Int},
  };
  attrs.insert(attrs.end(), more.begin(), more.end());
  return attrs;
}

bool wants_stats(const AttrMap& attrs, const std::vector<std::string>&) {
  auto it = attrs.find("generate_stats");
  const bool* on = it == attrs.end() ? nullptr : std::get_if<bool>(&it->second);
  return on && *on;
}

namespace {

bool has_in(const Node& n, size_t port) { return port < n.in.size() && n.in[port] != kNone; }
const char* port_name(const Node& n, size_t port) { return n.op->inputs[port].name; }

}  // namespace

std::string node_label(const Node& n) { return fmt::format("{} \"{}\"", n.op->name, n.name); }

AttentionOptions attention_options(const Graph& g, const Node& n) {
  AttentionOptions o;
  const Dims &q = g.tensor(n.in[kQ]).dim, &k = g.tensor(n.in[kK]).dim, &v = g.tensor(n.in[kV]).dim;
  o.b = q[0], o.hq = q[1], o.sq = q[2], o.dqk = q[3];
  o.hk = k[1], o.skv = k[2];
  o.hv = v[1], o.dv = v[3];
  o.alibi = n.attr("alibi_mask", false);
  o.padding = n.attr("padding_mask", false);
  o.bottom_right =
      n.attr_enum("diagonal_alignment", DiagonalAlignment_t::TOP_LEFT) == DiagonalAlignment_t::BOTTOM_RIGHT;
  if (n.has_attr("left_bound")) o.left = n.attr<int64_t>("left_bound");
  if (n.has_attr("right_bound")) o.right = n.attr<int64_t>("right_bound");
  if (n.has_attr("attn_scale_value")) o.scale = n.attr<double>("attn_scale_value");
  o.drop_probability = n.attr("dropout_probability", 0.0);
  o.philox = o.drop_probability > 0 && has_in(n, kSeed);
  return o;
}

double visible_pairs(const AttentionOptions& o) {
  const int64_t shift = o.bottom_right ? o.skv - o.sq : 0;
  double pairs = 0;
  for (int64_t i = 0; i < o.sq; ++i) {
    const int64_t end = o.right ? std::clamp<int64_t>(i + *o.right + shift + 1, 0, o.skv) : o.skv;
    const int64_t begin = o.left ? std::clamp<int64_t>(i - *o.left + shift + 1, 0, o.skv) : 0;
    pairs += double(std::max<int64_t>(end - begin, 0));
  }
  return pairs * double(o.b * o.hq);
}

double alibi_slope(int64_t h, int64_t heads) {
  int64_t n = 1;
  while (2 * n <= heads) n *= 2;
  return h < n ? std::exp2(-8.0 * double(h + 1) / double(n)) : std::exp2(-4.0 * double(2 * (h - n) + 1) / double(n));
}

void infer_like(InferContext& c, size_t out_port, const Dims& dim, const Tensor& like) {
  if (!c.has_out(out_port)) return;
  Tensor& t = c.out(out_port);
  c.set_dim(t, dim);
  if (t.dim.size() == dim.size()) c.set_stride(t, strides_like(t.dim, like.stride));
}

Status expect_dims(const Graph& g, const Node& n, TensorId id, const char* port, const Dims& want) {
  const Tensor& t = g.tensor(id);
  if (t.dim == want) return {};
  return invalid("{}: {} \"{}\" is {}, expected {}", node_label(n), port, t.name, to_text(t.dim), to_text(want));
}

namespace {

Status verify_shapes(const Graph& g, const Node& n) {
  for (size_t port : {size_t(kQ), size_t(kK), size_t(kV)}) {
    const Tensor& t = g.tensor(n.in[port]);
    if (t.dim.size() != 4)
      return not_set("{}: {} \"{}\" is {}, expected four dims [batch, heads, sequence, head size]", node_label(n),
                     port_name(n, port), t.name, to_text(t.dim));
    if (!is_float_type(t.type))
      return not_supported("{}: {} \"{}\" is {}, expected a floating-point type", node_label(n), port_name(n, port),
                           t.name, to_string(t.type));
  }
  const Tensor &q = g.tensor(n.in[kQ]), &k = g.tensor(n.in[kK]), &v = g.tensor(n.in[kV]);
  if (k.dim[0] != q.dim[0] || v.dim[0] != q.dim[0])
    return invalid("{}: batch sizes differ: Q \"{}\" {}, K \"{}\" {}, V \"{}\" {}", node_label(n), q.name,
                   to_text(q.dim), k.name, to_text(k.dim), v.name, to_text(v.dim));
  if (k.dim[3] != q.dim[3])
    return invalid("{}: Q \"{}\" {} and K \"{}\" {} must have the same head size (last dim)", node_label(n), q.name,
                   to_text(q.dim), k.name, to_text(k.dim));
  if (k.dim[2] != v.dim[2])
    return invalid("{}: K \"{}\" {} and V \"{}\" {} must have the same sequence length (dim 2)", node_label(n), k.name,
                   to_text(k.dim), v.name, to_text(v.dim));
  for (const auto& [t, port] : {std::pair{&k, "K"}, std::pair{&v, "V"}})
    if (t->dim[1] <= 0 || q.dim[1] % t->dim[1] != 0)
      return not_supported("{}: Q \"{}\" has {} heads, not a multiple of the {} heads of {} \"{}\"", node_label(n),
                           q.name, q.dim[1], t->dim[1], port, t->name);
  return {};
}

Status verify_absent(const Graph& g, const Node& n) {
  auto ragged = [&](TensorId id, const char* port) -> Status {
    if (id == kNone || g.tensor(id).ragged_offset == kNone) return {};
    return not_supported(
        "{}: {} \"{}\" has a ragged offset; packed sequences are not available in this version: pad them and set the "
        "padding mask with sequence lengths",
        node_label(n), port, g.tensor(id).name);
  };
  for (size_t i = 0; i < n.in.size(); ++i) TW_RETURN_IF_BAD(ragged(n.in[i], port_name(n, i)));
  for (size_t i = 0; i < n.out.size(); ++i) TW_RETURN_IF_BAD(ragged(n.out[i], n.op->outputs[i].name));
  return {};
}

Status verify_factor(const Graph& g, const Node& n, size_t port, const Dims& score) {
  if (!has_in(n, port)) return {};
  const Tensor& t = g.tensor(n.in[port]);
  const auto both = broadcast_dims({t.dim, score});
  if (!both || *both != score)
    return invalid("{}: {} \"{}\" is {}, which does not broadcast to the scores {}", node_label(n), port_name(n, port),
                   t.name, to_text(t.dim), to_text(score));
  return {};
}

Status verify_lengths(const Graph& g, const Node& n, const AttentionOptions& o) {
  for (size_t port : {size_t(kSeqLenQ), size_t(kSeqLenKv)}) {
    if (o.padding && !has_in(n, port))
      return not_set("{}: the padding mask needs {}, one length per batch", node_label(n), port_name(n, port));
    if (!has_in(n, port)) continue;
    const Tensor& t = g.tensor(n.in[port]);
    if (!o.padding)
      return not_set("{}: {} \"{}\" is given but the padding mask is not set", node_label(n), port_name(n, port),
                     t.name);
    if ((t.type != DataType_t::INT32 && t.type != DataType_t::INT64) || volume(t.dim) != o.b)
      return invalid("{}: {} \"{}\" is {} {}, expected INT32 {}", node_label(n), port_name(n, port), t.name,
                     to_string(t.type), to_text(t.dim), to_text({o.b, 1, 1, 1}));
  }
  return {};
}

Status verify_bounds(const Node& n, const AttentionOptions& o) {
  if (o.right && *o.right < 0)
    return invalid("{}: right_bound is {}, expected at least 0 (0 keeps the keys up to the diagonal)", node_label(n),
                   *o.right);
  if (o.left && *o.left <= 0)
    return invalid("{}: left_bound is {}, expected at least 1 (the size of the window, diagonal included)",
                   node_label(n), *o.left);
  if (o.alibi && o.right != 0)
    return not_supported(
        "{}: alibi_mask needs a right bound of 0: its bias grows with j - i and would favour keys after the query",
        node_label(n));
  return {};
}

Status verify_dropout(const Graph& g, const Node& n, const AttentionOptions& o) {
  const bool probability = n.has_attr("dropout_probability") && (o.drop_probability != 0 || has_in(n, kSeed));
  const bool custom = has_in(n, kDropoutMask) || has_in(n, kDropoutScale);
  if (probability && custom)
    return not_set("{}: dropout by probability and by a mask at once; give one of them", node_label(n));
  if (o.drop_probability == 1)
    return not_set("{}: dropout_probability is 1, which drops everything; expected 0 <= p < 1", node_label(n));
  if (!(o.drop_probability >= 0 && o.drop_probability < 1))
    return invalid("{}: dropout_probability is {}, expected 0 <= p < 1", node_label(n), o.drop_probability);
  for (size_t port : {size_t(kSeed), size_t(kOffset)}) {
    if (o.drop_probability > 0 && !has_in(n, port))
      return not_set("{}: dropout by probability needs {}", node_label(n), port_name(n, port));
    if (!has_in(n, port)) continue;
    const Tensor& t = g.tensor(n.in[port]);
    if ((t.type != DataType_t::INT32 && t.type != DataType_t::INT64) || volume(t.dim) != 1)
      return invalid("{}: {} \"{}\" is {} {}, expected one INT64 or INT32", node_label(n), port_name(n, port), t.name,
                     to_string(t.type), to_text(t.dim));
  }
  TW_RETURN_IF_BAD(verify_factor(g, n, kDropoutMask, o.score_dims()));
  return verify_factor(g, n, kDropoutScale, o.score_dims());
}

}  // namespace

Status verify_attention(const Graph& g, const Node& n) {
  TW_RETURN_IF_BAD(verify_shapes(g, n));
  TW_RETURN_IF_BAD(verify_absent(g, n));
  const AttentionOptions o = attention_options(g, n);
  if (has_in(n, kAttnScale)) {
    const Tensor& t = g.tensor(n.in[kAttnScale]);
    if (o.scale)
      return not_set("{}: the scale is given twice, as the tensor \"{}\" and as the value {}; give one of them",
                     node_label(n), t.name, *o.scale);
    if (volume(t.dim) != 1)
      return invalid("{}: Attn_scale \"{}\" is {}, expected one element", node_label(n), t.name, to_text(t.dim));
  }
  if (has_in(n, kBias)) {
    const Tensor& t = g.tensor(n.in[kBias]);
    if (t.type == DataType_t::BOOLEAN)
      return not_supported(
          "{}: Bias \"{}\" is BOOLEAN, but a bias is added to the scores; make it 0 where a key is kept and -inf "
          "elsewhere",
          node_label(n), t.name);
    TW_RETURN_IF_BAD(verify_factor(g, n, kBias, o.score_dims()));
  }
  TW_RETURN_IF_BAD(verify_lengths(g, n, o));
  TW_RETURN_IF_BAD(verify_bounds(n, o));
  TW_RETURN_IF_BAD(verify_dropout(g, n, o));
  if (has_in(n, kSinkToken)) TW_RETURN_IF_BAD(expect_dims(g, n, n.in[kSinkToken], "SINK_TOKEN", {1, o.hq, 1, 1}));
  return {};
}

// --- reference -------------------------------------------------------------------------------------------------------

Bounded bounded_dot(const double* a, const double* a_errors, const double* b, const double* b_errors, int64_t n) {
  double v = 0, magnitude = 0, propagated = 0;
  for (int64_t k = 0; k < n; ++k) v += a[k] * b[k];
  for (int64_t k = 0; k < n; ++k) magnitude += std::fabs(a[k] * b[k]);
  if (a_errors || b_errors)
    for (int64_t k = 0; k < n; ++k) {
      const double ae = a_errors ? a_errors[k] : 0, be = b_errors ? b_errors[k] : 0;
      propagated +=
          bounded::product(std::fabs(a[k]), be) + bounded::product(std::fabs(b[k]), ae) + bounded::product(ae, be);
    }
  return sum_of_products(v, magnitude, propagated, n);
}

void BoundedRow::add(Bounded w, const double* x, const double* x_errors) {
  const double a = std::fabs(w.v);
  const size_t n = v.size();
  for (size_t c = 0; c < n; ++c) v[c] += w.v * x[c];
  for (size_t c = 0; c < n; ++c) magnitude[c] += a * std::fabs(x[c]);
  if (w.e > 0)
    for (size_t c = 0; c < n; ++c) e[c] += bounded::product(w.e, std::fabs(x[c]));
  if (x_errors)
    for (size_t c = 0; c < n; ++c) e[c] += bounded::product(a + w.e, x_errors[c]);
  ++terms;
}

ReferenceAttention::Operand ReferenceAttention::operand(const RefTensor& t) {
  Operand p;
  p.data = t.dense();
  p.heads = t.dim()[1], p.rows = t.dim()[2], p.cols = t.dim()[3];
  return p;
}

ReferenceAttention::ReferenceAttention(const RefContext& c)
    : o(attention_options(c.graph, c.node)), q(operand(c.in(kQ))), k(operand(c.in(kK))), v(operand(c.in(kV))), ctx_(c) {
  has_scale_ = o.scale || c.has_in(kAttnScale);
  // The attribute is a float in the vocabulary; a double kept here differs by its rounding.
  if (o.scale) scale_ = Bounded(*o.scale, std::fabs(*o.scale - double(float(*o.scale))));
  else if (c.has_in(kAttnScale)) scale_ = c.in(kAttnScale).at_linear(0);
  len_q_.assign(size_t(o.b), o.sq), len_kv_.assign(size_t(o.b), o.skv);
  if (o.padding)
    for (int64_t b = 0; b < o.b; ++b) {
      len_q_[size_t(b)] = std::clamp<int64_t>(int64_t(c.in(kSeqLenQ).at_linear(b).v), 0, o.sq);
      len_kv_[size_t(b)] = std::clamp<int64_t>(int64_t(c.in(kSeqLenKv).at_linear(b).v), 0, o.skv);
    }
  if (c.has_in(kBias)) bias_.emplace(c.in(kBias), o.score_dims());
  if (c.has_in(kDropoutMask)) drop_mask_.emplace(c.in(kDropoutMask), o.score_dims());
  if (c.has_in(kDropoutScale)) drop_scale_.emplace(c.in(kDropoutScale), o.score_dims());
  if (o.philox) {
    auto key = [&](size_t port) {
      const RefTensor& t = c.in(port);
      return t.memory || t.tensor->value ? key_value(*t.tensor, t.memory) : int64_t(t.at_linear(0).v);
    };
    philox_ = Philox(key(kSeed), key(kOffset));
  }
  for (size_t port : {size_t(kQ), size_t(kK), size_t(kV)}) {
    const DataType_t type = c.in(port).tensor->type;
    if (unit_roundoff(type) <= t_rounding.u) continue;
    factor_u_ = std::max(factor_u_, unit_roundoff(type));
    factor_eta_ = std::max(factor_eta_, smallest_subnormal(type));
  }
}

bool ReferenceAttention::sees(int64_t b, int64_t i, int64_t j) const {
  const int64_t len_q = len_q_[size_t(b)], len_kv = len_kv_[size_t(b)];
  if (i >= len_q || j >= len_kv) return false;
  const int64_t shift = o.bottom_right ? len_kv - len_q : 0;
  if (o.right && j > i + *o.right + shift) return false;
  if (o.left && j <= i - *o.left + shift) return false;
  return true;
}

void ReferenceAttention::scores(int64_t b, int64_t h, int64_t i, std::vector<Bounded>& s,
                                std::vector<char>& kept) const {
  s.assign(size_t(o.skv), Bounded(-kInfinity)), kept.assign(size_t(o.skv), 0);
  const double slope = o.alibi ? alibi_slope(h, o.hq) : 0;
  for (int64_t j = 0; j < o.skv; ++j) {
    if (!sees(b, i, j)) continue;
    Bounded bias;
    if (bias_) {
      const int64_t index[4] = {b, h, i, j};
      bias = bias_->at(index);
      // A bias of -inf excludes its key, as a mask does: a NaN in that key must not reach the result.
      if (bias.v == -kInfinity) continue;
    }
    const int64_t kh = o.k_head(h);
    Bounded x = bounded_dot(q.values(b, h, i), q.errors(b, h, i), k.values(b, kh, j), k.errors(b, kh, j), o.dqk);
    if (has_scale_) x = x * scale_;
    if (bias_) x = x + bias;
    if (o.alibi) x = x + Bounded(slope, t_rounding.u * slope) * Bounded(double(j - i));
    s[size_t(j)] = x, kept[size_t(j)] = 1;
  }
}

double ReferenceAttention::keep_mask(int64_t b, int64_t h, int64_t i, int64_t j) const {
  if (!o.philox) return 1;
  const uint64_t index = uint64_t(((b * o.hq + h) * o.sq + i) * o.skv + j);
  return philox_.keep(index, 1 - o.drop_probability) ? 1 : 0;
}

Bounded ReferenceAttention::dropout_factor(int64_t b, int64_t h, int64_t i, int64_t j) const {
  const double u = t_rounding.u;
  if (o.philox) return keep_mask(b, h, i, j) != 0 ? Bounded(o.keep_scale(), 3 * u * o.keep_scale()) : Bounded(0);
  const int64_t index[4] = {b, h, i, j};
  Bounded f = 1;
  if (drop_mask_) f = drop_mask_->at(index);
  if (drop_scale_) f = f * drop_scale_->at(index);
  return f;
}

Bounded ReferenceAttention::as_factor(Bounded x, double later) const {
  if (factor_u_ > 0) x.e += factor_u_ * (std::fabs(x.v) + x.e) + factor_eta_ * std::max(1.0, std::fabs(later));
  return x;
}

}  // namespace tilewright::ops
