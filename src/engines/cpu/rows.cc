// Evaluates a Rows region, walking its domain as rows_space.h says: blocks of lanes, loops around them.
//
// An outer block is one row, or up to kRowLanes rows side by side when the lane dim is not reduced. For it, pass p
// folds the reductions that p others precede; values that depend on the outer dims only are computed once between the
// passes. All stores happen in the last pass, after every load of the same block: outputs may overwrite inputs element
// by element. Costly values of a row that a later pass needs again are kept, if they are few enough for the cache.
// Where both are made of steps, the last pass over a row and the first one over the next take turns a few vectors at a
// time: memory is read while it is written.
//
// With few rows of many elements a pass is cut into chunks, whose partial results are joined in order. Side reductions
// fold into an array per task, joined in order at the end. Work is cut by shape alone, so results do not depend on the
// number of threads.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "base/numeric_rows.h"
#include "base/numeric_types.h"
#include "base/thread_pool.h"
#include "engines/cpu/kernel.h"
#include "engines/cpu/lane_program.h"
#include "engines/cpu/rows_space.h"

namespace tilewright::cpu {
namespace {

using fuse::Instr;
using fuse::PwOp;
using fuse::PwProgram;

// A store whose tensor lacks some of the loops stores where their index is 0.
struct Once {
  int access;
  bool lane;                         // lacks the lane loop
  std::vector<size_t> outer, inner;  // positions among the outer and the inner loops
};

constexpr int64_t kTaskElements = 16 * 1024;  // work worth handing to another thread
constexpr int64_t kManyTasks = 64;
constexpr int64_t kKeptBytes = 128 * 1024;  // of a row's values: half of a usual second-level cache
constexpr int64_t kAhead = 2048;            // bytes that a map fetches before it reads them
constexpr int64_t kLongLanes = 4096;        // lanes of a block whose values need no buffers
constexpr int64_t kJoined = 1024;           // results of side reductions that a task joins
constexpr int64_t kFloatRows = 64;          // whose sums lane by lane are in float before they are joined in double

// Results that do not fit the last-level cache beside what they are made of are stored past it.
int64_t streamed_bytes() {
  static const int64_t bytes = [] {
    int64_t kib = 0;  // sysconf multiplies the size by the processors that share the cache
    std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kib;
    return (kib > 0 ? kib << 10 : int64_t(32) << 20) / 2;
  }();
  return bytes;
}

template <class T>
class Rows : public Kernel {
 public:
  // lanes: of the longest block.
  Rows(const fuse::Region& region, int64_t lanes)
      : Rows(region.side, make_row_space(region.program, region.side), lanes) {}

  // Longer blocks than kRowLanes are for steps alone.
  bool fits() const {
    if (block_lanes_ <= kRowLanes) return true;
    for (int p = 0; p <= depth_; ++p)
      if (!idle_[size_t(p)] && !steps_[size_t(p)].needs_no_buffers()) return false;
    return true;
  }

  int64_t scratch_bytes() const override { return (fold_scratch_ + side_scratch_) * int64_t(sizeof(double)); }

  void run(const Memory& memory, char* scratch) const override {
    void* base[kMaxAccesses];
    resolve(memory, program_, base);
    double* const folds = reinterpret_cast<double*>(scratch);
    double* const sides = folds + fold_scratch_;
    if (!empty_) chunks_ == 1 ? run_blocks(memory, base, sides) : run_chunks(memory, base, folds, sides);
    for (const Side& s : sides_) join_side(s, memory, sides);
  }

  double memory_share() const override {
    bool in_registers = true;
    for (int p = 0; p <= depth_; ++p) {
      const LaneProgram& steps = steps_[size_t(p)];
      in_registers = in_registers && (idle_[size_t(p)] || (steps && !steps.calls_functions()));
    }
    return in_registers ? 0.85 : 0.5;
  }

  std::string describe() const override {
    std::string s =
        fmt::format("{} outer block{} x {} step{} of {} lanes", outer_blocks_, outer_blocks_ == 1 ? "" : "s",
                    inner_steps_, inner_steps_ == 1 ? "" : "s", block_lanes_);
    if (space_.period) s += fmt::format(" ({} repeated)", space_.period);
    if (space_.tiles) s += fmt::format(" (tiles of {} x {})", space_.repeats, space_.lane_step);
    if (depth_) s += fmt::format(", {} passes", depth_ + 1);
    if (kept_) s += fmt::format(", {} value{} of a row kept", kept_, kept_ == 1 ? "" : "s");
    if (chunks_ > 1) s += fmt::format(", {} chunks", chunks_);
    if (!sides_.empty()) s += fmt::format(", side reductions of {} tasks", tasks_);
    if (streams_) s += ", streaming stores";
    if (overlaps_) s += ", rows overlap";
    return s + (sizeof(T) == 8 ? ", in double" : "");
  }

 private:
  class Task;
  struct Fold {
    int id, arg;  // instructions: the reduction, its operand
    int pass;     // in which it is folded
    int factor;   // or -1: a sum of products with this other operand
    ReductionMode_t mode;
    int slot;
    bool in_steps = false;  // folded by the steps of its pass
  };
  struct Side {
    fuse::SideReduction what;
    int arg, factor;  // as of a Fold
    int access;       // into the results of a task
    int64_t size;     // results
    int64_t offset;   // of all tasks' results, in the scratch
    int pass;
    std::vector<Loop> kept;                   // of the results, slowest first; stride[0]: in the output tensor
    bool in_steps = false, in_float = false;  // folded by the steps of its pass; there as lanes of float
  };

