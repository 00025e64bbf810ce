// Random graphs around the normalisations and softmax: pointwise prologues on X, on DY and on the scale, an op of any
// kind in training or inference, its gradients from the statistics that it just made, pointwise chains, masks of one
// bit per element and reductions behind. Every plan of every graph must be right. A failure prints the line that
// reproduces it.
#include <gtest/gtest.h>

#include "support/every_plan.h"
#include "support/random.h"

namespace tilewright {
namespace {

using namespace graph;
using testing::EveryPlan;
using testing::Random;
using Mode = PointwiseMode_t;

class NormGraphMaker {
 public:
  NormGraphMaker(Graph& graph, Random& random) : graph_(graph), random_(random) {
    io_ = random.of({DataType_t::FLOAT, DataType_t::FLOAT, DataType_t::HALF, DataType_t::BFLOAT16, DataType_t::DOUBLE});
    compute_ = io_ == DataType_t::DOUBLE ? DataType_t::DOUBLE : DataType_t::FLOAT;
    const DataType_t intermediate = random.one_in(4) ? DataType_t::BFLOAT16 : compute_;
    graph.set_io_data_type(io_).set_intermediate_data_type(intermediate).set_compute_data_type(compute_);
    parameters_ = random.one_in(2) ? io_ : compute_;
  }

  void make() {
    const bool long_rows = random_.one_in(6);
    switch (random_.between(0, 5)) {
      case 0: return layer_shaped(long_rows);
      case 1: return instance_shaped();
      case 2: return channel_shaped(long_rows);
      case 3: return in_pieces();
      case 4: return batch_inference();
      default: return softmax(long_rows);
    }
  }

 private:
  // --- tensors -------------------------------------------------------------------------------------------------------

  TensorPtr input(const Dims& dim, DataType_t type) {
    return graph_.tensor(Tensor_attributes()
                             .set_name(fmt::format("in{}", inputs_++))
                             .set_dim(dim)
                             .set_stride(random_.input_strides(dim))
                             .set_data_type(type));
  }
  // Not a broadcast: its variance is not 0.
  TensorPtr plain_input(const Dims& dim) {
    TensorPtr t = input(dim, io_);
    return t->set_stride(random_.strides(dim)), t;
  }
  // X or DY: an input, perhaps through a pointwise op or two.
  TensorPtr data(const Dims& dim) {
    TensorPtr t = input(dim, io_);
    return random_.one_in(2) ? chain(t, dim, random_.between(1, 2)) : t;
  }
  // Scale or bias; a virtual one is gamma + 1.
  TensorPtr parameter(const Dims& dim) {
    TensorPtr t = input(dim, parameters_);
    if (!random_.one_in(4)) return t;
    return graph_.pointwise(t, graph_.tensor(Tensor_attributes(1.0f)), mode(Mode::ADD));
  }
  TensorPtr scalar(float value) { return graph_.tensor(Tensor_attributes(value)); }
  // An epsilon that the graph stores, or one read through a host pointer at each execute.
  TensorPtr epsilon() {
    if (random_.one_in(2)) return scalar(1e-3f);
    return graph_.tensor(
        Tensor_attributes().set_name("epsilon").set_dim({1}).set_stride({1}).set_is_pass_by_value(true).set_data_type(
            DataType_t::FLOAT));
  }
  void give(const TensorPtr& t, const Dims& dim) {
    t->set_output(true);
    if (random_.one_in(4)) t->set_data_type(random_.of({DataType_t::FLOAT, DataType_t::HALF, DataType_t::BFLOAT16}));
    if (random_.one_in(3)) t->set_stride(random_.strides(dim));
  }
  // Statistics and parameter gradients: real, or left in the graph.
  void maybe_give(const TensorPtr& t) {
    if (t && !random_.one_in(4)) t->set_output(true).set_data_type(parameters_);
  }

  // --- pointwise -----------------------------------------------------------------------------------------------------

