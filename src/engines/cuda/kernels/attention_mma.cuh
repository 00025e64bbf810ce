// Attention on tensor cores, for 16-bit operands whose rows lie in 16-byte pieces. A block of four warps keeps 64
// queries, 16 in each warp, and walks over tiles of 64 keys; copies of the next tile run while it computes.
#pragma once

#include "tilewright/attention.cuh"
#include "tilewright/mma.cuh"

namespace tw {

constexpr int kMmaThreads = 128, kMmaTile = 64;

// A tile of rows in shared memory, in pieces of 8 elements. Pieces of a row are permuted, so that eight rows' pieces of
// the same columns lie in different banks.
template <class T, int kColumns, int kRows = kMmaTile>
struct MmaTile {
  static constexpr int kPieces = kColumns / 8, kRowPieces = (kColumns + 63) / 64 * 8;
  typedef vec<T, 8> Piece;
  Piece data[kRows * kRowPieces];

  __forceinline__ Piece* piece(int row, int p) { return data + row * kRowPieces + (p ^ (row & 7)); }
  __forceinline__ T& element(int row, int column) { return piece(row, column / 8)->e[column % 8]; }

  // Rows [first, first + kRows) of a head; zeros behind its rows and its columns.
  __forceinline__ void copy(const Tensor<const T>& t, i64 b, i64 h, int first, int rows, int columns) {
    const T* const from = t.at(b, h, 0, 0);
    for (int e = int(threadIdx.x); e < kRows * kPieces; e += kMmaThreads) {
      const int r = e / kPieces, p = e % kPieces;
      const bool there = first + r < rows && p * 8 < columns;
      copy_async_16(piece(r, p), there ? from + (first + r) * t.stride[2] + p * 8 : from, there);
    }
  }
};

// A warp's 16 rows as fragments of A: kept in registers, or fetched again for each product.
template <class T, int kColumns, bool kKept>
struct MmaRows;
template <class T, int kColumns>
struct MmaRows<T, kColumns, false> {
  MmaTile<T, kColumns>& tile;
  int first;
  __forceinline__ void get(u32 (&a)[4], int k) const {
    const int lane = int(threadIdx.x) % 32;
    load_blocks(a, tile.piece(first + lane % 16, 2 * k + lane / 16));
  }
};
template <class T, int kColumns>
struct MmaRows<T, kColumns, true> {
  u32 kept[kColumns / 16][4];
  __forceinline__ MmaRows(MmaTile<T, kColumns>& tile, int first) {
    const MmaRows<T, kColumns, false> rows = {tile, first};
#pragma unroll
    for (int k = 0; k < kColumns / 16; ++k) rows.get(kept[k], k);
  }
  __forceinline__ void get(u32 (&a)[4], int k) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) a[e] = kept[k][e];
  }
};

// s[n] = the warp's 16 rows times rows 8 n .. 8 n + 7 of the tile.
template <class T, int kColumns, bool kKept, int kRows>
DEV void multiply_rows(float (&s)[kRows / 8][4], const MmaRows<T, kColumns, kKept>& rows,
                       MmaTile<T, kColumns, kRows>& tile) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) s[n][e] = 0.f;
#pragma unroll(kKept ? kColumns / 16 : 4)
  for (int k = 0; k < kColumns / 16; ++k) {
    u32 a[4];
    rows.get(a, k);
#pragma unroll
    for (int n = 0; n < kRows / 8; n += 2) {
      u32 b[4];
      load_blocks(b, tile.piece(n * 8 + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
      product(T(), T(), s[n], a, b[0], b[1]);
      product(T(), T(), s[n + 1], a, b[2], b[3]);
    }
  }
}

// out[n] += the warp's weights, 16 rows of as many as the tile has, times columns 8 n .. 8 n + 7 of it.
template <class T, int kColumns, int kRows>
DEV void multiply_columns(float (&out)[kColumns / 8][4], const u32 (&w)[kRows / 16][4],
                          MmaTile<T, kColumns, kRows>& tile) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k)
#pragma unroll
    for (int n = 0; n < kColumns / 8; n += 2) {
      u32 b[4];
      load_blocks<true>(b, tile.piece(k * 16 + lane % 16, n + lane / 16));
      product(T(), T(), out[n], w[k], b[0], b[1]);
      product(T(), T(), out[n + 1], w[k], b[2], b[3]);
    }
}

// Sums of products as the weights of a next product.
template <class T, int kN>
DEV void as_weights(u32 (&w)[kN / 2][4], const float (&s)[kN][4]) {
#pragma unroll
  for (int k = 0; k < kN / 2; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* const x = s[2 * k + e / 2] + e % 2 * 2;
      w[k][e] = pair_of(T(), x[0], x[1]);
    }
}

// The exponents of two neighbours that are no numbers, or infinite.
DEV u32 top_exponents(f16) { return 0x7c007c00u; }
DEV u32 top_exponents(bf16) { return 0x7f807f80u; }

