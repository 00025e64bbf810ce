// 1. What this machine offers, and the smallest graph: Z = X + Y. `tilewright doctor` tells more.
#include "common.h"

using namespace example;

int environment(Tour& tour) {
  const int64_t rows = tour.quick ? 64 : 2048, columns = 1000;
  tour.begin(1, "Environment", "Z = X + Y, " + std::to_string(rows) + " x 1000 FLOAT, on what is here");
  tw::DeviceProperties device;
  EXAMPLE_OK(device.set_handle(tour.device).build());
  std::cout << "   library  Tilewright " << tw::version_string() << "\n   device   " << device.describe() << std::endl;

  fe::Graph graph;
  graph.set_io_data_type(tw::DataType_t::FLOAT).set_compute_data_type(tw::DataType_t::FLOAT);
  const auto matrix = fe::Tensor_attributes().set_dim({1, rows, columns}).set_stride({rows * columns, columns, 1});
  auto X = graph.tensor(fe::Tensor_attributes(matrix).set_name("X"));
  auto Y = graph.tensor(fe::Tensor_attributes(matrix).set_name("Y"));
  auto Z = graph.pointwise(X, Y, fe::Pointwise_attributes().set_name("add").set_mode(tw::PointwiseMode_t::ADD));
  Z->set_name("Z").set_output(true);

  // The five steps of every graph; build() would do them in one call.
  EXAMPLE_OK(graph.validate());                          // shapes, types and rules
  EXAMPLE_OK(graph.build_operation_graph(tour.device));  // what engines see
  EXAMPLE_OK(graph.create_execution_plans({tw::HeurMode_t::A, tw::HeurMode_t::FALLBACK}));
  EXAMPLE_OK(graph.check_support());
  EXAMPLE_OK(graph.build_plans());

  std::cout << "   engines  ";
  std::string last;
  for (const tw::PlanInfo& plan : graph.plans())
    if (plan.engine != last) std::cout << (last.empty() ? "" : ", ") << (last = plan.engine);
  std::cout << std::endl;

  auto x = random<float>(rows * columns, 1), y = random<float>(rows * columns, 2), z = unwritten<float>(rows * columns);
  Data data(tour.device);
  data.bind(X, x), data.bind(Y, y), data.bind(Z, z);
  EXAMPLE_OK(data.upload());
  void* workspace = data.workspace(graph.get_workspace_size());
  EXAMPLE_OK(graph.execute(tour.device, data.device, workspace));
  const Timing timing = time_runs(tour.device, [&] { (void)graph.execute(tour.device, data.device, workspace); });
  return tour.finish(graph, data, timing, double(rows * columns)) ? 0 : 1;
}

EXAMPLE_MAIN(environment)
