// Attention forward: an online softmax over the tiles of keys for each tile of queries. Tiles hold their scores
// transposed (keys are rows), so that K and V are read as they lie and the softmax works on whole vectors of queries.
// Short sequences of queries share a tile with those of other heads that read the same K and V. Where a shape gives few
// tiles, the keys are split too: each part leaves its maxima and sums in the workspace, and they are joined in order.
#include "engines/cpu/attention_bf16.h"
#include "engines/cpu/attention_problem.h"

namespace tilewright::cpu {
namespace {

// Few queries: products whose lanes run along the head size waste less than lanes that run along the queries.
constexpr int64_t kFewColumns = 8;
constexpr int64_t kShortestPart = 4 * kTile;  // keys

// How a shape is cut. A task is one part of the keys for one tile: `heads` neighbouring heads and a range of queries.
struct Cut {
  int64_t group;       // heads that read the same K and V
  int64_t heads;       // of them in a tile
  int64_t head_tiles;  // of a group
  int64_t query_tiles, tiles;
  int64_t parts, part_keys;
  int64_t columns;  // of the largest tile

  explicit Cut(const ops::AttentionOptions& o) {
    group = std::gcd(o.hq / o.hk, o.hq / o.hv);
    heads = std::clamp<int64_t>(kTile / std::max<int64_t>(o.sq, 1), 1, group);
    head_tiles = blocks_of(group, heads);
    query_tiles = blocks_of(o.sq);
    tiles = o.b * (o.hq / group) * head_tiles * query_tiles;
    columns = heads * std::min(o.sq, kTile);
    const int64_t wanted = tiles > 0 ? blocks_of(kEnoughTasks, tiles) : 1;
    parts = std::clamp<int64_t>(o.skv / kShortestPart, 1, wanted);
    part_keys = std::max<int64_t>(1, blocks_of(blocks_of(o.skv, parts))) * kTile;
    parts = std::max<int64_t>(1, blocks_of(o.skv, part_keys));
  }
};

template <class T>
class Forward {
 public:
  Forward(const AttentionRun<T>& run, const Cut& cut, T* partial)
      : run_(run),
        o_(run.o),
        p_(run.p),
        cut_(cut),
        math_(tile_math<T>()),
        d_pad_(padded(o_.dqk)),
        v_pad_(padded(o_.dv)),
        partial_(partial) {
    q_ = run.memory(p_.q), k_ = run.memory(p_.k), v_ = run.memory(p_.v);
    if (p_.sink) sink_ = run.memory(p_.sink);
    for (size_t i = 0; i < p_.out.size(); ++i) out_[i] = p_.out[i] ? run.memory(p_.out[i]) : nullptr;
    if (sizeof(T) == sizeof(float) && o_.dqk % 2 == 0 && has_pairs(p_.q.type, p_.q.stride, q_) &&
        has_pairs(p_.k.type, p_.k.stride, k_) && p_.v.type == DataType_t::BFLOAT16 && p_.v.stride[3] == 1 &&
        reinterpret_cast<uintptr_t>(v_) % 2 == 0)
      pairs_ = bf16_math();
  }

  // What one part of the keys leaves behind, in units of T: maxima, sums of weights, and weighted sums of V.
  static int64_t partial_size(const ops::AttentionOptions& o, const Cut& cut) {
    return padded(cut.columns) * (2 + padded(o.dv));
  }

  void part(int64_t task) const {
    // The last queries first: under a causal mask they have the most keys.
    const Place at = place(cut_.tiles - 1 - task / cut_.parts);
    const int64_t part = task % cut_.parts;
    if (cut_.parts > 1) {
      accumulate(at, part * cut_.part_keys, sums_of(at.tile, part), scratch());
      return;
    }
    const Scratch x = scratch();
    accumulate(at, 0, x.sums, x);
    finish(at, x.sums);
  }

  // Joins the parts of a tile, in the first one's memory.
  void join(int64_t tile) const {
    const Place at = place(tile);
    Sums all = sums_of(tile, 0);
    for (int64_t c = 0; c < at.columns(); ++c) {
      T top = all.max[c];
      for (int64_t k = 1; k < cut_.parts; ++k) {
        const T m = sums_of(tile, k).max[c];
        if (m > top || m != m) top = m;
      }
      const T shift = top == -std::numeric_limits<T>::infinity() ? T(0) : top;
      T total = 0;
      for (int64_t k = 0; k < cut_.parts; ++k) {
        const Sums x = sums_of(tile, k);
        const T again = std::exp(x.max[c] - shift);
        total += x.total[c] * again;
        T *to = all.o + c * v_pad_, *from = x.o + c * v_pad_;
        for (int64_t d = 0; d < o_.dv; ++d) to[d] = (k > 0 ? to[d] : T(0)) + from[d] * again;
      }
      all.max[c] = top, all.total[c] = total;
    }
    finish(at, all);
  }

