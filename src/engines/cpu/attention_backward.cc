// Attention backward. P is recomputed from Stats, tile by tile, in passes that each own what they write, so that no sum
// depends on who finishes first: dQ by tiles of queries, dK and dV by tiles of keys, dBias by its own tiles, dSink by
// heads.
#include "engines/cpu/attention_problem.h"

namespace tilewright::cpu {
namespace {

template <class T>
class Backward {
 public:
  explicit Backward(const AttentionRun<T>& run)
      : run_(run), o_(run.o), p_(run.p), math_(tile_math<T>()), d_pad_(padded(o_.dqk)), v_pad_(padded(o_.dv)) {
    q_ = run.memory(p_.q), k_ = run.memory(p_.k), v_ = run.memory(p_.v);
    o_in_ = run.memory(p_.o_in), d_out_ = run.memory(p_.d_out), stats_ = run.memory(p_.stats_in);
    for (size_t i = 0; i < p_.out.size(); ++i) out_[i] = p_.out[i] ? run.memory(p_.out[i]) : nullptr;
  }

  // dQ of one tile of queries; scores transposed as in the forward.
  void queries(int64_t b, int64_t h, int64_t i0) const {
    const int64_t m = std::min(kTile, o_.sq - i0);
    auto [k, v, rows, d_out, qt, dot, s, dp, f, dq] = TileScratch<T>::template get<10>(
        {kTile * d_pad_, kTile * v_pad_, kTile * d_pad_, kTile * v_pad_, o_.dqk * kTile, o_.dv * kTile, kTile * kTile,
         kTile * kTile, run_.drops() ? kTile * kTile : 0, kTile * d_pad_});
    Rows r;
    load_rows(b, h, i0, m, d_out, v, r);
    run_.load(p_.q, q_, b, h, i0, m, o_.dqk, rows, d_pad_, run_.scale);
    AttentionRun<T>::transpose(rows, m, o_.dqk, d_pad_, qt, kTile);
    AttentionRun<T>::transpose(d_out, m, o_.dv, v_pad_, dot, kTile);
    std::fill(dq, dq + kTile * d_pad_, T(0));
    for (int64_t j0 = r.all.begin; j0 < r.all.end; j0 += kTile) {
      const int64_t n = std::min(kTile, r.all.end - j0);
      run_.load(p_.k, k_, b, o_.k_head(h), j0, n, o_.dqk, k, d_pad_);
      run_.load(p_.v, v_, b, o_.v_head(h), j0, n, o_.dv, v, v_pad_);
      math_.multiply(n, m, o_.dqk, {k, d_pad_, 1}, qt, kTile, s, kTile, false);
      math_.multiply(n, m, o_.dv, {v, v_pad_, 1}, dot, kTile, dp, kTile, false);
      run_.finish_scores({b, h, i0, m, j0, n, s, 1, kTile}, r.range);
      if (run_.drops()) run_.dropout_factors({b, h, i0, m, j0, n, f, 1, kTile});
      math_.gradient_step(n, m, s, dp, kTile, run_.drops() ? f : nullptr, r.lse, r.delta, true);
      add_product(m, o_.dqk, n, {dp, 1, kTile}, k, d_pad_, dq);
    }
    std::fill(r.lse, r.lse + kTile, run_.scale);
    math_.scale_rows(m, o_.dqk, dq, d_pad_, r.lse);
    // Queries that see nothing get 0 even where the scale is not finite.
    for (int64_t i = 0; i < m; ++i)
      if (r.range[i].empty()) std::fill(dq + i * d_pad_, dq + i * d_pad_ + o_.dqk, T(0));
    store(ops::kOutDQ, b, h, i0, m, o_.dqk, dq, d_pad_);
  }

  // dK of key head `kh` and dV of value head `vh` for one tile of keys; -1: not asked for. Both are read by the query
  // heads [h_begin, h_end).
  void keys(int64_t b, int64_t kh, int64_t vh, int64_t h_begin, int64_t h_end, int64_t j0) const {
    const int64_t n = std::min(kTile, o_.skv - j0);
    Scratch x = scratch();
    std::fill(x.dk, x.dk + kTile * d_pad_, T(0));
    std::fill(x.dv, x.dv + kTile * v_pad_, T(0));
    int64_t k_loaded = -1, v_loaded = -1;
    for (int64_t h = h_begin; h < h_end; ++h) {
      load_keys(b, h, j0, n, x, k_loaded, v_loaded);
      for (int64_t i0 = 0; i0 < o_.sq; i0 += kTile) {
        const int64_t m = std::min(kTile, o_.sq - i0);
        if (!gradients(b, h, i0, m, j0, n, x)) continue;
        if (vh >= 0) add_product(n, o_.dv, m, {x.s, 1, kTile}, x.d_out, v_pad_, x.dv);
        if (kh >= 0) add_product(n, o_.dqk, m, {x.dp, 1, kTile}, x.q, d_pad_, x.dk);
      }
    }
    if (kh >= 0) store(ops::kOutDK, b, kh, j0, n, o_.dqk, x.dk, d_pad_);
    if (vh >= 0) store(ops::kOutDV, b, vh, j0, n, o_.dv, x.dv, v_pad_);
  }

