// Random graphs around attention: operands that come out of pointwise nodes, every option, and pointwise or reduction
// nodes after it; or forward and backward in one graph. Every plan must be right.
#include "support/attention_graph.h"

#include <gtest/gtest.h>

#include "support/attention_case.h"

namespace tilewright {
namespace {

using namespace testing;
using graph::Pointwise_attributes;
using graph::Tensor_attributes;

// Describes an AttentionCase through the public API, with nodes before and after.
class Maker {
 public:
  Maker(graph::Graph& g, const AttentionCase& c, Random& random) : g_(g), c_(c), random_(random) {
    g.set_io_data_type(c.type).set_intermediate_data_type(c.statistic()).set_compute_data_type(c.compute);
  }

  void forward() {
    auto [o, stats] = g_.sdpa(operand("Q", {c_.b, c_.hq, c_.sq, c_.dqk}), operand("K", {c_.b, c_.hk, c_.skv, c_.dqk}),
                              operand("V", {c_.b, c_.hv, c_.skv, c_.dv}), forward_attributes());
    o->set_data_type(c_.type);
    if (stats) stats->set_output(true).set_data_type(c_.statistic());
    after(o);
  }

  // Gradients of what the same graph's forward gives, or of an O and Stats that stay inside.
  void both() {
    T q = operand("Q", {c_.b, c_.hq, c_.sq, c_.dqk}), k = operand("K", {c_.b, c_.hk, c_.skv, c_.dqk}),
      v = operand("V", {c_.b, c_.hv, c_.skv, c_.dv});
    graph::SDPA_backward_attributes backward;
    backward.set_name("gradients");
    options(backward);
    if (c_.custom_dropout) backward.set_dropout(mask_, scale_, g_.tensor(0.8f));
    if (!c_.dbias.empty()) backward.set_dbias(output("dBias", c_.dbias));
    if (c_.sink) backward.set_dsink_token(output("dSink", {1, c_.hq, 1, 1}));
    auto attr = forward_attributes();
    attr.set_generate_stats(true);
    auto [o, stats] = g_.sdpa(q, k, v, attr);
    o->set_data_type(c_.type).set_output(random_.one_in(2));
    stats->set_data_type(c_.statistic()).set_output(random_.one_in(2));
    auto gradients = g_.sdpa_backward(q, k, v, o, operand("dO", {c_.b, c_.hq, c_.sq, c_.dv}), stats, backward);
    for (const T& d : gradients) d->set_output(true).set_data_type(c_.type);
  }

 private:
  T input(const std::string& name, const Dims& dim, DataType_t type, bool broadcast = true) {
    return g_.tensor(Tensor_attributes()
                         .set_name(name)
                         .set_dim(dim)
                         .set_stride(broadcast ? random_.input_strides(dim) : random_.strides(dim))
                         .set_data_type(type));
  }
  T output(const std::string& name, const Dims& dim) {
    T t = std::make_shared<Tensor_attributes>();
    t->set_name(name).set_output(true).set_dim(dim).set_stride(random_.strides(dim)).set_data_type(c_.statistic());
    return t;
  }

  // An input, or what a pointwise node makes of one.
  T operand(const std::string& name, const Dims& dim) {
    T x = input(name, dim, c_.type);
    if (!random_.one_in(3)) return x;
    const auto mode = random_.of({PointwiseMode_t::TANH_FWD, PointwiseMode_t::NEG, PointwiseMode_t::RELU_FWD});
    T y = g_.pointwise(x, Pointwise_attributes().set_name(name + "_before").set_mode(mode));
    if (random_.one_in(2)) y->set_data_type(c_.type);
    return y;
  }

