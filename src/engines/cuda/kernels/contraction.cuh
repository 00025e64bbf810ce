// Matrix products over operands that are computed where they are read. A generated page says what an operand (A, B) and
// the result (R) are; here is how tiles of them are shared out, multiplied and given to the epilogue.
//
// An operand has an element type of the tile (Element), kWidth neighbouring elements that it loads at once, along the
// sums (kAlongSums) or along its rows, and three functions: row(a, batch, i) and sum(a, batch, k) say where a row and a
// sum lie, load(a, row, sum, to) gives the elements where they meet, 0 outside. If those are 16 bytes of memory as they
// are (kCopied), it has find(a, row, sum, at) instead, which says whether they are inside and where.
#pragma once

#include "tilewright/mma.cuh"

namespace tw {

// --- indices ---------------------------------------------------------------------------------------------------------
// A divisor known when the kernel is launched, for numbers of [0, 2^31).
struct Divider {
  u32 divisor, multiplier, shift;
};
// What is left of `rest` goes on to the next dim.
DEV int split(int& rest, const Divider& d) {
  const u32 q = (__umulhi(u32(rest), d.multiplier) + u32(rest)) >> d.shift;
  const int r = rest - int(q * d.divisor);
  rest = int(q);
  return r;
}
DEV i64 split(i64& rest, const i64& d) {
  const i64 r = rest % d;
  rest /= d;
  return r;
}
// A size that a tensor gives.
template <class Index, class T>
DEV Index size_within(T given, Index full) {
  return given > T(0) ? (given < T(full) ? Index(given) : full) : Index(0);
}

template <int kA, int kB>
struct smaller {
  static constexpr int value = kA < kB ? kA : kB;
};
template <int kA, int kB>
struct larger {
  static constexpr int value = kA > kB ? kA : kB;
};

// --- products on tensor cores ----------------------------------------------------------------------------------------
// Where 16 bytes of a line lie among its `kChunks` such, so that neighbouring lines' are in different banks.
template <int kChunks>
DEV int swizzled(int line, int chunk) {
  constexpr int kSome = smaller<kChunks, 8>::value;
  return chunk ^ (line / (8 / kSome) % kSome);
}

// A tile of kRows x kColumns by kWarpsM x kWarpsN warps. A stage is 64 bytes of sums for each row of A, or column of B,
// one after the other; 16-bit elements that come along rows lie in lines of rows instead.
template <class A, class B, class T, int kRowsOf, int kColumnsOf, int kWarpsM, int kWarpsN>
struct TensorCores {
  typedef T Sum;
  typedef typename A::Element Ea;
  typedef typename B::Element Eb;
  static constexpr int kRows = kRowsOf, kColumns = kColumnsOf, kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kLine = 64, kSums = kLine / sizeof(Ea);
  static constexpr int kBytesA = kRows * kLine, kBytesB = kColumns * kLine;
  static constexpr int kStages = A::kCopied || B::kCopied ? 3 : 2;
  static constexpr int kM = kRows / kWarpsM / 16, kN = kColumns / kWarpsN / 8;
  static constexpr int kParts = kM, kPartRows = 16 * kWarpsM;
  template <class O>
  struct in_rows {
    static constexpr bool value = !O::kAlongSums && sizeof(Ea) == 2;
  };
  // Sums that a thread loads of each of its rows where it goes along them: a word's.
  template <class O>
  struct pack {
    static constexpr int value = in_rows<O>::value ? 1 : 4 / sizeof(Ea);
  };
  static constexpr int kRowLanes = 16;  // elements along rows that neighbouring threads store, where lines are of sums
  T sum[kM][kN][4];

  DEV int part_row(int part, int q) { return q / 16 * (kRows / kWarpsM) + part * 16 + q % 16; }

