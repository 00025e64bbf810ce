#include "engines/cudnn/program.h"

#include <algorithm>
#include <cctype>

#include <nlohmann/json.hpp>

#include "engines/cudnn/kernels.h"
#include "ir/op_def.h"

namespace tilewright::cudnn {

using ir::Role;
using ir::TensorId;
using nlohmann::json;

namespace {

int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Gives the tensors between segments their places, and says how much workspace all need.
void lay_out(Program& p) {
  p.intermediate.assign(p.graph().tensors.size(), -1);
  int64_t end = 0, most = 0;
  for (const PlannedSegment& s : p.segments) {
    for (TensorId t : s.segment.lowered->writes) {
      int64_t& offset = p.intermediate[size_t(t)];
      if (p.graph().tensor(t).role != Role::Virtual || offset >= 0) continue;
      offset = end;
      end += aligned(p.graph().tensor(t).storage_bytes());
    }
    most = std::max(most, s.segment.lowered->workspace_bytes + s.workspace_bytes);
  }
  p.scratch = end;
  p.workspace_bytes = end + most;
}

// The cache for a segment's kernels; null for a graph of fixed shapes. Without a cache of the caller's, a new one.
std::shared_ptr<Kernels> kernels_for(const ir::Graph& g, KernelCache* cache) {
  if (!g.dynamic_shapes || lookup().version < 90500) return nullptr;
  if (!cache) return Kernels::from_text("");
  return std::static_pointer_cast<Kernels>(engine_cache(*cache, "cudnn", Kernels::from_text));
}

Result<PlannedSegment> plan_segment(const ir::Graph& g, Segment segment, const Config& config, KernelCache* cache) {
  PlannedSegment p;
  p.kernels = kernels_for(g, cache);
  const std::string key =
      fmt::format("{:016x}/{}+{}", ir::content_key(g, false), segment.nodes[0], segment.nodes.size());
  TW_ASSIGN_OR_RETURN(p.plan,
                      segment.operations->plan(config, p.kernels ? p.kernels->of(key, *segment.operations) : nullptr));
  TW_ASSIGN_OR_RETURN(p.workspace_bytes, p.plan.get_integer(Attr::EXECUTION_PLAN_WORKSPACE_SIZE));
  p.segment = std::move(segment);
  p.config = config;
  return p;
}

// The heuristics' first that makes a plan.
Result<PlannedSegment> plan_first(const ir::Graph& g, const Segment& segment, KernelCache* cache) {
  Status last = not_supported("cuDNN lists no engine for {}", segment_name(g, segment.nodes));
  for (HeurMode_t mode : {HeurMode_t::A, HeurMode_t::FALLBACK})
    for (const Listed& l : segment.operations->heuristics(mode).configs) {
      Result<PlannedSegment> p = plan_segment(g, segment, l.config, cache);
      if (p) return p;
      last = p.status();
    }
  return last;
}

}  // namespace

std::string segment_name(const ir::Graph& g, const std::vector<ir::NodeId>& nodes) {
  std::string name;
  for (ir::NodeId id : nodes) {
    const ir::Node& n = g.nodes[size_t(id)];
    std::string op = n.op->name;
    if (op == "pointwise") op = n.attr<std::string>("mode");
    for (char& c : op) c = char(std::tolower(c));
    name += (name.empty() ? "" : "+") + op;
  }
  return name;
}

Result<std::shared_ptr<const Program>> make_program(Prepared prepared, std::vector<Segment> segments,
                                                    const Config* config, KernelCache* cache) {
  auto program = std::make_shared<Program>();
  program->prepared = std::move(prepared);
  const ir::Graph& g = program->graph();
  for (Segment& s : segments) {
    Result<PlannedSegment> planned = config ? plan_segment(g, s, *config, cache) : plan_first(g, s, cache);
    if (!planned) return planned.status();
    program->segments.push_back(std::move(*planned));
  }
  lay_out(*program);
  return std::shared_ptr<const Program>(std::move(program));
}

Result<std::vector<uint8_t>> to_bytes(const Program& p) {
  json segments = json::array();
  for (const PlannedSegment& s : p.segments) {
    TW_ASSIGN_OR_RETURN(const std::string plan, s.plan.get_text(Attr::EXECUTION_PLAN_JSON_REPRESENTATION));
    segments.push_back({{"nodes", s.segment.nodes}, {"config", s.config.text()}, {"plan", plan}});
  }
  const json all = {{"cudnn", lookup().version}, {"decomposed", p.prepared.decomposed}, {"segments", segments}};
  const std::string text = all.dump(-1, ' ', false, json::error_handler_t::replace);
  return std::vector<uint8_t>(text.begin(), text.end());
}

namespace {

bool names_nodes(const json& list, size_t count) {
  return list.is_array() && !list.empty() && std::all_of(list.begin(), list.end(), [&](const json& id) {
           return id.is_number_unsigned() && id.get<size_t>() < count;
         });
}

Result<PlannedSegment> read_segment(const json& j, const std::vector<bool>& real, const ir::Graph& g,
                                    const Target& target) {
  PlannedSegment p;
  p.segment.nodes = j["nodes"].get<std::vector<ir::NodeId>>();
  auto lowered = std::make_shared<Lowered>(Lowering(g, p.segment.nodes, target, real).run());
  if (!lowered->reasons.empty()) return not_supported("{}", lowered->reasons[0].text);
  lowered->kept.clear();  // the plan comes from its text
  lowered->operations.clear();
  p.segment.lowered = std::move(lowered);
  TW_ASSIGN_OR_RETURN(p.config, Config::parse(j["config"]));
  TW_ASSIGN_OR_RETURN(p.plan, OperationGraph::plan_from_json(j["plan"], target));
  TW_ASSIGN_OR_RETURN(p.workspace_bytes, p.plan.get_integer(Attr::EXECUTION_PLAN_WORKSPACE_SIZE));
  return p;
}

}  // namespace

Result<std::shared_ptr<const Program>> from_bytes(const ir::Graph& graph, const std::vector<uint8_t>& bytes,
                                                  const Target& target) {
  const json all = json::parse(bytes.begin(), bytes.end(), nullptr, false);
  const Status bad = invalid("cudnn: the plan file's bytes are no plan of cuDNN");
  if (!all.is_object() || !all.contains("segments") || !all["segments"].is_array() || all["segments"].empty() ||
      !all.contains("decomposed") || !all["decomposed"].is_array() || !all.contains("cudnn") ||
      !all["cudnn"].is_number_integer())
    return bad;
  if (all["cudnn"] != lookup().version)
    return not_supported("the plan was made by cuDNN {}, and this is {}; build it again",
                         version_text(all["cudnn"].get<int64_t>()), version_text(lookup().version));
  auto program = std::make_shared<Program>();
  program->prepared = prepare(graph);
  for (const json& id : all["decomposed"])
    if (!id.is_number_unsigned() || id.get<size_t>() >= program->graph().nodes.size() ||
        !decompose_node(program->prepared, id.get<ir::NodeId>()))
      return bad;
  const ir::Graph& g = program->graph();
  for (const json& j : all["segments"]) {
    if (!j.is_object() || !j.contains("nodes") || !names_nodes(j["nodes"], g.nodes.size()) || !j.contains("config") ||
        !j["config"].is_string() || !j.contains("plan") || !j["plan"].is_string())
      return bad;
    const auto nodes = j["nodes"].get<std::vector<ir::NodeId>>();
    Result<PlannedSegment> s = read_segment(j, crossing(g, nodes), g, target);
    if (!s) return s.status();
    program->segments.push_back(std::move(*s));
  }
  lay_out(*program);
  return std::shared_ptr<const Program>(std::move(program));
}

}  // namespace tilewright::cudnn
