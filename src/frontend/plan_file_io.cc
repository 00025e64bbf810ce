// A built graph as bytes: the description (so that it can be built again anywhere) and the chosen plan (so that it need
// not be).
#include <nlohmann/json.hpp>

#include "frontend/builder.h"
#include "frontend/graph_json.h"
#include "plan/plan_file.h"

namespace tilewright::graph {
namespace {

using nlohmann::json;

std::vector<uint8_t> bytes_of(const json& j) {
  const std::string s = j.dump();
  return {s.begin(), s.end()};
}

template <class Note>
json names_of(const std::vector<Note>& notes) {
  json j = json::array();
  for (Note n : notes) j.push_back(to_string(n));
  return j;
}

template <class Note>
std::vector<Note> notes_of(const json& j, const char* key) {
  std::vector<Note> notes;
  if (!j.contains(key) || !j[key].is_array()) return notes;
  for (const json& name : j[key]) {
    Note n;
    if (name.is_string() && from_string(name.get<std::string>(), n)) notes.push_back(n);
  }
  return notes;
}

Result<json> section_json(const Sections& sections, const char* tag) {
  auto it = sections.find(tag);
  if (it == sections.end()) return invalid("plan file: section \"{}\" is missing", tag);
  json j = json::parse(it->second.begin(), it->second.end(), nullptr, false);
  if (!j.is_object()) return invalid("plan file: section \"{}\" is no JSON object", tag);
  return j;
}

}  // namespace

Status save_plan_file(const Graph::Impl& impl, std::vector<uint8_t>& bytes) {
  const auto chosen = impl.plans.chosen();
  if (!chosen)
    return error(error_code_t::GRAPH_EXECUTION_FAILED, "serialize: no plan is built yet; call build_plans first");
  const PlanRow& row = impl.plans.at(*chosen);
  const Candidate& c = row.candidate;
  const json plan = {{"library", version_string()},
                     {"engine", row.engine->name()},
                     {"engine_version", row.engine->version()},
                     {"config", row.artifact.config},
                     {"target", impl.plans.target().text()},
                     {"behavior_notes", names_of(c.behavior_notes)},
                     {"numerical_notes", names_of(c.numerical_notes)},
                     {"notes", c.notes},
                     {"verify", impl.description.verify}};
  Sections sections;
  sections["graph"] = bytes_of(to_json(impl.description, {.inferred = false}));
  sections["plan"] = bytes_of(plan);
  sections["artifact"] = row.artifact.bytes;
  if (row.artifact.bytes.empty()) {
    TW_ASSIGN_OR_RETURN(sections["artifact"], row.executable->saved());
  }
  bytes = write_sections(sections);
  return {};
}

Status load_plan_file(Graph::Impl& impl, const std::vector<uint8_t>& bytes, Loading loading, const Queue& queue) {
  TW_ASSIGN_OR_RETURN(Sections sections, read_sections(bytes));
  TW_ASSIGN_OR_RETURN(json graph, section_json(sections, "graph"));
  TW_ASSIGN_OR_RETURN(json plan, section_json(sections, "plan"));
  for (const char* key : {"engine", "config", "target", "library"})
    if (!plan.contains(key) || !plan[key].is_string()) return invalid("plan file: the plan has no \"{}\"", key);
  TW_ASSIGN_OR_RETURN(Description description, description_from_json(graph));
  description.verify = plan.value("verify", false) || impl.description.verify;
  TW_ASSIGN_OR_RETURN(Frozen frozen, freeze(description));
  assign_uids(frozen);

  // Does the plan fit this library and machine?
  const std::string engine_name = plan["engine"], config = plan["config"];
  const Engine* engine = find_engine(engine_name);
  Target here = Target::this_machine();
  if (queue.ordinal >= 0) {
    TW_ASSIGN_OR_RETURN(here, Target::of_gpu(queue.ordinal, queue.ptx));
  }
  std::string mismatch;
  if (!engine) mismatch = fmt::format("it is for engine \"{}\", which this library does not have", engine_name);
  else if (plan.value("engine_version", 0) != engine->version())
    mismatch = fmt::format("it was made by version {} of engine {}, this is version {}",
                           plan.value("engine_version", 0), engine_name, engine->version());
  else if (auto reasons = engine->cannot_load(here); !reasons.empty())
    mismatch = fmt::format("engine {} cannot work here: {}", engine_name, reasons[0].text);

  PlanList plans;
  plans.filters = impl.plans.filters;
  std::string note;
  if (mismatch.empty()) {
    Candidate c;
    c.config = config;
    c.behavior_notes = notes_of<BehaviorNote_t>(plan, "behavior_notes");
    c.numerical_notes = notes_of<NumericalNote_t>(plan, "numerical_notes");
    if (plan.contains("notes") && plan["notes"].is_array())
      for (const json& n : plan["notes"])
        if (n.is_string()) c.notes.push_back(n);
    Status s = plans.adopt(frozen.graph, here, {engine_name, config, sections["artifact"], nullptr}, std::move(c));
    if (s.is_bad()) mismatch = s.err_msg;
  }
  if (!mismatch.empty()) {
    if (loading == Loading::Strict)
      return error(error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED, "the plan in the file does not fit: {}",
                   mismatch);
    plans = PlanList{};
    TW_RETURN_IF_BAD(plans.create(frozen.graph, here, {HeurMode_t::A, HeurMode_t::FALLBACK}, nullptr));
    TW_RETURN_IF_BAD(plans.build(BuildPlanPolicy_t::HEURISTICS_CHOICE));
    note = fmt::format("the plan in the file did not fit ({}); built again from the graph: {}", mismatch,
                       plans.at(*plans.chosen()).name());
  }
  write_back(description, frozen);
  impl.description = std::move(description);
  impl.frozen = std::move(frozen);
  impl.lowered = true;
  impl.queue = queue;
  impl.plans = std::move(plans);
  impl.loaded_note = std::move(note);
  return {};
}

}  // namespace tilewright::graph