  // The byte of an element in a stage.
  template <class O, int kRowsOfO>
  DEV int place(int row, int k) {
    const int line = in_rows<O>::value ? k : row, byte = (in_rows<O>::value ? row : k) * int(sizeof(Ea));
    if (in_rows<O>::value) return line * kRowsOfO * 2 + swizzled<kRowsOfO / 8>(line, byte / 16) * 16 + byte % 16;
    return line * kLine + swizzled<4>(line, byte / 16) * 16 + byte % 16;
  }
  // Elements that a thread loaded: kCount of one row or, with in_rows, of one sum; else words of kCount rows.
  template <class O, int kRowsOfO, int kCount, class E>
  DEV void put(char* stage, int row, int k, const E* e) {
    if (O::kAlongSums || in_rows<O>::value) {
      typedef vec<E, kCount> V;
      V v;
#pragma unroll
      for (int i = 0; i < kCount; ++i) v.e[i] = e[i];
      *reinterpret_cast<V*>(stage + place<O, kRowsOfO>(row, k)) = v;
      return;
    }
    constexpr int kPack = pack<O>::value;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      vec<E, kPack> v;
#pragma unroll
      for (int p = 0; p < kPack; ++p) v.e[p] = e[p * kCount + i];
      *reinterpret_cast<vec<E, kPack>*>(stage + place<O, kRowsOfO>(row + i, k)) = v;
    }
  }

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < kM; ++i)
#pragma unroll
      for (int j = 0; j < kN; ++j)
#pragma unroll
        for (int v = 0; v < 4; ++v) sum[i][j][v] = T(0);
  }
  __device__ __forceinline__ void multiply(const char* stage_a, const char* stage_b) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int m = warp / kWarpsN * (kM * 16), n = warp % kWarpsN * (kN * 8);
    constexpr bool kRowsA = in_rows<A>::value, kRowsB = in_rows<B>::value;
    constexpr int kStep = 32 / sizeof(Ea), kHalf = kStep / 2;  // sums of an instruction, of a block
#pragma unroll
    for (int k = 0; k < kSums; k += kStep) {
      u32 x[kM][4], y[kN / 2][4];
#pragma unroll
      for (int i = 0; i < kM; ++i)
        load_blocks<kRowsA>(x[i], stage_a + (kRowsA ? place<A, kRows>(m + i * 16 + lane / 8 % 2 * 8,
                                                                      k + lane / 16 * 8 + lane % 8)
                                                    : place<A, kRows>(m + i * 16 + lane % 16, k + lane / 16 * kHalf)));
#pragma unroll
      for (int j = 0; j < kN / 2; ++j)
        load_blocks<kRowsB>(y[j], stage_b + (kRowsB ? place<B, kColumns>(n + j * 16 + lane / 16 * 8,
                                                                         k + lane / 8 % 2 * 8 + lane % 8)
                                                    : place<B, kColumns>(n + j * 16 + lane / 16 * 8 + lane % 8,
                                                                         k + lane / 8 % 2 * kHalf)));
#pragma unroll
      for (int i = 0; i < kM; ++i)
#pragma unroll
        for (int j = 0; j < kN; ++j)
          product(Ea(), Eb(), sum[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
    }
  }
  // Rows part_row(part, 0), ... as [kPartRows][line].
  __device__ __forceinline__ void give(int part, T* to, int line) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    to += (warp / kWarpsN * 16 + lane / 4) * line + warp % kWarpsN * (kN * 8) + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kM; ++i)  // the index of an array in registers is known to the compiler
      if (i == part)
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          *reinterpret_cast<vec<T, 2>*>(to + j * 8) = {{sum[i][j][0], sum[i][j][1]}};
          *reinterpret_cast<vec<T, 2>*>(to + 8 * line + j * 8) = {{sum[i][j][2], sum[i][j][3]}};
        }
  }
};

