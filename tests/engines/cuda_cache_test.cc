// What is compiled once is not compiled again: in memory, on disk, in the user's KernelCache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "device/cuda/compiler.h"
#include "device/cuda/gpu.h"
#include "device/cuda/nvrtc.h"
#include "engines/cuda/kernel_headers.h"
#include "engines/cuda/kernel_store.h"
#include "frontend/builder.h"
#include "plan/target.h"
#include "tilewright/device_properties.h"

namespace tilewright::testing {
namespace {

namespace fs = std::filesystem;
using graph::Graph;
using graph::Layernorm_attributes;
using graph::Tensor_attributes;
using ::testing::HasSubstr;

Result<std::shared_ptr<const cuda::CompiledKernel>> compile(const std::string& text, const std::string& arch) {
  return cuda::compile({text, cuda::kernel_headers(), cuda::kernel_header_count()}, arch);
}

// A kernel that no other text makes.
std::string kernel(int number) {
  return "// kernel " + std::to_string(number) +
         "\n#include \"tilewright/prelude.cuh\"\nextern \"C\" __global__ void tw_kernel(tw::f32* x) {\n"
         "  x[threadIdx.x] = tw::f32::set(x[threadIdx.x].v + " +
         std::to_string(number) + ".f);\n}\n";
}

// A folder of its own for what is compiled.
class CudaCompiler : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::nvrtc_lookup().nvrtc) GTEST_SKIP() << cuda::nvrtc_lookup().problem;
    std::string name = (fs::temp_directory_path() / "tilewright-kernels-").string() + std::string(6, 'X');
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    if (const char* before = std::getenv("TILEWRIGHT_KERNELS")) before_ = before;
    setenv("TILEWRIGHT_KERNELS", name.c_str(), 1);
    cuda::forget_compiled();
  }
  void TearDown() override {
    if (folder_.empty()) return;
    cuda::forget_compiled();
    if (before_.empty()) unsetenv("TILEWRIGHT_KERNELS");
    else setenv("TILEWRIGHT_KERNELS", before_.c_str(), 1);
    fs::remove_all(folder_);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> list;
    for (const auto& entry : fs::directory_iterator(folder_)) list.push_back(entry.path());
    return list;
  }
  std::string folder_, before_;
};

TEST_F(CudaCompiler, KeepsWhatItCompiled) {
  const std::string l = kernel(1);
  const auto counts = [] { return cuda::compiler_counts(); };
  const auto before = counts();
  const auto first = compile(l, "sm_80");
  ASSERT_TRUE(first) << first.status();
  EXPECT_EQ(counts().compiled, before.compiled + 1);
  ASSERT_TRUE(compile(l, "sm_80"));
  EXPECT_EQ(counts().from_memory, before.from_memory + 1);
  cuda::forget_compiled();
  const auto again = compile(l, "sm_80");
  ASSERT_TRUE(again);
  EXPECT_EQ(counts().from_disk, before.from_disk + 1);
  EXPECT_EQ((*again)->image, (*first)->image);
  EXPECT_EQ((*again)->registers, (*first)->registers);
}

TEST_F(CudaCompiler, ADamagedFileIsCompiledAnew) {
  const std::string l = kernel(1);
  ASSERT_TRUE(compile(l, "sm_80"));
  const fs::path file = files().at(0);
  for (const double share : {0.0, 0.001, 0.5, 1.0}) {
    // The compiler's log, which is in the file, is not always of one length.
    const auto size = fs::file_size(file);
    const auto at = size_t(share * double(size - 1));
    {
      std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
      f.seekg(long(at));
      const char byte = char(f.get());
      f.seekp(long(at));
      f.put(char(byte ^ 0x55));
    }
    cuda::forget_compiled();
    const auto before = cuda::compiler_counts();
    ASSERT_TRUE(compile(l, "sm_80"));
    EXPECT_EQ(cuda::compiler_counts().compiled, before.compiled + 1) << "byte " << at;
  }
  fs::resize_file(file, fs::file_size(file) / 2);
  cuda::forget_compiled();
  ASSERT_TRUE(compile(l, "sm_80"));
}

