#include "rows.h"

#include <fmt/format.h>

#include <cmath>

#include "words.h"

namespace tilewright::bench {
namespace {

using namespace words;  // NOLINT: the vocabulary

// --- matmul ------------------------------------------------------------------------------------------------------

struct MatmulSize {
  int64_t b, m, n, k;
};
enum class Epilogue { None, ScaleBiasGeluAmax, SeparateAmax };

GraphPtr matmul(const MatmulSize& s, const MatmulSize& whole, Epilogue epilogue, DataType_t type, bool amax = true) {
  auto g = new_graph(type);
  const T a = input(*g, "A", {s.b, s.m, s.k}, row_major({whole.b, whole.m, whole.k}));
  const T b = input(*g, "B", {s.b, s.k, s.n}, row_major({whole.b, whole.k, whole.n}));
  T y = g->matmul(a, b, Matmul_attributes());
  if (epilogue != Epilogue::None) {
    const T bias = input(*g, "bias", {1, 1, s.n}, {s.n, s.n, 1}, kFloat);
    y = g->pointwise(y, g->tensor(0.125f), mode(PointwiseMode_t::MUL));
    y = g->pointwise(y, bias, mode(PointwiseMode_t::ADD));
    y = g->pointwise(y, mode(PointwiseMode_t::GELU_FWD));
    if (amax) {
      T of = y;
      if (epilogue == Epilogue::SeparateAmax) of = g->pointwise(y, mode(PointwiseMode_t::ABS));
      const auto reduce = epilogue == Epilogue::SeparateAmax ? ReductionMode_t::MAX : ReductionMode_t::AMAX;
      output(g->reduction(of, mode(reduce)), "amax", {1, 1, 1}, {1, 1, 1}, kFloat);
    }
  }
  output(y, "Y", {s.b, s.m, s.n}, row_major({whole.b, whole.m, whole.n}));
  return g;
}

Row matmul_row(const char* type_name, DataType_t type, const MatmulSize& s, Epilogue epilogue) {
  Row row;
  row.name = epilogue == Epilogue::None
                 ? fmt::format("matmul/{}/{}", type_name, s.m)
                 : fmt::format("matmul+scale+bias+gelu+amax/{}/{}x{}x{}x{}", type_name, s.b, s.m, s.k, s.n);
  row.type = type;
  row.make = [=](DataType_t t) { return matmul(s, s, epilogue, t); };
  if (epilogue != Epilogue::None)
    row.peer_graph = [=](DataType_t t) { return matmul(s, s, Epilogue::SeparateAmax, t); };
  row.sample = [=](DataType_t t, uint64_t seed) {
    const int64_t b = pick(seed, s.b), m = pick(seed, s.m - 3);
    return Sample{matmul({1, 4, s.n, s.k}, s, epilogue, t, false),
                  {{"A", (b * s.m + m) * s.k}, {"B", b * s.k * s.n}, {"Y", (b * s.m + m) * s.n}}};
  };
  const Against vendor = epilogue == Epilogue::None ? Against::OneDnn : Against::OneDnnSeparate;
  row.peers = {vendor};
  row.target = epilogue == Epilogue::None ? 1.0 : 1.2;
  if (type != kFloat) row.peers = {Against::OwnFloat, vendor}, row.target = 0.8;
  return row;
}

// --- convolution -------------------------------------------------------------------------------------------------

struct ConvSize {
  int64_t n, c, hw, k, r, stride, pad, groups;
  int64_t out() const { return (hw + 2 * pad - r) / stride + 1; }
};

GraphPtr conv_bias_relu(const ConvSize& s, const ConvSize& whole, DataType_t type) {
  auto g = new_graph(type);
  const T x = input(*g, "X", {s.n, s.c, s.hw, s.hw}, channels_last({whole.n, whole.c, whole.hw, whole.hw}));
  const T w =
      input(*g, "W", {s.k, s.c / s.groups, s.r, s.r}, channels_last({whole.k, whole.c / whole.groups, s.r, s.r}));
  const T bias = input(*g, "bias", {1, s.k, 1, 1}, {s.k, 1, 1, 1}, kFloat);
  w->set_is_constant(true), bias->set_is_constant(true);
  const T y = g->conv_fprop(
      x, w, Conv_fprop_attributes().set_padding({s.pad, s.pad}).set_stride({s.stride, s.stride}).set_dilation({1, 1}));
  const T biased = g->pointwise(y, bias, mode(PointwiseMode_t::ADD));
  const T relu = g->pointwise(biased, mode(PointwiseMode_t::RELU_FWD));
  output(relu, "Y", {s.n, s.k, s.out(), s.out()}, channels_last({whole.n, whole.k, whole.out(), whole.out()}));
  return g;
}

Row conv_row(const char* type_name, DataType_t type, const ConvSize& s) {
  Row row;
  row.name = fmt::format("conv+bias+relu/{}/{}x{}x{}-{}_{}x{}{}{}", type_name, s.n, s.c, s.hw, s.k, s.r, s.r,
                         s.stride > 1 ? fmt::format("s{}", s.stride) : "", s.groups > 1 ? "_depthwise" : "");
  row.type = type;
  row.make = [=](DataType_t t) { return conv_bias_relu(s, s, t); };
  row.sample = [=](DataType_t t, uint64_t seed) {  // two channels of one image
    ConvSize part = s;
    part.n = 1, part.k = 2;
    const int64_t n = pick(seed, s.n), k = pick(seed, s.k - 1);
    std::map<std::string, int64_t> at = {{"X", n * s.c * s.hw * s.hw},
                                         {"W", k * s.r * s.r * (s.c / s.groups)},
                                         {"bias", k},
                                         {"Y", n * s.k * s.out() * s.out() + k}};
    if (s.groups > 1) part.c = 2, part.groups = 2, at["X"] += k;
    return Sample{conv_bias_relu(part, s, t), at};
  };
  row.peers = {Against::OneDnn};
  row.target = 0.9;
  if (type != kFloat) row.peers = {Against::OwnFloat, Against::OneDnn}, row.target = 0.8;
  return row;
}

// --- attention ---------------------------------------------------------------------------------------------------

struct AttentionSize {
  int64_t b, h, s, d;
};
float scale_of(const AttentionSize& a) { return 1 / std::sqrt(float(a.d)); }

GraphPtr attention_forward(const AttentionSize& a, const AttentionSize& whole, DataType_t type) {
  auto g = new_graph(type);
  const Ints dim = {a.b, a.h, a.s, a.d}, stride = row_major({whole.b, whole.h, whole.s, whole.d});
  const T q = input(*g, "Q", dim, stride), k = input(*g, "K", dim, stride), v = input(*g, "V", dim, stride);
  auto [o, stats] =
      g->sdpa(q, k, v, SDPA_attributes().set_attn_scale(scale_of(a)).set_causal_mask(true).set_generate_stats(true));
  output(o, "O", dim, stride);
  output(stats, "Stats", {a.b, a.h, a.s, 1}, row_major({whole.b, whole.h, whole.s, 1}), kFloat);
  return g;
}

GraphPtr attention_backward(const AttentionSize& a, const AttentionSize& whole, DataType_t type) {
  auto g = new_graph(type);
  const Ints dim = {a.b, a.h, a.s, a.d}, stride = row_major({whole.b, whole.h, whole.s, whole.d});
  const T q = input(*g, "Q", dim, stride), k = input(*g, "K", dim, stride), v = input(*g, "V", dim, stride);
  const T o = input(*g, "O", dim, stride), d_o = input(*g, "dO", dim, stride);
  const T stats = input(*g, "Stats", {a.b, a.h, a.s, 1}, row_major({whole.b, whole.h, whole.s, 1}), kFloat);
  auto [dq, dk, dv] = g->sdpa_backward(q, k, v, o, d_o, stats,
                                       SDPA_backward_attributes().set_attn_scale(scale_of(a)).set_causal_mask(true));
  output(dq, "dQ", dim, stride), output(dk, "dK", dim, stride), output(dv, "dV", dim, stride);
  return g;
}

// The last two dims exchanged.
T transposed(Graph& g, const T& x) {
  const T y = g.transpose(x, Transpose_attributes().set_permutation({0, 1, 3, 2}));
  y->set_data_type(x->get_data_type());
  return y;
}

// The scores with their mask, scaled: Q K^T / sqrt(d) + mask.
T masked_scores(Graph& g, const AttentionSize& a, const T& q) {
  const Ints dim_t = {a.b, a.h, a.d, a.s}, stride_t = {a.h * a.s * a.d, a.s * a.d, 1, a.d};
  const T k_t = input(g, "K", dim_t, stride_t);
  const T mask = input(g, "mask", {1, 1, a.s, a.s}, row_major({1, 1, a.s, a.s}), kFloat);
  const T scores = g.matmul(q, k_t, Matmul_attributes());
  const T scaled = g.pointwise(scores, g.tensor(scale_of(a)), mode(PointwiseMode_t::MUL));
  return g.pointwise(scaled, mask, mode(PointwiseMode_t::ADD));
}

// oneDNN has no attention: its matmul, softmax, matmul, with a mask of 0 and a very negative number.
GraphPtr attention_forward_steps(const AttentionSize& a, DataType_t type) {
  auto g = new_graph(type);
  const Ints dim = {a.b, a.h, a.s, a.d}, stride = row_major(dim);
  const T q = input(*g, "Q", dim, stride), v = input(*g, "V", dim, stride);
  const T p = g->softmax(masked_scores(*g, a, q), Softmax_attributes().set_axis(3));
  p->set_data_type(type);
  output(g->matmul(p, v, Matmul_attributes()), "O", dim, stride);
  return g;
}

// Its gradients: P is computed again, dV = P^T dO, dS the softmax's gradient of dO V^T, dQ = dS K / sqrt(d), dK = dS^T
// Q / sqrt(d).
GraphPtr attention_backward_steps(const AttentionSize& a, DataType_t type) {
  auto g = new_graph(type);
  const Ints dim = {a.b, a.h, a.s, a.d}, stride = row_major(dim);
  const Ints dim_t = {a.b, a.h, a.d, a.s}, stride_t = {a.h * a.s * a.d, a.s * a.d, 1, a.d}, row = {a.b, a.h, a.s, 1};
  const T q = input(*g, "Q", dim, stride), d_o = input(*g, "dO", dim, stride);
  const T k = input(*g, "K row-major", dim, stride), v_t = input(*g, "V", dim_t, stride_t);
  const T p = g->softmax(masked_scores(*g, a, q), Softmax_attributes().set_axis(3));
  p->set_data_type(type);
  output(g->matmul(transposed(*g, p), d_o, Matmul_attributes()), "dV", dim, stride);
  const T dp = g->matmul(d_o, v_t, Matmul_attributes());
  dp->set_data_type(type);
  const T sum = g->reduction(g->pointwise(dp, p, mode(PointwiseMode_t::MUL)), mode(ReductionMode_t::ADD));
  sum->set_dim(row).set_stride(row_major(row));
  const T ds = g->pointwise(g->pointwise(dp, sum, mode(PointwiseMode_t::SUB)), p, mode(PointwiseMode_t::MUL));
  ds->set_data_type(type);
  const auto gradient = [&](const T& x, const T& y, const char* name) {
    const T product = g->matmul(x, y, Matmul_attributes());
    output(g->pointwise(product, g->tensor(scale_of(a)), mode(PointwiseMode_t::MUL)), name, dim, stride);
  };
  gradient(ds, k, "dQ");
  gradient(transposed(*g, ds), q, "dK");
  return g;
}

Row attention_row(const char* type_name, DataType_t type, const AttentionSize& a, bool forward) {
  Row row;
  row.name =
      fmt::format("attention_{}/{}/b{}h{}s{}d{}", forward ? "forward" : "backward", type_name, a.b, a.h, a.s, a.d);
  row.type = type;
  const auto make = forward ? attention_forward : attention_backward;
  row.make = [=](DataType_t t) { return make(a, a, t); };
  row.peer_graph = [=](DataType_t t) {
    return forward ? attention_forward_steps(a, t) : attention_backward_steps(a, t);
  };
  row.sample = [=](DataType_t t, uint64_t seed) {  // one head
    const int64_t head = pick(seed, a.b * a.h), at = head * a.s * a.d;
    Sample s{make({1, 1, a.s, a.d}, a, t), {{"Stats", head * a.s}}};
    for (const char* name : {"Q", "K", "V", "O", "dO", "dQ", "dK", "dV"}) s.offsets[name] = at;
    return s;
  };
  if (!forward) row.inputs_from = [=](DataType_t t) { return attention_forward(a, a, t); };
  row.fill = [=](const std::string& name, int64_t i, float& value) {
    if (name == "mask") value = i % a.s <= i / a.s ? 0 : -1e30f;
  };
  row.peers = {Against::OneDnn};
  row.target = 3;
  // O(s d) and no more: forward next to nothing, backward a few tensors in FLOAT.
  row.extra_bytes_limit = (forward ? 1.0 : 6.0) * double(a.b * a.h * a.s * a.d) * 4;
  return row;
}

// --- what memory bounds ------------------------------------------------------------------------------------------

struct NormSize {
  int64_t rows, width;
};

enum class Norm { Layer, Rms };

GraphPtr norm_forward(Norm norm, const NormSize& s, DataType_t type) {
  auto g = new_graph(type);
  const Ints dim = {s.rows, s.width, 1, 1}, parameter = {1, s.width, 1, 1}, statistic = {s.rows, 1, 1, 1};
  const T x = input(*g, "X", dim, row_major(dim)), scale = input(*g, "scale", parameter, row_major(parameter), kFloat);
  const T bias = input(*g, "bias", parameter, row_major(parameter), kFloat);
  if (norm == Norm::Layer) {
    auto [y, mean, inv] = g->layernorm(
        x, scale, bias, Layernorm_attributes().set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(1e-5f));
    output(y, "Y", dim, row_major(dim));
    output(mean, "mean", statistic, row_major(statistic), kFloat);
    output(inv, "inv", statistic, row_major(statistic), kFloat);
  } else {
    auto [y, inv] = g->rmsnorm(
        x, scale, Rmsnorm_attributes().set_bias(bias).set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(1e-5f));
    output(y, "Y", dim, row_major(dim));
    output(inv, "inv", statistic, row_major(statistic), kFloat);
  }
  return g;
}

GraphPtr norm_backward(Norm norm, const NormSize& s, DataType_t type) {
  auto g = new_graph(type);
  const Ints dim = {s.rows, s.width, 1, 1}, parameter = {1, s.width, 1, 1}, statistic = {s.rows, 1, 1, 1};
  const T dy = input(*g, "dY", dim, row_major(dim)), x = input(*g, "X", dim, row_major(dim));
  const T scale = input(*g, "scale", parameter, row_major(parameter), kFloat);
  const T inv = input(*g, "inv", statistic, row_major(statistic), kFloat);
  T dx, dscale, dbias;
  if (norm == Norm::Layer) {
    const T mean = input(*g, "mean", statistic, row_major(statistic), kFloat);
    auto all =
        g->layernorm_backward(dy, x, scale, Layernorm_backward_attributes().set_saved_mean_and_inv_variance(mean, inv));
    dx = all[0], dscale = all[1], dbias = all[2];
  } else {
    auto all = g->rmsnorm_backward(dy, x, scale, inv, Rmsnorm_backward_attributes().has_dbias(true));
    dx = all[0], dscale = all[1], dbias = all[2];
  }
  output(dx, "dX", dim, row_major(dim));
  output(dscale, "dscale", parameter, row_major(parameter), kFloat);
  output(dbias, "dbias", parameter, row_major(parameter), kFloat);
  return g;
}

Row norm_row(const char* type_name, DataType_t type, Norm norm, bool forward, const NormSize& s) {
  Row row;
  row.name = fmt::format("{}_{}/{}/{}x{}", norm == Norm::Layer ? "layernorm" : "rmsnorm",
                         forward ? "forward" : "backward", type_name, s.rows, s.width);
  row.type = type;
  const auto make = forward ? norm_forward : norm_backward;
  row.make = [=](DataType_t t) { return make(norm, s, t); };
  if (!forward) row.inputs_from = [=](DataType_t t) { return norm_forward(norm, s, t); };
  row.sample = [=](DataType_t t, uint64_t seed) {
    // Forward: a few rows. Backward: everything, since dscale and dbias are sums over all rows.
    const NormSize part = {forward ? 16 : s.rows, s.width};
    const int64_t first = forward ? pick(seed, s.rows - 15) : 0;
    return Sample{make(norm, part, t),
                  {{"X", first * s.width}, {"Y", first * s.width}, {"mean", first}, {"inv", first}}};
  };
  row.peers = {Against::Copy};
  row.target = 0.9;
  return row;
}

GraphPtr add_gelu(int64_t n, DataType_t type) {
  auto g = new_graph(type);
  const Ints dim = {n / 1024, 1024}, stride = {1024, 1};
  const T x = input(*g, "X", dim, stride), z = input(*g, "Z", dim, stride);
  const T sum = g->pointwise(x, z, mode(PointwiseMode_t::ADD));
  output(g->pointwise(sum, mode(PointwiseMode_t::GELU_FWD)), "Y", dim, stride);
  return g;
}

Row add_gelu_row(const char* type_name, DataType_t type, int64_t n) {
  Row row;
  row.name = fmt::format("add+gelu/{}/{}M", type_name, n >> 20);
  row.type = type;
  row.make = [=](DataType_t t) { return add_gelu(n, t); };
  row.sample = [=](DataType_t t, uint64_t seed) {
    const int64_t part = 1 << 16, at = pick(seed, n / part) * part;
    return Sample{add_gelu(part, t), {{"X", at}, {"Z", at}, {"Y", at}}};
  };
  row.peers = {Against::Copy};
  row.target = type == kFloat ? 0.9 : 0;
  return row;
}

std::vector<Row> make_rows() {
  std::vector<Row> list;
  struct Type {
    const char* name;
    DataType_t type;
  };
  const Type kAll[] = {{"float", kFloat}, {"bfloat16", kBfloat16}, {"half", kHalf}};
  for (const auto& [name, type] : kAll) {
    for (int64_t n : {512, 1024, 2048}) list.push_back(matmul_row(name, type, {1, n, n, n}, Epilogue::None));
    list.push_back(matmul_row(name, type, {16, 512, 512, 1024}, Epilogue::ScaleBiasGeluAmax));
  }
  for (const auto& [name, type] : kAll)
    for (const ConvSize& s : {ConvSize{4, 128, 56, 256, 3, 1, 1, 1}, ConvSize{4, 64, 56, 64, 3, 1, 1, 1},
                              ConvSize{4, 256, 56, 64, 1, 1, 0, 1}, ConvSize{4, 3, 224, 64, 7, 2, 3, 1},
                              ConvSize{4, 256, 28, 256, 3, 1, 1, 256}})
      list.push_back(conv_row(name, type, s));
  for (bool forward : {true, false})
    for (const auto& [name, type] : {kAll[0], kAll[1]})
      list.push_back(attention_row(name, type, {1, 8, 2048, 64}, forward));
  for (Norm norm : {Norm::Layer, Norm::Rms})
    for (bool forward : {true, false}) list.push_back(norm_row("float", kFloat, norm, forward, {4096, 4096}));
  for (const auto& [name, type] : {kAll[0], kAll[1]}) list.push_back(add_gelu_row(name, type, int64_t(64) << 20));
  return list;
}

}  // namespace

const std::vector<Row>& rows() {
  static const std::vector<Row> list = make_rows();
  return list;
}

GraphPtr smallest_graph() {
  auto g = new_graph(kFloat);
  const Ints one = {1, 1, 1};
  const T a = input(*g, "A", one, one), b = input(*g, "B", one, one);
  output(g->pointwise(a, b, mode(PointwiseMode_t::ADD)), "Y", one, one);
  return g;
}

}  // namespace tilewright::bench
