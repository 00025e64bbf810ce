// Included once per instruction set by gemm.cc, inside a namespace of its own and under a target pragma.

// The tile is kMr rows of kNv vectors of kBytes: it, kNv vectors of B and a broadcast element of A fill the registers.
template <class T, int kBytes, int kMr, int kNv>
void tile(const T* __restrict a, const T* __restrict b, int64_t k, T* __restrict c, int64_t ldc) {
  typedef T V __attribute__((vector_size(kBytes), aligned(sizeof(T)), may_alias));
  constexpr int kWidth = kBytes / int(sizeof(T));
  V sum[kMr][kNv];
#pragma GCC unroll 16
  for (int i = 0; i < kMr; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) sum[i][j] = V{};
  for (int64_t p = 0; p < k; ++p) {
    V right[kNv];
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) right[j] = *reinterpret_cast<const V*>(b + j * kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < kMr; ++i) {
      const T left = a[i];
#pragma GCC unroll 4
      for (int j = 0; j < kNv; ++j) sum[i][j] += left * right[j];
    }
    a += kMr;
    b += kNv * kWidth;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kMr; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kNv; ++j) {
      V* const at = reinterpret_cast<V*>(c + i * ldc + j * kWidth);
      *at += sum[i][j];
    }
}

template <class T, int kBytes, int kMr, int kNv>
MicroKernel<T> make() {
  return {kMr, kNv * kBytes / int(sizeof(T)), tile<T, kBytes, kMr, kNv>};
}
