#include "support/attention_graph.h"

namespace tilewright::testing {
namespace {

T make_input(graph::Graph& g, const std::string& name, const Dims& dim, DataType_t type, bool heads_inside) {
  Dims stride = row_major_strides(dim);
  if (heads_inside && dim.size() == 4) stride = {dim[1] * dim[2] * dim[3], dim[3], dim[1] * dim[3], 1};
  return g.tensor(graph::Tensor_attributes().set_name(name).set_dim(dim).set_stride(stride).set_data_type(type));
}

T make_output(const std::string& name, const Dims& dim = {}) {
  T t = std::make_shared<graph::Tensor_attributes>();
  t->set_name(name).set_output(true);
  if (!dim.empty()) t->set_dim(dim).set_stride(row_major_strides(dim));
  return t;
}

void set_types(graph::Graph& g, DataType_t io) {
  g.set_io_data_type(io).set_intermediate_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
}

}  // namespace

double sum_of(const std::vector<double>& v) {
  double s = 0;
  for (double x : v) s += x;
  return s;
}

double sum_of_magnitudes(const std::vector<double>& v) {
  double s = 0;
  for (double x : v) s += std::fabs(x);
  return s;
}

void expect_numbers(const std::vector<double>& v, const Numbers& want) {
  ASSERT_FALSE(v.empty());
  // Nine digits of sums of up to ten thousand values; the attribute "scale" is a float, which shows from 1e-8 on.
  const double tolerance = 5e-8 * (1 + want.magnitude);
  EXPECT_NEAR(sum_of(v), want.sum, tolerance);
  EXPECT_NEAR(sum_of_magnitudes(v), want.magnitude, tolerance);
  EXPECT_NEAR(v.front(), want.first.value_or(v.front()), 1e-8);
  EXPECT_NEAR(v.back(), want.last.value_or(v.back()), 1e-8);
}

void expect_values(const std::vector<double>& v, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(v.size(), want.size());
  for (size_t i = 0; i < v.size(); ++i) {
    if (std::isinf(want[i])) EXPECT_EQ(v[i], want[i]) << i;
    else EXPECT_NEAR(v[i], want[i], tolerance) << i;
  }
}

ForwardGraph::ForwardGraph(const Dims& q_dim, const Dims& k_dim, AttentionTraits traits) : traits_(traits) {
  set_types(graph, traits.type);
  q = make_input(graph, "Q", q_dim, DataType_t::NOT_SET, traits.heads_inside);
  k = make_input(graph, "K", k_dim, DataType_t::NOT_SET, traits.heads_inside);
  v = make_input(graph, "V", traits.v_dim.empty() ? k_dim : traits.v_dim, DataType_t::NOT_SET, traits.heads_inside);
  attr.set_name("attention").set_generate_stats(true);
}

T ForwardGraph::input(const std::string& name, const Dims& dim, DataType_t type) {
  return make_input(graph, name, dim, type, false);
}
T ForwardGraph::output(const std::string& name) { return make_output(name); }

void ForwardGraph::set_lengths(const std::vector<int>& lq, const std::vector<int>& lkv) {
  len_q_ = input("len_q", {int64_t(lq.size()), 1, 1, 1}, DataType_t::INT32);
  len_kv_ = input("len_kv", {int64_t(lkv.size()), 1, 1, 1}, DataType_t::INT32);
  lengths_q_ = lq, lengths_kv_ = lkv;
  attr.set_padding_mask(true).set_seq_len_q(len_q_).set_seq_len_kv(len_kv_);
}

void ForwardGraph::describe() {
  if (o) return;
  auto out = graph.sdpa(q, k, v, attr);
  o = out[0], stats = out[1];
  if (o) o->set_name("O").set_output(true);
  if (stats) stats->set_name("Stats").set_output(true);
}

void ForwardGraph::build() {
  describe();
  plans = std::make_unique<EveryPlan>(graph);
  ASSERT_TRUE(plans->status.is_good()) << plans->status;
  plans->fill(q, coded(5)).fill(k, coded(7)).fill(v, coded(11));
  if (!len_q_) return;
  plans->fill(len_q_, [&](int64_t i) { return lengths_q_[size_t(i)]; });
  plans->fill(len_kv_, [&](int64_t i) { return lengths_kv_[size_t(i)]; });
}

void ForwardGraph::check(const Numbers& of_o) {
  build();
  if (!plans || plans->status.is_bad()) return;
  EXPECT_TRUE(plans->run());
  expect_numbers(expected(o), of_o);
}

TrainingGraph::TrainingGraph(const Dims& q_dim, const Dims& k_dim, AttentionTraits traits) : traits_(traits) {
  set_types(graph, traits.type);
  const Dims v_dim = traits.v_dim.empty() ? k_dim : traits.v_dim;
  q = make_input(graph, "Q", q_dim, DataType_t::NOT_SET, traits.heads_inside);
  k = make_input(graph, "K", k_dim, DataType_t::NOT_SET, traits.heads_inside);
  v = make_input(graph, "V", v_dim, DataType_t::NOT_SET, traits.heads_inside);
  d_o = make_input(graph, "dO", {q_dim[0], q_dim[1], q_dim[2], v_dim[3]}, DataType_t::NOT_SET, traits.heads_inside);
  forward.set_name("attention").set_generate_stats(true);
  backward.set_name("gradients");
}

T TrainingGraph::input(const std::string& name, const Dims& dim, DataType_t type) {
  return make_input(graph, name, dim, type, false);
}
T TrainingGraph::output(const std::string& name, const Dims& dim) { return make_output(name, dim); }

void TrainingGraph::describe() {
  if (o) return;
  auto out = graph.sdpa(q, k, v, forward);
  o = out[0], stats = out[1];
  o->set_name("O").set_output(true);
  stats->set_name("Stats").set_output(true);
  auto gradients = graph.sdpa_backward(q, k, v, o, d_o, stats, backward);
  dq = gradients[0], dk = gradients[1], dv = gradients[2];
  dq->set_name("dQ").set_output(true);
  dk->set_name("dK").set_output(true);
  dv->set_name("dV").set_output(true);
}

void TrainingGraph::build() {
  describe();
  plans = std::make_unique<EveryPlan>(graph);
  ASSERT_TRUE(plans->status.is_good()) << plans->status;
  plans->fill(q, coded(5)).fill(k, coded(7)).fill(v, coded(11)).fill(d_o, coded(13));
}

}  // namespace tilewright::testing
