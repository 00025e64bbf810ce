// A contraction as index arithmetic: result[b, m, n] = sum over k of A[b, m, k] B[b, n, k], where b, m, n, k stand for
// groups of dims and each coordinate of a tensor is a linear function of them. Matrix products, the three convolutions
// and their grouped forms differ only here.
#pragma once

#include <array>
#include <vector>

#include "fuse/regions.h"

namespace tilewright::fuse {

constexpr int kMaxProblem = 16;

struct ProblemDim {
  int64_t extent;
  char group;  // 'b', 'm', 'n' or 'k'
};

// A coordinate of an operand: (base + sum of factor * index) / divisor. Where that is no integer of [0, extent) the
// operand counts as zero: padding, and the gaps of a strided gradient.
struct Coordinate {
  int64_t base = 0;
  std::array<int64_t, kMaxProblem> factor = {};
  int64_t divisor = 1;
  int64_t extent = 1;
};

// The index of a dim, times a factor.
Coordinate along(int dim, int64_t extent, int64_t factor = 1);

struct Problem {
  std::vector<ProblemDim> dims;                          // b, m, n, k; within a group the slowest first
  std::array<std::vector<Coordinate>, 2> operand;        // A, B: per dim of the tensor
  std::vector<std::array<int64_t, kMaxProblem>> result;  // per dim of the result: factors
  Dims result_base;                                      // and what is added; empty: nothing
  // Matmul: sizes per batch beyond which the operands count as `padding`.
  ir::TensorId m_end = ir::kNone, n_end = ir::kNone, k_end = ir::kNone;
  double padding = 0;

  int64_t size(char group) const;
  std::vector<int> dims_of(char group) const;
};

Problem make_problem(const ir::Graph&, const ir::Node&);
// A problem whose coordinates have divisors as several without: the gradient of a strided convolution, taken apart by
// where positions lie between the strides. Each point of the result belongs to one part. A part may have no sums.
std::vector<Problem> dense_parts(const Problem&);
// The roles of A and B exchanged: the transposed result.
void exchange(Problem&);
// Sorts the dims of a group by descending weight (a stride in memory).
void sort_group(Problem&, char group, const std::array<int64_t, kMaxProblem>& weight);

// Strides per problem dim of an access over the result's, or an operand's, dims.
std::array<int64_t, kMaxProblem> problem_strides(const Problem&, const Access&);
// The offset of the result's point with all indices 0.
int64_t problem_offset(const Problem&, const Access&);
std::array<int64_t, kMaxProblem> operand_strides(const Problem&, int operand, const Access&);

}  // namespace tilewright::fuse
