// Convolutions of many small groups, depthwise ones above all, straight from the definition: matrix products of a few
// channels would leave most lanes idle. Lanes run along the channels where memory does, and groups allow, else along
// the innermost spatial dim. Operands are read where they lie when lanes run along plain memory, else a task copies the
// part it needs. What a position meets through which tap is worked out when the plan is made, so that borders, strides
// and gaps cost nothing but shorter runs. Work is cut by shape alone, and sums are made in one order.
#include <fmt/format.h>

#include <algorithm>

#include "base/thread_pool.h"
#include "engines/cpu/direct_loops.h"
#include "engines/cpu/epilogue.h"
#include "engines/cpu/kernel.h"
#include "ops/convolution.h"

namespace tilewright::cpu {
namespace {

constexpr int64_t kEnoughTasks = 32;
constexpr int64_t kRun = 32;               // positions between two turns of the epilogue
constexpr int64_t kLargestGroup = 16;      // channels; beyond, a matrix product is better
constexpr int64_t kLargestGroupAlong = 8;  // the same for lanes along a spatial dim
constexpr int64_t kCopied = 64 * 1024;     // elements of an operand that a task copies, about

int64_t parts_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

// What positions meet along one spatial dim: taps of the filter, and coordinates of the operand.
struct Meeting {
  int64_t tap, at;
};
// Positions first, first + spacing, ... that meet the same taps, at coordinates that grow by `advance`.
struct Run {
  int64_t first, count, spacing, advance;
  std::vector<Meeting> meetings;  // of the first
};
struct PositionDim {
  int64_t extent, taps, operand_extent;
  std::vector<std::vector<Meeting>> meetings;  // by position
  std::vector<Run> runs;

