// Random graphs around convolutions: pointwise prologues on the operands, an epilogue of pointwise chains with skip
// connections, broadcasts and scalars, then perhaps a reduction, pooling, a second convolution or a data movement.
// Every plan of every graph must be right. A failure prints the line that reproduces it.
#include <gtest/gtest.h>

#include "support/every_plan.h"
#include "support/random.h"

namespace tilewright {
namespace {

using graph::Graph;
using graph::Pointwise_attributes;
using graph::Tensor_attributes;
using graph::TensorPtr;
using testing::EveryPlan;
using testing::Random;
using Mode = PointwiseMode_t;

class GraphMaker {
 public:
  GraphMaker(Graph& graph, Random& random) : graph_(graph), random_(random) {
    io_ = random.of({DataType_t::FLOAT, DataType_t::FLOAT, DataType_t::HALF, DataType_t::BFLOAT16, DataType_t::DOUBLE});
    compute_ = io_ == DataType_t::DOUBLE ? DataType_t::DOUBLE : DataType_t::FLOAT;
    // Not HALF: an intermediate that overflows it is infinite in some plans and not in others, both rightly.
    const DataType_t intermediate = random.one_in(4) ? DataType_t::BFLOAT16 : compute_;
    graph.set_io_data_type(io_).set_intermediate_data_type(intermediate).set_compute_data_type(compute_);
  }

  void make() {
    Value v = convolve();
    v = chain(v, random_.between(0, 5));
    if (random_.one_in(3)) v = chain(move(v), random_.between(0, 2));
    if (random_.one_in(4)) v = reduce(v);
    give(v);
  }

 private:
  struct Value {
    TensorPtr tensor;
    Dims dim;
  };

  Value input(const Dims& dim) {
    DataType_t type = io_;
    if (random_.one_in(8)) type = random_.of({DataType_t::FP8_E4M3, DataType_t::INT8, DataType_t::FLOAT});
    return {graph_.tensor(Tensor_attributes()
                              .set_name(fmt::format("in{}", inputs_++))
                              .set_dim(dim)
                              .set_stride(random_.input_strides(dim))
                              .set_data_type(type)),
            dim};
  }

  // A new tensor that broadcasts to `dim`, or a scalar.
  Value operand(const Dims& dim) {
    switch (random_.between(0, 5)) {
      case 0: return {graph_.tensor(float(random_.between(-4, 4)) / 4), dim};
      case 1:
        return {graph_.tensor(Tensor_attributes()
                                  .set_name(fmt::format("scalar{}", inputs_++))
                                  .set_dim(Dims(dim.size(), 1))
                                  .set_stride(Dims(dim.size(), 1))
                                  .set_is_pass_by_value(true)
                                  .set_data_type(DataType_t::FLOAT)),
                dim};
      case 2: return input(dim);
      case 3: {
        Dims some = dim;
        for (int64_t& d : some)
          if (random_.one_in(2)) d = 1;
        return input(some);
      }
      default: {  // a value per channel
        Dims channel(dim.size(), 1);
        if (dim.size() > 1) channel[1] = dim[1];
        return input(channel);
      }
    }
  }

  Value give(const Value& v) {
    v.tensor->set_output(true);
    if (random_.one_in(4)) v.tensor->set_data_type(random_.of({DataType_t::FLOAT, DataType_t::HALF, DataType_t::INT8}));
    if (random_.one_in(2)) v.tensor->set_stride(random_.strides(v.dim));
    return v;
  }

  Pointwise_attributes attributes(Mode mode) {
    Pointwise_attributes a;
    a.set_mode(mode);
    if (mode == Mode::RELU_FWD && random_.one_in(3)) a.set_relu_lower_clip(-0.5f).set_relu_upper_clip(2);
    if (mode == Mode::RELU_FWD && random_.one_in(3)) a.set_relu_lower_clip_slope(0.125f);
    if (mode == Mode::SWISH_FWD && random_.one_in(2)) a.set_swish_beta(0.5f);
    if (mode == Mode::GEN_INDEX) a.set_axis(0);
    return a;
  }

