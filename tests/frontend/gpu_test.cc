// The public API on a GPU, through whatever engine serves there. Everything skips where there is no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/numeric_types.h"
#include "engines/cudnn/loader.h"
#include "frontend/builder.h"
#include "frontend/gpu_execution.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;
using UidMap = std::unordered_map<int64_t, void*>;

constexpr int64_t kM = 64, kN = 48, kK = 32;
constexpr int64_t kA = 1, kB = 2, kScale = 3, kY = 4;

// relu((A B) * scale), HALF, scale by value.
graph::Graph product(int64_t m = kM) {
  graph::Graph g;
  g.set_io_data_type(DataType_t::HALF).set_intermediate_data_type(DataType_t::FLOAT);
  g.set_compute_data_type(DataType_t::FLOAT);
  using Tensor = graph::Tensor_attributes;
  auto a = g.tensor(Tensor().set_name("A").set_uid(kA).set_dim({1, m, kK}).set_stride({m * kK, kK, 1}));
  auto b = g.tensor(Tensor().set_name("B").set_uid(kB).set_dim({1, kK, kN}).set_stride({kK * kN, kN, 1}));
  auto s = g.tensor(Tensor()
                        .set_name("scale")
                        .set_uid(kScale)
                        .set_dim({1, 1, 1})
                        .set_stride({1, 1, 1})
                        .set_data_type(DataType_t::FLOAT)
                        .set_is_pass_by_value(true));
  auto c = g.matmul(a, b, graph::Matmul_attributes().set_name("product"));
  auto d = g.pointwise(c, s, graph::Pointwise_attributes().set_name("scaled").set_mode(PointwiseMode_t::MUL));
  auto y = g.pointwise(d, graph::Pointwise_attributes().set_name("relu").set_mode(PointwiseMode_t::RELU_FWD));
  y->set_name("Y").set_uid(kY).set_output(true);
  return g;
}

class GpuGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::driver_lookup().problem;
    if (!cudnn::lookup().calls) GTEST_SKIP() << cudnn::lookup().problem;
    device_ = std::make_unique<cuda::ScopedDevice>(0);
    ASSERT_TRUE(device_->status().is_good()) << device_->status();
    ASSERT_EQ(cuda::driver().stream_create(&stream_, cuda::kStreamNonBlocking), 0);
    ASSERT_TRUE(create_handle(&handle_, "cuda", stream_).is_good());
    for (auto* values : {&a_, &b_}) values->resize(size_t(values == &a_ ? kM * kK : kK * kN));
    for (size_t i = 0; i < a_.size(); ++i) a_[i] = float(int(i * 7 % 5) - 2);
    for (size_t i = 0; i < b_.size(); ++i) b_[i] = float(int(i * 5 % 7) - 3);
    da_ = upload(a_), db_ = upload(b_), dy_ = memory(kM * kN * 2);
  }
  void TearDown() override {
    if (stream_) cuda::driver().stream_synchronize(stream_), cuda::driver().stream_destroy(stream_);
    EXPECT_TRUE(destroy_handle(handle_).is_good());
  }

  static cuda::DeviceMemory memory(int64_t bytes) {
    auto made = cuda::DeviceMemory::allocate(0, bytes);
    EXPECT_TRUE(made) << made.status();
    return std::move(*made);
  }
  static cuda::CUdeviceptr address(const void* p) { return reinterpret_cast<cuda::CUdeviceptr>(p); }
  static std::vector<uint16_t> halves(const std::vector<float>& values) {
    std::vector<uint16_t> bits(values.size());
    for (size_t i = 0; i < values.size(); ++i) store_element(bits.data(), DataType_t::HALF, int64_t(i), values[i]);
    return bits;
  }
  static cuda::DeviceMemory upload(const std::vector<float>& values) {
    auto copy = memory(int64_t(values.size()) * 2);
    EXPECT_EQ(cuda::driver().memcpy_htod(address(copy.data()), halves(values).data(), values.size() * 2), 0);
    return copy;
  }
  UidMap pack() { return {{kA, da_.data()}, {kB, db_.data()}, {kScale, &scale_}, {kY, dy_.data()}}; }
  void* workspace(int64_t bytes) {
    workspace_ = memory(bytes);
    return workspace_.data();
  }
  void* workspace(const graph::Graph& g) { return workspace(g.get_workspace_size()); }
  void poison(const cuda::DeviceMemory& y) {
    EXPECT_EQ(cuda::driver().memset_d8_async(address(y.data()), 0xff, size_t(y.bytes()), stream_), 0);
  }
  // Small integers: every engine gives these exactly.
  std::string wrong(const cuda::DeviceMemory& y) {
    std::vector<uint16_t> bits(size_t(kM * kN));
    if (cuda::driver().stream_synchronize(stream_) != 0) return "the stream failed";
    if (cuda::driver().memcpy_dtoh(bits.data(), address(y.data()), bits.size() * 2) != 0) return "no copy";
    for (int64_t m = 0; m < kM; ++m)
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < kK; ++k) sum += double(a_[size_t(m * kK + k)]) * double(b_[size_t(k * kN + n)]);
        const double want = std::max(0.0, sum * double(scale_));
        const double got = load_element(bits.data(), DataType_t::HALF, m * kN + n);
        if (got != want) return fmt::format("element [{}, {}] is {} and not {}", m, n, got, want);
      }
    return "";
  }
  std::string wrong() { return wrong(dy_); }
  graph::Graph built(BuildPlanPolicy_t policy = BuildPlanPolicy_t::HEURISTICS_CHOICE) {
    graph::Graph g = product();
    const error_t e = g.build(handle_, {HeurMode_t::A}, policy);
    EXPECT_TRUE(e.is_good()) << e;
    return g;
  }

  std::unique_ptr<cuda::ScopedDevice> device_;
  cuda::CUstream stream_ = nullptr;
  Handle handle_;
  std::vector<float> a_, b_;
  float scale_ = 2;
  cuda::DeviceMemory da_, db_, dy_, workspace_;
};

