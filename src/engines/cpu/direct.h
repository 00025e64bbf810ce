// What the direct convolutions have in common: which positions meet what through which tap, worked out when the plan is
// made, so that borders, strides and gaps cost nothing but shorter runs; and the operands as rows of lanes. Lanes run
// along the channels where memory does, and groups allow, else along the innermost spatial dim. A task copies the part
// of an operand that it needs with its padding, unless lanes can be read where they lie: then positions at a border
// meet fewer taps. Work is cut by shape alone, and sums are made in one order.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "engines/cpu/direct_loops.h"
#include "engines/cpu/epilogue.h"
#include "engines/cpu/kernel.h"
#include "ops/convolution.h"

namespace tilewright::cpu::direct {

constexpr int64_t kEnoughTasks = 32;
constexpr int64_t kCopied = 64 * 1024;  // elements of an operand that a task copies, about

inline int64_t parts_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

// What positions meet along one spatial dim: taps of the filter, and coordinates of the operand, counted from the first
// that any position meets, padding included.
struct Meeting {
  int64_t tap, at;
};
// Positions first, first + spacing, ... that meet the same taps, at coordinates that grow by `advance`.
struct Run {
  // Neighbours among the run's positions whose meetings [from, to) lie in the operand, the others in its padding.
  struct Piece {
    int64_t first, end;
    size_t from, to;
  };
  int64_t first, count, spacing, advance;
  bool in_line;                   // taps follow each other as positions do
  std::vector<Meeting> meetings;  // of the first
  Piece whole;                    // all positions and meetings: where padding is there to be read
  std::vector<Piece> pieces;
};
struct PositionDim {
  size_t axis;             // spatial
  int64_t extent;          // positions
  int64_t operand_extent;  // coordinates that they meet
  int64_t low, inside;     // the first of them in the operand, and its size there: beyond is padding
  int64_t spacing;         // of a run: one for each phase of the stride in dgrad, else one in all
  std::vector<Run> runs;

