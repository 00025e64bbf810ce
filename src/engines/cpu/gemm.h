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

// Rows of A in runs along the sums. Row i of run r starts at row[i] + offset[r]; without offsets at row[r * mr + i].
template <class T>
struct RowRuns {
  const T* const* row = nullptr;
  const int64_t* offset = nullptr;
  int64_t runs = 1, len = 0, step = 1;  // elements: len to a run, step apart
};

// A small tile of C += A B, held in registers while the sum runs.
template <class T>
struct MicroKernel {
  int mr, nr;  // rows and columns of the tile
  // c[i * ldc + j] = or += sum over r < runs, k < len of (row i of run r)[k * step] * b[(r * len + k) * ldb + j].
  // next: rows of the same shape, with offsets, that will be read soon, or null. finish: applied to what is stored, or
  // null.
  void (*run)(const RowRuns<T>& a, const T* b, int64_t ldb, T* c, int64_t ldc, bool accumulate, const RowRuns<T>* next,
              const Finish<T>* finish);
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