  // One pointwise node on v; earlier values of the same dims may come back as second operands.
  Value pointwise(const Value& v, std::vector<Value>& earlier) {
    auto second = [&] { return !earlier.empty() && random_.one_in(3) ? random_.of(earlier) : operand(v.dim); };
    if (random_.one_in(10)) {
      // A comparison decides between two values.
      const Value other = second(), otherwise = second();
      TensorPtr mask =
          graph_.pointwise(v.tensor, other.tensor, attributes(random_.of({Mode::CMP_GT, Mode::CMP_LE, Mode::CMP_NEQ})));
      mask->set_data_type(DataType_t::BOOLEAN);
      return {graph_.pointwise(v.tensor, otherwise.tensor, mask, attributes(Mode::BINARY_SELECT)), v.dim};
    }
    if (random_.one_in(2)) {
      const Mode mode = random_.of({Mode::ADD, Mode::SUB, Mode::MUL, Mode::MAX, Mode::MIN, Mode::ADD_SQUARE});
      const Value other = second();
      return random_.one_in(2) || mode == Mode::ADD_SQUARE
                 ? Value{graph_.pointwise(v.tensor, other.tensor, attributes(mode)), v.dim}
                 : Value{graph_.pointwise(other.tensor, v.tensor, attributes(mode)), v.dim};
    }
    const Mode mode = random_.of({Mode::RELU_FWD, Mode::RELU_FWD, Mode::TANH_FWD, Mode::SIGMOID_FWD, Mode::GELU_FWD,
                                  Mode::GELU_APPROX_TANH_FWD, Mode::SWISH_FWD, Mode::ELU_FWD, Mode::SOFTPLUS_FWD,
                                  Mode::ABS, Mode::NEG, Mode::IDENTITY, Mode::ERF, Mode::SIN, Mode::GEN_INDEX});
    return {graph_.pointwise(v.tensor, attributes(mode)), v.dim};
  }

  Value chain(Value v, int64_t length) {
    std::vector<Value> earlier;
    for (int64_t i = 0; i < length; ++i) {
      earlier.push_back(v);
      v = pointwise(v, earlier);
      if (random_.one_in(8)) give(v);
    }
    return v;
  }

  template <class Attributes>
  Attributes window(const Dims& pre, const Dims& post, const Dims& stride, const Dims& dilation) {
    Attributes a;
    a.set_pre_padding(pre).set_post_padding(post).set_stride(stride).set_dilation(dilation);
    if (random_.one_in(4)) a.set_convolution_mode(ConvolutionMode_t::CONVOLUTION);
    return a;
  }

  // One of the three ops, with prologues on its operands.
  Value convolve() {
    const size_t rank = size_t(random_.of({1, 2, 2, 2, 3}));
    const int64_t groups = random_.one_in(4) ? random_.between(2, 3) : 1;
    // Now and then large enough for several tiles of a blocked engine.
    const bool large = rank < 3 && random_.one_in(12);
    const int64_t n = random_.between(1, 3), c = groups * random_.between(1, large ? 90 : 6);
    const int64_t k = groups * (large ? random_.between(20, 70) : random_.between(1, random_.one_in(4) ? 20 : 6));
    Dims x = {n, c}, w = {k, c / groups}, y = {n, k}, pre, post, stride, dilation;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t filter = random_.between(1, 3);
      pre.push_back(random_.between(0, 2)), post.push_back(random_.between(0, 2));
      stride.push_back(random_.between(1, 2)), dilation.push_back(random_.one_in(4) ? 2 : 1);
      const int64_t reach = dilation[d] * (filter - 1) + 1, in = reach + random_.between(0, rank == 3 ? 3
                                                                                            : large   ? 12
                                                                                                      : 7);
      x.push_back(in), w.push_back(filter), y.push_back((in + pre[d] + post[d] - reach) / stride[d] + 1);
    }
    auto side = [&](const Dims& dim) {
      const Value v = input(dim);
      return random_.one_in(3) ? chain(v, random_.between(1, 2)) : v;
    };
    switch (random_.between(0, 3)) {
      case 0: {
        const Value a = side(y), b = side(w);
        TensorPtr dx =
            graph_.conv_dgrad(a.tensor, b.tensor, window<graph::Conv_dgrad_attributes>(pre, post, stride, dilation));
        dx->set_dim(x);
        return {dx, x};
      }
      case 1: {
        const Value a = side(y), b = side(x);
        TensorPtr dw =
            graph_.conv_wgrad(a.tensor, b.tensor, window<graph::Conv_wgrad_attributes>(pre, post, stride, dilation));
        dw->set_dim(w);
        return {dw, w};
      }
      default: {
        const Value a = side(x), b = side(w);
        return {
            graph_.conv_fprop(a.tensor, b.tensor, window<graph::Conv_fprop_attributes>(pre, post, stride, dilation)),
            y};
      }
    }
  }

