// The table of graphs (support/cudnn_table.h) against the real library: without a device, that it takes the operation
// graphs and its heuristics answer; on a GPU, that every engine gives what the reference gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "engines/cudnn/engine.h"
#include "engines/cudnn/lowering.h"
#include "plan/harness.h"
#include "plan/judge.h"
#include "support/cudnn_queue.h"
#include "support/cudnn_table.h"

namespace tilewright::testing {
namespace {

using cudnn::Attr;
using cudnn::AttrType;
using cudnn::Descriptor;
using cudnn::Kind;

cudnn::Lowered lower(const ir::Graph& graph, const Target& target) {
  std::vector<ir::NodeId> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) nodes.push_back(ir::NodeId(i));
  return cudnn::Lowering(graph, nodes, target).run();
}

// How many engine configurations the heuristics offer for a GPU that is only described.
Result<int64_t> offered(const cudnn::Lowered& lowered, const Target& target) {
  constexpr int kModeA = 3, kFallback = 2;
  Descriptor properties(Kind::DEVICEPROP), graph(Kind::OPERATIONGRAPH);
  properties.text(Attr::DEVICEPROP_JSON_REPRESENTATION, target.gpu->json);
  TW_RETURN_IF_BAD(properties.finalize());
  graph.descriptors(Attr::OPERATIONGRAPH_OPS, lowered.operations);
  TW_RETURN_IF_BAD(graph.finalize());
  int64_t count = 0;
  for (int mode : {kModeA, kFallback}) {
    Descriptor heuristics(Kind::ENGINEHEUR);
    heuristics.descriptor(Attr::ENGINEHEUR_OPERATION_GRAPH, graph.raw())
        .value(Attr::ENGINEHEUR_MODE, AttrType::HEUR_MODE, mode)
        .descriptor(Attr::ENGINEHEUR_DEVICEPROP, properties.raw());
    TW_RETURN_IF_BAD(heuristics.finalize());
    TW_ASSIGN_OR_RETURN(const int64_t more, heuristics.count(Attr::ENGINEHEUR_RESULTS, AttrType::BACKEND_DESCRIPTOR));
    count += more;
  }
  return count;
}

TEST(CudnnTable, HeuristicsAnswerWithoutADevice) {
  if (!cudnn::lookup().calls) GTEST_SKIP() << cudnn::lookup().problem;
  const Result<Target> target = Target::parse("h200");
  ASSERT_TRUE(target);
  for (const CudnnGraph& row : cudnn_graphs()) {
    SCOPED_TRACE(row.name);
    const cudnn::Lowered lowered = lower(row.graph, *target);
    if (row.answer == CudnnAnswer::Refused) {
      ASSERT_FALSE(lowered.reasons.empty());
      EXPECT_NE(lowered.reasons[0].text.find('"'), std::string::npos) << "names nothing: " << lowered.reasons[0].text;
      continue;
    }
    ASSERT_TRUE(lowered.reasons.empty()) << lowered.reasons[0].text;
    const Result<int64_t> count = offered(lowered, *target);
    ASSERT_TRUE(count) << count.status().err_msg;
    EXPECT_GE(*count, 1);
  }
}

class CudnnTableGpu : public CudnnGpu, public ::testing::WithParamInterface<CudnnGraph> {};

std::string name_of(const ::testing::TestParamInfo<CudnnGraph>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Table, CudnnTableGpu, ::testing::ValuesIn(cudnn_graphs()), name_of);

// cuDNN's exponentials, sines and tangents are approximate, its products of FP8 are added in fewer bits, and some
// gradients are put together in HALF: twice the bound, with what rounding the result allows, must do.
bool close(Harness& harness) {
  const auto outputs = harness.compare_outputs();
  return harness.check_memory().is_good() && outputs &&
         std::all_of(outputs->begin(), outputs->end(),
                     [](const Harness::Output& o) { return !o.must_be_exact && o.comparison.worst_ratio <= 2; });
}

// Of each of cuDNN's engines the first configuration that builds: the others differ in how the same kernel is tiled.
TEST_P(CudnnTableGpu, EveryEngineIsRight) {
  const CudnnGraph& row = GetParam();
  const Verdict v = cudnn_engine().propose(row.graph, target_);
  if (!v.proposal) {
    EXPECT_NE(row.answer, CudnnAnswer::Plans) << row.name << ": " << (v.reasons.empty() ? "" : v.reasons[0].text);
    EXPECT_FALSE(v.reasons.empty());
    return;
  }
  Judges judges(row.graph);
  std::set<std::string> seen;
  int right = 0, inexact = 0;
  for (const Candidate& c : v.proposal->candidates()) {
    const std::string engine = c.config.substr(0, c.config.find(','));
    if (!c.reasons.empty() || seen.count(engine)) continue;
    if (!exact_enough(c)) {
      ++inexact;
      continue;
    }
    const Result<Artifact> artifact = v.proposal->compile(c.config, nullptr);
    if (!artifact) {  // heuristics list what cannot be built, too
      std::printf("[ built not ] %s: %s\n", c.config.c_str(), artifact.status().err_msg.c_str());
      continue;
    }
    const Result<std::unique_ptr<Executable>> plan = cudnn_engine().load(row.graph, *artifact, target_, nullptr);
    ASSERT_TRUE(plan) << c.config << ": " << plan.status();
    seen.insert(engine);
    Harness harness(judges.of(c.notes));
    const Status s = harness.check_run(**plan, queue_);
    if (s.is_bad() && close(harness)) {
      ++inexact;
      continue;
    }
    EXPECT_TRUE(s.is_good()) << row.name << ", " << c.config << ": " << s << "\n" << describe(row.graph);
    right += s.is_good();
  }
  std::printf("[   plans   ] %s: %d right, %d of lower precision\n", row.name.c_str(), right, inexact);
  EXPECT_TRUE(row.answer != CudnnAnswer::Plans || right + inexact > 0) << "no configuration runs";
}

}  // namespace
}  // namespace tilewright::testing
