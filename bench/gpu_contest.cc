#include "gpu_contest.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "frontend/handle.h"
#include "plan/judge.h"

namespace tilewright::bench {
namespace {

constexpr int kRuns = 20, kFinalRounds = 10, kFinalists = 3;

cuda::CUdeviceptr address(const void* p) { return reinterpret_cast<cuda::CUdeviceptr>(p); }

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::open(const std::string& device) {
  std::unique_ptr<Gpu> gpu(new Gpu);
  TW_ASSIGN_OR_RETURN(gpu->target_, Target::parse(device));
  if (gpu->target_.ordinal < 0) return invalid("\"{}\" is no GPU of this machine", device);
  gpu->current_.emplace(gpu->target_.ordinal);
  TW_RETURN_IF_BAD(gpu->current_->status());
  cuda::CUstream stream = nullptr;
  TW_RETURN_IF_BAD(cuda::check(cuda::driver().stream_create(&stream, cuda::kStreamNonBlocking), "cuStreamCreate"));
  gpu->queue_.stream = stream;
  TW_RETURN_IF_BAD(create_handle(&gpu->handle_, device, stream));
  TW_ASSIGN_OR_RETURN(gpu->queue_, queue_of(gpu->handle_));
  return gpu;
}

Gpu::~Gpu() {
  const cuda::CUstream own = stream();
  (void)destroy_handle(handle_);
  if (own) cuda::driver().stream_destroy(own);
}

int GpuTensors::sets_for(const Target& target, double bytes) {
  const double wanted = std::ceil(3 * double(target.gpu->l2_bytes) / bytes);
  const double fits = 0.3 * double(target.gpu->memory_bytes) / bytes;
  return int(std::clamp(std::min(wanted, fits), 2.0, 512.0));
}

Status GpuTensors::add(const ir::Graph& graph, const Tensors& host) {
  for (const ir::Tensor& t : graph.tensors) {
    if (!t.bound_by_caller()) continue;
    auto [it, fresh] = buffers_.try_emplace(memory_name(t));
    if (!fresh) continue;
    for (int set = 0; set < sets_; ++set) {
      auto memory = cuda::DeviceMemory::allocate(gpu_.target().ordinal, t.storage_bytes());
      if (!memory) return memory.status();
      it->second.push_back(std::move(*memory));
    }
    if (t.role == ir::Role::Output) continue;
    const auto first = address(it->second[0].data());
    const auto bytes = size_t(t.storage_bytes());
    TW_RETURN_IF_BAD(cuda::check(cuda::driver().memcpy_htod(first, host.at(memory_name(t), 0), bytes), "upload"));
    // The last of it may still be on its way, which our stream would not wait for.
    TW_RETURN_IF_BAD(cuda::check(cuda::driver().ctx_synchronize(), "upload"));
    for (int set = 1; set < sets_; ++set)
      TW_RETURN_IF_BAD(cuda::check(
          cuda::driver().memcpy_dtod_async(address(it->second[size_t(set)].data()), first, bytes, gpu_.stream()),
          "copy on the GPU"));
    TW_RETURN_IF_BAD(gpu_.wait());
  }
  return {};
}

Status GpuTensors::poison(const ir::Graph& graph) {
  for (const ir::Tensor& t : graph.tensors)
    if (t.role == ir::Role::Output)
      TW_RETURN_IF_BAD(cuda::check(cuda::driver().memset_d8_async(address(buffers_.at(memory_name(t))[0].data()), 0xff,
                                                                  size_t(t.storage_bytes()), gpu_.stream()),
                                   "cuMemsetD8Async"));
  return {};
}

Status GpuTensors::read(const std::string& name, int64_t offset, int64_t bytes, void* to) const {
  const auto from = address(buffers_.at(name)[0].data()) + cuda::CUdeviceptr(offset);
  return cuda::check(cuda::driver().memcpy_dtoh(to, from, size_t(bytes)), "download");
}

Bindings GpuTensors::bindings(const ir::Graph& graph, int set) const {
  Bindings bindings(graph.tensors.size(), nullptr);
  for (size_t id = 0; id < graph.tensors.size(); ++id)
    if (graph.tensors[id].bound_by_caller())
      bindings[id] = buffers_.at(memory_name(graph.tensors[id]))[size_t(set)].data();
  return bindings;
}

namespace {

using Clock = std::chrono::steady_clock;
const std::vector<HeurMode_t> kModes = {HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK};

bool less_exact(NumericalNote_t note) {
  using N = NumericalNote_t;
  for (const N n : {N::DOWN_CONVERT_INPUTS, N::REDUCED_PRECISION_REDUCTION, N::FFT, N::WINOGRAD, N::WINOGRAD_TILE_4x4,
                    N::WINOGRAD_TILE_6x6, N::WINOGRAD_TILE_13x13})
    if (note == n) return true;
  return false;
}

// A row's graph, its plans and all memory that they run on.
class Runner {
 public:
  Runner(const Gpu& gpu, const GpuRow& row, const ContestOptions& options) : gpu_(gpu), row_(row), options_(options) {}
  Result<GpuContest> run();

