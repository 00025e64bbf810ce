// Attention forward: one task per batch, head and tile of queries, an online softmax over the tiles of keys. Tiles hold
// their scores transposed (keys are rows), so that K and V are read as they lie and the softmax works on whole vectors
// of queries.
#include "engines/cpu/attention_problem.h"

namespace tilewright::cpu {
namespace {

template <class T>
class Forward {
 public:
  explicit Forward(const AttentionRun<T>& run) : run_(run), o_(run.o), p_(run.p), math_(tile_math<T>()) {
    q_ = run.memory(p_.q), k_ = run.memory(p_.k), v_ = run.memory(p_.v);
    if (p_.sink) sink_ = run.memory(p_.sink);
    for (size_t i = 0; i < p_.out.size(); ++i) out_[i] = p_.out[i] ? run.memory(p_.out[i]) : nullptr;
  }

  void rows(int64_t b, int64_t h, int64_t i0) const {
    const int64_t m = std::min(kTile, o_.sq - i0), d_pad = padded(o_.dqk), v_pad = padded(o_.dv);
    KeyRange range[kTile], all{o_.skv, 0};
    for (int64_t i = 0; i < m; ++i) {
      range[i] = run_.keys_seen(b, i0 + i);
      if (!range[i].empty()) all = {std::min(all.begin, range[i].begin), std::max(all.end, range[i].end)};
    }
    auto [kv, qt, s, f, sums] =
        TileScratch<T>::template get<5>({kTile * std::max(d_pad, v_pad), o_.dqk * kTile, kTile * kTile,
                                         run_.drops() ? kTile * kTile : 0, kTile * v_pad});
    alignas(64) T max[kTile], total[kTile], rescale[kTile];
    std::fill(max, max + kTile, -std::numeric_limits<T>::infinity());
    std::fill(total, total + kTile, T(0));
    std::fill(sums, sums + kTile * v_pad, T(0));
    run_.load(p_.q, q_, b, h, i0, m, o_.dqk, kv, d_pad, run_.scale);
    AttentionRun<T>::transpose(kv, m, o_.dqk, d_pad, qt, kTile);

    for (int64_t j0 = all.begin; j0 < all.end; j0 += kTile) {
      const int64_t n = std::min(kTile, all.end - j0);
      const typename AttentionRun<T>::Tile tile{b, h, i0, m, j0, n, s, 1, kTile};
      run_.load(p_.k, k_, b, o_.k_head(h), j0, n, o_.dqk, kv, d_pad);
      math_.multiply(n, m, o_.dqk, {kv, d_pad, 1}, qt, kTile, s, kTile, false);
      run_.finish_scores(tile, range);
      math_.softmax_step(n, m, s, kTile, max, total, rescale);
      if (run_.drops()) {
        auto factors = tile;
        factors.s = f;
        run_.dropout_factors(factors);
        for (int64_t j = 0; j < n; ++j)
          for (int64_t i = 0; i < m; ++i) s[j * kTile + i] *= f[j * kTile + i];
      }
      math_.scale_rows(m, o_.dv, sums, v_pad, rescale);
      run_.load(p_.v, v_, b, o_.v_head(h), j0, n, o_.dv, kv, v_pad);
      if (math_.all_finite(kv, n, o_.dv, v_pad))
        math_.multiply(m, o_.dv, n, {s, 1, kTile}, kv, v_pad, sums, v_pad, true);
      else multiply_nonzero<T>(m, o_.dv, n, {s, 1, kTile}, kv, v_pad, sums, v_pad);
    }
    for (int64_t i = 0; i < m; ++i) finish_row(b, h, i0 + i, max[i], total[i], sums + i * v_pad);
  }

 private:
  void finish_row(int64_t b, int64_t h, int64_t i, T max, T total, T* sums) const {
    constexpr T kNone = -std::numeric_limits<T>::infinity();
    const bool kept = !(max == kNone);  // a NaN counts as kept
    T factor = 0;
    if (kept) {
      if (sink_) {
        // The sink joins last: one more logit, with no value row.
        const T sink = T(run_.element(p_.sink, sink_, 0, h, 0)), top = max != max || max > sink ? max : sink;
        const T again = std::exp(max - top);
        total = total * again + std::exp(sink - top);
        max = top, factor = again / total;
      } else {
        factor = 1 / total;
      }
    }
    // A row without keys is 0 even where sums hold nothing but 0 * NaN.
    for (int64_t d = 0; d < o_.dv; ++d) sums[d] = kept ? sums[d] * factor : T(0);
    const AttentionOperand& out = p_.out[ops::kOutO];
    AttentionRun<T>::store_row(out_[ops::kOutO], out.type, out.at(b, h, i, 0), out.stride[3], o_.dv, sums);
    auto put = [&](size_t port, T value) {
      if (!p_.has_out(port)) return;
      store_element(out_[port], p_.out[port].type, p_.out[port].at(b, h, i, 0), double(value));
    };
    put(ops::kOutStats, kept ? max + std::log(total) : kNone);
    put(ops::kOutMax, kept ? max : kNone);
    put(ops::kOutSumExp, kept ? total : T(0));
  }

  const AttentionRun<T>& run_;
  const ops::AttentionOptions& o_;
  const AttentionProblem& p_;
  const TileMath<T>& math_;
  const void *q_, *k_, *v_, *sink_ = nullptr;
  std::array<void*, ops::kOutRngDump + 1> out_{};
};

}  // namespace

template <class T>
void attention_forward(const AttentionProblem& problem, const Bindings& bindings, void* workspace) {
  const AttentionRun<T> run(problem, bindings, workspace);
  const Forward<T> forward(run);
  const auto& o = problem.o;
  const int64_t heads = o.b * o.hq, tiles = blocks_of(o.sq);
  // The last queries first: under a causal mask they have the most keys.
  parallel_for(heads * tiles, [&](int64_t task) {
    const int64_t head = task % heads, tile = tiles - 1 - task / heads;
    forward.rows(head / o.hq, head % o.hq, tile * kTile);
  });
  if (problem.has_out(ops::kOutRngDump)) run.dump_mask(problem.out[ops::kOutRngDump]);
}

template void attention_forward<float>(const AttentionProblem&, const Bindings&, void*);
template void attention_forward<double>(const AttentionProblem&, const Bindings&, void*);

}  // namespace tilewright::cpu
