// The points of a Rows region as a kernel walks them: few dims, each tensor's strides along them.
#pragma once

#include <cstdint>
#include <vector>

#include "fuse/regions.h"

namespace tilewright::cuda {

struct Space {
  std::vector<int64_t> outer, inner;         // extents, the slowest first; the inner ones are what rows are made of
  std::vector<std::vector<int64_t>> stride;  // by access: along the outer dims, then the inner ones
  std::vector<std::vector<int64_t>> side;    // the same for the results of the region's side reductions
  bool wide = false;                         // an offset or a count beyond 31 bits

  int64_t rows() const;
  int64_t row_size() const;
};

// Dims of one element go; dims that every access crosses as one become one. A region without inner dims is a map: its
// fastest dim becomes the inner one.
Space make_space(const fuse::Region&);

// Elements that one access may move at once along the last inner dim: a power of two, such that every access that
// varies along it does so with stride 1 and is aligned, and none moves more than 16 bytes if it varies along outer dims
// too.
int vector_width(const Space&, const fuse::FusedGraph&, const fuse::Region&);

}  // namespace tilewright::cuda
