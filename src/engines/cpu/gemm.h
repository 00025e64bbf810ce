// The innermost pieces of a contraction, compiled for several instruction sets and picked at run time.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

namespace tilewright::cpu {

// Operands come as elements of the type that sums are made in, or as the bits of bfloat16 numbers.
using Bfloat16Bits = uint16_t;
template <class E>
using SumOf = std::conditional_t<std::is_same_v<E, Bfloat16Bits>, float, E>;

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
template <class E>
struct MicroKernel {
  // c[i * ldc + j] = or += sum over r < runs, k < len of (row i of run r)[k * step] * b[(r * len + k) * ldb + j].
  // next: rows of the same shape, with offsets, that will be read soon, or null. finish: applied to what is stored, or
  // null. Of bfloat16, len is even, step 1, and b holds element j of rows k and k + 1 side by side: at
  // b[(r * len + k) * ldb + 2 * j] for even k.
  using Run = void (*)(const RowRuns<E>& a, const E* b, int64_t ldb, SumOf<E>* c, int64_t ldc, bool accumulate,
                       const RowRuns<E>* next, const Finish<SumOf<E>>* finish);
  int mr, nr;  // rows and columns of the tile
  Run run;
  Run careful;  // the same for operands of any size, where `run` needs an A and a B without tiny ones (has_tiny)
};

// Those of the best instruction set that the processor has, widest tile first. Each fills the registers.
template <class T>
const std::vector<MicroKernel<T>>& micro_kernels();

// For bfloat16: empty where the processor has no instruction for it.
template <>
const std::vector<MicroKernel<Bfloat16Bits>>& micro_kernels<Bfloat16Bits>();
// Whether an element is not 0, but smaller than 2^-50: the processor's bfloat16 products take subnormal operands and
// sums for 0, which larger elements never lead to.
bool has_tiny(const Bfloat16Bits* x, int64_t n);

// The same, looked up anew: for tests that switch instruction sets.
std::vector<MicroKernel<float>> float_micro_kernels();
std::vector<MicroKernel<double>> double_micro_kernels();

// out[k * pitch + i] = rows[i][k] for i < count, k < length.
void transpose(const float* const* rows, int64_t count, int64_t length, float* out, int64_t pitch);
// Pairs of elements: out[k * pitch + 2 * i] = rows[i][k] for even k, the next for odd. length is even.
void transpose(const Bfloat16Bits* const* rows, int64_t count, int64_t length, Bfloat16Bits* out, int64_t pitch);
void transpose(const double* const* rows, int64_t count, int64_t length, double* out, int64_t pitch);

}  // namespace tilewright::cpu