  PositionDim(const ops::Convolution& c, size_t d, bool dgrad)
      : axis(d),
        extent(dgrad ? c.in[d] : c.out[d]),
        inside(dgrad ? c.out[d] : c.in[d]),
        spacing(dgrad ? c.stride[d] : 1) {
    const int64_t stride = c.stride[d], taps = c.filter[d], advance = dgrad ? 1 : stride;
    low = std::numeric_limits<int64_t>::max();
    int64_t high = -low;
    for (int64_t p = 0; p < std::min(spacing, extent); ++p) {
      Run run{p, (extent - p + spacing - 1) / spacing, spacing, advance, true, {}, {}, {}};
      for (int64_t r = 0; r < taps; ++r) {
        const int64_t offset = (c.flip ? taps - 1 - r : r) * c.dilation[d] - c.pre[d];
        const int64_t at = dgrad ? p - offset : p * stride + offset;
        if (!dgrad || at % stride == 0) run.meetings.push_back({r, dgrad ? at / stride : at});
      }
      auto& list = run.meetings;
      std::sort(list.begin(), list.end(), [](const Meeting& a, const Meeting& b) { return a.at < b.at; });
      if (!list.empty())
        low = std::min(low, list.front().at), high = std::max(high, list.back().at + (run.count - 1) * advance);
      for (size_t i = 1; i < list.size(); ++i) run.in_line = run.in_line && list[i].at - list[i - 1].at == advance;
      runs.push_back(std::move(run));
    }
    if (low > high) low = 0, high = -1;
    for (Run& run : runs) {
      for (Meeting& m : run.meetings) m.at -= low;
      cut(run);
    }
    operand_extent = high - low + 1;
  }
  void cut(Run& run) const {
    run.whole = {0, run.count, 0, run.meetings.size()};
    for (int64_t p = 0; p < run.count; ++p) {
      const auto [from, to] = inside_of(run, p * run.advance);
      if (p > 0 && run.pieces.back().from == from && run.pieces.back().to == to) ++run.pieces.back().end;
      else run.pieces.push_back({p, p + 1, from, to});
    }
  }
  // Which meetings lie in the operand, where coordinates lie `shift` further than those of the run's first position.
  std::pair<size_t, size_t> inside_of(const Run& run, int64_t shift) const {
    size_t from = 0, to = run.meetings.size();
    while (from < to && run.meetings[from].at + shift + low < 0) ++from;
    while (to > from && run.meetings[to - 1].at + shift + low >= inside) --to;
    return {from, to};
  }
  // The run that position p is in; its meetings' coordinates lie `shift` further there.
  const Run& run_of(int64_t p, int64_t* shift) const {
    const Run& run = runs[size_t(p % spacing)];
    *shift = p / spacing * run.advance;
    return run;
  }
  // The coordinates that positions [begin, end) meet.
  std::pair<int64_t, int64_t> coordinates(int64_t begin, int64_t end) const {
    std::pair<int64_t, int64_t> range{operand_extent, 0};
    const auto add = [&](int64_t p) {
      int64_t shift;
      for (const Meeting& m : run_of(p, &shift).meetings)
        range = {std::min(range.first, m.at + shift), std::max(range.second, m.at + shift + 1)};
    };
    for (int64_t p = begin; p < std::min(end, begin + spacing); ++p) add(p);
    for (int64_t p = std::max(begin, end - spacing); p < end; ++p) add(p);
    return range.first < range.second ? range : std::pair<int64_t, int64_t>{0, 0};
  }
};

// Rows of lanes of an operand: copied, or in the tensor.
template <class T>
struct Rows {
  const T* at = nullptr;
  bool padded = true;      // there is padding to be read
  int64_t origin = 0;      // of position 0 from there
  int64_t stride[3] = {};  // by position dim
  // When lanes do not run along the channels: between those of a group, and between phases of the stride.
  int64_t channel = 0, phase = 0;
};

// An operand whose rows are [channel of a group,] position dims [, phase], and whose lanes are the rest.
template <class T>
class RowOperand {
 public:
  // problem: 'b' the image [and group], 'm' the rows, 'k' the lanes.
  void prepare(const Problem& problem, const fuse::PwProgram& program, const std::vector<int>& position_dims) {
    packer_.prepare(problem, 0, 'm', program, 1);
    rows_ = problem.size('m');
    lane_count_ = problem.size('k');
    batch_.set(problem, 'b');
    plain_ = program.code.size() == 1 && program.code[0].op == fuse::PwOp::Load && problem.dims_of('k').size() == 1;
    if (!plain_) return;
    strides_ = operand_strides(problem, 0, program.access[0]);
    plain_ = strides_[size_t(problem.dims_of('k')[0])] == 1;
    for (int d : position_dims) position_strides_.push_back(strides_[size_t(d)]);
  }
  const fuse::PwProgram& program() const { return packer_.program(); }
  // Whether lanes lie side by side in the tensor, and can be read there.
  bool is_plain() const { return plain_; }
  bool in_place(void* const* base) const { return plain_ && is_native<T>(program().access[0].type, base[0]); }
  // The element of a lane where all positions are 0.
  int64_t element(int64_t batch, int64_t lane) const {
    int64_t index[kMaxProblem] = {}, at = program().access[0].offset + lane;
    batch_.decode(batch, index);
    for (int d : batch_.dims) at += index[d] * strides_[size_t(d)];
    return at;
  }
  DataType_t type() const { return program().access[0].type; }
  int64_t position_stride(size_t d) const { return position_strides_[d]; }

  int64_t scratch_bytes(int64_t rows, int64_t lanes) const { return packer_.scratch_bytes(rows, lanes); }
  void copy(const Memory& memory, void* const* base, int64_t batch, int64_t row, int64_t rows, int64_t lane,
            int64_t lanes, char* scratch, T* to) const {
    int64_t index[kMaxProblem] = {};
    batch_.decode(batch, index);
    packer_.pack(memory, base, {row, rows, lane, lanes, rows_, lane_count_}, T(0), index, scratch, to);
  }

 private:
  Packer<T> packer_;
  GroupIndex batch_;
  bool plain_ = false;
  std::array<int64_t, kMaxProblem> strides_ = {};
  std::vector<int64_t> position_strides_;
  int64_t rows_ = 0, lane_count_ = 0;
};

// What the three ops have in common: the geometry, and the operands as rows.
template <class T>
class Direct : public Kernel {
 public:
  double memory_share() const override { return 0.8; }

 protected:
  Direct(const ops::Convolution& conv, bool dgrad, bool by_channels)
      : conv_(conv), dgrad_(dgrad), by_channels_(by_channels), loops_(direct_loops<T>()) {
    const size_t count = conv_.rank() - (by_channels_ ? 0 : 1);
    for (size_t d = 0; d < count; ++d) {
      dims_.emplace_back(conv_, d, dgrad_);
      const PositionDim& dim = dims_.back();
      const bool nothing = dim.extent == 1 && dim.operand_extent == 1 && dim.low == 0 && conv_.filter[d] == 1;
      if (nothing && (d + 1 < count || dims_.size() > 1 || !by_channels_)) dims_.pop_back();
    }
    taps_ = volume(conv_.filter);
    for (const PositionDim& d : dims_) tap_stride_.push_back(row_major_strides(conv_.filter)[d.axis]);
    if (by_channels_) return;
    const size_t last = conv_.rank() - 1;
    phases_ = dgrad_ ? 1 : conv_.stride[last];
    for (int64_t r = 0; r < conv_.filter[last]; ++r) {
      const int64_t offset = (conv_.flip ? conv_.filter[last] - 1 - r : r) * conv_.dilation[last];
      // A row begins at the first coordinate that any position meets, padding included.
      const int64_t from = dgrad_ ? (conv_.filter[last] - 1) * conv_.dilation[last] - offset : offset;
      last_taps_.push_back({from % phases_, from / phases_});
      reach_ = std::max(reach_, from / phases_);
    }
  }

