// Kernels of Node regions: ops that are computed as they stand.
#pragma once

#include "engines/cuda/launch.h"

namespace tilewright::cuda {

Result<std::vector<Launch>> node_launches(const fuse::FusedGraph&, const fuse::Region&);

}  // namespace tilewright::cuda
