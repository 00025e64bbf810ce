// Times every plan of every problem through the public API, after checking its result once against the exact
// reference: a wrong result fails the run. Inputs are seeded; caches are warm; the rate is of the graph's own work
// (operations, and bytes of each real tensor once), whatever a plan does beyond it.
//
//   tilewright_bench --benchmark_filter=matmul              one problem, all plans
//   tilewright_bench --benchmark_filter=-reference          without the (slow) reference engine
//   tilewright_bench --benchmark_repetitions=9 --benchmark_report_aggregates_only=true    median and spread
#include <benchmark/benchmark.h>

#include <cstdio>
#include <map>
#include <string>

#include "base/thread_pool.h"
#include "frontend/builder.h"
#include "plan/harness.h"
#include "plan/target.h"
#include "problems.h"

namespace tilewright::bench {
namespace {

int g_failures = 0;

// A problem's graph with every plan that builds. Its memory, and the reference's values, are made when the first of
// its benchmarks runs and given back when the next problem's does: some problems are large.
class Subject {
 public:
  explicit Subject(GraphPtr graph) : graph_(std::move(graph)) {
    status_ = graph_->build({HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK}, BuildPlanPolicy_t::ALL);
  }
  const error_t& status() const { return status_; }
  graph::Graph& graph() { return *graph_; }
  const ir::Graph& frozen() const { return *graph_->impl().frozen.graph; }
  Harness& harness() {
    if (!harness_) harness_ = std::make_unique<Harness>(frozen());
    return *harness_;
  }
  void release() { harness_.reset(); }

  // Runs plan `index` once on poisoned memory and compares with the reference.
  error_t check(int64_t index) {
    Harness& h = harness();
    h.poison_outputs();
    auto pack = h.variant_pack();
    void* workspace = h.workspace(graph_->get_workspace_size_plan_at_index(index));
    error_t status = graph_->execute_plan_at_index(Handle(), pack, workspace, index);
    return status.is_good() ? h.check() : status;
  }

 private:
  GraphPtr graph_;
  error_t status_;
  std::unique_ptr<Harness> harness_;
};

void fail(benchmark::State& state, const error_t& status) {
  ++g_failures;
  state.SkipWithError((to_string(status.code) + ": " + status.err_msg).c_str());
}

void time_plan(benchmark::State& state, Subject& subject, int64_t index) {
  static Subject* resident = nullptr;
  if (resident && resident != &subject) resident->release();
  resident = &subject;

  // The function is entered several times per plan; one check is enough.
  static std::map<std::pair<Subject*, int64_t>, error_t> checked;
  auto [it, first] = checked.try_emplace({&subject, index});
  if (first) it->second = subject.check(index);
  if (it->second.is_bad()) return fail(state, it->second);

  graph::Graph& g = subject.graph();
  auto pack = subject.harness().variant_pack();
  void* workspace = subject.harness().workspace(g.get_workspace_size_plan_at_index(index));
  for (auto _ : state)
    if (error_t status = g.execute_plan_at_index(Handle(), pack, workspace, index); status.is_bad())
      return fail(state, status);

  using benchmark::Counter;
  const ir::Cost cost = ir::cost(subject.frozen());
  state.counters["FLOP/s"] = Counter(cost.flops, Counter::kIsIterationInvariantRate);
  state.counters["bytes/s"] = Counter(cost.bytes, Counter::kIsIterationInvariantRate);
  state.counters["workspace"] = double(g.get_workspace_size_plan_at_index(index));
}

// --- what execute() costs beside its work ----------------------------------------------------------------------------

enum class Pack { Uids, Tensors, Pointers };

void time_execute(benchmark::State& state, Pack form) {
  Subject subject(smallest_graph());
  if (subject.status().is_bad()) return fail(state, subject.status());
  graph::Graph& g = subject.graph();
  if (error_t status = subject.check(0); status.is_bad()) return fail(state, status);
  auto by_uid = subject.harness().variant_pack();
  std::unordered_map<graph::TensorPtr, void*> by_tensor;
  std::vector<void*> by_order;
  for (int64_t uid : g.get_variant_pack_uids_sorted()) by_order.push_back(by_uid.at(uid));
  for (const graph::TensorPtr& t : g.impl().frozen.tensors)
    if (t && by_uid.count(t->get_uid())) by_tensor[t] = by_uid.at(t->get_uid());
  void* workspace = subject.harness().workspace(g.get_workspace_size());
  for (auto _ : state) {
    const error_t status = form == Pack::Uids ? g.execute(Handle(), by_uid, workspace)
                           : form == Pack::Tensors
                               ? g.execute(Handle(), by_tensor, workspace)
                               : g.execute(Handle(), by_order.data(), int(by_order.size()), workspace);
    if (status.is_bad()) return fail(state, status);
  }
}

// Describing and building a graph, from nothing to a plan that can run.
void time_build(benchmark::State& state, GraphPtr (*make)()) {
  for (auto _ : state) {
    GraphPtr g = make();
    const error_t status = g->build({HeurMode_t::A}, BuildPlanPolicy_t::HEURISTICS_CHOICE);
    if (status.is_bad()) return fail(state, status);
  }
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("target", Target::this_machine().text());
  benchmark::AddCustomContext("cpu", cpu_info().model);
  benchmark::AddCustomContext("threads", std::to_string(thread_count()));

  std::vector<std::unique_ptr<Subject>> subjects;
  for (const Problem& p : problems()) {
    subjects.push_back(std::make_unique<Subject>(p.make()));
    Subject& subject = *subjects.back();
    if (subject.status().is_bad()) {
      ++g_failures;
      std::fprintf(stderr, "%s does not build: %s\n", p.name, subject.status().err_msg.c_str());
      continue;
    }
    for (const PlanInfo& plan : subject.graph().plans())
      if (plan.state == PlanState::Built)
        benchmark::RegisterBenchmark((std::string(p.name) + "/" + plan.name).c_str(), time_plan, std::ref(subject),
                                     plan.index)
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark((std::string("build/") + p.name).c_str(), time_build, p.make)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RegisterBenchmark("execute/by_uid", time_execute, Pack::Uids);
  benchmark::RegisterBenchmark("execute/by_tensor", time_execute, Pack::Tensors);
  benchmark::RegisterBenchmark("execute/by_order", time_execute, Pack::Pointers);

  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (g_failures > 0) std::fprintf(stderr, "%d benchmarks failed\n", g_failures);
  return g_failures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::run(argc, argv); }
