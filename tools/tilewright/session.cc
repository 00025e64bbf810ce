#include "session.h"

#include <algorithm>
#include <chrono>

#include "frontend/builder.h"
#include "plan/device_copy.h"
#include "plan/device_timer.h"
#include "plan/plan_file.h"
#include "terminal.h"

namespace tilewright::tool {

namespace {

graph::Graph graph_of(const std::string& text, const std::string& path) {
  bool ok = false;
  const Json json = Json::parse(text, &ok);
  if (!ok) fail("\"{}\" is not JSON", path);
  graph::Graph graph;
  must(graph.deserialize(json), fmt::format("\"{}\" is no graph file", path));
  must(graph.validate(), fmt::format("\"{}\"", path));
  return graph;
}

}  // namespace

graph::Graph load_graph(const std::string& path) { return graph_of(read_text(path), path); }

Session::Session(const std::string& path, const ChosenDevice& device) : path_(path), device_(device) {
  const std::string text = read_text(path);
  if (is_plan_file(text)) {
    must(graph::load_plan_file(graph_.impl(), {text.begin(), text.end()}, graph::Loading::Strict, device.queue()),
         fmt::format("\"{}\"", path));
    ir_ = graph_.impl().plans.graph();
    return;
  }
  graph_ = graph_of(text, path);
  device_.lower(graph_, fmt::format("\"{}\"", path));
  must(graph_.create_execution_plans({HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK}),
       fmt::format("\"{}\"", path));
  must(graph_.check_support(), fmt::format("\"{}\"", path));
  ir_ = graph_.impl().plans.graph();
}

std::vector<PlanInfo> select_plans(const std::vector<PlanInfo>& plans, const std::string& fragment) {
  std::vector<PlanInfo> selected;
  for (const PlanInfo& plan : plans)
    if (plan.index >= 0 && plan.name.find(fragment) != std::string::npos) selected.push_back(plan);
  return selected;
}

int64_t Session::build_best(const std::string& engine) {
  std::string reasons;
  for (const PlanInfo& plan : select_plans(plans(), engine)) {
    const Status status = build(plan.index);
    if (status.is_good()) return plan.index;
    reasons += fmt::format("\n  plan {} {}: {}", plan.index, plan.name, status.get_message());
  }
  for (const PlanInfo& plan : plans())  // engines that say no
    if (plan.index < 0 && plan.name.find(engine) != std::string::npos)
      for (const std::string& reason : plan.reasons) reasons += fmt::format("\n  {}: {}", plan.name, reason);
  if (reasons.empty())
    fail("no plan of \"{}\" has \"{}\" in its name; `tilewright plans {}` lists them", path_, engine, path_);
  fail("no plan of \"{}\" could be built:{}", path_, reasons);
}

Status Session::build(int64_t index) { return graph_.build_plan_at_index(index); }

Status Session::run_once(Harness& harness, int64_t index) {
  harness.poison_outputs();
  void* workspace = harness.workspace(workspace_bytes(index));
  if (!device_.is_gpu()) {
    auto pack = harness.variant_pack();
    return graph_.execute_plan_at_index(Handle{}, pack, workspace, index);
  }
  TW_ASSIGN_OR_RETURN(DeviceCopy copy, DeviceCopy::make(*ir_, harness, device_.queue().ordinal));
  TW_RETURN_IF_BAD(copy.upload());
  std::unordered_map<int64_t, void*> pack;
  for (size_t id = 0; id < ir_->tensors.size(); ++id)
    if (ir_->tensors[id].bound_by_caller()) pack[ir_->tensors[id].uid] = copy.bindings()[id];
  TW_RETURN_IF_BAD(graph_.execute_plan_at_index(device_.handle(), pack, copy.workspace(), index));
  return copy.download();
}

const ir::Graph& Session::judge(int64_t index) {
  if (!judges_) judges_ = std::make_unique<Judges>(*ir_);
  return judges_->of(graph_.impl().plans.at(index).candidate.notes);
}

PlanInfo Session::info(int64_t index) const {
  for (PlanInfo& plan : plans())
    if (plan.index == index) return std::move(plan);
  fail("\"{}\" has no plan {}; `tilewright plans {}` lists them", path_, index, path_);
}

std::vector<KernelText> Session::kernels(int64_t index) const {
  const PlanRow& row = graph_.impl().plans.at(index);
  return row.proposal ? row.proposal->kernels(row.candidate.config) : std::vector<KernelText>();
}

std::vector<uint8_t> Session::saved() const {
  std::vector<uint8_t> bytes;
  must(graph_.serialize(bytes), fmt::format("\"{}\"", path_));
  return bytes;
}

const std::string& Session::config(int64_t index) const { return graph_.impl().plans.at(index).candidate.config; }

bool Session::last_resort(int64_t index) const { return graph_.impl().plans.at(index).candidate.last_resort; }

std::vector<RegionInfo> Session::regions(int64_t index) const {
  const PlanRow& row = graph_.impl().plans.at(index);
  // A proposal tells the regions of its best configuration.
  const bool best = row.proposal && row.proposal->candidates().front().config == row.candidate.config;
  return best ? row.proposal->regions() : std::vector<RegionInfo>();
}

Timing summary(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  const size_t n = ms.size();
  return {(ms[(n - 1) / 2] + ms[n / 2]) / 2, ms.front(), ms.back(), int(n)};
}

Timing Session::time(Harness& harness, int64_t index, int runs, double seconds) {
  if (device_.is_gpu()) return time_on_gpu(harness, index, runs, seconds);
  using clock = std::chrono::steady_clock;
  const auto ms_since = [](clock::time_point start) {
    return std::chrono::duration<double, std::milli>(clock::now() - start).count();
  };
  constexpr int kLeast = 3, kMost = 200;
  auto pack = harness.variant_pack();
  void* workspace = harness.workspace(workspace_bytes(index));
  const auto body = [&] { must(graph_.execute_plan_at_index(Handle{}, pack, workspace, index), "execute"); };
  body();
  std::vector<double> times;
  const auto begin = clock::now();
  const auto wanted = [&] {
    const int n = int(times.size());
    return runs > 0 ? n < runs : n < kLeast || (n < kMost && ms_since(begin) < seconds * 1e3);
  };
  while (wanted()) {
    const auto start = clock::now();
    body();
    times.push_back(ms_since(start));
  }
  return summary(std::move(times));
}

namespace {

// What a plan reads and writes on a GPU, several times over, so that a run does not find its inputs in the cache.
struct RotatingMemory {
  std::vector<cuda::DeviceMemory> memory;
  std::vector<Bindings> sets;