TEST_F(CudaCompiler, ErrorsShowTheCompilersLines) {
  const auto kernel = cuda::compile({"this is no kernel", nullptr, 0}, "sm_80");
  EXPECT_EQ(kernel.status().code, error_code_t::NVRTC_COMPILATION_FAILED);
  EXPECT_THAT(kernel.status().err_msg, HasSubstr("error"));
}

TEST_F(CudaCompiler, ManyThreadsCompileEachKernelOnce) {
  const auto before = cuda::compiler_counts();
  std::vector<std::thread> threads;
  std::vector<std::vector<uint8_t>> images(8);
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 3; ++k)
        if (const auto made = compile(kernel((t + k) % 3), "sm_80"); made && (t + k) % 3 == 0)
          images[size_t(t)] = (*made)->image;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(cuda::compiler_counts().compiled, before.compiled + 3);
  EXPECT_EQ(cuda::compiler_counts().from_memory, before.from_memory + 21);
  for (const auto& image : images) EXPECT_TRUE(!image.empty() && image == images[0]);
  EXPECT_EQ(files().size(), 3u) << "and nothing half written";
}

TEST_F(CudaCompiler, WritersOfOneFileDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      std::error_code ignored;
      for (int k = 0; k < 6; ++k) {
        cuda::forget_compiled();  // so that files are read and written all the time
        if (const auto there = files(); k % 2 && !there.empty()) fs::remove(there[0], ignored);
        failed += !compile(kernel(k % 2), "compute_75");
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failed, 0);
}

TEST_F(CudaCompiler, TheOldestFilesGoWhenThereAreTooMany) {
  const auto now = fs::file_time_type::clock::now();
  for (int age : {1, 2, 3}) {
    const fs::path path = fs::path(folder_) / (std::to_string(age) + ".kernel");
    std::ofstream(path).put('x');
    fs::resize_file(path, 100 << 20);  // holes take no room
    fs::last_write_time(path, now - std::chrono::hours(age));
  }
  const fs::path other = fs::path(folder_) / "thesis.tex";
  std::ofstream(other).put('x');
  fs::resize_file(other, 300 << 20);
  fs::last_write_time(other, now - std::chrono::hours(9));
  ASSERT_TRUE(compile(kernel(1), "sm_80"));
  EXPECT_FALSE(fs::exists(fs::path(folder_) / "3.kernel"));
  EXPECT_TRUE(fs::exists(fs::path(folder_) / "2.kernel") && fs::exists(fs::path(folder_) / "1.kernel"));
  EXPECT_TRUE(fs::exists(other)) << "what is no kernel is not ours to delete";
  EXPECT_EQ(files().size(), 4u);
}

TEST_F(CudaCompiler, AnotherCompilersFileOrArchitectureIsAnotherKernel) {
  const auto old = compile(kernel(1), "sm_80"), other = compile(kernel(1), "sm_90a"),
             ptx = compile(kernel(1), "compute_75");
  ASSERT_TRUE(old && other && ptx);
  EXPECT_NE((*old)->image, (*other)->image);
  EXPECT_THAT(std::string((*ptx)->image.begin(), (*ptx)->image.end()), HasSubstr(".target sm_75"));
  EXPECT_EQ(files().size(), 3u);
}

TEST(CudaCode, RunsWhereItsArchitectureDoes) {
  const auto runs = [](const char* code, std::initializer_list<int> on, std::initializer_list<int> not_on) {
    for (int capability : on) EXPECT_TRUE(cuda::code_runs_on(code, capability)) << code << " on " << capability;
    for (int capability : not_on) EXPECT_FALSE(cuda::code_runs_on(code, capability)) << code << " on " << capability;
  };
  runs("sm_80", {80, 86, 89}, {75, 90, 100});
  runs("sm_86", {86, 89}, {80, 90});
  runs("sm_90a", {90}, {89, 100, 120});
  runs("sm_120a", {120}, {121, 90});
  runs("compute_75", {75, 80, 90, 120}, {70});
  for (const char* wrong : {"", "sm_", "sm_x", "compute_", "sm_9999999999999", "sm_90b", "cpu"})
    runs(wrong, {}, {75, 90});
}

// --- the user's cache
// --------------------------------------------------------------------------------------------------