  // The options are made once: forward and backward share their tensors.
  template <class Attributes>
  void options(Attributes& a) {
    if (c_.scale_tensor)
      a.set_attn_scale(shared(attn_scale_, [&] { return g_.tensor(float(c_.scale.value_or(0.5))); }));
    else if (c_.scale) a.set_attn_scale(float(*c_.scale));
    if (c_.left) a.set_diagonal_band_left_bound(int(*c_.left));
    if (c_.right) a.set_diagonal_band_right_bound(int(*c_.right));
    if (c_.bottom_right) a.set_diagonal_alignment(DiagonalAlignment_t::BOTTOM_RIGHT);
    a.set_alibi_mask(c_.alibi).set_padding_mask(c_.padding);
    if (c_.padding) {
      a.set_seq_len_q(shared(len_q_, [&] { return input("len_q", {c_.b, 1, 1, 1}, DataType_t::INT32, false); }));
      a.set_seq_len_kv(shared(len_kv_, [&] { return input("len_kv", {c_.b, 1, 1, 1}, DataType_t::INT32, false); }));
    }
    if (!c_.bias.empty()) a.set_bias(shared(bias_, [&] { return input("bias", c_.bias, c_.type); }));
    if (c_.sink) a.set_sink_token(shared(sink_, [&] { return input("sink", {1, c_.hq, 1, 1}, c_.statistic()); }));
    if (c_.dropout > 0)
      a.set_dropout(float(c_.dropout), shared(seed_, [&] { return g_.tensor(int64_t(c_.layout_seed)); }),
                    shared(offset_, [&] { return g_.tensor(int32_t(3)); }));
    if (c_.custom_dropout) {
      shared(mask_, [&] { return input("mask", {c_.b, c_.hq, c_.sq, c_.skv}, c_.statistic()); });
      shared(scale_, [&] { return g_.tensor(1.25f); });
    }
  }
  template <class Make>
  const T& shared(T& slot, const Make& make) {
    if (!slot) slot = make();
    return slot;
  }

  graph::SDPA_attributes forward_attributes() {
    graph::SDPA_attributes a;
    a.set_name("attention").set_generate_stats(c_.stats);
    options(a);
    if (c_.custom_dropout) a.set_dropout(mask_, scale_);
    if (c_.max) a.set_logit_max(output("max", {c_.b, c_.hq, c_.sq, 1}));
    if (c_.sum_exp) a.set_score_sum_exp(output("sum_exp", {c_.b, c_.hq, c_.sq, 1}));
    if (c_.dump && c_.dropout > 0) a.set_rng_dump(output("dump", {c_.b, c_.hq, c_.sq, c_.skv}));
    return a;
  }

  void after(T o) {
    const Dims dim = {c_.b, c_.hq, c_.sq, c_.dv};
    if (random_.one_in(2)) {
      o = g_.pointwise(o, input("residual", dim, c_.type),
                       Pointwise_attributes().set_name("residual").set_mode(PointwiseMode_t::ADD));
    }
    if (random_.one_in(3)) {
      o = g_.reduction(o, graph::Reduction_attributes().set_name("sum").set_mode(ReductionMode_t::ADD));
      o->set_dim({c_.b, c_.hq, c_.sq, 1});
    }
    o->set_output(true).set_data_type(c_.type);
  }

  graph::Graph& g_;
  const AttentionCase& c_;
  Random& random_;
  T attn_scale_, len_q_, len_kv_, bias_, sink_, seed_, offset_, mask_, scale_;
};

void run(uint64_t seed, bool training) {
  Random random(seed);
  const AttentionCase c = random_attention(random, random.one_in(8) ? 130 : 12, training);
  graph::Graph g;
  Maker maker(g, c, random);
  if (training) maker.both();
  else maker.forward();
  EveryPlan plans(g, {.seed = seed});
  ASSERT_TRUE(plans.run()) << "TILEWRIGHT_TEST_SEED=" << seed << ": " << c.text();
}

TEST(AttentionGraphs, Forward) {
  for (uint64_t seed : seeds(5001, 200)) run(seed, false);
}

TEST(AttentionGraphs, ForwardAndBackward) {
  for (uint64_t seed : seeds(6001, 120)) run(seed, true);
}

}  // namespace
}  // namespace tilewright