  Rows(const std::vector<fuse::SideReduction>& side, SpacedProgram&& spaced, int64_t lanes)
      : program_(std::move(spaced.program)), space_(std::move(spaced.space)), lane_(space_.lane) {
    TW_CHECK(program_.access.size() <= size_t(kMaxAccesses));
    if (lane_.inner && space_.period == 0 && !space_.tiles) space_.lane_step = lanes;
    count_blocks();
    cut(std::accumulate(spaced.side_size.begin(), spaced.side_size.end(), int64_t(0)));
    for (size_t k = 0; k < side.size(); ++k) add_side(side[k], spaced.side_access[k], spaced.side_size[k]);
    make_lists();
    fold_scratch_ = chunks_ == 1 ? 0 : outer_blocks_ * int64_t(reduces_.size()) * width_ * (chunks_ + 1);
  }

  // --- running -------------------------------------------------------------------------------------------------------
  void run_blocks(const Memory& memory, void* const* base, double* sides) const {
    parallel_for(tasks_, [&](int64_t task) {
      Task one(*this), other(*this), *now = &one, *next = &other;
      cut_scratch([&](Cutter& c) {
        one.cut(c);
        if (overlaps_) other.cut(c);
      });
      one.start(memory, base);
      one.take_sides(sides, task);
      for (int p = 0; p <= depth_; ++p) one.start_sides(p);
      if (overlaps_) other.start(memory, base), other.share_sides(one);
      const int64_t end = std::min(outer_blocks_, (task + 1) * group_);
      for (int64_t block = task * group_; block < end; ++block) {
        const bool begun = overlaps_ && block > task * group_, overlap = overlaps_ && block + 1 < end;
        if (!begun) now->begin(block);
        for (int p = begun ? 1 : 0; p <= depth_ - overlap; ++p) {
          now->start_pass(p);
          now->inner_pass(p, 0, inner_steps_);
          now->finish_folds(p);
        }
        if (overlap) {
          next->begin(block + 1);
          overlap_passes(*now, *next);
        }
        now->outer_stores();
        if (block + 1 == end || (block + 1) % kFloatRows == 0) now->join_float_sums();
        if (overlaps_) std::swap(now, next);
      }
      if (streams_) flush_streams();
    });
  }

  // The last pass over a row and the first one over the next.
  void overlap_passes(Task& row, Task& next) const {
    row.start_pass(depth_), next.start_pass(0);
    row.walk(0), next.walk(0);
    for (int64_t step = 0; step < inner_steps_; ++step) {
      row.place(depth_, step), next.place(0, step);
      Task::run_steps(row, depth_, &next);
      row.fold(depth_), next.fold(0);
      row.advance(), next.advance();
    }
    row.finish_folds(depth_), next.finish_folds(0);
  }

  void run_chunks(const Memory& memory, void* const* base, double* results, double* sides) const {
    const int64_t row = int64_t(reduces_.size()) * width_;  // doubles of one block's reductions
    double* const partial = results + outer_blocks_ * row;
    for (int p = 0; p <= depth_; ++p) {
      parallel_for(tasks_, [&](int64_t task) {
        const int64_t block = task / chunks_, chunk = task % chunks_;
        Task t(*this);
        cut_scratch([&](Cutter& c) { t.cut(c); });
        t.start(memory, base);
        t.take_sides(sides, task);
        t.start_sides(p);
        t.begin(block);
        for (int q = 0; q < p; ++q) {
          t.outer_values(q);
          t.set_folds(q, results + block * row);
        }
        t.start_pass(p);
        t.inner_pass(p, inner_steps_ * chunk / chunks_, inner_steps_ * (chunk + 1) / chunks_);
        t.save_folds(p, partial + task * row);
        if (p == depth_ && chunk == 0) t.outer_stores();
        if (streams_) flush_streams();
      });
      for (int64_t block = 0; block < outer_blocks_; ++block)
        for (size_t r = 0; r < reduces_.size(); ++r) {
          if (reduces_[r].pass != p) continue;
          for (int64_t l = 0; l < width_; ++l) {
            double total = fuse::reduction_start(reduces_[r].mode);
            for (int64_t c = 0; c < chunks_; ++c)
              total = fuse::reduction_join(reduces_[r].mode, total,
                                           partial[(block * chunks_ + c) * row + int64_t(r) * width_ + l]);
            results[block * row + int64_t(r) * width_ + l] = total;
          }
        }
    }
  }

  // Joins the tasks' results in order, and stores.
  void join_side(const Side& s, const Memory& memory, const double* scratch) const {
    const ReductionMode_t mode = s.what.mode;
    void* const to = memory.root(s.what.out.tensor);
    parallel_for((s.size + kJoined - 1) / kJoined, [&](int64_t part) {
      double total[kJoined];
      const int64_t first = part * kJoined, n = std::min(kJoined, s.size - first);
      std::fill_n(total, n, fuse::reduction_start(mode));
      for (int64_t task = 0; task < (empty_ ? 0 : tasks_); ++task) {
        const double* const from = scratch + s.offset + task * s.size + first;
        if (fuse::reduction_is_sum(mode))
          for (int64_t i = 0; i < n; ++i) total[i] += from[i];
        else
          for (int64_t i = 0; i < n; ++i) total[i] = fuse::reduction_join(mode, total[i], from[i]);
      }
      int64_t at = s.what.out.offset;
      Cursor cursor{&s.kept, {}};
      cursor.seek(first, &at, 1);
      for (int64_t i = 0; i < n; ++i, cursor.next(&at, 1))
        store_element(to, s.what.out.type, at, fuse::reduction_finish(mode, total[i], s.what.count));
    });
  }

  // What one thread needs for one task.
  class Task {
   public:
    explicit Task(const Rows& k) : k_(k) {}

    void start(const Memory& memory, void* const* base) {
      frame_.memory = base;
      frame_.tensors = &memory;
      frame_.n = k_.block_lanes_;
      frame_.pitch = k_.pitch_;
      frame_.period = k_.space_.period;
      frame_.far = k_.space_.far.data();
      frame_.row_steps = k_.inner_steps_;
      frame_.offset = offset_;
      frame_.lane_stride = k_.lane_.stride.data();
      frame_.store_lanes = store_lanes_;
      run_ops(k_.uniform_, frame_);
    }

