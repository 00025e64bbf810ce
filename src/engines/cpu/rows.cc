// Evaluates a Rows region. The domain's dims are sorted by memory order and merged where every tensor allows it; one of
// them becomes the lane dim, along which whole blocks are computed at once. The others are loops.
//
// An outer block is one row, or up to kLanes rows side by side when the lane dim is not reduced. For it, pass p folds
// the reductions that p others precede; values that depend on the outer dims only are computed once between the passes.
// All stores happen in the last pass, after every load of the same block: outputs may overwrite inputs element by
// element.
//
// With few rows of many elements a pass is cut into chunks, whose partial results are joined in order. Work is cut by
// shape alone, so results do not depend on the number of threads.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/thread_pool.h"
#include "engines/cpu/kernel.h"

namespace tilewright::cpu {
namespace {

using fuse::Instr;
using fuse::PwOp;
using fuse::PwProgram;

struct Loop {
  int64_t extent = 1;
  bool inner = false;
  Dims stride;  // per access
};

// The domain's dims as loops, slowest first, outer ones before inner ones.
std::vector<Loop> make_loops(const PwProgram& p) {
  // The layout to follow: that of the store (else load) that varies along most dims.
  int primary = -1;
  int64_t best = -1;
  for (const Instr& i : p.code) {
    if (i.op != PwOp::Store && i.op != PwOp::Load) continue;
    const Dims& s = p.access[size_t(i.access)].stride;
    int64_t reach = 1;
    for (size_t d = 0; d < s.size(); ++d)
      if (s[d] != 0) reach *= p.domain[d];
    const int64_t score = 2 * reach + (i.op == PwOp::Store);
    if (score > best) best = score, primary = i.access;
  }
  std::vector<size_t> order;
  for (size_t d = 0; d < p.domain.size(); ++d)
    if (p.domain[d] != 1) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const bool ia = p.inner >> a & 1, ib = p.inner >> b & 1;
    if (ia != ib) return ib;
    if (primary < 0) return false;
    const Dims& s = p.access[size_t(primary)].stride;
    return std::abs(s[a]) > std::abs(s[b]);
  });
  std::vector<Loop> loops;
  for (size_t d : order) {
    Loop l;
    l.extent = p.domain[d];
    l.inner = p.inner >> d & 1;
    for (const fuse::Access& a : p.access) l.stride.push_back(a.stride[d]);
    bool merges = !loops.empty() && loops.back().inner == l.inner;
    for (size_t a = 0; merges && a < l.stride.size(); ++a) merges = loops.back().stride[a] == l.stride[a] * l.extent;
    if (merges) {
      loops.back().extent *= l.extent;
      loops.back().stride = l.stride;
    } else {
      loops.push_back(l);
    }
  }
  return loops;
}

// Walks loops in order, keeping the offset of every access.
struct Cursor {
  const std::vector<Loop>* loops;
  int64_t index[fuse::kMaxRank + 1];
  void seek(int64_t linear, int64_t* offset, size_t accesses) {
    for (size_t d = loops->size(); d-- > 0;) {
      const Loop& l = (*loops)[d];
      index[d] = linear % l.extent;
      linear /= l.extent;
      for (size_t a = 0; a < accesses; ++a) offset[a] += index[d] * l.stride[a];
    }
  }
  void next(int64_t* offset, size_t accesses) {
    for (size_t d = loops->size(); d-- > 0;) {
      const Loop& l = (*loops)[d];
      for (size_t a = 0; a < accesses; ++a) offset[a] += l.stride[a];
      if (++index[d] < l.extent) return;
      for (size_t a = 0; a < accesses; ++a) offset[a] -= l.extent * l.stride[a];
      index[d] = 0;
    }
  }
};

// A store whose tensor lacks some of the loops stores where their index is 0.
struct Once {
  int access;
  bool lane;                         // lacks the lane loop
  std::vector<size_t> outer, inner;  // positions among the outer and the inner loops
};

constexpr int64_t kTaskElements = 16 * 1024;  // work worth handing to another thread
constexpr int64_t kManyTasks = 64;

template <class T>
class Rows : public Kernel {
 public:
  explicit Rows(const fuse::Region& region) : program_(region.program) {
    TW_CHECK(program_.access.size() <= size_t(kMaxAccesses));
    make_space();
    make_lists();
    cut();
  }

  int64_t scratch_bytes() const override {
    if (chunks_ == 1) return 0;
    return int64_t(sizeof(double)) * outer_blocks_ * int64_t(reduces_.size()) * width_ * (chunks_ + 1);
  }

