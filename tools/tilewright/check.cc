// tilewright check: every plan against the exact reference, on several fills.
#include <iostream>
#include <map>

#include "session.h"
#include "table.h"
#include "terminal.h"
#include "verbs.h"

namespace tilewright::tool {

namespace {

struct Case {
  Fill fill;
  const char* name;
};

// The outcome of one plan on one fill and seed; empty when right.
std::string check_once(Session& session, Harness& harness, int64_t index) {
  Status status = session.run_once(harness, index);
  if (status.is_good()) status = harness.check();
  return status.get_message();
}

// Checks one graph file; the number of failures.
int check_graph(const std::string& path, const ChosenDevice& device, const CheckOptions& options,
                const std::vector<Case>& cases, int64_t& runs) {
  Session session(path, device);
  std::vector<PlanInfo> plans = select_plans(session.plans(), options.engine);
  if (options.plan >= 0) std::erase_if(plans, [&](const PlanInfo& p) { return p.index != options.plan; });
  if (plans.empty()) fail("no plan of \"{}\" is left to check", path);

  std::vector<std::string> problems(plans.size());
  for (size_t p = 0; p < plans.size(); ++p)
    if (const Status status = session.build(plans[p].index); status.is_bad())
      problems[p] = "does not build: " + status.get_message();
  std::vector<std::string> repros(plans.size());
  for (const Case& c : cases)
    for (int s = 0; s < options.seeds; ++s) {
      const uint64_t seed = options.seed + uint64_t(s);
      // Odd seeds also take away any alignment beyond the declared one.
      std::map<const ir::Graph*, std::unique_ptr<Harness>> harnesses;  // by what judges
      for (size_t p = 0; p < plans.size(); ++p) {
        if (!problems[p].empty()) continue;
        ++runs;
        const ir::Graph& judge = session.judge(plans[p].index);
        auto& harness = harnesses[&judge];
        if (!harness) harness = std::make_unique<Harness>(judge, HarnessOptions{seed, c.fill, seed % 2 == 1});
        problems[p] = check_once(session, *harness, plans[p].index);
        if (!problems[p].empty())
          repros[p] = fmt::format("tilewright check {} --device {} --plan {} --fill {} --seed {} --seeds 1", path,
                                  options.device, plans[p].index, c.name, seed);
      }
    }

  int failures = 0;
  Table table;
  table.column("", Table::Right).column("").column("");
  for (size_t p = 0; p < plans.size(); ++p) {
    failures += !problems[p].empty();
    table.row({std::to_string(plans[p].index), plans[p].name, yes_no(problems[p].empty())});
  }
  if (!options.quiet) std::cout << path << '\n' << table.text(2);
  for (size_t p = 0; p < plans.size(); ++p) {
    if (problems[p].empty()) continue;
    std::cout.flush();
    std::cerr << red("wrong: ") << plans[p].name << ": " << problems[p] << '\n';
    if (!repros[p].empty()) std::cerr << "  again: " << repros[p] << '\n';
  }
  return failures;
}

}  // namespace

int check(const CheckOptions& options) {
  std::vector<Case> cases;
  if (options.fill != "integers") cases.push_back({Fill::Random, "random"});
  if (options.fill != "random") cases.push_back({Fill::Integers, "integers"});
  const ChosenDevice device(options.device);
  device.must_run();
  int failures = 0;
  int64_t runs = 0;
  for (const std::string& path : options.graphs) failures += check_graph(path, device, options, cases, runs);
  std::cout << fmt::format("{} graph{}, {} runs: ", options.graphs.size(), options.graphs.size() == 1 ? "" : "s", runs)
            << (failures ? red(fmt::format("{} plans are wrong", failures)) : green("all right")) << '\n';
  return failures ? 1 : 0;
}

}  // namespace tilewright::tool
