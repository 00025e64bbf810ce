// One attention node on the CPU: what is known when its plan is made (AttentionProblem), and while it runs
// (AttentionRun), with the loading of tiles and the masks, which the forward and the backward share.
#pragma once

#include <array>
#include <limits>
#include <memory>
#include <vector>

#include "base/numeric_types.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "engines/cpu/attention.h"
#include "engines/cpu/attention_tile.h"
#include "ops/attention_common.h"

namespace tilewright::cpu {

// A tensor with four dims of stride; a factor of the scores is broadcast to theirs.
struct AttentionOperand {
  ir::TensorId id = ir::kNone;
  DataType_t type = DataType_t::NOT_SET;
  std::array<int64_t, 4> stride{};
  // The stored value of a scalar, in its type.
  std::shared_ptr<const std::array<uint8_t, 16>> stored;

  explicit operator bool() const { return id != ir::kNone; }
  int64_t at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3];
  }
};

struct AttentionProblem {
  AttentionProblem(const ir::Graph&, const ir::Node&, AddressOf);

  ops::AttentionOptions o;
  AddressOf address;
  bool in_double = false;  // an operand or the compute type is DOUBLE
  AttentionOperand q, k, v, scale, bias, seq_q, seq_kv, seed, offset, drop_mask, drop_scale, sink;  // both
  AttentionOperand o_in, d_out, stats_in;                                                           // backward
  std::vector<AttentionOperand> out;                                                                // by port
  Dims dbias_dim;
  std::vector<double> slope;  // ALiBi, by head

  bool has_out(size_t port) const { return port < out.size() && out[port]; }
};

// The keys [begin, end) that a query sees.
struct KeyRange {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

// Queries or keys per tile: a multiple of the rows and the columns that the arithmetic works on at once.
constexpr int64_t kTile = 96;

inline int64_t blocks_of(int64_t n) { return (n + kTile - 1) / kTile; }

// Memory of one thread, kept between runs, cut into tiles.
template <class T>
class TileScratch {
 public:
  // Tiles of the given numbers of elements, each aligned to a vector.
  template <size_t N>
  static std::array<T*, N> get(const std::array<int64_t, N>& sizes) {
    thread_local std::vector<T> memory;
    int64_t total = kTilePad;
    for (int64_t s : sizes) total += padded(s);
    if (int64_t(memory.size()) < total) memory.assign(size_t(total), T(0));
    std::array<T*, N> tiles;
    T* at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / sizeof(T);
    for (size_t i = 0; i < N; ++i) tiles[i] = at, at += padded(sizes[i]);
    return tiles;
  }
};

template <class T>
class AttentionRun {
 public:
  AttentionRun(const AttentionProblem& problem, const Bindings& bindings, void* workspace)
      : p(problem), o(problem.o), bindings_(bindings), workspace_(workspace) {
    if (o.scale) scale = T(*o.scale);
    else if (p.scale) scale = T(scalar(p.scale));
    if (o.philox)
      philox_ = Philox(integer_key(memory(p.seed), p.seed.type), integer_key(memory(p.offset), p.offset.type));
    keep_ = Philox::threshold(1 - o.drop_probability);
    if (p.seq_q) seq_q_ = memory(p.seq_q), seq_kv_ = memory(p.seq_kv);
    if (p.bias) bias_ = memory(p.bias);
    if (p.drop_mask) drop_mask_ = memory(p.drop_mask);
    if (p.drop_scale) drop_scale_ = memory(p.drop_scale);
  }

  const AttentionProblem& p;
  const ops::AttentionOptions& o;
  T scale = 1;

  void* memory(const AttentionOperand& x) const {
    if (x.stored) return const_cast<uint8_t*>(x.stored->data());
    return p.address(x.id, bindings_, workspace_);
  }
  double scalar(const AttentionOperand& x) const { return load_element(memory(x), x.type, 0); }
  double element(const AttentionOperand& x, const void* from, int64_t b, int64_t h, int64_t i) const {
    return load_element(from, x.type, x.at(b, h, i, 0));
  }