// Whether a tile has such values. All threads of the block ask.
template <class T, int kColumns, int kRows>
DEV bool has_not_finite(MmaTile<T, kColumns, kRows>& tile) {
  struct alignas(16) Words {
    u32 w[4];
  };
  constexpr int kPieces = kColumns / 8;
  const u32 top = top_exponents(T()), low = top & 0xffffu, high = top & 0xffff0000u;
  bool any = false;
  for (int e = int(threadIdx.x); e < kRows * kPieces; e += kMmaThreads) {
    const Words x = *reinterpret_cast<const Words*>(tile.piece(e / kPieces, e % kPieces));
#pragma unroll
    for (int k = 0; k < 4; ++k) any = any || (x.w[k] & low) == low || (x.w[k] & high) == high;
  }
  return __syncthreads_or(any);
}
template <class T, int kColumns, int kRows>
DEV void clear_not_finite(MmaTile<T, kColumns, kRows>& tile) {
  __syncthreads();
  for (int e = int(threadIdx.x); e < kRows * kColumns; e += kMmaThreads) {
    T& v = tile.element(e / kColumns, e % kColumns);
    if (!finite(T::get(v))) v = T::set(0.f);
  }
  __syncthreads();
}

// What a mask excludes counts for nothing, also where values are no numbers: 0 times those would be none. Where a tile
// has such values, the thread's rows r = 0, 1 that have a say in its row k take them here, and products find zeros.
template <class T, int kColumns, int kRows, class Kept>
DEV void take_not_finite(float (&out)[kColumns / 8][4], MmaTile<T, kColumns, kRows>& tile, const Kept& kept) {
  if (!has_not_finite(tile)) return;
  const int t = int(threadIdx.x) % 4;
  float sum[kColumns / 8][4];  // in memory, so that this rare case costs no registers
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[n][e] = out[n][e];
#pragma unroll 1
  for (int e = 0; e < 2 * kRows; ++e) {
    const int r = e % 2, k = e / 2;
    if (!kept(r, k)) continue;
#pragma unroll 1
    for (int c = 0; c < kColumns / 4; ++c) {
      const float v = T::get(tile.element(k, c / 2 * 8 + 2 * t + c % 2));
      if (!finite(v)) sum[c / 2][2 * r + c % 2] += v;
    }
  }
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) out[n][e] = sum[n][e];
  clear_not_finite(tile);
}

// The thread's rows of a result, from `row` on: times `factor`, where 0 stays 0.
template <class T, int kN>
DEV void store_rows(const Tensor<T>& to, int b, int h, int row, int rows, int columns, const float (&out)[kN][4],
                    float factor) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = row + e / 2 * 8, column = n * 8 + int(threadIdx.x) % 4 * 2 + e % 2;
      if (i < rows && column < columns) to.put(b, h, i, column, out[n][e] == 0.f ? 0.f : out[n][e] * factor);
    }
}

DEV float quad_reduce(Max, float x) {
  x = max(x, shuffle(x, 1));
  return max(x, shuffle(x, 2));
}
DEV float quad_reduce(Sum, float x) {
  x += shuffle(x, 1);
  return x + shuffle(x, 2);
}

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// How the forward kernel of some head sizes goes about it.
template <class S>
struct ForwardPlan {
  static constexpr int kKeys = S::kHead > 64 || S::kWidth > 64 ? 32 : 64;  // of a tile
  typedef MmaTile<typename S::T, S::kHead> Queries;
  typedef MmaTile<typename S::T, S::kHead, kKeys> Keys;
  typedef MmaTile<typename S::T, S::kWidth, kKeys> Values;
  // Large heads: keys and values take turns in one place. Else the next tile of both is copied while one is in work.
  static constexpr bool kTurns = S::kHead > 128 || S::kWidth > 128;
  // Queries are kept in registers, or, where options or large heads want those, in shared memory.
  static constexpr bool kKept = !kTurns && (S::kHead <= 64 || !(S::kBias || S::kDropout));
  static constexpr int kStage = kTurns ? largest(sizeof(Keys), sizeof(Values)) : sizeof(Keys) + sizeof(Values);
  static constexpr int kQueriesAt = kKept ? 0 : kTurns ? kStage : 2 * kStage;
  static constexpr int kBytes = largest(kTurns ? kStage : 2 * kStage, kQueriesAt + sizeof(Queries));
  static_assert(kBytes <= (48 << 10), "a block has no more");
};

