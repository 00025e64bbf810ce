// A list of operations on a block of lanes as steps that pass values on in registers. What no step knows is done before
// them (loads of gaps or rare types) or after them (stores of such), on the whole block.
#pragma once

#include <vector>

#include "engines/cpu/block.h"
#include "engines/cpu/lane_steps.h"

namespace tilewright::cpu {

class LaneProgram {
 public:
  // A sum of a value, or of its products with another.
  struct Sum {
    int arg, factor;  // instructions; factor -1: none
    int access = -1;  // of sums lane by lane: where the lanes are
  };
  struct What {
    const int64_t* lane_stride;  // by access
    std::vector<bool> one;       // by instruction: a value that is the same number for the block, computed before it
    std::vector<bool> read;      // by instruction: read after the list, as a block of lanes
    std::vector<bool> plain;     // by access: stores of all lanes
    std::vector<Sum> totals, sums;
    std::vector<int> fetched;        // the element sizes of lanes to fetch ahead
    uint32_t fetched_vectors = ~0u;  // of those in flight
  };
  // False: there is an operation that belongs neither before nor after the steps. Marks operations that need a buffer
  // of their own.
  bool make(BlockOps<float>&, const What&);
  // Takes over the buffers that the operations were given.
  void finish(const BlockOps<float>&);

  explicit operator bool() const { return !steps_.empty(); }
  // Nothing is done before or after the steps.
  bool is_alone() const { return !steps_.empty() && before_at_.empty() && after_at_.empty(); }
  // No value is a block of lanes.
  bool needs_no_buffers() const;
  bool calls_functions() const;
  int64_t local_floats() const { return int64_t(locals_) * kStepLanes; }
  // Instructions that must be blocks of lanes although they are the same number for the block.
  const std::vector<int>& spread() const { return spread_; }

  struct Run {
    double* const* totals;
    float* const* sums;
    const char* const* ahead;
    float* local;
  };
  void run(Frame<float>&, const Run&) const;
  // Two that are alone, on blocks of as many lanes, taking turns.
  static void run_both(const LaneProgram&, Frame<float>&, const Run&, const LaneProgram&, Frame<float>&, const Run&);

 private:
  enum class Where : uint8_t { Value, Memory, Local, Row, Buffer, Sums, Ahead };
  struct Pointer {
    Where where;
    int index;  // instruction, access, which
    int size;   // Memory: of an element
    int id = -1;
  };
  class Maker;
  LaneStepList list(Frame<float>&, const Run&, char** pointers) const;

  std::vector<LaneStep> steps_;
  std::vector<Pointer> pointers_;
  std::vector<int> before_at_, after_at_, spread_;
  std::vector<int> sums_access_;
  BlockOps<float> before_, after_;
  std::vector<int> slot_;  // by instruction
  int locals_ = 0, totals_ = 0;
};

}  // namespace tilewright::cpu