    void begin(int64_t block) {
      if (block == located_) {
        std::swap(outer_, next_);
        std::swap(outer_offset_, next_offset_);
      } else {
        locate(block, outer_, outer_offset_);
      }
      outer_lane_ = outer_lane_of(block);
      outer_n_ = k_.lane_.inner ? 1 : std::min<int64_t>(k_.space_.lane_step, k_.lane_.extent - outer_lane_);
      located_ = k_.fetched_.empty() || k_.depth_ == 0 || block + 1 == k_.outer_blocks_ ? -1 : block + 1;
      if (located_ >= 0) locate(located_, next_, next_offset_);
    }

    void outer_values(int p) {
      frame_.n = outer_n_;
      std::copy_n(outer_offset_, k_.program_.access.size(), offset_);
      run_ops(k_.outer_[size_t(p)], frame_);
      for (const auto& [id, slot] : k_.spread_values_[size_t(p)]) spread(id, slot, frame_.value[id]);
    }

    void start_pass(int p) {
      outer_values(p);
      for (size_t r = 0; r < k_.reduces_.size(); ++r)
        if (k_.reduces_[r].pass == p)
          std::fill_n(total_ + int64_t(r) * k_.total_lanes_, k_.total_lanes_,
                      fuse::reduction_start(k_.reduces_[r].mode));
    }

    void take_sides(double* scratch, int64_t task) {
      for (size_t s = 0; s < k_.sides_.size(); ++s) side_[s] = scratch + k_.sides_[s].offset + task * k_.sides_[s].size;
    }
    // Of a task that takes turns with this one.
    void share_sides(const Task& other) { side_ = other.side_, float_sums_ = other.float_sums_; }
    void start_sides(int p) {
      for (size_t s = 0; s < k_.sides_.size(); ++s)
        if (k_.sides_[s].pass == p) {
          std::fill_n(side_[s], k_.sides_[s].size, fuse::reduction_start(k_.sides_[s].what.mode));
          if (k_.sides_[s].in_float) std::fill_n(float_sums_[s], k_.sides_[s].size, 0.f);
        }
    }
    void join_float_sums() {
      for (size_t s = 0; s < k_.sides_.size(); ++s) {
        if (!k_.sides_[s].in_float) continue;
        for (int64_t i = 0; i < k_.sides_[s].size; ++i) side_[s][i] += double(float_sums_[s][i]);
        std::fill_n(float_sums_[s], k_.sides_[s].size, 0.f);
      }
    }

    // A pass over the steps of the row, from one on: where it is, and the next one.
    void walk(int64_t from) {
      const size_t accesses = k_.program_.access.size();
      const int64_t lane_blocks = k_.lane_.inner ? k_.lane_blocks_ : 1;
      std::copy_n(outer_offset_, accesses, offset_);
      cursor_.loops = &k_.space_.inner;
      cursor_.seek(from / lane_blocks, offset_, accesses);
      at_lane_ = from % lane_blocks * k_.space_.lane_step;
      if (k_.lane_.inner)
        for (size_t a = 0; a < accesses; ++a) offset_[a] += at_lane_ * k_.space_.advance[a];
    }
    void place(int p, int64_t step) {
      frame_.step = step;
      measure(at_lane_, cursor_);
      set_store_lanes(k_.lane_.inner ? at_lane_ : outer_lane_, &cursor_);
      for (const auto& [id, row] : k_.recalled_[size_t(p)])
        frame_.value[id] = frame_.rows + (int64_t(row) * k_.inner_steps_ + step) * k_.pitch_;
    }
    void advance() {
      const size_t accesses = k_.program_.access.size();
      if (k_.lane_.inner) {
        at_lane_ += k_.space_.lane_step;
        for (size_t a = 0; a < accesses; ++a) offset_[a] += k_.space_.lane_step * k_.space_.advance[a];
        if (at_lane_ < k_.lane_.extent) return;
        for (size_t a = 0; a < accesses; ++a) offset_[a] -= at_lane_ * k_.space_.advance[a];
        at_lane_ = 0;
      }
      cursor_.next(offset_, accesses);
    }

    void inner_pass(int p, int64_t from, int64_t to) {
      const BlockOps<T>& ops = k_.inner_[size_t(p)];
      if (from >= to || k_.idle_[size_t(p)]) return;
      walk(from);
      for (int64_t step = from; step < to; ++step, advance()) {
        place(p, step);
        if (k_.steps_[size_t(p)]) run_steps(*this, p, nullptr);
        else run_ops(ops, frame_);
        fold(p);
        if (located_ >= 0 && k_.depth_ > 0 && !k_.steps_[size_t(p)]) fetch_next(p);
      }
      // Repeated lanes hold parts of the same results.
      if (k_.total_lanes_ > k_.width_)
        for (int r : k_.folds_[size_t(p)]) {
          double* const total = total_ + int64_t(r) * k_.total_lanes_;
          for (int64_t l = k_.space_.period; l < k_.total_lanes_; ++l)
            total[l % k_.space_.period] =
                fuse::reduction_join(k_.reduces_[size_t(r)].mode, total[l % k_.space_.period], total[l]);
        }
    }

    // The block by steps that pass values on in registers; with `next`, pass 0 of that one beside it.
    static void run_steps(Task& row, int p, Task* next) {
      if constexpr (sizeof(T) == 4) {
        Lists lists, beside;
        const LaneProgram& steps = row.k_.steps_[size_t(p)];
        if (!next) return steps.run(row.frame_, row.lists_of(p, lists));
        LaneProgram::run_both(steps, row.frame_, row.lists_of(p, lists), row.k_.steps_[0], next->frame_,
                              next->lists_of(0, beside));
      }
    }

