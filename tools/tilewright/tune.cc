// tilewright tune: every plan built, checked and timed.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "ir/op_def.h"
#include "plan/roofline.h"
#include "plan/tuning_db.h"
#include "session.h"
#include "table.h"
#include "terminal.h"
#include "tilewright/device.h"
#include "verbs.h"

namespace tilewright::tool {

namespace {

struct Row {
  PlanInfo plan;
  double build_ms = 0;
  Timing timing;
  double error = 0, of_bound = 0;
  std::string problem;  // empty: it ran, and its results are right
};

Row measure(Session& session, Harness& harness, const PlanInfo& listed, const TuneOptions& options) {
  Row row;
  row.plan = listed;
  Status status;
  const auto start = std::chrono::steady_clock::now();
  status = session.build(listed.index);
  row.build_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  for (const PlanInfo& p : session.plans())
    if (p.index == listed.index) row.plan = p;
  if (status.is_bad()) {
    row.problem = status.get_message();
    return row;
  }
  status = session.run_once(harness, listed.index);
  if (status.is_good()) status = harness.check_memory();
  if (status.is_good() && options.check) {
    auto outputs = harness.compare_outputs();
    if (!outputs) fail("the reference: {}", outputs.status().get_message());
    for (const Harness::Output& out : *outputs) {
      row.error = std::max(row.error, out.comparison.worst_error);
      row.of_bound = std::max(row.of_bound, out.comparison.worst_ratio);
      if (!out.ok() && row.problem.empty())
        row.problem = fmt::format("\"{}\": {}", session.ir().tensor(out.tensor).name, out.comparison.text());
    }
  }
  if (status.is_bad()) row.problem = status.get_message();
  if (row.problem.empty()) row.timing = session.time(harness, listed.index, 0, options.seconds);
  return row;
}

// On a GPU, a plan that runs on the host can take minutes where the others take milliseconds: it is left out, unless
// asked for by name or alone.
std::vector<PlanInfo> plans_to_tune(const Session& session, const std::string& engine) {
  std::vector<PlanInfo> selected = select_plans(session.plans(), engine);
  const auto hopeless = [&](const PlanInfo& p) { return session.last_resort(p.index); };
  if (session.device().is_gpu() && engine.empty() && !std::all_of(selected.begin(), selected.end(), hopeless))
    std::erase_if(selected, hopeless);
  return selected;
}

// Later programs take the fastest of these plans first. Says where they are remembered, or why not.
std::string remember(const Session& session, const std::vector<Row>& rows) {
  std::vector<TunedPlan> tuned;
  for (const Row& row : rows)
    if (row.problem.empty() && row.timing.runs)
      tuned.push_back({row.plan.engine, session.config(row.plan.index), row.timing.median_ms});
  if (tuned.empty()) return "nothing is remembered: no plan ran and was right";
  const Status status = remember_tuned(session.ir(), session.device().target(), tuned);
  return status.is_good() ? "remembered in " + tuning_db_path() : status.get_message();
}

nlohmann::ordered_json to_json(const Session& session, const TuneOptions& options, const Roofline& limits,
                               const std::vector<Row>& rows) {
  const ir::Cost cost = ir::cost(session.ir());
  nlohmann::ordered_json j;
  j["graph"] = session.path();
  j["name"] = session.ir().name;
  j["version"] = version_string();
  j["target"] = session.device().target().text();
  j["roofline"] = {{"bytes_per_second", limits.bytes_per_s}, {"flops_per_second", limits.flops_per_s}};
  j["seed"] = options.seed;
  j["flops"] = cost.flops;
  j["bytes"] = cost.bytes;
  j["plans"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json p;
    p["index"] = row.plan.index;
    p["name"] = row.plan.name;
    p["engine"] = row.plan.engine;
    p["ok"] = row.problem.empty();
    p["problem"] = row.problem;
    p["kernels"] = row.plan.kernel_count;
    p["workspace_bytes"] = row.plan.workspace_bytes;
    p["notes"] = row.plan.notes;
    p["build_ms"] = row.build_ms;
    if (row.timing.runs) {
      p["time_ms"] = {{"median", row.timing.median_ms},
                      {"min", row.timing.min_ms},
                      {"max", row.timing.max_ms},
                      {"runs", row.timing.runs}};
      p["flops_per_second"] = cost.flops / row.timing.median_ms * 1e3;
      p["bytes_per_second"] = cost.bytes / row.timing.median_ms * 1e3;
      p["of_roofline"] = limits.share(cost.flops, cost.bytes, row.timing.median_ms);
    }
    if (options.check) p["max_error"] = row.error, p["error_of_bound"] = row.of_bound;
    j["plans"].push_back(std::move(p));
  }
  return j;
}

}  // namespace

int tune(const TuneOptions& options) {
  const ChosenDevice device(options.device);
  device.must_run();
  Session session(options.graph, device);
  const std::vector<PlanInfo> selected = plans_to_tune(session, options.engine);
  if (selected.empty()) fail("no plan of \"{}\" has \"{}\" in its name", options.graph, options.engine);
  std::map<const ir::Graph*, std::unique_ptr<Harness>> harnesses;  // by what judges
  const auto measured = roofline(device.target(), device.queue());
  const Roofline limits = measured ? *measured : Roofline{};
  std::vector<Row> rows;
  {
    Progress progress("tune", int64_t(selected.size()));
    for (const PlanInfo& plan : selected) {
      progress.at(int64_t(rows.size()), plan.name);
      auto& harness = harnesses[&session.judge(plan.index)];
      if (!harness) harness = std::make_unique<Harness>(session.judge(plan.index), HarnessOptions{options.seed});
      rows.push_back(measure(session, *harness, plan, options));
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    if (a.problem.empty() != b.problem.empty()) return a.problem.empty();
    return a.timing.median_ms < b.timing.median_ms;
  });
  const std::string remembered = remember(session, rows);
  if (!options.json.empty()) {
    auto j = to_json(session, options, limits, rows);
    j["remembered"] = remembered;
    write_text(options.json, j.dump(2) + '\n');
  }
  const bool ok = std::all_of(rows.begin(), rows.end(), [](const Row& r) { return r.problem.empty(); });
  if (options.json == "-") return ok ? 0 : 1;

  const ir::Cost cost = ir::cost(session.ir());
  std::cout << bold("graph  ") << session.ir().name << " (" << options.graph << ")\n" << ir::describe(session.ir());
  std::cout << bold("work   ")
            << fmt::format("{}, {} of tensors; {}\n", human_rate(cost.flops, "FLOP"), human_bytes(cost.bytes),
                           device.text());
  std::cout << bold("limits ")
            << (measured ? fmt::format("copies at {}, a {} matmul at {}\n\n", human_rate(limits.bytes_per_s, "B/s"),
                                       device.is_gpu() ? "BFLOAT16" : "FLOAT", human_rate(limits.flops_per_s, "FLOP/s"))
                         : "not measured: " + measured.status().get_message() + "\n\n");
  Table table;
  table.column("#", Table::Right).column("plan").column("time", Table::Right).column("spread", Table::Right);
  table.column("FLOP/s", Table::Right).column("B/s", Table::Right).column("of limit", Table::Right);
  table.column("workspace", Table::Right).column("kernels", Table::Right).column("build", Table::Right);
  if (options.check) table.column("max error", Table::Right).column("of bound", Table::Right);
  table.column("");
  for (const Row& row : rows) {
    const bool timed = row.timing.runs > 0;
    const double seconds = row.timing.median_ms / 1e3;
    std::vector<std::string> cells{
        std::to_string(row.plan.index),
        row.plan.name,
        timed ? human_time(row.timing.median_ms) : "-",
        timed ? fmt::format("{:.0f} %", 100 * row.timing.spread()) : "-",
        timed ? human_rate(cost.flops / seconds, "") : "-",
        timed ? human_rate(cost.bytes / seconds, "") : "-",
        timed && measured ? fmt::format("{:.0f} %", 100 * limits.share(cost.flops, cost.bytes, row.timing.median_ms))
                          : "-",
        human_bytes(double(row.plan.workspace_bytes)),
        std::to_string(row.plan.kernel_count),
        human_time(row.build_ms)};
    if (options.check)
      cells.push_back(fmt::format("{:.2e}", row.error)), cells.push_back(fmt::format("{:.0f} %", 100 * row.of_bound));
    cells.push_back(yes_no(row.problem.empty()));
    table.row(std::move(cells));
  }
  std::cout << table.text() << faint(remembered) << '\n';
  for (const Row& row : rows)
    if (!row.problem.empty()) std::cerr << red("wrong: ") << row.plan.name << ": " << row.problem << '\n';
  return ok ? 0 : 1;
}

}  // namespace tilewright::tool
