#include "engines/cpu/epilogue.h"

#include <algorithm>
#include <limits>

namespace tilewright::cpu {

using fuse::Instr;
using fuse::PwOp;

template <class T>
void Epilogue<T>::prepare(const fuse::Region& region, const Problem& problem, const Tiling& tiling) {
  program_ = region.program;
  side_ = region.side;
  problem_ = problem;
  tiling_ = tiling;
  batch_index_.set(problem_, 'b');
  row_.set(problem_, 'm');
  column_.set(problem_, 'n');
  for (const fuse::Access& a : program_.access) {
    strides_.push_back(problem_strides(problem_, a));
    origin_.push_back(problem_offset(problem_, a));
  }
  lane_ = column_.dims.back();
  lane_extent_ = std::max<int64_t>(1, problem_.dims[size_t(lane_)].extent);
  for (const Factors& s : strides_) lane_stride_.push_back(s[size_t(lane_)]);
  make_rows();
  make_ops_lists();
  make_sides();
  make_plain();
}

// Whether the dims of a group, taken as one index, move through memory in equal steps; which, in `stride`.
bool is_affine(const Problem& p, const std::vector<int>& dims, const Factors& strides, int64_t* stride) {
  int64_t count = 1;
  *stride = 0;
  for (size_t d = dims.size(); d-- > 0;) {
    const int64_t extent = p.dims[size_t(dims[d])].extent, s = strides[size_t(dims[d])];
    if (extent == 1) continue;
    if (count == 1) *stride = s;
    else if (s != *stride * count) return false;
    count *= extent;
  }
  return true;
}

template <class T>
void Epilogue<T>::make_rows() {
  rows_affine_ = true;
  bool in_line = tiling_.n == lane_extent_ && tiling_.n == tiling_.tile_n;
  for (size_t a = 0; a < strides_.size(); ++a) {
    int64_t stride = 0;
    rows_affine_ = rows_affine_ && is_affine(problem_, row_.dims, strides_[a], &stride);
    row_stride_.push_back(stride);
    in_line = in_line && (stride == 0 || stride == tiling_.n * lane_stride_[a]);
  }
  for (const Instr& i : program_.code)
    if (i.op == PwOp::Store) in_line = in_line && row_stride_[size_t(i.access)] != 0;
  if (rows_affine_ && in_line) block_ = std::max<int64_t>(1, kLanes / tiling_.n);
}

// In, then perhaps an addition of what is the same for all rows, then perhaps a RELU, then the one store.
template <class T>
void Epilogue<T>::make_plain() {
  const auto& code = program_.code;
  // Elements in equal steps along n, and no others along m: those steps, or -1.
  const auto column_stride = [&](int access) {
    int64_t stride = 0;
    if (!is_affine(problem_, column_.dims, strides_[size_t(access)], &stride)) return int64_t{-1};
    return tiling_.n == 1 ? 1 : stride;
  };
  const auto is_native_type = [&](int access) { return program_.access[size_t(access)].type == kNativeType<T>; };
  if (!rows_affine_ || !side_.empty() || in_ < 0) return;
  int value = in_, uses = 1;
  for (const Instr& i : code) {
    const bool reads = i.arg[0] == value || i.arg[1] == value || i.arg[2] == value;
    if (i.op == PwOp::Load || !reads) continue;
    ++uses;
    if (i.op == PwOp::Store) {
      plain_store_ = i.access;
    } else if (i.op == PwOp::Pointwise && i.mode == PointwiseMode_t::ADD && value == in_ && i.arg[0] != i.arg[1]) {
      const Instr& other = code[size_t(i.arg[i.arg[0] == value])];
      if (other.op != PwOp::Load || row_stride_[size_t(other.access)] != 0 || !is_native_type(other.access)) return;
      plain_add_ = other.access;
      add_stride_ = column_stride(other.access);
      ++uses;
      value = int(&i - code.data());
    } else if (i.op == PwOp::Pointwise && i.mode == PointwiseMode_t::RELU_FWD && i.params.slope == 0 &&
               i.params.upper == std::numeric_limits<double>::infinity() && !finish_.clips) {
      finish_.clips = true, finish_.lower = T(i.params.lower);
      value = int(&i - code.data());
    } else {
      return;
    }
  }
  // Every instruction took part, the store last.
  if (uses != int(code.size()) || code.back().op != PwOp::Store) return;
  const DataType_t stored = program_.access[size_t(plain_store_)].type;
  const bool narrow = sizeof(T) == 4 && (stored == DataType_t::HALF || stored == DataType_t::BFLOAT16);
  plain_ = (narrow || is_native_type(plain_store_)) && column_stride(plain_store_) == 1;
}

template <class T>
int64_t Epilogue<T>::offset_of(size_t access, int64_t batch, int64_t column) const {
  int64_t index[kMaxProblem] = {};
  batch_index_.decode(batch, index);
  int64_t at = origin_[access] + column;
  for (int d : batch_index_.dims) at += index[d] * strides_[access][size_t(d)];
  return at;
}

template <class T>
void Epilogue<T>::store(void* const* base, int64_t batch, int64_t row, int64_t column, const T* values, int64_t ld,
                        int64_t rows, int64_t columns) const {
  const DataType_t type = program_.access[size_t(plain_store_)].type;
  int64_t at = plain_element(batch, row, column);
  if (ld == columns && plain_row_stride() == columns) columns *= rows, rows = 1;
  for (int64_t r = 0; r < rows; ++r, at += plain_row_stride(), values += ld)
    store_values(base[plain_store_], type, at, columns, values);
}

template <class T>
Finish<T> Epilogue<T>::finish_of(void* const* base, int64_t batch, int64_t column) const {
  Finish<T> f = finish_;
  if (plain_add_ >= 0) f.add = static_cast<const T*>(base[plain_add_]) + offset_of(size_t(plain_add_), batch, column);
  return f;
}

template <class T>
void Epilogue<T>::make_ops_lists() {
  std::vector<int> uniform, repeated, rest;
  std::vector<bool> is_uniform(program_.code.size());
  for (size_t k = 0; k < program_.code.size(); ++k) {
    const Instr& i = program_.code[k];
    if (i.op == PwOp::In) in_ = int(k);
    bool u = i.op != PwOp::Load && i.op != PwOp::Index && i.op != PwOp::In && i.op != PwOp::Store;
    for (int a : i.arg) u = u && (a < 0 || is_uniform[size_t(a)]);
    is_uniform[k] = u;
    const bool same = (i.op == PwOp::Load || i.op == PwOp::Index) && row_stride_[size_t(i.access)] == 0;
    (u ? uniform : same && block_ > 1 ? repeated : rest).push_back(int(k));
  }
  std::stable_partition(rest.begin(), rest.end(), [&](int k) { return program_.code[size_t(k)].op != PwOp::Store; });
  uniform_ = make_ops<T>(program_, uniform);
  repeated_ = make_ops<T>(program_, repeated);
  ops_ = make_ops<T>(program_, rest);
  // What a side reduction folds must outlive the list: it keeps a buffer of its own.
  BlockOps<T> folded;
  for (const fuse::SideReduction& s : side_) folded.push_back(make_ops<T>(program_, {s.value})[0]);
  slots_ = assign_slots<T>({&uniform_, &repeated_, &folded}, {&ops_}, int(program_.code.size()));
  for (BlockOp<T>& op : ops_)
    for (const BlockOp<T>& f : folded)
      if (op.id == f.id) op.slot = f.slot;
}

template <class T>
void Epilogue<T>::make_sides() {
  int64_t at = 0;
  for (const fuse::SideReduction& side : side_) {
    Side s;
    const auto folded = [&](int problem_dim) {
      for (size_t d = 0; d < problem_.result.size(); ++d)
        if (problem_.result[d][size_t(problem_dim)] != 0 && !(side.reduced >> d & 1) && program_.domain[d] != 1)
          return false;
      return true;
    };
    // The builder made sure that a group is folded as a whole or not at all; dims of one element fold either way.
    const auto group_folded = [&](const GroupIndex& g) {
      return std::all_of(g.dims.begin(), g.dims.end(),
                         [&](int d) { return problem_.dims[size_t(d)].extent == 1 || folded(d); });
    };
    s.m_folded = group_folded(row_);
    s.n_folded = group_folded(column_);
    s.out_stride = problem_strides(problem_, side.out);
    const auto keep = [&](int d) { s.index_stride[size_t(d)] = 1; };
    for (int d : batch_index_.dims)
      if (!folded(d)) keep(d);
    if (!s.m_folded)
      for (int d : row_.dims) keep(d);
    if (!s.n_folded)
      for (int d : column_.dims) keep(d);
    for (size_t d = problem_.dims.size(); d-- > 0;)
      if (s.index_stride[d]) s.index_stride[d] = s.outputs, s.outputs *= problem_.dims[d].extent;
    s.per_tile = (s.m_folded ? 1 : tiling_.tile_m) * (s.n_folded ? 1 : tiling_.tile_n);
    s.offset = at;
    at += s.per_tile * tiling_.count();
    s.out_offset = at;
    at += s.outputs;
    sides_.push_back(s);
  }
  side_scratch_ = at;
}

// --- a tile ----------------------------------------------------------------------------------------------------------

template <class T>
void Epilogue<T>::Tile::cut(Cutter& c) {
  frame_.value = c.template take<const T*>(int64_t(e_.program_.code.size()));
  frame_.buffers = c.template take<T>(int64_t(e_.slots_) * kLanes);
  offset_ = c.template take<int64_t>(int64_t(e_.program_.access.size()));
  start_ = c.template take<int64_t>(int64_t(e_.program_.access.size()));
}

// Offsets of row 0 of the result at a column.
template <class T>
void Epilogue<T>::Tile::place(int64_t column, int64_t* at) {
  e_.column_.decode(column, index_);
  for (size_t a = 0; a < e_.strides_.size(); ++a) {
    at[a] = e_.origin_[a];
    for (int d : e_.batch_index_.dims) at[a] += index_[d] * e_.strides_[a][size_t(d)];
    for (int d : e_.column_.dims) at[a] += index_[d] * e_.strides_[a][size_t(d)];
  }
}

template <class T>
void Epilogue<T>::Tile::start(int64_t tile, const Memory& memory, void* const* base, double* partial) {
  tile_ = tile;
  m0_ = e_.tiling_.m0(tile);
  n0_ = e_.tiling_.n0(tile);
  columns_ = std::min(e_.tiling_.tile_n, e_.tiling_.n - n0_);
  partial_ = partial;
  std::fill_n(index_, kMaxProblem, 0);
  e_.batch_index_.decode(e_.tiling_.batch_of(tile), index_);
  frame_.memory = base;
  frame_.tensors = &memory;
  frame_.offset = offset_;
  frame_.lane_stride = e_.lane_stride_.data();
  frame_.n = kLanes;
  run_ops(e_.uniform_, frame_);
  repeat();
  for (size_t s = 0; s < e_.sides_.size(); ++s)
    std::fill_n(partial + e_.sides_[s].offset + tile * e_.sides_[s].per_tile, e_.sides_[s].per_tile,
                fuse::reduction_start(e_.side_[s].mode));
}

template <class T>
void Epilogue<T>::Tile::repeat() {
  if (e_.repeated_.empty()) return;
  place(n0_, offset_);
  frame_.n = columns_;
  run_ops(e_.repeated_, frame_);
  for (const BlockOp<T>& op : e_.repeated_) {
    T* const to = frame_.buffers + int64_t(op.slot) * kLanes;
    for (int64_t r = 0; r < e_.block_; ++r)
      if (const T* from = frame_.value[op.id]; from != to + r * columns_)
        std::copy_n(from, columns_, to + r * columns_);
    frame_.value[op.id] = to;
  }
}

template <class T>
void Epilogue<T>::Tile::apply(const T* sums, int64_t ld, int64_t first, int64_t rows) {
  for (int64_t j = 0; j < columns_;) {
    place(n0_ + j, start_);
    const int64_t n = std::min(columns_ - j, e_.lane_extent_ - index_[e_.lane_]);
    for (int64_t i = 0; i < rows; i += e_.block_)
      apply_at(sums + i * ld + j, first + i, j, n * std::min(e_.block_, rows - i));
    j += n;
  }
}

// Lanes from row i and column j of the tile on.
template <class T>
void Epilogue<T>::Tile::apply_at(const T* sums, int64_t i, int64_t j, int64_t n) {
  if (!e_.rows_affine_) e_.row_.decode(m0_ + i, index_);
  for (size_t a = 0; a < e_.strides_.size(); ++a) {
    offset_[a] = start_[a];
    if (e_.rows_affine_) offset_[a] += (m0_ + i) * e_.row_stride_[a];
    else
      for (int d : e_.row_.dims) offset_[a] += index_[d] * e_.strides_[a][size_t(d)];
  }
  frame_.n = n;
  frame_.value[e_.in_] = sums;
  run_ops(e_.ops_, frame_);
  const int64_t row = e_.block_ > 1 ? columns_ : n;
  for (size_t s = 0; s < e_.sides_.size(); ++s)
    for (int64_t r = 0; r * row < n; ++r) fold(s, i + r, j, row, frame_.value[e_.side_[s].value] + r * row);
}

template <class T>
void Epilogue<T>::Tile::fold(size_t side, int64_t i, int64_t j, int64_t n, const T* x) {
  const Side& s = e_.sides_[side];
  const ReductionMode_t mode = e_.side_[side].mode;
  double* const to = partial_ + s.offset + tile_ * s.per_tile;
  const int64_t row = s.m_folded ? 0 : i;
  if (s.n_folded) to[row] = lane_ops<T>().fold(mode, x, n, to[row]);
  else lane_ops<T>().fold_lanes(mode, x, n, to + row * e_.tiling_.tile_n + j);
}

// --- the end ---------------------------------------------------------------------------------------------------------

template <class T>
void Epilogue<T>::finish(const Memory& memory, double* partial) const {
  for (size_t s = 0; s < sides_.size(); ++s) finish_side(s, memory, partial);
}

template <class T>
void Epilogue<T>::finish_side(size_t k, const Memory& memory, double* partial) const {
  const Side& s = sides_[k];
  const fuse::SideReduction& side = side_[k];
  double* const total = partial + s.out_offset;
  std::fill_n(total, s.outputs, fuse::reduction_start(side.mode));
  int64_t index[kMaxProblem] = {};
  const auto linear = [&](const Factors& stride) {
    int64_t at = 0;
    for (size_t d = 0; d < problem_.dims.size(); ++d) at += index[d] * stride[d];
    return at;
  };
  for (int64_t tile = 0; tile < tiling_.count() && tiling_.m * tiling_.n > 0; ++tile) {
    const int64_t n0 = tiling_.n0(tile), m0 = tiling_.m0(tile);
    batch_index_.decode(tiling_.batch_of(tile), index);
    const double* const from = partial + s.offset + tile * s.per_tile;
    const int64_t rows = s.m_folded ? 1 : std::min(tiling_.tile_m, tiling_.m - m0);
    const int64_t columns = s.n_folded ? 1 : std::min(tiling_.tile_n, tiling_.n - n0);
    for (int64_t i = 0; i < rows; ++i) {
      row_.decode(s.m_folded ? 0 : m0 + i, index);
      for (int64_t j = 0; j < columns; ++j) {
        column_.decode(s.n_folded ? 0 : n0 + j, index);
        double& t = total[linear(s.index_stride)];
        t = fuse::reduction_join(side.mode, t, from[i * (s.n_folded ? 1 : tiling_.tile_n) + j]);
      }
    }
  }
  std::fill_n(index, kMaxProblem, 0);
  void* const to = memory.root(side.out.tensor);
  for (int64_t o = 0; o < s.outputs; ++o) {
    for (size_t d = 0; d < problem_.dims.size(); ++d)
      if (s.index_stride[d]) index[d] = o / s.index_stride[d] % problem_.dims[d].extent;
    store_element(to, side.out.type, side.out.offset + linear(s.out_stride),
                  fuse::reduction_finish(side.mode, total[o], side.count));
  }
}

template class Epilogue<float>;
template class Epilogue<double>;

}  // namespace tilewright::cpu
