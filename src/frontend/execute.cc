// Executing, timing and recording plans. A call looks pointers up, checks them and launches; nothing is planned here.
#include <algorithm>
#include <chrono>

#include "base/environment.h"
#include "base/result.h"
#include "frontend/builder.h"
#include "frontend/gpu_execution.h"
#include "frontend/handle.h"
#include "frontend/verify.h"
#include "ops/reference.h"
#include "plan/tuning_db.h"

namespace tilewright {

struct LaunchList::Impl {
  std::shared_ptr<const Executable> executable;
  std::shared_ptr<const PlanBinding> binding;
  Bindings bindings;
  void* workspace = nullptr;
  Queue queue;
  std::unique_ptr<graph::GpuGraph> gpu_graph;  // on a GPU, where the plan can make one
};

LaunchList::LaunchList() = default;
LaunchList::~LaunchList() = default;
LaunchList::LaunchList(LaunchList&&) noexcept = default;
LaunchList& LaunchList::operator=(LaunchList&&) noexcept = default;
bool LaunchList::empty() const { return !impl; }
int LaunchList::launch_count() const { return impl ? int(impl->executable->steps().size()) : 0; }
error_t LaunchList::replay() const {
  if (!impl) return error(error_code_t::GRAPH_EXECUTION_FAILED, "the launch list is empty: record an execution first");
  if (impl->gpu_graph) return impl->gpu_graph->launch();
  const cuda::ScopedDevice device(impl->queue.ordinal);
  return impl->executable->run(impl->bindings, impl->workspace, impl->queue);
}

namespace graph {
namespace {

using TensorMap = std::unordered_map<TensorPtr, void*>;
using UidMap = std::unordered_map<int64_t, void*>;
using Shapes = std::vector<std::vector<int64_t>>;

Status missing(const PlanBinding& b, const PlanBinding::Slot& s) {
  return error(error_code_t::INVALID_VARIANT_PACK, "Uid {} not found in variant pack: it is tensor \"{}\"", s.uid,
               b.graph->tensor(s.tensor).name);
}

Status check_pointers(const PlanBinding& b, const Bindings& bindings) {
  for (const PlanBinding::Slot& s : b.slots)
    if (!bindings[size_t(s.tensor)] && s.needs_memory)
      return error(error_code_t::INVALID_VARIANT_PACK, "tensor \"{}\" (uid {}) has a null pointer",
                   b.graph->tensor(s.tensor).name, s.uid);
  return {};
}

Status bind(const PlanBinding& b, const UidMap& map, Bindings& out) {
  out.assign(b.tensor_count, nullptr);
  for (const PlanBinding::Slot& s : b.slots) {
    auto it = map.find(s.uid);
    if (it == map.end()) return missing(b, s);
    out[size_t(s.tensor)] = it->second;
  }
  return check_pointers(b, out);
}

// By tensor: the uid counts, so that keys may come from another graph with the same uids.
Status bind(const PlanBinding& b, const TensorMap& map, Bindings& out) {
  out.assign(b.tensor_count, nullptr);
  size_t found = 0;
  for (const auto& [tensor, pointer] : map) {
    if (!tensor || !tensor->has_uid()) continue;
    const PlanBinding::Slot* s = b.find(tensor->get_uid());
    if (!s) continue;
    out[size_t(s->tensor)] = pointer;
    ++found;
  }
  if (found < b.slots.size())
    for (const PlanBinding::Slot& s : b.slots) {
      const bool there = std::any_of(map.begin(), map.end(), [&](const auto& e) {
        return e.first && e.first->has_uid() && e.first->get_uid() == s.uid;
      });
      if (!there) return missing(b, s);
    }
  return check_pointers(b, out);
}

struct PointerList {
  void** pointers;
  int count;
};

Status bind(const PlanBinding& b, const PointerList& list, Bindings& out) {
  out.assign(b.tensor_count, nullptr);
  if (size_t(list.count) != b.slots.size())
    return error(error_code_t::INVALID_VARIANT_PACK, "{} pointers given, the variant pack has {} uids", list.count,
                 b.slots.size());
  for (size_t i = 0; i < b.slots.size(); ++i) out[size_t(b.slots[i].tensor)] = list.pointers[i];
  return check_pointers(b, out);
}

Result<int64_t> built_index(const PlanList& plans, int64_t index) {
  if (index < 0 || index >= plans.count())
    return error(error_code_t::GRAPH_EXECUTION_FAILED, "Plan index {} is invalid. The list has {} plans.", index,
                 plans.count());
  if (!plans.at(index).executable)
    return error(error_code_t::GRAPH_EXECUTION_FAILED, "Plan at index {} ({}) did not build.", index,
                 plans.at(index).name());
  return index;
}

// Memory that an output shares with an input which a later launch of this plan still reads.
Status check_hazards(const PlanBinding& b, const Executable& e, const Bindings& bindings) {
  for (const Hazard& h : e.hazards()) {
    const char* w = static_cast<const char*>(bindings[size_t(h.written)]);
    const char* r = static_cast<const char*>(bindings[size_t(h.read)]);
    if (w < r + b.bytes[size_t(h.read)] && r < w + b.bytes[size_t(h.written)])
      return error(
          error_code_t::GRAPH_EXECUTION_FAILED,
          "output \"{}\" shares memory with input \"{}\", which a later kernel of this plan of {} kernels still "
          "reads; give them separate memory, or take a plan that fuses the two",
          b.graph->tensor(h.written).name, b.graph->tensor(h.read).name, e.steps().size());
  }
  return {};
}

bool verify_wanted(const Description& d) {
  static const bool everywhere = kVerify.is_one();
  return d.verify || everywhere;
}

// All that must hold before anything is put on the queue.
Status check_memory(const PlanBinding& b, const Executable& e, const Bindings& bindings, void* workspace,
                    const Queue& queue) {
  if (e.workspace_bytes() > 0 && !workspace)
    return error(error_code_t::GRAPH_EXECUTION_FAILED, "the plan needs a workspace of {} bytes, the pointer is null",
                 e.workspace_bytes());
  if (queue.ordinal >= 0) TW_RETURN_IF_BAD(check_gpu_pointers(b, bindings, workspace, queue));
  return check_hazards(b, e, bindings);
}

Status launch(const Description& d, const PlanBinding& b, const PlanRow& row, const Executable& e,
              const Bindings& bindings, void* workspace, const Queue& queue) {
  TW_RETURN_IF_BAD(check_memory(b, e, bindings, workspace, queue));
  if (queue.ordinal < 0 && !verify_wanted(d)) return e.run(bindings, workspace, queue);
  const cuda::ScopedDevice device(queue.ordinal);
  TW_RETURN_IF_BAD(device.status());
  if (verify_wanted(d)) return run_verified(*b.graph, e, row.candidate.notes, bindings, queue);
  return e.run(bindings, workspace, queue);
}

// The queue of a handle that may execute this graph's plans.
Result<Queue> queue_for(const Graph::Impl& impl, Handle handle) {
  TW_ASSIGN_OR_RETURN(const Queue queue, queue_of(handle));
  if (impl.plans.binding()) TW_RETURN_IF_BAD(check_device(impl.plans.target(), queue));
  return queue;
}

// One vector per thread, so that execute() allocates nothing after its first call.
Bindings& thread_bindings() {
  static thread_local Bindings bindings;
  return bindings;
}

template <class Pack>
Status execute_at(const Graph::Impl& impl, Handle handle, const Pack& pack, void* workspace, int64_t index) {
  TW_ASSIGN_OR_RETURN(const Queue queue, queue_for(impl, handle));
  TW_ASSIGN_OR_RETURN(index, built_index(impl.plans, index));
  const PlanBinding& binding = *impl.plans.binding();
  Bindings& bindings = thread_bindings();
  TW_RETURN_IF_BAD(bind(binding, pack, bindings));
  const PlanRow& row = impl.plans.at(index);
  return launch(impl.description, binding, row, *row.executable, bindings, workspace, queue);
}

// The plan for overridden shapes: the description with those shapes frozen anew, the same engine and configuration.
// Its workspace is its own, since the caller's was sized for other shapes.
Result<std::shared_ptr<const Override>> make_override(const Graph::Impl& impl, int64_t index,
                                                      const std::vector<int64_t>& uids, const Shapes& shapes,
                                                      const Shapes& strides) {
  Description d = clone(impl.description);
  std::vector<TensorPtr> all = d.tensors;
  for (const BuilderNode& n : d.nodes) {
    all.insert(all.end(), n.in.begin(), n.in.end());
    all.insert(all.end(), n.out.begin(), n.out.end());
  }
  for (size_t i = 0; i < uids.size(); ++i) {
    bool found = false;
    for (const TensorPtr& t : all)
      if (t && t->has_uid() && t->get_uid() == uids[i]) {
        t->set_dim(shapes[i]).set_stride(strides[i]);
        found = true;
      }
    if (!found) return invalid("override: no tensor of the graph has uid {}", uids[i]);
  }
  auto frozen = freeze(d);
  if (!frozen) return frozen.status();
  auto o = std::make_shared<Override>();
  o->graph = frozen->graph;
  o->binding = std::make_shared<PlanBinding>(make_binding(o->graph));
  const PlanRow& row = impl.plans.at(index);
  auto executable = row.engine->load(*o->graph, {row.engine->name(), row.artifact.config, {}, nullptr},
                                     impl.plans.target(), impl.description.cache.get());
  if (!executable) return executable.status();
  o->executable = std::move(*executable);
  return std::shared_ptr<const Override>(std::move(o));
}

template <class Pack>
Status execute_override(const Graph::Impl& impl, Handle handle, const Pack& pack, void* workspace, int64_t index,
                        const std::vector<int64_t>& uids, const Shapes& shapes, const Shapes& strides) {
  if (uids.empty()) return execute_at(impl, handle, pack, workspace, index);
  TW_ASSIGN_OR_RETURN(const Queue queue, queue_for(impl, handle));
  TW_ASSIGN_OR_RETURN(index, built_index(impl.plans, index));
  if (!impl.description.override_shapes)
    return not_supported("shape overrides need set_override_shape_enabled(true) before the graph is built");
  if (shapes.size() != uids.size() || strides.size() != uids.size())
    return invalid("override: {} uids, {} shapes, {} strides; the lists must be of one length", uids.size(),
                   shapes.size(), strides.size());
  std::string key = std::to_string(index);
  for (size_t i = 0; i < uids.size(); ++i)
    key += fmt::format("|{}:{}{}", uids[i], to_text(shapes[i]), to_text(strides[i]));
  std::shared_ptr<const Override> o;
  {
    std::lock_guard lock(impl.overrides_mutex);
    if (auto it = impl.overrides.find(key); it != impl.overrides.end()) o = it->second;
  }
  if (!o) {
    TW_ASSIGN_OR_RETURN(o, make_override(impl, index, uids, shapes, strides));
    std::lock_guard lock(impl.overrides_mutex);
    if (impl.overrides.size() >= 1024) impl.overrides.clear();  // bounded; they are cheap to make again
    impl.overrides.emplace(key, o);
  }
  Bindings& bindings = thread_bindings();
  TW_RETURN_IF_BAD(bind(*o->binding, pack, bindings));
  const int64_t bytes = o->executable->workspace_bytes();
  if (queue.ordinal >= 0) {  // the caller's memory, which must suffice for these shapes too
    if (bytes > impl.plans.at(index).executable->workspace_bytes())
      return error(
          error_code_t::GRAPH_EXECUTION_FAILED,
          "the plan needs a workspace of {} bytes for the overriding shapes, and {} for the graph's own; build "
          "the graph with the largest shapes",
          bytes, impl.plans.at(index).executable->workspace_bytes());
    return launch(impl.description, *o->binding, impl.plans.at(index), *o->executable, bindings, workspace, queue);
  }
  static thread_local std::vector<char> own;
  if (own.size() < size_t(bytes) + 64) own.resize(size_t(bytes) + 64);
  char* aligned = own.data() + (64 - reinterpret_cast<uintptr_t>(own.data()) % 64) % 64;
  return launch(impl.description, *o->binding, impl.plans.at(index), *o->executable, bindings, aligned, queue);
}

// The median of at least 3 runs on the CPU, of more while they are short; one before them is not counted.
Result<double> cpu_median_ms(const std::function<Status()>& run) {
  using Clock = std::chrono::steady_clock;
  TW_RETURN_IF_BAD(run());
  std::vector<double> ms;
  double total = 0;
  while (ms.size() < 3 || (ms.size() < 100 && total < 200)) {
    const auto start = Clock::now();
    TW_RETURN_IF_BAD(run());
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    total += ms.back();
    if (total > 2000) break;
  }
  std::nth_element(ms.begin(), ms.begin() + long(ms.size() / 2), ms.end());
  return ms[ms.size() / 2];
}

std::string remember(PlanList& plans) {
  std::vector<TunedPlan> tuned;
  for (int64_t i = 0; i < plans.count(); ++i)
    if (const PlanRow& row = plans.at(i); row.measured_ms)
      tuned.push_back({row.engine->name(), row.candidate.config, *row.measured_ms});
  const Status remembered = remember_tuned(*plans.graph(), plans.target(), tuned);
  return remembered.is_good() ? fmt::format("autotune: remembered in {}", tuning_db_path()) : remembered.err_msg;
}

template <class Map>
Status autotune_over(Graph::Impl& impl, Handle handle, const Map& map, void* workspace) {
  TW_ASSIGN_OR_RETURN(const Queue queue, queue_for(impl, handle));
  PlanList& plans = impl.plans;
  Bindings bindings;
  if (!plans.binding())
    return error(error_code_t::GRAPH_EXECUTION_FAILED, "autotune: no plan is built; call build_plans(ALL) first");
  TW_RETURN_IF_BAD(bind(*plans.binding(), map, bindings));
  std::unique_ptr<GpuTimer> timer;
  if (queue.ordinal >= 0) {
    TW_ASSIGN_OR_RETURN(timer, GpuTimer::make(plans.target(), queue));
  }
  std::optional<int64_t> best;
  for (int64_t i = 0; i < plans.count(); ++i) {
    PlanRow& row = plans.at(i);
    if (!row.executable || row.state == PlanState::Excluded) continue;
    // What is there for graphs that nothing else takes takes longer than all others together on a GPU.
    constexpr double kHopeless = 50;
    if (timer && row.candidate.last_resort && best &&
        row.candidate.estimated_ms > kHopeless * *plans.at(*best).measured_ms)
      continue;
    const auto run = [&] {
      return launch(impl.description, *plans.binding(), row, *row.executable, bindings, workspace, queue);
    };
    const Result<double> ms = timer ? timer->median_ms(run) : cpu_median_ms(run);
    if (!ms) {
      row.state = PlanState::Failed;
      row.reasons = {{Why::Feature, -1, ir::kNone, ms.status().err_msg}};
      row.executable.reset();
      continue;
    }
    row.measured_ms = *ms;
    if (!best || *row.measured_ms < *plans.at(*best).measured_ms) best = i;
  }
  if (!best) return error(error_code_t::GRAPH_EXECUTION_FAILED, "autotune: no built plan ran:\n{}", plans.why_none());
  plans.choose(*best);
  impl.tuned_note = remember(plans);
  return {};
}

// The chosen plan with these pointers, ready to be put on the handle's queue.
struct Bound {
  std::shared_ptr<const Executable> executable;
  Bindings bindings;
  Queue queue;
};
template <class Map>
Result<Bound> bind_chosen(const Graph::Impl& impl, Handle handle, const Map& map, void* workspace) {
  Bound bound;
  TW_ASSIGN_OR_RETURN(bound.queue, queue_for(impl, handle));
  TW_ASSIGN_OR_RETURN(const int64_t index, built_index(impl.plans, impl.plans.chosen().value_or(-1)));
  bound.executable = impl.plans.at(index).executable;
  TW_RETURN_IF_BAD(bind(*impl.plans.binding(), map, bound.bindings));
  TW_RETURN_IF_BAD(check_memory(*impl.plans.binding(), *bound.executable, bound.bindings, workspace, bound.queue));
  return bound;
}

template <class Map>
Status record_plan(const Graph::Impl& impl, Handle handle, const Map& map, void* workspace, LaunchList& list) {
  TW_ASSIGN_OR_RETURN(Bound bound, bind_chosen(impl, handle, map, workspace));
  auto recorded = std::make_unique<LaunchList::Impl>();
  recorded->executable = std::move(bound.executable);
  recorded->binding = impl.plans.binding();
  recorded->bindings = std::move(bound.bindings);
  recorded->workspace = workspace;
  recorded->queue = bound.queue;
  if (bound.queue.ordinal >= 0) {
    auto made = GpuGraph::make(*recorded->executable, recorded->bindings, workspace, bound.queue);
    if (made) recorded->gpu_graph = std::move(*made);  // else each replay is an execution
  }
  list.impl = std::move(recorded);
  return {};
}

// Puts the chosen plan into a CUDA graph of the caller's, or other pointers into one that was made so.
template <class Map>
Status cuda_graph(const Graph::Impl& impl, Handle handle, const Map& map, void* workspace, CUgraph_st* graph,
                  bool update) {
  if (impl.plans.binding() && !impl.plans.target().is_gpu())
    return not_supported("CUDA graphs need an NVIDIA GPU, and the plan runs on the CPU; record() makes a launch list");
  if (!graph) return invalid("{}_cuda_graph: the graph is null", update ? "update" : "populate");
  TW_ASSIGN_OR_RETURN(const Bound bound, bind_chosen(impl, handle, map, workspace));
  const cuda::ScopedDevice device(bound.queue.ordinal);
  TW_RETURN_IF_BAD(device.status());
  if (update) return bound.executable->update_cuda_graph(graph, bound.bindings, workspace, bound.queue);
  return bound.executable->populate_cuda_graph(graph, bound.bindings, workspace, bound.queue);
}

}  // namespace

error_t Graph::execute(Handle h, TensorMap& map, void* ws) const {
  return execute_at(*impl_, h, map, ws, impl_->plans.chosen().value_or(-1));
}
error_t Graph::execute(Handle h, UidMap& map, void* ws) const {
  return execute_at(*impl_, h, map, ws, impl_->plans.chosen().value_or(-1));
}
error_t Graph::execute(Handle h, UidMap& map, void* ws, const std::vector<int64_t>& uids, const Shapes& shapes,
                       const Shapes& strides) const {
  return execute_override(*impl_, h, map, ws, impl_->plans.chosen().value_or(-1), uids, shapes, strides);
}
error_t Graph::execute(Handle h, void** pointers, int count, void* ws) const {
  return execute_at(*impl_, h, PointerList{pointers, count}, ws, impl_->plans.chosen().value_or(-1));
}
error_t Graph::execute_plan_at_index(Handle h, TensorMap& map, void* ws, int64_t index) const {
  return execute_at(*impl_, h, map, ws, index);
}
error_t Graph::execute_plan_at_index(Handle h, UidMap& map, void* ws, int64_t index, const std::vector<int64_t>& uids,
                                     const Shapes& shapes, const Shapes& strides) const {
  return execute_override(*impl_, h, map, ws, index, uids, shapes, strides);
}
error_t Graph::execute_plan_at_index(Handle h, void** pointers, int count, void* ws, int64_t index,
                                     const std::vector<int64_t>& uids, const Shapes& shapes,
                                     const Shapes& strides) const {
  return execute_override(*impl_, h, PointerList{pointers, count}, ws, index, uids, shapes, strides);
}

std::vector<int64_t> Graph::get_variant_pack_uids_sorted() {
  std::vector<int64_t> uids;
  if (!impl_->lowered) return uids;
  for (const auto& s : make_binding(impl_->frozen.graph).slots) uids.push_back(s.uid);
  return uids;
}

error_t Graph::prepare_variant_pack_template() {
  if (impl_->plans.binding()) return {};
  return error(error_code_t::GRAPH_EXECUTION_FAILED, "there are no plans yet; call create_execution_plans");
}

error_t Graph::autotune(Handle h, UidMap& map, void* ws, void*) { return autotune_over(*impl_, h, map, ws); }
error_t Graph::autotune(Handle h, TensorMap& map, void* ws, void*) { return autotune_over(*impl_, h, map, ws); }

// What a first execution would load is loaded: the handle's part of cuDNN. The plan's kernels were when it was built.
error_t Graph::warmup(Handle h) {
  TW_RETURN_IF_BAD(queue_for(*impl_, h).status());
  return built_index(impl_->plans, impl_->plans.chosen().value_or(-1)).status();
}

error_t Graph::record(Handle h, UidMap& map, void* ws, LaunchList& list) const {
  return record_plan(*impl_, h, map, ws, list);
}
error_t Graph::record(Handle h, TensorMap& map, void* ws, LaunchList& list) const {
  return record_plan(*impl_, h, map, ws, list);
}
error_t Graph::update(Handle h, UidMap& map, void* ws, LaunchList& list) const {
  if (list.empty()) return invalid("update: the launch list is empty; record an execution first");
  return record_plan(*impl_, h, map, ws, list);
}
error_t Graph::populate_cuda_graph(Handle h, UidMap& map, void* ws, CUgraph_st* graph) {
  return cuda_graph(*impl_, h, map, ws, graph, false);
}
error_t Graph::populate_cuda_graph(Handle h, TensorMap& map, void* ws, CUgraph_st* graph) {
  return cuda_graph(*impl_, h, map, ws, graph, false);
}
error_t Graph::update_cuda_graph(Handle h, UidMap& map, void* ws, CUgraph_st* graph) {
  return cuda_graph(*impl_, h, map, ws, graph, true);
}
error_t Graph::update_cuda_graph(Handle h, TensorMap& map, void* ws, CUgraph_st* graph) {
  return cuda_graph(*impl_, h, map, ws, graph, true);
}

}  // namespace graph
}  // namespace tilewright
