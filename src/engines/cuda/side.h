// Side reductions: results that all blocks of a launch fold beside what they store. Each is folded in the workspace, in
// the type of values, which starts as zeros, and stored as its type wants it by a launch of its own.
#pragma once

#include "engines/cuda/launch.h"

namespace tilewright::cuda {

Status check_sides(const fuse::Region&);  // why the usual kernels do not take a region's side reductions
// Of the workspace; `wide`: values are double.
int64_t side_scratch_bytes(const fuse::Region&, bool wide);
int64_t side_offset(const fuse::Region&, size_t side, bool wide);
const char* fold_type(ReductionMode_t);  // how the prelude folds it: "Sum", "Max", "Min", "Product"
// Stores the result: `extents` of what is folded, row-major, and the strides along them in the result's memory.
Launch side_launch(const fuse::FusedGraph&, const fuse::Region&, size_t side, bool wide,
                   const std::vector<int64_t>& extents, const std::vector<int64_t>& stride, int64_t scratch_offset);

}  // namespace tilewright::cuda
