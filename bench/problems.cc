#include "problems.h"

#include <cmath>
#include <string>

namespace tilewright::bench {
namespace {

using namespace graph;  // NOLINT: the vocabulary
using T = TensorPtr;
using Ints = std::vector<int64_t>;

Ints row_major(const Ints& dim) {
  Ints stride(dim.size(), 1);
  for (size_t i = dim.size() - 1; i-- > 0;) stride[i] = stride[i + 1] * dim[i + 1];
  return stride;
}

Ints channels_last(const Ints& dim) {  // N, C, H, W
  return {dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]};
}

GraphPtr new_graph(DataType_t io) {
  auto g = std::make_shared<Graph>();
  g->set_io_data_type(io).set_intermediate_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  return g;
}

T input(Graph& g, const std::string& name, const Ints& dim, const Ints& stride = {}) {
  return g.tensor(Tensor_attributes().set_name(name).set_dim(dim).set_stride(stride.empty() ? row_major(dim) : stride));
}

Pointwise_attributes mode(PointwiseMode_t m) { return Pointwise_attributes().set_mode(m); }

// gelu(scale * (A x B) + bias), the tour's section 4 without its reduction.
template <DataType_t io>
GraphPtr matmul_bias_gelu() {
  auto g = new_graph(io);
  const T a = input(*g, "A", {16, 512, 1024}), b = input(*g, "B", {16, 1024, 512}),
          bias = input(*g, "bias", {1, 1, 512});
  const T c = g->matmul(a, b, Matmul_attributes());
  const T scaled = g->pointwise(c, g->tensor(0.125f), mode(PointwiseMode_t::MUL));
  const T biased = g->pointwise(scaled, bias, mode(PointwiseMode_t::ADD));
  g->pointwise(biased, mode(PointwiseMode_t::GELU_FWD))->set_output(true).set_name("Y");
  return g;
}

// relu(conv(X, W) + bias), channels last: section 2 with the CPU's batch of 2.
template <DataType_t io>
GraphPtr conv_bias_relu() {
  auto g = new_graph(io);
  const Ints x_dim = {2, 128, 56, 56}, w_dim = {256, 128, 3, 3};
  const T x = input(*g, "X", x_dim, channels_last(x_dim)), w = input(*g, "W", w_dim, channels_last(w_dim));
  const T bias = input(*g, "bias", {1, 256, 1, 1});
  const T y = g->conv_fprop(x, w, Conv_fprop_attributes().set_padding({1, 1}).set_stride({1, 1}).set_dilation({1, 1}));
  const T biased = g->pointwise(y, bias, mode(PointwiseMode_t::ADD));
  g->pointwise(biased, mode(PointwiseMode_t::RELU_FWD))->set_output(true).set_name("Y");
  return g;
}

// Training-phase layernorm over rows of 1024.
template <DataType_t io>
GraphPtr layernorm() {
  auto g = new_graph(io);
  const T x = input(*g, "X", {8192, 1024, 1, 1});
  const T scale = input(*g, "scale", {1, 1024, 1, 1}), bias = input(*g, "bias", {1, 1024, 1, 1});
  auto [y, mean, inv_variance] = g->layernorm(
      x, scale, bias, Layernorm_attributes().set_forward_phase(NormFwdPhase_t::TRAINING).set_epsilon(1e-5f));
  y->set_output(true).set_name("Y");
  mean->set_output(true).set_data_type(DataType_t::FLOAT);
  inv_variance->set_output(true).set_data_type(DataType_t::FLOAT);
  return g;
}

// gelu(X + Z) over 16M elements: bound by memory.
template <DataType_t io>
GraphPtr add_gelu() {
  auto g = new_graph(io);
  const T x = input(*g, "X", {16, 1024, 1024}), z = input(*g, "Z", {16, 1024, 1024});
  const T sum = g->pointwise(x, z, mode(PointwiseMode_t::ADD));
  g->pointwise(sum, mode(PointwiseMode_t::GELU_FWD))->set_output(true).set_name("Y");
  return g;
}

// Causal attention, the CPU's size of section 5.
template <DataType_t io>
GraphPtr sdpa_causal() {
  auto g = new_graph(io);
  const Ints dim = {1, 4, 1024, 64};
  const T q = input(*g, "Q", dim), k = input(*g, "K", dim), v = input(*g, "V", dim);
  auto [o, stats] =
      g->sdpa(q, k, v, SDPA_attributes().set_attn_scale(0.125f).set_causal_mask(true).set_generate_stats(false));
  o->set_output(true).set_name("O").set_dim(dim).set_stride(row_major(dim));
  return g;
}

}  // namespace

const std::vector<Problem>& problems() {
  constexpr DataType_t kFloat = DataType_t::FLOAT, kHalf = DataType_t::HALF, kBfloat16 = DataType_t::BFLOAT16;
  static const std::vector<Problem> rows = {
      {"matmul_bias_gelu/float/16x512x1024x512", matmul_bias_gelu<kFloat>},
      {"matmul_bias_gelu/half/16x512x1024x512", matmul_bias_gelu<kHalf>},
      {"matmul_bias_gelu/bfloat16/16x512x1024x512", matmul_bias_gelu<kBfloat16>},
      {"conv_bias_relu/float/n2c128hw56k256r3", conv_bias_relu<kFloat>},
      {"conv_bias_relu/half/n2c128hw56k256r3", conv_bias_relu<kHalf>},
      {"layernorm/float/8192x1024", layernorm<kFloat>},
      {"layernorm/bfloat16/8192x1024", layernorm<kBfloat16>},
      {"add_gelu/float/16M", add_gelu<kFloat>},
      {"add_gelu/half/16M", add_gelu<kHalf>},
      {"sdpa_causal/float/b1h4s1024d64", sdpa_causal<kFloat>},
      {"sdpa_causal/half/b1h4s1024d64", sdpa_causal<kHalf>},
  };
  return rows;
}

GraphPtr smallest_graph() {
  auto g = new_graph(DataType_t::FLOAT);
  const T a = input(*g, "A", {1, 1, 1}), b = input(*g, "B", {1, 1, 1});
  g->pointwise(a, b, mode(PointwiseMode_t::ADD))->set_output(true).set_name("Y");
  return g;
}

}  // namespace tilewright::bench