 private:
  struct Entry {
    std::shared_ptr<const Executable> executable;
    std::unique_ptr<DeviceTimer> timer;
    std::vector<double> ms;
  };

  Status list_plans();
  std::string why(const PlanRow&) const;
  Status make_inputs();
  Status make_inputs_from(const GraphPtr&);
  void build_plans();
  Status make_workspace();
  void check_plan(size_t i);
  void time_plans();
  Status run_finals();
  std::vector<size_t> finalists() const;
  Result<std::unique_ptr<DeviceTimer>> copy_timer();
  Status execute(size_t i, int64_t turn) const {
    return entries_[i].executable->run(bindings_[size_t(turn)], workspace_.data(), gpu_.queue());
  }
  void progress(const std::string& doing) const { options_.progress(row_.name + ": " + doing); }
  void progress(const char* doing, size_t i) const {
    progress(fmt::format("{} {} of {}: {}", doing, i + 1, contest_.plans.size(), contest_.plans[i].name));
  }
  void give_up(size_t i, const std::string& why, bool wrong = false) {
    contest_.plans[i].problem = why, contest_.plans[i].wrong = wrong;
    entries_[i] = {};
  }

  const Gpu& gpu_;
  const GpuRow& row_;
  const ContestOptions& options_;
  std::shared_ptr<const ir::Graph> graph_;
  PlanList list_;
  std::unique_ptr<Tensors> host_;
  std::unique_ptr<GpuTensors> tensors_;
  std::vector<Bindings> bindings_;  // by set
  cuda::DeviceMemory workspace_, copied_;
  std::optional<SampledReference> reference_;
  std::vector<Entry> entries_;  // beside contest_.plans
  GpuContest contest_;
};

// The first reasons: a library may give one for each of its engines.
std::string Runner::why(const PlanRow& row) const {
  std::string text = row.reasons.empty() ? "no reason given" : describe(*graph_, row.reasons[0]);
  for (size_t i = 1; i < row.reasons.size() && i < 3; ++i) text += "; " + describe(*graph_, row.reasons[i]);
  return row.reasons.size() > 3 ? text + fmt::format("; and {} more", row.reasons.size() - 3) : text;
}

Status Runner::list_plans() {
  list_.filters.barred_numerical = row_.barred;
  Status listed = list_.create(graph_, gpu_.target(), kModes, nullptr);
  if (listed.is_good()) listed = list_.check_support();
  for (const PlanRow& r : list_.rejected())
    if (r.engine->unavailable(gpu_.target()).empty()) contest_.refused.try_emplace(r.engine->name(), why(r));
  std::map<std::string, int> count;
  for (int64_t i = 0; i < list_.count(); ++i) {
    const PlanRow& r = list_.at(i);
    const auto& notes = r.candidate.notes;
    const bool tf32 = std::find(notes.begin(), notes.end(), kTf32Note) != notes.end();
    if (r.state != PlanState::Listed || r.candidate.last_resort || (tf32 && !row_.tf32)) continue;
    contest_.refused.erase(r.engine->name());
    if (options_.quick && ++count[r.engine->name()] > 6) continue;
    GpuPlan plan;
    plan.name = r.name(), plan.engine = r.engine->name(), plan.rank = i;
    for (const NumericalNote_t note : r.candidate.numerical_notes) plan.excused = plan.excused || less_exact(note);
    contest_.plans.push_back(std::move(plan));
  }
  entries_.resize(contest_.plans.size());
  if (contest_.plans.empty() && contest_.refused.empty())
    contest_.refused["none"] = listed.is_bad() ? listed.err_msg : "every plan has a note that this row bars";
  return {};
}

// The outputs of another graph, as the first of its plans that runs computes them.
Status Runner::make_inputs_from(const GraphPtr& described) {
  progress("making inputs");
  TW_ASSIGN_OR_RETURN(const std::shared_ptr<const ir::Graph> graph, frozen(described));
  host_->add(*graph);
  TW_RETURN_IF_BAD(tensors_->add(*graph, *host_));
  PlanList list;
  TW_RETURN_IF_BAD(list.create(graph, gpu_.target(), kModes, nullptr));
  std::shared_ptr<const Executable> executable;
  for (int64_t i = 0; i < list.count() && !executable; ++i)
    if (!list.at(i).candidate.last_resort && list.build_at(i).is_good()) executable = list.at(i).executable;
  if (!executable) return not_supported("no plan makes its inputs: {}", list.why_none());
  TW_ASSIGN_OR_RETURN(const cuda::DeviceMemory workspace,
                      cuda::DeviceMemory::allocate(gpu_.target().ordinal, executable->workspace_bytes()));
  for (int set = 0; set < tensors_->sets(); ++set)
    TW_RETURN_IF_BAD(executable->run(tensors_->bindings(*graph, set), workspace.data(), gpu_.queue()));
  TW_RETURN_IF_BAD(gpu_.wait());
  for (const ir::Tensor& t : graph->tensors)
    if (t.role == ir::Role::Output)
      TW_RETURN_IF_BAD(tensors_->read(memory_name(t), 0, t.storage_bytes(), host_->at(memory_name(t), 0)));
  return {};
}

Status Runner::make_inputs() {
  contest_.bytes = bytes_of(*graph_);
  host_ = std::make_unique<Tensors>(1, nullptr);
  tensors_ = std::make_unique<GpuTensors>(gpu_, GpuTensors::sets_for(gpu_.target(), contest_.bytes));
  if (row_.inputs_from) TW_RETURN_IF_BAD(make_inputs_from(row_.inputs_from()));
  progress("filling inputs");
  host_->add(*graph_);
  plant(row_, *graph_, *host_);
  TW_RETURN_IF_BAD(tensors_->add(*graph_, *host_));
  for (int set = 0; set < tensors_->sets(); ++set) bindings_.push_back(tensors_->bindings(*graph_, set));
  progress("evaluating the reference");
  TW_ASSIGN_OR_RETURN(SampledReference reference, SampledReference::make(row_, *graph_, *host_, 1));
  reference_ = std::move(reference);
  return {};
}

void Runner::build_plans() {
  const auto all = Clock::now();
  for (size_t i = 0; i < contest_.plans.size(); ++i) {
    progress("building", i);
    GpuPlan& plan = contest_.plans[i];
    const auto start = Clock::now();
    const Status built = list_.build_at(plan.rank);
    plan.build_ms = ms_since(start);
    if (built.is_bad()) give_up(i, built.err_msg);
    else entries_[i].executable = list_.at(plan.rank).executable;
  }
  contest_.build_ms = ms_since(all);
}

Status Runner::make_workspace() {
  int64_t most = 0;
  for (const Entry& e : entries_)
    if (e.executable) most = std::max(most, e.executable->workspace_bytes());
  TW_ASSIGN_OR_RETURN(workspace_, cuda::DeviceMemory::allocate(gpu_.target().ordinal, most));
  return {};
}

void Runner::check_plan(size_t i) {
  progress("checking", i);
  Status status = tensors_->poison(*graph_);
  if (status.is_good()) status = execute(i, 0);
  if (status.is_good()) status = gpu_.wait();
  if (status.is_bad()) return give_up(i, status.err_msg);
  const auto judgement = reference_->judge([&](const std::string& name, int64_t offset, int64_t bytes, void* to) {
    return tensors_->read(name, offset, bytes, to);
  });
  if (!judgement) return give_up(i, judgement.status().err_msg);
  contest_.plans[i].worst_error = judgement->worst_error;
  if (!judgement->wrong.empty()) give_up(i, judgement->wrong, true);
}

void Runner::time_plans() {
  double best = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i].executable) continue;
    progress("timing", i);
    auto timer = DeviceTimer::make(
        gpu_.queue(), [this, i](int64_t turn) { return execute(i, turn); }, tensors_->sets());
    if (!timer) {
      give_up(i, timer.status().err_msg);
      continue;
    }
    // One that is far from the best need not run as often.
    const bool slow = best > 0 && timer->estimate_ms() > 3 * best;
    auto ms = timer->samples(slow ? 3 : kRuns);
    if (!ms) {
      give_up(i, ms.status().err_msg);
      continue;
    }
    GpuPlan& plan = contest_.plans[i];
    plan.ms = median(*ms);
    plan.batch =
        timer->captured() ? fmt::format("graph of {}", timer->batch()) : fmt::format("{} at a time", timer->batch());
    if (best == 0 || plan.ms < best) best = plan.ms;
    entries_[i].timer = std::make_unique<DeviceTimer>(std::move(*timer));
  }
}

