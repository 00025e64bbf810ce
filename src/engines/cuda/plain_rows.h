// Kernels of Rows regions that those of rows.cc do not take: elements of any type, products beside other results. A
// block for each row, a thread for each point of a map; right everywhere, and in no hurry.
#pragma once

#include "engines/cuda/launch.h"

namespace tilewright::cuda {

bool wants_plain(const fuse::Region&);
Result<std::vector<Launch>> plain_rows_launches(const fuse::FusedGraph&, const fuse::Region&);
int64_t plain_rows_scratch_bytes(const fuse::Region&);

}  // namespace tilewright::cuda
