// How a Rows region walks its domain: which dim becomes the lanes, along which whole blocks are computed at once, and
// which loops go around them.
#pragma once

#include <cstdint>
#include <vector>

#include "fuse/regions.h"

namespace tilewright::cpu {

struct Loop {
  int64_t extent = 1;
  bool inner = false;  // walked within an outer block: reduced, or of a map
  Dims stride;         // per access
};

// Walks loops in order, keeping the offset of every access.
struct Cursor {
  const std::vector<Loop>* loops;
  int64_t index[fuse::kMaxRank + 1];
  void seek(int64_t linear, int64_t* offset, size_t accesses) {
    for (size_t d = loops->size(); d-- > 0;) {
      const Loop& l = (*loops)[d];
      index[d] = linear % l.extent;
      linear /= l.extent;
      for (size_t a = 0; a < accesses; ++a) offset[a] += index[d] * l.stride[a];
    }
  }
  void next(int64_t* offset, size_t accesses) {
    for (size_t d = loops->size(); d-- > 0;) {
      const Loop& l = (*loops)[d];
      for (size_t a = 0; a < accesses; ++a) offset[a] += l.stride[a];
      if (++index[d] < l.extent) return;
      for (size_t a = 0; a < accesses; ++a) offset[a] -= l.extent * l.stride[a];
      index[d] = 0;
    }
  }
};

// Lanes of a block of rows. Long enough that choosing an operation costs little beside its loop, short enough for a
// block's values to stay in the first-level cache.
constexpr int64_t kRowLanes = 1024;

struct RowSpace {
  Loop lane;
  std::vector<Loop> outer, inner;  // slowest first
  int64_t lane_step = kRowLanes;
  // Several repetitions of another loop may go into a block: each access then runs on through them, repeats itself or
  // goes on `far` elements further. The lanes of one repetition: `period`, 0 without repetitions, or lane_step where
  // the block is a tile, whose last ones along the lane dim are narrower.
  int64_t period = 0;
  bool tiles = false;
  Dims far;                     // per access
  int64_t repeats = 1;          // of an inner loop in a block: the last one's extent counts blocks of them
  int64_t repeated_extent = 1;  // that loop's own extent
  Dims advance;                 // per access: elements from one lane to the next block's, per lane
};

// Gives each side reduction an access of its own, without a tensor, into a dense array of its results.
struct SpacedProgram {
  fuse::PwProgram program;
  std::vector<int> side_access;
  std::vector<int64_t> side_size;
  RowSpace space;
};
SpacedProgram make_row_space(const fuse::PwProgram&, const std::vector<fuse::SideReduction>&);

}  // namespace tilewright::cpu