// --- products on the other units -------------------------------------------------------------------------------------
// kThreadsM x kThreadsN threads. In shared memory the elements of a sum lie next to each other.
template <class A, class B, class T, int kRowsOf, int kColumnsOf, int kThreadsM, int kThreadsN>
struct Cores {
  typedef T Sum;
  static constexpr int kRows = kRowsOf, kColumns = kColumnsOf, kThreads = kThreadsM * kThreadsN;
  static constexpr int kSums = sizeof(T) == 8 ? 8 : 16, kRowLanes = 128, kGap = 16 / sizeof(T), kStages = 2;
  static constexpr int kBytesA = (kRows + kGap) * kSums * sizeof(T), kBytesB = (kColumns + kGap) * kSums * sizeof(T);
  template <class O>
  struct pack {
    static constexpr int value = 1;
  };
  template <class O>
  struct in_rows {
    static constexpr bool value = !O::kAlongSums;
  };
  static constexpr int kM = kRows / kThreadsM, kN = kColumns / kThreadsN;
  static constexpr int kU = smaller<kM, 16 / sizeof(T)>::value, kV = smaller<kN, 16 / sizeof(T)>::value;
  static constexpr int kParts = kM / kU, kPartRows = kThreadsM * kU;
  T sum[kM][kN];

  DEV int part_row(int part, int q) { return part * kPartRows + q; }

  template <class O, int kRowsOfO>
  DEV int place(int row, int k) {
    return (k * (kRowsOfO + kGap) + row) * int(sizeof(T));
  }
  template <class O, int kRowsOfO, int kCount, class E>
  DEV void put(char* stage, int row, int k, const E* e) {
    constexpr int kSome = O::kAlongSums ? 1 : smaller<kCount, 16 / sizeof(E)>::value;
#pragma unroll
    for (int i = 0; i < kCount; i += kSome) {
      vec<E, kSome> v;
#pragma unroll
      for (int j = 0; j < kSome; ++j) v.e[j] = e[i + j];
      const int at = O::kAlongSums ? place<O, kRowsOfO>(row, k + i) : place<O, kRowsOfO>(row + i, k);
      *reinterpret_cast<vec<E, kSome>*>(stage + at) = v;
    }
  }

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < kM; ++i)
#pragma unroll
      for (int j = 0; j < kN; ++j) sum[i][j] = T(0);
  }
  __device__ __forceinline__ void multiply(const char* stage_a, const char* stage_b) {
    const T* a = reinterpret_cast<const T*>(stage_a) + threadIdx.x / kThreadsN * kU;
    const T* b = reinterpret_cast<const T*>(stage_b) + threadIdx.x % kThreadsN * kV;
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      T x[kM], y[kN];
#pragma unroll
      for (int i = 0; i < kM; i += kU) {
        const vec<T, kU> v = *reinterpret_cast<const vec<T, kU>*>(a + k * (kRows + kGap) + i * kThreadsM);
#pragma unroll
        for (int u = 0; u < kU; ++u) x[i + u] = v.e[u];
      }
#pragma unroll
      for (int j = 0; j < kN; j += kV) {
        const vec<T, kV> v = *reinterpret_cast<const vec<T, kV>*>(b + k * (kColumns + kGap) + j * kThreadsN);
#pragma unroll
        for (int u = 0; u < kV; ++u) y[j + u] = v.e[u];
      }
#pragma unroll
      for (int i = 0; i < kM; ++i)
#pragma unroll
        for (int j = 0; j < kN; ++j) sum[i][j] += x[i] * y[j];
    }
  }
  __device__ __forceinline__ void give(int part, T* to, int line) const {
    to += threadIdx.x / kThreadsN * kU * line + threadIdx.x % kThreadsN * kV;
#pragma unroll
    for (int i = 0; i < kM; ++i)
      if (i / kU == part)
#pragma unroll
        for (int j = 0; j < kN; j += kV) {
          vec<T, kV> v;
#pragma unroll
          for (int u = 0; u < kV; ++u) v.e[u] = sum[i][j + u];
          *reinterpret_cast<vec<T, kV>*>(to + i % kU * line + j * kThreadsN) = v;
        }
  }
};

