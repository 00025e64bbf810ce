// Attention backward. P is recomputed from Stats, tile by tile, once: a task owns some tiles of keys of some heads,
// makes their dK and dV, and adds what they give to dQ to sums of its own, which are joined in order at the end; so no
// sum depends on who finishes first. dBias and dSink are made by passes of their own.
#include "engines/cpu/attention_bf16.h"
#include "engines/cpu/attention_problem.h"
#include "engines/cpu/block.h"

namespace tilewright::cpu {
namespace {

// How a shape is cut. A task is one part of the tiles of keys, every parts-th one, for the query heads of one group:
// neighbouring tiles have unlike work under a causal mask.
struct Cut {
  int64_t group;   // query heads that share heads of K and of V with no others
  int64_t groups;  // of all batches
  int64_t parts;
  int64_t query_tiles, key_tiles;

  explicit Cut(const ops::AttentionOptions& o) {
    group = o.hq / std::gcd(o.hk, o.hv);
    groups = o.b * (o.hq / group);
    query_tiles = blocks_of(o.sq), key_tiles = blocks_of(o.skv);
    const int64_t wanted = groups > 0 ? blocks_of(kEnoughTasks, groups) : 1;
    parts = std::clamp<int64_t>(key_tiles, 1, std::min<int64_t>(wanted, 8));
  }
};

// The workspace: lse and delta by query, dQ by part and query, and which of its tiles were written.
template <class T>
struct Workspace {
  T *lse, *delta, *dq;
  uint8_t* written;
  int64_t bytes;

  Workspace(const ops::AttentionOptions& o, const Cut& cut, char* base) {
    Cutter cutter(base);
    const int64_t queries = o.b * o.hq * o.sq;
    lse = cutter.take<T>(queries), delta = cutter.take<T>(queries);
    dq = cutter.take<T>(cut.parts * queries * padded(o.dqk));
    written = cutter.take<uint8_t>(cut.parts * o.b * o.hq * cut.query_tiles);
    bytes = cutter.bytes();
  }
};

template <class T>
class Backward {
 public:
  Backward(const AttentionRun<T>& run, const Cut& cut, const Workspace<T>& workspace)
      : run_(run),
        o_(run.o),
        p_(run.p),
        cut_(cut),
        work_(workspace),
        math_(tile_math<T>()),
        d_pad_(padded(o_.dqk)),
        v_pad_(padded(o_.dv)) {
    q_ = run.memory(p_.q), k_ = run.memory(p_.k), v_ = run.memory(p_.v);
    o_in_ = run.memory(p_.o_in), d_out_ = run.memory(p_.d_out), stats_ = run.memory(p_.stats_in);
    for (size_t i = 0; i < p_.out.size(); ++i) out_[i] = p_.out[i] ? run.memory(p_.out[i]) : nullptr;
    const bool even = o_.dqk % 2 == 0 && o_.dv % 2 == 0;
    if (sizeof(T) == sizeof(float) && even && has_pairs(p_.q.type, p_.q.stride, q_) &&
        has_pairs(p_.k.type, p_.k.stride, k_) && has_pairs(p_.v.type, p_.v.stride, v_) &&
        has_pairs(p_.d_out.type, p_.d_out.stride, d_out_))
      pairs_ = bf16_math();
  }

  // Stats and delta = sum dO O of one tile of queries.
  void prepare(int64_t head, int64_t i0) const {
    const int64_t m = std::min(kTile, o_.sq - i0), b = head / o_.hq, h = head % o_.hq;
    const Tiles x = tiles();
    const TileRows<T> d_out = run_.rows(p_.d_out, d_out_, b, h, i0, m, o_.dv, x.d_out, v_pad_);
    const TileRows<T> o = run_.rows(p_.o_in, o_in_, b, h, i0, m, o_.dv, x.dv, v_pad_);
    T *lse = work_.lse + head * o_.sq + i0, *delta = work_.delta + head * o_.sq + i0;
    for (int64_t i = 0; i < m; ++i) {
      lse[i] = T(run_.element(p_.stats_in, stats_, b, h, i0 + i));
      T part[8] = {};
      const T *y = d_out.at + i * d_out.ld, *z = o.at + i * o.ld;
      int64_t d = 0;
      for (; d + 8 <= o_.dv; d += 8)
        for (int w = 0; w < 8; ++w) part[w] += y[d + w] * z[d + w];
      for (; d < o_.dv; ++d) part[0] += y[d] * z[d];
      delta[i] = ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
    }
  }