  int64_t inner_positions() const {  // of all position dims but the first
    int64_t n = 1;
    for (size_t d = 1; d < dims_.size(); ++d) n *= dims_[d].extent;
    return n;
  }
  int64_t first_extent() const { return dims_.empty() ? 1 : dims_[0].extent; }
  std::pair<int64_t, int64_t> first_coordinates(int64_t begin, int64_t end) const {
    return dims_.empty() ? std::pair<int64_t, int64_t>{0, 1} : dims_[0].coordinates(begin, end);
  }

  // Appends the coordinates of the axes before the lanes', the position dims being problem dims. An axis of one
  // position and one tap is no dim: its coordinate is 0.
  void add_coordinates(const std::vector<int>& position, bool operand, std::vector<Coordinate>& to) const {
    const size_t first = to.size();
    to.resize(first + conv_.rank() - (by_channels_ ? 0 : 1));
    for (size_t d = 0; d < dims_.size(); ++d) {
      Coordinate& c = to[first + dims_[d].axis];
      c = along(position[d], operand ? dims_[d].inside : dims_[d].extent);
      if (operand) c.base = dims_[d].low;
    }
  }
  // The convolved operand: X, or DY in dgrad. per_group: its channels in a group.
  void prepare_operand(const fuse::PwProgram& program, int64_t channels, int64_t per_group) {
    Problem p;
    const auto add = [&](int64_t extent, char group) {
      p.dims.push_back({extent, group});
      return int(p.dims.size()) - 1;
    };
    per_group_ = per_group;
    auto& x = p.operand[0];
    const int image = add(conv_.n, 'b');
    x.push_back(along(image, conv_.n));
    std::vector<int> position;
    if (by_channels_) {
      for (const PositionDim& d : dims_) position.push_back(add(d.operand_extent, 'm'));
      x.push_back(along(add(channels, 'k'), channels));
      add_coordinates(position, true, x);
    } else {
      const int group = add(conv_.groups, 'b'), channel = add(per_group, 'm');
      x.push_back(along(group, channels, per_group));
      x.back().factor[size_t(channel)] = 1;
      for (const PositionDim& d : dims_) position.push_back(add(d.operand_extent, 'm'));
      add_coordinates(position, true, x);
      const size_t last = conv_.rank() - 1;
      const int phase = add(phases_, 'm');
      const int lane = add((dgrad_ ? conv_.in[last] : conv_.out[last]) + reach_, 'k');
      Coordinate c = along(lane, dgrad_ ? conv_.out[last] : conv_.in[last], phases_);
      c.factor[size_t(phase)] = 1;
      c.base = dgrad_ ? conv_.pre[last] - (conv_.filter[last] - 1) * conv_.dilation[last] : -conv_.pre[last];
      c.divisor = dgrad_ ? conv_.stride[last] : 1;
      x.push_back(c);
    }
    operand_.prepare(p, program, position);
  }

  int64_t operand_inner() const {  // elements of the position dims but the first
    int64_t n = 1;
    for (size_t d = 1; d < dims_.size(); ++d) n *= dims_[d].operand_extent;
    return n;
  }
  int64_t copied_rows(int64_t first_dim) const {
    return (by_channels_ ? 1 : per_group_) * (dims_.empty() ? 1 : first_dim) * operand_inner() * phases_;
  }

