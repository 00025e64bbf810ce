// A plan of kernels once they are compiled, as plain data: what plan files keep, and all that running it takes.
#pragma once

#include "engines/cuda/launch.h"
#include "plan/engine.h"

namespace tilewright::cuda {

struct CompiledPlan {
  std::string code;  // what the kernels are for: "sm_90a", "compute_75"
  int64_t workspace_bytes = 0;
  std::vector<Hazard> hazards;
  std::vector<Launch> launches;
};

std::vector<uint8_t> to_bytes(const CompiledPlan&);
Result<CompiledPlan> from_bytes(const std::vector<uint8_t>&);

// Does it fit the graph, and is it code for the target?
Status check(const CompiledPlan&, const ir::Graph&, const Target&);

}  // namespace tilewright::cuda
