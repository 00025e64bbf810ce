// Attention tile by tile: what every kernel of it shares, and plain kernels for all types, layouts and sizes. A block
// has 256 threads, 16 by 16; it keeps the rows of one tile and walks over the tiles of the other side. S, a struct in
// the generated text, says types, tile sizes and which options there are; Args, its arguments.
#pragma once

#include "tilewright/philox.cuh"

namespace tw {

// Four dims in memory: batch, head, row, column.
template <class T>
struct Tensor {
  T* data;
  i64 stride[4];
  __forceinline__ T* at(i64 b, i64 h, i64 i, i64 j) const {
    return data + b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3];
  }
  __forceinline__ auto get(i64 b, i64 h, i64 i, i64 j) const { return T::get(*at(b, h, i, j)); }
  template <class F>
  __forceinline__ void put(i64 b, i64 h, i64 i, i64 j, F x) const {
    *at(b, h, i, j) = T::set(x);
  }
};

DEV float least(float) { return -from_bits(0x7f800000u); }
DEV double least(double) { return -double(from_bits(0x7f800000u)); }
DEV bool finite(float x) { return abs(x) <= from_bits(0x7f7fffffu); }
DEV bool finite(double x) { return x - x == 0; }

// --- masks and scores ------------------------------------------------------------------------------------------------

// The keys [begin, end) that a query sees. Neither end falls from one query of a batch to the next.
struct Keys {
  int begin, end;
  __forceinline__ bool has(int j) const { return j >= begin && j < end; }
};

// Of one batch: how many queries and keys there are, and what the diagonal bounds leave.
struct Mask {
  int rows, keys, left, right;  // query i sees the keys from i - left on and before i + right

  // Queries beyond the length see the empty range behind its keys.
  __forceinline__ Keys of(int i) const {
    if (i >= rows) return {keys, keys};
    const int begin = ::min(::max(i - left, 0), keys), end = ::min(::max(i + right, 0), keys);
    return {begin, ::max(begin, end)};
  }
  // What the queries [i0, i0 + count) see together.
  __forceinline__ Keys of_tile(int i0, int count) const {
    const int last = ::min(i0 + count, rows) - 1;
    if (last < i0) return {0, 0};
    return {of(i0).begin, of(last).end};
  }
};

template <class S, class Args>
DEV Mask mask_of(const Args& a, int b) {
  Mask m = {a.sq, a.skv, 0, 0};
  if constexpr (S::kLengths) {
    const i64 rows = i64(a.seq_q.at(b, 0, 0, 0)->v), keys = i64(a.seq_kv.at(b, 0, 0, 0)->v);
    m.rows = rows < 0 ? 0 : rows < a.sq ? int(rows) : a.sq;
    m.keys = keys < 0 ? 0 : keys < a.skv ? int(keys) : a.skv;
  }
  // Bounds that there are not lie beyond everything.
  const int shift = a.bottom_right ? m.keys - m.rows : 0;
  m.left = a.left - shift, m.right = a.right + shift;
  return m;
}

// Powers of 2^(-8/n), n the largest power of two in `heads`; the heads beyond take the odd powers of 2^(-4/n).
DEV double alibi_slope(int h, int heads) {
  int n = 1;
  while (2 * n <= heads) n *= 2;
  return h < n ? ::exp2(-8.0 * double(h + 1) / double(n)) : ::exp2(-4.0 * double(2 * (h - n) + 1) / double(n));
}

// The scores of one batch and query head.
template <class S, class Args>
struct Head {
  typedef typename S::F F;
  const Args& a;
  int b, h;
  Mask mask;
  F scale, slope;

