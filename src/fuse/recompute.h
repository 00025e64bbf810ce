// Computing a value twice instead of keeping it in memory.
#pragma once

#include "fuse/cluster.h"

namespace tilewright::fuse {

// Looks for a virtual tensor that one cluster makes and another reads, and that pointwise nodes make again from what is
// in memory anyway, moving no more bytes than the tensor itself would. Copies those nodes for the reader; the clusters
// are then out of date. False when there is no such tensor.
bool recompute(FusedGraph&, const std::vector<Cluster>&);

}  // namespace tilewright::fuse
