// What the plan list tells of one plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tilewright/types.h"

namespace tilewright {

enum class PlanState {
  Listed,    // may serve; not compiled yet
  Rejected,  // its engine cannot take this graph
  Excluded,  // a filter of the caller's took it out
  Failed,    // it should have compiled and did not
  Built,     // ready to execute
};

struct PlanInfo {
  int64_t index = 0;   // stable for the life of the list; -1 for rows that offer no plan
  std::string name;    // "cpu.fused[tile=64]"
  std::string engine;  // "cpu.fused"
  PlanState state = PlanState::Listed;
  std::vector<std::string> reasons;  // why it is Rejected, Excluded or Failed
  std::vector<std::string> notes;    // what is worth knowing: "2 kernels", "deterministic"
  int64_t workspace_bytes = 0;
  int kernel_count = 0;               // launches of one execute; 0 until built
  double estimated_ms = 0;            // the cost model's
  std::optional<double> measured_ms;  // by autotune
  bool chosen = false;
};

}  // namespace tilewright
