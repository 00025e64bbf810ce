// Reductions of few rows, or across memory's fastest dim, as maps over the whole domain: each reduction is folded by
// all blocks, and what needs it reads it from the workspace.
#pragma once

#include "engines/cuda/rows.h"

namespace tilewright::cuda {

bool wants_split(const fuse::Region&, const KernelOptions&);
int64_t split_scratch_bytes(const fuse::Region&);  // of the reductions' values, apart from the parts' own scratch
struct SplitPart {
  fuse::Region region;   // a map, with side reductions
  bool moments = false;  // as columns_launches has it
};
// The parts in order. `fused` gets a tensor for each reduction, at `scratch_offset` of the workspace and on.
std::vector<SplitPart> split_rows(fuse::FusedGraph& fused, const fuse::Region&, int64_t scratch_offset);

}  // namespace tilewright::cuda
