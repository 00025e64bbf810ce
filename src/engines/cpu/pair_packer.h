// Packs an operand of plain bfloat16 elements for the micro-kernels on their bits: elements k and k + 1 of a row side
// by side. Panels hold panel * ks elements: [k / 2][row][k % 2].
#pragma once

#include "engines/cpu/gemm.h"
#include "engines/cpu/packing.h"

namespace tilewright::cpu {

class PairPacker {
 public:
  // False: not such an operand.
  bool prepare(const Problem&, int operand, char side, const fuse::PwProgram&, int panel);
  int64_t scratch_bytes(int64_t rows, int64_t kc) const;
  using Range = Packer<float>::Range;
  void pack(const Memory&, void* const* base, const Range&, float padding, int64_t* index, char* scratch,
            Bfloat16Bits* panels) const;
  const fuse::PwProgram& program() const { return program_; }

 private:
  struct Work {
    Spot* spot;
    Bfloat16Bits* line;  // the rows of a panel
    const Bfloat16Bits** row;
  };
  void cut(Cutter&, int64_t kc, Work&) const;
  // n lanes from `lane` on of a point's run: where they are, or copied to `to` with 0 for what is outside.
  const Bfloat16Bits* lanes(const void* memory, const Spot&, int64_t segment, int64_t lane, int64_t n,
                            Bfloat16Bits* to) const;
  void pack_along_rows(const void* memory, const Range&, Work&, Bfloat16Bits* panels) const;
  void pack_along_sums(const void* memory, const Range&, int64_t batch, Work&, Bfloat16Bits* panels) const;

  fuse::PwProgram program_;
  Walk walk_;
  bool along_sums_ = true;
  int panel_ = 1;
};

}  // namespace tilewright::cpu
