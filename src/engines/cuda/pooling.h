// Kernels of Pooling regions: resample and its gradient, with the pointwise nodes around them.
#pragma once

#include "engines/cuda/launch.h"

namespace tilewright::cuda {

Result<std::vector<Launch>> pooling_launches(const fuse::FusedGraph&, const fuse::Region&);
int64_t pooling_scratch_bytes(const fuse::FusedGraph&, const fuse::Region&);

}  // namespace tilewright::cuda
