// One attention node on the CPU: what is known when its plan is made (AttentionProblem), and while it runs
// (AttentionRun), with the loading of tiles and the masks, which the forward and the backward share.
#pragma once

#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "base/numeric_types.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "engines/cpu/attention.h"
#include "engines/cpu/attention_tile.h"
#include "fuse/attention_problem.h"

namespace tilewright::cpu {

using fuse::AttentionOperand;

struct AttentionProblem : fuse::AttentionProblem {
  AttentionProblem(const ir::Graph& g, const ir::Node& n, AddressOf address_of)
      : fuse::AttentionProblem(g, n), address(std::move(address_of)) {}
  AddressOf address;
};

// The keys [begin, end) that a query sees. Neither end falls from one query of a batch to the next, so the queries that
// see a key are neighbours too.
struct KeyRange {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

// Queries or keys per tile: a multiple of the rows and the columns that the arithmetic works on at once.
constexpr int64_t kTile = 96;

// Tasks below which the work of a shape is cut further: enough for many threads, and for a few to end together.
constexpr int64_t kEnoughTasks = 32;

inline int64_t blocks_of(int64_t n, int64_t size = kTile) { return (n + size - 1) / size; }

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

// Rows of an operand, in a tile or in the tensor.
template <class T>
struct TileRows {
  const T* at;
  int64_t ld;
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
  // Queries beyond the batch's length see the empty range behind its keys.
  KeyRange keys_seen(int64_t b, int64_t i) const {
    const int64_t rows = rows_of(b), keys = keys_of(b), shift = o.bottom_right ? keys - rows : 0;
    if (i >= rows) return {keys, keys};
    KeyRange r{0, keys};
    if (o.right) r.end = std::clamp<int64_t>(i + shift + *o.right + 1, 0, keys);
    if (o.left) r.begin = std::clamp<int64_t>(i + shift - *o.left + 1, 0, keys);
    return {r.begin, std::max(r.begin, r.end)};
  }
  // Those of queries [i0, i0 + rows); returns what they cover together.
  KeyRange keys_seen(int64_t b, int64_t i0, int64_t rows, KeyRange* range) const {
    KeyRange all{o.skv, 0};
    for (int64_t i = 0; i < rows; ++i) {
      range[i] = keys_seen(b, i0 + i);
      if (!range[i].empty()) all = {std::min(all.begin, range[i].begin), std::max(all.end, range[i].end)};
    }
    return all;
  }

  // Rows [first, first + rows) of one head, times `factor`; columns up to the next multiple of kTilePad become 0.
  void load(const AttentionOperand& x, const void* from, int64_t b, int64_t h, int64_t first, int64_t rows,
            int64_t cols, T* to, int64_t ld, T factor = 1) const {
    if (factor == 1 && x.stride[3] == 1 && reinterpret_cast<uintptr_t>(from) % 2 == 0 &&
        tile_math<T>().widen(x.type, rows, cols, static_cast<const char*>(from) + 2 * x.at(b, h, first, 0), x.stride[2],
                             to, ld))
      return pad(rows, cols, to, ld);
    for (int64_t r = 0; r < rows; ++r) {
      T* row = to + r * ld;
      load_row(from, x.type, x.at(b, h, first + r, 0), x.stride[3], cols, row);
      if (factor != 1)
        for (int64_t c = 0; c < cols; ++c) row[c] *= factor;
    }
    pad(rows, cols, to, ld);
  }
  static void pad(int64_t rows, int64_t cols, T* x, int64_t ld) {
    for (int64_t r = 0; r < rows && cols < padded(cols); ++r)
      std::fill(x + r * ld + cols, x + r * ld + padded(cols), T(0));
  }
  // The same where the memory serves as it is: the tensor itself when its rows are plain and near each other, else
  // loaded to `to`.
  TileRows<T> rows(const AttentionOperand& x, const void* from, int64_t b, int64_t h, int64_t first, int64_t rows,
                   int64_t cols, T* to, int64_t ld) const {
    constexpr DataType_t kPlain = sizeof(T) == 4 ? DataType_t::FLOAT : DataType_t::DOUBLE;
    if (x.type == kPlain && x.stride[3] == 1 && cols % kTilePad == 0 && x.stride[2] >= 0 && x.stride[2] <= 2 * cols &&
        reinterpret_cast<uintptr_t>(from) % alignof(T) == 0)
      return {static_cast<const T*>(from) + x.at(b, h, first, 0), x.stride[2]};
    load(x, from, b, h, first, rows, cols, to, ld);
    return {to, ld};
  }
  // Rows that will be asked for soon.
  static TileAhead ahead(const AttentionOperand& x, const void* from, int64_t b, int64_t h, int64_t first,
                         int64_t cols) {
    const int64_t size = element_bits(x.type) / 8;
    return {static_cast<const char*>(from) + x.at(b, h, first, 0) * size, x.stride[3] == 1 ? cols * size : 0,
            x.stride[2] * size};
  }
  static void load_row(const void* from, DataType_t type, int64_t index, int64_t stride, int64_t n, T* to) {
    if constexpr (sizeof(T) == 4) load_floats(from, type, index, stride, n, to);
    else load_doubles(from, type, index, stride, n, to);
  }
  static void store_row(void* to, DataType_t type, int64_t index, int64_t stride, int64_t n, const T* from) {
    if constexpr (sizeof(T) == 4) store_floats(to, type, index, stride, n, from);
    else store_doubles(to, type, index, stride, n, from);
  }

