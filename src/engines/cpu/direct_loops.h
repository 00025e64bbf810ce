// The inner loops of direct convolutions, compiled for several instruction sets and picked at run time. A tap is one
// element of the filter; x[t] points to what the first position meets through tap t, a row of lanes.
#pragma once

#include <cstdint>

#include "engines/cpu/gemm.h"

namespace tilewright::cpu {

// T is float or double. Lanes beyond the last whole vector are made by a vector that overlaps the one before, so rows
// are read and written within their lanes only.
template <class T>
struct DirectLoops {
  int64_t vector;  // lanes
  // One position after another: x[t] + p * x_step, out + p * out_step.
  struct Rows {
    int64_t lanes, positions, taps;
    // Taps come in runs of this many: what a position meets through one of a run, the next meets through the one
    // before.
    int64_t run;
    const T* const* x;
    int64_t x_step;
    const T* const* w;
    T* out;
    int64_t out_step;
    Finish<T> finish;  // what follows the sums; its addends lie like a tap's factors
    // What will be read soon, laid out like x[t], and written, like out; or null.
    const T* next = nullptr;
    T* next_out = nullptr;
  };
  // Rows of lanes, from_step apart, side by side.
  void (*copy)(int64_t lanes, int64_t rows, const T* from, int64_t from_step, T* to);
  // out[l] = sum over t of x[t][l] * w[t][l].
  void (*channels)(const Rows&);
  // Channels in groups of `group`, a power of two no larger than a vector, which divides the lanes:
  // out[l] = sum over t and c of x[t][first lane of l's group + c] * w[t][c * w_step + l].
  void (*groups)(const Rows&, int64_t group, int64_t w_step);
  // out[l] = sum over t of x[t][l] * *w[t].
  void (*along)(const Rows&);

  // Gradients of the filter: sums over positions, added to out.
  struct Sums {
    int64_t lanes, positions, taps;
    const T* const* x;
    int64_t x_step;
    const T* dy;
    int64_t dy_step;
    T* const* out;  // by tap
  };
  // out[t][l] += sum over p of dy[l] * x[t][l].
  void (*channel_sums)(const Sums&);
  // out[t][c * out_step + l] += sum over p of dy[l] * x[t][first lane of l's group + c].
  void (*group_sums)(const Sums&, int64_t group, int64_t out_step);
  // *out[t] += sum over p and l of dy[l] * x[t][l].
  void (*along_sums)(const Sums&);
};
template <class T>
DirectLoops<T> direct_loops();

}  // namespace tilewright::cpu
