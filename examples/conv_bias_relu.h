// The graph of examples 2, 3 and 8: Y = relu(conv(X, W) + B), HALF, channels-last.
#pragma once

#include "common.h"

namespace example {

struct ConvBiasRelu {
  int64_t n, c, size, k, r = 3;
  fe::Graph graph;
  fe::TensorPtr X, W, B, Y;
  std::vector<tw::half> x, w, b, y;
  Data data;

  std::string problem() const {
    const auto s = [](int64_t v) { return std::to_string(v); };
    return "N" + s(n) + " C" + s(c) + " " + s(size) + "x" + s(size) + ", K" + s(k) +
           " 3x3, padding 1, bias, ReLU; HALF";
  }
  double flops() const { return 2.0 * double(n * k * size * size) * double(c * r * r); }

  explicit ConvBiasRelu(const Tour& tour)
      : n(tour.quick ? 1 : 2),
        c(tour.quick ? 16 : 128),
        size(tour.quick ? 14 : 56),
        k(tour.quick ? 32 : 256),
        data(tour.device) {
    graph.set_name("conv_bias_relu")
        .set_io_data_type(tw::DataType_t::HALF)
        .set_intermediate_data_type(tw::DataType_t::FLOAT)
        .set_compute_data_type(tw::DataType_t::FLOAT);
    // Dims are N, C, H, W whatever the layout; the strides say that channels lie next to each other.
    X = graph.tensor(fe::Tensor_attributes()
                         .set_name("X")
                         .set_dim({n, c, size, size})
                         .set_stride({c * size * size, 1, c * size, c}));
    W = graph.tensor(fe::Tensor_attributes().set_name("W").set_dim({k, c, r, r}).set_stride({c * r * r, 1, c * r, c}));
    B = graph.tensor(fe::Tensor_attributes().set_name("B").set_dim({1, k, 1, 1}).set_stride({k, 1, k, k}));
    auto conv = graph.conv_fprop(
        X, W, fe::Conv_fprop_attributes().set_name("conv").set_padding({1, 1}).set_stride({1, 1}).set_dilation({1, 1}));
    auto sum = graph.pointwise(conv, B, fe::Pointwise_attributes().set_name("bias").set_mode(tw::PointwiseMode_t::ADD));
    Y = graph.pointwise(sum, fe::Pointwise_attributes().set_name("relu").set_mode(tw::PointwiseMode_t::RELU_FWD));
    Y->set_name("Y").set_output(true);  // all else is virtual: it need not exist in memory

    x = random<tw::half>(n * c * size * size, 1);
    w = random<tw::half>(k * c * r * r, 2, 0.05f);
    b = random<tw::half>(k, 3);
    y = unwritten<tw::half>(n * k * size * size);
    data.bind(X, x), data.bind(W, w), data.bind(B, b), data.bind(Y, y);
  }
};

}  // namespace example