  // Whether the operand's lanes are channels that can be read where they lie.
  bool in_place(void* const* base) const { return by_channels_ && operand_.in_place(base); }
  Rows<T> rows_in_place(void* const* base, int64_t batch, int64_t lane) const {
    Rows<T> r;
    r.at = static_cast<const T*>(base[0]) + operand_.element(batch, lane);
    r.padded = false;
    for (size_t d = 0; d < dims_.size(); ++d) {
      r.stride[d] = operand_.position_stride(d);
      r.origin += dims_[d].low * r.stride[d];
    }
    return r;
  }
  // A copy for a task: the range of the first position dim's coordinates that it meets, and a range of lanes.
  Rows<T> copied(const Memory& memory, void* const* base, int64_t batch, std::pair<int64_t, int64_t> range,
                 int64_t lane, int64_t lanes, char* scratch, T* copy) const {
    const int64_t first = range.second - range.first, inner = operand_inner() * phases_;
    const int64_t whole = dims_.empty() ? 1 : dims_[0].operand_extent;
    if (by_channels_ && operand_.is_plain()) {
      copy_channels(base, operand_.element(batch, lane), range, lanes, copy);
    } else {
      for (int64_t c = 0; c < (by_channels_ ? 1 : per_group_); ++c)
        operand_.copy(memory, base, batch, (c * whole + range.first) * inner, first * inner, lane, lanes, scratch,
                      copy + c * first * inner * lanes);
    }
    Rows<T> r;
    r.channel = first * inner * lanes, r.phase = lanes;
    int64_t stride = phases_ * lanes;
    for (size_t d = dims_.size(); d-- > 0; stride *= dims_[d].operand_extent) r.stride[d] = stride;
    r.at = copy;
    r.origin = -range.first * r.stride[0];
    return r;
  }

  // Rows of channels that lie side by side, `from` being the element where all coordinates are 0.
  void copy_channels(void* const* base, int64_t from, std::pair<int64_t, int64_t> range, int64_t lanes, T* to) const {
    const size_t n = dims_.size();
    const int64_t middle = n == 3 ? dims_[1].operand_extent : 1, outer = n > 1 ? range.second - range.first : 1;
    const PositionDim& d = dims_[n - 1];
    // Along the last dim: coordinates [begin, end), of which [inside, outside) are not padding.
    const int64_t begin = n > 1 ? 0 : range.first, end = n > 1 ? d.operand_extent : range.second;
    const int64_t inside = std::clamp(-d.low, begin, end), outside = std::clamp(d.inside - d.low, inside, end);
    const int64_t step = operand_.position_stride(n - 1);
    for (int64_t i = 0; i < outer * middle; ++i, to += (end - begin) * lanes) {
      const int64_t at[2] = {n > 1 ? range.first + i / middle + dims_[0].low : 0,
                             n == 3 ? i % middle + dims_[1].low : 0};
      int64_t offset = (inside + d.low) * step;
      bool padding = inside == outside;
      for (size_t k = 0; k + 1 < n; ++k) {
        padding = padding || at[k] < 0 || at[k] >= dims_[k].inside;
        offset += at[k] * operand_.position_stride(k);
      }
      if (padding) {
        std::fill_n(to, (end - begin) * lanes, T(0));
        continue;
      }
      std::fill_n(to, (inside - begin) * lanes, T(0));
      T* const row = to + (inside - begin) * lanes;
      if (operand_.in_place(base))
        loops_.copy(lanes, outside - inside, static_cast<const T*>(base[0]) + from + offset, step, row);
      else if (step == lanes) load_values(base[0], operand_.type(), from + offset, 1, (outside - inside) * lanes, row);
      else
        for (int64_t c = 0; c < outside - inside; ++c)
          load_values(base[0], operand_.type(), from + offset + c * step, 1, lanes, row + c * lanes);
      std::fill_n(to + (outside - begin) * lanes, (end - outside) * lanes, T(0));
    }
  }

  // What a position of all dims but the run's meets: an offset into the rows, and a tap.
  struct Partial {
    int64_t offset, tap;
  };
  int64_t outer_taps(const Rows<T>& r, size_t run, const int64_t* position, Partial* out) const {
    int64_t count = 1;
    out[0] = {r.origin, 0};
    for (size_t d = 0; d < dims_.size(); ++d) {
      if (d == run) continue;
      int64_t shift;
      const Run& met = dims_[d].run_of(position[d], &shift);
      auto [from, to] = r.padded ? std::pair(size_t{0}, met.meetings.size()) : dims_[d].inside_of(met, shift);
      const int64_t before = count, meetings = int64_t(to - from);
      count *= meetings;
      for (int64_t i = before; i-- > 0;)  // from the back: place for the products
        for (int64_t m = meetings; m-- > 0;) {
          const Meeting& meeting = met.meetings[from + size_t(m)];
          out[i * meetings + m] = {out[i].offset + (meeting.at + shift) * r.stride[d],
                                   out[i].tap + meeting.tap * tap_stride_[d]};
        }
    }
    return count;
  }

