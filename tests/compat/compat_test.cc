// The field's header and the stand-ins for CUDA and cuDNN, as a program of the field sees them (through the shared
// library).
#include <cudnn_frontend.h>
#include <gtest/gtest.h>

namespace fe = cudnn_frontend;
using namespace cudnn_frontend;  // NOLINT: programs do, and `half` and `graph` must stay unambiguous

namespace {

TEST(CompatHeader, VersionsAreThoseOfTheVocabulary) {
  EXPECT_EQ(CUDNN_FRONTEND_VERSION, 12300);
  EXPECT_EQ(CUDNN_VERSION, 91900);
  EXPECT_EQ(cudnnGetVersion(), 91900u);
  EXPECT_EQ(fe::detail::get_backend_version(), 91900u);
  EXPECT_EQ(fe::detail::get_backend_version_string(), "9.19.0");
}

TEST(CompatHeader, VersionTextHasTwoForms) {
  EXPECT_EQ(fe::detail::convert_version_to_str(8603), "8.6.3");
  EXPECT_EQ(fe::detail::convert_version_to_str(89999), "89.9.99");
  EXPECT_EQ(fe::detail::convert_version_to_str(90000), "9.0.0");
  EXPECT_EQ(fe::detail::convert_version_to_str(101234), "10.12.34");
}

TEST(CompatHeader, ElementSizes) {
  const std::pair<DataType_t, size_t> sizes[] = {
      {DataType_t::NOT_SET, 0},  {DataType_t::BOOLEAN, 1},   {DataType_t::INT4, 4},          {DataType_t::FP4_E2M1, 4},
      {DataType_t::FP8_E8M0, 8}, {DataType_t::UINT8, 8},     {DataType_t::BFLOAT16, 16},     {DataType_t::INT8x4, 32},
      {DataType_t::DOUBLE, 64},  {DataType_t::INT8x32, 256}, {DataType_t::COMPLEX_FP64, 128}};
  for (const auto& [type, bits] : sizes) EXPECT_EQ(fe::detail::get_element_size_in_bits(type), bits) << type;
  EXPECT_EQ(fe::detail::get_data_type_size(DataType_t::BOOLEAN), 0u);
  EXPECT_EQ(fe::detail::get_data_type_size(DataType_t::INT64), 8u);
}

TEST(CompatHeader, StrideOrders) {
  using V = std::vector<int64_t>;
  const V dim = {2, 3, 5, 7};
  EXPECT_EQ(fe::detail::generate_stride(dim, fe::detail::generate_row_major_stride_order(4)), (V{105, 35, 7, 1}));
  EXPECT_EQ(fe::detail::generate_stride(dim, fe::detail::generate_NHWC_stride_order(4)), (V{105, 1, 21, 3}));
  EXPECT_EQ(fe::detail::generate_stride(dim, fe::detail::generate_column_major_stride_order(4)), (V{105, 35, 1, 5}));
  EXPECT_EQ(fe::detail::generate_NHWC_stride_order(3), (V{2, 0, 1}));
}

fe::error_t failing() { return {error_code_t::INVALID_VALUE, "seven is not even"}; }
fe::error_t forwards() {
  CHECK_CUDNN_FRONTEND_ERROR(failing());
  return {error_code_t::OK, ""};
}
fe::error_t refuses(int n) {
  RETURN_CUDNN_FRONTEND_ERROR_IF(n % 2 != 0, error_code_t::GRAPH_NOT_SUPPORTED, "odd");
  return {};
}

TEST(CompatHeader, MacrosReturnTheStatus) {
  EXPECT_EQ(forwards().get_code(), error_code_t::INVALID_VALUE);
  EXPECT_EQ(forwards().get_message(), "seven is not even");
  EXPECT_EQ(refuses(3).get_code(), error_code_t::GRAPH_NOT_SUPPORTED);
  EXPECT_TRUE(refuses(4).is_good());
}

TEST(CompatHeader, ExceptionsCarryTheStatus) {
  try {
    throw cudnnException("no", CUDNN_STATUS_BAD_PARAM);
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "no");
    EXPECT_EQ(dynamic_cast<const cudnnException&>(e).getCudnnStatus(), CUDNN_STATUS_BAD_PARAM);
  }
}

