// The gradients of attention, each by a kernel of its own that computes the scores again: nothing is added by atomics,
// so that results are the same in every run.
#pragma once

#include "tilewright/attention.cuh"

namespace tw {

// The sums D of dO O over each row, a warp for each: what the gradient of the softmax subtracts.
template <class S, class Args>
DEV void attention_row_sums(const Args& a) {
  typedef typename S::F F;
  const i64 row = blockIdx.x * i64(kThreads / 32) + threadIdx.x / 32, head = row / a.sq;
  if (head >= i64(a.b) * a.hq) return;
  const i64 b = head / a.hq, h = head % a.hq, i = row % a.sq;
  F sum = F(0);
  for (int d = int(threadIdx.x) % 32; d < a.dv; d += 32)
    sum += F(a.d_out.get(b, h, i, d)) * F(a.o_in.get(b, h, i, d));
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) sum += shuffle(sum, lane);
  if (threadIdx.x % 32 == 0) a.delta[row] = sum;
}

template <class S, class Args>
DEV void load_statistics(const Args& a, Shared<S>& shared, int b, int h, int i0) {
  typedef typename S::F F;
  __syncthreads();
  const int i = i0 + int(threadIdx.x);
  if (int(threadIdx.x) < S::kTile) {
    const bool in = i < a.sq;
    shared.lse[threadIdx.x] = in ? F(a.stats_in.get(b, h, i, 0)) : least(F());
    shared.delta[threadIdx.x] = in ? a.delta[(i64(b) * a.hq + h) * a.sq + i] : F(0);
  }
}

enum class Gradient { Q, K, V, Bias };

// One tile of queries and keys: dS, or the weights P f that make dV. Queries are the block's rows, or its columns where
// it keeps keys. Reads the statistics that load_statistics put there.
template <Gradient kOf, class S, class Args, int kR>
DEV void gradient_tile(typename S::F (&s)[kR][kR], Shared<S>& shared, const Head<S, Args>& x, int i0, int j0) {
  typedef typename S::F F;
  constexpr bool kKeys = kOf == Gradient::K || kOf == Gradient::V;
  constexpr int kTile = S::kTile;
  const Args& a = x.a;
  const auto q = rows_of(a.q, x.b, x.h, i0, a.sq, kTile);
  const auto k = rows_of(a.k, x.b, x.k_head(), j0, a.skv, kTile);
  F dp[kR][kR];
  if constexpr (kOf != Gradient::V) {
    const auto d_out = rows_of(a.d_out, x.b, x.h, i0, a.sq, kTile);
    const auto v = rows_of(a.v, x.b, x.v_head(), j0, a.skv, kTile);
    if constexpr (kKeys) product(dp, shared, v, d_out, a.dv);
    else product(dp, shared, d_out, v, a.dv);
  }
  if constexpr (kKeys) product(s, shared, k, q, a.dqk);
  else product(s, shared, q, k, a.dqk);
#pragma unroll
  for (int r = 0; r < kR; ++r)
#pragma unroll
    for (int c = 0; c < kR; ++c) {
      const int row = ty() + kSide * r, column = tx() + kSide * c;
      const int query = kKeys ? column : row, i = i0 + query, j = j0 + (kKeys ? row : column);
      const F lse = shared.lse[query], score = x.score(s[r][c], i, j, x.mask.of(i));
      F p = F(0), g = F(0);
      // A query whose Stats are -inf kept nothing.
      if (score != least(F()) && lse != least(F())) {
        p = exp(score - lse);
        F f = F(1);
        if constexpr (S::kDropout) f = x.factor(i, j);
        if constexpr (kOf == Gradient::V) g = p * f;
        else g = p * (dp[r][c] * f - shared.delta[query]);
      }
      s[r][c] = g;
    }
}