  // dK, dV and the part of dQ of one task.
  void keys(int64_t task) const {
    const int64_t part = task % cut_.parts, unit = task / cut_.parts, per_batch = o_.hq / cut_.group;
    const int64_t b = unit / per_batch, h_begin = unit % per_batch * cut_.group, h_end = h_begin + cut_.group;
    std::fill_n(written(part, b, h_begin, 0), cut_.group * cut_.query_tiles, uint8_t{0});
    for (int64_t tile = part; tile < cut_.key_tiles; tile += cut_.parts) {
      const int64_t j0 = tile * kTile, n = std::min(kTile, o_.skv - j0);
      Tiles x = tiles();
      for (int64_t h = h_begin; h < h_end; ++h) {
        const int64_t kh = o_.k_head(h), vh = o_.v_head(h);
        if (h == h_begin || kh != o_.k_head(h - 1)) load_k(b, h, j0, n, x), std::fill_n(x.dk, kTile * d_pad_, T(0));
        if (h == h_begin || vh != o_.v_head(h - 1)) load_v(b, h, j0, n, x), std::fill_n(x.dv, kTile * v_pad_, T(0));
        for (int64_t i0 = 0; i0 < o_.sq; i0 += kTile) add(part, b, h, i0, j0, n, x);
        if (h + 1 == h_end || kh != o_.k_head(h + 1)) {
          scale(x.dk, n);
          store(ops::kOutDK, b, kh, j0, n, o_.dqk, x.dk, d_pad_);
        }
        if (h + 1 == h_end || vh != o_.v_head(h + 1)) store(ops::kOutDV, b, vh, j0, n, o_.dv, x.dv, v_pad_);
      }
    }
  }

  // dQ of one tile of queries.
  void join(int64_t head, int64_t i0) const {
    const int64_t m = std::min(kTile, o_.sq - i0), b = head / o_.hq, h = head % o_.hq;
    T* const sum = tiles().dk;
    std::fill_n(sum, m * d_pad_, T(0));
    for (int64_t part = 0; part < cut_.parts; ++part) {
      if (!*written(part, b, h, i0 / kTile)) continue;
      const T* from = dq(part, b, h, i0);
      for (int64_t e = 0; e < m * d_pad_; ++e) sum[e] += from[e];
    }
    scale(sum, m);
    store(ops::kOutDQ, b, h, i0, m, o_.dqk, sum, d_pad_);
  }

