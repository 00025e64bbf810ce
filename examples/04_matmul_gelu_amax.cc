// 4. A matmul with what follows it: Y = gelu(alpha * A B + bias), and the largest |Y|. alpha is a host scalar, read at
// each execute.
#include "common.h"

using namespace example;

int matmul_gelu_amax(Tour& tour) {
  const int64_t b = tour.quick ? 2 : 16, m = tour.quick ? 64 : 512, k = tour.quick ? 96 : 1024,
                n = tour.quick ? 80 : 512;
  const auto dims = [](int64_t x, int64_t y, int64_t z) {
    return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
  };
  tour.begin(4, "Matmul, alpha, bias, GELU, amax", dims(b, m, k) + " x " + dims(b, k, n) + ", BFLOAT16");

  fe::Graph graph;
  graph.set_io_data_type(tw::DataType_t::BFLOAT16)
      .set_intermediate_data_type(tw::DataType_t::FLOAT)
      .set_compute_data_type(tw::DataType_t::FLOAT);
  auto A = graph.tensor(fe::Tensor_attributes().set_name("A").set_dim({b, m, k}).set_stride({m * k, k, 1}));
  auto B = graph.tensor(fe::Tensor_attributes().set_name("B").set_dim({b, k, n}).set_stride({k * n, n, 1}));
  auto bias = graph.tensor(fe::Tensor_attributes().set_name("bias").set_dim({1, 1, n}).set_stride({n, n, 1}));
  auto alpha = graph.tensor(fe::Tensor_attributes()
                                .set_name("alpha")
                                .set_dim({1, 1, 1})
                                .set_stride({1, 1, 1})
                                .set_data_type(tw::DataType_t::FLOAT)
                                .set_is_pass_by_value(true));

  using M = tw::PointwiseMode_t;
  auto product = graph.matmul(A, B, fe::Matmul_attributes().set_name("matmul"));
  auto scaled = graph.pointwise(product, alpha, fe::Pointwise_attributes().set_name("scale").set_mode(M::MUL));
  auto shifted = graph.pointwise(scaled, bias, fe::Pointwise_attributes().set_name("bias").set_mode(M::ADD));
  auto Y = graph.pointwise(shifted, fe::Pointwise_attributes().set_name("gelu").set_mode(M::GELU_FWD));
  auto amax = graph.reduction(Y, fe::Reduction_attributes().set_name("amax").set_mode(tw::ReductionMode_t::AMAX));
  Y->set_name("Y").set_output(true);
  amax->set_name("amax").set_output(true).set_data_type(tw::DataType_t::FLOAT).set_dim({1, 1, 1}).set_stride({1, 1, 1});
  EXAMPLE_OK(graph.build(tour.device, {tw::HeurMode_t::A}));

  auto a_data = random<tw::bfloat16>(b * m * k, 1), b_data = random<tw::bfloat16>(b * k * n, 2);
  auto bias_data = random<tw::bfloat16>(n, 3), y_data = unwritten<tw::bfloat16>(b * m * n);
  float alpha_value = 1.0f / 32;
  auto amax_data = unwritten<float>(1);
  Data data(tour.device);
  data.bind(A, a_data), data.bind(B, b_data), data.bind(bias, bias_data), data.bind_value(alpha, &alpha_value);
  data.bind(Y, y_data), data.bind(amax, amax_data);

  EXAMPLE_OK(data.upload());
  void* workspace = data.workspace(graph.get_workspace_size());
  EXAMPLE_OK(graph.execute(tour.device, data.device, workspace));
  const Timing timing = time_runs(tour.device, [&] { (void)graph.execute(tour.device, data.device, workspace); });
  EXAMPLE_OK(data.download());
  std::cout << "   amax     " << amax_data[0] << std::endl;
  return tour.finish(graph, data, timing, 2.0 * double(b * m * n) * double(k)) ? 0 : 1;
}

EXAMPLE_MAIN(matmul_gelu_amax)