  __forceinline__ Head(const Args& a_, int b_, int h_) : a(a_), b(b_), h(h_), mask(mask_of<S>(a_, b_)) {
    scale = S::scale(a), slope = F(0);
    if constexpr (S::kAlibi) slope = F(alibi_slope(h, a.hq));
  }
  __forceinline__ int k_head() const { return h / (a.hq / a.hk); }
  __forceinline__ int v_head() const { return h / (a.hq / a.hv); }
  // What a product of Q and K becomes; -inf where the key is excluded, whatever was there.
  __forceinline__ F score(F x, int i, int j, Keys keys) const {
    if (!keys.has(j)) return least(F());
    x = x * scale;
    if constexpr (S::kBias) {
      const F bias = S::bias(a, b, h, i, j);
      if (bias == least(F())) return bias;
      x += bias;
    }
    if constexpr (S::kAlibi) x += slope * F(j - i);
    return x;
  }
  __forceinline__ u64 element(int i, int j) const { return u64((i64(b) * a.hq + h) * a.sq + i) * u64(a.skv) + u64(j); }
  // What dropout multiplies a weight with.
  __forceinline__ F factor(int i, int j) const {
    F f = F(1);
    if constexpr (S::kPhilox) f = S::philox(a).below(element(i, j), a.keep_below) ? F(a.keep_scale) : F(0);
    if constexpr (S::kDropMask) f = S::drop_mask(a, b, h, i, j);
    if constexpr (S::kDropScale) f = f * S::drop_scale(a, b, h, i, j);
    return f;
  }
  // Of key j and the next one, as far as the query sees them: they mostly share a block of random words.
  __forceinline__ void factors(F (&f)[2], int i, int j, Keys keys) const {
    f[0] = f[1] = F(1);
    if constexpr (S::kPhilox) {
      const Philox random = S::philox(a);
      const u64 e = element(i, j);
      const Philox::Block block = random.block(e / 4);
      const u32 at = u32(e) % 4;
      f[0] = Philox::pick(block, at) < a.keep_below ? F(a.keep_scale) : F(0);
      f[1] = (at < 3 ? Philox::pick(block, at + 1) : random.word(e + 1)) < a.keep_below ? F(a.keep_scale) : F(0);
    } else if constexpr (S::kDropout) {
      if (keys.has(j)) f[0] = factor(i, j);
      if (keys.has(j + 1)) f[1] = factor(i, j + 1);
    }
  }
};

// --- tiles -----------------------------------------------------------------------------------------------------------

constexpr int kThreads = 256, kSide = 16, kDepth = 32, kValueRows = 16;

constexpr int largest(int x, int y) { return x > y ? x : y; }

template <class S>
struct Shared {
  typedef typename S::F F;
  static constexpr int kTile = S::kTile, kRow = kDepth + 4, kWeights = kTile + 4;
  alignas(16) F operand[largest(2 * kTile * kRow, kValueRows * S::kWidth)];
  alignas(16) F weight[kTile * kWeights];  // by row of the block
  F lse[kTile], delta[kTile];              // by query
};

// Rows of a head, `count` of them: those behind are 0.
template <class T>
struct Rows {
  const T* data;
  i64 row, column;
  int count;
};
template <class T>
DEV Rows<T> rows_of(const Tensor<const T>& t, int b, int h, int first, int size, int tile) {
  return {t.at(b, h, first, 0), t.stride[2], t.stride[3], ::min(size - first, tile)};
}

// Rows and columns of a tile that a thread has: ty + 16 r of its rows, tx + 16 c of its columns.
DEV int tx() { return int(threadIdx.x) % kSide; }
DEV int ty() { return int(threadIdx.x) / kSide; }

// s[r][c] = the product of row r of x and row c of y, over `depth` columns.
template <class S, class X, class Y, int kR>
DEV void product(typename S::F (&s)[kR][kR], Shared<S>& shared, const Rows<X>& x, const Rows<Y>& y, int depth) {
  typedef typename S::F F;
  typedef vec<F, 4> V;
  constexpr int kTile = S::kTile, kRow = Shared<S>::kRow;
  F *const left = shared.operand, *const right = left + kTile * kRow;
#pragma unroll
  for (int r = 0; r < kR; ++r)
#pragma unroll
    for (int c = 0; c < kR; ++c) s[r][c] = F(0);
  constexpr int kStep = kThreads / kDepth;  // rows between those that a thread loads
  const int r0 = int(threadIdx.x) / kDepth, d = int(threadIdx.x) % kDepth;
  const X* from_x = x.data + r0 * x.row + d * x.column;
  const Y* from_y = y.data + r0 * y.row + d * y.column;
  for (int d0 = 0; d0 < depth; d0 += kDepth) {
    const bool in = d0 + d < depth;
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kTile; n += kStep) {
      const int r = r0 + n;
      left[r * kRow + d] = in && r < x.count ? F(X::get(from_x[n * x.row])) : F(0);
      right[r * kRow + d] = in && r < y.count ? F(Y::get(from_y[n * y.row])) : F(0);
    }
    from_x += kDepth * x.column, from_y += kDepth * y.column;
    __syncthreads();
#pragma unroll 1
    for (int k0 = 0; k0 < kDepth; k0 += 4) {
      V p[kR], q[kR];
#pragma unroll
      for (int r = 0; r < kR; ++r) {
        p[r] = *reinterpret_cast<const V*>(left + (ty() + kSide * r) * kRow + k0);
        q[r] = *reinterpret_cast<const V*>(right + (tx() + kSide * r) * kRow + k0);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int r = 0; r < kR; ++r)
#pragma unroll
          for (int c = 0; c < kR; ++c) s[r][c] += p[r].e[k] * q[c].e[k];
    }
  }
}