  // Something that is neither pointwise nor the first convolution.
  Value move(const Value& v) {
    const size_t rank = v.dim.size();
    switch (random_.between(0, 6)) {
      case 6: {  // a residual block: what a convolution of v gives, and v
        const Dims one(rank - 2, 1), none(rank - 2, 0);
        Dims w = {v.dim[1], v.dim[1]};
        w.insert(w.end(), one.begin(), one.end());
        const Value inner = chain(
            {graph_.conv_fprop(v.tensor, input(w).tensor, window<graph::Conv_fprop_attributes>(none, none, one, one)),
             v.dim},
            random_.between(0, 2));
        return {graph_.pointwise(inner.tensor, v.tensor, attributes(Mode::ADD)), v.dim};
      }
      case 0: {
        std::vector<int64_t> order(rank);
        std::iota(order.begin(), order.end(), 0);
        std::swap(order[size_t(random_.between(0, int64_t(rank) - 1))], order.back());
        Dims dim;
        for (int64_t d : order) dim.push_back(v.dim[size_t(d)]);
        return {graph_.transpose(v.tensor, graph::Transpose_attributes().set_permutation(order)), dim};
      }
      case 1: {
        std::vector<std::pair<int64_t, int64_t>> ranges;
        Dims dim;
        for (int64_t d : v.dim) {
          const int64_t start = random_.between(0, d - 1);
          ranges.push_back({start, random_.between(start + 1, d)});
          dim.push_back(ranges.back().second - start);
        }
        return {graph_.slice(v.tensor, graph::Slice_attributes().set_slices(ranges)), dim};
      }
      case 2: {
        const Dims flat = {v.dim[0], volume(v.dim) / v.dim[0]};
        return {graph_.reshape(v.tensor,
                               graph::Reshape_attributes().set_dim(flat).set_reshape_mode(ReshapeMode_t::LOGICAL)),
                flat};
      }
      case 3: {
        const int64_t axis = random_.between(0, int64_t(rank) - 1);
        Dims other = v.dim, dim = v.dim;
        other[size_t(axis)] = random_.between(1, 3);
        dim[size_t(axis)] += other[size_t(axis)];
        return {graph_.concatenate({v.tensor, input(other).tensor}, graph::Concatenate_attributes().set_axis(axis)),
                dim};
      }
      case 4: {
        const Dims one(rank - 2, 1), none(rank - 2, 0);
        const Dims w = [&] {
          Dims d = {random_.between(1, 6), v.dim[1]};
          d.insert(d.end(), one.begin(), one.end());
          return d;
        }();
        Dims dim = v.dim;
        dim[1] = w[0];
        return {
            graph_.conv_fprop(v.tensor, input(w).tensor, window<graph::Conv_fprop_attributes>(none, none, one, one)),
            dim};
      }
      default: {
        graph::Resample_attributes a;
        Dims dim = {v.dim[0], v.dim[1]}, size, step(rank - 2, 2), none(rank - 2, 0);
        for (size_t d = 2; d < rank; ++d) {
          size.push_back(std::min<int64_t>(v.dim[d], random_.between(1, 3)));
          dim.push_back((v.dim[d] - size.back()) / 2 + 1);
        }
        a.set_resampling_mode(random_.of({ResampleMode_t::MAXPOOL, ResampleMode_t::AVGPOOL_INCLUDE_PADDING}));
        a.set_window(size).set_stride(step).set_pre_padding(none).set_post_padding(none).set_generate_index(false);
        return {graph_.resample(v.tensor, a)[0], dim};
      }
    }
  }

  Value reduce(const Value& v) {
    Dims dim = v.dim;
    for (int64_t& d : dim)
      if (random_.one_in(2)) d = 1;
    const ReductionMode_t mode = random_.of({ReductionMode_t::ADD, ReductionMode_t::MAX, ReductionMode_t::AMAX,
                                             ReductionMode_t::AVG, ReductionMode_t::NORM1});
    TensorPtr y = graph_.reduction(v.tensor, graph::Reduction_attributes().set_mode(mode));
    y->set_dim(dim);
    return {y, dim};
  }

  Graph& graph_;
  Random& random_;
  DataType_t io_, compute_;
  int inputs_ = 0;
};

TEST(ConvGraphFuzz, EveryPlanOfRandomGraphsIsRight) {
  for (uint64_t seed : testing::seeds(1, 300)) {
    Random random(seed);
    Graph graph;
    GraphMaker(graph, random).make();
    const Fill fill = random.one_in(2) ? Fill::Integers : Fill::Random;
    EveryPlan plans(graph, {.seed = seed, .fill = fill, .tight_alignment = random.one_in(4)});
    const ::testing::AssertionResult right = plans.run();
    ASSERT_TRUE(right) << "TILEWRIGHT_TEST_SEED=" << seed
                       << " build/bin/tilewright_tests --gtest_filter=ConvGraphFuzz.*\n"
                       << graph.explain();

    // What the graph says of itself is enough to make it again.
    Json text;
    graph.serialize(text);
    Graph again;
    ASSERT_TRUE(again.deserialize(text).is_good()) << "TILEWRIGHT_TEST_SEED=" << seed;
    const Status valid = again.validate();
    ASSERT_TRUE(valid.is_good()) << "TILEWRIGHT_TEST_SEED=" << seed << ": " << valid.err_msg;
    EXPECT_EQ(again.key(), graph.key()) << "TILEWRIGHT_TEST_SEED=" << seed;
  }
}

}  // namespace
}  // namespace tilewright
