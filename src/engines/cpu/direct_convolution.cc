#include <fmt/format.h>

#include "base/thread_pool.h"
#include "engines/cpu/direct.h"

namespace tilewright::cpu::direct {
namespace {

constexpr int64_t kTileChannels = kLanes;
constexpr int64_t kWorthSharing = 64 * 1024;  // results: tasks of fewer read more of what their neighbours read, too

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
      launch.in_place = this->in_place(launch.base[0]);
      launch.plain = epilogue_.is_finish_for(launch.base[2], this->by_channels_ ? 1 : 0);
      launch.straight = launch.plain && epilogue_.stores_sums(launch.base[2]);
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
    bool in_place = false;  // the operand is read where it lies
    // The inner loops do what follows the sums; and store the results.
    bool plain = false, straight = false;
  };
  struct Work {
    T *sums, *copy;  // of a tile, or of a row of positions that is stored at once
    char* packing;
    typename Direct<T>::Partial* partial;
    const T **x, **w;
    int64_t* tap;
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
    panel_ = this->by_channels_ ? std::clamp<int64_t>(made_, 1, kTileChannels) : 1;
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

  void cut() {
    const ops::Convolution& c = this->conv_;
    tiling_.batch = c.n * (this->by_channels_ ? 1 : made_);
    tiling_.m = this->first_extent() * this->inner_positions();
    tiling_.n = this->by_channels_ ? made_ : this->dgrad_ ? c.in.back() : c.out.back();
    tiling_.tile_n = std::min(tiling_.n, kTileChannels);
    tiling_.n_tiles = parts_of(tiling_.n, std::max<int64_t>(1, tiling_.tile_n));
    // Parts of the first dim: enough for the threads, and not too much to copy.
    const int64_t others = c.n * (this->by_channels_ ? 1 : c.groups) * tiling_.n_tiles, extent = this->first_extent();
    const int64_t copied = this->copied_rows(this->dims_.empty() ? 1 : this->dims_[0].operand_extent) * tiling_.tile_n;
    const int64_t wanted = std::min(parts_of(kEnoughTasks, std::max<int64_t>(1, others)),
                                    std::max<int64_t>(1, tiling_.m * tiling_.tile_n / kWorthSharing));
    const int64_t parts = std::max(wanted, parts_of(copied, kCopied));
    first_part_ = std::max<int64_t>(1, parts_of(extent, std::min(parts, std::max<int64_t>(1, extent))));
    tiling_.tile_m = first_part_ * this->inner_positions();
    tiling_.m_tiles = parts_of(extent, first_part_);
  }

  // Where a tile's results go, from its first position on: to memory; else to a buffer, the whole tile of sums for the
  // epilogue, or a row of finished positions to be stored at once.
  struct Target {
    T* at;
    int64_t stride[3] = {};  // by position dim
    Finish<T> finish = {};
    // Rows from the buffer: the batch, and the column.
    bool by_rows = false;
    int64_t batch = 0, column = 0;
  };

  void compute(const Launch& launch, int64_t task) const {
    const int64_t n_tile = task % tiling_.n_tiles, m_tile = task / tiling_.n_tiles % tiling_.m_tiles;
    const int64_t batch = task / tiling_.n_tiles / tiling_.m_tiles, n0 = n_tile * tiling_.tile_n;
    const int64_t first = m_tile * first_part_, last = std::min(first + first_part_, this->first_extent());
    const int64_t lanes = std::min(tiling_.tile_n, tiling_.n - n0), read = lanes + this->reach_;
    const auto range = this->first_coordinates(first, last);
    const int64_t rows = launch.in_place ? 0 : this->copied_rows(range.second - range.first);

    typename Epilogue<T>::Tile epilogue(epilogue_);
    Work w;
    const auto cut = [&](Cutter& c) {
      w.copy = c.take<T>(rows * read);
      w.packing = c.take<char>(this->operand_.scratch_bytes(rows, read));
      w.sums = c.take<T>(launch.straight ? 0 : (launch.plain ? row_positions() : tiling_.tile_m) * tiling_.tile_n);
      w.partial = c.take<typename Direct<T>::Partial>(this->taps_);
      w.x = c.take<const T*>(this->most_taps());
      w.w = c.take<const T*>(this->most_taps());
      w.tap = c.take<int64_t>(this->most_taps());
      epilogue.cut(c);
    };
    cut_scratch(cut);

    const Rows<T> operand =
        launch.in_place ? this->rows_in_place(launch.base[0], batch, n0)
                        : this->copied(launch.memory, launch.base[0], batch, range, n0, read, w.packing, w.copy);
    const int64_t made = this->by_channels_ ? 1 : made_per_group_;
    for (int64_t i = 0; i < made; ++i) {
      const int64_t tile = ((batch * made + i) * tiling_.m_tiles + m_tile) * tiling_.n_tiles + n_tile;
      const int64_t row = batch % std::max<int64_t>(1, this->conv_.groups) * made + i;
      const Target target = target_of(launch, tile, w.sums);
      make_tile(launch, operand, first, last, launch.filter + (this->by_channels_ ? n0 : row) * sums_, target, lanes,
                w);
      if (launch.plain) continue;
      epilogue.start(tile, launch.memory, launch.base[2], launch.partial);
      epilogue.apply(w.sums, tiling_.tile_n, 0, (last - first) * this->inner_positions());
    }
  }