// --- an operand's part of a tile -------------------------------------------------------------------------------------
// Elements that a thread loads at once: kCount sums of one row, or kPack sums of kCount rows. It keeps to the same sums
// of every stage. fetch() starts, put() ends: in between it may multiply.
template <class O, class M, int kRows>
struct Part {
  typedef typename O::Element E;
  static constexpr bool kAlongSums = O::kAlongSums, kCopied = O::kCopied;
  static constexpr int kWidth = O::kWidth, kPack = M::template pack<O>::value;
  static constexpr int kCount = kAlongSums ? larger<kWidth, kPack>::value : kWidth;
  static constexpr int kSumsOf = kAlongSums ? kCount : kPack;  // of one slot
  static constexpr int kRowsOf = kAlongSums ? 1 : kCount;
  static constexpr int kAcross = M::kSums / kSumsOf, kDown = kRows / kRowsOf;  // slots of a stage
  static constexpr int kNear = M::template in_rows<O>::value ? kDown : larger<M::kRowLanes / kCount, 1>::value;
  static constexpr int kLanes =
      kAlongSums ? 1 : smaller<smaller<kDown, M::kThreads / kAcross>::value, kNear>::value;
  static constexpr int kSlots = (kAcross * kDown + M::kThreads - 1) / M::kThreads;
  static constexpr int kWhere = kAlongSums ? kCount / kWidth : kPack;  // positions of sums
  typename O::At row[kSlots];
  E e[kCopied ? 1 : kSlots][kSumsOf * kRowsOf];

  DEV int slot(int j) { return threadIdx.x + j * M::kThreads; }
  DEV bool is_slot(int j) { return kAcross * kDown % M::kThreads == 0 || slot(j) < kAcross * kDown; }
  DEV int sum_of() { return threadIdx.x / kLanes % kAcross * kSumsOf; }
  DEV int row_of(int j) { return (slot(j) / (kLanes * kAcross) * kLanes + slot(j) % kLanes) * kRowsOf; }

  template <class Args, class Index>
  __device__ __forceinline__ void start(const Args& a, Index batch, Index first) {
#pragma unroll
    for (int j = 0; j < kSlots; ++j) row[j] = O::row(a, batch, first + Index(row_of(j)));
  }
  template <class Args, class Index>
  __device__ __forceinline__ void fetch(const Args& a, Index batch, Index k, char* stage) {
    typename O::At at[kWhere];
#pragma unroll
    for (int p = 0; p < kWhere; ++p) at[p] = O::sum(a, batch, k + Index(sum_of() + p * (kAlongSums ? kWidth : 1)));
#pragma unroll
    for (int j = 0; j < kSlots; ++j)
      if (is_slot(j)) {
        if constexpr (kCopied) {
          const E* from;
          const bool inside = O::find(a, row[j], at[0], from);
          copy_async_16(stage + M::template place<O, kRows>(row_of(j), sum_of()), from, inside);
        } else {
#pragma unroll
          for (int p = 0; p < kWhere; ++p) O::load(a, row[j], at[p], e[j] + p * kWidth);
        }
      }
  }
  __device__ __forceinline__ void put(char* stage) const {
    if constexpr (!kCopied)
#pragma unroll
      for (int j = 0; j < kSlots; ++j)
        if (is_slot(j)) M::template put<O, kRows, kCount>(stage, row_of(j), sum_of(), e[j]);
  }
};

// --- the epilogue ----------------------------------------------------------------------------------------------------
// R has kWidth columns that it takes at once, row(a, batch, i) and column(a, j), which say where they lie, apply(), which
// computes and stores, and what side reductions keep in a thread (Folds).

// What threads of the same columns keep, joined: that of column c in thread c. kColumns <= blockDim.x.
template <class J, int kColumns, int kWidth, class F>
DEV F join_columns(const F (&w)[kWidth], F* shared) {
  const int groups = kColumns / kWidth, rows = blockDim.x / groups;
  __syncthreads();
#pragma unroll
  for (int v = 0; v < kWidth; ++v)
    shared[threadIdx.x / groups * kColumns + threadIdx.x % groups * kWidth + v] = w[v];
  __syncthreads();
  F x = J::template start<F>();
  if (threadIdx.x < kColumns)
    for (int r = 0; r < rows; ++r) x = J::join(x, shared[r * kColumns + threadIdx.x]);
  return x;
}
// The block's fold of what every thread keeps.
template <class J, class F>
DEV F join_all(F w, F* shared) {
  __syncthreads();
  return block_reduce<J>(w, shared);
}