// out[r][c] += the sum over the tile's columns k of weight[r][k] times row k of x: columns c0 and on. A thread has four
// neighbours in every 64 columns. A weight of 0 counts for nothing, whatever x holds there.
template <class S, class X, int kR, int kC>
DEV void accumulate(typename S::F (&out)[kR][kC], Shared<S>& shared, const Rows<X>& x, int c0, int width) {
  typedef typename S::F F;
  typedef vec<F, 4> V;
  constexpr int kTile = S::kTile, kWidth = S::kWidth, kWeights = Shared<S>::kWeights;
  constexpr int kStep = kThreads / kWidth;  // rows between those that a thread loads
  const int first = int(threadIdx.x) / kWidth, column = int(threadIdx.x) % kWidth;
  const X* const from = x.data + first * x.row + (c0 + column) * x.column;
  F* const value = shared.operand;
  for (int k0 = 0; k0 < kTile && k0 < x.count; k0 += kValueRows) {
    __syncthreads();
    bool all_finite = true;
#pragma unroll
    for (int n = 0; n < kValueRows; n += kStep) {
      F v = F(0);
      if (k0 + first + n < x.count && c0 + column < width) v = F(X::get(from[(k0 + n) * x.row]));
      all_finite = all_finite && finite(v);
      value[(first + n) * kWidth + column] = v;
    }
    const bool careful = __syncthreads_or(!all_finite);
#pragma unroll 1
    for (int k = 0; k < kValueRows; k += 4) {
      V w[kR];
#pragma unroll
      for (int r = 0; r < kR; ++r)
        w[r] = *reinterpret_cast<const V*>(shared.weight + (ty() + kSide * r) * kWeights + k0 + k);
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int c = 0; c < kC; c += 4) {
          const V v = *reinterpret_cast<const V*>(value + (k + n) * kWidth + c * kSide + tx() * 4);
#pragma unroll
          for (int r = 0; r < kR; ++r)
#pragma unroll
            for (int m = 0; m < 4; ++m)
              out[r][c + m] += w[r].e[n] * (careful && w[r].e[n] == F(0) ? F(0) : v.e[m]);
        }
    }
  }
}

template <class S, int kR>
DEV void put_weights(Shared<S>& shared, const typename S::F (&s)[kR][kR]) {
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kR; ++r)
#pragma unroll
    for (int c = 0; c < kR; ++c)
      shared.weight[(ty() + kSide * r) * Shared<S>::kWeights + tx() + kSide * c] = s[r][c];
}

// Over the 16 threads of a row.
template <class R, class F>
DEV F row_reduce(F x) {
#pragma unroll
  for (int lane = kSide / 2; lane > 0; lane /= 2) x = R::join(x, shuffle(x, lane));
  return x;
}

// Row r of a result, columns c0 and on.
template <class T, class F, int kC>
DEV void store_row(const Tensor<T>& t, int b, int h, int i, const F (&x)[kC], int c0, int width) {
#pragma unroll
  for (int c = 0; c < kC; c += 4)
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const int column = c0 + c * kSide + tx() * 4 + m;
      if (column < width) t.put(b, h, i, column, x[c + m]);
    }
}

// --- forward -----------------------------------------------------------------------------------------------------------

// What is left to do for a row once its keys are through: the sink joins as one more logit, statistics are stored. The
// factor of the row's sums of values; a row that kept no key is 0.
template <class S, class Args>
DEV typename S::F finish_row(const Args& a, int b, int h, int i, typename S::F top, typename S::F total, bool writes) {
  typedef typename S::F F;
  const bool kept = !(total == F(0));  // a NaN counts as kept
  F factor = kept ? F(1) / total : F(0);
  if constexpr (S::kSink)
    if (kept) {
      const F sink = S::sink(a, 0, h, 0, 0), more = max(top, sink);
      const F again = exp(top - more);
      total = total * again + exp(sink - more);
      top = more, factor = again / total;
    }
  if (writes) {
    if constexpr (S::kStats) a.stats.put(b, h, i, 0, kept ? top + log(total) : least(F()));
    if constexpr (S::kMax) a.max.put(b, h, i, 0, kept ? top : least(F()));
    if constexpr (S::kSumExp) a.sum_exp.put(b, h, i, 0, kept ? total : F(0));
  }
  return factor;
}

