#include "gpu_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "words.h"

namespace tilewright::bench {
namespace {

using namespace words;  // NOLINT: the vocabulary

constexpr DataType_t kInt8 = DataType_t::INT8, kInt32 = DataType_t::INT32, kFp8 = DataType_t::FP8_E4M3;

// Where samples begin: the start, the end, and places between.
std::vector<int64_t> places(uint64_t& seed, int64_t extent, int64_t part, int count) {
  std::vector<int64_t> at = {0, extent - part};
  while (int(at.size()) < count) at.push_back(pick(seed, extent - part + 1));
  return at;
}

// TF32 keeps as many bits of a FLOAT as a HALF has; a virtual tensor may or may not be rounded to its type.
T maybe_tf32(Graph& g, const T& x) {
  const T y = g.pointwise(x, mode(PointwiseMode_t::IDENTITY));
  y->set_data_type(kHalf);
  return y;
}

// --- matmul ------------------------------------------------------------------------------------------------------

enum class Epilogue { None, Relu, Gelu, GeluAmax };

struct Matmul {
  int64_t b, m, k, n;
  DataType_t in = kBfloat16, out = kBfloat16;
  Epilogue epilogue = Epilogue::None;
  bool tf32 = false;
};

GraphPtr matmul(const Matmul& s, const Matmul& whole, bool judged = false) {
  auto g = new_graph(s.in);
  if (s.in == kInt8) g->set_intermediate_data_type(kInt32).set_compute_data_type(kInt32);
  T a = input(*g, "A", {s.b, s.m, s.k}, row_major({whole.b, whole.m, whole.k}));
  T b = input(*g, "B", {s.b, s.k, s.n}, row_major({whole.b, whole.k, whole.n}));
  if (s.in == kFp8) b->set_stride({whole.k * whole.n, 1, whole.k});  // the tensor cores' FP8 wants both along the sums
  if (judged && s.tf32) a = maybe_tf32(*g, a), b = maybe_tf32(*g, b);
  T y = g->matmul(a, b, Matmul_attributes());
  if (s.epilogue != Epilogue::None) {
    const T bias = input(*g, "bias", {1, 1, s.n}, {whole.n, whole.n, 1});
    y = g->pointwise(y, g->tensor(0.125f), mode(PointwiseMode_t::MUL));
    y = g->pointwise(y, bias, mode(PointwiseMode_t::ADD));
    y = g->pointwise(y, mode(s.epilogue == Epilogue::Relu ? PointwiseMode_t::RELU_FWD : PointwiseMode_t::GELU_FWD));
    if (s.epilogue == Epilogue::GeluAmax)
      output(g->reduction(y, mode(ReductionMode_t::AMAX)), "amax", {1, 1, 1}, {1, 1, 1}, kFloat);
  }
  output(y, "Y", {s.b, s.m, s.n}, row_major({whole.b, whole.m, whole.n}), s.out);
  return g;
}

Sample matmul_sample(const Matmul& s, Matmul part, int64_t b, int64_t m, int64_t n) {
  part.b = 1, part.k = s.k;
  const int64_t b_at = b * s.k * s.n + (s.in == kFp8 ? n * s.k : n);
  return {matmul(part, s, true),
          {{"A", (b * s.m + m) * s.k}, {"B", b_at}, {"bias", n}, {"Y", (b * s.m + m) * s.n + n}}};
}

GpuRow matmul_row(const std::string& family, const Matmul& s) {
  GpuRow row;
  row.name = s.b == 1 ? fmt::format("{}/{}x{}x{}", family, s.m, s.k, s.n)
                      : fmt::format("{}/{}x{}x{}x{}", family, s.b, s.m, s.k, s.n);
  row.make = [=] { return matmul(s, s); };
  row.flops = 2.0 * double(s.b) * double(s.m) * double(s.n) * double(s.k);
  const int64_t loud_b = s.b / 2, loud_m = s.m / 3;
  if (s.epilogue == Epilogue::GeluAmax)  // the largest value of all is in a row that is eight times as large
    for (int64_t i = 0; i < s.k; ++i)
      row.planted.push_back({"A", (loud_b * s.m + loud_m) * s.k + i, i % 2 ? 8.0 : -8.0});
  row.samples = [=](uint64_t seed) {
    Matmul part = s;
    part.m = std::min<int64_t>(s.m, 4), part.n = std::min<int64_t>(s.n, 8);
    if (part.epilogue == Epilogue::GeluAmax) part.epilogue = Epilogue::Gelu;
    std::vector<Sample> list;
    const auto rows = places(seed, s.m, part.m, 16), columns = places(seed, s.n, part.n, 16);
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t b = i == 0 ? 0 : i == 1 ? s.b - 1 : pick(seed, s.b);
      list.push_back(matmul_sample(s, part, b, rows[i], columns[i]));
    }
    if (s.epilogue == Epilogue::GeluAmax) {
      part = s, part.m = 1;
      list.push_back(matmul_sample(s, part, loud_b, loud_m, 0));
    }
    return list;
  };
  return row;
}

// --- convolutions ------------------------------------------------------------------------------------------------

struct Conv {
  int64_t n, c, hw, k, r, stride = 1, pad = 1, groups = 1;
  int dims = 2;  // spatial
  DataType_t type = kBfloat16;
  bool epilogue = false;
  int64_t out() const { return (hw + 2 * pad - r) / stride + 1; }
  Ints x(int64_t images, int64_t channels) const { return with(images, channels, hw); }
  Ints y(int64_t images, int64_t channels) const { return with(images, channels, out()); }
  Ints w(int64_t filters, int64_t channels) const { return with(filters, channels, r); }
  Ints with(int64_t first, int64_t channels, int64_t size) const {
    Ints dim(size_t(dims) + 2, size);
    dim[0] = first, dim[1] = channels;
    return dim;
  }
  int64_t pixels(int64_t size) const { return dims == 3 ? size * size * size : size * size; }
  double flops() const { return 2.0 * double(n * k * pixels(out())) * double(c / groups) * double(pixels(r)); }
};

template <class Attributes>
Attributes conv_attributes(const Conv& s) {
  return Attributes()
      .set_padding(Ints(size_t(s.dims), s.pad))
      .set_stride(Ints(size_t(s.dims), s.stride))
      .set_dilation(Ints(size_t(s.dims), 1));
}

// A part of it: other images and channels, of tensors laid out for the whole.
struct ConvTensors {
  const Conv &s, &whole;
  T x(Graph& g) const { return input(g, "X", s.x(s.n, s.c), channels_last(whole.x(whole.n, whole.c))); }
  T y(Graph& g) const { return input(g, "dY", s.y(s.n, s.k), channels_last(whole.y(whole.n, whole.k))); }
  T w(Graph& g) const {
    return input(g, "W", s.w(s.k, s.c / s.groups), channels_last(whole.w(whole.k, whole.c / whole.groups)));
  }
};

GraphPtr conv_forward(const Conv& s, const Conv& whole, bool judged) {
  auto g = new_graph(s.type);
  T x = ConvTensors{s, whole}.x(*g), w = ConvTensors{s, whole}.w(*g);
  if (judged && s.type == kFloat) x = maybe_tf32(*g, x), w = maybe_tf32(*g, w);
  T y = g->conv_fprop(x, w, conv_attributes<Conv_fprop_attributes>(s));
  if (s.epilogue) {
    const Ints dim = s.with(1, s.k, 1);
    y = g->pointwise(y, input(*g, "bias", dim, channels_last(s.with(1, whole.k, 1))), mode(PointwiseMode_t::ADD));
    y = g->pointwise(y, mode(PointwiseMode_t::RELU_FWD));
  }
  output(y, "Y", s.y(s.n, s.k), channels_last(whole.y(whole.n, whole.k)));
  return g;
}

GraphPtr conv_data_gradient(const Conv& s, const Conv& whole) {
  auto g = new_graph(s.type);
  const ConvTensors t{s, whole};
  const T dx = g->conv_dgrad(t.y(*g), t.w(*g), conv_attributes<Conv_dgrad_attributes>(s));
  output(dx, "dX", s.x(s.n, s.c), channels_last(whole.x(whole.n, whole.c)));
  return g;
}

GraphPtr conv_filter_gradient(const Conv& s, const Conv& whole) {
  auto g = new_graph(s.type);
  const ConvTensors t{s, whole};
  const T dw = g->conv_wgrad(t.y(*g), t.x(*g), conv_attributes<Conv_wgrad_attributes>(s));
  output(dw, "dW", s.w(s.k, s.c / s.groups), channels_last(whole.w(whole.k, whole.c / whole.groups)));
  return g;
}

enum class Direction { Forward, DataGradient, FilterGradient };

GraphPtr conv_graph(Direction d, const Conv& s, const Conv& whole, bool judged = false) {
  return d == Direction::Forward        ? conv_forward(s, whole, judged)
         : d == Direction::DataGradient ? conv_data_gradient(s, whole)
                                        : conv_filter_gradient(s, whole);
}

// Forward: two channels of an image. Data gradient: the same of X. Filter gradient: two channels of two filters.
std::vector<Sample> conv_samples(Direction d, const Conv& s, uint64_t seed) {
  const bool by_input = d == Direction::DataGradient, by_filter = d == Direction::FilterGradient;
  const int64_t per_group = s.c / s.groups, filters = s.k / s.groups;
  Conv part = s;
  if (!by_filter) part.n = 1;
  part.groups = 1;
  part.k = by_input ? s.k : std::min<int64_t>(filters, s.dims == 3 ? 1 : 2);
  part.c = by_input || by_filter ? std::min<int64_t>(per_group, 2) : per_group;
  std::vector<Sample> list;
  const auto images = places(seed, s.n, 1, 3), groups = places(seed, s.groups, 1, 3);
  const auto k_at = places(seed, filters, std::min(part.k, filters), 3), c_at = places(seed, per_group, part.c, 3);
  for (size_t i = 0; i < images.size(); ++i) {
    const int64_t n = by_filter ? 0 : images[i];
    const int64_t k = by_input ? 0 : groups[i] * filters + k_at[i], c = c_at[i];  // c: within the group
    const int64_t x = n * s.c * s.pixels(s.hw) + groups[i] * per_group + c;
    const int64_t y = n * s.k * s.pixels(s.out()) + k, w = k * per_group * s.pixels(s.r) + c;
    list.push_back(
        {conv_graph(d, part, s, true), {{"X", x}, {"dX", x}, {"Y", y}, {"dY", y}, {"W", w}, {"dW", w}, {"bias", k}}});
  }
  return list;
}

GpuRow conv_row(const std::string& family, Direction d, const Conv& s) {
  GpuRow row;
  const char* kind = s.groups == s.c ? "_depthwise" : "";
  row.name = fmt::format("{}/{}x{}x{}-{}_{}x{}{}{}{}", family, s.n, s.c, s.hw, s.k, s.r, s.r,
                         s.dims == 3 ? fmt::format("x{}", s.r) : "", s.stride > 1 ? fmt::format("s{}", s.stride) : "",
                         s.groups > 1 && s.groups < s.c ? fmt::format("_{}groups", s.groups) : kind);
  row.make = [=] { return conv_graph(d, s, s); };
  row.samples = [=](uint64_t seed) { return conv_samples(d, s, seed); };
  row.flops = s.groups == s.c ? 0 : s.flops();
  return row;
}

// --- attention ---------------------------------------------------------------------------------------------------

struct Attention {
  int64_t b, hq, hkv, sq, skv, d;
  bool causal = true;
};

// q: [b, hq, sq, d]; k and v: [b, hkv, skv, d]; the strides of the whole.
struct AttentionTensors {
  const Attention &s, &whole;
  Ints q_dim() const { return {s.b, s.hq, s.sq, s.d}; }
  Ints q_stride() const { return row_major({whole.b, whole.hq, whole.sq, whole.d}); }
  Ints kv_dim() const { return {s.b, s.hkv, s.skv, s.d}; }
  Ints kv_stride() const { return row_major({whole.b, whole.hkv, whole.skv, whole.d}); }
  Ints stats_dim() const { return {s.b, s.hq, s.sq, 1}; }
  Ints stats_stride() const { return row_major({whole.b, whole.hq, whole.sq, 1}); }
};

// Queries of the end and of the start of the keys, where a part has fewer of one than of the other.
template <class Attributes>
Attributes attention_attributes(const Attention& s) {
  Attributes a = Attributes().set_attn_scale(float(1 / std::sqrt(double(s.d))));
  if (s.causal && s.sq > s.skv) a.set_causal_mask(true);
  else if (s.causal && s.sq < s.skv) a.set_causal_mask_bottom_right(true);
  else a.set_causal_mask(s.causal);
  return a;
}

GraphPtr attention_forward(const Attention& s, const Attention& whole, bool stats) {
  auto g = new_graph(kBfloat16);
  const AttentionTensors t{s, whole};
  const T q = input(*g, "Q", t.q_dim(), t.q_stride()), k = input(*g, "K", t.kv_dim(), t.kv_stride());
  const T v = input(*g, "V", t.kv_dim(), t.kv_stride());
  auto [o, made] = g->sdpa(q, k, v, attention_attributes<SDPA_attributes>(s).set_generate_stats(stats));
  output(o, "O", t.q_dim(), t.q_stride());
  if (stats) output(made, "Stats", t.stats_dim(), t.stats_stride(), kFloat);
  return g;
}

// Of a part of the queries only dQ is the whole's, of a part of the keys only dK and dV.
enum class Gradients { All, Queries, Keys };

GraphPtr attention_backward(const Attention& s, const Attention& whole, Gradients judged = Gradients::All) {
  auto g = new_graph(kBfloat16);
  const AttentionTensors t{s, whole};
  const T q = input(*g, "Q", t.q_dim(), t.q_stride()), k = input(*g, "K", t.kv_dim(), t.kv_stride());
  const T v = input(*g, "V", t.kv_dim(), t.kv_stride()), o = input(*g, "O", t.q_dim(), t.q_stride());
  const T d_o = input(*g, "dO", t.q_dim(), t.q_stride());
  const T stats = input(*g, "Stats", t.stats_dim(), t.stats_stride(), kFloat);
  auto [dq, dk, dv] = g->sdpa_backward(q, k, v, o, d_o, stats, attention_attributes<SDPA_backward_attributes>(s));
  const bool queries = judged != Gradients::Keys, keys = judged != Gradients::Queries;
  output(dq, queries ? "dQ" : "part of dQ", t.q_dim(), t.q_stride());
  output(dk, keys ? "dK" : "part of dK", t.kv_dim(), t.kv_stride());
  output(dv, keys ? "dV" : "part of dV", t.kv_dim(), t.kv_stride());
  return g;
}

// Where head h of batch b begins that has `first` as its first row.
std::map<std::string, int64_t> attention_offsets(const Attention& s, int64_t b, int64_t h, int64_t first_query,
                                                 int64_t first_key) {
  const int64_t q_row = (b * s.hq + h) * s.sq + first_query;
  const int64_t kv_row = (b * s.hkv + h / (s.hq / s.hkv)) * s.skv + first_key;
  std::map<std::string, int64_t> at = {{"Stats", q_row}};
  for (const char* name : {"Q", "O", "dO", "dQ"}) at[name] = q_row * s.d;
  for (const char* name : {"K", "V", "dK", "dV"}) at[name] = kv_row * s.d;
  return at;
}

// A few queries of one head, with the keys that they see.
Attention of_queries(const Attention& s, int64_t first, int64_t rows) {
  return {1, 1, 1, rows, s.causal ? first + rows + s.skv - s.sq : s.skv, s.d, s.causal};
}

std::vector<Sample> attention_samples(const Attention& s, uint64_t seed, bool backward) {
  const int64_t rows = std::min<int64_t>(s.sq, 4), keys = std::min<int64_t>(s.skv, 4);
  std::vector<Sample> list;
  const int count = backward ? 3 : 8;
  const auto heads = places(seed, s.b * s.hq, 1, count), queries = places(seed, s.sq, rows, count);
  for (size_t i = 0; i < heads.size(); ++i) {
    const int64_t b = heads[i] / s.hq, h = heads[i] % s.hq;
    const Attention part = of_queries(s, queries[i], rows);
    list.push_back({backward ? attention_backward(part, s, Gradients::Queries) : attention_forward(part, s, false),
                    attention_offsets(s, b, h, queries[i], 0)});
  }
  if (!backward) return list;
  for (int64_t key : places(seed, s.skv, keys, count)) {  // a few keys, with the queries that see them
    const int64_t b = pick(seed, s.b), h = pick(seed, s.hq), first = s.causal ? key : 0;
    const Attention part = {1, 1, 1, s.sq - first, keys, s.d, s.causal};
    list.push_back({attention_backward(part, s, Gradients::Keys), attention_offsets(s, b, h, first, key)});
  }
  return list;
}

GpuRow attention_row(const std::string& family, const Attention& s, bool backward = false) {
  GpuRow row;
  const std::string heads = s.hq == s.hkv ? fmt::format("h{}", s.hq) : fmt::format("hq{}hkv{}", s.hq, s.hkv);
  const bool decode = s.sq == 1;
  row.name = fmt::format("{}/b{}{}s{}d{}{}", family, s.b, heads, s.skv, s.d,
                         decode     ? ""
                         : s.causal ? "_causal"
                                    : "_full");
  row.make = [=] { return backward ? attention_backward(s, s) : attention_forward(s, s, false); };
  row.samples = [=](uint64_t seed) { return attention_samples(s, seed, backward); };
  if (backward) row.inputs_from = [=] { return attention_forward(s, s, true); };
  // Two products forward and five backward; a causal mask leaves half.
  if (!decode)
    row.flops =
        (backward ? 10.0 : 4.0) * double(s.b * s.hq) * double(s.sq) * double(s.skv * s.d) * (s.causal ? 0.5 : 1);
  return row;
}

struct Matrix {
  int64_t rows, columns;
};

// A row whose every part, `rows` by `columns` from a corner on, is computed from the same part of its inputs.
GpuRow by_parts(const std::string& name, const Matrix& whole, const Matrix& part,
                const std::function<Sample(const Matrix& part, int64_t row, int64_t column)>& make) {
  GpuRow row;
  row.name = name;
  row.make = [=] { return make(whole, 0, 0).graph; };
  row.samples = [=](uint64_t seed) {
    const Matrix fits = {std::min(part.rows, whole.rows), std::min(part.columns, whole.columns)};
    std::vector<Sample> list;
    const auto rows = places(seed, whole.rows, fits.rows, 4), columns = places(seed, whole.columns, fits.columns, 4);
    for (size_t i = 0; i < rows.size(); ++i) list.push_back(make(fits, rows[i], columns[i]));
    return list;
  };
  return row;
}

// --- norms -------------------------------------------------------------------------------------------------------

enum class Norm { Layer, Rms };

struct NormSize {
  int64_t rows, width;
  Norm norm = Norm::Layer;
  DataType_t scale = kBfloat16;
};

struct NormTensors {
  const NormSize &s, &whole;
  Ints dim() const { return {s.rows, s.width, 1, 1}; }
  Ints stride() const { return channels_last({whole.rows, whole.width, 1, 1}); }
  Ints parameter_dim() const { return {1, s.width, 1, 1}; }
  Ints parameter_stride() const { return channels_last({1, whole.width, 1, 1}); }
  Ints statistic_dim() const { return {s.rows, 1, 1, 1}; }
  T data(Graph& g, const char* name) const { return input(g, name, dim(), stride()); }
  T parameter(Graph& g, const char* name) const { return input(g, name, parameter_dim(), parameter_stride(), s.scale); }
  T statistic(Graph& g, const char* name) const {
    return input(g, name, statistic_dim(), channels_last(statistic_dim()), kFloat);
  }
  void made(const T& t, const char* name) const {
    output(t, name, statistic_dim(), channels_last(statistic_dim()), kFloat);
  }
};

GraphPtr norm_forward(const NormSize& s, const NormSize& whole) {
  auto g = new_graph(kBfloat16);
  const NormTensors t{s, whole};
  const T x = t.data(*g, "X"), scale = t.parameter(*g, "scale");
  T epsilon = g->tensor(1e-5f);
  if (s.norm == Norm::Layer) {
    auto [y, mean, inv] =
        g->layernorm(x, scale, t.parameter(*g, "bias"),
                     Layernorm_attributes().set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(epsilon));
    output(y, "Y", t.dim(), t.stride());
    t.made(mean, "mean"), t.made(inv, "inv");
  } else {
    auto [y, inv] =
        g->rmsnorm(x, scale, Rmsnorm_attributes().set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(epsilon));
    output(y, "Y", t.dim(), t.stride());
    t.made(inv, "inv");
  }
  return g;
}

enum class NormGradients { All, Data, Parameters };

// Of a part of the rows only dX is the whole's, of a part of the columns only the gradients of scale and bias.
GraphPtr norm_backward(const NormSize& s, const NormSize& whole, NormGradients judged = NormGradients::All) {
  auto g = new_graph(kBfloat16);
  const NormTensors t{s, whole};
  const T dy = t.data(*g, "dY"), x = t.data(*g, "X"), scale = t.parameter(*g, "scale");
  std::array<T, 3> made;
  if (s.norm == Norm::Layer) {
    const T mean = t.statistic(*g, "mean"), inv = t.statistic(*g, "inv");
    made =
        g->layernorm_backward(dy, x, scale, Layernorm_backward_attributes().set_saved_mean_and_inv_variance(mean, inv));
  } else {
    made = g->rmsnorm_backward(dy, x, scale, t.statistic(*g, "inv"), Rmsnorm_backward_attributes().has_dbias(false));
  }
  const bool data = judged != NormGradients::Parameters, parameters = judged != NormGradients::Data;
  output(made[0], data ? "dX" : "part of dX", t.dim(), t.stride());
  output(made[1], parameters ? "dscale" : "part of dscale", t.parameter_dim(), t.parameter_stride(), s.scale);
  if (made[2])
    output(made[2], parameters ? "dbias" : "part of dbias", t.parameter_dim(), t.parameter_stride(), s.scale);
  return g;
}

std::vector<Sample> norm_samples(const NormSize& s, uint64_t seed, bool backward) {
  std::vector<Sample> list;
  NormSize part = s;
  part.rows = std::min<int64_t>(s.rows, 4);
  for (const int64_t first : places(seed, s.rows, part.rows, 4)) {
    Sample sample{backward ? norm_backward(part, s, NormGradients::Data) : norm_forward(part, s), {}};
    for (const char* name : {"X", "Y", "dX", "dY"}) sample.offsets[name] = first * s.width;
    for (const char* name : {"mean", "inv"}) sample.offsets[name] = first;
    list.push_back(std::move(sample));
  }
  if (!backward) return list;
  part = s, part.width = std::min<int64_t>(s.width, 4);
  for (const int64_t first : places(seed, s.width, part.width, 3)) {
    Sample sample{norm_backward(part, s, NormGradients::Parameters), {}};
    for (const char* name : {"X", "dY", "scale", "dscale", "dbias"}) sample.offsets[name] = first;
    list.push_back(std::move(sample));
  }
  return list;
}

GpuRow norm_row(const NormSize& s, bool backward) {
  GpuRow row;
  row.name = fmt::format("{}_{}/{}x{}{}", s.norm == Norm::Layer ? "layernorm" : "rmsnorm",
                         backward ? "backward" : "forward", s.rows, s.width, s.scale == kFloat ? "_scale_float" : "");
  row.make = [=] { return backward ? norm_backward(s, s) : norm_forward(s, s); };
  row.samples = [=](uint64_t seed) { return norm_samples(s, seed, backward); };
  return row;
}

GraphPtr batchnorm(const Conv& s, const Conv& whole) {
  auto g = new_graph(kBfloat16);
  const Ints parameter = {1, s.c, 1, 1}, stride = channels_last({1, whole.c, 1, 1});
  const T x = ConvTensors{s, whole}.x(*g);
  const T scale = input(*g, "scale", parameter, stride, kFloat), bias = input(*g, "bias", parameter, stride, kFloat);
  T epsilon = g->tensor(1e-5f);
  auto made = g->batchnorm(x, scale, bias, Batchnorm_attributes().set_epsilon(epsilon));
  output(made[1], "mean", parameter, stride, kFloat), output(made[2], "inv", parameter, stride, kFloat);
  const T y = g->pointwise(made[0], mode(PointwiseMode_t::RELU_FWD));
  output(y, "Y", s.x(s.n, s.c), channels_last(whole.x(whole.n, whole.c)));
  return g;
}

GpuRow batchnorm_row(const Conv& s) {
  GpuRow row;
  row.name = fmt::format("batchnorm+relu/{}x{}x{}", s.n, s.c, s.hw);
  row.make = [=] { return batchnorm(s, s); };
  row.samples = [=](uint64_t seed) {
    Conv part = s;
    part.c = std::min<int64_t>(s.c, 2);
    std::vector<Sample> list;
    for (const int64_t c : places(seed, s.c, part.c, 3)) {
      Sample sample{batchnorm(part, s), {}};
      for (const char* name : {"X", "Y", "scale", "bias", "mean", "inv"}) sample.offsets[name] = c;
      list.push_back(std::move(sample));
    }
    return list;
  };
  return row;
}

GraphPtr instancenorm(const Conv& s, const Conv& whole) {
  auto g = new_graph(kBfloat16);
  const Ints parameter = {1, s.c, 1, 1}, statistic = {s.n, s.c, 1, 1};
  const T x = ConvTensors{s, whole}.x(*g);
  const T scale = input(*g, "scale", parameter, channels_last({1, whole.c, 1, 1}), kFloat);
  const T bias = input(*g, "bias", parameter, channels_last({1, whole.c, 1, 1}), kFloat);
  T epsilon = g->tensor(1e-5f);
  auto [y, mean, inv] = g->instancenorm(
      x, scale, bias, Instancenorm_attributes().set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(epsilon));
  output(y, "Y", s.x(s.n, s.c), channels_last(whole.x(whole.n, whole.c)));
  const Ints stride = channels_last({whole.n, whole.c, 1, 1});
  output(mean, "mean", statistic, stride, kFloat), output(inv, "inv", statistic, stride, kFloat);
  return g;
}

GpuRow instancenorm_row(const Conv& s) {
  GpuRow row;
  row.name = fmt::format("instancenorm/{}x{}x{}", s.n, s.c, s.hw);
  row.make = [=] { return instancenorm(s, s); };
  row.samples = [=](uint64_t seed) {
    Conv part = s;
    part.n = 1, part.c = std::min<int64_t>(s.c, 4);
    std::vector<Sample> list;
    const auto images = places(seed, s.n, 1, 3);
    for (size_t i = 0; i < images.size(); ++i) {
      const int64_t c = places(seed, s.c, part.c, 3)[i], x = images[i] * s.c * s.pixels(s.hw) + c;
      Sample sample{instancenorm(part, s), {{"X", x}, {"Y", x}, {"scale", c}, {"bias", c}}};
      for (const char* name : {"mean", "inv"}) sample.offsets[name] = images[i] * s.c + c;
      list.push_back(std::move(sample));
    }
    return list;
  };
  return row;
}

// Sums and sums of squares by channel.
GpuRow genstats_row(const Conv& s) {
  return by_parts(fmt::format("genstats/{}x{}x{}", s.n, s.c, s.hw), {s.n, s.c}, {s.n, 2},
                  [=](const Matrix& part, int64_t, int64_t c) {
                    auto g = new_graph(kBfloat16);
                    const Ints dim = {1, part.columns, 1, 1}, stride = channels_last({1, s.c, 1, 1});
                    const T x = input(*g, "X", s.x(s.n, part.columns), channels_last(s.x(s.n, s.c)));
                    auto [sum, squares] = g->genstats(x, Genstats_attributes());
                    output(sum, "sum", dim, stride, kFloat), output(squares, "squares", dim, stride, kFloat);
                    return Sample{g, {{"X", c}, {"sum", c}, {"squares", c}}};
                  });
}

// --- what memory bounds ------------------------------------------------------------------------------------------

template <class G>
T written_softmax(G& g, const T& x) {
  const T shifted = g.pointwise(x, g.reduction(x, mode(ReductionMode_t::MAX)), mode(PointwiseMode_t::SUB));
  const T e = g.pointwise(shifted, mode(PointwiseMode_t::EXP));
  return g.pointwise(e, g.reduction(e, mode(ReductionMode_t::ADD)), mode(PointwiseMode_t::DIV));
}

// NVIDIA's front end has it inside attention only: there it is spelled out.
template <class G, class Attributes = Softmax_attributes>
T softmax(G& g, const T& x) {
  if constexpr (requires { g.softmax(x, Attributes().set_axis(2)); }) {
    return g.softmax(x, Attributes().set_axis(2));
  } else {
    return written_softmax(g, x);
  }
}

// As its decomposition has it, without its op: `written`.
GpuRow softmax_row(const Matrix& s, bool written) {
  return by_parts(fmt::format("softmax{}/{}x{}", written ? "_written" : "", s.rows, s.columns), s, {4, s.columns},
                  [=](const Matrix& part, int64_t row, int64_t) {
                    auto g = new_graph(kBfloat16);
                    const Ints dim = {1, part.rows, s.columns}, stride = row_major({1, s.rows, s.columns});
                    const T x = input(*g, "X", dim, stride);
                    output(written ? written_softmax(*g, x) : softmax(*g, x), "Y", dim, stride);
                    return Sample{g, {{"X", row * s.columns}, {"Y", row * s.columns}}};
                  });
}

GpuRow add_gelu_row(const Matrix& s) {
  return by_parts(fmt::format("add+gelu/{}x{}", s.rows, s.columns), s, {64, 64},
                  [=](const Matrix& part, int64_t row, int64_t column) {
                    auto g = new_graph(kBfloat16);
                    const Ints dim = {1, part.rows, part.columns}, stride = row_major({1, s.rows, s.columns});
                    const T x = input(*g, "X", dim, stride), z = input(*g, "Z", dim, stride);
                    const T sum = g->pointwise(x, z, mode(PointwiseMode_t::ADD));
                    output(g->pointwise(sum, mode(PointwiseMode_t::GELU_FWD)), "Y", dim, stride);
                    const int64_t at = row * s.columns + column;
                    return Sample{g, {{"X", at}, {"Z", at}, {"Y", at}}};
                  });
}

GpuRow transpose_row(const Matrix& s) {
  return by_parts(fmt::format("transpose/{}x{}", s.rows, s.columns), s, {64, 64},
                  [=](const Matrix& part, int64_t row, int64_t column) {
                    auto g = new_graph(kBfloat16);
                    const Ints dim = {1, part.rows, part.columns};
                    const T x = input(*g, "X", dim, row_major({1, s.rows, s.columns}));
                    const T y = g->pointwise(x, mode(PointwiseMode_t::IDENTITY));
                    output(y, "Y", dim, {s.rows * s.columns, 1, s.rows});
                    return Sample{g, {{"X", row * s.columns + column}, {"Y", column * s.rows + row}}};
                  });
}

// Rows are images here, columns channels.
GpuRow channels_last_row(const Conv& s) {
  return by_parts(fmt::format("nchw_to_nhwc/{}x{}x{}", s.n, s.c, s.hw), {s.n, s.c}, {1, 4},
                  [=](const Matrix& part, int64_t n, int64_t c) {
                    auto g = new_graph(kBfloat16);
                    const Ints dim = s.x(part.rows, part.columns), whole = s.x(s.n, s.c);
                    const T y = g->pointwise(input(*g, "X", dim, row_major(whole)), mode(PointwiseMode_t::IDENTITY));
                    output(y, "Y", dim, channels_last(whole));
                    const int64_t image = n * s.c * s.pixels(s.hw);
                    return Sample{g, {{"X", image + c * s.pixels(s.hw)}, {"Y", image + c}}};
                  });
}

GpuRow amax_row(const Matrix& s) {
  const int64_t loud = s.rows * 2 / 3;  // the row that has the largest of all values
  GpuRow row = by_parts(fmt::format("amax/{}M", (s.rows * s.columns) >> 20), s, {1, s.columns},
                        [=](const Matrix& part, int64_t, int64_t) {
                          auto g = new_graph(kBfloat16);
                          const Ints dim = {1, part.rows, part.columns};
                          const T x = input(*g, "X", dim, row_major({1, s.rows, s.columns}));
                          output(g->reduction(x, mode(ReductionMode_t::AMAX)), "amax", {1, 1, 1}, {1, 1, 1}, kFloat);
                          return Sample{g, {{"X", loud * s.columns}}};
                        });
  row.planted = {{"X", loud * s.columns + s.columns / 5, -100}};
  return row;
}

// --- the list ----------------------------------------------------------------------------------------------------

// A size that the reference computes whole, of the same kind.
Matmul shrunk(Matmul s) {
  s.b = std::min<int64_t>(s.b, 2), s.m = std::min<int64_t>(s.m, 24), s.k = std::min<int64_t>(s.k, 48);
  s.n = std::min<int64_t>(s.n, 40);
  return s;
}
Conv shrunk(Conv s) {
  const int64_t per_group = std::min<int64_t>(s.c / s.groups, 4), filters = std::min<int64_t>(s.k / s.groups, 6);
  s.groups = std::min<int64_t>(s.groups, 8), s.n = std::min<int64_t>(s.n, 3), s.hw = std::min<int64_t>(s.hw, 9);
  s.c = per_group * s.groups, s.k = filters * s.groups;
  return s;
}
Attention shrunk(Attention s) {
  const int64_t group = s.hq / s.hkv;
  s.b = 2, s.hkv = 2, s.hq = 2 * group, s.d = 16, s.skv = 33, s.sq = std::min<int64_t>(s.sq, 33);
  return s;
}
NormSize shrunk(NormSize s) {
  s.rows = 21, s.width = 64;
  return s;
}
Matrix shrunk(Matrix) { return {70, 66}; }

std::vector<GpuRow> conv_rows(const std::function<Conv(Conv)>& sized) {
  std::vector<GpuRow> list;
  for (const Conv& c : {Conv{32, 128, 56, 256, 3}, Conv{32, 64, 56, 64, 3}, Conv{32, 256, 56, 64, 1, 1, 0},
                        Conv{32, 512, 28, 512, 3, 2}, Conv{32, 3, 224, 64, 7, 2, 3}, Conv{256, 512, 7, 512, 3}}) {
    Conv s = sized(c);
    s.epilogue = true;
    list.push_back(conv_row("conv+bias+relu", Direction::Forward, s));
  }
  const Conv tour = sized({32, 128, 56, 256, 3});
  list.push_back(conv_row("dgrad", Direction::DataGradient, tour));
  list.push_back(conv_row("wgrad", Direction::FilterGradient, tour));
  list.push_back(conv_row("conv", Direction::Forward, sized({32, 256, 56, 256, 3, 1, 1, 256})));
  list.push_back(conv_row("conv", Direction::Forward, sized({32, 256, 56, 256, 3, 1, 1, 32})));
  list.push_back(conv_row("conv3d", Direction::Forward, sized({4, 32, 32, 64, 3, 1, 1, 1, 3})));
  Conv wide = sized({8, 512, 28, 512, 3});
  wide.type = kFloat;
  list.push_back(conv_row("conv_float", Direction::Forward, wide));
  return list;
}

std::vector<GpuRow> matmul_rows(const std::function<Matmul(Matmul)>& sized) {
  std::vector<GpuRow> list;
  const auto add = [&](const std::string& family, Matmul s, Epilogue epilogue = Epilogue::None) {
    s = sized(s), s.epilogue = epilogue;
    list.push_back(matmul_row(family, s));
  };
  const Matmul tour = {16, 512, 1024, 512};
  add("matmul+scale+bias+gelu+amax", tour, Epilogue::GeluAmax);
  add("matmul+scale+bias+gelu", tour, Epilogue::Gelu);
  add("matmul+scale+bias+relu", tour, Epilogue::Relu);
  add("matmul", {8, 256, 512, 256});
  add("matmul", {1, 4096, 4096, 4096});
  add("matmul", {1, 8192, 8192, 8192});
  add("matmul+scale+bias+gelu", {1, 8192, 8192, 8192}, Epilogue::Gelu);
  add("matmul+scale+bias+gelu", {1, 4096, 4096, 14336}, Epilogue::Gelu);
  add("matmul", {1, 16, 4096, 4096});
  add("matmul", {1, 128, 4096, 4096});
  add("matmul_fp8", {1, 8192, 8192, 8192, kFp8, kBfloat16});
  add("matmul_int8", {1, 8192, 8192, 8192, kInt8, kInt32});
  add("matmul_tf32", {1, 4096, 4096, 4096, kFloat, kFloat, Epilogue::None, true});
  add("matmul_float", {1, 4096, 4096, 4096, kFloat, kFloat});
  list.back().barred = {NumericalNote_t::TENSOR_CORE};
  list.back().tf32 = false;
  return list;
}

std::vector<GpuRow> attention_rows(const std::function<Attention(Attention)>& sized) {
  std::vector<GpuRow> list;
  for (const Attention& s : {Attention{4, 16, 16, 1024, 1024, 64, true},
                             {4, 16, 16, 4096, 4096, 64, true},
                             {4, 16, 16, 4096, 4096, 64, false},
                             {2, 16, 16, 8192, 8192, 128, true},
                             {2, 16, 16, 8192, 8192, 128, false},
                             {1, 16, 16, 16384, 16384, 128, true},
                             {2, 32, 8, 8192, 8192, 128, true},
                             {2, 8, 8, 8192, 8192, 256, true},
                             {32, 16, 16, 512, 512, 128, true}})
    list.push_back(attention_row("attention_forward", sized(s)));
  for (const Attention& s : {Attention{32, 32, 8, 1, 8192, 128, false}, {1, 32, 8, 1, 65536, 128, false}})
    list.push_back(attention_row("attention_decode", sized(s)));
  for (const Attention& s : {Attention{4, 16, 16, 4096, 4096, 64, true},
                             {2, 16, 16, 8192, 8192, 128, true},
                             {2, 16, 16, 8192, 8192, 128, false}})
    list.push_back(attention_row("attention_backward", sized(s), true));
  return list;
}

GpuRow aiming(GpuRow row, double of_cudnn, double of_copy) {
  row.wanted_of_cudnn = of_cudnn, row.wanted_of_copy = of_copy;
  return row;
}

std::vector<GpuRow> norm_rows(const std::function<NormSize(NormSize)>& sized) {
  std::vector<GpuRow> list;
  for (const DataType_t scale : {kBfloat16, kFloat})
    for (const NormSize& s : {NormSize{32768, 4096, Norm::Layer}, {32768, 4096, Norm::Rms}, {8192, 16384, Norm::Rms}}) {
      NormSize size = sized(s);
      size.scale = scale;
      const double of_cudnn = scale == kFloat ? (s.norm == Norm::Layer ? 4 : 3.5) : s.width > 4096 ? 1.05 : 1;
      list.push_back(aiming(norm_row(size, false), of_cudnn, s.width > 4096 ? 0 : 0.97));
    }
  for (const Norm norm : {Norm::Layer, Norm::Rms})
    list.push_back(aiming(norm_row(sized({32768, 4096, norm}), true), 1, 0));
  list.push_back(aiming(norm_row(sized({1024, 12288, Norm::Layer}), true), 1.3, 0));
  for (const int64_t rows : {131072, 8192})
    for (const bool backward : {false, true})
      list.push_back(aiming(norm_row(sized({rows, 128, Norm::Rms}), backward), 1.1, 0));
  return list;
}

}  // namespace