template <class M, class R, class Args, class Index>
DEV void finish_tile(const Args& a, const M& m, char* memory, Index slot, Index batch, Index m0, Index n0) {
  constexpr int kLine = M::kColumns + 8, kGroups = M::kColumns / R::kWidth, kPass = M::kThreads / kGroups;
  typedef typename M::Sum T;
  typedef typename R::Value F;
  T* const slab = reinterpret_cast<T*>(memory);
  const int c = threadIdx.x % kGroups * R::kWidth;
  const bool inside = n0 + Index(c) < a.columns;
  const typename R::At column = R::column(a, n0 + Index(c));
  typename R::Folds folds;
  R::start(folds);
#pragma unroll 1
  for (int part = 0; part < M::kParts; ++part) {
    __syncthreads();
    m.give(part, slab, kLine);
    __syncthreads();
#pragma unroll 1
    for (int q = threadIdx.x / kGroups; q < M::kPartRows; q += kPass) {
      const Index i = m0 + Index(M::part_row(part, q));
      if (!inside || i >= a.rows) continue;
      F x[R::kWidth];
#pragma unroll
      for (int v = 0; v < R::kWidth; ++v) x[v] = F(slab[q * kLine + c + v]);
      R::apply(a, R::row(a, slot, i), column, x, folds);
    }
  }
  __syncthreads();
  R::template finish<M::kColumns>(a, folds, batch, m0, n0, reinterpret_cast<F*>(memory));
}

// --- kernels ---------------------------------------------------------------------------------------------------------
template <class M, class R>
struct Memory {
  static constexpr int kStages = M::kStages * (M::kBytesA + M::kBytesB);
  static constexpr int kSlab = M::kPartRows * (M::kColumns + 8) * int(sizeof(typename M::Sum));
  static constexpr int kFolds = R::kFolds ? M::kThreads * R::kWidth * int(sizeof(typename R::Value)) + 256 : 0;
  static constexpr int value = larger<kStages, larger<kSlab, kFolds>::value>::value;
};

// A tile for each block; where sums are split, a slice of the sums too, whose result is one of several to be added.
template <class M, class A, class B, class R, class Args, class Index>
DEV void contract_tiles(const Args& a, Index) {
  alignas(16) __shared__ char memory[Memory<M, R>::value];
  const Index tiles_m = (a.rows + Index(M::kRows - 1)) / M::kRows;
  const Index tiles_n = (a.columns + Index(M::kColumns - 1)) / M::kColumns;
  if (a.batches * tiles_m * tiles_n == 0) return;
  Index id = blockIdx.x;
  const Index tile = id % (tiles_m * tiles_n);
  id /= tiles_m * tiles_n;
  const Index batch = id % a.batches, part = id / a.batches;
  // Tiles that run at the same time share rows and columns: eight rows of tiles at once.
  const Index band = tile / (8 * tiles_n) * 8, high = tiles_m - band < 8 ? tiles_m - band : Index(8);
  const Index in_band = tile - band * tiles_n;
  const Index m0 = (band + in_band % high) * M::kRows, n0 = in_band / high * M::kColumns;
  const Index begin = part * a.part_sums;
  const Index end = a.sums - begin < a.part_sums ? a.sums : begin + a.part_sums;

  M m;
  m.start();
  if (begin < end) {
    Part<A, M, M::kRows> left;
    Part<B, M, M::kColumns> right;
    left.start(a, batch, m0), right.start(a, batch, n0);
    constexpr int kStage = M::kBytesA + M::kBytesB, kAhead = M::kStages - 1;
    const auto stage = [&](int number) { return memory + number % M::kStages * kStage; };
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
      const Index k = begin + Index(s * M::kSums);
      if (k < end) {
        left.fetch(a, batch, k, stage(s)), right.fetch(a, batch, k, stage(s) + M::kBytesA);
        left.put(stage(s)), right.put(stage(s) + M::kBytesA);
      }
      copies_asked();
    }
    int now = 0;
#pragma unroll 1
    for (Index k = begin; k < end; k += M::kSums) {
      copies_there<kAhead - 1>();
      __syncthreads();
      char* const next = stage(now + kAhead);
      const Index ahead = k + Index(kAhead * M::kSums);
      if (ahead < end) left.fetch(a, batch, ahead, next), right.fetch(a, batch, ahead, next + M::kBytesA);
      copies_asked();
      m.multiply(stage(now), stage(now) + M::kBytesA);
      if (ahead < end) left.put(next), right.put(next + M::kBytesA);
      now = now + 1 == M::kStages ? 0 : now + 1;
    }
  }
  finish_tile<M, R>(a, m, memory, Index(part * a.batches + batch), batch, m0, n0);
}

