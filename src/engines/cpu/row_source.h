// Operand A of a contraction as the micro-kernel reads it: pointers to rows. Where the values lie in memory as they are
// they are read there; others are converted into a stage just before their use, while the first-level cache holds them.
#pragma once

#include "engines/cpu/gemm.h"
#include "engines/cpu/packing.h"

namespace tilewright::cpu {

// A piece of the sums. In terms of the walk along them: lanes from .. from + len of `runs` segments from `segment` on.
struct SumSlice {
  int64_t k = 0, ks = 0;
  int64_t segment = 0, runs = 1, from = 0, len = 0;
  Walk::Span span;
};

template <class T>
class RowSource {
 public:
  // False: the operand must be packed.
  bool prepare(const Problem&, const fuse::PwProgram&, int mr);
  // Slices of about `target` sums.
  std::vector<SumSlice> cut(int64_t k, int64_t target) const;

  // Narrow elements that overlapping rows read again and again are converted once: bytes of the copy, 0 where there is
  // none, and the making of it.
  int64_t copy_bytes() const { return copied_ * int64_t(sizeof(T)); }
  void copy(const void* memory, T* to) const;

  // False for memory that these rows cannot be read from: elements at odd addresses with gaps between them.
  bool reads(const void* memory) const { return walk_.step() == 1 || is_native<T>(walk_.type(), memory); }
  const Walk& walk() const { return walk_; }
  // Rows spot[0 .. rows), and repetitions of the first up to mr of them. There must be room for mr pointers a run.
  RowRuns<T> point(const void* memory, const Spot* spot, int64_t rows, const SumSlice&, T* stage, const T** out) const;
  // Fetches rows that will be converted soon.
  void fetch(const void* memory, const Spot* spot, int64_t rows, const SumSlice&) const;

 private:
  const T* row_of_run(const void* memory, const Spot&, const SumSlice&, int64_t r, T* stage) const;
  bool is_stretch(const Spot* spot, int64_t rows, const SumSlice&) const;
  void plan_copy(const Problem&, const fuse::PwProgram&);

  Walk walk_;
  int mr_ = 1;
  DataType_t copied_type_ = DataType_t::NOT_SET;
  int64_t copied_ = 0, copied_from_ = 0;  // elements
  std::vector<T> zeros_;
  std::vector<int64_t> offset_;  // of the segments
};

}  // namespace tilewright::cpu