 private:
  struct Place {
    int64_t tile, b, h0, heads, i0, rows;
    int64_t columns() const { return heads * rows; }
  };
  struct Sums {
    T *max, *total, *o;
  };
  struct Scratch {
    T *q, *qt, *kv, *s, *f, *rescale;
    uint32_t *pair_q, *pair_v, *pair_s;
    Sums sums;
    bool queries_loaded = false, pairs = false;  // what the queries' tiles hold: values; pairs of BFLOAT16
  };

  static const uint16_t* halves(const AttentionOperand& x, const void* from, int64_t b, int64_t h, int64_t row) {
    return static_cast<const uint16_t*>(from) + x.at(b, h, row, 0);
  }

  Place place(int64_t tile) const {
    const int64_t per_batch = o_.hq / cut_.group * cut_.head_tiles, heads = o_.b * per_batch;
    const int64_t head = tile % heads, query = tile / heads, in_batch = head % per_batch;
    const int64_t first = in_batch % cut_.head_tiles * cut_.heads, i0 = query * kTile;
    return {tile,
            head / per_batch,
            in_batch / cut_.head_tiles * cut_.group + first,
            std::min(cut_.heads, cut_.group - first),
            i0,
            std::min(kTile, o_.sq - i0)};
  }

  Sums cut_sums(T* at) const {
    const int64_t columns = padded(cut_.columns);
    return {at, at + columns, at + 2 * columns};
  }
  Sums sums_of(int64_t tile, int64_t part) const {
    return cut_sums(partial_ + (tile * cut_.parts + part) * partial_size(o_, cut_));
  }

  Scratch scratch() const {
    const bool pairs = pairs_ != nullptr;
    const auto [q, qt, kv, s, f, rescale, pair_q, pair_v, pair_s, sums] = TileScratch<T>::template get<10>(
        {kTile * d_pad_, o_.dqk * kTile, kTile * std::max(d_pad_, v_pad_), kTile * kTile,
         run_.drops() ? kTile * kTile : 0, kTile, pairs ? o_.dqk / 2 * kTile : 0, pairs ? kTile / 2 * v_pad_ : 0,
         pairs ? kTile / 2 * kTile : 0, partial_size(o_, cut_)});
    const auto words = [](T* tile) { return reinterpret_cast<uint32_t*>(tile); };
    return {q, qt, kv, s, f, rescale, words(pair_q), words(pair_v), words(pair_s), cut_sums(sums)};
  }

  void accumulate(const Place& at, int64_t first_key, const Sums& sums, Scratch x) const {
    const int64_t columns = at.columns();
    KeyRange range[kTile];
    const KeyRange all = run_.keys_seen(at.b, at.i0, at.rows, range);
    const int64_t first = std::max(all.begin, first_key), last = std::min(all.end, first_key + cut_.part_keys);
    std::fill_n(sums.max, padded(columns), -std::numeric_limits<T>::infinity());
    std::fill_n(sums.total, padded(columns), T(0));
    std::fill_n(sums.o, columns * v_pad_, T(0));
    if (first >= last) return;
    load_pairs(at, x);
    for (int64_t j0 = first; j0 < last; j0 += kTile) {
      const int64_t n = std::min(kTile, last - j0);
      scores(at, j0, n, range, x);
      if (math_.softmax_step(n, columns, x.s, kTile, sums.max, sums.total, x.rescale, p_.has_out(ops::kOutMax)))
        math_.scale_rows(columns, o_.dv, sums.o, v_pad_, x.rescale);
      if (run_.drops()) drop(at, j0, n, x);
      add_values(at, j0, n, range, sums, x);
    }
  }

  typename AttentionRun<T>::Tile tile(const Place& at, int64_t head, int64_t j0, int64_t n, T* s) const {
    return {at.b, at.h0 + head, at.i0, at.rows, j0, n, s + head * at.rows, 1, kTile};
  }

