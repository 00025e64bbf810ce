#include "session.h"

#include <algorithm>
#include <chrono>

#include "frontend/builder.h"
#include "terminal.h"

namespace tilewright::tool {

graph::Graph load_graph(const std::string& path) {
  bool ok = false;
  const Json json = Json::parse(read_text(path), &ok);
  if (!ok) fail("\"{}\" is not JSON", path);
  graph::Graph graph;
  must(graph.deserialize(json), fmt::format("\"{}\" is no graph file", path));
  must(graph.validate(), fmt::format("\"{}\"", path));
  return graph;
}

Session::Session(const std::string& path) : path_(path), graph_(load_graph(path)) {
  must(graph_.build_operation_graph(), fmt::format("\"{}\"", path));
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
  if (reasons.empty())
    fail("no plan of \"{}\" has \"{}\" in its name; `tilewright plans {}` lists them", path_, engine, path_);
  fail("no plan of \"{}\" could be built:{}", path_, reasons);
}

Status Session::build(int64_t index) { return graph_.build_plan_at_index(index); }

Status Session::execute(Harness& harness, int64_t index, void* workspace) {
  auto pack = harness.variant_pack();
  return graph_.execute_plan_at_index(Handle{}, pack, workspace, index);
}

const std::string& Session::config(int64_t index) const { return graph_.impl().plans.at(index).candidate.config; }

std::vector<RegionInfo> Session::regions(int64_t index) const {
  const PlanRow& row = graph_.impl().plans.at(index);
  // A proposal tells the regions of its best configuration.
  const bool best = row.proposal && row.proposal->candidates().front().config == row.candidate.config;
  return best ? row.proposal->regions() : std::vector<RegionInfo>();
}

Timing time_runs(const std::function<void()>& body, int runs, double seconds) {
  using clock = std::chrono::steady_clock;
  const auto ms_since = [](clock::time_point start) {
    return std::chrono::duration<double, std::milli>(clock::now() - start).count();
  };
  constexpr int kLeast = 3, kMost = 200;
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
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  return {(times[(n - 1) / 2] + times[n / 2]) / 2, times.front(), times.back(), int(n)};
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