// dQ: a block for each tile of queries of a head, and for each kWidth columns of the result.
template <class S, class Args>
DEV void attention_dq(const Args& a) {
  typedef typename S::F F;
  constexpr int kTile = S::kTile, kR = kTile / kSide, kC = S::kWidth / kSide;
  __shared__ Shared<S> shared;
  i64 block = blockIdx.x;
  const int c0 = int(block % a.chunks) * S::kWidth;
  block /= a.chunks;
  const int head = int(block % (i64(a.b) * a.hq)), i0 = (a.q_tiles - 1 - int(block / (i64(a.b) * a.hq))) * kTile;
  const Head<S, Args> x(a, head / a.hq, head % a.hq);
  F out[kR][kC] = {};
  load_statistics(a, shared, x.b, x.h, i0);
  const Keys all = x.mask.of_tile(i0, kTile);
  for (int j0 = all.begin / kTile * kTile; j0 < all.end; j0 += kTile) {
    F s[kR][kR];
    gradient_tile<Gradient::Q>(s, shared, x, i0, j0);
    put_weights(shared, s);
    accumulate(out, shared, rows_of(a.k, x.b, x.k_head(), j0, a.skv, kTile), c0, a.dqk);
  }
#pragma unroll
  for (int r = 0; r < kR; ++r) {
    const int i = i0 + ty() + kSide * r;
    // What is 0, because nothing was added to it, stays so where the scale is not finite.
#pragma unroll
    for (int c = 0; c < kC; ++c) out[r][c] = out[r][c] == F(0) ? F(0) : out[r][c] * x.scale;
    if (i < a.sq) store_row(a.dq, x.b, x.h, i, out[r], c0, a.dqk);
  }
}

// dK and dV: a block for each tile of keys of a head, and for each kWidth columns of the result. It walks over the
// queries of all heads that read this one.
template <Gradient kOf, class S, class Args>
DEV void attention_dkv(const Args& a) {
  typedef typename S::F F;
  constexpr bool kK = kOf == Gradient::K;
  constexpr int kTile = S::kTile, kR = kTile / kSide, kC = S::kWidth / kSide;
  __shared__ Shared<S> shared;
  const int heads = kK ? a.hk : a.hv, group = a.hq / heads, width = kK ? a.dqk : a.dv;
  i64 block = blockIdx.x;
  const int c0 = int(block % a.chunks) * S::kWidth;
  block /= a.chunks;
  const int head = int(block % (i64(a.b) * heads)), j0 = int(block / (i64(a.b) * heads)) * kTile;
  const int b = head / heads, own = head % heads;
  F out[kR][kC] = {};
  for (int h = own * group; h < (own + 1) * group; ++h) {
    const Head<S, Args> x(a, b, h);
    for (int i0 = 0; i0 < x.mask.rows; i0 += kTile) {
      const Keys seen = x.mask.of_tile(i0, kTile);
      if (seen.begin >= j0 + kTile || seen.end <= j0) continue;
      load_statistics(a, shared, b, h, i0);
      F s[kR][kR];
      gradient_tile<kOf>(s, shared, x, i0, j0);
      put_weights(shared, s);
      if constexpr (kK) accumulate(out, shared, rows_of(a.q, b, h, i0, a.sq, kTile), c0, width);
      else accumulate(out, shared, rows_of(a.d_out, b, h, i0, a.sq, kTile), c0, width);
    }
  }
  const F scale = kK ? S::scale(a) : F(1);
#pragma unroll
  for (int r = 0; r < kR; ++r) {
    const int j = j0 + ty() + kSide * r;
#pragma unroll
    for (int c = 0; c < kC; ++c) out[r][c] = out[r][c] == F(0) ? F(0) : out[r][c] * scale;
    if (j >= a.skv) continue;
    if constexpr (kK) store_row(a.dk, b, own, j, out[r], c0, width);
    else store_row(a.dv_out, b, own, j, out[r], c0, width);
  }
}