  // Both gradients and the convolution itself: position p and tap r meet at (p * factor + offset(r)) / divisor.
  PositionDim(const ops::Convolution& c, size_t d, bool dgrad)
      : extent(dgrad ? c.in[d] : c.out[d]), taps(c.filter[d]), operand_extent(dgrad ? c.out[d] : c.in[d]) {
    const int64_t stride = c.stride[d];
    for (int64_t p = 0; p < extent; ++p) {
      meetings.emplace_back();
      for (int64_t r = 0; r < taps; ++r) {
        const int64_t offset = (c.flip ? taps - 1 - r : r) * c.dilation[d] - c.pre[d];
        const int64_t at = dgrad ? p - offset : p * stride + offset;
        if (at < 0 || (dgrad && at % stride != 0)) continue;
        const int64_t coordinate = dgrad ? at / stride : at;
        if (coordinate < operand_extent) meetings.back().push_back({r, coordinate});
      }
    }
    const int64_t spacing = dgrad ? stride : 1, advance = dgrad ? 1 : stride;
    const auto goes_on = [&](int64_t p) {
      const auto &a = meetings[size_t(p - spacing)], &b = meetings[size_t(p)];
      return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                        [&](const Meeting& x, const Meeting& y) { return x.tap == y.tap && x.at + advance == y.at; });
    };
    for (int64_t phase = 0; phase < std::min(spacing, extent); ++phase)
      for (int64_t p = phase; p < extent; p += spacing) {
        if (p > phase && goes_on(p)) ++runs.back().count;
        else runs.push_back({p, 1, spacing, advance, meetings[size_t(p)]});
      }
  }
  // The coordinates that positions [begin, end) meet.
  std::pair<int64_t, int64_t> coordinates(int64_t begin, int64_t end) const {
    std::pair<int64_t, int64_t> range{operand_extent, 0};
    for (int64_t p = begin; p < end; ++p)
      for (const Meeting& m : meetings[size_t(p)])
        range = {std::min(range.first, m.at), std::max(range.second, m.at + 1)};
    return range.first < range.second ? range : std::pair<int64_t, int64_t>{0, 0};
  }
};

// Rows of lanes of an operand: in the tensor, or copied.
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
  // Whether lanes can be read in the tensor. Coordinates that leave it are not met, with lanes along channels.
  bool in_place(void* const* base) const { return plain_ && is_native<T>(program().access[0].type, base[0]); }
  const T* tensor(void* const* base, int64_t batch, int64_t lane) const {
    int64_t index[kMaxProblem] = {}, at = program().access[0].offset + lane;
    batch_.decode(batch, index);
    for (int d : batch_.dims) at += index[d] * strides_[size_t(d)];
    return static_cast<const T*>(base[0]) + at;
  }
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
    for (size_t d = 0; d < count; ++d) dims_.emplace_back(conv_, d, dgrad_);
    taps_ = volume(conv_.filter);
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
      for (size_t d = 0; d < dims_.size(); ++d) x.push_back(along(position[d], dims_[d].operand_extent));
    } else {
      const int group = add(conv_.groups, 'b'), channel = add(per_group, 'm');
      x.push_back(along(group, channels, per_group));
      x.back().factor[size_t(channel)] = 1;
      for (const PositionDim& d : dims_) {
        position.push_back(add(d.operand_extent, 'm'));
        x.push_back(along(position.back(), d.operand_extent));
      }
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

  // The operand for a task: the range of the first position dim's coordinates that it meets, and a range of lanes.
  Rows<T> rows(const Memory& memory, void* const* base, int64_t batch, std::pair<int64_t, int64_t> range, int64_t lane,
               int64_t lanes, char* scratch, T* copy) const {
    Rows<T> r;
    if (by_channels_ && operand_.in_place(base)) {
      r.at = operand_.tensor(base, batch, lane);
      for (size_t d = 0; d < dims_.size(); ++d) r.stride[d] = operand_.position_stride(d);
      return r;
    }
    const int64_t first = range.second - range.first, inner = operand_inner() * phases_;
    const int64_t whole = dims_.empty() ? 1 : dims_[0].operand_extent;
    for (int64_t c = 0; c < (by_channels_ ? 1 : per_group_); ++c)
      operand_.copy(memory, base, batch, (c * whole + range.first) * inner, first * inner, lane, lanes, scratch,
                    copy + c * first * inner * lanes);
    r.channel = first * inner * lanes, r.phase = lanes;
    int64_t stride = phases_ * lanes;
    for (size_t d = dims_.size(); d-- > 0; stride *= dims_[d].operand_extent) r.stride[d] = stride;
    r.at = copy;
    r.origin = -range.first * r.stride[0];
    return r;
  }

  // What a position of all dims but the last one meets: an offset into the rows, and a tap.
  struct Partial {
    int64_t offset, tap;
  };
  int64_t outer_taps(const Rows<T>& r, const int64_t* position, Partial* out) const {
    int64_t count = 1;
    out[0] = {r.origin, 0};
    for (size_t d = 0; d + 1 < dims_.size(); ++d) {
      const auto& meetings = dims_[d].meetings[size_t(position[d])];
      const int64_t before = count;
      count *= int64_t(meetings.size());
      for (int64_t i = before; i-- > 0;)  // from the back: place for the products
        for (size_t m = meetings.size(); m-- > 0;)
          out[i * int64_t(meetings.size()) + int64_t(m)] = {out[i].offset + meetings[m].at * r.stride[d],
                                                            out[i].tap * dims_[d].taps + meetings[m].tap};
    }
    return count;
  }

  // Calls body(first position, last + 1 in steps of spacing, ...) for the runs along the last position dim that lie in
  // [begin, end), with the taps that they meet: pointers to rows, and the number of each tap.
  template <class Body>
  void for_runs(const Rows<T>& r, const Partial* outer, int64_t outer_count, int64_t begin, int64_t end, const T** x,
                int64_t* tap, const Body& body) const {
    const auto list = [&](const std::vector<Meeting>& meetings, int64_t run_taps, int64_t run_stride, int64_t skip) {
      int64_t n = 0;
      for (int64_t i = 0; i < outer_count; ++i)
        for (const Meeting& m : meetings) {
          const T* const at = r.at + (outer[i].offset + (m.at + skip) * run_stride);
          const int64_t t = outer[i].tap * run_taps + m.tap;
          if (by_channels_) {
            x[n] = at, tap[n++] = t;
            continue;
          }
          for (size_t s = 0; s < last_taps_.size(); ++s)
            for (int64_t c = 0; c < per_group_; ++c, ++n) {
              x[n] = at + c * r.channel + last_taps_[s].first * r.phase + last_taps_[s].second;
              tap[n] = (t * int64_t(last_taps_.size()) + int64_t(s)) * per_group_ + c;
            }
        }
      return n;
    };
    if (dims_.empty()) {
      static const std::vector<Meeting> kOne = {{0, 0}};
      return body(int64_t{0}, int64_t{1}, int64_t{1}, int64_t{0}, list(kOne, 1, 0, 0));
    }
    const PositionDim& d = dims_.back();
    const int64_t stride = r.stride[dims_.size() - 1];
    for (const Run& run : d.runs) {
      const int64_t from = begin <= run.first ? 0 : parts_of(begin - run.first, run.spacing);
      const int64_t to = end <= run.first ? 0 : std::min(run.count, parts_of(end - run.first, run.spacing));
      if (from >= to) continue;
      const int64_t taps = list(run.meetings, d.taps, stride, from * run.advance);
      body(run.first + from * run.spacing, to - from, run.spacing, run.advance * stride, taps);
    }
  }

  // Calls body(row, outer taps, their count, begin, end) for positions [begin, end) of the last dim, at most kRun,
  // whose first is `row` among the rows of the tile: positions [first, last) of the first dim.
  template <class Body>
  void for_rows(const Rows<T>& r, int64_t first, int64_t last, Partial* partial, const Body& body) const {
    const size_t n = dims_.size();
    if (n <= 1) {
      partial[0] = {r.origin, 0};
      for (int64_t p = first; p < last; p += kRun) body(p - first, partial, int64_t{1}, p, std::min(last, p + kRun));
      return;
    }
    const int64_t width = dims_[n - 1].extent, middle = n == 3 ? dims_[1].extent : 1;
    for (int64_t p = first; p < last; ++p)
      for (int64_t q = 0; q < middle; ++q) {
        const int64_t position[2] = {p, q}, row = ((p - first) * middle + q) * width;
        const int64_t count = outer_taps(r, position, partial);
        for (int64_t w = 0; w < width; w += kRun) body(row + w, partial, count, w, std::min(width, w + kRun));
      }
  }
  int64_t most_taps() const { return taps_ * (by_channels_ ? 1 : per_group_); }

  ops::Convolution conv_;
  bool dgrad_, by_channels_;
  const DirectLoops<T>& loops_;
  std::vector<PositionDim> dims_;  // all, or all but the one that lanes run along
  int64_t taps_ = 1, per_group_ = 1;
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
    cut();
    epilogue_.prepare(region, result_problem(), tiling_);
  }

  int64_t scratch_bytes() const override { return filter_bytes() + epilogue_.scratch_bytes(); }

  void run(const Memory& memory, char* scratch) const override {
    Launch launch{memory, {}, reinterpret_cast<T*>(scratch), reinterpret_cast<double*>(scratch + filter_bytes())};
    if (tiling_.batch * tiling_.m * tiling_.n > 0) {
      resolve(memory, this->operand_.program(), launch.base[0]);
      resolve(memory, filter_.program(), launch.base[1]);
      resolve(memory, epilogue_.program(), launch.base[2]);
      launch.plain = epilogue_.is_plain() && is_native<T>(kNativeType<T>, launch.base[2][0]);
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
    bool plain = false;
  };

  // The filter as lanes want it: [tap, channel of the sum][channel made], or the other way round.
  void prepare_filter(const fuse::PwProgram& program) {
    Problem p;
    const auto add = [&](int64_t extent, char group) {
      p.dims.push_back({extent, group});
      return int(p.dims.size()) - 1;
    };
    const ops::Convolution& c = this->conv_;
    const char made_group = this->by_channels_ ? 'k' : 'm', sum_group = this->by_channels_ ? 'm' : 'k';
    const int group = add(c.groups, made_group), made = add(made_per_group_, made_group);
    std::vector<Coordinate> taps;
    for (int64_t extent : c.filter) taps.push_back(along(add(extent, sum_group), extent));
    const int summed = add(this->per_group_, sum_group);
    const int k = this->dgrad_ ? summed : made, channel = this->dgrad_ ? made : summed;
    p.operand[0].push_back(along(group, c.k, c.k_per_group()));
    p.operand[0].back().factor[size_t(k)] = 1;
    p.operand[0].push_back(along(channel, c.c_per_group()));
    p.operand[0].insert(p.operand[0].end(), taps.begin(), taps.end());
    filter_.prepare(p, 0, 'm', program, 1);
    filter_rows_ = p.size('m'), filter_columns_ = p.size('k');
  }
  int64_t filter_bytes() const { return (filter_rows_ * filter_columns_ * int64_t(sizeof(T)) + 63) / 64 * 64; }
  void copy_filter(const Launch& launch) const {
    const int64_t rows = std::max<int64_t>(1, 16 * 1024 / std::max<int64_t>(1, filter_columns_));
    parallel_for(parts_of(filter_rows_, rows), [&](int64_t part) {
      int64_t index[kMaxProblem] = {};
      const int64_t first = part * rows, count = std::min(rows, filter_rows_ - first);
      filter_.pack(launch.memory, launch.base[1], {first, count, 0, filter_columns_, filter_rows_, filter_columns_},
                   T(0), index, thread_scratch(filter_.scratch_bytes(count, filter_columns_)),
                   launch.filter + first * filter_columns_);
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
    std::vector<int> spatial;
    for (const PositionDim& d : this->dims_) spatial.push_back(add(d.extent, 'm'));
    if (this->by_channels_) channel[size_t(add(made_, 'n'))] = 1;
    else spatial.push_back(add(this->dgrad_ ? c.in.back() : c.out.back(), 'n'));
    p.result = {along(image, 1).factor, channel};
    for (int d : spatial) p.result.push_back(along(d, 1).factor);
    return p;
  }

  void cut() {
    const ops::Convolution& c = this->conv_;
    tiling_.batch = c.n * (this->by_channels_ ? 1 : made_);
    tiling_.m = this->first_extent() * this->inner_positions();
    tiling_.n = this->by_channels_ ? made_ : this->dgrad_ ? c.in.back() : c.out.back();
    tiling_.tile_n = std::min<int64_t>(tiling_.n, kLanes);
    tiling_.n_tiles = parts_of(tiling_.n, std::max<int64_t>(1, tiling_.tile_n));
    // Parts of the first dim: enough for the threads, and not too much to copy.
    const int64_t others = c.n * (this->by_channels_ ? 1 : c.groups) * tiling_.n_tiles, extent = this->first_extent();
    const int64_t copied = this->copied_rows(this->dims_.empty() ? 1 : this->dims_[0].operand_extent) * tiling_.tile_n;
    const int64_t parts = std::max(parts_of(kEnoughTasks, std::max<int64_t>(1, others)), parts_of(copied, kCopied));
    first_part_ = std::max<int64_t>(1, parts_of(extent, std::min(parts, std::max<int64_t>(1, extent))));
    tiling_.tile_m = first_part_ * this->inner_positions();
    tiling_.m_tiles = parts_of(extent, first_part_);
  }

  void compute(const Launch& launch, int64_t task) const {
    const int64_t n_tile = task % tiling_.n_tiles, m_tile = task / tiling_.n_tiles % tiling_.m_tiles;
    const int64_t batch = task / tiling_.n_tiles / tiling_.m_tiles, n0 = n_tile * tiling_.tile_n;
    const int64_t first = m_tile * first_part_, last = std::min(first + first_part_, this->first_extent());
    const int64_t columns = std::min(tiling_.tile_n, tiling_.n - n0);
    const auto range = this->first_coordinates(first, last);
    const int64_t lanes = columns + this->reach_, rows = this->copied_rows(range.second - range.first);
    const bool copies = !(this->by_channels_ && this->operand_.in_place(launch.base[0]));

    typename Epilogue<T>::Tile epilogue(epilogue_);
    Work w;
    const auto cut = [&](Cutter& c) {
      w.sums = c.take<T>(std::min(kRun, tiling_.tile_m) * tiling_.tile_n);
      w.copy = c.take<T>(copies ? rows * lanes : 0);
      w.packing = c.take<char>(copies ? this->operand_.scratch_bytes(rows, lanes) : 0);
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

    const Rows<T> operand = this->rows(launch.memory, launch.base[0], batch, range, n0, lanes, w.packing, w.copy);
    const int64_t made = this->by_channels_ ? 1 : made_per_group_;
    for (int64_t i = 0; i < made; ++i) {
      const int64_t tile = ((batch * made + i) * tiling_.m_tiles + m_tile) * tiling_.n_tiles + n_tile;
      const int64_t row = batch % std::max<int64_t>(1, this->conv_.groups) * made + i;
      const T* const filter = launch.filter + (this->by_channels_ ? n0 : row * filter_columns_);
      epilogue.start(tile, launch.memory, launch.base[2], launch.partial);
      this->for_rows(
          operand, first, last, w.partial,
          [&](int64_t r, const auto* outer, int64_t count, int64_t begin, int64_t end) {
            T* const out =
                launch.plain ? epilogue_.plain_address(launch.base[2], tiling_.batch_of(tile), tiling_.m0(tile) + r, n0)
                             : w.sums;
            const int64_t ld = launch.plain ? epilogue_.plain_row_stride() : tiling_.tile_n;
            this->for_runs(operand, outer, count, begin, end, w.x, w.tap,
                           [&](int64_t p, int64_t positions, int64_t spacing, int64_t x_step, int64_t taps) {
                             for (int64_t t = 0; t < taps; ++t) w.w[t] = filter + w.tap[t] * filter_step();
                             sum({columns, positions, taps, w.x, x_step, w.w, out + (p - begin) * ld, spacing * ld});
                           });
            if (!launch.plain) epilogue.apply(w.sums, ld, r, end - begin);
          });
    }
  }

  struct Work {
    T *sums, *copy;
    char* packing;
    typename Direct<T>::Partial* partial;
    const T **x, **w;
    int64_t* tap;
  };
  int64_t filter_step() const { return this->by_channels_ ? this->per_group_ * filter_columns_ : 1; }
  void sum(const typename DirectLoops<T>::Rows& rows) const {
    if (!this->by_channels_) this->loops_.along(rows);
    else if (this->per_group_ == 1) this->loops_.channels(rows);
    else this->loops_.groups(rows, this->per_group_, filter_columns_);
  }

  int64_t made_, made_per_group_;  // channels of the result
  Packer<T> filter_;
  int64_t filter_rows_ = 0, filter_columns_ = 0;
  Tiling tiling_;
  int64_t first_part_ = 1;  // positions of the first dim in a tile
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
    for (size_t d = 0; d < this->dims_.size(); ++d) y.push_back(along(position[d], this->dims_[d].extent));
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
    tiling_.tile_m = std::min<int64_t>(tiling_.m, kRun);
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
    const int64_t inner = this->inner_positions(), width = this->conv_.out.back();
    const int64_t x_lanes = channels ? columns : width + this->reach_, y_lanes = channels ? columns : width;
    const int64_t x_rows = this->copied_rows(range.second - range.first), y_rows = (last - first) * inner;
    const bool y_in_place = gradient_.in_place(launch.base[0]);
    Work w;
    const auto cut = [&](Cutter& c) {
      w.x_copy = c.take<T>(x_rows * x_lanes);
      w.y_copy = c.take<T>(y_in_place ? 0 : y_rows * y_lanes);
      w.packing = c.take<char>(
          std::max(this->operand_.scratch_bytes(x_rows, x_lanes), gradient_.scratch_bytes(y_rows, y_lanes)));
      w.partial = c.take<typename Direct<T>::Partial>(this->taps_);
      w.x = c.take<const T*>(this->most_taps());
      w.out = c.take<T*>(this->most_taps());
      w.tap = c.take<int64_t>(this->most_taps());
    };
    Cutter counter(nullptr);
    cut(counter);
    Cutter cutter(thread_scratch(counter.bytes()));
    cut(cutter);

    const int64_t lane = channels ? unit * tiling_.tile_n : 0;
    const int64_t x_batch = channels ? image : image * this->conv_.groups + unit;
    const Rows<T> x = this->rows(launch.memory, launch.base[1], x_batch, range, lane, x_lanes, w.packing, w.x_copy);
    for (int64_t i = 0; i < (channels ? 1 : columns); ++i) {
      const int64_t y_batch = channels ? image : image * this->conv_.k + unit * columns + i;
      const Rows<T> y = gradient_rows(launch, y_batch, first, y_rows, lane, y_lanes, w);
      this->for_rows(
          x, first, last, w.partial, [&](int64_t row, const auto* outer, int64_t count, int64_t p0, int64_t p1) {
            const T* const dy = y.at + offset_of_row(y, row);
            const int64_t y_stride = this->dims_.empty() ? 0 : y.stride[this->dims_.size() - 1];
            this->for_runs(x, outer, count, p0, p1, w.x, w.tap,
                           [&](int64_t p, int64_t positions, int64_t, int64_t x_step, int64_t taps) {
                             for (int64_t t = 0; t < taps; ++t)
                               w.out[t] = sums + w.tap[t] * (channels ? this->per_group_ : 1) * tiling_.n + i;
                             sum({y_lanes, positions, taps, w.x, x_step, dy + (p - p0) * y_stride, y_stride, w.out});
                           });
          });
    }
  }

  // DY at positions [first, ...) of the first dim, which row 0 begins.
  Rows<T> gradient_rows(const Launch& launch, int64_t batch, int64_t first, int64_t rows, int64_t lane, int64_t lanes,
                        const Work& w) const {
    Rows<T> y;
    const size_t n = this->dims_.size();
    if (gradient_.in_place(launch.base[0])) {
      y.at = gradient_.tensor(launch.base[0], batch, lane);
      for (size_t d = 0; d < n; ++d) y.stride[d] = gradient_.position_stride(d);
      if (n > 0) y.at += first * y.stride[0];
      return y;
    }
    const int64_t inner = this->inner_positions();
    gradient_.copy(launch.memory, launch.base[0], batch, first * inner, rows, lane, lanes, w.packing, w.y_copy);
    int64_t stride = lanes;
    for (size_t d = n; d-- > 0; stride *= this->dims_[d].extent) y.stride[d] = stride;
    y.at = w.y_copy;
    return y;
  }
  int64_t offset_of_row(const Rows<T>& y, int64_t row) const {
    int64_t at = 0;
    for (size_t d = this->dims_.size(); d-- > 0;) {
      const int64_t extent = d == 0 ? row + 1 : this->dims_[d].extent;
      at += row % extent * y.stride[d];
      row /= extent;
    }
    return at;
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
      groups_fit && memory_cost(programs, 1) * idle(c.k) <= memory_cost(programs, c.rank() + 1) * idle(width);
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
