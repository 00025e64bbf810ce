// The same vocabulary under the field's name, with its handle and its memory calls.
#include <cudnn_frontend.h>

#include <cstdio>
#include <unordered_map>
#include <vector>

namespace fe = cudnn_frontend;

static_assert(CUDNN_FRONTEND_VERSION == 12300);

static fe::error_t run(cudnnHandle_t handle, std::vector<float>& result) {
  fe::graph::Graph graph;
  graph.set_io_data_type(fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  auto x = graph.tensor(
      fe::graph::Tensor_attributes().set_name("x").set_uid(0).set_dim({2, 4, 1, 1}).set_stride({4, 1, 4, 4}));
  auto half_of = graph.tensor(half(0.5f));
  auto scaled = graph.pointwise(x, half_of, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::MUL));
  auto amax = graph.reduction(scaled, fe::graph::Reduction_attributes().set_mode(fe::ReductionMode_t::AMAX));
  amax->set_output(true).set_uid(1).set_dim({1, 1, 1, 1}).set_data_type(fe::DataType_t::FLOAT);

  CHECK_CUDNN_FRONTEND_ERROR(graph.validate());
  CHECK_CUDNN_FRONTEND_ERROR(graph.build_operation_graph(handle));
  CHECK_CUDNN_FRONTEND_ERROR(graph.create_execution_plans({fe::HeurMode_t::A}));
  CHECK_CUDNN_FRONTEND_ERROR(graph.check_support(handle));
  CHECK_CUDNN_FRONTEND_ERROR(graph.build_plans(handle, fe::BuildPlanPolicy_t::ALL));

  const std::vector<half> host = {half(1.f), half(-9.f), half(2.f), half(0.f),
                                  half(3.f), half(4.f),  half(5.f), half(6.f)};
  half* x_data = nullptr;
  float* amax_data = nullptr;
  void* workspace = nullptr;
  cudaMalloc(&x_data, host.size() * sizeof(half));
  cudaMalloc(&amax_data, sizeof(float));
  cudaMalloc(&workspace, size_t(graph.get_workspace_size()));
  cudaMemcpy(x_data, host.data(), host.size() * sizeof(half), cudaMemcpyHostToDevice);

  std::unordered_map<int64_t, void*> pack = {{0, x_data}, {1, amax_data}};
  const fe::error_t status = graph.execute(handle, pack, workspace);
  cudaDeviceSynchronize();
  result.assign(1, 0.f);
  cudaMemcpy(result.data(), amax_data, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(x_data), cudaFree(amax_data), cudaFree(workspace);
  return status;
}

int main() {
  cudnnHandle_t handle = nullptr;
  if (cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) return 1;
  std::vector<float> amax;
  const fe::error_t status = run(handle, amax);
  if (cudnnDestroy(handle) != CUDNN_STATUS_SUCCESS) return 1;
  if (status.is_bad() || amax[0] != 4.5f) {
    std::cout << "amax " << (amax.empty() ? -1.f : amax[0]) << ", expected 4.5; " << status << std::endl;
    return 1;
  }
  std::printf("as cudnn_frontend %s: amax is right\n", fe::detail::convert_version_to_str(cudnnGetVersion()).c_str());
  return 0;
}