    void fold(int p) {
      for (int r : k_.folds_[size_t(p)]) {
        const Fold& fold = k_.reduces_[size_t(r)];
        if (fold.in_steps) continue;
        double* const total = total_ + int64_t(r) * k_.total_lanes_;
        const T *const x = frame_.value[fold.arg], *const y = fold.factor < 0 ? nullptr : frame_.value[fold.factor];
        fold_block(fold.mode, x, y, k_.lane_.inner, frame_.n, total);
      }
      for (size_t k = 0; k < k_.sides_.size(); ++k) {
        const Side& s = k_.sides_[k];
        if (s.pass != p || s.in_steps) continue;
        const T *const x = frame_.value[s.arg], *const y = s.factor < 0 ? nullptr : frame_.value[s.factor];
        double* total = side_[k] + offset_[s.access];
        const int64_t stride = k_.lane_.stride[size_t(s.access)];
        const bool whole = frame_.period == 0 || (stride == 0 && k_.space_.far[size_t(s.access)] == 0);
        const int64_t run = whole ? frame_.n : std::min(frame_.period, frame_.n);
        for (int64_t i = 0; i < frame_.n; i += run, total += k_.space_.far[size_t(s.access)]) {
          if (stride <= 1) {
            fold_block(s.what.mode, x + i, y ? y + i : y, stride == 0, run, total);
            continue;
          }
          for (int64_t l = 0; l < run; ++l)
            fold_block(s.what.mode, x + i + l, y ? y + i + l : y, true, 1, total + l * stride);
        }
      }
    }
    void finish_folds(int p) {
      for (int r : k_.folds_[size_t(p)]) set_value(k_.reduces_[size_t(r)], total_ + int64_t(r) * k_.total_lanes_);
    }
    void save_folds(int p, double* to) const {
      for (int r : k_.folds_[size_t(p)])
        std::copy_n(total_ + int64_t(r) * k_.total_lanes_, k_.width_, to + int64_t(r) * k_.width_);
    }
    void set_folds(int p, const double* from) {
      for (int r : k_.folds_[size_t(p)]) set_value(k_.reduces_[size_t(r)], from + int64_t(r) * k_.width_);
    }

    void outer_stores() {
      if (k_.outer_stores_.empty()) return;
      frame_.n = outer_n_;
      std::copy_n(outer_offset_, k_.program_.access.size(), offset_);
      set_store_lanes(outer_lane_, nullptr);
      run_ops(k_.outer_stores_, frame_);
    }

    void cut(Cutter& c) {
      const int64_t accesses = int64_t(k_.program_.access.size());
      frame_.value = c.template take<const T*>(int64_t(k_.program_.code.size()));
      frame_.buffers = c.template take<T>(int64_t(k_.slots_) * k_.pitch_);
      frame_.rows = c.template take<T>(k_.kept_ * k_.inner_steps_ * k_.pitch_);
      offset_ = c.template take<int64_t>(accesses);
      outer_offset_ = c.template take<int64_t>(accesses);
      next_offset_ = c.template take<int64_t>(accesses);
      store_lanes_ = c.template take<int64_t>(accesses);
      total_ = c.template take<double>(int64_t(k_.reduces_.size()) * k_.total_lanes_);
      side_ = c.template take<double*>(int64_t(k_.sides_.size()));
      int64_t local = 0;
      for (const LaneProgram& steps : k_.steps_) local = std::max(local, steps.local_floats());
      local_ = c.template take<float>(local);
      float_sums_ = c.template take<float*>(int64_t(k_.sides_.size()));
      for (size_t s = 0; s < k_.sides_.size(); ++s)
        if (float* const sums = c.template take<float>(k_.sides_[s].in_float ? k_.sides_[s].size : 0))
          float_sums_[s] = sums;
    }

   private:
    int64_t outer_lane_of(int64_t block) const {
      return k_.lane_.inner ? 0 : block % k_.lane_blocks_ * k_.space_.lane_step;
    }
    void locate(int64_t block, Cursor& cursor, int64_t* offset) const {
      const size_t accesses = k_.program_.access.size();
      const int64_t lane = outer_lane_of(block);
      for (size_t a = 0; a < accesses; ++a) offset[a] = k_.program_.access[a].offset + lane * k_.space_.advance[a];
      cursor.loops = &k_.space_.outer;
      cursor.seek(k_.lane_.inner ? block : block / k_.lane_blocks_, offset, accesses);
    }

    // Sets the lanes of the block, and of one of its repetitions.
    void measure(int64_t lane, const Cursor& cursor) {
      const RowSpace& s = k_.space_;
      frame_.n = k_.lane_.inner ? std::min<int64_t>(s.lane_step, k_.lane_.extent - lane) : outer_n_;
      if (s.tiles) frame_.period = frame_.n;
      if (s.repeats > 1)
        frame_.n *= std::min(s.repeats, s.repeated_extent - cursor.index[s.inner.size() - 1] * s.repeats);
    }

    // What the steps of a pass are given.
    struct Lists {
      double* totals[kMaxTotals];
      float* sums[fuse::kMaxRank * 8];
      const char* ahead[kMaxAccesses];
    };
    LaneProgram::Run lists_of(int p, Lists& lists) {
      int total = 0, sum = 0;
      for (int r : k_.folds_[size_t(p)])
        if (k_.reduces_[size_t(r)].in_steps) lists.totals[total++] = total_ + int64_t(r) * k_.total_lanes_;
      for (size_t s = 0; s < k_.sides_.size(); ++s)
        if (k_.sides_[s].pass == p && k_.sides_[s].in_float) lists.sums[sum++] = float_sums_[s];
      for (size_t k = 0; k < k_.fetched_.size(); ++k) lists.ahead[k] = ahead_of(k_.fetched_[k]);
      return {lists.totals, lists.sums, lists.ahead, local_};
    }
    // The same place of the next block; of this one where there is no next. A map runs on, and so does what the next
    // block's first pass is about to read.
    const char* ahead_of(const std::pair<int, int>& fetched) const {
      const auto [access, size] = fetched;
      int64_t at = k_.depth_ == 0 || k_.overlaps_ ? kAhead / size : 0;
      if (located_ >= 0) at += next_offset_[access] - outer_offset_[access];
      return static_cast<const char*>(frame_.memory[access]) + (offset_[access] + at) * size;
    }