  // One tile of dBias, summed over the dims that it lacks.
  void bias(int64_t db, int64_t dh, int64_t di, int64_t dj) const {
    const Dims& dim = p_.dbias_dim;
    const bool whole_b = dim[0] == 1, whole_h = dim[1] == 1, whole_i = dim[2] == 1, whole_j = dim[3] == 1;
    Tiles x = tiles();
    T* sum = x.sum;
    std::fill_n(sum, kTile * kTile, T(0));
    const int64_t i_end = whole_i ? o_.sq : std::min(o_.sq, di + kTile);
    const int64_t j_end = whole_j ? o_.skv : std::min(o_.skv, dj + kTile);
    for (int64_t b = whole_b ? 0 : db; b < (whole_b ? o_.b : db + 1); ++b)
      for (int64_t h = whole_h ? 0 : dh; h < (whole_h ? o_.hq : dh + 1); ++h)
        for (int64_t j0 = dj; j0 < j_end; j0 += kTile) {
          const int64_t n = std::min(kTile, j_end - j0);
          load_k(b, h, j0, n, x), load_v(b, h, j0, n, x);
          for (int64_t i0 = di; i0 < i_end; i0 += kTile) {
            Rows r;
            const ScoreTile t{b, h, i0, std::min(kTile, i_end - i0), j0, n, x.s, kTile, 1};
            if (!gradients(t, r, x)) continue;
            for (int64_t i = 0; i < t.rows; ++i)
              for (int64_t j = 0; j < n; ++j) sum[(whole_i ? 0 : i) * kTile + (whole_j ? 0 : j)] += x.dp[i * kTile + j];
          }
        }
    const int64_t rows = whole_i ? 1 : i_end - di, cols = whole_j ? 1 : j_end - dj;
    store(ops::kOutDBias, db, dh, di, rows, cols, sum, kTile, dj);
  }

  void sink(int64_t h) const {
    const T sink = T(run_.element(p_.sink, run_.memory(p_.sink), 0, h, 0));
    Rows r;
    T sum = 0;
    for (int64_t b = 0; b < o_.b; ++b)
      for (int64_t i0 = 0; i0 < o_.sq; i0 += kTile) {
        const int64_t m = std::min(kTile, o_.sq - i0);
        load_rows(b, h, i0, m, r);
        for (int64_t i = 0; i < m; ++i)
          if (!r.range[i].empty() && r.lse[i] != kNone) sum += std::exp(sink - r.lse[i]) * r.delta[i];
      }
    const AttentionOperand& to = p_.out[ops::kOutDSink];
    store_element(out_[ops::kOutDSink], to.type, to.at(0, h, 0, 0), double(-sum));
  }

 private:
  using ScoreTile = typename AttentionRun<T>::Tile;
  static constexpr T kNone = -std::numeric_limits<T>::infinity();  // Stats of a query that kept nothing

  // What belongs to the rows of a tile of queries.
  struct Rows {
    KeyRange range[kTile], all;
    T lse[kTile], delta[kTile];
  };
  // The same operands as pairs of BFLOAT16: K and V as columns and K as rows; Q, dO, P and dS as pairs of queries, and
  // dS as pairs of keys. Which of the tiles in work are normal numbers, so that their pairs serve.
  struct PairTiles {
    uint32_t *kt, *vt, *k, *q, *d_out, *p, *ds, *ds_rows;
    bool k_serves = false, v_serves = false, q_serves = false, d_out_serves = false;
  };
  // Memory for tiles, and where the operands of the tile in work are: there, or in the tensors.
  struct Tiles {
    T *q, *d_out, *k, *kt, *v, *vt, *s, *dp, *f, *dk, *dv, *sum;
    PairTiles pair;
    TileRows<T> q_rows{}, d_out_rows{}, k_rows{};
    const uint16_t *q16 = nullptr, *d_out16 = nullptr;
  };

  Tiles tiles() const {
    const int64_t on = pairs_ ? 1 : 0, half = kTile / 2;
    const auto [q, d_out, k, kt, v, vt, s, dp, f, dk, dv, sum, a, b, c, d, e, g, h, i] =
        TileScratch<T>::template get<20>(
            {kTile * d_pad_,          kTile * v_pad_,         kTile * d_pad_,
             o_.dqk * kTile,          kTile * v_pad_,         o_.dv * kTile,
             kTile * kTile,           kTile * kTile,          run_.drops() ? kTile * kTile : 0,
             kTile * d_pad_,          kTile * v_pad_,         kTile * kTile,
             on * o_.dqk / 2 * kTile, on * o_.dv / 2 * kTile, on * half * d_pad_,
             on * half * d_pad_,      on * half * v_pad_,     on * half * kTile,
             on * half * kTile,       on * kTile * half});
    const auto words = [](T* tile) { return reinterpret_cast<uint32_t*>(tile); };
    return {q,
            d_out,
            k,
            kt,
            v,
            vt,
            s,
            dp,
            f,
            dk,
            dv,
            sum,
            {words(a), words(b), words(c), words(d), words(e), words(g), words(h), words(i)}};
  }

