// Verify mode: a plan runs on guarded, poisoned copies and is judged by the exact reference before its results count.
#pragma once

#include <string>
#include <vector>

#include "plan/engine.h"

namespace tilewright::graph {
// GRAPH_EXECUTION_FAILED, saying which tensor and how, when the plan is wrong or writes outside its tensors; the
// caller's outputs are written only when it is right. What the plan's notes admit is allowed (plan/judge.h).
Status run_verified(const ir::Graph&, const Executable&, const std::vector<std::string>& notes, const Bindings&,
                    const Queue&);
}  // namespace tilewright::graph
