// 8. The launches of example 2's plan, recorded once and replayed: nothing is looked up again. On a GPU this is a CUDA
// graph; on a CPU it is a list of launches.
#include "conv_bias_relu.h"

using namespace example;

int capture_and_replay(Tour& tour) {
  ConvBiasRelu conv(tour);
  tour.begin(8, "Capture and replay", conv.problem());
  EXAMPLE_OK(conv.graph.build(tour.device, {tw::HeurMode_t::A}));
  Data& data = conv.data;
  EXAMPLE_OK(data.upload());
  void* workspace = data.workspace(conv.graph.get_workspace_size());

  tw::LaunchList launches;
  EXAMPLE_OK(conv.graph.record(tour.device, data.device, workspace, launches));
  std::cout << "   recorded " << launches.launch_count() << " launches" << std::endl;
  EXAMPLE_OK(launches.replay());

  // New inputs in the same memory need nothing; other memory is bound by an update.
  auto y2 = unwritten<tw::half>(int64_t(conv.y.size()));
  conv.x = random<tw::half>(int64_t(conv.x.size()), 7);
  data.bind(conv.X, conv.x), data.bind(conv.Y, y2);
  EXAMPLE_OK(data.upload());
  std::unordered_map<int64_t, void*> by_uid;
  for (const auto& [tensor, memory] : data.device) by_uid[tensor->get_uid()] = memory;
  EXAMPLE_OK(conv.graph.update(tour.device, by_uid, workspace, launches));
  EXAMPLE_OK(launches.replay());

  const Timing executed =
      time_runs(tour.device, [&] { (void)conv.graph.execute(tour.device, data.device, workspace); });
  std::fill(y2.begin(), y2.end(), tw::half(std::numeric_limits<float>::quiet_NaN()));
  EXAMPLE_OK(data.upload());
  const Timing replayed = time_runs(tour.device, [&] { (void)launches.replay(); });
  std::cout << "   execute  " << time_text(executed.median) << ", replay " << time_text(replayed.median) << std::endl;
  return tour.finish(conv.graph, data, replayed, conv.flops()) ? 0 : 1;
}

EXAMPLE_MAIN(capture_and_replay)