TEST_F(GpuGraphs, EveryPlanIsRight) {
  graph::Graph g = product();
  ASSERT_TRUE(g.validate().is_good());
  ASSERT_TRUE(g.build_operation_graph(handle_).is_good());
  ASSERT_TRUE(g.create_execution_plans({HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK}).is_good());
  EXPECT_GT(g.get_execution_plan_count(), 1);
  int right = 0;
  for (int64_t i = 0; i < g.get_execution_plan_count(); ++i) {
    if (g.build_plan_at_index(i).is_bad()) continue;
    poison(dy_);
    UidMap map = pack();
    std::string name;
    ASSERT_TRUE(g.get_plan_name_at_index(i, name).is_good());
    const error_t e = g.execute_plan_at_index(handle_, map, workspace(g.get_workspace_size_plan_at_index(i)), i);
    ASSERT_TRUE(e.is_good()) << name << ": " << e;
    EXPECT_EQ(wrong(), "") << name;
    ++right;
  }
  EXPECT_GT(right, 1);
}

TEST_F(GpuGraphs, PointersAreToldApart) {
  graph::Graph g = built();
  void* ws = workspace(g);
  const auto message = [&](int64_t uid, void* pointer) {
    UidMap map = pack();
    map[uid] = pointer;
    const error_t e = g.execute(handle_, map, ws);
    EXPECT_EQ(e.code, error_code_t::INVALID_VARIANT_PACK);
    return e.err_msg;
  };
  std::vector<uint16_t> host(size_t(kM * kN) + 64);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(host.data()) + 63) / 64 * 64);
  EXPECT_THAT(message(kA, aligned), HasSubstr("\"A\" (uid 1)"));
  EXPECT_THAT(message(kA, aligned), HasSubstr("is host memory"));
  EXPECT_THAT(message(kScale, da_.data()), HasSubstr("\"scale\" (uid 3) is passed by value"));
  EXPECT_THAT(message(kY, static_cast<char*>(dy_.data()) + 2), HasSubstr("not aligned to 16 bytes"));
  UidMap map = pack();
  ASSERT_TRUE(g.execute(handle_, map, ws).is_good());
  EXPECT_EQ(wrong(), "");
}

TEST_F(GpuGraphs, PlansAndHandlesOfOtherDevicesAreRefused) {
  graph::Graph on_gpu = built(), on_cpu = product();
  UidMap map = pack();
  EXPECT_THAT(on_gpu.execute(nullptr, map, workspace(on_gpu)).err_msg, HasSubstr("bound to GPU 0"));
  ASSERT_TRUE(on_cpu.build(nullptr, {HeurMode_t::A}).is_good());
  EXPECT_THAT(on_cpu.execute(handle_, map, nullptr).err_msg, HasSubstr("bound to the CPU"));
}