  uint8_t* written(int64_t part, int64_t b, int64_t h, int64_t tile) const {
    return work_.written + ((part * o_.b + b) * o_.hq + h) * cut_.query_tiles + tile;
  }
  T* dq(int64_t part, int64_t b, int64_t h, int64_t i0) const {
    return work_.dq + (((part * o_.b + b) * o_.hq + h) * o_.sq + i0) * d_pad_;
  }

  void load_rows(int64_t b, int64_t h, int64_t i0, int64_t m, Rows& r) const {
    const int64_t first = (b * o_.hq + h) * o_.sq + i0;
    r.all = run_.keys_seen(b, i0, m, r.range);
    std::copy_n(work_.lse + first, m, r.lse);
    std::copy_n(work_.delta + first, m, r.delta);
  }

  static const uint16_t* halves(const AttentionOperand& x, const void* from, int64_t b, int64_t h, int64_t row) {
    return static_cast<const uint16_t*>(from) + x.at(b, h, row, 0);
  }
  // Rows of pairs as columns: a transpose moves words, whatever is in them.
  void pair_columns_of(const uint16_t* from, int64_t ld, int64_t rows, int64_t cols, uint32_t* to) const {
    tile_math<float>().transpose(rows, cols / 2, reinterpret_cast<const float*>(from), ld / 2,
                                 reinterpret_cast<float*>(to), kTile);
    for (int64_t c = 0; c < cols / 2; ++c) std::fill(to + c * kTile + rows, to + c * kTile + padded(rows), uint32_t{0});
  }

  // The columns of K are scaled: they serve the scores alone.
  void load_k(int64_t b, int64_t h, int64_t j0, int64_t n, Tiles& x) const {
    if (pairs_) {
      const uint16_t* k = halves(p_.k, k_, b, o_.k_head(h), j0);
      x.pair.k_serves = pairs_->in_range(n, o_.dqk, k, p_.k.stride[2]);
      if (x.pair.k_serves) {
        pair_columns_of(k, p_.k.stride[2], n, o_.dqk, x.pair.kt);
        pairs_->pair_rows(n, o_.dqk, k, p_.k.stride[2], x.pair.k, d_pad_);
      }
    }
    x.k_rows = run_.rows(p_.k, k_, b, o_.k_head(h), j0, n, o_.dqk, x.k, d_pad_);
    columns_of(x.k_rows, n, o_.dqk, x.kt);
    if (run_.scale == 1) return;
    for (int64_t c = 0; c < o_.dqk; ++c)
      for (int64_t j = 0; j < n; ++j) x.kt[c * kTile + j] *= run_.scale;
  }
  void load_v(int64_t b, int64_t h, int64_t j0, int64_t n, Tiles& x) const {
    if (pairs_) {
      const uint16_t* v = halves(p_.v, v_, b, o_.v_head(h), j0);
      x.pair.v_serves = pairs_->in_range(n, o_.dv, v, p_.v.stride[2]);
      if (x.pair.v_serves) pair_columns_of(v, p_.v.stride[2], n, o_.dv, x.pair.vt);
    }
    columns_of(run_.rows(p_.v, v_, b, o_.v_head(h), j0, n, o_.dv, x.v, v_pad_), n, o_.dv, x.vt);
  }
  void columns_of(TileRows<T> from, int64_t rows, int64_t cols, T* to) const {
    math_.transpose(rows, cols, from.at, from.ld, to, kTile);
    for (int64_t c = 0; c < cols; ++c) std::fill(to + c * kTile + rows, to + c * kTile + padded(rows), T(0));
  }

