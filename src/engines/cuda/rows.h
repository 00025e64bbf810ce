// Kernels of Rows regions: maps, reductions, normalisations.
#pragma once

#include "engines/cuda/launch.h"

namespace tilewright::cuda {

// The launches of a region; or why it has none. Their scratch is in the workspace, from `scratch_offset` on.
Result<std::vector<Launch>> rows_launches(const fuse::FusedGraph&, const fuse::Region&, const KernelOptions&,
                                          int64_t scratch_offset);
int64_t rows_scratch_bytes(const fuse::Region&, const KernelOptions&);
// Of how many shapes its kernel may be (KernelOptions::shape), once the intermediates have their places.
int rows_shapes(const fuse::FusedGraph&, const fuse::Region&, const KernelOptions&);

}  // namespace tilewright::cuda