    // Into one result, or lane by lane.
    static void fold_block(ReductionMode_t mode, const T* x, const T* y, bool one, int64_t n, double* total) {
      const LaneOps<T>& lanes = lane_ops<T>();
      if (one) *total = y ? lanes.fold_products(x, y, n, *total) : lanes.fold(mode, x, n, *total);
      else y ? lanes.fold_product_lanes(x, y, n, total) : lanes.fold_lanes(mode, x, n, total);
    }

    // The same place of the next block, into the second-level cache: in each pass a part of it.
    void fetch_next(int p) const {
      for (const auto& fetched : k_.fetched_) {
        const char* const from = ahead_of(fetched);
        for (int64_t i = 64 * p; i < frame_.n * fetched.second; i += 64 * (k_.depth_ + 1))
          __builtin_prefetch(from + i, 0, 3);
      }
    }

    void spread(int id, int slot, const T* v) {
      T* const out = frame_.buffers + int64_t(slot) * k_.pitch_;
      if (k_.lane_.inner) lane_ops<T>().fill(out, *v, k_.block_lanes_);
      else
        for (int64_t i = 0; i < k_.block_lanes_; i += outer_n_)
          if (out + i != v) std::copy_n(v, outer_n_, out + i);
      frame_.value[id] = out;
    }

    void set_value(const Fold& fold, const double* total) {
      const int64_t count = k_.count_;
      T* const out = frame_.buffers + int64_t(fold.slot) * k_.pitch_;
      for (int64_t l = 0; l < outer_n_; ++l) out[l] = T(fuse::reduction_finish(fold.mode, total[l], count));
      frame_.value[fold.id] = out;
      if (k_.spread_[size_t(fold.id)]) spread(fold.id, fold.slot, out);
    }

    // inner: null for stores that run once per outer block.
    void set_store_lanes(int64_t lane, const Cursor* inner) {
      for (const Once& o : k_.once_) {
        bool here = true;
        for (size_t d : o.outer) here &= outer_.index[d] == 0;
        if (inner)
          for (size_t d : o.inner) here &= inner->index[d] == 0;
        const bool lacks_lane = o.lane && (inner || !k_.lane_.inner);
        store_lanes_[o.access] = !here || (lacks_lane && lane != 0) ? 0 : (lacks_lane ? 1 : frame_.n);
      }
      for (int a : k_.plain_stores_) store_lanes_[a] = frame_.n;
    }

    const Rows& k_;
    Frame<T> frame_;
    Cursor outer_, next_, cursor_;
    int64_t *offset_, *outer_offset_, *next_offset_, *store_lanes_;
    int64_t outer_lane_ = 0, outer_n_ = 1, located_ = -1, at_lane_ = 0;
    double* total_;
    double** side_;
    float *local_, **float_sums_;
  };

  // --- making --------------------------------------------------------------------------------------------------------
  void count_blocks() {
    depth_ = program_.depth();
    count_ = program_.inner_size();
    for (size_t d = 0; d < program_.domain.size(); ++d) empty_ |= program_.domain[d] == 0 && !(program_.inner >> d & 1);
    lane_blocks_ = (lane_.extent + space_.lane_step - 1) / space_.lane_step;
    outer_blocks_ = lane_.inner ? 1 : lane_blocks_;
    for (const Loop& l : space_.outer) outer_blocks_ *= l.extent;
    inner_steps_ = lane_.inner ? lane_blocks_ : 1;
    for (const Loop& l : space_.inner) inner_steps_ *= l.extent;
    block_lanes_ = std::clamp<int64_t>(lane_.extent, 1, space_.lane_step) * space_.repeats;
    width_ = lane_.inner ? 1 : std::clamp<int64_t>(lane_.extent, 1, space_.lane_step);
    total_lanes_ = lane_.inner ? 1 : block_lanes_;
    pitch_ = std::max(kRowLanes, block_lanes_) + 16;  // apart from each other's cache sets
  }

  void cut(int64_t side_results) {
    const int64_t lanes = std::clamp<int64_t>(lane_.extent, 1, space_.lane_step);
    const int64_t per_block = std::max<int64_t>(1, inner_steps_ * lanes * space_.repeats);
    // A task begins and ends with work of its own: larger ones where there are many.
    const int64_t task = std::clamp(outer_blocks_ * per_block / (4 * kManyTasks), kTaskElements, 8 * kTaskElements);
    group_ = std::max<int64_t>(1, task / per_block);
    if (program_.inner == 0) {
      chunks_ = std::clamp<int64_t>(outer_blocks_ == 1 ? per_block / task : 1, 1, std::max<int64_t>(1, inner_steps_));
    } else if (depth_ > 0 && outer_blocks_ < kManyTasks && per_block >= 4 * kTaskElements) {
      const int64_t wanted =
          std::min((kManyTasks + outer_blocks_ - 1) / std::max<int64_t>(1, outer_blocks_), per_block / kTaskElements);
      chunks_ = std::clamp<int64_t>(wanted, 1, inner_steps_);
    }
    if (side_results > 0) {  // few enough tasks for their results to be few beside the elements
      const int64_t all = outer_blocks_ * per_block;
      const int64_t most = std::clamp<int64_t>(all / std::max(kTaskElements, 16 * side_results), 1, kManyTasks);
      if (chunks_ > 1) chunks_ = std::clamp<int64_t>(most / std::max<int64_t>(1, outer_blocks_), 1, chunks_);
      group_ = std::max(group_, (outer_blocks_ + most - 1) / most);
    }
    tasks_ = chunks_ > 1 ? outer_blocks_ * chunks_ : (outer_blocks_ + group_ - 1) / group_;
  }