  // Rows of Q and of dO, loaded where they are asked for: pairs serve mostly.
  TileRows<T> load_q(const ScoreTile& t, Tiles& x) const {
    if (!x.q_rows.at) x.q_rows = run_.rows(p_.q, q_, t.b, t.h, t.i0, t.rows, o_.dqk, x.q, d_pad_);
    return x.q_rows;
  }
  TileRows<T> load_d_out(const ScoreTile& t, Tiles& x) const {
    if (!x.d_out_rows.at) x.d_out_rows = run_.rows(p_.d_out, d_out_, t.b, t.h, t.i0, t.rows, o_.dv, x.d_out, v_pad_);
    return x.d_out_rows;
  }

  // One tile's product of rows of queries with columns, by pairs or not; what no query of some rows sees is left out.
  template <class Load>
  void product(const ScoreTile& t, const Rows& r, bool by_pairs, const uint16_t* pair_rows,
               const AttentionOperand& from, const uint32_t* pair_columns, int64_t size, T scale, T* to,
               const Load& load, const T* columns) const {
    const TileRows<T> rows = by_pairs ? TileRows<T>{} : load();
    run_.for_rows(t, r.range, true, [&](int64_t i, int64_t count, int64_t begin, int64_t end) {
      begin = begin / kTilePad * kTilePad;
      T* const c = to + i * kTile + begin;
      if constexpr (sizeof(T) == sizeof(float))
        if (by_pairs) {
          const int64_t ld = from.stride[2] / 2;
          return pairs_->multiply(count, end - begin, size / 2, reinterpret_cast<const uint32_t*>(pair_rows) + i * ld,
                                  ld, 1, pair_columns + begin, kTile, c, kTile, scale, false);
        }
      math_.multiply(count, end - begin, size, {rows.at + i * rows.ld, rows.ld, 1}, columns + begin, kTile, c, kTile,
                     false);
    });
  }

  // s = P f and dp = dS of one tile, queries as rows. False when no query sees a key.
  bool gradients(const ScoreTile& t, Rows& r, Tiles& x) const {
    load_rows(t.b, t.h, t.i0, t.rows, r);
    if (r.all.begin >= t.j0 + t.cols || r.all.end <= t.j0) return false;
    x.pair.q_serves = x.pair.d_out_serves = false;
    if (pairs_) {
      x.q16 = halves(p_.q, q_, t.b, t.h, t.i0), x.d_out16 = halves(p_.d_out, d_out_, t.b, t.h, t.i0);
      x.pair.q_serves = pairs_->in_range(t.rows, o_.dqk, x.q16, p_.q.stride[2]);
      x.pair.d_out_serves = pairs_->in_range(t.rows, o_.dv, x.d_out16, p_.d_out.stride[2]);
    }
    x.q_rows = x.d_out_rows = {};
    product(
        t, r, x.pair.q_serves && x.pair.k_serves, x.q16, p_.q, x.pair.kt, o_.dqk, run_.scale, t.s,
        [&] { return load_q(t, x); }, x.kt);
    product(
        t, r, x.pair.d_out_serves && x.pair.v_serves, x.d_out16, p_.d_out, x.pair.vt, o_.dv, 1, x.dp,
        [&] { return load_d_out(t, x); }, x.vt);
    run_.finish_scores(t, r.range);
    for (int64_t i = 0; i < t.rows; ++i)
      if (r.lse[i] == kNone) r.lse[i] = 0, std::fill_n(t.s + i * kTile, t.cols, kNone);  // the query kept nothing
    if (run_.drops()) {
      ScoreTile factors = t;
      factors.s = x.f;
      run_.dropout_factors(factors);
    }
    math_.gradient_step(t.rows, t.cols, t.s, x.dp, kTile, run_.drops() ? x.f : nullptr, r.lse, r.delta);
    return true;
  }

