// tilewright explain: what each engine says of a graph. tilewright plans: the plan list as it stands.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/op_def.h"
#include "session.h"
#include "table.h"
#include "terminal.h"
#include "verbs.h"

namespace tilewright::tool {

namespace {

using nlohmann::ordered_json;

ordered_json describe_json(const ir::Graph& graph) {
  ordered_json j;
  j["name"] = graph.name;
  const ir::Cost cost = ir::cost(graph);
  j["flops"] = cost.flops;
  j["bytes"] = cost.bytes;
  for (const ir::Node& node : graph.nodes) j["nodes"].push_back({{"op", node.op->name}, {"name", node.name}});
  return j;
}

ordered_json reason_json(const ir::Graph& graph, const Reason& reason) {
  ordered_json j{{"why", to_string(reason.why)}, {"text", reason.text}};
  if (reason.node >= 0) j["node"] = graph.nodes[size_t(reason.node)].name;
  if (reason.tensor != ir::kNone) j["tensor"] = graph.tensor(reason.tensor).name;
  return j;
}

std::string indented(const std::string& text, const std::string& indent) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += line.empty() ? "\n" : indent + line + '\n';
  return out;
}

const char* state_name(PlanState state) {
  switch (state) {
    case PlanState::Listed: return "listed";
    case PlanState::Rejected: return "rejected";
    case PlanState::Excluded: return "excluded";
    case PlanState::Failed: return "failed";
    case PlanState::Built: return "built";
  }
  return "?";
}

ordered_json candidate_json(const ir::Graph& graph, const Candidate& c) {
  ordered_json reasons = ordered_json::array();
  for (const Reason& r : c.reasons) reasons.push_back(reason_json(graph, r));
  return {{"config", c.config},        {"workspace_bytes", c.workspace_bytes},
          {"kernels", c.kernel_count}, {"estimated_ms", c.estimated_ms},
          {"notes", c.notes},          {"reasons", reasons}};
}

}  // namespace

namespace {

// The kernels of a plan, one page each; of no plan in particular: of the first that has any.
int explain_source(const ExplainOptions& options, const Session& session) {
  for (const PlanInfo& plan : session.plans()) {
    if (plan.index < 0 || (options.plan >= 0 && plan.index != options.plan)) continue;
    const std::vector<KernelText> kernels = session.kernels(plan.index);
    if (kernels.empty()) continue;
    if (options.json) {
      ordered_json j{{"plan", plan.name}, {"target", session.device().target().text()}};
      for (const KernelText& k : kernels) j["kernels"].push_back({{"name", k.name}, {"text", k.text}});
      std::cout << j.dump(2) << '\n';
      return 0;
    }
    for (size_t k = 0; k < kernels.size(); ++k)
      std::cout << (k ? "\n" : "")
                << bold(fmt::format("// ===== plan {} {}, kernel {} of {}: {}", plan.index, plan.name, k + 1,
                                    kernels.size(), kernels[k].name))
                << '\n'
                << kernels[k].text;
    return 0;
  }
  const PlanInfo first = session.info(std::max<int64_t>(options.plan, 0));
  std::string why;
  for (const PlanInfo& plan : session.plans())
    if (plan.engine == "cuda")
      for (const std::string& reason : plan.reasons) why += "\n  cuda: " + reason;
  fail("plan {} {} of \"{}\" for {} has no generated kernels; engine cuda has, on a GPU or with --device h200{}",
       options.plan < 0 ? "0" : std::to_string(options.plan), first.name, options.graph,
       session.device().target().text(), why);
}

}  // namespace