  void run(const Memory& memory, char* scratch) const override {
    if (empty_) return;
    void* base[kMaxAccesses];
    for (size_t a = 0; a < program_.access.size(); ++a)
      base[a] = program_.access[a].tensor == ir::kNone ? nullptr : memory.root(program_.access[a].tensor);
    if (chunks_ == 1) {
      parallel_for((outer_blocks_ + group_ - 1) / group_, [&](int64_t task) {
        Task t(*this, memory, base);
        const int64_t end = std::min(outer_blocks_, (task + 1) * group_);
        for (int64_t block = task * group_; block < end; ++block) {
          t.begin(block);
          for (int p = 0; p <= depth_; ++p) {
            t.outer_values(p);
            t.start_folds(p);
            t.inner_pass(p, 0, inner_steps_);
            t.finish_folds(p);
          }
          t.outer_stores();
        }
      });
      return;
    }
    const int64_t row = int64_t(reduces_.size()) * width_;  // doubles of one block's reductions
    double* const results = reinterpret_cast<double*>(scratch);
    double* const partial = results + outer_blocks_ * row;
    for (int p = 0; p <= depth_; ++p) {
      const int64_t chunks = inner_[size_t(p)].empty() ? 1 : chunks_;
      parallel_for(outer_blocks_ * chunks, [&](int64_t task) {
        const int64_t block = task / chunks, chunk = task % chunks;
        Task t(*this, memory, base);
        t.begin(block);
        for (int q = 0; q < p; ++q) {
          t.outer_values(q);
          t.set_folds(q, results + block * row);
        }
        t.outer_values(p);
        t.start_folds(p);
        t.inner_pass(p, inner_steps_ * chunk / chunks, inner_steps_ * (chunk + 1) / chunks);
        t.save_folds(p, partial + (block * chunks_ + chunk) * row);
        if (p == depth_ && chunk == 0) t.outer_stores();
      });
      for (int64_t block = 0; block < outer_blocks_; ++block)
        for (size_t r = 0; r < reduces_.size(); ++r) {
          if (reduces_[r].pass != p) continue;
          for (int64_t l = 0; l < width_; ++l) {
            double total = fuse::reduction_start(reduces_[r].mode);
            for (int64_t c = 0; c < chunks; ++c)
              total = fuse::reduction_join(reduces_[r].mode, total,
                                           partial[(block * chunks_ + c) * row + int64_t(r) * width_ + l]);
            results[block * row + int64_t(r) * width_ + l] = total;
          }
        }
    }
  }

  std::string describe() const override {
    std::string s =
        fmt::format("{} outer block{} x {} step{} of {} lanes", outer_blocks_, outer_blocks_ == 1 ? "" : "s",
                    inner_steps_, inner_steps_ == 1 ? "" : "s", std::min(lane_.extent, lane_step_));
    if (depth_) s += fmt::format(", {} passes", depth_ + 1);
    if (chunks_ > 1) s += fmt::format(", {} chunks", chunks_);
    return s + (sizeof(T) == 8 ? ", in double" : "");
  }

 private:
  struct Fold {
    int id, arg;  // instructions: the reduction, its operand
    int pass;     // in which it is folded
    ReductionMode_t mode;
    int slot;
  };

  // What one thread needs for one task.
  class Task {
   public:
    Task(const Rows& k, const Memory& memory, void* const* base) : k_(k) {
      Cutter counter(nullptr);
      cut(counter);
      Cutter cutter(thread_scratch(counter.bytes()));
      cut(cutter);
      frame_.memory = base;
      frame_.tensors = &memory;
      frame_.n = kLanes;
      frame_.offset = offset_;
      frame_.lane_stride = k_.lane_.stride.data();
      frame_.store_lanes = store_lanes_;
      run_ops(k_.uniform_, frame_);
    }

    void begin(int64_t block) {
      const size_t accesses = k_.program_.access.size();
      for (size_t a = 0; a < accesses; ++a) outer_offset_[a] = k_.program_.access[a].offset;
      const int64_t lane_blocks = k_.lane_.inner ? 1 : k_.lane_blocks_;
      const int64_t outer = k_.outer_blocks_ / lane_blocks;
      outer_.loops = &k_.outer_loops_;
      outer_.seek(k_.lanes_slowest_ ? block % outer : block / lane_blocks, outer_offset_, accesses);
      outer_lane_ = (k_.lanes_slowest_ ? block / outer : block % lane_blocks) * k_.lane_step_;
      if (!k_.lane_.inner)
        for (size_t a = 0; a < accesses; ++a) outer_offset_[a] += outer_lane_ * k_.lane_.stride[a];
      outer_n_ = k_.lane_.inner ? 1 : std::min<int64_t>(k_.lane_step_, k_.lane_.extent - outer_lane_);
      std::copy_n(outer_offset_, accesses, offset_);
    }

