#include "engines/cudnn/operation_graph.h"

#include <algorithm>
#include <set>

#include "device/cuda/gpu.h"

namespace tilewright::cudnn {
namespace {

constexpr int64_t kMostKnobs = 64, kMostNotes = 32;
constexpr int64_t kFewKnobs =
    8;  // asked for first: cuDNN does not tell how many there are, and each takes time to make

int heuristic_number(HeurMode_t mode) {
  switch (mode) {  // CUDNN_HEUR_MODE_A, B and FALLBACK
    case HeurMode_t::A: return 3;
    case HeurMode_t::B: return 1;
    case HeurMode_t::FALLBACK: return 2;
    default: return -1;
  }
}

// What went wrong before, and of which nobody asked, is forgotten.
std::string last_pages() {
  std::string pages(1 << 16, '\0');
  library().get_last_error_string(pages.data(), pages.size() - 1);
  pages.resize(std::char_traits<char>::length(pages.c_str()));
  return pages;
}

Result<Config> config_of(const Descriptor& engine_config, const Descriptor& engine) {
  Config c;
  TW_ASSIGN_OR_RETURN(c.engine, engine.get_integer(Attr::ENGINE_GLOBAL_INDEX));
  std::vector<Descriptor> choices;
  for (const int64_t room : {kFewKnobs, kMostKnobs}) {
    TW_ASSIGN_OR_RETURN(choices, engine_config.get_descriptors(Attr::ENGINECFG_KNOB_CHOICES, Kind::KNOB_CHOICE, room));
    if (int64_t(choices.size()) < room) break;
  }
  for (const Descriptor& choice : choices) {
    TW_ASSIGN_OR_RETURN(const std::vector<int> type,
                        choice.get_values(Attr::KNOB_CHOICE_KNOB_TYPE, AttrType::KNOB_TYPE, 1));
    TW_ASSIGN_OR_RETURN(const int64_t value, choice.get_integer(Attr::KNOB_CHOICE_KNOB_VALUE));
    if (!type.empty()) c.knobs.emplace_back(type[0], value);
  }
  return c;
}

Result<Listed> describe(const Descriptor& engine_config) {
  Listed l;
  TW_ASSIGN_OR_RETURN(const std::vector<Descriptor> engines,
                      engine_config.get_descriptors(Attr::ENGINECFG_ENGINE, Kind::ENGINE, 1));
  if (engines.empty()) return invalid("cuDNN ENGINECFG: it has no engine");
  const Descriptor& engine = engines[0];
  TW_ASSIGN_OR_RETURN(l.config, config_of(engine_config, engine));
  TW_ASSIGN_OR_RETURN(const std::vector<int> behavior,
                      engine.get_values(Attr::ENGINE_BEHAVIOR_NOTE, AttrType::BEHAVIOR_NOTE, kMostNotes));
  for (int note : behavior)
    if (behavior_note(note) != BehaviorNote_t::NOT_SET) l.behavior_notes.push_back(behavior_note(note));
  TW_ASSIGN_OR_RETURN(const std::vector<int> numerical,
                      engine.get_values(Attr::ENGINE_NUMERICAL_NOTE, AttrType::NUMERICAL_NOTE, kMostNotes));
  for (int note : numerical)
    if (numerical_note(note) != NumericalNote_t::NOT_SET) l.numerical_notes.push_back(numerical_note(note));
  if (const auto bytes = engine_config.get_integer(Attr::ENGINECFG_WORKSPACE_SIZE)) l.workspace_bytes = *bytes;
  return l;
}

}  // namespace

Result<std::shared_ptr<const Planner>> planner(const Target& target) {
  static std::mutex mutex;
  static std::map<int, std::shared_ptr<const Planner>> by_ordinal;  // handles live as long as the process
  auto made = std::make_shared<Planner>();
  if (target.ordinal < 0) {
    made->properties = Descriptor(Kind::DEVICEPROP);
    made->properties.text(Attr::DEVICEPROP_JSON_REPRESENTATION, target.gpu->json);
    TW_RETURN_IF_BAD(made->properties.finalize());
    return std::shared_ptr<const Planner>(made);
  }
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Planner>& kept = by_ordinal[target.ordinal];
  if (kept) return kept;
  const cuda::ScopedDevice device(target.ordinal);
  TW_RETURN_IF_BAD(device.status());
  made->ordinal = target.ordinal;
  if (const StatusCode code = library().create(&made->handle); code != kSuccess)
    return error(error_code_t::HANDLE_ERROR, "cuDNN makes no handle on GPU {}: {}", target.ordinal, failure_text(code));
  return kept = made;
}

Why why_of(const std::string& refusal) {
  static constexpr struct {
    const char* status;
    Why why;
  } kTable[] = {{"_SHAPE", Why::Shape},
                {"_DATA_TYPE", Why::Dtype},
                {"_LAYOUT", Why::Stride},
                {"_PADDING", Why::Shape},
                {"_GRAPH_PATTERN", Why::Fusion},
                {"_ARCH_MISMATCH", Why::Arch},
                {"_SHARED_MEMORY_INSUFFICIENT", Why::Limit},
                {"_INCOMPATIBLE_CUD", Why::Library},
                {"_RUNTIME_PREREQUISITE_MISSING", Why::Library},
                {"_SUBLIBRARY_UNAVAILABLE", Why::Library}};
  for (const auto& row : kTable)
    if (refusal.find(std::string("NOT_SUPPORTED") + row.status) != refusal.npos) return row.why;
  return Why::Feature;
}

std::vector<std::string> refusals_in(const std::string& pages) {
  std::vector<std::string> list;
  std::set<std::string> engines;
  for (size_t at = pages.find("{\"engineId\":"); at != pages.npos;) {
    const size_t next = pages.find("{\"engineId\":", at + 1);
    const std::string block = pages.substr(at, next == pages.npos ? next : next - at);
    const std::string engine = block.substr(12, block.find_first_of(",}", 12) - 12);
    const bool no_driver = block.find("libcuda == nullptr") != block.npos;
    if (engine != "-1" && engines.insert(engine).second)
      list.push_back(fmt::format("engine {}: {}{}", engine, condense(block),
                                 no_driver ? " (it compiles its kernel, which needs a CUDA driver)" : ""));
    at = next;
  }
  if (list.empty() && !condense(pages).empty()) list.push_back(condense(pages));
  return list;
}

Result<std::shared_ptr<OperationGraph>> OperationGraph::make(std::shared_ptr<const Lowered> lowered,
                                                             const Target& target, bool dynamic) {
  TW_ASSIGN_OR_RETURN(std::shared_ptr<const Planner> where, planner(target));
  std::shared_ptr<OperationGraph> g(new OperationGraph(std::move(lowered), std::move(where)));
  g->graph_.descriptors(Attr::OPERATIONGRAPH_OPS, g->lowered_->operations);
  if (g->planner_->handle) g->graph_.handle(Attr::OPERATIONGRAPH_HANDLE, g->planner_->handle);
  if (dynamic) g->graph_.boolean(Attr::OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED, true);
  TW_RETURN_IF_BAD(g->graph_.finalize());
  return g;
}

std::vector<Descriptor> OperationGraph::results(HeurMode_t mode, std::vector<std::string>& refusals) const {
  const cuda::ScopedDevice device(planner_->ordinal);
  last_pages();
  Descriptor heuristics(Kind::ENGINEHEUR);
  heuristics.descriptor(Attr::ENGINEHEUR_OPERATION_GRAPH, graph_.raw())
      .value(Attr::ENGINEHEUR_MODE, AttrType::HEUR_MODE, heuristic_number(mode));
  if (!planner_->handle) heuristics.descriptor(Attr::ENGINEHEUR_DEVICEPROP, planner_->properties.raw());
  Status s;
  {
    static std::mutex mutex;  // mode B is not safe from several threads
    const std::lock_guard lock(mutex);
    s = heuristics.finalize();
  }
  const auto asked = [&]() -> Result<std::vector<Descriptor>> {
    TW_RETURN_IF_BAD(s);
    TW_ASSIGN_OR_RETURN(const int64_t count, heuristics.count(Attr::ENGINEHEUR_RESULTS, AttrType::BACKEND_DESCRIPTOR));
    return heuristics.get_descriptors(Attr::ENGINEHEUR_RESULTS, Kind::ENGINECFG, count);
  };
  Result<std::vector<Descriptor>> list = asked();
  if (!list) {
    refusals.push_back(list.status().err_msg);
    return {};
  }
  if (list->empty()) refusals = refusals_in(last_pages());
  return std::move(*list);
}

Listing OperationGraph::ask(HeurMode_t mode) const {
  Listing listing;
  std::set<std::string> seen;
  for (Descriptor& d : results(mode, listing.refusals)) {
    Result<Listed> l = describe(d);
    if (!l) {
      listing.refusals.push_back(l.status().err_msg);
      continue;
    }
    ++listing.count;
    const std::string text = l->config.text();
    if (!seen.insert(text).second) continue;
    listing.configs.push_back(std::move(*l));
    const std::lock_guard lock(mutex_);
    known_.emplace(text, std::move(d));
  }
  return listing;
}

const Listing& OperationGraph::heuristics(HeurMode_t mode) const {
  const size_t i = mode == HeurMode_t::A ? 0 : mode == HeurMode_t::B ? 1 : 2;
  std::call_once(asked_[i], [&] { listings_[i] = ask(mode); });
  return listings_[i];
}

bool OperationGraph::supported() const {
  return !heuristics(HeurMode_t::A).configs.empty() || !heuristics(HeurMode_t::FALLBACK).configs.empty();
}

Result<Descriptor> OperationGraph::engine(int64_t index) const {
  TW_ASSIGN_OR_RETURN(const int64_t count, engine_count());
  if (index < 0 || index >= count) return invalid("Invalid engine id. {} is not between 0 and {}", index, count - 1);
  Descriptor d(Kind::ENGINE);
  d.descriptor(Attr::ENGINE_OPERATION_GRAPH, graph_.raw()).integer(Attr::ENGINE_GLOBAL_INDEX, index);
  if (!planner_->handle) d.descriptor(Attr::ENGINE_DEVICEPROP, planner_->properties.raw());
  TW_RETURN_IF_BAD(d.finalize());
  return d;
}

Result<std::vector<Knob>> OperationGraph::knobs(int64_t index) const {
  TW_ASSIGN_OR_RETURN(const Descriptor e, engine(index));
  TW_ASSIGN_OR_RETURN(const std::vector<Descriptor> infos,
                      e.get_descriptors(Attr::ENGINE_KNOB_INFO, Kind::KNOB_INFO, kMostKnobs));
  std::vector<Knob> list;
  for (const Descriptor& info : infos) {
    TW_ASSIGN_OR_RETURN(const std::vector<int> type, info.get_values(Attr::KNOB_INFO_TYPE, AttrType::KNOB_TYPE, 1));
    TW_ASSIGN_OR_RETURN(const int64_t most, info.get_integer(Attr::KNOB_INFO_MAXIMUM_VALUE));
    TW_ASSIGN_OR_RETURN(const int64_t least, info.get_integer(Attr::KNOB_INFO_MINIMUM_VALUE));
    TW_ASSIGN_OR_RETURN(const int64_t step, info.get_integer(Attr::KNOB_INFO_STRIDE));
    list.emplace_back(type.empty() ? KnobType_t::NOT_SET : knob_type(type[0]), most, least, step);
  }
  return list;
}

Result<Descriptor> OperationGraph::engine_config(const Config& config) const {
  TW_ASSIGN_OR_RETURN(const Descriptor e, engine(config.engine));
  std::vector<Descriptor> choices;
  std::vector<RawDescriptor> raw;
  for (const auto& [type, value] : config.knobs) {
    Descriptor choice(Kind::KNOB_CHOICE);
    choice.value(Attr::KNOB_CHOICE_KNOB_TYPE, AttrType::KNOB_TYPE, type).integer(Attr::KNOB_CHOICE_KNOB_VALUE, value);
    TW_RETURN_IF_BAD(choice.finalize());
    raw.push_back(choice.raw());
    choices.push_back(std::move(choice));
  }
  Descriptor d(Kind::ENGINECFG);
  d.descriptor(Attr::ENGINECFG_ENGINE, e.raw());
  if (!raw.empty()) d.descriptors(Attr::ENGINECFG_KNOB_CHOICES, raw);
  TW_RETURN_IF_BAD(d.finalize());
  return d;
}

Result<Listed> OperationGraph::listed(const Config& config) const {
  TW_ASSIGN_OR_RETURN(Descriptor d, engine_config(config));
  TW_ASSIGN_OR_RETURN(Listed l, describe(d));
  const std::lock_guard lock(mutex_);
  known_.insert_or_assign(l.config.text(), std::move(d));
  return l;
}

Result<Descriptor> OperationGraph::plan(const Config& config, RawDescriptor kernel_cache) const {
  const cuda::ScopedDevice device(planner_->ordinal);
  TW_RETURN_IF_BAD(device.status());
  RawDescriptor made = nullptr;
  {
    const std::lock_guard lock(mutex_);
    Descriptor& d = known_[config.text()];
    if (!d.raw()) {
      Result<Descriptor> fresh = engine_config(config);
      if (!fresh) {
        known_.erase(config.text());
        return fresh.status();
      }
      d = std::move(*fresh);
    }
    made = d.raw();
  }
  last_pages();
  Descriptor plan(Kind::EXECUTION_PLAN);
  if (planner_->handle) plan.handle(Attr::EXECUTION_PLAN_HANDLE, planner_->handle);
  else plan.descriptor(Attr::EXECUTION_PLAN_DEVICEPROP, planner_->properties.raw());
  plan.descriptor(Attr::EXECUTION_PLAN_ENGINE_CONFIG, made);
  if (kernel_cache) plan.descriptor(Attr::EXECUTION_PLAN_KERNEL_CACHE, kernel_cache);
  TW_RETURN_IF_BAD(plan.finalize());
  return plan;
}

Result<Descriptor> OperationGraph::plan_from_json(const std::string& json, const Target& target) {
  TW_ASSIGN_OR_RETURN(const std::shared_ptr<const Planner> where, planner(target));
  const cuda::ScopedDevice device(where->ordinal);
  TW_RETURN_IF_BAD(device.status());
  Descriptor plan(Kind::EXECUTION_PLAN);
  if (where->handle) plan.handle(Attr::EXECUTION_PLAN_HANDLE, where->handle);
  else plan.descriptor(Attr::EXECUTION_PLAN_DEVICEPROP, where->properties.raw());
  plan.text(Attr::EXECUTION_PLAN_JSON_REPRESENTATION, json);
  TW_RETURN_IF_BAD(plan.finalize());
  return plan;
}

}  // namespace tilewright::cudnn
