// The gradients of attention on tensor cores: dQ by blocks that keep 64 queries, dK and dV by blocks that keep 64 keys.
// P and dS become 16-bit numbers before they are multiplied.
#pragma once

#include "tilewright/attention_backward.cuh"
#include "tilewright/attention_mma.cuh"

namespace tw {

constexpr int kMmaStream = 32;  // rows of the other side that a block takes at once

struct RowStatistics {
  float lse, delta;  // lse times log2(e); -inf: the query kept nothing
};
template <class S, class Args>
DEV RowStatistics row_statistics(const Args& a, int b, int h, int i) {
  if (i >= a.sq) return {least(0.f), 0.f};
  return {float(a.stats_in.get(b, h, i, 0)) * kLog2E, a.delta[(i64(b) * a.hq + h) * a.sq + i]};
}

// From a product of Q and K and one of dO and V: P, and with it P f and dS, for one query and key.
template <class S, class Args>
DEV void gradient_of(float& s, float& dp, const Head<S, Args>& x, int i, int j, bool masked, RowStatistics row,
                     float f) {
  const float score = masked || S::kBias || S::kAlibi ? x.score(s, i, j, x.mask.of(i)) : s * x.scale;
  if (score != least(0.f) && row.lse != least(0.f)) {
    const float p = fast_exp2(score * kLog2E - row.lse);
    s = p * f, dp = p * (dp * f - row.delta);
  } else {
    s = dp = 0.f;
  }
}

// dQ: a block for each tile of queries of a head.
template <class S, class Args>
DEV void attention_dq_mma(const Args& a) {
  typedef typename S::T T;
  constexpr int kHead = S::kHead, kWidth = S::kWidth, kRows = kMmaStream, kN = kRows / 8;
  __shared__ MmaTile<T, kHead> q_tile;
  __shared__ MmaTile<T, kWidth> d_out_tile;
  __shared__ MmaTile<T, kHead, kRows> k_tile;
  __shared__ MmaTile<T, kWidth, kRows> v_tile;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, t = lane % 4;
  const int head = int(blockIdx.x % (i64(a.b) * a.hq));
  const int i0 = (a.q_tiles - 1 - int(blockIdx.x / (i64(a.b) * a.hq))) * kMmaTile;
  const Head<S, Args> x(a, head / a.hq, head % a.hq);
  const int b = x.b, h = x.h, row0 = i0 + 16 * warp + lane / 4;
  q_tile.copy(a.q, b, h, i0, a.sq, a.dqk);
  d_out_tile.copy(a.d_out, b, h, i0, a.sq, a.dv);
  const MmaRows<T, kHead, false> q = {q_tile, 16 * warp};
  const MmaRows<T, kWidth, false> d_out = {d_out_tile, 16 * warp};
  const RowStatistics row[2] = {row_statistics<S>(a, b, h, row0), row_statistics<S>(a, b, h, row0 + 8)};

  const Keys all = x.mask.of_tile(i0, kMmaTile);
  const int whole_from = x.mask.of(i0 + kMmaTile - 1).begin,
            whole_to = i0 + kMmaTile <= x.mask.rows ? x.mask.of(i0).end : 0;
  float out[kHead / 8][4] = {};
  for (int j0 = all.begin / kRows * kRows; j0 < all.end; j0 += kRows) {
    const bool masked = j0 < whole_from || j0 + kRows > whole_to;
    __syncthreads();
    k_tile.copy(a.k, b, x.k_head(), j0, a.skv, a.dqk);
    v_tile.copy(a.v, b, x.v_head(), j0, a.skv, a.dv);
    copies_asked();
    copies_there<0>();
    __syncthreads();
    float s[kN][4], dp[kN][4];
    multiply_rows(s, q, k_tile);
    multiply_rows(dp, d_out, v_tile);
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int i = row0 + 8 * r, j = j0 + n * 8 + 2 * t;
        float f[2];
        x.factors(f, i, j, x.mask.of(i));
#pragma unroll
        for (int c = 0; c < 2; ++c)
          gradient_of(s[n][2 * r + c], dp[n][2 * r + c], x, i, j + c, masked, row[r], f[c]);
      }
    // Keys that are no numbers have made dS so wherever they are seen; elsewhere they count for nothing.
    if ((masked || S::kBias) && has_not_finite(k_tile)) clear_not_finite(k_tile);
    u32 w[kN / 2][4];
    as_weights<T, kN>(w, dp);
    multiply_columns(out, w, k_tile);
  }
  store_rows(a.dq, b, h, row0, a.sq, a.dqk, out, x.scale);
}