  // Scores of one head: queries [i0, i0 + rows) and keys [j0, j0 + cols). Element (i, j) lies at i * row + j * col, one
  // of which is 1.
  struct Tile {
    int64_t b, h, i0, rows, j0, cols;
    T* s;
    int64_t row, col;
  };
  // Whether every query of the tile sees every key.
  static bool sees_all(const Tile& t, const KeyRange* range) {
    return range[t.rows - 1].begin <= t.j0 && range[0].end >= t.j0 + t.cols;
  }
  // What follows the product of Q and K: bias, ALiBi, masks. `range` gives each query's keys. -inf where excluded,
  // whatever was there.
  void finish_scores(const Tile& t, const KeyRange* range) const {
    constexpr T kNone = -std::numeric_limits<T>::infinity();
    if (p.bias) add_bias(t);
    if (o.alibi) add_alibi(t);
    if (sees_all(t, range)) return;
    if (t.col == 1) {
      for (int64_t i = 0; i < t.rows; ++i) {
        T* s = t.s + i * t.row;
        const int64_t begin = std::clamp<int64_t>(range[i].begin - t.j0, 0, t.cols);
        std::fill(s, s + begin, kNone);
        std::fill(s + std::clamp<int64_t>(range[i].end - t.j0, begin, t.cols), s + t.cols, kNone);
      }
      return;
    }
    int64_t first = 0, last = 0;  // the queries [first, last) see key j
    for (int64_t j = t.j0; j < t.j0 + t.cols; ++j) {
      T* s = t.s + (j - t.j0) * t.col;
      while (first < t.rows && range[first].end <= j) ++first;
      while (last < t.rows && range[last].begin <= j) ++last;
      std::fill(s, s + first, kNone);
      std::fill(s + last, s + t.rows, kNone);
    }
  }

  // Calls body(first, count, inner begin, inner end) for the rows of a tile, which are its queries (keys_inside) or its
  // keys, some at a time, with what they see of the other side, or are seen by.
  template <class Body>
  static void for_rows(const Tile& t, const KeyRange* range, bool keys_inside, const Body& body) {
    const int64_t rows = keys_inside ? t.rows : t.cols;
    if (sees_all(t, range)) return body(int64_t{0}, rows, int64_t{0}, keys_inside ? t.cols : t.rows);
    int64_t begin = 0, end = 0;
    for (int64_t r = 0; r < rows; r += kTileRows) {
      const int64_t count = std::min(kTileRows, rows - r);
      if (keys_inside) {
        begin = std::clamp<int64_t>(range[r].begin - t.j0, 0, t.cols);
        end = std::clamp<int64_t>(range[r + count - 1].end - t.j0, 0, t.cols);
      } else {
        while (begin < t.rows && range[begin].end <= t.j0 + r) ++begin;
        while (end < t.rows && range[end].begin < t.j0 + r + count) ++end;
      }
      if (begin < end) body(r, count, begin, end);
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

  void add_alibi(const Tile& t) const {
    const T slope = T(p.slope[size_t(t.h)]);
    const bool keys_inside = t.col == 1;
    const int64_t outer = keys_inside ? t.rows : t.cols, inner = keys_inside ? t.cols : t.rows;
    for (int64_t y = 0; y < outer; ++y) {
      T* s = t.s + y * (keys_inside ? t.row : t.col);
      const int64_t first = keys_inside ? t.j0 - t.i0 - y : t.j0 + y - t.i0;
      const int64_t step = keys_inside ? 1 : -1;
      for (int64_t x = 0; x < inner; ++x) s[x] += slope * T(first + step * x);
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

// What they need of the workspace, in bytes, and their runs; T is float or double.
template <class T>
int64_t attention_forward_scratch(const ops::AttentionOptions&);
template <class T>
void attention_forward(const AttentionProblem&, const Bindings&, void* workspace, char* scratch);
template <class T>
int64_t attention_backward_scratch(const ops::AttentionOptions&);
template <class T>
void attention_backward(const AttentionProblem&, const Bindings&, void* workspace, char* scratch);

}  // namespace tilewright::cpu
