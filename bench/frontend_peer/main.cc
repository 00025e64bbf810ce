// The rows of `./dev bench gpu` through NVIDIA's own front end, measured in the same way, as figures for its table: all
// plans of heuristics A, B and FALLBACK built and timed. It is no part of the build, since it needs that front end's
// headers, CUDA's and cuDNN's:
//
//   g++ -std=c++20 -O2 -DFMT_HEADER_ONLY -Ibench/frontend_peer -Ibench -I$CUDNN_FRONTEND/include -I$CUDA/include
//     bench/frontend_peer/main.cc bench/gpu_rows.cc -L$CUDA/lib64 -lcudnn -lcudart -lnvrtc -lcuda -ldl -o frontend_peer
//   ./frontend_peer frontend.json [REGEX]
//   ./dev bench gpu --peer frontend.json
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <stdexcept>
#include <unordered_map>

#include "gpu_rows.h"

namespace tilewright::bench {
namespace {

namespace fe = cudnn_frontend;
constexpr int kSamples = 20;

void must(fe::error_t e) {
  if (e.is_bad()) throw std::runtime_error(e.get_message());
}
void must(cudaError_t e) {
  if (e != cudaSuccess) throw std::runtime_error(cudaGetErrorString(e));
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

struct Memory {
  void* data = nullptr;
  explicit Memory(size_t bytes) { must(cudaMalloc(&data, std::max<size_t>(bytes, 256))); }
  ~Memory() { cudaFree(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};

// --- the memory of a graph's tensors ---------------------------------------------------------------------------------

size_t element_bytes(DataType_t type) {
  switch (type) {
    case DataType_t::FLOAT:
    case DataType_t::INT32: return 4;
    case DataType_t::INT8:
    case DataType_t::FP8_E4M3: return 1;
    default: return 2;
  }
}

void store(void* to, size_t i, DataType_t type, float x) {
  switch (type) {
    case DataType_t::FLOAT: static_cast<float*>(to)[i] = x; break;
    case DataType_t::INT32: static_cast<int32_t*>(to)[i] = int32_t(x); break;
    case DataType_t::INT8: static_cast<int8_t*>(to)[i] = int8_t(x); break;
    case DataType_t::FP8_E4M3: static_cast<__nv_fp8_e4m3*>(to)[i] = __nv_fp8_e4m3(x); break;
    case DataType_t::HALF: static_cast<__half*>(to)[i] = __float2half(x); break;
    default: static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16(x);
  }
}

struct Tensor {
  int64_t uid;
  std::string name;
  DataType_t type;
  size_t elements = 1, bytes = 0;
};

std::vector<Tensor> tensors_of(fe::graph::Graph& graph) {
  std::vector<Tensor> list;
  must(graph.prepare_variant_pack_template());
  for (const int64_t uid : graph.get_variant_pack_uids_sorted()) {
    fe::graph::Tensor_attributes a;
    must(graph.query_tensor_attributes_of_uid(uid, a));
    Tensor t{uid, a.get_name(), a.get_data_type()};
    for (size_t d = 0; d < a.get_dim().size(); ++d)
      t.elements += size_t(a.get_dim()[d] - 1) * size_t(a.get_stride()[d]);
    t.bytes = t.elements * element_bytes(t.type);
    list.push_back(std::move(t));
  }
  return list;
}

using Pack = std::unordered_map<int64_t, void*>;

// Several sets of a row's tensors, by name; about normal numbers that repeat after a million.
class Sets {
 public:
  explicit Sets(int count) : count_(count) {}
  void add(const std::vector<Tensor>& tensors) {
    for (const Tensor& t : tensors) {
      auto [it, fresh] = memory_.try_emplace(t.name);
      if (!fresh) continue;
      const std::vector<char> block = normal(t);
      for (int s = 0; s < count_; ++s) {
        it->second.push_back(std::make_unique<Memory>(t.bytes));
        for (size_t at = 0; at < t.bytes; at += block.size())
          must(cudaMemcpy(static_cast<char*>(it->second.back()->data) + at, block.data(),
                          std::min(block.size(), t.bytes - at), cudaMemcpyHostToDevice));
      }
    }
  }
  Pack pack(const std::vector<Tensor>& tensors, int set) const {
    Pack pack;
    for (const Tensor& t : tensors) pack[t.uid] = memory_.at(t.name)[size_t(set)]->data;
    return pack;
  }
  int count() const { return count_; }

 private:
  static std::vector<char> normal(const Tensor& t) {
    const size_t elements = std::min<size_t>(t.elements, (size_t(1) << 20) + 7);
    std::vector<char> block(elements * element_bytes(t.type));
    std::mt19937 bits(unsigned(std::hash<std::string>()(t.name)));
    std::normal_distribution<float> number;
    // Variances are positive.
    for (size_t i = 0; i < elements; ++i) store(block.data(), i, t.type, t.name == "inv" ? 1 : number(bits));
    return block;
  }
  int count_;
  std::map<std::string, std::vector<std::unique_ptr<Memory>>> memory_;
};

// --- a row -----------------------------------------------------------------------------------------------------------

struct Peer {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
};

const std::vector<HeurMode_t> kModes = {HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK};

void list_plans(const Peer& peer, fe::graph::Graph& graph, const std::vector<NumericalNote_t>& barred) {
  must(graph.validate());
  must(graph.build_operation_graph(peer.handle));
  must(graph.create_execution_plans(kModes));
  if (!barred.empty()) graph.deselect_numeric_notes(barred);
  must(graph.check_support());
}

// Milliseconds of a run: brief ones are batched in a CUDA graph.
double time_ms(const Peer& peer, int sets, bool slow, const std::function<void(int)>& run) {
  std::vector<cudaEvent_t> events(kSamples + 1);
  for (cudaEvent_t& e : events) must(cudaEventCreate(&e));
  const auto samples = [&](int count, const std::function<void()>& launch, double runs) {
    launch();
    must(cudaEventRecord(events[0], peer.stream));
    for (int i = 1; i <= count; ++i) launch(), must(cudaEventRecord(events[size_t(i)], peer.stream));
    must(cudaEventSynchronize(events[size_t(count)]));
    std::vector<double> ms;
    for (int i = 1; i <= count; ++i) {
      float one = 0;
      must(cudaEventElapsedTime(&one, events[size_t(i) - 1], events[size_t(i)]));
      ms.push_back(one / runs);
    }
    return median(ms);
  };
  int turn = 0;
  const auto next = [&] { run(turn++ % sets); };
  const double rough = samples(3, next, 1);
  double result = 0;
  if (rough >= 0.5) {
    result = samples(slow ? 3 : kSamples, next, 1);
  } else {
    const int batch = std::max(1, int(1 / std::max(rough, 1e-3)) / sets + 1) * sets;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    must(cudaStreamBeginCapture(peer.stream, cudaStreamCaptureModeRelaxed));
    try {
      for (int i = 0; i < batch; ++i) run(i % sets);
    } catch (...) {
      cudaStreamEndCapture(peer.stream, &graph);
      throw;
    }
    must(cudaStreamEndCapture(peer.stream, &graph));
    must(cudaGraphInstantiate(&exec, graph, 0));
    result = samples(
        kSamples, [&] { must(cudaGraphLaunch(exec, peer.stream)); }, batch);
    must(cudaGraphExecDestroy(exec));
    must(cudaGraphDestroy(graph));
  }
  for (cudaEvent_t e : events) cudaEventDestroy(e);
  return result;
}

// What makes a row's inputs, run once on every set.
void make_inputs(const Peer& peer, fe::graph::Graph& graph, Sets& sets) {
  must(graph.build(peer.handle, kModes));
  const std::vector<Tensor> tensors = tensors_of(graph);
  sets.add(tensors);
  Memory workspace{size_t(graph.get_workspace_size())};
  for (int s = 0; s < sets.count(); ++s) {
    Pack pack = sets.pack(tensors, s);
    must(graph.execute(peer.handle, pack, workspace.data));
  }
  must(cudaStreamSynchronize(peer.stream));
}

struct Figures {
  double ms = 0, plan0_ms = 0, cold_ms = 0;
  size_t plans = 0;
  std::string best;
};

Figures measure(const Peer& peer, const GpuRow& row) {
  const auto graph = row.make();
  list_plans(peer, *graph, row.barred);
  const auto cold = std::chrono::steady_clock::now();
  std::map<std::string, int64_t> built;  // a plan that several modes list counts once
  std::vector<int64_t> order;
  for (int64_t i = 0; i < graph->get_execution_plan_count(); ++i) {
    std::string name;
    if (graph->build_plan_at_index(i).is_bad() || graph->get_plan_name_at_index(i, name).is_bad()) continue;
    if (built.emplace(name, i).second) order.push_back(i);
  }
  Figures f;
  f.cold_ms = ms_since(cold), f.plans = order.size();
  const std::vector<Tensor> tensors = tensors_of(*graph);
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += double(t.bytes);
  cudaDeviceProp device;
  must(cudaGetDeviceProperties(&device, 0));
  Sets sets(int(std::clamp(3.0 * device.l2CacheSize / bytes + 1, 2.0, 512.0)));
  if (row.inputs_from) make_inputs(peer, *row.inputs_from(), sets);
  sets.add(tensors);
  std::vector<Pack> packs;
  for (int s = 0; s < sets.count(); ++s) packs.push_back(sets.pack(tensors, s));
  for (const int64_t i : order) {
    Memory workspace{size_t(graph->get_workspace_size_plan_at_index(i))};
    const auto run = [&](int set) {
      must(graph->execute_plan_at_index(peer.handle, packs[size_t(set)], workspace.data, i));
    };
    try {
      const double ms = time_ms(peer, sets.count(), f.ms > 0, run);
      if (f.plan0_ms == 0) f.plan0_ms = ms;
      if (f.ms == 0 || ms < f.ms) f.ms = ms, must(graph->get_plan_name_at_index(i, f.best));
    } catch (const std::exception& e) {  // one that does not run leaves the others
      fmt::print("  plan {}: {}\n", i, e.what());
      cudaGetLastError();
    }
  }
  if (f.ms == 0) throw std::runtime_error("no plan ran");
  return f;
}

// --- what the host does ----------------------------------------------------------------------------------------------

double build_ms(const Peer& peer) {
  const auto graph = smallest_matmul();
  const auto start = std::chrono::steady_clock::now();
  must(graph->build(peer.handle, {HeurMode_t::A}));
  return ms_since(start);
}

double execute_ms(const Peer& peer) {
  const auto graph = smallest_matmul();
  must(graph->build(peer.handle, {HeurMode_t::A}));
  const std::vector<Tensor> tensors = tensors_of(*graph);
  Sets sets(1);
  sets.add(tensors);
  Pack pack = sets.pack(tensors, 0);
  Memory workspace{size_t(graph->get_workspace_size())};
  std::vector<double> ms;
  for (int batch = 0; batch < 30; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 200; ++i) must(graph->execute(peer.handle, pack, workspace.data));
    if (batch > 2) ms.push_back(ms_since(start) / 200);
    must(cudaStreamSynchronize(peer.stream));
  }
  return median(ms);
}

int run(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') {
    fmt::print(stderr, "usage: frontend_peer FILE.json [REGEX of rows]\n");
    return 2;
  }
  const std::regex wanted(argc > 2 ? argv[2] : ".");
  Peer peer;
  must(cudaStreamCreateWithFlags(&peer.stream, cudaStreamNonBlocking));
  if (cudnnCreate(&peer.handle) != CUDNN_STATUS_SUCCESS ||
      cudnnSetStream(peer.handle, peer.stream) != CUDNN_STATUS_SUCCESS)
    throw std::runtime_error("cuDNN cannot make a handle");
  std::string rows;
  const auto tell = [&](const std::string& name, const Figures& f) {
    rows += fmt::format(
        "{}\n  {{\"row\": \"{}\", \"ms\": {}, \"plan0_ms\": {}, \"plans\": {}, \"cold_ms\": {}, \"best\": \"{}\"}}",
        rows.empty() ? "" : ",", name, f.ms, f.plan0_ms, f.plans, f.cold_ms, f.best);
    fmt::print("{:<50} plan 0 {:.4f} ms, best {:.4f} ms of {} plans\n", name, f.plan0_ms, f.ms, f.plans);
    std::fflush(stdout);
    std::ofstream(argv[1]) << fmt::format(
        "{{\"name\": \"cudnn_frontend {}.{}\", \"held\": \"cudnn\", \"rows\": [{}\n]}}\n", CUDNN_FRONTEND_MAJOR_VERSION,
        CUDNN_FRONTEND_MINOR_VERSION, rows);
  };
  const auto host = [&](const char* name, const std::function<double()>& work) {
    if (!std::regex_search(name, wanted)) return;
    Figures f;
    f.ms = f.plan0_ms = work(), f.plans = 1;
    tell(name, f);
  };
  host("host/build_first_plan/64x64x64", [&] { return build_ms(peer); });
  host("host/build_first_plan_again/64x64x64", [&] {
    std::vector<double> ms;
    for (int i = 0; i < 7; ++i) ms.push_back(build_ms(peer));
    return median(ms);
  });
  host("host/execute/64x64x64", [&] { return execute_ms(peer); });
  for (const GpuRow& row : gpu_rows()) {
    if (!std::regex_search(row.name, wanted)) continue;
    try {
      tell(row.name, measure(peer, row));
    } catch (const std::exception& e) {  // one that it refuses leaves the others
      fmt::print("{:<50} left out: {}\n", row.name, std::string(e.what()).substr(0, 160));
      cudaGetLastError();
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) {
  try {
    return tilewright::bench::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