// Of each engine its first plan and its fastest ones.
std::vector<size_t> Runner::finalists() const {
  std::map<std::string, std::vector<size_t>> by_engine;
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].timer) by_engine[contest_.plans[i].engine].push_back(i);
  std::vector<size_t> chosen;
  for (auto& [engine, list] : by_engine) {
    chosen.push_back(list[0]);
    const size_t first = list[0];
    std::sort(list.begin(), list.end(),
              [&](size_t x, size_t y) { return contest_.plans[x].ms < contest_.plans[y].ms; });
    for (size_t k = 0; k < list.size() && k < kFinalists; ++k)
      if (list[k] != first) chosen.push_back(list[k]);
  }
  return chosen;
}

// How far apart source and destination lie decides a third of a copy's rate, as memory is spread over its channels.
Result<std::unique_ptr<DeviceTimer>> Runner::copy_timer() {
  constexpr int64_t kUnit = 64 << 10;
  const int64_t half = std::max(int64_t(contest_.bytes / 2) / kUnit, int64_t{1}) * kUnit, turns = tensors_->sets();
  const int64_t per_turn = 2 * half + 2 * kUnit;
  TW_ASSIGN_OR_RETURN(copied_, cuda::DeviceMemory::allocate(gpu_.target().ordinal, per_turn * turns));
  std::unique_ptr<DeviceTimer> fastest;
  double least = 0;
  for (const int64_t gap : {int64_t{0}, int64_t{8} << 10, int64_t{72} << 10}) {
    const auto copy = [this, half, per_turn, gap](int64_t turn) {
      const cuda::CUdeviceptr to = address(copied_.data()) + cuda::CUdeviceptr(per_turn * turn);
      return cuda::check(
          cuda::driver().memcpy_dtod_async(to, to + cuda::CUdeviceptr(half + gap), size_t(half), gpu_.stream()),
          "copy on the GPU");
    };
    TW_ASSIGN_OR_RETURN(DeviceTimer timer, DeviceTimer::make(gpu_.queue(), copy, turns));
    TW_ASSIGN_OR_RETURN(const std::vector<double> ms, timer.samples(5));
    if (!fastest || median(ms) < least) least = median(ms), fastest = std::make_unique<DeviceTimer>(std::move(timer));
  }
  return fastest;
}