  Pointwise_attributes mode(Mode m) { return Pointwise_attributes().set_mode(m); }
  TensorPtr chain(TensorPtr v, const Dims& dim, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      switch (random_.between(0, 4)) {
        case 0:
          v = graph_.pointwise(v, mode(random_.of({Mode::RELU_FWD, Mode::TANH_FWD, Mode::GELU_FWD, Mode::SWISH_FWD})));
          break;
        case 1:
          v = graph_.pointwise(v, scalar(float(random_.between(-4, 4)) / 4), mode(random_.of({Mode::ADD, Mode::MAX})));
          break;
        case 2: {
          Dims other = dim;
          for (int64_t& d : other)
            if (random_.one_in(2)) d = 1;
          v = graph_.pointwise(v, input(other, io_), mode(random_.of({Mode::ADD, Mode::SUB, Mode::MUL})));
          break;
        }
        case 3: {  // dropped where the mask is 0: an input of one bit per element beside a norm
          TensorPtr mask = plain_input(dim);
          mask->set_data_type(DataType_t::BOOLEAN);
          v = graph_.pointwise(v, mask, mode(Mode::MUL));
          break;
        }
        default: v = graph_.pointwise(v, input(dim, io_), mode(random_.of({Mode::ADD, Mode::SUB})));
      }
    }
    return v;
  }
  // What follows Y or DX.
  void finish(TensorPtr y, const Dims& dim) {
    if (random_.one_in(4)) {
      TensorPtr above = graph_.pointwise(y, scalar(-0.25f), mode(Mode::CMP_GT));
      TensorPtr below = graph_.pointwise(y, scalar(0.75f), mode(Mode::CMP_LT));
      above->set_data_type(DataType_t::BOOLEAN), below->set_data_type(DataType_t::BOOLEAN);
      TensorPtr mask = graph_.pointwise(above, below, mode(Mode::LOGICAL_AND));
      mask->set_output(true).set_data_type(DataType_t::BOOLEAN);
      if (random_.one_in(2)) mask->set_stride(random_.strides(dim));
    }
    if (random_.one_in(4)) give(y, dim);
    y = chain(y, dim, random_.between(0, 3));
    if (random_.one_in(4)) {
      TensorPtr r = graph_.reduction(
          y, Reduction_attributes().set_mode(random_.of({ReductionMode_t::AMAX, ReductionMode_t::ADD})));
      Dims reduced = dim;
      for (int64_t& d : reduced)
        if (random_.one_in(2)) d = 1;
      r->set_dim(reduced).set_output(true);
    }
    give(y, dim);
  }
  template <size_t N>
  void finish_gradients(const std::array<TensorPtr, N>& gradients, const Dims& x) {
    finish(gradients[0], x);
    maybe_give(gradients[1]), maybe_give(gradients[2]);
  }

  // --- the ops -------------------------------------------------------------------------------------------------------

  NormFwdPhase_t phase() { return random_.one_in(3) ? NormFwdPhase_t::INFERENCE : NormFwdPhase_t::TRAINING; }

