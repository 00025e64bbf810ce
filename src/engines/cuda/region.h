// The launches of a region, whatever its anchor is.
#pragma once

#include "engines/cuda/launch.h"

namespace tilewright::cuda {

// Of the workspace, while the region runs.
int64_t region_scratch_bytes(const fuse::FusedGraph&, const fuse::Region&, const KernelOptions&);
// Or why it has none. The region's scratch begins at `region.scratch_offset`.
Result<std::vector<Launch>> region_launches(const fuse::FusedGraph&, const fuse::Region&, const KernelOptions&);
// Of how many shapes its kernels may be, the likely best first; once the intermediates have their places.
int region_shapes(const fuse::FusedGraph&, const fuse::Region&, const KernelOptions&);

}  // namespace tilewright::cuda