// In turns, so that all see the same temperature; only these times count.
Status Runner::run_finals() {
  const std::vector<size_t> chosen = finalists();
  progress("measuring the best again");
  TW_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceTimer> copy, copy_timer());
  std::vector<double> copies;
  for (int round = 0; round < kFinalRounds; ++round) {
    TW_ASSIGN_OR_RETURN(const std::vector<double> ms, copy->samples(2));
    copies.insert(copies.end(), ms.begin(), ms.end());
    for (const size_t i : chosen) {
      TW_ASSIGN_OR_RETURN(const std::vector<double> more, entries_[i].timer->samples(2));
      entries_[i].ms.insert(entries_[i].ms.end(), more.begin(), more.end());
    }
  }
  contest_.copy_ms = median(copies);
  for (const size_t i : chosen) contest_.plans[i].ms = median(entries_[i].ms);
  return {};
}

Result<GpuContest> Runner::run() {
  TW_ASSIGN_OR_RETURN(graph_, frozen(row_.make()));
  TW_RETURN_IF_BAD(list_plans());
  if (contest_.plans.empty()) return contest_;
  TW_RETURN_IF_BAD(make_inputs());
  build_plans();
  TW_RETURN_IF_BAD(make_workspace());
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].executable) check_plan(i);
  if (options_.check_only) return contest_;
  time_plans();
  TW_RETURN_IF_BAD(run_finals());
  return contest_;
}

}  // namespace

Result<GpuContest> hold_contest(const Gpu& gpu, const GpuRow& row, const ContestOptions& options) {
  return Runner(gpu, row, options).run();
}

}  // namespace tilewright::bench