  void add_side(const fuse::SideReduction& what, int access, int64_t size) {
    Side s{what, what.value, -1, access, size, side_scratch_, program_.code[size_t(what.value)].depth, {}};
    side_scratch_ += size * tasks_;
    std::vector<std::pair<int64_t, size_t>> by_stride;
    for (size_t d = 0; d < program_.domain.size(); ++d)
      if (const int64_t stride = program_.access[size_t(access)].stride[d]; stride > 0)
        by_stride.push_back({stride, d});
    std::sort(by_stride.rbegin(), by_stride.rend());
    for (const auto& [stride, d] : by_stride) s.kept.push_back({program_.domain[d], false, {what.out.stride[d]}});
    sides_.push_back(std::move(s));
  }

  void make_lists() {
    const std::vector<Instr>& code = program_.code;
    enum Level { kUniform, kOuter, kInner };
    std::vector<Level> level(code.size());
    const bool map = program_.inner == 0;
    for (size_t k = 0; k < code.size(); ++k) {
      const Instr& i = code[k];
      // Not loads: their memory may be an output of the same launch.
      bool uniform = i.dims == 0 && i.depth == 0 && i.op != PwOp::Store && i.op != PwOp::Load && i.op != PwOp::Index;
      for (int a : i.arg) uniform = uniform && (a < 0 || level[size_t(a)] == kUniform);
      level[k] = uniform ? kUniform : (map || (i.dims & program_.inner) ? kInner : kOuter);
    }
    std::vector<bool> by_lanes(code.size());
    for (size_t k = 0; k < code.size(); ++k) by_lanes[k] = level[k] == kInner && code[k].op != PwOp::Reduce;
    std::vector<int> uniform, stores;
    std::vector<std::vector<int>> outer(size_t(depth_) + 1), inner(size_t(depth_) + 1);
    for (size_t k = 0; k < code.size(); ++k) {
      const Instr& i = code[k];
      if (i.op == PwOp::Reduce) {
        reduces_.push_back({int(k), i.arg[0], i.depth - 1, -1, i.reduce, 0});
        continue;
      }
      if (level[k] == kUniform) uniform.push_back(int(k));
      if (level[k] == kOuter) i.op == PwOp::Store ? stores.push_back(int(k)) : outer[size_t(i.depth)].push_back(int(k));
    }
    folds_.resize(size_t(depth_) + 1);
    for (size_t r = 0; r < reduces_.size(); ++r) folds_[size_t(reduces_[r].pass)].push_back(int(r));
    recalled_.resize(size_t(depth_) + 1);
    std::vector<int> made(code.size(), -1), row(code.size(), -1);  // the first pass that computes it; which kept row
    const int64_t row_bytes = inner_steps_ * pitch_ * int64_t(sizeof(T));
    for (int p = 0; p <= depth_; ++p) {
      std::vector<bool> wanted(code.size());
      for (int r : folds_[size_t(p)]) wanted[size_t(reduces_[size_t(r)].arg)] = true;
      for (const Side& s : sides_)
        if (s.pass == p) wanted[size_t(s.what.value)] = true;
      if (p == depth_)
        for (size_t k = 0; k < code.size(); ++k)
          if (code[k].op == PwOp::Store && level[k] == kInner) wanted[k] = true;
      for (size_t k = code.size(); k-- > 0;) {
        if (!wanted[k] || !by_lanes[k]) continue;
        if (made[k] >= 0 && chunks_ == 1 && (row[k] >= 0 || (kept_ + 1) * row_bytes <= kKeptBytes) &&
            worth_keeping(k)) {
          if (row[k] < 0) row[k] = int(kept_++);
          recalled_[size_t(p)].push_back({int(k), row[k]});
          wanted[k] = false;
          continue;
        }
        for (int a : code[k].arg)
          if (a >= 0) wanted[size_t(a)] = true;
      }
      for (size_t k = 0; k < code.size(); ++k)
        if (wanted[k] && by_lanes[k]) {
          inner[size_t(p)].push_back(int(k));
          if (made[k] < 0) made[k] = p;
        }
      // Stores last: every load of a block comes before them.
      std::stable_partition(inner[size_t(p)].begin(), inner[size_t(p)].end(),
                            [&](int k) { return code[size_t(k)].op != PwOp::Store; });
    }
    uniform_ = make_ops<T>(program_, uniform);
    outer_stores_ = make_ops<T>(program_, stores);
    for (int p = 0; p <= depth_; ++p) {
      outer_.push_back(make_ops<T>(program_, outer[size_t(p)]));
      inner_.push_back(make_ops<T>(program_, inner[size_t(p)]));
      for (BlockOp<T>& op : inner_.back())
        if (row[size_t(op.id)] >= 0 && made[size_t(op.id)] == p) op.kept = row[size_t(op.id)], op.copy = true;
    }
    for (int p = 0; p <= depth_; ++p) {
      bool idle = inner_[size_t(p)].empty() && folds_[size_t(p)].empty();
      for (const Side& s : sides_) idle = idle && s.pass != p;
      idle_.push_back(idle);
    }
    mark_memory();
    list_stores();
    std::vector<bool> one(code.size());  // numbers of the block
    for (size_t k = 0; k < code.size(); ++k)
      one[k] = level[k] == kUniform || (lane_.inner && (level[k] == kOuter || code[k].op == PwOp::Reduce));
    fuse_operations(one);
    assign_buffers();
    list_spread_values();
  }

