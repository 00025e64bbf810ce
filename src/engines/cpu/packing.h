// Fills the panels that the micro-kernel reads with an operand's values: zero where the problem's coordinates leave the
// tensor. A plain load is copied along its walk; any other program is computed a run of neighbouring elements at a
// time.
#pragma once

#include <cstring>

#include "base/numeric_types.h"
#include "engines/cpu/block.h"
#include "engines/cpu/walk.h"

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
constexpr DataType_t kNativeType = sizeof(T) == 2   ? DataType_t::BFLOAT16
                                   : sizeof(T) == 4 ? DataType_t::FLOAT
                                                    : DataType_t::DOUBLE;
// Elements of that type at this address can be read where they are.
template <class T>
bool is_native(DataType_t type, const void* memory) {
  return type == kNativeType<T> && reinterpret_cast<uintptr_t>(memory) % sizeof(T) == 0;
}
inline void load_values(const void* m, DataType_t t, int64_t at, int64_t stride, int64_t n, float* out) {
  load_floats(m, t, at, stride, n, out);
}
inline void load_values(const void* m, DataType_t t, int64_t at, int64_t stride, int64_t n, double* out) {
  load_doubles(m, t, at, stride, n, out);
}
inline void store_values(void* m, DataType_t t, int64_t at, int64_t n, const float* from) {
  store_floats(m, t, at, 1, n, from);
}
inline void store_values(void* m, DataType_t t, int64_t at, int64_t n, const double* from) {
  store_doubles(m, t, at, 1, n, from);
}
// The bits of 16-bit elements next to each other.
inline void load_values(const void* m, DataType_t, int64_t at, int64_t, int64_t n, uint16_t* out) {
  std::memcpy(out, static_cast<const char*>(m) + 2 * at, size_t(2 * n));
}

template <class T>
class Packer {
 public:
  // side: the group of the operand's rows, 'm' for A, 'n' for B.
  bool prepare(const Problem&, int operand, char side, const fuse::PwProgram&, int panel);  // always true
  // Scratch for a block of `rows` rows and kc sums.
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
    const T** row;  // of a panel
    Spot* spot;
  };
  void cut(Cutter&, int64_t rows, int64_t kc, Work&) const;
  void pack_along_rows(const void* memory, const Range&, int64_t batch, Work&, T* panels) const;
  void pack_along_sums(const void* memory, const Range&, int64_t batch, Work&, T* panels) const;
  void spread(const T* line, int64_t first, int64_t n, int64_t k, int64_t ks, T* panels) const;
  void compute_along_rows(const Range&, T padding, int64_t* index, Work&, T* panels) const;
  void compute_along_sums(const Range&, T padding, int64_t* index, Work&, T* panels) const;
  void transpose_panel(const T* const* row, int64_t rows, int64_t ks, T* to) const;
  // n values along the lane dim from the point `index` on.
  void run(Work&, const int64_t* index, int64_t n, T* out) const;
  void evaluate(Work&, const int64_t* coordinate, int64_t step, int64_t n, T* out) const;

  std::vector<Coordinate> coordinates_;
  fuse::PwProgram program_;
  GroupIndex row_, k_;
  int panel_ = 1;
  Walk walk_;
  bool walks_ = false;
  int lane_ = -1;      // the problem dim that runs go along; -1: single elements
  int lane_dim_ = -1;  // the tensor's dim that it moves along
  bool lane_in_k_ = true;
  int64_t lane_extent_ = 1;
  bool plain_ = false;  // the program is a load
  BlockOps<T> uniform_, ops_;
  int slots_ = 0;
};

}  // namespace tilewright::cpu