  // What one tile adds to dK, dV and a part of dQ.
  void add(int64_t part, int64_t b, int64_t h, int64_t i0, int64_t j0, int64_t n, Tiles& x) const {
    Rows r;
    const ScoreTile t{b, h, i0, std::min(kTile, o_.sq - i0), j0, n, x.s, kTile, 1};
    if (!gradients(t, r, x)) return;
    bool p_pairs = false, ds_pairs = false;
    if constexpr (sizeof(T) == sizeof(float)) {
      p_pairs = x.pair.d_out_serves && pairs_->pair_weights(t.rows, n, x.s, kTile, x.pair.p, kTile);
      ds_pairs = (x.pair.q_serves || x.pair.k_serves) && pairs_->pair_weights(t.rows, n, x.dp, kTile, x.pair.ds, kTile);
      if (p_pairs) pairs_->pair_rows(t.rows, o_.dv, x.d_out16, p_.d_out.stride[2], x.pair.d_out, v_pad_);
      if (ds_pairs && x.pair.q_serves) pairs_->pair_rows(t.rows, o_.dqk, x.q16, p_.q.stride[2], x.pair.q, d_pad_);
      if (ds_pairs && x.pair.k_serves) pairs_->pair_columns(t.rows, n, x.dp, kTile, x.pair.ds_rows, kTile / 2);
    }
    add_by_keys(t, r, p_pairs, x.s, x.pair.p, x.pair.d_out, o_.dv, x.dv, v_pad_, [&] { return load_d_out(t, x); });
    add_by_keys(t, r, ds_pairs && x.pair.q_serves, x.dp, x.pair.ds, x.pair.q, o_.dqk, x.dk, d_pad_,
                [&] { return load_q(t, x); });
    uint8_t* const seen = written(part, b, h, i0 / kTile);
    T* const to = dq(part, b, h, i0);
    if (!*seen) std::fill_n(to, t.rows * d_pad_, T(0)), *seen = 1;
    const bool by_pairs = ds_pairs && x.pair.k_serves;
    const bool finite = by_pairs || math_.all_finite(n, o_.dqk, x.k_rows.at, x.k_rows.ld);
    run_.for_rows(t, r.range, true, [&](int64_t i, int64_t count, int64_t begin, int64_t end) {
      if constexpr (sizeof(T) == sizeof(float))
        if (by_pairs) {
          const int64_t first = begin / 2;  // dS is 0 where a key is not seen
          return pairs_->multiply(count, o_.dqk, (end + 1) / 2 - first, x.pair.ds_rows + i * (kTile / 2) + first,
                                  kTile / 2, 1, x.pair.k + first * d_pad_, d_pad_, to + i * d_pad_, d_pad_, 1, true);
        }
      add_product(finite, count, o_.dqk, end - begin, {x.dp + i * kTile + begin, kTile, 1}, x.k_rows, begin,
                  to + i * d_pad_, d_pad_);
    });
  }

  // What one tile's weights, transposed, and its rows of queries add to the rows of keys.
  template <class Load>
  void add_by_keys(const ScoreTile& t, const Rows& r, bool by_pairs, const T* weights, const uint32_t* pair_weights,
                   const uint32_t* pair_rows, int64_t size, T* to, int64_t ld, const Load& load) const {
    const TileRows<T> rows = by_pairs ? TileRows<T>{} : load();
    const bool finite = by_pairs || math_.all_finite(t.rows, size, rows.at, rows.ld);
    run_.for_rows(t, r.range, false, [&](int64_t j, int64_t count, int64_t begin, int64_t end) {
      if constexpr (sizeof(T) == sizeof(float))
        if (by_pairs) {
          const int64_t first = begin / 2;
          return pairs_->multiply(count, size, (end + 1) / 2 - first, pair_weights + first * kTile + j, 1, kTile,
                                  pair_rows + first * ld, ld, to + j * ld, ld, 1, true);
        }
      add_product(finite, count, size, end - begin, {weights + begin * kTile + j, 1, kTile}, rows, begin, to + j * ld,
                  ld);
    });
  }

