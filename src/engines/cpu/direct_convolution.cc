#include <fmt/format.h>

#include <cmath>

#include "base/thread_pool.h"
#include "engines/cpu/direct.h"

namespace tilewright::cpu::direct {
namespace {

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
    cut_scratch(cut);

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

}  // namespace

template <class T>
std::unique_ptr<Kernel> make_convolution(const fuse::Region& region, const ops::Convolution& c, bool dgrad,
                                         bool by_channels) {
  return std::make_unique<DirectConvolution<T>>(region, c, dgrad, by_channels);
}
template std::unique_ptr<Kernel> make_convolution<float>(const fuse::Region&, const ops::Convolution&, bool, bool);
template std::unique_ptr<Kernel> make_convolution<double>(const fuse::Region&, const ops::Convolution&, bool, bool);

}  // namespace tilewright::cpu::direct
