#include "plan/roofline.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/numeric_types.h"
#include "base/thread_pool.h"
#include "ir/op_def.h"
#include "plan/device_timer.h"
#include "plan/plan_list.h"
#include "plan/tuning_db.h"

namespace tilewright {
namespace {

using nlohmann::json;

double middle(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + long(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// Y = A B, n by n each.
std::shared_ptr<const ir::Graph> square_matmul(int64_t n, DataType_t type) {
  auto g = std::make_shared<ir::Graph>();
  for (const char* name : {"A", "B", "Y"}) {
    ir::Tensor t;
    t.name = name, t.uid = int64_t(g->tensors.size()) + 1, t.type = type;
    t.dim = {1, n, n}, t.stride = row_major_strides(t.dim);
    t.role = name[0] == 'Y' ? ir::Role::Output : ir::Role::Input;
    g->tensors.push_back(std::move(t));
  }
  ir::Node node;
  node.op = ir::find_op("matmul"), node.name = "matmul", node.compute = DataType_t::FLOAT;
  node.in.assign(node.op->inputs.size(), ir::kNone);
  node.in[0] = 0, node.in[1] = 1, node.out = {2};
  g->nodes.push_back(std::move(node));
  g->io_type = type, g->intermediate_type = g->compute_type = DataType_t::FLOAT;
  return g;
}

Result<std::shared_ptr<const Executable>> first_plan(std::shared_ptr<const ir::Graph> graph, const Target& target) {
  PlanList list;
  TW_RETURN_IF_BAD(list.create(std::move(graph), target, {HeurMode_t::A}, nullptr));
  TW_RETURN_IF_BAD(list.check_support());
  for (int64_t i = 0; i < list.count(); ++i)
    if (!list.at(i).candidate.last_resort && list.build_at(i).is_good()) return list.at(i).executable;
  return not_supported("no engine multiplies matrices on {}: {}", target.text(), list.why_none());
}

// --- a GPU -------------------------------------------------------------------------------------------------------

cuda::CUdeviceptr address(const cuda::DeviceMemory& m) { return reinterpret_cast<cuda::CUdeviceptr>(m.data()); }

Result<double> median_ms(const Queue& queue, const DeviceTimer::Run& run, int64_t turns) {
  TW_ASSIGN_OR_RETURN(DeviceTimer timer, DeviceTimer::make(queue, run, turns));
  TW_ASSIGN_OR_RETURN(const std::vector<double> ms, timer.samples(20));
  return middle(ms);
}

// How far apart source and destination lie decides a third of the rate, as memory is spread over its channels: the best
// of a few distances.
Result<double> gpu_bytes_per_s(const Queue& queue) {
  constexpr size_t kHalf = size_t(256) << 20;
  TW_ASSIGN_OR_RETURN(const cuda::DeviceMemory memory,
                      cuda::DeviceMemory::allocate(queue.ordinal, 2 * kHalf + (4 << 20)));
  double least_ms = 0;
  for (const size_t gap : {size_t(0), size_t(8) << 10, size_t(72) << 10, size_t(520) << 10, size_t(2120) << 10}) {
    const auto copy = [&](int64_t) {
      return cuda::check(cuda::driver().memcpy_dtod_async(address(memory), address(memory) + kHalf + gap, kHalf,
                                                          static_cast<cuda::CUstream>(queue.stream)),
                         "copy on the GPU");
    };
    TW_ASSIGN_OR_RETURN(const double ms, median_ms(queue, copy, 1));
    least_ms = least_ms == 0 ? ms : std::min(least_ms, ms);
  }
  return 2.0 * double(kHalf) / least_ms * 1e3;
}

// Numbers about normal, the same for every few thousand elements: what a GPU draws, and how fast it may run, depends on
// them.
Status fill_normal(const cuda::DeviceMemory& memory) {
  std::vector<uint16_t> block(size_t(1) << 20);
  uint32_t state = 1;
  for (uint16_t& x : block) {
    double sum = 0;
    for (int k = 0; k < 4; ++k) state = state * 1664525 + 1013904223, sum += double(state >> 8) / (1 << 24) - 0.5;
    x = double_to_bfloat16(sum * 1.7);
  }
  for (int64_t at = 0; at < memory.bytes(); at += int64_t(block.size()) * 2)
    TW_RETURN_IF_BAD(
        cuda::check(cuda::driver().memcpy_htod(address(memory) + cuda::CUdeviceptr(at), block.data(),
                                               size_t(std::min(memory.bytes() - at, int64_t(block.size()) * 2))),
                    "upload"));
  return cuda::check(cuda::driver().ctx_synchronize(), "upload");
}

Result<double> gpu_flops_per_s(const Target& target, const Queue& queue) {
  constexpr int64_t kSize = 8192, kBytes = 2 * kSize * kSize;
  TW_ASSIGN_OR_RETURN(const std::shared_ptr<const Executable> plan,
                      first_plan(square_matmul(kSize, DataType_t::BFLOAT16), target));
  std::vector<cuda::DeviceMemory> memory;
  for (const int64_t bytes : {kBytes, kBytes, kBytes, plan->workspace_bytes()}) {
    auto made = cuda::DeviceMemory::allocate(queue.ordinal, bytes);
    if (!made) return made.status();
    memory.push_back(std::move(*made));
  }
  for (size_t i : {size_t(0), size_t(1)}) TW_RETURN_IF_BAD(fill_normal(memory[i]));
  const Bindings bindings = {memory[0].data(), memory[1].data(), memory[2].data()};
  const auto run = [&](int64_t) { return plan->run(bindings, memory[3].data(), queue); };
  TW_ASSIGN_OR_RETURN(const double ms, median_ms(queue, run, 1));
  return 2.0 * double(kSize) * double(kSize) * double(kSize) / ms * 1e3;
}

// --- a CPU -------------------------------------------------------------------------------------------------------

template <class Body>
double fastest_ms(int runs, const Body& body) {
  double best = 0;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    best = best == 0 ? ms : std::min(best, ms);
  }
  return best;
}

double cpu_bytes_per_s() {
  constexpr size_t kHalf = size_t(64) << 20, kChunk = size_t(1) << 20;
  std::vector<char> from(kHalf, 1), to(kHalf, 2);
  const double ms = fastest_ms(4, [&] {
    parallel_for(int64_t(kHalf / kChunk), [&](int64_t i) {
      std::memcpy(to.data() + size_t(i) * kChunk, from.data() + size_t(i) * kChunk, kChunk);
    });
  });
  return 2.0 * double(kHalf) / ms * 1e3;
}

Result<double> cpu_flops_per_s(const Target& target) {
  constexpr int64_t kSize = 768;
  TW_ASSIGN_OR_RETURN(const std::shared_ptr<const Executable> plan,
                      first_plan(square_matmul(kSize, DataType_t::FLOAT), target));
  std::vector<std::vector<float>> matrix(3, std::vector<float>(size_t(kSize * kSize), 0.5f));
  std::vector<char> workspace(size_t(plan->workspace_bytes()) + 64);
  const Bindings bindings = {matrix[0].data(), matrix[1].data(), matrix[2].data()};
  Status status;
  const double ms = fastest_ms(4, [&] {
    char* aligned = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
    if (status.is_good()) status = plan->run(bindings, aligned, {});
  });
  TW_RETURN_IF_BAD(status);
  return 2.0 * double(kSize) * double(kSize) * double(kSize) / ms * 1e3;
}

// --- the file ----------------------------------------------------------------------------------------------------

// The machine, and the versions of the engines that it can use.
std::string key_of(const Target& target) {
  std::string key = target.hardware() + ", " + target.text();
  for (const Engine* engine : all_engines())
    if (engine->unavailable(target).empty()) key += fmt::format(", {} {}", engine->name(), engine->version());
  return key;
}

json read_file(const std::string& path) {
  std::ifstream in(path);
  json j = in ? json::parse(in, nullptr, false) : json::object();
  return j.is_object() ? j : json::object();
}

// In one piece, so that another process reads the old file or the new one. It is a cache: no error where it fails.
void write_file(const std::string& path, const json& j) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const std::string draft = path + ".new";
  std::ofstream(draft) << j.dump(1) << '\n';
  std::filesystem::rename(draft, path, ignored);
}

}  // namespace

double Roofline::share(double flops, double bytes, double ms) const {
  const double least_s = std::max(flops_per_s > 0 ? flops / flops_per_s : 0, bytes_per_s > 0 ? bytes / bytes_per_s : 0);
  return ms > 0 ? least_s * 1e3 / ms : 0;
}

std::string roofline_path() {
  const std::string db = tuning_db_path();
  return db.empty() ? "" : (std::filesystem::path(db).parent_path() / "roofline.json").string();
}

Result<Roofline> measure_roofline(const Target& target, const Queue& queue) {
  Roofline r;
  if (!target.is_gpu()) {
    r.bytes_per_s = cpu_bytes_per_s();
    TW_ASSIGN_OR_RETURN(r.flops_per_s, cpu_flops_per_s(target));
    return r;
  }
  const cuda::ScopedDevice device(queue.ordinal);
  TW_RETURN_IF_BAD(device.status());
  TW_ASSIGN_OR_RETURN(r.bytes_per_s, gpu_bytes_per_s(queue));
  TW_ASSIGN_OR_RETURN(r.flops_per_s, gpu_flops_per_s(target, queue));
  return r;
}

Result<Roofline> roofline(const Target& target, const Queue& queue) {
  const std::string path = roofline_path(), key = key_of(target);
  json known = path.empty() ? json::object() : read_file(path);
  if (const auto it = known.find(key); it != known.end() && it->is_object() && it->contains("bytes_per_s") &&
                                       it->contains("flops_per_s") && (*it)["bytes_per_s"].is_number() &&
                                       (*it)["flops_per_s"].is_number())
    return Roofline{(*it)["bytes_per_s"], (*it)["flops_per_s"]};
  TW_ASSIGN_OR_RETURN(const Roofline r, measure_roofline(target, queue));
  if (!path.empty()) {
    known[key] = {{"bytes_per_s", r.bytes_per_s}, {"flops_per_s", r.flops_per_s}};
    write_file(path, known);
  }
  return r;
}

}  // namespace tilewright
