// Kernels of maps whose rows share values by column: parameters that each thread keeps while it walks over rows, and
// reductions over rows. Statistics of a batchnorm with channels fastest, its application, column sums.
#pragma once

#include "engines/cuda/launch.h"

namespace tilewright::cuda {

// Whether a map (a Rows region without reductions of its own) is one of theirs.
bool columns_take(const fuse::Region&);
// `moments`: of the region's two side reductions the first is an average and the second the average squared distance
// from it, of one value.
std::vector<Launch> columns_launches(const fuse::FusedGraph&, const fuse::Region&, const KernelOptions&,
                                     int64_t scratch_offset, bool moments = false);
// At most, whatever is known of the tensors' memory by then.
int64_t columns_scratch_bytes(const fuse::Region&, const KernelOptions&);

}  // namespace tilewright::cuda