TEST_F(GpuGraphs, CudnnsOwnHandleServes) {
  cudnnContext* raw = nullptr;
  ASSERT_EQ(cudnn::library().create(&raw), 0);
  ASSERT_EQ(cudnn::library().set_stream(raw, stream_), 0);
  graph::Graph g = product();
  const error_t e = g.build(raw, {HeurMode_t::A});
  ASSERT_TRUE(e.is_good()) << e;
  void* stream = nullptr;
  EXPECT_TRUE(get_stream(raw, &stream).is_good());
  EXPECT_EQ(stream, stream_);
  poison(dy_);
  UidMap map = pack();
  ASSERT_TRUE(g.execute(raw, map, workspace(g)).is_good());
  EXPECT_EQ(wrong(), "");
  EXPECT_EQ(cudnn::library().destroy(raw), 0);
}

TEST_F(GpuGraphs, ASavedPlanComesBack) {
  graph::Graph g = built(), loaded;
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(g.serialize(bytes).is_good());
  const error_t e = loaded.deserialize(handle_, bytes);
  ASSERT_TRUE(e.is_good()) << e;
  std::string before, after;
  ASSERT_TRUE(g.get_plan_name(before).is_good() && loaded.get_plan_name(after).is_good());
  EXPECT_EQ(before, after) << loaded.explain();
  poison(dy_);
  UidMap map = pack();
  ASSERT_TRUE(loaded.execute(handle_, map, workspace(loaded)).is_good());
  EXPECT_EQ(wrong(), "");
}

TEST_F(GpuGraphs, ExecutionIsCaptured) {
  graph::Graph g = built();
  UidMap map = pack();
  void* ws = workspace(g);
  ASSERT_TRUE(g.warmup(handle_).is_good());
  const cuda::Driver& d = cuda::driver();
  cuda::CUgraph graph = nullptr;
  cuda::CUgraphExec exec = nullptr;
  ASSERT_EQ(d.stream_begin_capture(stream_, cuda::kCaptureGlobal), 0);
  const error_t e = g.execute(handle_, map, ws);
  ASSERT_EQ(d.stream_end_capture(stream_, &graph), 0);
  ASSERT_TRUE(e.is_good()) << e;
  ASSERT_EQ(d.graph_instantiate(&exec, graph, 0), 0);
  for (int round = 0; round < 2; ++round) {
    poison(dy_);
    for (float& x : a_) x = -x;  // other data in the same memory
    ASSERT_EQ(d.memcpy_htod(address(da_.data()), halves(a_).data(), a_.size() * 2), 0);
    ASSERT_EQ(d.graph_launch(exec, stream_), 0);
    EXPECT_EQ(wrong(), "");
  }
  EXPECT_EQ(d.graph_exec_destroy(exec), 0);
  EXPECT_EQ(d.graph_destroy(graph), 0);
}

TEST_F(GpuGraphs, ACudaGraphIsMadeAndGivenOtherMemory) {
  graph::Graph g = product();
  g.select_behavior_notes({BehaviorNote_t::SUPPORTS_CUDA_GRAPH_NATIVE_API});
  if (g.build(handle_, {HeurMode_t::A}).is_bad()) GTEST_SKIP() << "no plan has the native interface: " << g.explain();
  UidMap map = pack();
  void* ws = workspace(g);
  const cuda::Driver& d = cuda::driver();
  cuda::CUgraph graph = nullptr;
  ASSERT_EQ(d.graph_create(&graph, 0), 0);
  error_t e = g.populate_cuda_graph(handle_, map, ws, graph);
  ASSERT_TRUE(e.is_good()) << e;
  cuda::CUgraphExec exec = nullptr;
  const auto run = [&] {
    EXPECT_EQ(d.graph_instantiate(&exec, graph, 0), 0);
    EXPECT_EQ(d.graph_launch(exec, stream_), 0);
    EXPECT_EQ(d.stream_synchronize(stream_), 0);
    EXPECT_EQ(d.graph_exec_destroy(exec), 0);
  };
  poison(dy_);
  run();
  EXPECT_EQ(wrong(), "");
  const auto other = memory(kM * kN * 2);
  poison(other), poison(dy_);
  map[kY] = other.data();
  e = g.update_cuda_graph(handle_, map, ws, graph);
  ASSERT_TRUE(e.is_good()) << e;
  run();
  EXPECT_EQ(wrong(other), "");
  EXPECT_NE(wrong(), "") << "the old memory was written again";
  EXPECT_EQ(d.graph_destroy(graph), 0);
}

TEST_F(GpuGraphs, ALaunchListIsReplayed) {
  graph::Graph g = built();
  UidMap map = pack();
  LaunchList list;
  const error_t e = g.record(handle_, map, workspace(g), list);
  ASSERT_TRUE(e.is_good()) << e;
  for (int round = 0; round < 2; ++round) {
    poison(dy_);
    ASSERT_TRUE(list.replay().is_good());
    EXPECT_EQ(wrong(), "");
  }
  const auto other = memory(kM * kN * 2);
  map[kY] = other.data();
  ASSERT_TRUE(g.update(handle_, map, workspace_.data(), list).is_good());
  poison(other);
  ASSERT_TRUE(list.replay().is_good());
  EXPECT_EQ(wrong(other), "");
}