    void outer_values(int p) {
      frame_.n = outer_n_;
      std::copy_n(outer_offset_, k_.program_.access.size(), offset_);
      run_ops(k_.outer_[size_t(p)], frame_);
      for (const auto& [id, slot] : k_.spread_values_[size_t(p)]) spread(id, slot, frame_.value[id][0]);
    }

    void start_folds(int p) {
      for (size_t r = 0; r < k_.reduces_.size(); ++r)
        if (k_.reduces_[r].pass == p)
          std::fill_n(total_ + int64_t(r) * k_.width_, k_.width_, fuse::reduction_start(k_.reduces_[r].mode));
    }

    void inner_pass(int p, int64_t from, int64_t to) {
      const BlockOps<T>& ops = k_.inner_[size_t(p)];
      const std::vector<int>& folds = k_.folds_[size_t(p)];
      if (from >= to || (ops.empty() && folds.empty())) return;
      const size_t accesses = k_.program_.access.size();
      const LaneOps<T>& lanes = lane_ops<T>();
      const int64_t lane_blocks = k_.lane_.inner ? k_.lane_blocks_ : 1;
      std::copy_n(outer_offset_, accesses, offset_);
      Cursor cursor{&k_.inner_loops_, {}};
      cursor.seek(from / lane_blocks, offset_, accesses);
      int64_t lane = from % lane_blocks * kLanes;
      if (k_.lane_.inner)
        for (size_t a = 0; a < accesses; ++a) offset_[a] += lane * k_.lane_.stride[a];
      for (int64_t step = from; step < to; ++step) {
        frame_.n = k_.lane_.inner ? std::min<int64_t>(kLanes, k_.lane_.extent - lane) : outer_n_;
        set_store_lanes(k_.lane_.inner ? lane : outer_lane_, &cursor);
        run_ops(ops, frame_);
        for (int r : folds) {
          const Fold& fold = k_.reduces_[size_t(r)];
          double* const total = total_ + int64_t(r) * k_.width_;
          const T* const x = frame_.value[fold.arg];
          if (k_.lane_.inner) *total = lanes.fold(fold.mode, x, frame_.n, *total);
          else lanes.fold_lanes(fold.mode, x, frame_.n, total);
        }
        if (k_.lane_.inner) {
          lane += kLanes;
          for (size_t a = 0; a < accesses; ++a) offset_[a] += kLanes * k_.lane_.stride[a];
          if (lane < k_.lane_.extent) continue;
          for (size_t a = 0; a < accesses; ++a) offset_[a] -= lane * k_.lane_.stride[a];
          lane = 0;
        }
        cursor.next(offset_, accesses);
      }
    }