// A block for each tile of queries of a head, and for each kWidth columns of the result. The last tiles come first:
// under a causal mask they have the most keys.
template <class S, class Args>
DEV void attention_forward(const Args& a) {
  typedef typename S::F F;
  constexpr int kTile = S::kTile, kR = kTile / kSide, kC = S::kWidth / kSide;
  __shared__ Shared<S> shared;
  i64 block = blockIdx.x;
  const int c0 = int(block % a.chunks) * S::kWidth;
  block /= a.chunks;
  const int head = int(block % (i64(a.b) * a.hq)), i0 = (a.q_tiles - 1 - int(block / (i64(a.b) * a.hq))) * kTile;
  const Head<S, Args> x(a, head / a.hq, head % a.hq);
  const int b = x.b, h = x.h;

  F out[kR][kC], top[kR], total[kR];
  Keys keys[kR];
#pragma unroll
  for (int r = 0; r < kR; ++r) {
    top[r] = least(F()), total[r] = F(0), keys[r] = x.mask.of(i0 + ty() + kSide * r);
#pragma unroll
    for (int c = 0; c < kC; ++c) out[r][c] = F(0);
  }
  const Keys all = x.mask.of_tile(i0, kTile);
  const auto q = rows_of(a.q, b, h, i0, a.sq, kTile);
  for (int j0 = all.begin / kTile * kTile; j0 < all.end; j0 += kTile) {
    F s[kR][kR];
    product(s, shared, q, rows_of(a.k, b, x.k_head(), j0, a.skv, kTile), a.dqk);
#pragma unroll
    for (int r = 0; r < kR; ++r) {
      const int i = i0 + ty() + kSide * r;
      F most = top[r];
#pragma unroll
      for (int c = 0; c < kR; ++c) {
        s[r][c] = x.score(s[r][c], i, j0 + tx() + kSide * c, keys[r]);
        most = max(most, s[r][c]);
      }
      most = row_reduce<Max>(most);
      const F shift = most == least(F()) ? F(0) : most, again = exp(top[r] - shift);
      F sum = F(0);
#pragma unroll
      for (int c = 0; c < kR; ++c) {
        s[r][c] = exp(s[r][c] - shift), sum += s[r][c];
        if constexpr (S::kDropout)
          if (keys[r].has(j0 + tx() + kSide * c)) s[r][c] *= x.factor(i, j0 + tx() + kSide * c);
      }
      total[r] = total[r] * again + row_reduce<Sum>(sum), top[r] = most;
#pragma unroll
      for (int c = 0; c < kC; ++c) out[r][c] *= again;
    }
    put_weights(shared, s);
    accumulate(out, shared, rows_of(a.v, b, x.v_head(), j0, a.skv, kTile), c0, a.dv);
  }
#pragma unroll
  for (int r = 0; r < kR; ++r) {
    const int i = i0 + ty() + kSide * r;
    if (i >= a.sq) continue;
    const F factor = finish_row<S>(a, b, h, i, top[r], total[r], c0 == 0 && tx() == 0);
#pragma unroll
    for (int c = 0; c < kC; ++c) out[r][c] = total[r] == F(0) ? F(0) : out[r][c] * factor;
    store_row(a.o, b, h, i, out[r], c0, a.dv);
  }
}

// The keep mask of dropout as a tensor: a thread for each element.
template <class S, class Args>
DEV void attention_dump(const Args& a) {
  const i64 e = blockIdx.x * i64(kThreads) + threadIdx.x;
  if (e >= i64(a.b) * a.hq * a.sq * a.skv) return;
  const i64 row = e / a.skv, head = row / a.sq;
  bool keep = true;
  if constexpr (S::kPhilox) keep = S::philox(a).below(u64(e), a.keep_below);
  a.dump.put(head / a.hq, head % a.hq, row % a.sq, e % a.skv, keep ? 1.f : 0.f);
}

}  // namespace tw
