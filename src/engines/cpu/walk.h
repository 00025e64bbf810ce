// An operand of a contraction whose values lie in memory as they are: a plain load. Its elements form a matrix of
// points (an index of one group of the problem's dims) and lanes (an index of the other group, cut into segments along
// which memory moves in equal steps). Addresses come from sums of table entries, and coordinates that may leave the
// tensor are checked once per point and segment instead of once per element.
#pragma once

#include "fuse/contraction_problem.h"

namespace tilewright::cpu {

using fuse::along;
using fuse::Coordinate;
using fuse::kMaxProblem;
using fuse::Problem;

constexpr int kMaxChecked = 3;  // coordinates that may leave the tensor: one per spatial dim

// Where points lie: an element offset, and the checked coordinates.
struct Spot {
  int64_t at = 0;
  int64_t coordinate[kMaxChecked] = {};
};

class Walk {
 public:
  // Lanes along the group `lanes`, points along `points`. False: the operand is not a plain load, or its coordinates
  // have gaps or too many checks.
  bool prepare(const Problem&, int operand, char points, char lanes, const fuse::PwProgram&);

  DataType_t type() const { return type_; }
  // The same elements, as a copy of another type that begins with element `first`.
  void moves(DataType_t type, int64_t first) { type_ = type, origin_.at -= first; }
  int64_t step() const { return step_; }      // elements between lanes
  int64_t length() const { return length_; }  // lanes of a segment
  int64_t segments() const { return int64_t(segment_.size()); }
  bool checked() const { return checks_ > 0; }

  // The offset that a batch adds. index: by problem dim.
  int64_t batch_offset(const int64_t* index) const;
  // Points first, first + 1, ... first + count - 1.
  void points(int64_t first, int64_t count, int64_t batch_offset, Spot* out) const;

  struct Run {
    int64_t at;        // element of lane 0
    int64_t from, to;  // lanes that are inside the tensor
  };
  Run run(const Spot& p, int64_t segment) const {
    const Spot& s = segment_[size_t(segment)];
    Run r{p.at + s.at, 0, length_};
    for (int c = 0; c < checks_; ++c) {
      const int64_t v = p.coordinate[c] + s.coordinate[c];
      if (c == lane_check_) {
        if (v < 0 || v + lane_reach_ >= extent_[c]) clip(r, v, extent_[c]);
      } else if (uint64_t(v) >= uint64_t(extent_[c])) {
        r.to = 0;
      }
    }
    return r;
  }

  // Whether every point lies inside the tensor in all of these segments, for all lanes.
  struct Span {
    int64_t low[kMaxChecked] = {}, high[kMaxChecked] = {};  // of the coordinates that the segments add
  };
  Span span(int64_t segment, int64_t count) const;
  bool inside(const Spot* p, int64_t points, const Span& s) const {
    for (int c = 0; c < checks_; ++c)
      for (int64_t i = 0; i < points; ++i)
        if (p[i].coordinate[c] + s.low[c] < 0 || p[i].coordinate[c] + s.high[c] >= extent_[c]) return false;
    return true;
  }
  // What a segment adds to the offset of a point.
  int64_t segment_offset(int64_t segment) const { return segment_[size_t(segment)].at; }

 private:
  struct Dim {
    int problem_dim = -1;
    int64_t extent = 1, stride = 0;
    int64_t factor[kMaxChecked] = {};
  };
  static void move(Spot&, const Dim&, int64_t steps);
  void clip(Run&, int64_t v, int64_t extent) const;
  std::vector<Dim> dims_of(const Problem&, char group, const std::array<int64_t, kMaxProblem>& strides) const;
  void make_segments(std::vector<Dim>);

  DataType_t type_ = DataType_t::NOT_SET;
  int checks_ = 0;
  int64_t extent_[kMaxChecked] = {};                           // of the checked coordinates
  std::array<int64_t, kMaxProblem> factor_[kMaxChecked] = {};  // of problem dims in them
  Spot origin_;
  std::vector<Dim> point_, batch_;
  int64_t step_ = 0, length_ = 1;
  int lane_check_ = -1;                       // the checked coordinate that lanes move along
  int64_t lane_factor_ = 1, lane_inner_ = 1;  // it grows by the factor every lane_inner_ lanes
  int64_t lane_reach_ = 0;                    // by so much over a segment
  std::vector<Spot> segment_;
};

}  // namespace tilewright::cpu