  // layernorm, adalayernorm or rmsnorm; perhaps with the gradients.
  void layer_shaped(bool long_rows) {
    const int64_t row = long_rows ? random_.between(300, 1100) : random_.between(1, 40);
    Dims x, scale;
    switch (random_.between(0, 3)) {
      case 0: x = {random_.between(1, 9), row, 1, 1}, scale = {1, row, 1, 1}; break;
      case 1: x = {random_.between(1, 3), random_.between(1, 5), row, 1}, scale = {1, 1, row, 1}; break;
      case 2: x = {random_.between(1, 5), random_.between(1, 4), row}, scale = {1, x[1], row}; break;
      default: x = {random_.between(1, 9), row}, scale = {1, row};
    }
    const int64_t kind = random_.between(0, 2);
    if (kind == 1 && random_.one_in(2)) scale[0] = x[0];
    Dims statistics = x;
    for (size_t d = kind == 1 ? 1 : 0; d < x.size(); ++d)
      if (scale[d] != 1) statistics[d] = 1;
    TensorPtr X = data(x), w = parameter(scale), y, mean, inv;
    if (random_.one_in(4)) {  // gradients from statistics that come from outside
      mean = input(statistics, parameters_), inv = input(statistics, parameters_);
    } else if (kind == 0) {
      auto out = graph_.layernorm(X, w, parameter(scale),
                                  Layernorm_attributes().set_forward_phase(phase()).set_epsilon(epsilon()));
      y = out[0], mean = out[1], inv = out[2];
    } else if (kind == 1) {
      auto out = graph_.adalayernorm(X, w, parameter(scale),
                                     AdaLayernorm_attributes().set_forward_phase(phase()).set_epsilon(epsilon()));
      y = out[0], mean = out[1], inv = out[2];
    } else {
      Rmsnorm_attributes a;
      a.set_forward_phase(phase()).set_epsilon(epsilon());
      if (random_.one_in(2)) a.set_bias(parameter(scale));
      auto out = graph_.rmsnorm(X, w, a);
      y = out[0], inv = out[1];
    }
    if (y) {
      finish(y, x);
      maybe_give(mean), maybe_give(inv);
    }
    if (!inv || (y && random_.one_in(2))) return;
    TensorPtr dy = data(x);
    if (kind == 0)
      finish_gradients(graph_.layernorm_backward(
                           dy, X, w, Layernorm_backward_attributes().set_saved_mean_and_inv_variance(mean, inv)),
                       x);
    else if (kind == 1)
      finish_gradients(graph_.adalayernorm_backward(
                           dy, X, w, AdaLayernorm_backward_attributes().set_saved_mean_and_inv_variance(mean, inv)),
                       x);
    else
      finish_gradients(
          graph_.rmsnorm_backward(dy, X, w, inv, Rmsnorm_backward_attributes().has_dbias(random_.one_in(2))), x);
  }

  Dims image(bool large = false) {
    Dims x = {random_.between(1, 4), random_.between(1, 9)};
    const int64_t spatial = random_.between(1, 3);
    for (int64_t d = 0; d < spatial; ++d) x.push_back(random_.between(1, large && spatial < 3 ? 24 : 5));
    return x;
  }
  static Dims channels(const Dims& x) {
    Dims d(x.size(), 1);
    d[1] = x[1];
    return d;
  }

  void instance_shaped() {
    const Dims x = image();
    TensorPtr X = data(x), w = parameter(channels(x));
    auto [y, mean, inv] = graph_.instancenorm(
        X, w, parameter(channels(x)), Instancenorm_attributes().set_forward_phase(phase()).set_epsilon(epsilon()));
    finish(y, x);
    maybe_give(mean), maybe_give(inv);
    if (inv && random_.one_in(2))
      finish_gradients(
          graph_.instancenorm_backward(data(x), X, w,
                                       Instancenorm_backward_attributes().set_saved_mean_and_inv_variance(mean, inv)),
          x);
  }

  void channel_shaped(bool large) {
    Dims x = image(large);
    const Dims c = channels(x);
    if (random_.one_in(5)) {  // gradients without saved statistics: several different elements per channel
      x[0] += 3;
      return finish_gradients(
          graph_.batchnorm_backward(data(x), plain_input(x), parameter(c), Batchnorm_backward_attributes()), x);
    }
    TensorPtr X = data(x), w = parameter(c);
    Batchnorm_attributes a;
    a.set_epsilon(epsilon());
    if (random_.one_in(2)) a.set_previous_running_stats(input(c, parameters_), variance(c), scalar(0.125f));
    auto [y, mean, inv, next_mean, next_variance] = graph_.batchnorm(X, w, parameter(c), a);
    finish(y, x);
    for (const TensorPtr& t : {mean, inv, next_mean, next_variance}) maybe_give(t);
    if (random_.one_in(2))
      finish_gradients(graph_.batchnorm_backward(
                           data(x), X, w, Batchnorm_backward_attributes().set_saved_mean_and_inv_variance(mean, inv)),
                       x);
  }
  TensorPtr variance(const Dims& c) { return input(c, parameters_); }

