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

// Lanes of a block of rows. Long enough that choosing an operation costs little beside its loop, short enough for a
// block's values to stay in the first-level cache.
constexpr int64_t kRowLanes = 1024;

struct RowSpace {
  Loop lane;
  std::vector<Loop> outer, inner;  // slowest first
  int64_t lane_step = kRowLanes;
  bool lanes_slowest = false;  // of the outer loops, that of the blocks of lanes is the slowest
  // Where few lanes lie side by side, several repetitions of another loop go into a block: every access either runs on
  // through all of them or repeats itself every `period` lanes. 0: not so.
  int64_t period = 0;
  int64_t repeats = 1;          // of an inner loop in a block: the last one's extent counts blocks of them
  int64_t repeated_extent = 1;  // that loop's own extent
  std::vector<bool> periodic;   // per access

  // Elements from one lane to the next block's, per lane.
  int64_t advance(size_t access) const { return periodic[access] ? 0 : lane.stride[access]; }
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
