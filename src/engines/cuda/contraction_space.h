// The index arithmetic of a contraction as a kernel does it: linear functions of indices along few dims.
#pragma once

#include <array>

#include "fuse/contraction_problem.h"

namespace tilewright::cuda {

// start + sum of step * index.
struct Line {
  int64_t start = 0;
  std::vector<int64_t> step;  // by dim
};

// A coordinate of an operand that may leave the tensor, where the operand counts as zero: it is inside where
// at / divisor is an integer of [0, extent). With a divisor above 1, accesses move by `along` per step of the quotient.
struct Window {
  Line at;
  int64_t extent = 1, divisor = 1;
  std::vector<int64_t> along;  // by access
};

struct ContractionSpace {
  std::vector<fuse::ProblemDim> dims;  // b, m, n, k; none of one element, joined where every line crosses them as one
  std::array<std::vector<Line>, 2> operand;  // by access of the operand's program
  std::array<std::vector<Window>, 2> window;
  std::vector<Line> result;  // by access of the epilogue
  std::vector<Line> side;    // by side reduction: the element of what is folded
  bool wide = false;         // something beyond 30 bits

  int64_t size(char group) const;
  std::vector<int> dims_of(char group) const;
  int last(char group) const;  // the fastest dim; -1: none
};

// `program`: of A and B in the problem's order. Side reductions are folded row-major over the dims that they keep.
ContractionSpace make_contraction_space(const fuse::Problem&, const std::array<const fuse::PwProgram*, 2>& program,
                                        const fuse::Region&);

// A region's contraction with the dims in the order that kernels take: the result's fastest dim in group n, sums
// ordered as A has them in memory.
struct OrderedProblem {
  fuse::Problem problem;
  bool exchanged = false;  // A is the second operand
};
OrderedProblem order_problem(const fuse::FusedGraph&, const fuse::Region&);

}  // namespace tilewright::cuda