int explain(const ExplainOptions& options) {
  const ChosenDevice device(options.device);
  const Session session(options.graph, device);
  if (options.source) return explain_source(options, session);
  const ir::Graph& graph = session.ir();
  const Target& target = device.target();
  const ir::Cost cost = ir::cost(graph);
  ordered_json j = describe_json(graph);
  j["target"] = target.text();
  if (!options.json) {
    std::cout << bold("Graph") << fmt::format(" \"{}\" ({})\n", graph.name, options.graph)
              << indented(ir::describe(graph), "  ")
              << fmt::format("  {}, {} of tensors; for {}\n", human_rate(cost.flops, "FLOP"), human_bytes(cost.bytes),
                             device.text());
  }
  for (const Engine* engine : all_engines()) {
    std::vector<Reason> missing = engine->unavailable(target);
    if (std::any_of(missing.begin(), missing.end(), [](auto& r) { return r.why == Why::Arch; })) continue;
    const Verdict verdict = missing.empty() ? engine->propose(graph, target) : Verdict{nullptr, std::move(missing)};
    ordered_json e{{"name", engine->name()}, {"takes_it", verdict.proposal != nullptr}};
    e["reasons"] = ordered_json::array();
    for (const Reason& r : verdict.reasons) e["reasons"].push_back(reason_json(graph, r));
    if (!options.json)
      std::cout << '\n'
                << bold(engine->name()) << "  " << (verdict.proposal ? green("yes") : yellow("no")) << "  "
                << faint(engine->summary()) << '\n';
    for (const Reason& r : verdict.reasons)
      if (!options.json) std::cout << "  " << to_string(r.why) << ": " << r.text << '\n';
    if (verdict.proposal) {
      const std::string text = verdict.proposal->explain();
      const std::vector<RegionInfo> regions = verdict.proposal->regions();
      e["explain"] = text;
      e["regions"] = ordered_json::array();
      for (const RegionInfo& region : regions) {
        ordered_json nodes = ordered_json::array();
        for (ir::NodeId n : region.nodes) nodes.push_back(graph.nodes[size_t(n)].name);
        e["regions"].push_back({{"name", region.name}, {"nodes", nodes}});
      }
      Table table;
      table.column("config").column("workspace", Table::Right).column("kernels", Table::Right);
      table.column("estimate", Table::Right).column("notes");
      std::string refused;
      for (const Candidate& c : verdict.proposal->candidates()) {
        e["candidates"].push_back(candidate_json(graph, c));
        table.row({c.config.empty() ? "(only one)" : c.config, human_bytes(double(c.workspace_bytes)),
                   std::to_string(c.kernel_count), c.estimated_ms > 0 ? human_time(c.estimated_ms) : "-",
                   c.reasons.empty() ? fmt::format("{}", fmt::join(c.notes, ", ")) : yellow("cannot serve")});
        for (const Reason& r : c.reasons) refused += fmt::format("  {}: {}: {}\n", c.config, to_string(r.why), r.text);
      }
      if (!options.json) std::cout << indented(text, "  ") << table.text(2) << refused;
    }
    j["engines"].push_back(std::move(e));
  }
  const PlanInfo first = session.plans().at(0);
  j["first_plan"] = {{"name", first.name}, {"notes", first.notes}};
  if (options.json) std::cout << j.dump(2) << '\n';
  else std::cout << '\n' << bold("First plan ") << fmt::format("{}: {}\n", first.name, fmt::join(first.notes, ", "));
  return 0;
}

int plans(const ExplainOptions& options) {
  const ChosenDevice device(options.device);
  const Session session(options.graph, device);
  if (options.json) {
    ordered_json j = describe_json(session.ir());
    j["target"] = device.target().text();
    for (const PlanInfo& p : session.plans())
      j["plans"].push_back({{"index", p.index},
                            {"name", p.name},
                            {"engine", p.engine},
                            {"state", state_name(p.state)},
                            {"reasons", p.reasons},
                            {"notes", p.notes},
                            {"workspace_bytes", p.workspace_bytes},
                            {"kernels", p.kernel_count},
                            {"estimated_ms", p.estimated_ms}});
    std::cout << j.dump(2) << '\n';
    return 0;
  }
  Table table;
  table.column("#", Table::Right).column("plan").column("state").column("kernels", Table::Right);
  table.column("workspace", Table::Right).column("estimate", Table::Right).column("notes");
  for (const PlanInfo& p : session.plans()) {
    const bool offers = p.index >= 0;
    table.row({offers ? std::to_string(p.index) : "", p.name, state_name(p.state),
               offers ? std::to_string(p.kernel_count) : "", offers ? human_bytes(double(p.workspace_bytes)) : "",
               offers && p.estimated_ms > 0 ? human_time(p.estimated_ms) : "",
               fmt::format("{}", fmt::join(p.notes, ", "))});
    for (const std::string& reason : p.reasons) table.row({"", "  " + reason});
  }
  std::cout << table.text();
  return 0;
}

}  // namespace tilewright::tool
