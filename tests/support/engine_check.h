// Runs a graph through an engine's configurations on guarded memory, judged by the reference.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "plan/engine.h"
#include "plan/harness.h"

namespace tilewright::testing {

inline Target test_target() {
  Target t;
  t.arch = "avx2";
  t.threads = 2;
  return t;
}

inline std::unique_ptr<Executable> load_plan(const Engine& engine, const ir::Graph& graph, const std::string& config) {
  const Verdict v = engine.propose(graph, test_target());
  if (!v.proposal) return nullptr;
  Result<Artifact> artifact = v.proposal->compile(config, nullptr);
  if (!artifact) return nullptr;
  Result<std::unique_ptr<Executable>> e = engine.load(graph, *artifact, test_target(), nullptr);
  return e ? std::move(*e) : nullptr;
}

// Every configuration gives what the reference gives, and touches no other memory.
inline void check_engine(const Engine& engine, const ir::Graph& graph, HarnessOptions options = {}) {
  const Verdict v = engine.propose(graph, test_target());
  ASSERT_TRUE(v.proposal) << (v.reasons.empty() ? "" : v.reasons[0].text);
  Harness harness(graph, options);
  for (const Candidate& c : v.proposal->candidates()) {
    if (!c.reasons.empty()) continue;
    Result<Artifact> artifact = v.proposal->compile(c.config, nullptr);
    ASSERT_TRUE(artifact) << artifact.status().err_msg;
    Result<std::unique_ptr<Executable>> e = engine.load(graph, *artifact, test_target(), nullptr);
    ASSERT_TRUE(e) << e.status().err_msg;
    EXPECT_EQ((*e)->workspace_bytes(), c.workspace_bytes);
    EXPECT_EQ(int((*e)->steps().size()), c.kernel_count);
    const Status s = harness.check_run(**e);
    EXPECT_TRUE(s.is_good()) << c.config << ", seed " << options.seed << ": " << s.err_msg << "\n"
                             << describe(graph) << v.proposal->explain();
  }
}

}  // namespace tilewright::testing
