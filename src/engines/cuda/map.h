// Kernels of maps: a thread for each vector; or tiles through shared memory, where accesses disagree about which dim
// is the fastest.
#pragma once

#include "engines/cuda/launch.h"

namespace tilewright::cuda {

// Of a Rows region without reductions and side reductions.
Launch map_launch(const fuse::FusedGraph&, const fuse::Region&, const KernelOptions&);

}  // namespace tilewright::cuda
