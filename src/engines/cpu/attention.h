// Attention on the CPU: sdpa and sdpa_backward as one step each, tile by tile. The score matrix never exists as a
// whole; what the masks exclude is not computed.
#pragma once

#include <functional>

#include "ir/graph.h"
#include "plan/engine.h"

namespace tilewright::cpu {

// Where a tensor's memory is while a plan runs. Not asked for tensors that carry a stored value.
using AddressOf = std::function<void*(ir::TensorId, const Bindings&, void* workspace)>;

bool is_attention(const ir::Node&);
// What runs an sdpa or sdpa_backward node. Beside its scratch, which grows with the sequences and never with the
// scores, it keeps tiles per thread. The results do not depend on the number of threads.
struct AttentionStep {
  const char* name;
  int64_t scratch_bytes;  // of the workspace
  std::function<void(const Bindings&, void* workspace, char* scratch)> run;
};
Result<AttentionStep> make_attention_step(const ir::Graph&, const ir::Node&, AddressOf address);

}  // namespace tilewright::cpu