  // What positions along a dim meet.
  struct Met {
    int64_t first, positions, spacing;  // of the positions
    int64_t step;                       // of the operand, from one to the next
    int64_t taps;                       // in the lists
    int64_t tap_run;                    // taps that follow each other as positions do, or 1
  };
  // Calls body(Met) for the runs along a dim, inside [begin, end), with the taps that they meet in x and tap: pointers
  // to rows, and the number of each.
  template <class Body>
  void for_runs(const Rows<T>& r, size_t run_dim, const Partial* outer, int64_t outer_count, int64_t begin, int64_t end,
                const T** x, int64_t* tap, const Body& body) const {
    const auto list = [&](const Meeting* meetings, size_t count, int64_t run_stride, int64_t tap_stride, int64_t skip) {
      int64_t n = 0;
      for (int64_t i = 0; i < outer_count; ++i)
        for (const Meeting* m = meetings; m < meetings + count; ++m) {
          const T* const at = r.at + (outer[i].offset + (m->at + skip) * run_stride);
          const int64_t t = outer[i].tap + m->tap * tap_stride;
          if (by_channels_) {
            x[n] = at, tap[n++] = t;
            continue;
          }
          for (size_t s = 0; s < last_taps_.size(); ++s)
            for (int64_t c = 0; c < per_group_; ++c, ++n) {
              x[n] = at + c * r.channel + last_taps_[s].first * r.phase + last_taps_[s].second;
              tap[n] = (t + int64_t(s)) * per_group_ + c;
            }
        }
      return n;
    };
    if (dims_.empty()) {
      static constexpr Meeting kOne = {0, 0};
      return body(Met{0, 1, 1, 0, list(&kOne, 1, 0, 0, 0), 1});
    }
    const int64_t stride = r.stride[run_dim];
    for (const Run& run : dims_[run_dim].runs) {
      const int64_t first = begin <= run.first ? 0 : parts_of(begin - run.first, run.spacing);
      const int64_t last = end <= run.first ? 0 : std::min(run.count, parts_of(end - run.first, run.spacing));
      const auto take = [&](const Run::Piece& piece) {
        const int64_t from = std::max(first, piece.first), to = std::min(last, piece.end);
        if (from >= to) return;
        const size_t met = piece.to - piece.from;
        const int64_t taps =
            list(run.meetings.data() + piece.from, met, stride, tap_stride_[run_dim], from * run.advance);
        body(Met{run.first + from * run.spacing, to - from, run.spacing, run.advance * stride, taps,
                 run.in_line && met > 0 ? int64_t(met) : 1});
      };
      if (r.padded) take(run.whole);
      else
        for (const Run::Piece& piece : run.pieces) take(piece);
    }
  }

  // Calls body(position, outer taps, their count, end) for the positions of a tile, first <= position[0] < last: those
  // along the last dim at once, from position[last dim] to end.
  template <class Body>
  void for_positions(const Rows<T>& r, int64_t first, int64_t last, Partial* partial, const Body& body) const {
    const size_t run = last_dim();
    int64_t position[3] = {first, 0, 0};
    for (size_t d = 0; d < dims_.size(); ++d)
      if ((d == 0 ? last - first : dims_[d].extent) <= 0) return;
    for (;;) {
      const int64_t count = outer_taps(r, run, position, partial);
      body(position, partial, count, dims_.empty() ? 1 : run == 0 ? last : dims_[run].extent);
      size_t d = run;
      while (d-- > 0) {
        if (++position[d] < (d == 0 ? last : dims_[d].extent)) break;
        position[d] = d == 0 ? first : 0;
      }
      if (d == size_t(-1)) return;
    }
  }
  size_t last_dim() const { return dims_.empty() ? 0 : dims_.size() - 1; }
  int64_t most_taps() const { return taps_ * (by_channels_ ? 1 : per_group_); }

  ops::Convolution conv_;
  bool dgrad_, by_channels_;
  const DirectLoops<T> loops_;
  std::vector<PositionDim> dims_;  // all, or all but the one that lanes run along
  int64_t taps_ = 1, per_group_ = 1;
  Dims tap_stride_;  // by position dim
  // Lanes along the last dim: rows by phase of the stride; per tap the phase, and how far into the row it begins.
  int64_t phases_ = 1, reach_ = 0;
  std::vector<std::pair<int64_t, int64_t>> last_taps_;
  RowOperand<T> operand_;
};

// Y from X and W, or DX from DY and W.
template <class T>
std::unique_ptr<Kernel> make_convolution(const fuse::Region&, const ops::Convolution&, bool dgrad, bool by_channels);
// DW from DY and X.
template <class T>
std::unique_ptr<Kernel> make_filter_gradient(const fuse::Region&, const ops::Convolution&, bool by_channels);

}  // namespace tilewright::cpu::direct