TEST_F(GpuGraphs, AutotuneTimesOnTheDevice) {
  graph::Graph g = built(BuildPlanPolicy_t::ALL);
  UidMap map = pack();
  const error_t e = g.autotune(handle_, map, workspace(g.get_autotune_workspace_size()));
  ASSERT_TRUE(e.is_good()) << e;
  double chosen = 0, best = 1e9;
  for (const PlanInfo& p : g.plans()) {
    if (!p.measured_ms) continue;
    EXPECT_GT(*p.measured_ms, 1e-4) << p.name;
    EXPECT_LT(*p.measured_ms, 10) << p.name;
    best = std::min(best, *p.measured_ms);
    if (p.chosen) chosen = *p.measured_ms;
  }
  EXPECT_EQ(chosen, best);
  poison(dy_);
  ASSERT_TRUE(g.execute(handle_, map, workspace(g)).is_good());
  EXPECT_EQ(wrong(), "");
}

TEST_F(GpuGraphs, VerifyModeChecksOnTheGpu) {
  graph::Graph g = product();
  g.set_verify_enabled(true);
  ASSERT_TRUE(g.build(handle_, {HeurMode_t::A}).is_good());
  poison(dy_);
  UidMap map = pack();
  const error_t e = g.execute(handle_, map, workspace(g));
  ASSERT_TRUE(e.is_good()) << e;
  EXPECT_EQ(wrong(), "");
}

TEST_F(GpuGraphs, NoValidGraphIsRefused) {
  graph::Graph g;
  g.set_io_data_type(DataType_t::DOUBLE).set_intermediate_data_type(DataType_t::DOUBLE);
  g.set_compute_data_type(DataType_t::DOUBLE);
  auto x = g.tensor(graph::Tensor_attributes().set_name("X").set_uid(1).set_dim({3, 5}).set_stride({5, 1}));
  auto y = g.pointwise(x, graph::Pointwise_attributes().set_mode(PointwiseMode_t::ERF));
  y->set_output(true).set_uid(2);
  const error_t e = g.build(handle_, {HeurMode_t::A});
  ASSERT_TRUE(e.is_good()) << e;
  std::vector<double> values(15, 0.5), results(15, 0);
  const auto dx = memory(120), dy = memory(120);
  ASSERT_EQ(cuda::driver().memcpy_htod(address(dx.data()), values.data(), 120), 0);
  UidMap map = {{1, dx.data()}, {2, dy.data()}};
  ASSERT_TRUE(g.execute(handle_, map, workspace(g)).is_good());
  ASSERT_EQ(cuda::driver().stream_synchronize(stream_), 0);
  ASSERT_EQ(cuda::driver().memcpy_dtoh(results.data(), address(dy.data()), 120), 0);
  for (double r : results) EXPECT_NEAR(r, std::erf(0.5), 1e-9);
}

TEST_F(GpuGraphs, KernelCacheServesOtherShapes) {
  auto cache = std::make_shared<KernelCache>();
  for (int64_t m : {kM, kM * 2}) {
    graph::Graph g = product(m);
    g.set_dynamic_shape_enabled(true).set_kernel_cache(cache);
    const error_t e = g.build(handle_, {HeurMode_t::A});
    ASSERT_TRUE(e.is_good()) << e;
    if (m != kM) continue;
    poison(dy_);
    UidMap map = pack();
    ASSERT_TRUE(g.execute(handle_, map, workspace(g)).is_good());
    EXPECT_EQ(wrong(), "");
  }
  EXPECT_EQ(cache->hits(), 1);
}

TEST_F(GpuGraphs, ASecondGpuHasItsOwnHandles) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "one GPU";
  Handle second;
  ASSERT_TRUE(create_handle(&second, "cuda:1").is_good());
  graph::Graph g = built();
  UidMap map = pack();
  EXPECT_THAT(g.execute(second, map, workspace(g)).err_msg, HasSubstr("the handle is of GPU 1"));
  graph::Graph other = product();
  ASSERT_TRUE(other.build(second, {HeurMode_t::A}).is_good());
  EXPECT_THAT(other.execute(second, map, nullptr).err_msg, HasSubstr("memory of GPU 0"));
  EXPECT_TRUE(destroy_handle(second).is_good());
}

}  // namespace
}  // namespace tilewright