std::vector<GpuRow> gpu_rows(bool small) {
  const auto sized = [small](auto s) { return small ? shrunk(s) : s; };
  std::vector<GpuRow> list;
  const auto append = [&](std::vector<GpuRow> rows) {
    for (GpuRow& row : rows) list.push_back(std::move(row));
  };
  append(conv_rows(sized)), append(matmul_rows(sized)), append(attention_rows(sized)), append(norm_rows(sized));
  for (const bool written : {false, true})
    list.push_back(aiming(softmax_row(sized(Matrix{32768, 4096}), written), 0, 0.96));
  const Conv images = sized(Conv{32, 256, 56, 256, 3});
  list.push_back(aiming(batchnorm_row(images), 1.2, 0));
  list.push_back(aiming(instancenorm_row(images), 1.2, 0));
  list.push_back(genstats_row(images));
  list.push_back(aiming(add_gelu_row(sized(Matrix{8192, 8192})), 1.08, 0.97));
  list.push_back(aiming(transpose_row(sized(Matrix{8192, 8192})), 0, 0.93));
  list.push_back(aiming(channels_last_row(images), 0, 0.93));
  list.push_back(amax_row(sized(Matrix{32768, 16384})));
  return list;
}

GraphPtr smallest_matmul() {
  const Matmul s = {1, 64, 64, 64};
  return matmul(s, s);
}

}  // namespace tilewright::bench