    void finish_folds(int p) {
      for (int r : k_.folds_[size_t(p)]) set_value(k_.reduces_[size_t(r)], total_ + int64_t(r) * k_.width_);
    }
    void save_folds(int p, double* to) const {
      for (int r : k_.folds_[size_t(p)])
        std::copy_n(total_ + int64_t(r) * k_.width_, k_.width_, to + int64_t(r) * k_.width_);
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

   private:
    void cut(Cutter& c) {
      const int64_t accesses = int64_t(k_.program_.access.size());
      frame_.value = c.template take<const T*>(int64_t(k_.program_.code.size()));
      frame_.buffers = c.template take<T>(int64_t(k_.slots_) * kLanes);
      offset_ = c.template take<int64_t>(accesses);
      outer_offset_ = c.template take<int64_t>(accesses);
      store_lanes_ = c.template take<int64_t>(accesses);
      total_ = c.template take<double>(int64_t(k_.reduces_.size()) * k_.width_);
    }

    void spread(int id, int slot, T v) {
      T* const out = frame_.buffers + int64_t(slot) * kLanes;
      lane_ops<T>().fill(out, v, k_.spread_);
      frame_.value[id] = out;
    }

    void set_value(const Fold& fold, const double* total) {
      const int64_t count = k_.count_;
      if (k_.lane_.inner) return spread(fold.id, fold.slot, T(fuse::reduction_finish(fold.mode, *total, count)));
      T* const out = frame_.buffers + int64_t(fold.slot) * kLanes;
      for (int64_t l = 0; l < outer_n_; ++l) out[l] = T(fuse::reduction_finish(fold.mode, total[l], count));
      frame_.value[fold.id] = out;
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
    Cursor outer_;
    int64_t *offset_, *outer_offset_, *store_lanes_;
    int64_t outer_lane_ = 0, outer_n_ = 1;
    double* total_;
  };

  void make_space() {
    depth_ = program_.depth();
    count_ = program_.inner_size();
    std::vector<Loop> loops = make_loops(program_);
    empty_ = false;
    for (const Loop& l : loops) empty_ |= l.extent == 0 && !l.inner;
    const double ops = double(program_.code.size());
    double best = 0;
    size_t lane = loops.size();
    for (size_t d = 0; d < loops.size(); ++d) {
      const double n = double(std::clamp<int64_t>(loops[d].extent, 1, kLanes));
      double cost = 0.2 * ops + (8 * ops + 20) / n;
      for (int64_t s : loops[d].stride) cost += lane_cost(s);
      if (lane == loops.size() || cost < best) best = cost, lane = d;
    }
    lane_.stride.assign(program_.access.size(), 0);
    if (lane < loops.size()) {
      lane_ = loops[lane];
      loops.erase(loops.begin() + int64_t(lane));
    }
    for (const Loop& l : loops) (l.inner ? inner_loops_ : outer_loops_).push_back(l);
    // A transposed access: its lanes lie a cache line or more apart, and the next ones along another loop share those
    // lines. Short blocks of lanes with that loop inside them use each line up while it is in the cache.
    const size_t last = outer_loops_.empty() ? 0 : outer_loops_.size() - 1;
    for (size_t a = 0; a < program_.access.size() && !lane_.inner && !outer_loops_.empty(); ++a)
      lanes_slowest_ |= std::abs(lane_.stride[a]) >= 16 && std::abs(outer_loops_[last].stride[a]) == 1;
    if (lanes_slowest_) lane_step_ = kLanes / 4;
    lane_blocks_ = (lane_.extent + lane_step_ - 1) / lane_step_;
    outer_blocks_ = lane_.inner ? 1 : lane_blocks_;
    for (const Loop& l : outer_loops_) outer_blocks_ *= l.extent;
    inner_steps_ = lane_.inner ? lane_blocks_ : 1;
    for (const Loop& l : inner_loops_) inner_steps_ *= l.extent;
    width_ = lane_.inner ? 1 : kLanes;
    spread_ = std::clamp<int64_t>(lane_.extent, 1, kLanes);
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
    std::vector<int> uniform, stores;
    std::vector<std::vector<int>> outer(size_t(depth_) + 1), inner(size_t(depth_) + 1);
    for (size_t k = 0; k < code.size(); ++k) {
      const Instr& i = code[k];
      if (i.op == PwOp::Reduce) {
        reduces_.push_back({int(k), i.arg[0], i.depth - 1, i.reduce, 0});
        continue;
      }
      if (level[k] == kUniform) uniform.push_back(int(k));
      if (level[k] == kOuter) i.op == PwOp::Store ? stores.push_back(int(k)) : outer[size_t(i.depth)].push_back(int(k));
    }
    folds_.resize(size_t(depth_) + 1);
    for (size_t r = 0; r < reduces_.size(); ++r) folds_[size_t(reduces_[r].pass)].push_back(int(r));
    for (int p = 0; p <= depth_; ++p) {
      std::vector<bool> wanted(code.size());
      for (int r : folds_[size_t(p)]) wanted[size_t(reduces_[size_t(r)].arg)] = true;
      if (p == depth_)
        for (size_t k = 0; k < code.size(); ++k)
          if (code[k].op == PwOp::Store && level[k] == kInner) wanted[k] = true;
      for (size_t k = code.size(); k-- > 0;)
        if (wanted[k] && level[k] == kInner && code[k].op != PwOp::Reduce)
          for (int a : code[k].arg)
            if (a >= 0) wanted[size_t(a)] = true;
      for (size_t k = 0; k < code.size(); ++k)
        if (wanted[k] && level[k] == kInner && code[k].op != PwOp::Reduce) inner[size_t(p)].push_back(int(k));
      // Stores last: every load of a block comes before them.
      std::stable_partition(inner[size_t(p)].begin(), inner[size_t(p)].end(),
                            [&](int k) { return code[size_t(k)].op != PwOp::Store; });
    }
    uniform_ = make_ops<T>(program_, uniform);
    outer_stores_ = make_ops<T>(program_, stores);
    std::vector<BlockOps<T>*> kept = {&uniform_}, passing;
    for (int p = 0; p <= depth_; ++p) {
      outer_.push_back(make_ops<T>(program_, outer[size_t(p)]));
      inner_.push_back(make_ops<T>(program_, inner[size_t(p)]));
    }
    for (const Fold& r : reduces_)  // folded once the list is done
      for (BlockOp<T>& op : inner_[size_t(r.pass)]) op.keep |= op.id == r.arg;
    // Reductions hold buffers as well: stand-ins for them take part in the assignment.
    BlockOps<T> stand_ins;
    for (const Fold& r : reduces_) {
      BlockOp<T> op;
      op.op = PwOp::Reduce;
      op.id = r.id;
      stand_ins.push_back(op);
    }
    for (auto& list : outer_) kept.push_back(&list);
    kept.push_back(&stand_ins);
    for (auto& list : inner_) passing.push_back(&list);
    slots_ = assign_slots<T>(kept, passing, int(code.size()));
    for (size_t r = 0; r < reduces_.size(); ++r) reduces_[r].slot = stand_ins[r].slot;

    // With the lanes along a reduced dim, outer values are computed once and spread where blocks of lanes read them.
    std::vector<bool> read_by_lanes(code.size());
    for (const auto& list : inner_)
      for (const BlockOp<T>& op : list)
        for (int a : op.arg)
          if (a >= 0) read_by_lanes[size_t(a)] = true;
    for (const Fold& r : reduces_) read_by_lanes[size_t(r.arg)] = true;
    spread_values_.resize(size_t(depth_) + 1);
    for (int p = 0; p <= depth_ && lane_.inner; ++p)
      for (const BlockOp<T>& op : outer_[size_t(p)])
        if (read_by_lanes[size_t(op.id)]) spread_values_[size_t(p)].push_back({op.id, op.slot});

    for (const Instr& i : code) {
      if (i.op != PwOp::Store) continue;
      Once o{i.access, false, {}, {}};
      const auto lacks = [&](const Loop& l) { return l.extent > 1 && l.stride[size_t(i.access)] == 0; };
      o.lane = lacks(lane_);
      for (size_t d = 0; d < outer_loops_.size(); ++d)
        if (lacks(outer_loops_[d])) o.outer.push_back(d);
      for (size_t d = 0; d < inner_loops_.size(); ++d)
        if (lacks(inner_loops_[d])) o.inner.push_back(d);
      if (o.lane || !o.outer.empty() || !o.inner.empty()) once_.push_back(o);
      else plain_stores_.push_back(i.access);
    }
  }

  void cut() {
    const int64_t lanes = std::clamp<int64_t>(lane_.extent, 1, lane_step_);
    const int64_t per_block = std::max<int64_t>(1, inner_steps_ * lanes);
    group_ = std::max<int64_t>(1, kTaskElements / per_block);
    if (depth_ == 0 || outer_blocks_ >= kManyTasks || per_block < 4 * kTaskElements) return;
    const int64_t wanted =
        std::min((kManyTasks + outer_blocks_ - 1) / std::max<int64_t>(1, outer_blocks_), per_block / kTaskElements);
    chunks_ = std::clamp<int64_t>(wanted, 1, inner_steps_);
  }

  PwProgram program_;
  bool empty_ = false;
  int depth_ = 0;
  int64_t count_ = 1;  // elements of a reduction
  Loop lane_;
  std::vector<Loop> outer_loops_, inner_loops_;
  int64_t lane_blocks_ = 1, outer_blocks_ = 1, inner_steps_ = 1, width_ = 1, spread_ = 1;
  bool lanes_slowest_ = false;
  int64_t lane_step_ = kLanes;
  int64_t group_ = 1, chunks_ = 1;
  BlockOps<T> uniform_, outer_stores_;
  std::vector<BlockOps<T>> outer_, inner_;                       // by pass
  std::vector<std::vector<std::pair<int, int>>> spread_values_;  // by pass: instruction, slot
  std::vector<Fold> reduces_;
  std::vector<std::vector<int>> folds_;  // by pass: positions in reduces_
  int slots_ = 0;
  std::vector<Once> once_;
  std::vector<int> plain_stores_;
};

}  // namespace

std::unique_ptr<Kernel> make_rows(const fuse::Region& region) {
  if (region.program.needs_double()) return std::make_unique<Rows<double>>(region);
  return std::make_unique<Rows<float>>(region);
}

}  // namespace tilewright::cpu