// A thread for each point of the result, which adds up its products; the fastest in memory next to each other.
template <class A, class B, class R, class T, bool kBatchFastest, class Args, class Index>
DEV void contract_points(const Args& a, Index) {
  Index at = blockIdx.x * Index(blockDim.x) + Index(threadIdx.x);
  const Index points = a.batches * a.rows * a.columns;
  __shared__ typename R::Value shared[R::kFolds ? 64 * R::kFolds : 1];
  typename R::Folds folds;
  R::start(folds);
  if (at < points * a.parts) {
    const Index part = at / points;
    at -= part * points;
    Index batch, i, j;
    if (kBatchFastest) {
      batch = at % a.batches, at /= a.batches;
      j = at % a.columns, i = at / a.columns;
    } else {
      j = at % a.columns, at /= a.columns;
      i = at % a.rows, batch = at / a.rows;
    }
    const Index begin = part * a.part_sums;
    const Index end = a.sums - begin < a.part_sums ? a.sums : begin + a.part_sums;
    const typename A::At row = A::row(a, batch, i);
    const typename B::At column = B::row(a, batch, j);
    T sum = T(0);
    for (Index k = begin; k < end; ++k) {
      typename A::Element x;
      typename B::Element y;
      A::load(a, row, A::sum(a, batch, k), &x);
      B::load(a, column, B::sum(a, batch, k), &y);
      sum += T(x.v) * T(y.v);
    }
    const typename R::Value x[1] = {typename R::Value(sum)};
    R::apply(a, R::row(a, Index(part * a.batches + batch), i), R::column(a, j), x, folds);
  }
  R::finish_points(a, folds, shared);
}

// Adds up the results of several slices of the sums: a thread for each vector of columns.
template <class R, class T, class Args, class Index>
DEV void join_parts(const Args& a, Index) {
  Index at = (blockIdx.x * Index(blockDim.x) + Index(threadIdx.x)) * R::kWidth;
  const Index points = a.batches * a.rows * a.columns;
  __shared__ typename R::Value shared[R::kFolds ? 64 * R::kFolds : 1];
  typename R::Folds folds;
  R::start(folds);
  if (at < points) {
    typedef vec<T, R::kWidth> V;
    T sum[R::kWidth] = {};
    for (Index part = 0; part < a.parts; ++part) {
      const V v = *reinterpret_cast<const V*>(a.part + part * points + at);
#pragma unroll
      for (int k = 0; k < R::kWidth; ++k) sum[k] += v.e[k];
    }
    typename R::Value x[R::kWidth];
#pragma unroll
    for (int k = 0; k < R::kWidth; ++k) x[k] = typename R::Value(sum[k]);
    const Index j = at % a.columns;
    at /= a.columns;
    R::apply(a, R::row(a, at / a.rows, at % a.rows), R::column(a, j), x, folds);
  }
  R::finish_points(a, folds, shared);
}

}  // namespace tw