  static Result<RotatingMemory> make(const ir::Graph& graph, const Harness& harness, const Target& target) {
    double bytes = 1;
    for (const ir::Tensor& t : graph.tensors)
      if (t.bound_by_caller()) bytes += double(t.storage_bytes());
    const double past_cache = 3 * double(target.gpu->l2_bytes) / bytes,
                 fits = 0.3 * double(target.gpu->memory_bytes) / bytes;
    RotatingMemory made;
    made.sets.assign(size_t(std::clamp(std::min(past_cache, fits) + 1, 2.0, 256.0)), harness.bindings());
    for (size_t id = 0; id < graph.tensors.size(); ++id) {
      const ir::Tensor& t = graph.tensors[id];
      if (!t.bound_by_caller() || t.role == ir::Role::Scalar) continue;
      for (Bindings& set : made.sets) {
        TW_ASSIGN_OR_RETURN(cuda::DeviceMemory part, cuda::DeviceMemory::allocate(target.ordinal, t.storage_bytes()));
        set[id] = part.data();
        made.memory.push_back(std::move(part));
        if (t.role == ir::Role::Output || !set[id]) continue;
        TW_RETURN_IF_BAD(
            cuda::check(cuda::driver().memcpy_htod(reinterpret_cast<cuda::CUdeviceptr>(set[id]),
                                                   harness.memory(ir::TensorId(id)), size_t(t.storage_bytes())),
                        "copy to the GPU"));
      }
    }
    TW_RETURN_IF_BAD(cuda::check(cuda::driver().ctx_synchronize(), "copy to the GPU"));
    return made;
  }
};

Result<std::vector<double>> gpu_times(const Executable& plan, const RotatingMemory& memory, const Queue& queue,
                                      int runs, double seconds) {
  TW_ASSIGN_OR_RETURN(const cuda::DeviceMemory workspace,
                      cuda::DeviceMemory::allocate(queue.ordinal, plan.workspace_bytes()));
  const auto run = [&](int64_t turn) { return plan.run(memory.sets[size_t(turn)], workspace.data(), queue); };
  TW_ASSIGN_OR_RETURN(DeviceTimer timer, DeviceTimer::make(queue, run, int64_t(memory.sets.size())));
  const double sample_ms = timer.estimate_ms() * double(timer.batch());
  return timer.samples(runs > 0 ? runs : int(std::clamp(seconds * 1e3 / std::max(sample_ms, 1e-3), 5.0, 20.0)));
}

}  // namespace

Timing Session::time_on_gpu(const Harness& harness, int64_t index, int runs, double seconds) {
  const cuda::ScopedDevice current(device_.queue().ordinal);
  must(current.status(), "the GPU");
  const auto memory = RotatingMemory::make(*ir_, harness, device_.target());
  must(memory.status(), "memory to time plans on");
  const auto ms = gpu_times(*graph_.impl().plans.at(index).executable, *memory, device_.queue(), runs, seconds);
  must(ms.status(), "timing");
  return summary(*ms);
}

std::string type_name(const ir::Tensor& tensor) {
  return to_string(tensor.type) + (tensor.bit_packed ? " (bits)" : "");
}

bool row_major(const ir::Tensor& tensor) {
  const Dims packed = row_major_strides(tensor.dim);
  for (size_t d = 0; d < packed.size(); ++d)
    if (tensor.dim[d] != 1 && tensor.stride[d] != packed[d]) return false;
  return true;
}

std::string shape_text(const ir::Tensor& tensor) {
  std::string text = to_text(tensor.dim);
  if (!row_major(tensor)) text += " stride " + to_text(tensor.stride);
  return text;
}

}  // namespace tilewright::tool
