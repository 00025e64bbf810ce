// Kernels of Attention regions: sdpa and its gradients.
#pragma once

#include "engines/cuda/launch.h"

namespace tilewright::cuda {

// The launches of a region; or why it has none. Their scratch is in the workspace, from `scratch_offset` on.
Result<std::vector<Launch>> attention_launches(const fuse::FusedGraph&, const fuse::Region&, const KernelOptions&,
                                               int64_t scratch_offset);
int64_t attention_scratch_bytes(const fuse::FusedGraph&, const fuse::Region&);

}  // namespace tilewright::cuda