  // The queries of one head as columns of pairs, where the pairs' products serve.
  void load_pairs(const Place& at, Scratch& x) const {
    if (!pairs_ || at.heads > 1 || at.columns() <= kFewColumns) return;
    const uint16_t* q = halves(p_.q, q_, at.b, at.h0, at.i0);
    x.pairs = pairs_->in_range(at.rows, o_.dqk, q, p_.q.stride[2]);
    if (!x.pairs) return;
    const int64_t pairs = o_.dqk / 2;
    // A transpose moves words, whatever is in them.
    tile_math<float>().transpose(at.rows, pairs, reinterpret_cast<const float*>(q), p_.q.stride[2] / 2,
                                 reinterpret_cast<float*>(x.pair_q), kTile);
    for (int64_t d = 0; d < pairs; ++d)
      std::fill(x.pair_q + d * kTile + at.rows, x.pair_q + d * kTile + padded(at.rows), uint32_t{0});
  }

  // All columns' queries, as rows and as columns.
  void load_queries(const Place& at, Scratch& x) const {
    if (std::exchange(x.queries_loaded, true)) return;
    for (int64_t h = 0; h < at.heads; ++h)
      run_.load(p_.q, q_, at.b, at.h0 + h, at.i0, at.rows, o_.dqk, x.q + h * at.rows * d_pad_, d_pad_, run_.scale);
    const int64_t columns = at.columns();
    if (columns <= kFewColumns) return;
    math_.transpose(columns, o_.dqk, x.q, d_pad_, x.qt, kTile);
    for (int64_t d = 0; d < o_.dqk; ++d)
      std::fill(x.qt + d * kTile + columns, x.qt + d * kTile + padded(columns), T(0));
  }

  void scores(const Place& at, int64_t j0, int64_t n, const KeyRange* range, Scratch& x) const {
    multiply_keys(at, j0, n, range, x);
    for (int64_t h = 0; h < at.heads; ++h) run_.finish_scores(tile(at, h, j0, n, x.s), range);
  }

  void multiply_keys(const Place& at, int64_t j0, int64_t n, const KeyRange* range, Scratch& x) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      const uint16_t* k = x.pairs ? halves(p_.k, k_, at.b, o_.k_head(at.h0), j0) : nullptr;
      const int64_t ld = p_.k.stride[2] / 2;
      if (k && pairs_->in_range(n, o_.dqk, k, p_.k.stride[2]))
        return run_.for_rows(
            tile(at, 0, j0, n, x.s), range, false, [&](int64_t j, int64_t count, int64_t begin, int64_t end) {
              begin = begin / kTilePad * kTilePad;
              pairs_->multiply(count, end - begin, o_.dqk / 2, reinterpret_cast<const uint32_t*>(k) + j * ld, ld, 1,
                               x.pair_q + begin, kTile, x.s + j * kTile + begin, kTile, run_.scale, false);
            });
    }
    load_queries(at, x);
    const TileRows<T> k = run_.rows(p_.k, k_, at.b, o_.k_head(at.h0), j0, n, o_.dqk, x.kv, d_pad_);
    if (at.columns() <= kFewColumns) {
      math_.multiply_rows(n, at.columns(), d_pad_, k.at, k.ld, x.q, d_pad_, x.s, kTile,
                          run_.ahead(p_.v, v_, at.b, o_.v_head(at.h0), j0, o_.dv));
    } else if (at.heads > 1) {
      math_.multiply(n, at.columns(), o_.dqk, {k.at, k.ld, 1}, x.qt, kTile, x.s, kTile, false);
    } else {
      run_.for_rows(tile(at, 0, j0, n, x.s), range, false, [&](int64_t j, int64_t count, int64_t begin, int64_t end) {
        begin = begin / kTilePad * kTilePad;
        math_.multiply(count, end - begin, o_.dqk, {k.at + j * k.ld, k.ld, 1}, x.qt + begin, kTile,
                       x.s + j * kTile + begin, kTile, false);
      });
    }
  }

  void drop(const Place& at, int64_t j0, int64_t n, const Scratch& x) const {
    for (int64_t h = 0; h < at.heads; ++h) run_.dropout_factors(tile(at, h, j0, n, x.f));
    for (int64_t j = 0; j < n; ++j)
      for (int64_t c = 0; c < at.columns(); ++c) x.s[j * kTile + c] *= x.f[j * kTile + c];
  }

