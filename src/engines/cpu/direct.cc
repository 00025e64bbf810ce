// Convolutions of many small groups, depthwise ones above all, straight from the definition: matrix products of a few
// channels would leave most lanes idle. Lanes run along the channels where memory does, and groups allow, else along
// the innermost spatial dim. Operands are read where they lie when lanes run along plain memory, else a task copies the
// part it needs. What a position meets through which tap is worked out when the plan is made, so that borders, strides
// and gaps cost nothing but shorter runs. Work is cut by shape alone, and sums are made in one order.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/thread_pool.h"
#include "engines/cpu/direct_loops.h"
#include "engines/cpu/epilogue.h"
#include "engines/cpu/kernel.h"
#include "ops/convolution.h"

namespace tilewright::cpu {
namespace {

constexpr int64_t kEnoughTasks = 32;
constexpr int64_t kSums = 8 * 1024;        // between two turns of the epilogue: they stay in the first-level cache
constexpr int64_t kLargestGroup = 16;      // channels; beyond, a matrix product is better
constexpr int64_t kLargestGroupAlong = 8;  // the same for lanes along a spatial dim
constexpr int64_t kCopied = 64 * 1024;     // elements of an operand that a task copies, about

int64_t parts_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

// What positions meet along one spatial dim: taps of the filter, and coordinates of the operand, counted from the first
// that any position meets, padding included.
struct Meeting {
  int64_t tap, at;
};
// Positions first, first + spacing, ... that meet the same taps, at coordinates that grow by `advance`.
struct Run {
  int64_t first, count, spacing, advance;
  int64_t tap_run;                // taps that follow each other as positions do, or 1
  std::vector<Meeting> meetings;  // of the first
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
      Run run{p, (extent - p + spacing - 1) / spacing, spacing, advance, 1, {}};
      for (int64_t r = 0; r < taps; ++r) {
        const int64_t offset = (c.flip ? taps - 1 - r : r) * c.dilation[d] - c.pre[d];
        const int64_t at = dgrad ? p - offset : p * stride + offset;
        if (!dgrad || at % stride == 0) run.meetings.push_back({r, dgrad ? at / stride : at});
      }
      auto& list = run.meetings;
      std::sort(list.begin(), list.end(), [](const Meeting& a, const Meeting& b) { return a.at < b.at; });
      if (!list.empty())
        low = std::min(low, list.front().at), high = std::max(high, list.back().at + (run.count - 1) * advance);
      run.tap_run = follows(list, advance);
      runs.push_back(std::move(run));
    }
    if (low > high) low = 0, high = -1;
    for (Run& run : runs)
      for (Meeting& m : run.meetings) m.at -= low;
    operand_extent = high - low + 1;
  }
  // Taps of which each meets what the one before it meets a position later.
  static int64_t follows(const std::vector<Meeting>& list, int64_t advance) {
    for (size_t i = 1; i < list.size(); ++i)
      if (list[i].at - list[i - 1].at != advance) return 1;
    return std::max<int64_t>(1, int64_t(list.size()));
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

Coordinate along(int dim, int64_t extent, int64_t factor = 1) {
  Coordinate c;
  c.factor[size_t(dim)] = factor;
  c.extent = extent;
  return c;
}

void resolve(const Memory& memory, const fuse::PwProgram& p, void** base) {
  for (size_t a = 0; a < p.access.size(); ++a)
    base[a] = p.access[a].tensor == ir::kNone ? nullptr : memory.root(p.access[a].tensor);
}

// What the three ops have in common: the geometry, and the operands as rows.
template <class T>
class Direct : public Kernel {
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

  // Channels that are worked on at once: few, so that all rows that positions share stay in the first-level cache.
  int64_t panel() const { return by_channels_ ? 2 * loops_.vector : kLanes; }
  // Lanes that a task copies at once: that many, where copying is cheap.
  int64_t lanes_at_once(void* const* base, int64_t lanes) const {
    return by_channels_ && operand_.in_place(base) ? std::min(lanes, panel()) : lanes;
  }

  // The operand for a task: the range of the first position dim's coordinates that it meets, and a range of lanes.
  Rows<T> rows(const Memory& memory, void* const* base, int64_t batch, std::pair<int64_t, int64_t> range, int64_t lane,
               int64_t lanes, char* scratch, T* copy) const {
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
      const auto& meetings = dims_[d].run_of(position[d], &shift).meetings;
      const int64_t before = count;
      count *= int64_t(meetings.size());
      for (int64_t i = before; i-- > 0;)  // from the back: place for the products
        for (size_t m = meetings.size(); m-- > 0;)
          out[i * int64_t(meetings.size()) + int64_t(m)] = {out[i].offset + (meetings[m].at + shift) * r.stride[d],
                                                            out[i].tap + meetings[m].tap * tap_stride_[d]};
    }
    return count;
  }

  // Calls body(run, first position, positions, step of the operand, taps) for the runs along a dim, inside
  // [begin, end), with the taps that they meet in x and tap: pointers to rows, and the number of each.
  template <class Body>
  void for_runs(const Rows<T>& r, size_t run_dim, const Partial* outer, int64_t outer_count, int64_t begin, int64_t end,
                const T** x, int64_t* tap, const Body& body) const {
    const auto list = [&](const std::vector<Meeting>& meetings, int64_t run_stride, int64_t tap_stride, int64_t skip) {
      int64_t n = 0;
      for (int64_t i = 0; i < outer_count; ++i)
        for (const Meeting& m : meetings) {
          const T* const at = r.at + (outer[i].offset + (m.at + skip) * run_stride);
          const int64_t t = outer[i].tap + m.tap * tap_stride;
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
      static const std::vector<Meeting> kOne = {{0, 0}};
      static const Run kAlone{0, 1, 1, 0, 1, {}};
      return body(kAlone, int64_t{0}, int64_t{1}, int64_t{0}, list(kOne, 0, 0, 0));
    }
    const int64_t stride = r.stride[run_dim];
    for (const Run& run : dims_[run_dim].runs) {
      const int64_t from = begin <= run.first ? 0 : parts_of(begin - run.first, run.spacing);
      const int64_t to = end <= run.first ? 0 : std::min(run.count, parts_of(end - run.first, run.spacing));
      if (from >= to) continue;
      const int64_t taps = list(run.meetings, stride, tap_stride_[run_dim], from * run.advance);
      body(run, run.first + from * run.spacing, to - from, run.advance * stride, taps);
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
class DirectConvolution : public Direct<T> {
 public:
  DirectConvolution(const fuse::Region& region, const ops::Convolution& conv, bool dgrad, bool by_channels)
      : Direct<T>(conv, dgrad, by_channels),
        made_(dgrad ? conv.c : conv.k),
        made_per_group_(dgrad ? conv.c_per_group() : conv.k_per_group()) {
    this->prepare_operand(region.operand[0], dgrad ? conv.k : conv.c, dgrad ? conv.k_per_group() : conv.c_per_group());
    prepare_filter(region.operand[1]);
    const Problem problem = result_problem();
    make_simple(region, problem);
    cut();
    epilogue_.prepare(region, problem, tiling_);
  }

  int64_t scratch_bytes() const override { return filter_bytes() + epilogue_.scratch_bytes(); }

  void run(const Memory& memory, char* scratch) const override {
    Launch launch{memory, {}, reinterpret_cast<T*>(scratch), reinterpret_cast<double*>(scratch + filter_bytes())};
    if (tiling_.batch * tiling_.m * tiling_.n > 0) {
      resolve(memory, this->operand_.program(), launch.base[0]);
      resolve(memory, filter_.program(), launch.base[1]);
      resolve(memory, epilogue_.program(), launch.base[2]);
      launch.simple = simple_.possible;
      for (int a : {simple_.bias, simple_.store})
        if (a >= 0) launch.simple = launch.simple && is_native<T>(kNativeType<T>, launch.base[2][a]);
      copy_filter(launch);
      const int64_t made = this->by_channels_ ? 1 : made_per_group_;
      parallel_for(tiling_.count() / made, [&](int64_t task) { compute(launch, task); });
    }
    epilogue_.finish(memory, launch.partial);
  }

  std::string describe() const override {
    return fmt::format("directly, lanes along {}, {} tasks of {} x {}{}",
                       this->by_channels_ ? "channels" : "the last spatial dim", tiling_.count(), tiling_.tile_m,
                       tiling_.tile_n, sizeof(T) == 8 ? ", in double" : "");
  }

 private:
  struct Launch {
    const Memory& memory;
    void* base[3][kMaxAccesses];  // of the operand, the filter, the result
    T* filter;
    double* partial;
    bool simple = false;
  };
  struct Work {
    T *sums, *copy;
    char* packing;
    typename Direct<T>::Partial* partial;
    const T **x, **w;
    int64_t* tap;
  };
  // A program that the inner loops can take over: a bias, a ReLU, and the store of elements of T that lie side by side.
  struct Simple {
    bool possible = false, relu = false;
    int bias = -1, store = -1;     // accesses
    std::vector<Factors> strides;  // of all accesses, per problem dim
  };

  // The filter as lanes want it: [panel of channels made][tap, channel of the sum][channel made].
  void prepare_filter(const fuse::PwProgram& program) {
    Problem p;
    const auto add = [&](int64_t extent, char group) {
      p.dims.push_back({extent, group});
      return int(p.dims.size()) - 1;
    };
    const ops::Convolution& c = this->conv_;
    const int group = add(c.groups, 'm'), made = add(made_per_group_, 'm');
    std::vector<Coordinate> taps;
    for (int64_t extent : c.filter) taps.push_back(along(add(extent, 'k'), extent));
    const int summed = add(this->per_group_, 'k');
    const int k = this->dgrad_ ? summed : made, channel = this->dgrad_ ? made : summed;
    p.operand[0].push_back(along(group, c.k, c.k_per_group()));
    p.operand[0].back().factor[size_t(k)] = 1;
    p.operand[0].push_back(along(channel, c.c_per_group()));
    p.operand[0].insert(p.operand[0].end(), taps.begin(), taps.end());
    panel_ = this->by_channels_ ? this->panel() : 1;
    filter_.prepare(p, 0, 'm', program, int(panel_));
    sums_ = p.size('k');
  }
  int64_t filter_bytes() const {
    return (parts_of(made_, panel_) * panel_ * sums_ * int64_t(sizeof(T)) + 63) / 64 * 64;
  }
  void copy_filter(const Launch& launch) const {
    const int64_t rows = parts_of(16 * 1024, panel_ * std::max<int64_t>(1, sums_)) * panel_;
    parallel_for(parts_of(made_, rows), [&](int64_t part) {
      int64_t index[kMaxProblem] = {};
      const int64_t first = part * rows, count = std::min(rows, made_ - first);
      filter_.pack(launch.memory, launch.base[1], {first, count, 0, sums_, made_, sums_}, T(0), index,
                   thread_scratch(filter_.scratch_bytes(count, sums_)), launch.filter + first * sums_);
    });
  }

  Problem result_problem() const {
    Problem p;
    const auto add = [&](int64_t extent, char group) {
      p.dims.push_back({extent, group});
      return int(p.dims.size()) - 1;
    };
    const ops::Convolution& c = this->conv_;
    const int image = add(c.n, 'b');
    Factors channel = {};
    if (!this->by_channels_) {
      channel[size_t(add(c.groups, 'b'))] = made_per_group_;
      channel[size_t(add(made_per_group_, 'b'))] = 1;
    }
    std::vector<int> position;
    for (const PositionDim& d : this->dims_) position.push_back(add(d.extent, 'm'));
    if (position.empty()) add(1, 'm');
    std::vector<Coordinate> spatial;
    this->add_coordinates(position, false, spatial);
    if (this->by_channels_) channel[size_t(add(made_, 'n'))] = 1;
    else spatial.push_back(along(add(this->dgrad_ ? c.in.back() : c.out.back(), 'n'), 1));
    p.result = {along(image, 1).factor, channel};
    for (const Coordinate& x : spatial) p.result.push_back(x.factor);
    return p;
  }

  void make_simple(const fuse::Region& region, const Problem& problem) {
    batch_index_.set(problem, 'b');
    row_index_.set(problem, 'm');
    const fuse::PwProgram& p = region.program;
    const size_t lane = size_t(problem.dims_of('n')[0]);
    for (const fuse::Access& a : p.access) simple_.strides.push_back(problem_strides(problem, a));
    int value = -1;
    bool biased = false;
    for (size_t k = 0; k < p.code.size(); ++k) {
      const fuse::Instr& i = p.code[k];
      if (simple_.store >= 0) return;  // something follows
      if (i.op == fuse::PwOp::Load) {
        const Factors& s = simple_.strides[size_t(i.access)];
        bool fits = simple_.bias < 0 && p.access[size_t(i.access)].type == kNativeType<T> &&
                    s[lane] == (this->by_channels_ ? 1 : 0);
        for (int d : row_index_.dims) fits = fits && s[size_t(d)] == 0;
        if (!fits) return;
        simple_.bias = i.access;
        continue;
      }
      const bool adds = i.op == fuse::PwOp::Pointwise && i.mode == PointwiseMode_t::ADD && value >= 0 && !biased &&
                        !simple_.relu && i.arg[0] != i.arg[1] && simple_.bias >= 0;
      const bool clips = i.op == fuse::PwOp::Pointwise && i.mode == PointwiseMode_t::RELU_FWD && i.arg[0] == value &&
                         i.params.lower == 0 && i.params.slope == 0 && std::isinf(i.params.upper);
      if (i.op == fuse::PwOp::In) value = int(k);
      else if (adds) value = int(k), biased = true;
      else if (clips) value = int(k), simple_.relu = true;
      else if (i.op == fuse::PwOp::Store && i.arg[0] == value && p.access[size_t(i.access)].type == kNativeType<T> &&
               simple_.strides[size_t(i.access)][lane] == 1)
        simple_.store = i.access;
      else return;
    }
    simple_.possible = simple_.store >= 0 && biased == (simple_.bias >= 0) && region.side.empty();
  }

  void cut() {
    const ops::Convolution& c = this->conv_;
    tiling_.batch = c.n * (this->by_channels_ ? 1 : made_);
    tiling_.m = this->first_extent() * this->inner_positions();
    tiling_.n = this->by_channels_ ? made_ : this->dgrad_ ? c.in.back() : c.out.back();
    // Few channels rather than few positions: neighbouring positions share what they copy.
    tiling_.tile_n = std::min<int64_t>(tiling_.n, this->by_channels_ ? kLanes / 2 : kLanes);
    tiling_.n_tiles = parts_of(tiling_.n, std::max<int64_t>(1, tiling_.tile_n));
    // Parts of the first dim: enough for the threads, and not too much to copy.
    const int64_t others = c.n * (this->by_channels_ ? 1 : c.groups) * tiling_.n_tiles, extent = this->first_extent();
    const int64_t copied = this->copied_rows(this->dims_.empty() ? 1 : this->dims_[0].operand_extent) * tiling_.tile_n;
    const int64_t parts = std::max(parts_of(kEnoughTasks, std::max<int64_t>(1, others)), parts_of(copied, kCopied));
    first_part_ = std::max<int64_t>(1, parts_of(extent, std::min(parts, std::max<int64_t>(1, extent))));
    tiling_.tile_m = first_part_ * this->inner_positions();
    tiling_.m_tiles = parts_of(extent, first_part_);
  }

  // Where a tile's sums go, from its first position on: to memory, finished, or to a buffer for the epilogue.
  struct Target {
    T* at;
    int64_t stride[3];  // by position dim
    const T* bias;
    bool relu;
    Target from(int64_t lane, bool bias_by_lane) const {
      Target t = *this;
      t.at += lane;
      if (bias && bias_by_lane) t.bias += lane;
      return t;
    }
  };

  void compute(const Launch& launch, int64_t task) const {
    const int64_t n_tile = task % tiling_.n_tiles, m_tile = task / tiling_.n_tiles % tiling_.m_tiles;
    const int64_t batch = task / tiling_.n_tiles / tiling_.m_tiles, n0 = n_tile * tiling_.tile_n;
    const int64_t first = m_tile * first_part_, last = std::min(first + first_part_, this->first_extent());
    const int64_t columns = std::min(tiling_.tile_n, tiling_.n - n0);
    const int64_t at_once = this->lanes_at_once(launch.base[0], columns);
    const auto range = this->first_coordinates(first, last);
    const int64_t rows = this->copied_rows(range.second - range.first);

    typename Epilogue<T>::Tile epilogue(epilogue_);
    Work w;
    const auto cut = [&](Cutter& c) {
      w.copy = c.take<T>(rows * (at_once + this->reach_));
      w.packing = c.take<char>(this->operand_.scratch_bytes(rows, at_once + this->reach_));
      w.sums = c.take<T>(launch.simple ? 0 : tiling_.tile_m * tiling_.tile_n);
      w.partial = c.take<typename Direct<T>::Partial>(this->taps_);
      w.x = c.take<const T*>(this->most_taps());
      w.w = c.take<const T*>(this->most_taps());
      w.tap = c.take<int64_t>(this->most_taps());
      epilogue.cut(c);
    };
    Cutter counter(nullptr);
    cut(counter);
    Cutter cutter(thread_scratch(counter.bytes()));
    cut(cutter);

    const int64_t made = this->by_channels_ ? 1 : made_per_group_;
    for (int64_t lane = 0; lane < columns; lane += at_once) {
      const int64_t lanes = std::min(at_once, columns - lane);
      Rows<T> operand =
          this->rows(launch.memory, launch.base[0], batch, range, n0 + lane, lanes + this->reach_, w.packing, w.copy);
      for (int64_t i = 0; i < made; ++i) {
        const int64_t tile = ((batch * made + i) * tiling_.m_tiles + m_tile) * tiling_.n_tiles + n_tile;
        const int64_t row = batch % std::max<int64_t>(1, this->conv_.groups) * made + i;
        Target target = launch.simple ? in_memory(launch, tile) : in_buffer(w.sums);
        for (int64_t l = lane; l < lane + lanes; l += this->panel(), operand.at += this->panel())
          make_tile(operand, first, last, launch.filter + (this->by_channels_ ? n0 + l : row) * sums_,
                    target.from(l, this->by_channels_), std::min(this->panel(), lane + lanes - l), w);
        operand.at = w.copy;
        if (launch.simple || lane + lanes < columns) continue;
        epilogue.start(tile, launch.memory, launch.base[2], launch.partial);
        epilogue.apply(w.sums, tiling_.tile_n, 0, (last - first) * this->inner_positions());
      }
    }
  }

  Target in_buffer(T* sums) const {
    Target t{sums, {}, nullptr, false};
    int64_t stride = tiling_.tile_n;
    for (size_t d = this->dims_.size(); d-- > 0; stride *= this->dims_[d].extent) t.stride[d] = stride;
    return t;
  }
  Target in_memory(const Launch& launch, int64_t tile) const {
    int64_t index[kMaxProblem] = {};
    batch_index_.decode(tiling_.batch_of(tile), index);
    const auto at = [&](int access, int64_t from) {
      int64_t offset = epilogue_.program().access[size_t(access)].offset + from;
      for (int d : batch_index_.dims) offset += index[d] * simple_.strides[size_t(access)][size_t(d)];
      return static_cast<T*>(launch.base[2][access]) + offset;
    };
    Target t{nullptr, {}, nullptr, simple_.relu};
    const Factors& strides = simple_.strides[size_t(simple_.store)];
    for (size_t d = 0; d < this->dims_.size(); ++d) t.stride[d] = strides[size_t(row_index_.dims[d])];
    t.at = at(simple_.store, tiling_.n0(tile) + tiling_.m0(tile) / this->inner_positions() * t.stride[0]);
    if (simple_.bias >= 0) t.bias = at(simple_.bias, this->by_channels_ ? tiling_.n0(tile) : 0);
    return t;
  }

  void make_tile(const Rows<T>& operand, int64_t first, int64_t last, const T* filter, const Target& target,
                 int64_t lanes, const Work& w) const {
    const size_t run = this->last_dim();
    this->for_positions(
        operand, first, last, w.partial, [&](const int64_t* position, const auto* outer, int64_t count, int64_t end) {
          int64_t row = -first * target.stride[0];
          for (size_t d = 0; d < this->dims_.size(); ++d)
            if (d != run) row += position[d] * target.stride[d];
          this->for_runs(operand, run, outer, count, position[run], end, w.x, w.tap,
                         [&](const Run& along, int64_t p, int64_t positions, int64_t x_step, int64_t taps) {
                           for (int64_t t = 0; t < taps; ++t) w.w[t] = filter + w.tap[t] * filter_step();
                           sum({lanes, positions, taps, this->by_channels_ ? along.tap_run : 1, w.x, x_step, w.w,
                                target.at + (row + p * target.stride[run]), along.spacing * target.stride[run],
                                target.bias, target.relu});
                         });
        });
  }

  int64_t filter_step() const { return this->by_channels_ ? this->per_group_ * panel_ : 1; }
  void sum(const typename DirectLoops<T>::Rows& rows) const {
    if (!this->by_channels_) this->loops_.along(rows);
    else if (this->per_group_ == 1) this->loops_.channels(rows);
    else this->loops_.groups(rows, this->per_group_, panel_);
  }

  int64_t made_, made_per_group_;  // channels of the result
  Packer<T> filter_;
  int64_t panel_ = 1, sums_ = 0;  // channels side by side; taps times channels of the sum
  Tiling tiling_;
  int64_t first_part_ = 1;  // positions of the first dim in a tile
  GroupIndex batch_index_, row_index_;
  Simple simple_;
  Epilogue<T> epilogue_;
};

// DW from DY and X. Tasks sum over some images and positions; their sums are joined in order.
template <class T>
class DirectFilterGradient : public Direct<T> {
 public:
  DirectFilterGradient(const fuse::Region& region, const ops::Convolution& conv, bool by_channels)
      : Direct<T>(conv, false, by_channels) {
    this->prepare_operand(region.operand[1], conv.c, conv.c_per_group());
    prepare_gradient(region.operand[0]);
    cut();
    epilogue_.prepare(region, result_problem(), tiling_);
  }

  int64_t scratch_bytes() const override { return sums_bytes() + epilogue_.scratch_bytes(); }

  void run(const Memory& memory, char* scratch) const override {
    Launch launch{memory, {}, reinterpret_cast<T*>(scratch), reinterpret_cast<double*>(scratch + sums_bytes())};
    if (tiling_.m * tiling_.n > 0) {
      resolve(memory, gradient_.program(), launch.base[0]);
      resolve(memory, this->operand_.program(), launch.base[1]);
      resolve(memory, epilogue_.program(), launch.base[2]);
      parallel_for(parts() * units_, [&](int64_t task) { accumulate(launch, task); });
      parallel_for(tiling_.count(), [&](int64_t tile) { join(launch, tile); });
    }
    epilogue_.finish(memory, launch.partial);
  }

  std::string describe() const override {
    return fmt::format("directly, lanes along {}, {} x {} partial sums{}",
                       this->by_channels_ ? "channels" : "the last spatial dim", image_parts_, first_parts_,
                       sizeof(T) == 8 ? ", in double" : "");
  }

 private:
  struct Launch {
    const Memory& memory;
    void* base[3][kMaxAccesses];  // of DY, X, DW
    T* sums;                      // [part][tap, channel of X][channel of Y]
    double* partial;
  };

  // DY: rows are positions, lanes channels or the last dim.
  void prepare_gradient(const fuse::PwProgram& program) {
    Problem p;
    const auto add = [&](int64_t extent, char group) {
      p.dims.push_back({extent, group});
      return int(p.dims.size()) - 1;
    };
    const ops::Convolution& c = this->conv_;
    auto& y = p.operand[0];
    y.push_back(along(add(c.n, 'b'), c.n));
    int channel = -1;
    if (!this->by_channels_) channel = add(c.k, 'b');
    std::vector<int> position;
    for (const PositionDim& d : this->dims_) position.push_back(add(d.extent, 'm'));
    const int lane = add(this->by_channels_ ? c.k : c.out.back(), 'k');
    y.push_back(along(this->by_channels_ ? lane : channel, c.k));
    this->add_coordinates(position, false, y);
    if (!this->by_channels_) y.push_back(along(lane, c.out.back()));
    if (p.dims_of('m').empty()) add(1, 'm');
    gradient_.prepare(p, program, position);
  }

  Problem result_problem() const {
    Problem p;
    const auto add = [&](int64_t extent, char group) {
      p.dims.push_back({extent, group});
      return int(p.dims.size()) - 1;
    };
    const ops::Convolution& c = this->conv_;
    std::vector<int> tap;
    for (int64_t extent : c.filter) tap.push_back(add(extent, 'm'));
    const int channel = add(c.c_per_group(), 'm'), k = add(c.k, 'n');
    p.result = {along(k, 1).factor, along(channel, 1).factor};
    for (int d : tap) p.result.push_back(along(d, 1).factor);
    return p;
  }

  void cut() {
    const ops::Convolution& c = this->conv_;
    tiling_.m = this->taps_ * c.c_per_group(), tiling_.n = c.k;
    tiling_.tile_n = std::min<int64_t>(tiling_.n, kLanes);
    tiling_.n_tiles = parts_of(tiling_.n, std::max<int64_t>(1, tiling_.tile_n));
    tiling_.tile_m = std::min(tiling_.m, kSums / kLanes);
    tiling_.m_tiles = parts_of(tiling_.m, std::max<int64_t>(1, tiling_.tile_m));
    units_ = this->by_channels_ ? tiling_.n_tiles : c.groups;
    const int64_t wanted = parts_of(kEnoughTasks, std::max<int64_t>(1, units_));
    images_ = std::max<int64_t>(1, parts_of(c.n, wanted));
    image_parts_ = parts_of(c.n, images_);
    const int64_t extent = this->first_extent();
    first_parts_ =
        std::clamp<int64_t>(parts_of(wanted, std::max<int64_t>(1, image_parts_)), 1, std::max<int64_t>(1, extent));
    first_part_ = std::max<int64_t>(1, parts_of(extent, first_parts_));
    first_parts_ = parts_of(extent, first_part_);
    // A part may still be too much to copy at once: it goes through it in steps.
    const int64_t lanes = this->by_channels_ ? tiling_.tile_n : c.out.back();
    const int64_t copied = this->copied_rows(this->dims_.empty() ? 1 : this->dims_[0].operand_extent) * lanes;
    step_ = std::max<int64_t>(1, first_part_ / std::max<int64_t>(1, parts_of(copied, kCopied * first_parts_)));
  }
  int64_t parts() const { return image_parts_ * first_parts_; }
  int64_t part_size() const { return tiling_.m * tiling_.n; }
  int64_t sums_bytes() const { return (parts() * part_size() * int64_t(sizeof(T)) + 63) / 64 * 64; }

  struct Work {
    T *x_copy, *y_copy;
    char* packing;
    typename Direct<T>::Partial* partial;
    const T** x;
    T** out;
    int64_t* tap;
  };

  void accumulate(const Launch& launch, int64_t task) const {
    const int64_t unit = task % units_, part = task / units_;
    const int64_t image_part = part / first_parts_, begin = part % first_parts_ * first_part_;
    const int64_t end = std::min(begin + first_part_, this->first_extent());
    T* const sums = launch.sums + part * part_size();
    // The columns of the sums that are this task's.
    const int64_t per_unit = this->by_channels_ ? tiling_.tile_n : this->conv_.k_per_group();
    const int64_t k0 = unit * per_unit, columns = std::min(per_unit, tiling_.n - k0);
    for (int64_t r = 0; r < tiling_.m; ++r) std::fill_n(sums + r * tiling_.n + k0, columns, T(0));
    const int64_t last_image = std::min((image_part + 1) * images_, this->conv_.n);
    for (int64_t image = image_part * images_; image < last_image; ++image)
      for (int64_t first = begin; first < end; first += step_)
        add(launch, image, unit, first, std::min(end, first + step_), sums + k0, columns);
  }

  // Positions [first, last) of the first dim of one image.
  void add(const Launch& launch, int64_t image, int64_t unit, int64_t first, int64_t last, T* sums,
           int64_t columns) const {
    const bool channels = this->by_channels_;
    const auto range = this->first_coordinates(first, last);
    const int64_t all = channels ? columns : this->conv_.out.back();
    const int64_t at_once = this->lanes_at_once(launch.base[1], all);
    const int64_t x_rows = this->copied_rows(range.second - range.first);
    const int64_t y_rows = (last - first) * this->inner_positions();
    const bool y_in_place = gradient_.in_place(launch.base[0]);
    Work w;
    const auto cut = [&](Cutter& c) {
      w.x_copy = c.take<T>(x_rows * (at_once + this->reach_));
      w.y_copy = c.take<T>(y_in_place ? 0 : y_rows * at_once);
      w.packing = c.take<char>(std::max(this->operand_.scratch_bytes(x_rows, at_once + this->reach_),
                                        gradient_.scratch_bytes(y_rows, at_once)));
      w.partial = c.take<typename Direct<T>::Partial>(this->taps_);
      w.x = c.take<const T*>(this->most_taps());
      w.out = c.take<T*>(this->most_taps());
      w.tap = c.take<int64_t>(this->most_taps());
    };
    Cutter counter(nullptr);
    cut(counter);
    Cutter cutter(thread_scratch(counter.bytes()));
    cut(cutter);

    const int64_t x_batch = channels ? image : image * this->conv_.groups + unit;
    for (int64_t l = 0; l < all; l += at_once) {
      const int64_t lanes = std::min(at_once, all - l), lane = channels ? unit * tiling_.tile_n + l : 0;
      const Rows<T> x =
          this->rows(launch.memory, launch.base[1], x_batch, range, lane, lanes + this->reach_, w.packing, w.x_copy);
      for (int64_t i = 0; i < (channels ? 1 : columns); ++i) {
        const int64_t y_batch = channels ? image : image * this->conv_.k + unit * columns + i;
        const Rows<T> y = gradient_rows(launch, y_batch, first, y_rows, lane, lanes, w);
        sum_tile(x, y, first, last, sums + (channels ? l : i), lanes, w);
      }
    }
  }

  void sum_tile(const Rows<T>& x, const Rows<T>& y, int64_t first, int64_t last, T* sums, int64_t lanes,
                const Work& w) const {
    const size_t run = this->last_dim();
    const int64_t tap_size = (this->by_channels_ ? this->per_group_ : 1) * tiling_.n;
    this->for_positions(
        x, first, last, w.partial, [&](const int64_t* position, const auto* outer, int64_t count, int64_t end) {
          int64_t row = y.origin;
          for (size_t d = 0; d < this->dims_.size(); ++d)
            if (d != run) row += position[d] * y.stride[d];
          this->for_runs(
              x, run, outer, count, position[run], end, w.x, w.tap,
              [&](const Run&, int64_t p, int64_t positions, int64_t x_step, int64_t taps) {
                for (int64_t t = 0; t < taps; ++t) w.out[t] = sums + w.tap[t] * tap_size;
                sum({lanes, positions, taps, w.x, x_step, y.at + (row + p * y.stride[run]), y.stride[run], w.out});
              });
        });
  }

  // DY for positions [first, ...) of the first dim.
  Rows<T> gradient_rows(const Launch& launch, int64_t batch, int64_t first, int64_t rows, int64_t lane, int64_t lanes,
                        const Work& w) const {
    Rows<T> y;
    const size_t n = this->dims_.size();
    if (gradient_.in_place(launch.base[0])) {
      y.at = static_cast<const T*>(launch.base[0][0]) + gradient_.element(batch, lane);
      for (size_t d = 0; d < n; ++d) y.stride[d] = gradient_.position_stride(d);
      return y;
    }
    const int64_t inner = this->inner_positions();
    gradient_.copy(launch.memory, launch.base[0], batch, first * inner, rows, lane, lanes, w.packing, w.y_copy);
    int64_t stride = lanes;
    for (size_t d = n; d-- > 0; stride *= this->dims_[d].extent) y.stride[d] = stride;
    y.at = w.y_copy;
    y.origin = -first * y.stride[0];
    return y;
  }
  void sum(const typename DirectLoops<T>::Sums& sums) const {
    if (!this->by_channels_) this->loops_.along_sums(sums);
    else if (this->per_group_ == 1) this->loops_.channel_sums(sums);
    else this->loops_.group_sums(sums, this->per_group_, tiling_.n);
  }

  void join(const Launch& launch, int64_t tile) const {
    typename Epilogue<T>::Tile epilogue(epilogue_);
    T* sums = nullptr;
    const auto cut = [&](Cutter& c) {
      sums = c.take<T>(tiling_.tile_m * tiling_.tile_n);
      epilogue.cut(c);
    };
    Cutter counter(nullptr);
    cut(counter);
    Cutter cutter(thread_scratch(counter.bytes()));
    cut(cutter);
    const int64_t m0 = tiling_.m0(tile), n0 = tiling_.n0(tile);
    const int64_t rows = std::min(tiling_.tile_m, tiling_.m - m0), columns = std::min(tiling_.tile_n, tiling_.n - n0);
    std::fill_n(sums, rows * tiling_.tile_n, T(0));
    for (int64_t part = 0; part < parts(); ++part)
      for (int64_t i = 0; i < rows; ++i) {
        const T* const from = launch.sums + part * part_size() + (m0 + i) * tiling_.n + n0;
        for (int64_t j = 0; j < columns; ++j) sums[i * tiling_.tile_n + j] += from[j];
      }
    epilogue.start(tile, launch.memory, launch.base[2], launch.partial);
    epilogue.apply(sums, tiling_.tile_n, 0, rows);
  }

  RowOperand<T> gradient_;
  Tiling tiling_;
  int64_t units_ = 1, images_ = 1, image_parts_ = 1, first_parts_ = 1, first_part_ = 1, step_ = 1;
  Epilogue<T> epilogue_;
};

// --- which convolutions ----------------------------------------------------------------------------------------------

// What a lane costs in memory: the operands' and the result's loads and stores along one of their dims.
double memory_cost(const std::vector<const fuse::PwProgram*>& programs, size_t dim) {
  double cost = 0;
  for (const fuse::PwProgram* p : programs)
    for (const fuse::Access& a : p->access)
      if (a.tensor != ir::kNone && dim < a.stride.size()) cost += lane_cost(a.stride[dim]);
  return cost;
}

template <class T>
std::unique_ptr<Kernel> make(const fuse::Region& region, const ops::Convolution& c, std::string_view op) {
  const int64_t vector = direct_loops<T>().vector, k = c.k_per_group(), per_group = std::max(k, c.c_per_group());
  const bool dgrad = op == "conv_dgrad", wgrad = op == "conv_wgrad";
  std::vector<const fuse::PwProgram*> programs = {&region.operand[0]};
  if (wgrad) programs.push_back(&region.operand[1]);
  else programs.push_back(&region.program);
  const int64_t width = dgrad ? c.in.back() : c.out.back();
  const auto idle = [&](int64_t lanes) { return double(vector) / double(std::clamp<int64_t>(lanes, 1, vector)); };
  const bool groups_fit = k == c.c_per_group() && (k & (k - 1)) == 0 && k <= vector;
  const bool by_channels =
      groups_fit && memory_cost(programs, 1) * idle(c.k) < memory_cost(programs, c.rank() + 1) * idle(width);
  if (per_group > (by_channels ? kLargestGroup : wgrad ? 1 : kLargestGroupAlong)) return nullptr;
  if (wgrad) return std::make_unique<DirectFilterGradient<T>>(region, c, by_channels);
  return std::make_unique<DirectConvolution<T>>(region, c, dgrad, by_channels);
}

}  // namespace

std::unique_ptr<Kernel> make_direct(const fuse::FusedGraph& fused, const fuse::Region& region) {
  const ir::Node& node = fused.graph.nodes[size_t(region.heavy)];
  const std::string_view op = node.op->name;
  if (op == "matmul") return nullptr;
  const ops::Convolution conv = ops::convolution_of(fused.graph, node);
  if (conv.groups == 1) return nullptr;
  const bool wide =
      node.compute == DataType_t::DOUBLE || node.compute == DataType_t::INT32 || node.compute == DataType_t::INT64;
  if (wide || region.program.needs_double() || region.operand[0].needs_double() || region.operand[1].needs_double())
    return make<double>(region, conv, op);
  return make<float>(region, conv, op);
}

}  // namespace tilewright::cpu