  // Anything but what lies in memory as it is computed with, or costs less to make again than to store and load.
  bool worth_keeping(size_t k) const { return cost(k) > 2; }
  int cost(size_t k) const {
    constexpr int kMuch = 100;
    const Instr& i = program_.code[k];
    if (!(i.dims & program_.inner)) return 0;
    if (i.op == PwOp::Load) {
      const DataType_t native = sizeof(T) == 4 ? DataType_t::FLOAT : DataType_t::DOUBLE;
      return program_.access[size_t(i.access)].type == native && lane_.stride[size_t(i.access)] == 1 ? 0 : kMuch;
    }
    const bool plain = i.op == PwOp::Pointwise && (i.mode == PointwiseMode_t::ADD || i.mode == PointwiseMode_t::SUB ||
                                                   i.mode == PointwiseMode_t::MUL);
    if (sizeof(T) != 4 || !plain) return kMuch;
    return std::min(kMuch, 1 + cost(size_t(i.arg[0])) + cost(size_t(i.arg[1])));
  }

  // Which accesses repeat themselves within a block, are stored past the caches, are fetched ahead.
  void mark_memory() {
    const auto bytes_of = [&](int access) {
      const fuse::Access& a = program_.access[size_t(access)];
      int64_t n = element_bits(a.type) / 8;
      for (size_t d = 0; d < a.stride.size(); ++d)
        if (a.stride[d] != 0) n *= program_.domain[d];
      return n;
    };
    for (BlockOp<T>& op : inner_.back())
      if (op.op == PwOp::Store && lane_.stride[size_t(op.access)] == 1 && bytes_of(op.access) >= streamed_bytes())
        streams_ = op.stream = true;
    if (!lane_.inner || (depth_ > 0 && chunks_ > 1)) return;
    for (const BlockOp<T>& op : inner_[0])
      if (op.op == PwOp::Load && lane_.stride[size_t(op.access)] == 1 && bytes_of(op.access) >= streamed_bytes() / 8)
        fetched_.push_back({op.access, element_bits(op.type) / 8});
  }

  // Products that are only summed up are folded as they are made. Then all operations of a pass become steps or, where
  // steps lack one of them, pairs of plain operations become one.
  void fuse_operations(const std::vector<bool>& one) {
    steps_.resize(size_t(depth_) + 1);
    for (int p = 0; p <= depth_; ++p) {
      BlockOps<T>& list = inner_[size_t(p)];
      std::vector<int> readers(program_.code.size(), 0);
      for (const BlockOp<T>& op : list)
        for (int a : op.arg)
          if (a >= 0) ++readers[size_t(a)];
      for (const Fold& f : reduces_) readers[size_t(f.arg)] += f.pass == p;
      for (const Side& s : sides_) readers[size_t(s.arg)] += s.pass == p;
      const auto take_product = [&](ReductionMode_t mode, int& arg, int& factor) {
        const auto op = std::find_if(list.begin(), list.end(), [&](const BlockOp<T>& o) { return o.id == arg; });
        if (op == list.end() || op->mode != PointwiseMode_t::MUL || op->kept >= 0 || readers[size_t(arg)] != 1 ||
            (mode != ReductionMode_t::ADD && mode != ReductionMode_t::AVG))
          return;
        arg = op->arg[0], factor = op->arg[1];
        list.erase(op);
      };
      for (Fold& f : reduces_)
        if (f.pass == p) take_product(f.mode, f.arg, f.factor);
      for (Side& s : sides_)
        if (s.pass == p) take_product(s.what.mode, s.arg, s.factor);
      std::vector<bool> read(program_.code.size());
      for_each_folded([&](int id, int pass) { read[size_t(id)] = read[size_t(id)] || pass == p; });
      if (!make_steps(p, one)) fuse_pairs(list, read);
    }
    overlaps_ = may_overlap() && steps_[0].is_alone() && steps_.back().is_alone();
  }

  bool may_overlap() const { return sizeof(T) == 4 && depth_ > 0 && chunks_ == 1 && lane_.inner && inner_steps_ > 0; }
  bool make_steps(int p, const std::vector<bool>& one) {
    if constexpr (sizeof(T) == 4) {
      if (space_.period > 0 || space_.tiles) return false;
      LaneProgram::What what;
      what.lane_stride = lane_.stride.data(), what.one = one;
      what.plain.resize(program_.access.size());
      for (int a : plain_stores_) what.plain[size_t(a)] = true;
      what.read.resize(program_.code.size());
      const auto is_sum = [](ReductionMode_t m) { return m == ReductionMode_t::ADD || m == ReductionMode_t::AVG; };
      const auto reads = [&](int arg, int factor) {
        for (int id : {arg, factor})
          if (id >= 0) what.read[size_t(id)] = true;
      };
      std::vector<bool*> taken;
      for (int r : folds_[size_t(p)]) {
        Fold& f = reduces_[size_t(r)];
        if (!lane_.inner || !is_sum(f.mode)) reads(f.arg, f.factor);
        else what.totals.push_back({f.arg, f.factor}), taken.push_back(&f.in_steps);
      }
      for (Side& s : sides_) {
        if (s.pass != p) continue;
        const bool fits = lane_.inner && lane_.stride[size_t(s.access)] == 1 && is_sum(s.what.mode) && chunks_ == 1;
        if (!fits || group_ < kFloatRows / 8 || what.sums.size() == fuse::kMaxRank * 8) reads(s.arg, s.factor);
        else
          what.sums.push_back({s.arg, s.factor, s.access}), taken.push_back(&s.in_steps), taken.push_back(&s.in_float);
      }
      // The last pass fetches what the first one over the next row reads.
      for (const auto& [access, size] : fetched_) what.fetched.push_back(size);
      what.fetched_vectors = p == depth_ ? ~0u : 0;
      if (!steps_[size_t(p)].make(inner_[size_t(p)], what)) return false;
      for (bool* flag : taken) *flag = true;
      return true;
    }
    return false;
  }
  // The values that folds read, with the pass.
  template <class Body>
  void for_each_folded(const Body& body) const {
    for (const Fold& f : reduces_)
      for (int id : {f.arg, f.factor})
        if (id >= 0) body(id, f.pass);
    for (const Side& s : sides_)
      for (int id : {s.arg, s.factor})
        if (id >= 0) body(id, s.pass);
  }