  int64_t rows_of(int64_t b) const { return length(p.seq_q, seq_q_, b, o.sq); }
  int64_t keys_of(int64_t b) const { return length(p.seq_kv, seq_kv_, b, o.skv); }
  KeyRange keys_seen(int64_t b, int64_t i) const {
    const int64_t rows = rows_of(b), keys = keys_of(b), shift = o.bottom_right ? keys - rows : 0;
    if (i >= rows) return {};
    KeyRange r{0, keys};
    if (o.right) r.end = std::clamp<int64_t>(i + shift + *o.right + 1, 0, keys);
    if (o.left) r.begin = std::clamp<int64_t>(i + shift - *o.left + 1, 0, keys);
    return r.empty() ? KeyRange{} : r;
  }

  // Rows [first, first + rows) of one head, times `factor`; columns up to the next multiple of kTilePad become 0.
  void load(const AttentionOperand& x, const void* from, int64_t b, int64_t h, int64_t first, int64_t rows,
            int64_t cols, T* to, int64_t ld, T factor = 1) const {
    for (int64_t r = 0; r < rows; ++r) {
      T* row = to + r * ld;
      load_row(from, x.type, x.at(b, h, first + r, 0), x.stride[3], cols, row);
      if (factor != 1)
        for (int64_t c = 0; c < cols; ++c) row[c] *= factor;
      for (int64_t c = cols; c < padded(cols); ++c) row[c] = 0;
    }
  }
  static void load_row(const void* from, DataType_t type, int64_t index, int64_t stride, int64_t n, T* to) {
    if constexpr (sizeof(T) == 4) load_floats(from, type, index, stride, n, to);
    else load_doubles(from, type, index, stride, n, to);
  }
  static void store_row(void* to, DataType_t type, int64_t index, int64_t stride, int64_t n, const T* from) {
    if constexpr (sizeof(T) == 4) store_floats(to, type, index, stride, n, from);
    else store_doubles(to, type, index, stride, n, from);
  }
  // to [cols, ld_to] = from [rows, ld_from] transposed; columns of `to` up to the next multiple of kTilePad become 0.
  static void transpose(const T* from, int64_t rows, int64_t cols, int64_t ld_from, T* to, int64_t ld_to) {
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t r = 0; r < rows; ++r) to[c * ld_to + r] = from[r * ld_from + c];
      for (int64_t r = rows; r < padded(rows); ++r) to[c * ld_to + r] = 0;
    }
  }

  // A tile of scores: element (i, j) lies at i * row + j * col, one of which is 1.
  struct Tile {
    int64_t b, h, i0, rows, j0, cols;
    T* s;
    int64_t row, col;
  };
  // What follows the product of Q and K: bias, ALiBi, masks. `range` gives each row's keys. -inf where excluded.
  void finish_scores(const Tile& t, const KeyRange* range) const {
    constexpr T kNone = -std::numeric_limits<T>::infinity();
    if (p.bias) add_bias(t);
    for (int64_t i = 0; i < t.rows; ++i) {
      T* s = t.s + i * t.row;
      if (o.alibi) {
        const T slope = T(p.slope[size_t(t.h)]);
        for (int64_t j = 0; j < t.cols; ++j) s[j * t.col] += slope * T(t.j0 + j - t.i0 - i);
      }
      const int64_t begin = std::clamp<int64_t>(range[i].begin - t.j0, 0, t.cols);
      const int64_t end = std::clamp<int64_t>(range[i].end - t.j0, begin, t.cols);
      for (int64_t j = 0; j < begin; ++j) s[j * t.col] = kNone;
      for (int64_t j = end; j < t.cols; ++j) s[j * t.col] = kNone;
    }
  }

  bool drops() const { return o.philox || p.drop_mask || p.drop_scale; }
  // What dropout multiplies P with, in the places of the tile's scores.
  void dropout_factors(const Tile& t) const {
    T line[kTile];
    for (int64_t i = 0; i < t.rows; ++i) {
      T* s = t.s + i * t.row;
      if (o.philox) {
        keep_row(t.b, t.h, t.i0 + i, t.j0, t.cols, T(o.keep_scale()), line);
        for (int64_t j = 0; j < t.cols; ++j) s[j * t.col] = line[j];
        continue;
      }
      for (int64_t j = 0; j < t.cols; ++j) s[j * t.col] = 1;
      for (const auto& [x, from] : {std::pair{&p.drop_mask, drop_mask_}, {&p.drop_scale, drop_scale_}}) {
        if (!*x) continue;
        load_row(from, x->type, x->at(t.b, t.h, t.i0 + i, t.j0), x->stride[3], t.cols, line);
        for (int64_t j = 0; j < t.cols; ++j) s[j * t.col] *= line[j];
      }
    }
  }

  // The keep mask as a tensor.
  void dump_mask(const AttentionOperand& to) const {
    void* out = memory(to);
    parallel_for(o.b * o.hq * o.sq, [&](int64_t row) {
      const int64_t i = row % o.sq, h = row / o.sq % o.hq, b = row / o.sq / o.hq;
      T line[kTile];
      for (int64_t j = 0; j < o.skv; j += kTile) {
        const int64_t n = std::min(kTile, o.skv - j);
        keep_row(b, h, i, j, n, 1, line);
        store_row(out, to.type, to.at(b, h, i, j), to.stride[3], n, line);
      }
    });
  }

 private:
  // A bias of -inf excludes its key, whatever the key holds.
  static T biased(T score, T bias) {
    constexpr T kNone = -std::numeric_limits<T>::infinity();
    return bias == kNone ? kNone : score + bias;
  }
  void add_bias(const Tile& t) const {
    // Some rows at a time, so that a transposed tile is written along its rows too.
    constexpr int64_t kRows = 16;
    T lines[kRows][kTile];
    for (int64_t i0 = 0; i0 < t.rows; i0 += kRows) {
      const int64_t rows = std::min(kRows, t.rows - i0);
      for (int64_t i = 0; i < rows; ++i)
        load_row(bias_, p.bias.type, p.bias.at(t.b, t.h, t.i0 + i0 + i, t.j0), p.bias.stride[3], t.cols, lines[i]);
      if (t.row == 1) {
        for (int64_t j = 0; j < t.cols; ++j) {
          T* s = t.s + i0 + j * t.col;
          for (int64_t i = 0; i < rows; ++i) s[i] = biased(s[i], lines[i][j]);
        }
      } else {
        for (int64_t i = 0; i < rows; ++i) {
          T* s = t.s + (i0 + i) * t.row;
          for (int64_t j = 0; j < t.cols; ++j) s[j] = biased(s[j], lines[i][j]);
        }
      }
    }
  }

  static int64_t length(const AttentionOperand& x, const void* from, int64_t b, int64_t whole) {
    return x ? std::clamp<int64_t>(int64_t(load_element(from, x.type, b * x.stride[0])), 0, whole) : whole;
  }

  // `kept` where the mask keeps (b, h, i, j0 + n), else 0. Four neighbours share one block of random words.
  void keep_row(int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n, T kept, T* line) const {
    const uint64_t first = uint64_t(((b * o.hq + h) * o.sq + i) * o.skv + j0);
    if (!o.philox) {
      std::fill(line, line + n, kept);
      return;
    }
    std::array<uint32_t, 4> words{};
    for (int64_t j = 0; j < n; ++j) {
      const uint64_t e = first + uint64_t(j);
      if (j == 0 || e % 4 == 0) words = philox_.block(e / 4);
      line[j] = words[e % 4] < keep_ ? kept : T(0);
    }
  }

  const Bindings& bindings_;
  void* workspace_;
  Philox philox_;
  uint64_t keep_ = 0;
  const void *seq_q_ = nullptr, *seq_kv_ = nullptr, *bias_ = nullptr, *drop_mask_ = nullptr, *drop_scale_ = nullptr;
};

template <class T>
void attention_forward(const AttentionProblem&, const Bindings&, void* workspace);
template <class T>
void attention_backward(const AttentionProblem&, const Bindings&, void* workspace);

}  // namespace tilewright::cpu