// layernorm for a GPU that need not be here, by our kernels.
struct Norm {
  Graph g;
  Handle handle;  // null: for an H200 that need not be here
  explicit Norm(int64_t rows, std::shared_ptr<KernelCache> cache, int64_t columns = 512, Handle on = {}) : handle(on) {
    static const auto h200 = [] {
      auto p = std::make_shared<DeviceProperties>();
      const std::string json = Target::parse("h200")->gpu->json;
      EXPECT_TRUE(p->deserialize({json.begin(), json.end()}).is_good());
      return p;
    }();
    g.set_io_data_type(DataType_t::BFLOAT16).set_intermediate_data_type(DataType_t::FLOAT);
    g.set_compute_data_type(DataType_t::FLOAT);
    if (!handle) g.set_device_properties(h200);
    if (cache) g.set_dynamic_shape_enabled(true).set_kernel_cache(cache);
    const auto row = [&](int64_t n) {
      return g.tensor(Tensor_attributes().set_dim({n, columns, 1, 1}).set_stride({columns, 1, 1, 1}));
    };
    const auto epsilon = g.tensor(1e-5f);
    const auto y =
        g.layernorm(row(rows), row(1), row(1),
                    Layernorm_attributes().set_forward_phase(NormFwdPhase_t::INFERENCE).set_epsilon(epsilon));
    y[0]->set_output(true);
    g.deselect_engines({"cudnn", "host"});
  }
  Status build() { return g.build(handle, {HeurMode_t::A}); }
  // What planning and compiling takes, in milliseconds; -1: it fails.
  double build_ms() {
    if (g.validate().is_bad() || g.build_operation_graph(handle).is_bad()) return -1;
    const auto start = std::chrono::steady_clock::now();
    if (g.create_execution_plans({HeurMode_t::A}).is_bad() || g.build_plans().is_bad()) return -1;
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
};

TEST_F(CudaCompiler, OtherShapesOfAClassTakeTheKernelFromTheCache) {
  auto cache = std::make_shared<KernelCache>();
  Norm first(64, cache);
  ASSERT_TRUE(first.build().is_good()) << first.g.explain();
  EXPECT_THAT(first.g.plans()[0].name, HasSubstr("cuda"));
  cuda::forget_compiled();
  fs::remove_all(folder_);
  const auto before = cuda::compiler_counts();
  double best_ms = 1e9;
  for (int64_t rows = 65; rows < 85; ++rows) {
    const double ms = Norm(rows, cache).build_ms();
    ASSERT_GE(ms, 0);
    best_ms = std::min(best_ms, ms);
  }
  EXPECT_EQ(cache->hits(), 20);
  // What was kept goes to other processes as text.
  std::string text;
  ASSERT_TRUE(cache->to_json(text).is_good());
  auto elsewhere = std::make_shared<KernelCache>();
  ASSERT_TRUE(elsewhere->from_json(text).is_good());
  Norm there(100, elsewhere);
  ASSERT_TRUE(there.build().is_good());
  EXPECT_EQ(elsewhere->hits(), 1);
  EXPECT_EQ(cuda::compiler_counts().compiled, before.compiled);
  EXPECT_EQ(cuda::compiler_counts().from_memory, before.from_memory) << "not even asked";
  const size_t code = text.find("7f454c46");  // how machine code begins
  ASSERT_NE(code, text.npos);
  text[code + 100] = text[code + 100] == '0' ? '1' : '0';
  auto damaged = std::make_shared<KernelCache>();
  ASSERT_TRUE(damaged->from_json(text).is_good());
  ASSERT_TRUE(Norm(100, damaged).build().is_good());
  EXPECT_EQ(cuda::compiler_counts().compiled, before.compiled + 1) << "compiled anew";
  std::printf("a later shape takes %.3f ms from the cache\n", best_ms);
}

TEST_F(CudaCompiler, SizesOfAClassAreOneCompilation) {
  const auto before = cuda::compiler_counts();
  for (int64_t rows : {5000, 7000, 30000, 100000}) ASSERT_TRUE(Norm(rows, nullptr).build().is_good());
  EXPECT_EQ(cuda::compiler_counts().compiled, before.compiled + 1);
  EXPECT_EQ(cuda::compiler_counts().from_memory, before.from_memory + 3);
  ASSERT_TRUE(Norm(7000, nullptr, 333).build().is_good());
  EXPECT_EQ(cuda::compiler_counts().compiled, before.compiled + 2) << "rows that are not aligned";
}

TEST_F(CudaCompiler, APlanForAGpuElsewhereIsMadeHereAndRunsThere) {
  Norm norm(64, nullptr);
  ASSERT_TRUE(norm.build().is_good()) << norm.g.explain();
  std::unordered_map<int64_t, void*> none;
  const Status run = norm.g.execute(Handle{}, none, nullptr);
  EXPECT_EQ(run.code, error_code_t::INVALID_CUDA_DEVICE);
  EXPECT_THAT(run.get_message(), HasSubstr("deserialize it with a handle of the GPU"));
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(norm.g.serialize(bytes).is_good());
  EXPECT_THAT(std::string(bytes.begin(), bytes.end()), HasSubstr("\x7f"
                                                                 "ELF"));
  // Where no such GPU is, it is planned again from the graph in the file, and says so; or that is an error.
  Graph here, strict;
  ASSERT_TRUE(here.deserialize(Handle{}, bytes).is_good());
  EXPECT_THAT(here.explain(), HasSubstr("serves GPUs"));
  EXPECT_TRUE(graph::load_plan_file(strict.impl(), bytes, graph::Loading::Strict, {}).is_bad());
}

// On a GPU, the kernel's loading included.
class CudaCompilerGpu : public CudaCompiler {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::driver_lookup().problem;
    CudaCompiler::SetUp();
    ASSERT_TRUE(create_handle(&handle_, "cuda:0").is_good());
  }
  void TearDown() override {
    CudaCompiler::TearDown();
    (void)destroy_handle(handle_);
  }
  Handle handle_;
};

