// 2. Convolution, bias and ReLU as one graph. conv_bias_relu.h describes it; here it is built and run.
#include "conv_bias_relu.h"

using namespace example;

int conv_bias_relu(Tour& tour) {
  ConvBiasRelu conv(tour.quick);
  tour.begin(2, "Convolution, bias, ReLU", conv.problem());

  EXAMPLE_OK(conv.graph.build({tw::HeurMode_t::A}));

  Workspace workspace(conv.graph.get_workspace_size());
  EXAMPLE_OK(conv.graph.execute({}, conv.pack, workspace.data()));
  const Timing timing = time_runs([&] { (void)conv.graph.execute({}, conv.pack, workspace.data()); });
  return tour.finish(conv.graph, conv.pack, timing, conv.flops()) ? 0 : 1;
}

EXAMPLE_MAIN(conv_bias_relu)