  // One tile of dBias, summed over the dims that it lacks.
  void bias(int64_t db, int64_t dh, int64_t di, int64_t dj) const {
    const Dims& dim = p_.dbias_dim;
    const bool whole_b = dim[0] == 1, whole_h = dim[1] == 1, whole_i = dim[2] == 1, whole_j = dim[3] == 1;
    Scratch x = scratch();
    T* sum = x.sum;
    std::fill(sum, sum + kTile * kTile, T(0));
    const int64_t i_end = whole_i ? o_.sq : std::min(o_.sq, di + kTile);
    const int64_t j_end = whole_j ? o_.skv : std::min(o_.skv, dj + kTile);
    for (int64_t b = whole_b ? 0 : db; b < (whole_b ? o_.b : db + 1); ++b)
      for (int64_t h = whole_h ? 0 : dh; h < (whole_h ? o_.hq : dh + 1); ++h)
        for (int64_t j0 = dj; j0 < j_end; j0 += kTile) {
          const int64_t n = std::min(kTile, j_end - j0);
          int64_t k_loaded = -1, v_loaded = -1;
          load_keys(b, h, j0, n, x, k_loaded, v_loaded);
          for (int64_t i0 = di; i0 < i_end; i0 += kTile) {
            const int64_t m = std::min(kTile, i_end - i0);
            if (!gradients(b, h, i0, m, j0, n, x)) continue;
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j) sum[(whole_i ? 0 : i) * kTile + (whole_j ? 0 : j)] += x.dp[i * kTile + j];
          }
        }
    const int64_t rows = whole_i ? 1 : i_end - di, cols = whole_j ? 1 : j_end - dj;
    store(ops::kOutDBias, db, dh, di, rows, cols, sum, kTile, dj);
  }

  void sink(int64_t h) const {
    const T sink = T(run_.element(p_.sink, run_.memory(p_.sink), 0, h, 0));
    auto [d_out, o] = TileScratch<T>::template get<2>({kTile * v_pad_, kTile * v_pad_});
    Rows r;
    T sum = 0;
    for (int64_t b = 0; b < o_.b; ++b)
      for (int64_t i0 = 0; i0 < o_.sq; i0 += kTile) {
        const int64_t m = std::min(kTile, o_.sq - i0);
        load_rows(b, h, i0, m, d_out, o, r);
        for (int64_t i = 0; i < m; ++i)
          if (!r.range[i].empty()) sum += std::exp(sink - r.lse[i]) * r.delta[i];
      }
    const AttentionOperand& to = p_.out[ops::kOutDSink];
    store_element(out_[ops::kOutDSink], to.type, to.at(0, h, 0, 0), double(-sum));
  }

 private:
  // What belongs to the rows of a tile of queries.
  struct Rows {
    KeyRange range[kTile], all;
    alignas(64) T lse[kTile];
    alignas(64) T delta[kTile];
  };
  struct Scratch {
    T *q, *d_out, *o, *kt, *vt, *s, *dp, *f, *dk, *dv, *sum;
  };

  Scratch scratch() const {
    auto [q, d_out, o, kt, vt, s, dp, f, dk, dv, sum] = TileScratch<T>::template get<11>(
        {kTile * d_pad_, kTile * v_pad_, kTile * std::max(d_pad_, v_pad_), o_.dqk * kTile, o_.dv * kTile, kTile * kTile,
         kTile * kTile, run_.drops() ? kTile * kTile : 0, kTile * d_pad_, kTile * v_pad_, kTile * kTile});
    return {q, d_out, o, kt, vt, s, dp, f, dk, dv, sum};
  }

  // The key range, Stats and delta = sum dO O of each row, and dO itself. A row whose Stats is -inf kept nothing.
  void load_rows(int64_t b, int64_t h, int64_t i0, int64_t m, T* d_out, T* o, Rows& r) const {
    run_.load(p_.d_out, d_out_, b, h, i0, m, o_.dv, d_out, v_pad_);
    run_.load(p_.o_in, o_in_, b, h, i0, m, o_.dv, o, v_pad_);
    r.all = {o_.skv, 0};
    for (int64_t i = 0; i < m; ++i) {
      r.range[i] = run_.keys_seen(b, i0 + i);
      r.lse[i] = T(run_.element(p_.stats_in, stats_, b, h, i0 + i));
      r.delta[i] = 0;
      if (r.lse[i] == -std::numeric_limits<T>::infinity()) r.range[i] = {};
      if (r.range[i].empty()) {
        r.lse[i] = 0;
        continue;
      }
      r.all = {std::min(r.all.begin, r.range[i].begin), std::max(r.all.end, r.range[i].end)};
      for (int64_t d = 0; d < o_.dv; ++d) r.delta[i] += d_out[i * v_pad_ + d] * o[i * v_pad_ + d];
    }
    for (int64_t i = m; i < kTile; ++i) r.lse[i] = r.delta[i] = 0;
  }

