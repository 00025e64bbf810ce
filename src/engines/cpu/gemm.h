// The innermost piece of a contraction: a small tile of C += A B on packed panels.
#pragma once

#include <cstdint>

namespace tilewright::cpu {

template <class T>
struct MicroKernel {
  int mr, nr;  // rows and columns of the tile
  // c[i * ldc + j] += sum over p < k of a[p * mr + i] * b[p * nr + j].
  void (*run)(const T* a, const T* b, int64_t k, T* c, int64_t ldc);
};

// The best one that the processor has.
template <class T>
const MicroKernel<T>& micro_kernel();

}  // namespace tilewright::cpu