  // c += A times rows [first, first + k) of b.
  void add_product(bool finite, int64_t m, int64_t n, int64_t k, TileFactor<T> a, TileRows<T> b, int64_t first, T* c,
                   int64_t ldc) const {
    if (finite) math_.multiply(m, n, k, a, b.at + first * b.ld, b.ld, c, ldc, true);
    else multiply_nonzero<T>(m, n, k, a, b.at + first * b.ld, b.ld, c, ldc);
  }

  // What is 0, because nothing was added to it, stays so where the scale is not finite.
  void scale(T* x, int64_t rows) const {
    if (run_.scale == 1) return;
    for (int64_t e = 0; e < rows * d_pad_; ++e) x[e] = x[e] == 0 ? T(0) : x[e] * run_.scale;
  }

  void store(size_t port, int64_t b, int64_t h, int64_t i0, int64_t rows, int64_t cols, const T* from, int64_t ld,
             int64_t j0 = 0) const {
    const AttentionOperand& to = p_.out[port];
    for (int64_t i = 0; i < rows; ++i)
      AttentionRun<T>::store_row(out_[port], to.type, to.at(b, h, i0 + i, j0), to.stride[3], cols, from + i * ld);
  }

  const AttentionRun<T>& run_;
  const ops::AttentionOptions& o_;
  const AttentionProblem& p_;
  const Cut& cut_;
  const Workspace<T>& work_;
  const TileMath<T> math_;
  const Bf16Math* pairs_ = nullptr;
  const int64_t d_pad_, v_pad_;
  const void *q_, *k_, *v_, *o_in_, *d_out_, *stats_;
  std::array<void*, ops::kOutDSink + 1> out_{};
};

}  // namespace

template <class T>
int64_t attention_backward_scratch(const ops::AttentionOptions& o) {
  return Workspace<T>(o, Cut(o), nullptr).bytes;
}

template <class T>
void attention_backward(const AttentionProblem& problem, const Bindings& bindings, void* workspace, char* scratch) {
  const AttentionRun<T> run(problem, bindings, workspace);
  const auto& o = problem.o;
  const Cut cut(o);
  const Workspace<T> work(o, cut, scratch);
  const Backward<T> backward(run, cut, work);
  const int64_t heads = o.b * o.hq;
  parallel_for(heads * cut.query_tiles,
               [&](int64_t task) { backward.prepare(task / cut.query_tiles, task % cut.query_tiles * kTile); });
  parallel_for(cut.groups * cut.parts, [&](int64_t task) { backward.keys(task); });
  parallel_for(heads * cut.query_tiles,
               [&](int64_t task) { backward.join(task / cut.query_tiles, task % cut.query_tiles * kTile); });
  if (problem.has_out(ops::kOutDBias)) {
    const Dims& dim = problem.dbias_dim;
    const int64_t i_tiles = blocks_of(dim[2]), j_tiles = blocks_of(dim[3]);
    parallel_for(dim[0] * dim[1] * i_tiles * j_tiles, [&](int64_t task) {
      const int64_t j = task % j_tiles, i = task / j_tiles % i_tiles, head = task / j_tiles / i_tiles;
      backward.bias(head / dim[1], head % dim[1], i * kTile, j * kTile);
    });
  }
  if (problem.has_out(ops::kOutDSink)) parallel_for(o.hq, [&](int64_t h) { backward.sink(h); });
  if (problem.has_out(ops::kOutRngDumpBackward)) run.dump_mask(problem.out[ops::kOutRngDumpBackward]);
}

template int64_t attention_backward_scratch<float>(const ops::AttentionOptions&);
template int64_t attention_backward_scratch<double>(const ops::AttentionOptions&);
template void attention_backward<float>(const AttentionProblem&, const Bindings&, void*, char*);
template void attention_backward<double>(const AttentionProblem&, const Bindings&, void*, char*);

}  // namespace tilewright::cpu