  // A tile of K and of V as columns.
  void load_keys(int64_t b, int64_t h, int64_t j0, int64_t n, Scratch& x, int64_t& k_loaded, int64_t& v_loaded) const {
    if (o_.k_head(h) != k_loaded) {
      k_loaded = o_.k_head(h);
      run_.load(p_.k, k_, b, k_loaded, j0, n, o_.dqk, x.q, d_pad_);
      AttentionRun<T>::transpose(x.q, n, o_.dqk, d_pad_, x.kt, kTile);
    }
    if (o_.v_head(h) != v_loaded) {
      v_loaded = o_.v_head(h);
      run_.load(p_.v, v_, b, v_loaded, j0, n, o_.dv, x.d_out, v_pad_);
      AttentionRun<T>::transpose(x.d_out, n, o_.dv, v_pad_, x.vt, kTile);
    }
  }

  // s = P f and dp = dS of one tile, queries as rows, with Q (scaled) and dO loaded. False when no query sees a key.
  bool gradients(int64_t b, int64_t h, int64_t i0, int64_t m, int64_t j0, int64_t n, Scratch& x) const {
    bool seen = false;
    for (int64_t i = 0; i < m && !seen; ++i) {
      const KeyRange range = run_.keys_seen(b, i0 + i);
      seen = range.begin < j0 + n && range.end > j0;
    }
    if (!seen) return false;
    Rows r;
    load_rows(b, h, i0, m, x.d_out, x.o, r);
    run_.load(p_.q, q_, b, h, i0, m, o_.dqk, x.q, d_pad_, run_.scale);
    math_.multiply(m, n, o_.dqk, {x.q, d_pad_, 1}, x.kt, kTile, x.s, kTile, false);
    math_.multiply(m, n, o_.dv, {x.d_out, v_pad_, 1}, x.vt, kTile, x.dp, kTile, false);
    run_.finish_scores({b, h, i0, m, j0, n, x.s, kTile, 1}, r.range);
    if (run_.drops()) run_.dropout_factors({b, h, i0, m, j0, n, x.f, kTile, 1});
    math_.gradient_step(m, n, x.s, x.dp, kTile, run_.drops() ? x.f : nullptr, r.lse, r.delta, false);
    return true;
  }

  void add_product(int64_t m, int64_t n, int64_t k, TileFactor<T> a, const T* b, int64_t ld, T* c) const {
    if (math_.all_finite(b, k, n, ld)) math_.multiply(m, n, k, a, b, ld, c, ld, true);
    else multiply_nonzero<T>(m, n, k, a, b, ld, c, ld);
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
  const TileMath<T>& math_;
  const int64_t d_pad_, v_pad_;
  const void *q_, *k_, *v_, *o_in_, *d_out_, *stats_;
  std::array<void*, ops::kOutDSink + 1> out_{};
};

}  // namespace

template <class T>
void attention_backward(const AttentionProblem& problem, const Bindings& bindings, void* workspace) {
  const AttentionRun<T> run(problem, bindings, workspace);
  const Backward<T> backward(run);
  const auto& o = problem.o;
  const int64_t q_tiles = blocks_of(o.sq), kv_tiles = blocks_of(o.skv);

  const int64_t heads = o.b * o.hq;
  parallel_for(heads * q_tiles, [&](int64_t task) {
    const int64_t head = task % heads, tile = q_tiles - 1 - task / heads;
    backward.queries(head / o.hq, head % o.hq, tile * kTile);
  });

  // One pass where a key head and a value head serve the same queries, else one for each.
  auto kv_pass = [&](int64_t kv_heads, bool want_k, bool want_v) {
    const int64_t group = o.hq / kv_heads;
    parallel_for(o.b * kv_heads * kv_tiles, [&](int64_t task) {
      const int64_t head = task % (o.b * kv_heads), tile = task / (o.b * kv_heads), h = head % kv_heads;
      backward.keys(head / kv_heads, want_k ? h : -1, want_v ? h : -1, h * group, (h + 1) * group, tile * kTile);
    });
  };
  if (o.hk == o.hv) {
    kv_pass(o.hk, true, true);
  } else {
    kv_pass(o.hk, true, false);
    kv_pass(o.hv, false, true);
  }

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

template void attention_backward<float>(const AttentionProblem&, const Bindings&, void*);
template void attention_backward<double>(const AttentionProblem&, const Bindings&, void*);

}  // namespace tilewright::cpu