// dK and dV: a block for each tile of keys of a head. It walks over the queries of all heads that read this one.
template <class S, class Args>
DEV void attention_dkv_mma(const Args& a) {
  typedef typename S::T T;
  constexpr int kHead = S::kHead, kWidth = S::kWidth, kRows = kMmaStream, kN = kRows / 8;
  __shared__ MmaTile<T, kHead> k_tile;
  __shared__ MmaTile<T, kWidth> v_tile;
  __shared__ MmaTile<T, kHead, kRows> q_tile;
  __shared__ MmaTile<T, kWidth, kRows> d_out_tile;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, t = lane % 4;
  const int head = int(blockIdx.x % (i64(a.b) * a.hk)), j0 = int(blockIdx.x / (i64(a.b) * a.hk)) * kMmaTile;
  const int b = head / a.hk, own = head % a.hk, group = a.hq / a.hk, row0 = j0 + 16 * warp + lane / 4;
  k_tile.copy(a.k, b, own, j0, a.skv, a.dqk);
  v_tile.copy(a.v, b, own, j0, a.skv, a.dv);
  const MmaRows<T, kHead, false> k = {k_tile, 16 * warp};
  const MmaRows<T, kWidth, false> v = {v_tile, 16 * warp};
  float dk[kHead / 8][4] = {}, dv[kWidth / 8][4] = {};
  for (int h = own * group; h < (own + 1) * group; ++h) {
    const Head<S, Args> x(a, b, h);
    for (int i0 = 0; i0 < x.mask.rows; i0 += kRows) {
      const Keys seen = x.mask.of_tile(i0, kRows);
      if (seen.begin >= j0 + kMmaTile || seen.end <= j0) continue;
      const bool masked = i0 + kRows > x.mask.rows || x.mask.of(i0 + kRows - 1).begin > j0 ||
                          x.mask.of(i0).end < j0 + kMmaTile;
      __syncthreads();
      q_tile.copy(a.q, b, h, i0, a.sq, a.dqk);
      d_out_tile.copy(a.d_out, b, h, i0, a.sq, a.dv);
      copies_asked();
      RowStatistics mine[kRows / 32];  // of the queries lane, lane + 32
#pragma unroll
      for (int r = 0; r < kRows / 32; ++r) mine[r] = row_statistics<S>(a, b, h, i0 + lane + 32 * r);
      copies_there<0>();
      __syncthreads();
      float s[kN][4], dp[kN][4];
      multiply_rows(s, k, q_tile);
      multiply_rows(dp, v, d_out_tile);
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int query = n * 8 + 2 * t + c;
          const RowStatistics row = {lane_value(mine[n / 4].lse, query % 32), lane_value(mine[n / 4].delta, query % 32)};
#pragma unroll
          for (int e = c; e < 4; e += 2) {
            const int i = i0 + query, j = row0 + e / 2 * 8;
            float f = 1.f;
            if constexpr (S::kDropout)
              if (x.mask.of(i).has(j)) f = x.factor(i, j);
            gradient_of(s[n][e], dp[n][e], x, i, j, masked, row, f);
          }
        }
      u32 p_f[kN / 2][4], ds[kN / 2][4];
      as_weights<T, kN>(p_f, s);
      as_weights<T, kN>(ds, dp);
      if (masked || S::kBias) {
        take_not_finite(dv, d_out_tile, [&](int r, int query) {
          const int i = i0 + query, j = row0 + 8 * r;
          return j < a.skv && row_statistics<S>(a, b, h, i).lse != least(0.f) &&
                 x.score(0.f, i, j, x.mask.of(i)) != least(0.f);
        });
        if (has_not_finite(q_tile)) clear_not_finite(q_tile);
      }
      multiply_columns(dv, p_f, d_out_tile);
      multiply_columns(dk, ds, q_tile);
    }
  }
  store_rows(a.dk, b, own, row0, a.skv, a.dqk, dk, S::scale(a));
  store_rows(a.dv_out, b, own, row0, a.skv, a.dv, dv, 1.f);
}

}  // namespace tw
