#include "plan/plan_list.h"

#include <algorithm>
#include <set>

#include "plan/kernel_cache.h"
#include "plan/tuning_db.h"

namespace tilewright {

const char* to_string(Why why) {
  switch (why) {
    case Why::Dtype: return "data type";
    case Why::Shape: return "shape";
    case Why::Stride: return "stride";
    case Why::Alignment: return "alignment";
    case Why::Arch: return "architecture";
    case Why::Op: return "op";
    case Why::Fusion: return "fusion";
    case Why::Feature: return "feature";
    case Why::Library: return "library";
    case Why::Limit: return "limit";
    default: return "policy";
  }
}

std::string describe(const ir::Graph& g, const Reason& r) {
  std::string s = fmt::format("{}: {}", to_string(r.why), r.text);
  if (r.node >= 0) s += fmt::format(" (node \"{}\")", g.nodes[size_t(r.node)].name);
  if (r.tensor != ir::kNone) s += fmt::format(" (tensor \"{}\")", g.tensor(r.tensor).name);
  return s;
}

const PlanBinding::Slot* PlanBinding::find(int64_t uid) const {
  auto it = std::lower_bound(slots.begin(), slots.end(), uid, [](const Slot& s, int64_t u) { return s.uid < u; });
  return it != slots.end() && it->uid == uid ? &*it : nullptr;
}

PlanBinding make_binding(std::shared_ptr<const ir::Graph> graph) {
  PlanBinding b;
  for (size_t i = 0; i < graph->tensors.size(); ++i) {
    const ir::Tensor& t = graph->tensors[i];
    if (t.bound_by_caller()) b.slots.push_back({t.uid, ir::TensorId(i), volume(t.dim) > 0});
    b.bytes.push_back(t.bound_by_caller() ? t.storage_bytes() : 0);
  }
  std::sort(b.slots.begin(), b.slots.end(), [](const auto& x, const auto& y) { return x.uid < y.uid; });
  b.tensor_count = graph->tensors.size();
  b.graph = std::move(graph);
  return b;
}

std::string PlanRow::name() const { return engine->plan_names(candidate.config)[0]; }

namespace {

// The engine's answer as a row without a candidate.
PlanRow ask(const Engine* engine, const ir::Graph& graph, const Target& target) {
  PlanRow row;
  row.engine = engine;
  row.reasons = engine->unavailable(target);
  if (!row.reasons.empty()) return row;
  Verdict verdict = engine->propose(graph, target);
  row.reasons = std::move(verdict.reasons);
  row.proposal = std::move(verdict.proposal);
  return row;
}

bool listed_in(const Candidate& c, HeurMode_t mode) {
  if (!c.modes.empty()) return std::find(c.modes.begin(), c.modes.end(), mode) != c.modes.end();
  return mode == HeurMode_t::FALLBACK ? c.everything : !c.last_resort;
}

}  // namespace

void PlanList::start(std::shared_ptr<const ir::Graph> graph, const Target& target) {
  if (graph_ == graph) return;
  graph_ = std::move(graph);
  binding_ = std::make_shared<PlanBinding>(make_binding(graph_));
  target_ = target;
  plans_.clear(), rejected_.clear(), chosen_.reset(), numbered_.reset();
}

Status PlanList::create(std::shared_ptr<const ir::Graph> graph, const Target& target,
                        const std::vector<HeurMode_t>& modes, KernelCache* cache) {
  start(std::move(graph), target);
  cache_ = cache;
  if (cache_) {
    if (auto entry = find_cached(*cache_, *graph_, target_)) {
      if (const Engine* engine = find_engine(entry->engine)) {
        PlanRow row;
        row.engine = engine;
        row.candidate.config = entry->config;
        row.candidate.kernel_count = entry->kernel_count;
        row.candidate.notes = {"from the kernel cache"};
        row.artifact = Artifact{entry->engine, entry->config, {}, nullptr};
        plans_.push_back(std::move(row));
        return {};
      }
    }
  }

  std::vector<PlanRow> rows;
  for (const Engine* engine : all_engines()) {
    PlanRow row = ask(engine, *graph_, target_);
    if (!row.proposal) {
      row.state = PlanState::Rejected;
      rejected_.push_back(std::move(row));
      continue;
    }
    for (Candidate& c : row.proposal->candidates_in(modes)) {
      PlanRow r = row;
      r.reasons = c.reasons;
      r.candidate = std::move(c);
      if (!r.reasons.empty()) {
        r.state = PlanState::Rejected;
        rejected_.push_back(std::move(r));
      } else {
        rows.push_back(std::move(r));
      }
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const PlanRow& x, const PlanRow& y) {
    return x.candidate.estimated_ms < y.candidate.estimated_ms;
  });

  std::set<std::string> there;
  std::vector<std::string> names;  // of the rows: making one takes a microsecond
  for (const PlanRow& p : plans_) there.insert(p.name());
  for (const PlanRow& r : rows) names.push_back(r.name());
  auto append = [&](auto wanted) {
    for (size_t i = 0; i < rows.size(); ++i)
      if (wanted(rows[i].candidate) && there.insert(names[i]).second) plans_.push_back(rows[i]);
  };
  const bool fresh = plans_.empty();
  for (HeurMode_t mode : modes) append([&](const Candidate& c) { return listed_in(c, mode); });
  if (plans_.empty()) append([](const Candidate&) { return true; });  // no valid graph is refused
  if (fresh) put_tuned_first();
  if (plans_.empty()) return error(error_code_t::HEURISTIC_QUERY_FAILED, "no engine takes this graph:\n{}", why_none());
  return {};
}

// What was fastest when this graph was tuned, here or in an earlier process, takes the first place.
void PlanList::put_tuned_first() {
  const auto tuned = find_tuned(*graph_, target_);
  if (!tuned) return;
  const auto at = std::find_if(plans_.begin(), plans_.end(), [&](const PlanRow& p) {
    return p.engine->name() == tuned->engine && p.candidate.config == tuned->config;
  });
  if (at == plans_.end()) return;
  at->candidate.notes.push_back(fmt::format("fastest when tuned: {:.3g} ms", tuned->ms));
  std::rotate(plans_.begin(), at, at + 1);
}

const PlanRow* PlanList::numbered() {
  if (!numbered_) {
    numbered_.emplace();
    for (const Engine* engine : all_engines()) {
      PlanRow row = ask(engine, *graph_, target_);
      if (!row.proposal || row.proposal->engine_count() == 0) continue;
      numbered_ = std::move(row);
      break;
    }
  }
  return numbered_->proposal ? &*numbered_ : nullptr;
}

int64_t PlanList::engine_count(std::shared_ptr<const ir::Graph> graph, const Target& target) {
  start(std::move(graph), target);
  return (numbered() ? numbered()->proposal->engine_count() : 0) + int64_t(all_engines().size());
}

Result<std::vector<Knob>> PlanList::knobs(std::shared_ptr<const ir::Graph> graph, const Target& target,
                                          int64_t engine_id) {
  const int64_t count = engine_count(std::move(graph), target);
  if (engine_id < 0 || engine_id >= count)
    return invalid("Invalid engine id. {} is not between 0 and {}", engine_id, count - 1);
  if (numbered() && engine_id < numbered()->proposal->engine_count()) return numbered()->proposal->knobs(engine_id);
  return std::vector<Knob>{};  // our configurations are named, not numbered
}

Status PlanList::create_one(std::shared_ptr<const ir::Graph> graph, const Target& target, int64_t engine_id,
                            const std::unordered_map<KnobType_t, int64_t>& knobs) {
  const int64_t count = engine_count(std::move(graph), target);
  if (engine_id < 0 || engine_id >= count)
    return invalid("Invalid engine id. {} is not between 0 and {}", engine_id, count - 1);
  const int64_t within = numbered() ? numbered()->proposal->engine_count() : 0;
  if (engine_id < within) {
    PlanRow row = *numbered();
    TW_ASSIGN_OR_RETURN(row.candidate, row.proposal->candidate(engine_id, knobs));
    plans_.push_back(std::move(row));
    return {};
  }
  PlanRow row = ask(all_engines()[size_t(engine_id - within)], *graph_, target_);
  if (!row.proposal) {
    std::string text;
    for (const Reason& r : row.reasons) text += describe(*graph_, r) + "; ";
    return not_supported("engine {} does not take this graph: {}", row.engine->name(), text);
  }
  if (!knobs.empty())
    return not_supported("engine {} has no knob {}; see get_knobs_for_engine", row.engine->name(),
                         to_string(knobs.begin()->first));
  std::vector<Candidate> candidates = row.proposal->candidates();
  auto good = std::find_if(candidates.begin(), candidates.end(), [](const Candidate& c) { return c.reasons.empty(); });
  if (good == candidates.end())
    return not_supported("engine {} has no configuration for this graph", row.engine->name());
  row.candidate = *good;
  plans_.push_back(std::move(row));
  return {};
}

Status PlanList::adopt(std::shared_ptr<const ir::Graph> graph, const Target& target, Artifact artifact,
                       Candidate candidate) {
  start(std::move(graph), target);
  PlanRow row;
  row.engine = find_engine(artifact.engine);
  if (!row.engine)
    return error(error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED,
                 "the plan is for engine \"{}\", which this library does not have", artifact.engine);
  row.artifact = std::move(artifact);
  row.candidate = std::move(candidate);
  plans_.push_back(std::move(row));
  return build_at(0);
}

// Sets or lifts Excluded on the rows that are not built, from the filters as they are now.
void PlanList::apply_filters() {
  auto has = [](const auto& list, auto value) { return std::find(list.begin(), list.end(), value) != list.end(); };
  for (PlanRow& row : plans_) {
    if (row.state == PlanState::Failed) continue;
    std::vector<Reason> reasons;
    auto bar = [&](std::string text) { reasons.push_back({Why::Policy, -1, ir::kNone, std::move(text)}); };
    const Candidate& c = row.candidate;
    const int64_t workspace = row.executable ? row.executable->workspace_bytes() : c.workspace_bytes;
    if (filters.max_workspace_bytes && workspace > *filters.max_workspace_bytes)
      bar(fmt::format("workspace of {} bytes is over the limit of {}", workspace, *filters.max_workspace_bytes));
    for (const std::string& fragment : filters.barred_names)
      for (const std::string& name : row.engine->plan_names(c.config))
        if (name.find(fragment) != std::string::npos) {
          bar(fmt::format("its name {} contains the deselected \"{}\"", name, fragment));
          break;
        }
    for (auto note : filters.required_behavior)
      if (!has(c.behavior_notes, note)) bar(fmt::format("lacks the selected note {}", to_string(note)));
    for (auto note : filters.barred_behavior)
      if (has(c.behavior_notes, note)) bar(fmt::format("has the deselected note {}", to_string(note)));
    for (auto note : filters.required_numerical)
      if (!has(c.numerical_notes, note)) bar(fmt::format("lacks the selected note {}", to_string(note)));
    for (auto note : filters.barred_numerical)
      if (has(c.numerical_notes, note)) bar(fmt::format("has the deselected note {}", to_string(note)));
    if (!reasons.empty()) row.state = PlanState::Excluded;
    else if (row.state == PlanState::Excluded) row.state = row.executable ? PlanState::Built : PlanState::Listed;
    row.reasons = std::move(reasons);
  }
}

Status PlanList::check_support() {
  apply_filters();
  for (const PlanRow& row : plans_)
    if (row.state == PlanState::Listed || row.state == PlanState::Built) return {};
  return error(error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED, "No execution plans support the graph.\n{}",
               why_none());
}

Status PlanList::build_at(int64_t index) {
  if (index < 0 || index >= count()) return invalid("Plan index {} is invalid: the list has {} plans", index, count());
  apply_filters();
  PlanRow& row = at(index);
  if (row.state == PlanState::Excluded)
    return error(error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED, "plan {} ({}) is excluded: {}", index, row.name(),
                 describe(*graph_, row.reasons[0]));
  if (!row.executable) {
    auto fail = [&](const Status& why) {
      row.state = PlanState::Failed;
      row.reasons = {{Why::Feature, -1, ir::kNone, why.err_msg}};
      return error(error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED, "plan {} ({}) did not build: {}", index,
                   row.name(), why.err_msg);
    };
    if (row.proposal) {
      auto artifact = row.proposal->compile(row.candidate.config, cache_);
      if (!artifact) return fail(artifact.status());
      row.artifact = std::move(*artifact);
    }
    auto executable = row.engine->load(*graph_, row.artifact, target_, cache_);
    if (!executable) return fail(executable.status());
    row.executable = std::move(*executable);
    row.candidate.kernel_count = int(row.executable->steps().size());
    apply_filters();  // of some engines only the plan tells its workspace
    if (row.state == PlanState::Excluded)
      return error(error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED, "plan {} ({}) is excluded: {}", index,
                   row.name(), describe(*graph_, row.reasons[0]));
  }
  row.state = PlanState::Built;
  chosen_ = index;
  if (cache_)
    remember(*cache_, *graph_, target_, {row.engine->name(), row.candidate.config, row.candidate.kernel_count});
  return {};
}

Status PlanList::build(BuildPlanPolicy_t policy) {
  TW_RETURN_IF_BAD(check_support());
  std::optional<int64_t> first;
  for (int64_t i = 0; i < count(); ++i) {
    if (at(i).state == PlanState::Excluded || build_at(i).is_bad()) continue;
    if (!first) first = i;
    if (policy == BuildPlanPolicy_t::HEURISTICS_CHOICE) break;
  }
  if (!first)
    return error(error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED, "no plan could be built:\n{}", why_none());
  chosen_ = first;
  return {};
}

std::vector<PlanInfo> PlanList::infos() const {
  std::vector<PlanInfo> all;
  auto add = [&](const PlanRow& row, int64_t index) {
    PlanInfo p;
    p.index = index;
    p.name = row.name();
    p.engine = row.engine->name();
    p.state = row.state;
    for (const Reason& r : row.reasons) p.reasons.push_back(describe(*graph_, r));
    p.notes = row.candidate.notes;
    p.workspace_bytes = row.executable ? row.executable->workspace_bytes() : row.candidate.workspace_bytes;
    p.kernel_count = row.executable ? int(row.executable->steps().size()) : row.candidate.kernel_count;
    p.estimated_ms = row.candidate.estimated_ms;
    p.measured_ms = row.measured_ms;
    p.chosen = index >= 0 && chosen_ == index;
    all.push_back(std::move(p));
  };
  for (int64_t i = 0; i < count(); ++i) add(at(i), i);
  for (const PlanRow& row : rejected_) add(row, -1);
  return all;
}

std::string PlanList::why_none() const {
  std::string s;
  for (const PlanInfo& p : infos())
    for (const std::string& reason : p.reasons) s += fmt::format("  {}: {}\n", p.name, reason);
  if (s.empty()) s = "  no engine was asked: call create_execution_plans first\n";
  s.pop_back();
  return s;
}

}  // namespace tilewright
