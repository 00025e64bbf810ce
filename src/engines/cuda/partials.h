// Results that the blocks of a kernel fold one by one, each into memory of its own, and that a second kernel joins in a
// fixed order: the same bits in every run.
#pragma once

#include "engines/cuda/launch.h"

namespace tilewright::cuda {

// Of side reductions that keep the same elements: side s has `parts` arrays of `count` elements of the type of values
// from `offset[s]` of the workspace on, part after part.
struct Partials {
  std::vector<int64_t> offset;
  int64_t count = 0, parts = 0;
  // Two sides, an average and the average squared distance from it: parts are averages and sums of squared distances,
  // of `rows` rows in all; part i has `step` rows from i * step on, and again every parts * step rows.
  bool moments = false;
  int64_t rows = 0, step = 1;
};
// Joins the parts and stores the results: `extents` of what is kept, row-major, and by side the strides along them.
Launch partials_launch(const fuse::FusedGraph&, const fuse::Region&, bool wide, const Partials&,
                       const std::vector<int64_t>& extents, const std::vector<std::vector<int64_t>>& stride);

}  // namespace tilewright::cuda
