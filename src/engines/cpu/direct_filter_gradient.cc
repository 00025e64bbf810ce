#include <fmt/format.h>

#include "base/thread_pool.h"
#include "engines/cpu/direct.h"

namespace tilewright::cpu::direct {
namespace {

constexpr int64_t kSums = 8 * 1024;  // between two turns of the epilogue: they stay in the first-level cache

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
    // Channels that are cheap to copy, a few at once: all rows that positions share stay in the first-level cache.
    const int64_t at_once = this->in_place(launch.base[1]) ? std::min(all, 2 * this->loops_.vector) : all;
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
    cut_scratch(cut);

    const int64_t x_batch = channels ? image : image * this->conv_.groups + unit;
    for (int64_t l = 0; l < all; l += at_once) {
      const int64_t lanes = std::min(at_once, all - l), lane = channels ? unit * tiling_.tile_n + l : 0;
      const Rows<T> x =
          this->copied(launch.memory, launch.base[1], x_batch, range, lane, lanes + this->reach_, w.packing, w.x_copy);
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
    this->for_positions(x, first, last, w.partial,
                        [&](const int64_t* position, const auto* outer, int64_t count, int64_t end) {
                          int64_t row = y.origin;
                          for (size_t d = 0; d < this->dims_.size(); ++d)
                            if (d != run) row += position[d] * y.stride[d];
                          this->for_runs(x, run, outer, count, position[run], end, w.x, w.tap, [&](const auto& met) {
                            for (int64_t t = 0; t < met.taps; ++t) w.out[t] = sums + w.tap[t] * tap_size;
                            sum({lanes, met.positions, met.taps, w.x, met.step,
                                 y.at + (row + met.first * y.stride[run]), y.stride[run], w.out});
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
    cut_scratch(cut);
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

}  // namespace

template <class T>
std::unique_ptr<Kernel> make_filter_gradient(const fuse::Region& region, const ops::Convolution& c, bool by_channels) {
  return std::make_unique<DirectFilterGradient<T>>(region, c, by_channels);
}
template std::unique_ptr<Kernel> make_filter_gradient<float>(const fuse::Region&, const ops::Convolution&, bool);
template std::unique_ptr<Kernel> make_filter_gradient<double>(const fuse::Region&, const ops::Convolution&, bool);

}  // namespace tilewright::cpu::direct
