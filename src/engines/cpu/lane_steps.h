// Straight lists of steps over neighbouring lanes, run a few vectors at a time with the value in hand in registers:
// what passes over blocks of lanes are made of where every step is known here.
#pragma once

#include "engines/cpu/lane_ops.h"

namespace tilewright::cpu {

enum class LaneStepKind : uint8_t {
  Load,  // the value in hand, from lanes
  LoadHalf,
  LoadBfloat16,
  Spread,  // from one number
  Add,     // with lanes
  Subtract,
  SubtractFrom,  // lanes - value
  Multiply,
  AddOne,  // with one number
  SubtractOne,
  SubtractFromOne,
  MultiplyOne,
  Square,
  Call,  // of a function on lanes, second and third; those that are not named are the value in hand
  Store,
  StoreHalf,
  StoreBfloat16,
  Stream,  // past the caches, and fetches the second and third lanes; flush_streams() when done
  StreamHalf,
  StreamBfloat16,
  Fetch,         // lanes that are wanted soon
  Sum,           // into totals[total]
  SumSquares,    // of value * value
  SumProducts,   // of value * lanes
  AddTo,         // lanes += value
  AddProductTo,  // lanes += value * second lanes
};

struct LaneStep {
  LaneStepKind kind = LaneStepKind::Load;
  // Lanes, or one number: which pointer, and the bytes to its next lane (0: lanes of the vectors in flight only).
  struct Lanes {
    int pointer = -1;
    int size = 0;
  };
  Lanes lanes, second, third;
  int total = -1;
  uint32_t fetched = ~0u;  // of the vectors in flight, those whose lanes are fetched
  LaneOps<float>::Pointwise function = nullptr;
  const PwParams* params = nullptr;
};

// Whether steps convert half and bfloat16 exactly, which Highway's portable code does not.
bool lane_steps_convert();

constexpr int kStepLanes = 256;  // at most: lanes in flight
constexpr int kMaxTotals = 8;

struct LaneStepList {
  const LaneStep* steps;
  int64_t count;
  char* const* pointers;
  double* const* totals;
  int total_count;
};
constexpr int kMaxLaneStepLists = 2;

// Several lists on n lanes each: they take turns, a few vectors at a time.
void run_lane_steps(const LaneStepList* lists, int count, int64_t n);

}  // namespace tilewright::cpu
