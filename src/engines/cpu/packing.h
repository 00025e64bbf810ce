// Fills the panels that the micro-kernel reads with an operand's values: computed by the operand's program (a plain
// load, mostly) a run of neighbouring elements at a time, zero where the problem's coordinates leave the tensor.
#pragma once

#include "engines/cpu/block.h"
#include "engines/cpu/problem.h"

namespace tilewright::cpu {

// Digits of a linear index over the dims of a group.
struct GroupIndex {
  std::vector<int> dims;
  Dims extent;
  void set(const Problem&, char group);
  void decode(int64_t linear, int64_t* index) const {  // index: by problem dim
    for (size_t d = dims.size(); d-- > 0;) {
      index[dims[d]] = linear % extent[d];
      linear /= extent[d];
    }
  }
};

template <class T>
class Packer {
 public:
  // side: the group of the operand's rows, 'm' for A, 'n' for B.
  void prepare(const Problem&, int operand, char side, const fuse::PwProgram&, int panel);
  // The program's access count, and scratch for a block of kc sums.
  int64_t scratch_bytes(int64_t rows, int64_t kc) const;

  struct Range {
    int64_t row, rows, k, ks;
    int64_t row_end, k_end;  // beyond them: padding
  };
  // panels[(i / panel) * panel * ks + k * panel + i % panel] for i < rows rounded up to panels (zero beyond).
  // index: digits of the batch dims, by problem dim; the rest of it is overwritten.
  void pack(const Memory&, void* const* base, const Range&, T padding, int64_t* index, char* scratch, T* panels) const;
  const fuse::PwProgram& program() const { return program_; }

 private:
  struct Work {
    Frame<T> frame;
    T* line;    // one run, or the rows of a panel
    T* spread;  // a run before its gaps
    int64_t *offset, *stride;
  };
  void cut(Cutter&, int64_t rows, int64_t kc, Work&) const;
  // n values along the lane dim from the point `index` on.
  void run(Work&, const int64_t* index, int64_t n, T* out) const;
  void evaluate(Work&, const int64_t* coordinate, int64_t step, int64_t n, T* out) const;

  std::vector<Coordinate> coordinates_;
  fuse::PwProgram program_;
  GroupIndex row_, k_;
  int panel_ = 1;
  int lane_ = -1;      // the problem dim that runs go along; -1: single elements
  int lane_dim_ = -1;  // the tensor's dim that it moves along
  bool lane_in_k_ = true;
  int64_t lane_extent_ = 1;
  bool plain_ = false;  // the program is a load
  BlockOps<T> uniform_, ops_;
  int slots_ = 0;
};

}  // namespace tilewright::cpu