  // Positions along the last dim.
  int64_t row_positions() const { return this->dims_.empty() ? 1 : this->dims_.back().extent; }
  Target target_of(const Launch& launch, int64_t tile, T* buffer) const {
    Target t{buffer};
    t.batch = tiling_.batch_of(tile), t.column = tiling_.n0(tile);
    int64_t step = tiling_.tile_n;
    if (launch.plain) t.finish = epilogue_.finish_of(launch.base[2], t.batch, t.column);
    if (launch.straight) {
      t.at = epilogue_.plain_address(launch.base[2], t.batch, tiling_.m0(tile), t.column);
      step = epilogue_.plain_row_stride();
    }
    t.by_rows = launch.plain && !launch.straight;
    for (size_t d = this->dims_.size(); d-- > 0; step *= this->dims_[d].extent) {
      t.stride[d] = step;
      if (t.by_rows) break;  // one row after the other in the same place
    }
    return t;
  }

  void make_tile(const Launch& launch, const Rows<T>& operand, int64_t first, int64_t last, const T* filter,
                 const Target& target, int64_t lanes, const Work& w) const {
    const size_t run = this->last_dim();
    this->for_positions(
        operand, first, last, w.partial, [&](const int64_t* position, const auto* outer, int64_t count, int64_t end) {
          int64_t row = -first * target.stride[0];
          for (size_t d = 0; d < this->dims_.size(); ++d)
            if (d != run) row += position[d] * target.stride[d];
          this->for_runs(operand, run, outer, count, position[run], end, w.x, w.tap, [&](const auto& met) {
            for (int64_t t = 0; t < met.taps; ++t) w.w[t] = filter + w.tap[t] * filter_step();
            T* const out = target.at + (row + met.first * target.stride[run]);
            const T* const next = next_row(operand, position, last, met.taps, w);
            sum({lanes, met.positions, met.taps, this->by_channels_ ? met.tap_run : 1, w.x, met.step, w.w, out,
                 met.spacing * target.stride[run], target.finish, next,
                 next && launch.straight ? out + target.stride[run - 1] : nullptr});
          });
          if (target.by_rows) store_row(launch, target, first, position, end, lanes);
        });
  }
  // Roughly what the positions of the tile's next row will be the first to meet.
  const T* next_row(const Rows<T>& operand, const int64_t* position, int64_t last, int64_t taps, const Work& w) const {
    if (operand.padded || taps == 0 || this->dims_.size() < 2) return nullptr;
    const size_t d = this->dims_.size() - 2;
    return position[d] + 1 < (d == 0 ? last : this->dims_[d].extent) ? w.x[taps - 1] + operand.stride[d] : nullptr;
  }
  // A row of finished positions, from the buffer to memory.
  void store_row(const Launch& launch, const Target& t, int64_t first, const int64_t* position, int64_t end,
                 int64_t lanes) const {
    const size_t run = this->last_dim();
    int64_t row = 0;
    for (size_t d = 0; d < this->dims_.size(); ++d) row = row * this->dims_[d].extent + position[d];
    const T* const from = t.at + (run == 0 ? position[0] - first : position[run]) * t.stride[run];
    epilogue_.store(launch.base[2], t.batch, row, t.column, from, t.stride[run],
                    this->dims_.empty() ? 1 : end - position[run], lanes);
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
