#include "engines/cpu/packing.h"

#include <algorithm>
#include <numeric>

#include "engines/cpu/gemm.h"

namespace tilewright::cpu {

using fuse::Instr;
using fuse::PwOp;

void GroupIndex::set(const Problem& p, char group) {
  dims = p.dims_of(group);
  extent.clear();
  for (int d : dims) extent.push_back(p.dims[size_t(d)].extent);
}

template <class T>
bool Packer<T>::prepare(const Problem& p, int operand, char side, const fuse::PwProgram& program, int panel) {
  coordinates_ = p.operand[size_t(operand)];
  program_ = program;
  panel_ = panel;
  row_.set(p, side);
  k_.set(p, 'k');
  plain_ = program_.code.size() == 1 && program_.code[0].op == PwOp::Load;

  // Runs go along the fastest row dim or the fastest sum dim, whichever the loads like better.
  double best = 0;
  for (bool in_k : {true, false}) {
    const GroupIndex& group = in_k ? k_ : row_;
    if (group.dims.empty() || group.extent.back() <= 1) continue;
    const int dim = group.dims.back();
    double cost = 24.0 / double(std::min<int64_t>(group.extent.back(), kLanes)) + (in_k ? 0.5 : 0);
    for (const Instr& i : program_.code)
      if (i.op == PwOp::Load)
        cost += lane_cost(operand_strides(p, operand, program_.access[size_t(i.access)])[size_t(dim)]);
    if (lane_ >= 0 && cost >= best) continue;
    best = cost;
    lane_ = dim;
    lane_in_k_ = in_k;
    lane_extent_ = group.extent.back();
  }
  for (size_t d = 0; d < coordinates_.size() && lane_ >= 0; ++d)
    if (coordinates_[d].factor[size_t(lane_)] != 0) lane_dim_ = int(d);
  walks_ = lane_in_k_ ? walk_.prepare(p, operand, side, 'k', program_) : walk_.prepare(p, operand, 'k', side, program_);

  std::vector<int> uniform, rest;
  std::vector<bool> is_uniform(program_.code.size());
  for (size_t k = 0; k < program_.code.size(); ++k) {
    const Instr& i = program_.code[k];
    bool u = i.op != PwOp::Load && i.op != PwOp::Index;
    for (int a : i.arg) u = u && (a < 0 || is_uniform[size_t(a)]);
    is_uniform[k] = u;
    (u ? uniform : rest).push_back(int(k));
  }
  uniform_ = make_ops<T>(program_, uniform);
  ops_ = make_ops<T>(program_, rest);
  slots_ = assign_slots<T>({&uniform_}, {&ops_}, int(program_.code.size()));
  return true;
}

template <class T>
void Packer<T>::cut(Cutter& c, int64_t rows, int64_t kc, Work& w) const {
  const int64_t accesses = int64_t(program_.access.size());
  w.frame.value = c.template take<const T*>(int64_t(program_.code.size()));
  w.frame.buffers = c.template take<T>(int64_t(slots_) * kLanes);
  w.offset = c.template take<int64_t>(accesses);
  w.stride = c.template take<int64_t>(accesses);
  w.line = c.template take<T>(std::max(rows, int64_t(panel_) * kc));
  w.spread = c.template take<T>(kLanes);
  w.row = c.template take<const T*>(panel_);
  w.spot = c.template take<Spot>(std::max<int64_t>(panel_, kc));
}

template <class T>
int64_t Packer<T>::scratch_bytes(int64_t rows, int64_t kc) const {
  Cutter c(nullptr);
  Work w;
  cut(c, rows, kc, w);
  return c.bytes();
}

// n values at `coordinate`, `step` apart along the lane's dim. The scratch is laid out for them.
template <class T>
void Packer<T>::evaluate(Work& w, const int64_t* coordinate, int64_t step, int64_t n, T* out) const {
  for (size_t a = 0; a < program_.access.size(); ++a) {
    const fuse::Access& access = program_.access[a];
    int64_t at = access.offset;
    for (size_t d = 0; d < access.stride.size(); ++d) at += coordinate[d] * access.stride[d];
    w.offset[a] = at;
    w.stride[a] = lane_dim_ < 0 ? 0 : access.stride[size_t(lane_dim_)] * step;
  }
  if (plain_) {
    const fuse::Access& access = program_.access[0];
    load_values(w.frame.memory[0], access.type, w.offset[0], w.stride[0], n, out);
    return;
  }
  for (int64_t done = 0; done < n; done += kLanes) {
    w.frame.n = std::min<int64_t>(kLanes, n - done);
    run_ops(ops_, w.frame);
    std::copy_n(w.frame.value[program_.result], w.frame.n, out + done);
    for (size_t a = 0; a < program_.access.size(); ++a) w.offset[a] += kLanes * w.stride[a];
  }
}

template <class T>
void Packer<T>::run(Work& w, const int64_t* index, int64_t n, T* out) const {
  int64_t coordinate[fuse::kMaxRank];
  int64_t first = 0, count = n, period = 1, step = 0;  // lanes first, first + period, ... have values
  for (size_t d = 0; d < coordinates_.size(); ++d) {
    const Coordinate& c = coordinates_[d];
    int64_t v = c.base;
    for (int i = 0; i < kMaxProblem; ++i) v += c.factor[size_t(i)] * index[i];
    const int64_t factor = int(d) == lane_dim_ ? c.factor[size_t(lane_)] : 0;
    if (factor == 0) {
      if (v < 0 || v % c.divisor != 0 || v / c.divisor >= c.extent) {
        std::fill_n(out, n, T(0));
        return;
      }
      coordinate[d] = v / c.divisor;
      continue;
    }
    period = c.divisor / std::gcd(std::abs(factor), c.divisor);
    step = factor * period / c.divisor;
    while (first < period && (v + first * factor) % c.divisor != 0) ++first;
    if (first == period) count = 0;
    // Quotients start + j * step must lie in [0, extent).
    int64_t start = count ? (v + first * factor) / c.divisor : 0;
    if (step > 0 && start < 0) {
      const int64_t skip = (-start + step - 1) / step;
      first += skip * period, start += skip * step;
    } else if (step < 0 && start >= c.extent) {
      const int64_t skip = (start - c.extent) / -step + 1;
      first += skip * period, start += skip * step;
    }
    int64_t room =
        step > 0 ? (start >= c.extent ? 0 : (c.extent - 1 - start) / step + 1) : (start < 0 ? 0 : start / -step + 1);
    if (count) count = std::min(room, first >= n ? 0 : (n - 1 - first) / period + 1);
    coordinate[d] = start;
  }
  if (count <= 0) {
    std::fill_n(out, n, T(0));
    return;
  }
  if (period == 1) {
    std::fill_n(out, first, T(0));
    evaluate(w, coordinate, step, count, out + first);
    std::fill(out + first + count, out + n, T(0));
    return;
  }
  std::fill_n(out, n, T(0));
  for (int64_t done = 0; done < count; done += kLanes) {
    const int64_t some = std::min<int64_t>(kLanes, count - done);
    evaluate(w, coordinate, step, some, w.spread);
    for (int64_t j = 0; j < some; ++j) out[first + (done + j) * period] = w.spread[j];
    coordinate[lane_dim_] += some * step;
  }
}

template <class T>
void Packer<T>::pack(const Memory& memory, void* const* base, const Range& r, T padding, int64_t* index, char* scratch,
                     T* panels) const {
  Work w;
  Cutter cutter(scratch);
  cut(cutter, r.rows, r.ks, w);
  if (walks_) {
    const int64_t batch = walk_.batch_offset(index);
    return lane_in_k_ ? pack_along_sums(base[0], r, batch, w, panels) : pack_along_rows(base[0], r, batch, w, panels);
  }
  w.frame.memory = base;
  w.frame.offset = w.offset;
  w.frame.lane_stride = w.stride;
  w.frame.tensors = &memory;
  w.frame.n = kLanes;
  run_ops(uniform_, w.frame);
  if (lane_ >= 0 && !lane_in_k_) compute_along_rows(r, padding, index, w, panels);
  else compute_along_sums(r, padding, index, w, panels);
}

template <class T>
void Packer<T>::pack_along_rows(const void* memory, const Range& r, int64_t batch, Work& w, T* panels) const {
  walk_.points(r.k, r.ks, batch, w.spot);
  const int64_t length = walk_.length();
  const bool native = is_native<T>(walk_.type(), memory) && walk_.step() == 1, whole = native && !walk_.checked();
  const T* const values = static_cast<const T*>(memory);
  // Native elements go straight to their panel, a piece of the rows for all sums; others are converted to a line, as
  // many as go together, and copied from there.
  for (int64_t i = 0; i < r.rows;) {
    const int64_t segment = (r.row + i) / length, lane = (r.row + i) % length;
    const int64_t n = std::min({r.rows - i, length - lane, native ? panel_ - i % panel_ : r.rows});
    T* to = panels + i / panel_ * panel_ * r.ks + i % panel_;
    for (int64_t k = 0; k < r.ks; ++k, to += panel_) {
      if (whole) {
        std::copy_n(values + walk_.segment_offset(segment) + lane + w.spot[k].at, n, to);
        continue;
      }
      const Walk::Run run = walk_.run(w.spot[k], segment);
      const int64_t from = std::clamp(run.from - lane, int64_t{0}, n), end = std::clamp(run.to - lane, from, n);
      T* const line = native ? to : w.line;
      for (int64_t j = 0; j < from; ++j) line[j] = T(0);
      if (end > from) {
        const int64_t at = run.at + (lane + from) * walk_.step();
        if (native) std::copy_n(values + at, end - from, line + from);
        else load_values(memory, walk_.type(), at, walk_.step(), end - from, line + from);
      }
      for (int64_t j = end; j < n; ++j) line[j] = T(0);
      if (!native) spread(line, i, n, k, r.ks, panels);
    }
    i += n;
  }
  if (const int64_t rest = r.rows % panel_) {
    T* to = panels + r.rows / panel_ * panel_ * r.ks;
    for (int64_t k = 0; k < r.ks; ++k, to += panel_) std::fill(to + rest, to + panel_, T(0));
  }
}

// Rows first .. first + n of sum k to their panels.
template <class T>
void Packer<T>::spread(const T* line, int64_t first, int64_t n, int64_t k, int64_t ks, T* panels) const {
  for (int64_t done = 0; done < n;) {
    const int64_t row = first + done, some = std::min(n - done, panel_ - row % panel_);
    T* const to = panels + row / panel_ * panel_ * ks + k * panel_ + row % panel_;
    for (int64_t j = 0; j < some; ++j) to[j] = line[done + j];
    done += some;
  }
}

// The rows of a panel, then their transpose.
template <class T>
void Packer<T>::pack_along_sums(const void* memory, const Range& r, int64_t batch, Work& w, T* panels) const {
  const int64_t length = walk_.length(), step = walk_.step();
  const bool native = is_native<T>(walk_.type(), memory) && step == 1;
  for (int64_t p = 0; p < r.rows; p += panel_, panels += panel_ * r.ks) {
    const int64_t rows = std::min<int64_t>(panel_, r.rows - p);
    walk_.points(r.row + p, rows, batch, w.spot);
    for (int64_t i = 0; i < rows; ++i) {
      T* const line = w.line + i * r.ks;
      w.row[i] = line;
      for (int64_t k = 0; k < r.ks;) {
        const int64_t lane = (r.k + k) % length, n = std::min(r.ks - k, length - lane);
        const Walk::Run run = walk_.run(w.spot[i], (r.k + k) / length);
        const int64_t from = std::clamp(run.from - lane, int64_t{0}, n), end = std::clamp(run.to - lane, from, n);
        if (native && n == r.ks && from == 0 && end == n) {
          w.row[i] = static_cast<const T*>(memory) + run.at + lane;
        } else {
          std::fill(line + k, line + k + from, T(0));
          if (end > from)
            load_values(memory, walk_.type(), run.at + (lane + from) * step, step, end - from, line + k + from);
          std::fill(line + k + end, line + k + n, T(0));
        }
        k += n;
      }
    }
    transpose_panel(w.row, rows, r.ks, panels);
  }
}

template <class T>
void Packer<T>::transpose_panel(const T* const* row, int64_t rows, int64_t ks, T* to) const {
  transpose(row, rows, ks, to, panel_);
  if (rows < panel_)
    for (int64_t k = 0; k < ks; ++k) std::fill(to + k * panel_ + rows, to + (k + 1) * panel_, T(0));
}

// All rows for one sum at a time.
template <class T>
void Packer<T>::compute_along_rows(const Range& r, T padding, int64_t* index, Work& w, T* panels) const {
  for (int64_t k = 0; k < r.ks; ++k) {
    k_.decode(r.k + k, index);
    for (int64_t done = 0; done < r.rows;) {
      row_.decode(r.row + done, index);
      const int64_t n = std::min(r.rows - done, lane_extent_ - index[lane_]);
      run(w, index, n, w.line + done);
      done += n;
    }
    const int64_t inside = r.k + k < r.k_end ? std::clamp<int64_t>(r.row_end - r.row, 0, r.rows) : 0;
    std::fill(w.line + inside, w.line + r.rows, padding);
    for (int64_t p = 0; p < r.rows; p += panel_) {
      T* const to = panels + p * r.ks + k * panel_;
      const int64_t n = std::min<int64_t>(panel_, r.rows - p);
      std::copy_n(w.line + p, n, to);
      std::fill(to + n, to + panel_, T(0));
    }
  }
}

template <class T>
void Packer<T>::compute_along_sums(const Range& r, T padding, int64_t* index, Work& w, T* panels) const {
  for (int64_t p = 0; p < r.rows; p += panel_, panels += panel_ * r.ks) {
    const int64_t rows = std::min<int64_t>(panel_, r.rows - p);
    for (int64_t i = 0; i < rows; ++i) {
      T* const line = w.line + i * r.ks;
      w.row[i] = line;
      const int64_t row = r.row + p + i;
      row_.decode(row, index);
      for (int64_t done = 0; done < r.ks;) {
        k_.decode(r.k + done, index);
        const int64_t n = lane_ < 0 ? 1 : std::min(r.ks - done, lane_extent_ - index[lane_]);
        run(w, index, n, line + done);
        done += n;
      }
      const int64_t inside = row < r.row_end ? std::clamp<int64_t>(r.k_end - r.k, 0, r.ks) : 0;
      std::fill(line + inside, line + r.ks, padding);
    }
    transpose_panel(w.row, rows, r.ks, panels);
  }
}

template class Packer<float>;
template class Packer<double>;

}  // namespace tilewright::cpu