  // genstats, bn_finalize and the scale and bias that it found; or dbn_weight and the data gradient from its factors.
  void in_pieces() {
    Dims x = image();
    x[0] += 2;
    const Dims c = channels(x);
    if (random_.one_in(2)) {
      TensorPtr X = data(x), dy = data(x);
      auto out =
          graph_.dbn_weight(dy, X, input(c, parameters_), input(c, parameters_), parameter(c), DBN_weight_attributes());
      TensorPtr dx = graph_.pointwise(graph_.pointwise(dy, out[2], mode(Mode::MUL)),
                                      graph_.pointwise(X, out[3], mode(Mode::MUL)), mode(Mode::ADD));
      finish(graph_.pointwise(dx, out[4], mode(Mode::ADD)), x);
      for (const TensorPtr& t : out) maybe_give(t);
      return;
    }
    TensorPtr X = plain_input(x);
    auto [sum, sq_sum] = graph_.genstats(X, Genstats_attributes());
    BN_finalize_attributes a;
    if (random_.one_in(2)) a.set_previous_running_stats(input(c, parameters_), variance(c), scalar(0.125f));
    auto out = graph_.bn_finalize(sum, sq_sum, parameter(c), parameter(c), scalar(1e-2f),
                                  graph_.tensor(Tensor_attributes(volume(x) / volume(c))), a);
    for (const TensorPtr& t : out) maybe_give(t);
    maybe_give(sum), maybe_give(sq_sum);
    TensorPtr scaled = graph_.pointwise(X, out[0], mode(Mode::MUL));
    finish(graph_.pointwise(scaled, out[1], mode(Mode::ADD)), x);
  }

  void batch_inference() {
    const Dims x = image(true), c = channels(x);
    TensorPtr X = data(x), mean = input(c, parameters_), inv = input(c, parameters_), w = parameter(c);
    TensorPtr y = graph_.batchnorm_inference(X, mean, inv, w, parameter(c), Batchnorm_inference_attributes());
    if (random_.one_in(2)) return finish(y, x);
    TensorPtr dy = graph_.pointwise(input(x, io_), y, mode(Mode::RELU_BWD));
    finish_gradients(
        graph_.batchnorm_backward(dy, X, w, Batchnorm_backward_attributes().set_saved_mean_and_inv_variance(mean, inv)),
        x);
  }

  void softmax(bool long_rows) {
    Dims x = image();
    const int64_t axis = random_.between(0, int64_t(x.size()) - 1);
    if (long_rows) x[size_t(axis)] = random_.between(300, 700);
    TensorPtr X = data(x);
    if (random_.one_in(2)) return finish(graph_.softmax(X, Softmax_attributes().set_axis(axis)), x);
    auto [y, stats] = graph_.softmax_with_stats(X, Softmax_attributes().set_axis(axis));
    finish(y, x);
    maybe_give(stats);
  }

  Graph& graph_;
  Random& random_;
  DataType_t io_, compute_, parameters_;
  int inputs_ = 0;
};

TEST(NormGraphFuzz, EveryPlanOfRandomGraphsIsRight) {
  for (uint64_t seed : testing::seeds(1, 300)) {
    Random random(seed);
    Graph graph;
    NormGraphMaker(graph, random).make();
    EveryPlan plans(graph, {.seed = seed, .tight_alignment = random.one_in(4)});
    const ::testing::AssertionResult right = plans.run();
    ASSERT_TRUE(right) << "TILEWRIGHT_TEST_SEED=" << seed
                       << " build/bin/tilewright_tests --gtest_filter=NormGraphFuzz.*\n"
                       << graph.explain();
  }
}

}  // namespace
}  // namespace tilewright