// dBias: a block for each tile of it. What it lacks of the scores' dims is summed here, dim by dim in order.
template <class S, class Args>
DEV void attention_dbias(const Args& a) {
  typedef typename S::F F;
  constexpr int kTile = S::kTile, kR = kTile / kSide, kWeights = Shared<S>::kWeights;
  __shared__ Shared<S> shared;
  const bool one_b = a.bias_dim[0] == 1, one_h = a.bias_dim[1] == 1, one_i = a.bias_dim[2] == 1,
             one_j = a.bias_dim[3] == 1;
  const int i_tiles = (a.bias_dim[2] + kTile - 1) / kTile, j_tiles = (a.bias_dim[3] + kTile - 1) / kTile;
  i64 block = blockIdx.x;
  const int j_own = int(block % j_tiles) * kTile;
  block /= j_tiles;
  const int i_own = int(block % i_tiles) * kTile;
  block /= i_tiles;
  const int h_own = int(block % a.bias_dim[1]), b_own = int(block / a.bias_dim[1]);
  F sum[kR][kR] = {};
  for (int b = b_own; b < (one_b ? a.b : b_own + 1); ++b)
    for (int h = h_own; h < (one_h ? a.hq : h_own + 1); ++h) {
      const Head<S, Args> x(a, b, h);
      for (int i0 = i_own; i0 < (one_i ? x.mask.rows : i_own + 1); i0 += kTile) {
        const Keys all = x.mask.of_tile(i0, kTile);
        const int begin = ::max(all.begin / kTile * kTile, one_j ? 0 : j_own);
        const int end = one_j ? all.end : ::min(all.end, j_own + kTile);
        if (begin >= end) continue;
        load_statistics(a, shared, b, h, i0);
        for (int j0 = begin; j0 < end; j0 += kTile) {
          F s[kR][kR];
          gradient_tile<Gradient::Bias>(s, shared, x, i0, j0);
#pragma unroll
          for (int r = 0; r < kR; ++r)
#pragma unroll
            for (int c = 0; c < kR; ++c) sum[r][c] += s[r][c];
        }
      }
    }
  if (!one_i && !one_j) {
#pragma unroll
    for (int r = 0; r < kR; ++r)
#pragma unroll
      for (int c = 0; c < kR; ++c) {
        const int i = i_own + ty() + kSide * r, j = j_own + tx() + kSide * c;
        if (i < a.bias_dim[2] && j < a.bias_dim[3]) a.dbias.put(b_own, h_own, i, j, sum[r][c]);
      }
    return;
  }
  put_weights(shared, sum);
  __syncthreads();
  const int t = int(threadIdx.x);
  F line = F(0);
  if (one_i && !one_j) {
    if (t >= kTile || j_own + t >= a.bias_dim[3]) return;
    for (int r = 0; r < kTile; ++r) line += shared.weight[r * kWeights + t];
    a.dbias.put(b_own, h_own, 0, j_own + t, line);
    return;
  }
  for (int c = 0; t < kTile && c < kTile; ++c) line += shared.weight[t * kWeights + c];
  if (!one_i) {
    if (t < kTile && i_own + t < a.bias_dim[2]) a.dbias.put(b_own, h_own, i_own + t, 0, line);
    return;
  }
  if (t < kTile) shared.lse[t] = line;
  __syncthreads();
  if (t > 0) return;
  for (int r = 1; r < kTile; ++r) line += shared.lse[r];
  a.dbias.put(b_own, h_own, 0, 0, line);
}

// dSink of a head: -sum exp(sink - Stats) D over the queries that see a key.
template <class S, class Args>
DEV void attention_dsink(const Args& a) {
  typedef typename S::F F;
  __shared__ F sums[kThreads / 32];
  const int h = int(blockIdx.x);
  const F sink = S::sink(a, 0, h, 0, 0);
  F sum = F(0);
  for (int b = 0; b < a.b; ++b) {
    const Mask mask = mask_of<S>(a, b);
    for (int i = int(threadIdx.x); i < mask.rows; i += kThreads) {
      const Keys keys = mask.of(i);
      const F lse = F(a.stats_in.get(b, h, i, 0));
      if (keys.begin < keys.end && lse != least(F()))
        sum += exp(sink - lse) * a.delta[(i64(b) * a.hq + h) * a.sq + i];
    }
  }
  sum = block_reduce<Sum>(sum, sums);
  if (threadIdx.x == 0) a.dsink.put(0, h, 0, 0, -sum);
}

}  // namespace tw
