// The innermost pieces of a contraction, compiled for several instruction sets and picked at run time.
#pragma once

#include <cstdint>
#include <vector>

namespace tilewright::cpu {

// The commonest end of a contraction, done while the sums are in registers: x + add[j], then not below `lower`.
template <class T>
struct Finish {
  const T* add = nullptr;  // null: nothing
  bool clips = false;
  T lower = 0;
};

// A small tile of C += A B, held in registers while the sum runs.
template <class T>
struct MicroKernel {
  int mr, nr;  // rows and columns of the tile
  // c[i * ldc + j] = or += sum over r < runs, k < len of rows[r * mr + i][k * step] * b[(r * len + k) * ldb + j].
  // next: rows of the same shape that will be read soon, or null. finish: applied to what is stored, or null.
  void (*run)(const T* const* rows, int64_t runs, int64_t len, int64_t step, const T* b, int64_t ldb, T* c, int64_t ldc,
              bool accumulate, const T* const* next, const Finish<T>* finish);
};

// Those of the best instruction set that the processor has, widest tile first. Each fills the registers.
template <class T>
const std::vector<MicroKernel<T>>& micro_kernels();

// The same, looked up anew: for tests that switch instruction sets.
std::vector<MicroKernel<float>> float_micro_kernels();
std::vector<MicroKernel<double>> double_micro_kernels();

// out[k * pitch + i] = rows[i][k] for i < count, k < length.
void transpose(const float* const* rows, int64_t count, int64_t length, float* out, int64_t pitch);
void transpose(const double* const* rows, int64_t count, int64_t length, double* out, int64_t pitch);

}  // namespace tilewright::cpu