// A block for each tile of queries of a head; the last tiles come first. Maxima are kept in units of powers of 2.
template <class S, class Args>
DEV void attention_forward_mma(const Args& a) {
  typedef typename S::T T;
  typedef ForwardPlan<S> P;
  constexpr int kHead = S::kHead, kWidth = S::kWidth, kKeys = P::kKeys, kN = kKeys / 8;
  __shared__ vec<T, 8> memory[P::kBytes / 16];
  char* const bytes = reinterpret_cast<char*>(memory);
  auto& q_tile = *reinterpret_cast<typename P::Queries*>(bytes + P::kQueriesAt);
  const auto k_tile = [&](int stage) -> auto& {
    return *reinterpret_cast<typename P::Keys*>(bytes + stage * P::kStage);
  };
  const auto v_tile = [&](int stage) -> auto& {
    return *reinterpret_cast<typename P::Values*>(bytes + stage * P::kStage + (P::kTurns ? 0 : sizeof(typename P::Keys)));
  };
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, t = lane % 4;
  const int head = int(blockIdx.x % (i64(a.b) * a.hq));
  const int i0 = (a.q_tiles - 1 - int(blockIdx.x / (i64(a.b) * a.hq))) * kMmaTile;
  const Head<S, Args> x(a, head / a.hq, head % a.hq);
  const int b = x.b, h = x.h, row0 = i0 + 16 * warp + lane / 4;

  q_tile.copy(a.q, b, h, i0, a.sq, a.dqk);
  copies_asked();
  copies_there<0>();
  __syncthreads();
  const MmaRows<T, kHead, P::kKept> q = {q_tile, 16 * warp};
  __syncthreads();

  const Keys all = x.mask.of_tile(i0, kMmaTile);
  // Tiles in between are seen whole by all.
  const int whole_from = x.mask.of(i0 + kMmaTile - 1).begin,
            whole_to = i0 + kMmaTile <= x.mask.rows ? x.mask.of(i0).end : 0;
  const Keys keys[2] = {x.mask.of(row0), x.mask.of(row0 + 8)};
  float out[kWidth / 8][4] = {}, top[2] = {least(0.f), least(0.f)}, total[2] = {0.f, 0.f};
  const int first = all.begin / kKeys * kKeys;
  const auto copy_keys = [&](int j0, int stage) {
    if (j0 < all.end) k_tile(stage).copy(a.k, b, x.k_head(), j0, a.skv, a.dqk);
  };
  const auto copy_values = [&](int j0, int stage) {
    if (j0 < all.end) v_tile(stage).copy(a.v, b, x.v_head(), j0, a.skv, a.dv);
  };
  copy_keys(first, 0);
  if (!P::kTurns) copy_values(first, 0);
  copies_asked();
  int stage = 0;
  for (int j0 = first; j0 < all.end; j0 += kKeys) {
    const bool masked = j0 < whole_from || j0 + kKeys > whole_to;
    float s[kN][4];
    copies_there<0>();
    __syncthreads();
    if (!P::kTurns) copy_keys(j0 + kKeys, 1 - stage), copy_values(j0 + kKeys, 1 - stage), copies_asked();
    multiply_rows(s, q, k_tile(stage));
    if (P::kTurns) {
      __syncthreads();
      copy_values(j0, 0), copies_asked();
    }

    float unit = kLog2E;
    if (masked || S::kBias || S::kAlibi || !(x.scale > 0.f)) {
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[n][e] = x.score(s[n][e], row0 + e / 2 * 8, j0 + n * 8 + 2 * t + e % 2, keys[e / 2]);
    } else {
      unit *= x.scale;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = least(0.f);
#pragma unroll
      for (int n = 0; n < kN; ++n) most = max(most, max(s[n][2 * r], s[n][2 * r + 1]));
      most = max(top[r], quad_reduce(Max(), most) * unit);
      const float shift = most == least(0.f) ? 0.f : most, again = fast_exp2(top[r] - shift);
      float sum = 0.f;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        float f[2];
        if constexpr (S::kDropout) x.factors(f, row0 + 8 * r, j0 + n * 8 + 2 * t, keys[r]);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& p = s[n][2 * r + c];
          p = fast_exp2(p * unit - shift), sum += p;
          if constexpr (S::kDropout) p *= f[c];
        }
      }
      total[r] = total[r] * again + sum, top[r] = most;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) out[n][2 * r] *= again, out[n][2 * r + 1] *= again;
    }
    u32 w[kN / 2][4];
    as_weights<T, kN>(w, s);
    if (P::kTurns) {
      copies_there<0>();
      __syncthreads();
    }
    if (masked || S::kBias)
      take_not_finite(out, v_tile(stage), [&](int r, int k) {
        const int i = row0 + 8 * r;
        return i < a.sq && x.score(0.f, i, j0 + k, keys[r]) != least(0.f);
      });
    multiply_columns(out, w, v_tile(stage));
    if (P::kTurns) {
      __syncthreads();
      copy_keys(j0 + kKeys, 0), copies_asked();
    } else {
      stage = 1 - stage;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row0 + 8 * r;
    total[r] = quad_reduce(Sum(), total[r]);
    const float factor = i < a.sq ? finish_row<S>(a, b, h, i, top[r] * kLn2, total[r], t == 0) : 0.f;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) out[n][2 * r + c] = total[r] == 0.f ? 0.f : out[n][2 * r + c] * factor;
  }
  store_rows(a.o, b, h, row0, a.sq, a.dv, out, 1.f);
}

}  // namespace tw
