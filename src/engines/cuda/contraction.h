// Kernels of contraction regions: matmul and the convolutions with what is computed on their operands and result.
#pragma once

#include "engines/cuda/launch.h"

namespace tilewright::cuda {

Result<std::vector<Launch>> contraction_launches(const fuse::FusedGraph&, const fuse::Region&, const KernelOptions&);
int64_t contraction_scratch_bytes(const fuse::FusedGraph&, const fuse::Region&, const KernelOptions&);

}  // namespace tilewright::cuda