  void assign_buffers() {
    for_each_folded([&](int id, int pass) {  // folded once the list is done
      for (BlockOp<T>& op : inner_[size_t(pass)]) op.keep |= op.id == id;
    });
    // Reductions hold buffers as well: stand-ins for them take part in the assignment.
    BlockOps<T> stand_ins;
    for (const Fold& r : reduces_) {
      BlockOp<T> op;
      op.op = PwOp::Reduce;
      op.id = r.id;
      stand_ins.push_back(op);
    }
    std::vector<BlockOps<T>*> kept = {&uniform_}, passing;
    for (auto& list : outer_) kept.push_back(&list);
    kept.push_back(&stand_ins);
    for (auto& list : inner_) passing.push_back(&list);
    slots_ = assign_slots<T>(kept, passing, int(program_.code.size()));
    for (size_t r = 0; r < reduces_.size(); ++r) reduces_[r].slot = stand_ins[r].slot;
    if constexpr (sizeof(T) == 4)
      for (int p = 0; p <= depth_; ++p) steps_[size_t(p)].finish(inner_[size_t(p)]);
  }

  // Outer values are computed once and spread where longer blocks of lanes read them.
  void list_spread_values() {
    std::vector<bool> read_by_lanes(program_.code.size());
    for (int p = 0; p <= depth_; ++p) {
      for (int id : steps_[size_t(p)].spread()) read_by_lanes[size_t(id)] = true;
      if (steps_[size_t(p)]) continue;
      for (const BlockOp<T>& op : inner_[size_t(p)])
        for (int a : op.arg)
          if (a >= 0) read_by_lanes[size_t(a)] = true;
    }
    for_each_folded([&](int id, int p) {
      if (!steps_[size_t(p)]) read_by_lanes[size_t(id)] = true;
    });
    spread_values_.resize(size_t(depth_) + 1);
    spread_.resize(program_.code.size());
    if (!lane_.inner && space_.repeats == 1) return;
    spread_ = read_by_lanes;
    for (int p = 0; p <= depth_; ++p)
      for (const BlockOp<T>& op : outer_[size_t(p)])
        if (read_by_lanes[size_t(op.id)]) spread_values_[size_t(p)].push_back({op.id, op.slot});
  }

  void list_stores() {
    for (const Instr& i : program_.code) {
      if (i.op != PwOp::Store) continue;
      Once o{i.access, false, {}, {}};
      const auto lacks = [&](const Loop& l) { return l.extent > 1 && l.stride[size_t(i.access)] == 0; };
      o.lane = lacks(lane_);
      for (size_t d = 0; d < space_.outer.size(); ++d)
        if (lacks(space_.outer[d])) o.outer.push_back(d);
      for (size_t d = 0; d < space_.inner.size(); ++d)
        if (lacks(space_.inner[d])) o.inner.push_back(d);
      if (o.lane || !o.outer.empty() || !o.inner.empty()) once_.push_back(o);
      else plain_stores_.push_back(i.access);
    }
  }

  PwProgram program_;
  RowSpace space_;
  const Loop& lane_;
  bool empty_ = false, streams_ = false;
  bool overlaps_ = false;  // the last pass over a row with the first one over the next
  int depth_ = 0;
  int64_t count_ = 1;  // elements of a reduction
  int64_t lane_blocks_ = 1, outer_blocks_ = 1, inner_steps_ = 1;
  int64_t block_lanes_ = 1;              // of the longest block
  int64_t pitch_ = 0;                    // of buffers
  int64_t width_ = 1, total_lanes_ = 1;  // results of a reduction in an outer block; those that a block folds into
  int64_t group_ = 1, chunks_ = 1, tasks_ = 1;
  int64_t fold_scratch_ = 0, side_scratch_ = 0;  // doubles
  BlockOps<T> uniform_, outer_stores_;
  std::vector<BlockOps<T>> outer_, inner_;                       // by pass
  std::vector<std::vector<std::pair<int, int>>> spread_values_;  // by pass: instruction, slot
  std::vector<std::vector<std::pair<int, int>>> recalled_;       // by pass: instruction, kept row
  std::vector<bool> idle_;                                       // by pass: nothing to do along the inner dims
  std::vector<LaneProgram> steps_;                               // by pass; empty: inner_ as it stands
  std::vector<bool> spread_;                                     // by instruction: outer values that lanes read
  std::vector<Fold> reduces_;
  std::vector<std::vector<int>> folds_;  // by pass: positions in reduces_
  std::vector<Side> sides_;
  std::vector<std::pair<int, int>> fetched_;  // accesses with element sizes
  int slots_ = 0;
  int64_t kept_ = 0;
  std::vector<Once> once_;
  std::vector<int> plain_stores_;
};

}  // namespace

std::unique_ptr<Kernel> make_rows(const fuse::Region& region) {
  if (region.program.needs_double()) return std::make_unique<Rows<double>>(region, kRowLanes);
  auto rows = std::make_unique<Rows<float>>(region, kLongLanes);
  return rows->fits() ? std::move(rows) : std::make_unique<Rows<float>>(region, kRowLanes);
}

}  // namespace tilewright::cpu