  void add_values(const Place& at, int64_t j0, int64_t n, const KeyRange* range, const Sums& sums,
                  const Scratch& x) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      const uint16_t* v = x.pairs ? halves(p_.v, v_, at.b, o_.v_head(at.h0), j0) : nullptr;
      if (v && pairs_->in_range(n, o_.dv, v, p_.v.stride[2]) &&
          pairs_->pair_weights(n, at.rows, x.s, kTile, x.pair_s, kTile)) {
        pairs_->pair_rows(n, o_.dv, v, p_.v.stride[2], x.pair_v, v_pad_);
        return run_.for_rows(
            tile(at, 0, j0, n, x.s), range, true, [&](int64_t i, int64_t count, int64_t begin, int64_t end) {
              const int64_t first = begin / 2;  // the weight of a key that is not seen is 0
              pairs_->multiply(count, o_.dv, (end + 1) / 2 - first, x.pair_s + first * kTile + i, 1, kTile,
                               x.pair_v + first * v_pad_, v_pad_, sums.o + i * v_pad_, v_pad_, 1, true);
            });
      }
    }
    const TileRows<T> v = run_.rows(p_.v, v_, at.b, o_.v_head(at.h0), j0, n, o_.dv, x.kv, v_pad_);
    const bool finite = math_.all_finite(n, o_.dv, v.at, v.ld);
    const auto add = [&](int64_t c, int64_t count, int64_t begin, int64_t end) {
      const TileFactor<T> weights{x.s + begin * kTile + c, 1, kTile};
      T* const to = sums.o + c * v_pad_;
      if (finite) math_.multiply(count, o_.dv, end - begin, weights, v.at + begin * v.ld, v.ld, to, v_pad_, true);
      else multiply_nonzero<T>(count, o_.dv, end - begin, weights, v.at + begin * v.ld, v.ld, to, v_pad_);
    };
    if (at.columns() <= kFewColumns) {
      // Bound by memory: the next keys come while these values are used.
      const TileAhead next = run_.ahead(p_.k, k_, at.b, o_.k_head(at.h0), j0 + kTile, o_.dqk);
      for (int64_t j = 0; j < n; j += 2 * kTileRows) {
        const int64_t end = std::min(n, j + 2 * kTileRows);
        for (int64_t r = j; r < end; ++r) next.fetch(r);
        add(0, at.columns(), j, end);
      }
      return;
    }
    if (at.heads > 1) add(0, at.columns(), 0, n);
    else run_.for_rows(tile(at, 0, j0, n, x.s), range, true, add);
  }

  void finish(const Place& at, const Sums& sums) const {
    for (int64_t c = 0; c < at.columns(); ++c)
      finish_row(at.b, at.h0 + c / at.rows, at.i0 + c % at.rows, sums.max[c], sums.total[c], sums.o + c * v_pad_);
  }

  void finish_row(int64_t b, int64_t h, int64_t i, T max, T total, T* sums) const {
    constexpr T kNone = -std::numeric_limits<T>::infinity();
    const bool kept = !(total == 0);  // a NaN counts as kept
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
  const Cut& cut_;
  const TileMath<T> math_;
  const Bf16Math* pairs_ = nullptr;
  const int64_t d_pad_, v_pad_;
  T* const partial_;
  const void *q_, *k_, *v_, *sink_ = nullptr;
  std::array<void*, ops::kOutRngDump + 1> out_{};
};

}  // namespace

template <class T>
int64_t attention_forward_scratch(const ops::AttentionOptions& o) {
  const Cut cut(o);
  return cut.parts > 1 ? cut.tiles * cut.parts * Forward<T>::partial_size(o, cut) * int64_t(sizeof(T)) : 0;
}

template <class T>
void attention_forward(const AttentionProblem& problem, const Bindings& bindings, void* workspace, char* scratch) {
  const AttentionRun<T> run(problem, bindings, workspace);
  const Cut cut(problem.o);
  const Forward<T> forward(run, cut, reinterpret_cast<T*>(scratch));
  parallel_for(cut.tiles * cut.parts, [&](int64_t task) { forward.part(task); });
  if (cut.parts > 1) parallel_for(cut.tiles, [&](int64_t tile) { forward.join(tile); });
  if (problem.has_out(ops::kOutRngDump)) run.dump_mask(problem.out[ops::kOutRngDump]);
}

template int64_t attention_forward_scratch<float>(const ops::AttentionOptions&);
template int64_t attention_forward_scratch<double>(const ops::AttentionOptions&);
template void attention_forward<float>(const AttentionProblem&, const Bindings&, void*, char*);
template void attention_forward<double>(const AttentionProblem&, const Bindings&, void*, char*);

}  // namespace tilewright::cpu