TEST(CompatHeader, HalvesAreGraphScalars) {
  graph::Graph g;
  auto t = g.tensor(half(0.5f));
  auto b = g.tensor(nv_bfloat16(2.f));
  EXPECT_EQ(t->get_data_type(), DataType_t::HALF);
  EXPECT_EQ(b->get_data_type(), DataType_t::BFLOAT16);
  ASSERT_TRUE(t->get_pass_by_value().has_value());
  EXPECT_EQ(__half2float(std::get<half>(*t->get_pass_by_value())), 0.5f);
}

TEST(CompatHeader, ObjectsBecomeJson) {
  const auto tensor =
      fe::graph::Tensor_attributes().set_name("image").set_dim({4, 32}).set_stride({32, 1}).set_uid(7).set_data_type(
          fe::DataType_t::HALF);
  json j = tensor;
  EXPECT_EQ(j["name"].get<std::string>(), "image");
  EXPECT_EQ(j["uid"].get<int64_t>(), 7);
  EXPECT_TRUE(j == tensor);
  auto other = tensor;
  other.set_uid(8);
  EXPECT_FALSE(j == other);

  const auto conv = fe::graph::Conv_fprop_attributes().set_name("conv").set_padding({1, 1}).set_stride({2, 2});
  json c = conv;
  EXPECT_EQ(c["name"].get<std::string>(), "conv");
  EXPECT_EQ(c["stride"][0].get<int64_t>(), 2);
  EXPECT_TRUE(c == conv);
}

TEST(NoCuda, HandlesAreCpuHandles) {
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  cudaStream_t stream = nullptr, kept = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  EXPECT_EQ(cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnGetStream(handle, &kept), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(kept, stream);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnCreate(nullptr), CUDNN_STATUS_BAD_PARAM);
}

TEST(NoCuda, MemoryIsHostMemory) {
  int32_t* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 3 * sizeof(int32_t)), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(device) % 256, 0u);
  const int32_t host[3] = {5, 6, 7};
  int32_t back[3] = {};
  EXPECT_EQ(cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemset(device, 0, sizeof(int32_t)), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(back, device, sizeof back, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(back[0], 0);
  EXPECT_EQ(back[2], 7);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
}

TEST(NoCuda, ErrorsAreRemembered) {
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(nullptr, nullptr, 1, cudaMemcpyDefault), cudaErrorInvalidValue);
  void* much = nullptr;
  EXPECT_EQ(cudaMalloc(&much, SIZE_MAX), cudaErrorMemoryAllocation);
  EXPECT_EQ(much, nullptr);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_STREQ(cudaGetErrorName(cudaGetLastError()), "cudaErrorInvalidDevice");
}

TEST(NoCuda, EventsMeasureTime) {
  cudaEvent_t start = nullptr, end = nullptr;
  cudaEventCreate(&start), cudaEventCreate(&end);
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle) << "neither is recorded";
  (void)cudaGetLastError();
  cudaEventRecord(start), cudaEventRecord(end);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
  EXPECT_GE(ms, 0.f);
  cudaEventDestroy(start), cudaEventDestroy(end);
}

TEST(NoCuda, TheDeviceAnswersWithAComputeCapability) {
  cudaDeviceProp p;
  ASSERT_EQ(cudaGetDeviceProperties(&p, 0), cudaSuccess);
  EXPECT_EQ(p.major * 10 + p.minor, 90);
  setenv("TILEWRIGHT_COMPAT_SM", "86", 1);
  int major = 0, minor = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), cudaSuccess);
  unsetenv("TILEWRIGHT_COMPAT_SM");
  EXPECT_EQ(major, 8);
  EXPECT_EQ(minor, 6);
}

TEST(NoCuda, GraphsOfCudaAreRefused) {
  cudaGraph_t g = nullptr;
  EXPECT_EQ(cudaGraphCreate(&g, 0), cudaErrorNotSupported);
  EXPECT_EQ(g, nullptr);
  EXPECT_NE(std::string(cudaGetErrorString(cudaGetLastError())).find("CPU"), std::string::npos);
}

}  // namespace
