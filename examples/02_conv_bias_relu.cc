// 2. Convolution, bias and ReLU as one graph. conv_bias_relu.h describes it; here it is built and run.
#include "conv_bias_relu.h"

using namespace example;

int conv_bias_relu(Tour& tour) {
  ConvBiasRelu conv(tour);
  tour.begin(2, "Convolution, bias, ReLU", conv.problem());

  EXAMPLE_OK(conv.graph.build(tour.device, {tw::HeurMode_t::A}));

  EXAMPLE_OK(conv.data.upload());
  void* workspace = conv.data.workspace(conv.graph.get_workspace_size());
  EXAMPLE_OK(conv.graph.execute(tour.device, conv.data.device, workspace));
  const Timing timing =
      time_runs(tour.device, [&] { (void)conv.graph.execute(tour.device, conv.data.device, workspace); });
  return tour.finish(conv.graph, conv.data, timing, conv.flops()) ? 0 : 1;
}

EXAMPLE_MAIN(conv_bias_relu)