TEST_F(CudaCompilerGpu, TimesOfBuilding) {
  const auto before = cuda::compiler_counts();
  ASSERT_GE(Norm(5000, nullptr, 768, handle_).build_ms(), 0) << "which loads NVRTC";
  const double cold = Norm(5000, nullptr, 333, handle_).build_ms();
  EXPECT_EQ(cuda::compiler_counts().compiled, before.compiled + 2);
  cuda::forget_compiled();
  const double disk = Norm(5000, nullptr, 333, handle_).build_ms();
  EXPECT_EQ(cuda::compiler_counts().from_disk, before.from_disk + 1);
  auto cache = std::make_shared<KernelCache>();
  Norm first(5000, cache, 512, handle_);
  ASSERT_TRUE(first.build().is_good()) << first.g.explain();
  cuda::forget_compiled();
  fs::remove_all(folder_);
  double later = 1e9;
  for (int64_t rows = 5001; rows < 5021; ++rows) {
    const double ms = Norm(rows, cache, 512, handle_).build_ms();
    ASSERT_GE(ms, 0);
    later = std::min(later, ms);
  }
  EXPECT_EQ(cache->hits(), 20);
  EXPECT_EQ(cuda::compiler_counts().compiled, before.compiled + 3);
  std::printf("building: %.1f ms compiled, %.2f ms from disk, %.3f ms for a later shape\n", cold, disk, later);
  EXPECT_LT(later, 1) << "no compiler, no file, nothing loaded";
}

TEST_F(CudaCompiler, ManyKernelsOfAPlanAtOnce) {
  std::vector<cuda::Launch> launches(7);
  for (int k = 0; k < 6; ++k) launches[size_t(k)].text = kernel(k % 4);
  const auto before = cuda::compiler_counts();
  ASSERT_TRUE(cuda::compile_all(launches, "sm_90a", nullptr).is_good());
  EXPECT_EQ(cuda::compiler_counts().compiled, before.compiled + 4);
  for (int k = 0; k < 6; ++k) EXPECT_TRUE(launches[size_t(k)].kernel);
  EXPECT_EQ(launches[0].kernel, launches[4].kernel);
  EXPECT_FALSE(launches[6].kernel) << "a launch without a text only sets zeros";
  launches[2].text = "no kernel";
  EXPECT_EQ(cuda::compile_all(launches, "sm_90a", nullptr).code, error_code_t::NVRTC_COMPILATION_FAILED);
}

}  // namespace
}  // namespace tilewright::testing
