// Matmul and the convolutions as one blocked matrix product. A task makes one tile of the result, a slice of the sums
// at a time: the micro-kernel multiplies rows of A, read in place where memory allows, with panels of B, and with the
// sums complete the epilogue runs on the rows while they are in the cache. Tiles are cut by shape alone and every sum
// is made by one task in order, so results do not depend on the number of threads.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>

#include "base/thread_pool.h"
#include "engines/cpu/epilogue.h"
#include "engines/cpu/gemm.h"
#include "engines/cpu/kernel.h"
#include "engines/cpu/pair_packer.h"
#include "engines/cpu/row_source.h"

namespace tilewright::cpu {
namespace {

constexpr int64_t kTileM = 256, kTileN = kLanes;
constexpr int64_t kEnoughTiles = 16;
constexpr int64_t kSliceElements = 128 * 1024;  // of B in a tile: half a megabyte of the second-level cache
constexpr int64_t kWholeSlice = 256;            // sums that fill the micro-kernel well enough

constexpr int64_t kFew = 4;  // rows or columns that leave the time to the other operand's memory
constexpr int64_t kAlignment = 64;
constexpr int64_t kChunkElements = 1024;  // of the result that the epilogue takes at once, where rows are short

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// What an operand whose values never change looks like once packed: made by the first run, read by later ones that are
// bound to the same memory.
template <class T>
class KeptPanels {
 public:
  ~KeptPanels() { delete kept_.load(std::memory_order_relaxed); }
  // Null: not made from this memory.
  const T* find(void* const* base, size_t accesses) const {
    const Block* block = kept_.load(std::memory_order_acquire);
    return block && std::equal(block->base.begin(), block->base.end(), base, base + accesses) ? block->panels.get()
                                                                                              : nullptr;
  }
  // Takes the panels unless others were kept before. make fills them.
  template <class Make>
  const T* keep(void* const* base, size_t accesses, int64_t bytes, const Make& make) const {
    if (kept_.load(std::memory_order_acquire)) return nullptr;
    T* const memory = static_cast<T*>(std::aligned_alloc(64, size_t(round_up(std::max<int64_t>(bytes, 1), 64))));
    if (!memory) return nullptr;
    auto block = std::make_unique<Block>(Block{{base, base + accesses}, Panels(memory)});
    make(memory);
    const Block* none = nullptr;
    if (!kept_.compare_exchange_strong(none, block.get(), std::memory_order_acq_rel)) return nullptr;
    return block.release()->panels.get();
  }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  using Panels = std::unique_ptr<T, Free>;
  struct Block {
    std::vector<void*> base;
    Panels panels;
  };
  mutable std::atomic<const Block*> kept_{nullptr};
};

// T: the sums. E: the operands as the micro-kernel takes them.
template <class T, class E = T>
class Contraction : public Kernel {
 public:
  Contraction(const fuse::FusedGraph& fused, const fuse::Region& region, Problem problem)
      : fused_(fused), problem_(std::move(problem)) {
    int a = 0, b = 1;
    if (rows_are_columns(region)) {
      exchange(problem_);
      std::swap(a, b);
    }
    sort_group(problem_, 'm', result_strides(region.program));
    sort_group(problem_, 'n', result_strides(region.program));
    sort_group(problem_, 'k', main_strides(0, region.operand[size_t(a)]));
    tiling_.m = problem_.size('m'), tiling_.n = problem_.size('n'), tiling_.batch = problem_.size('b');
    k_ = problem_.size('k');
    batch_index_.set(problem_, 'b');
    choose_kernel();
    by_rows_ = rows_.prepare(problem_, region.operand[size_t(a)], kernel_.mr);
    packer_[0].prepare(problem_, 0, 'm', region.operand[size_t(a)], kernel_.mr);
    usable_ = packer_[1].prepare(problem_, 1, 'n', region.operand[size_t(b)], kernel_.nr) && (!kPairs || by_rows_);
    if (!usable_) return;
    // Rows that overlap are in the cache already.
    fetches_ = by_rows_ && rows_.walk().step() == 1 && tiling_.m * k_ <= volume_of(region.operand[size_t(a)]);
    constant_b_ = is_constant(packer_[1].program());
    cut();
    epilogue_.prepare(region, problem_, tiling_);
  }

  // False: the operands are not such as E asks for.
  bool usable() const { return usable_; }
  int64_t scratch_bytes() const override {
    const int64_t bytes = packed_bytes() + copy_bytes() + epilogue_.scratch_bytes();
    return bytes > 0 ? bytes + kAlignment : 0;
  }

  double memory_share() const override { return 0.8; }
  double speed() const override {
    if (kPairs) return 1.5;
    if (sizeof(T) == 8) return 0.4;
    return !by_rows_ ? 0.75 : fetches_ ? 0.92 : k_ < 192 ? 0.75 : 0.87;
  }

  void run(const Memory& memory, char* scratch) const override {
    // Vectors that lie across cache lines cost twice.
    scratch += -reinterpret_cast<uintptr_t>(scratch) % kAlignment;
    double* const partial = reinterpret_cast<double*>(scratch + packed_bytes() + copy_bytes());
    if (tiling_.batch * tiling_.m * tiling_.n > 0) {
      Launch launch(memory, partial);
      resolve(memory, packer_[0].program(), launch.base[0]);
      resolve(memory, packer_[1].program(), launch.base[1]);
      resolve(memory, epilogue_.program(), launch.base[2]);
      if (copy_bytes() > 0) {
        E* const copy = reinterpret_cast<E*>(scratch + packed_bytes());
        rows_.copy(launch.base[0][0], copy);
        launch.base[0][0] = copy;
      }
      launch.by_rows = by_rows_ && rows_.reads(launch.base[0][0]);
      launch.plain = epilogue_.is_finish_for(launch.base[2], 1);
      launch.straight = launch.plain && epilogue_.stores_sums(launch.base[2]);
      if (shared_b_) launch.packed = packed_b(launch, reinterpret_cast<E*>(scratch));
      parallel_for(tiling_.count(), [&](int64_t tile) { Tile(*this, launch).compute(tile); });
    }
    epilogue_.finish(memory, partial);
  }

  std::string describe() const override {
    return fmt::format(
        "{} x {} x {} (batch {}) in tiles of {} x {}, {} slice{} of the sums, micro-tile {} x {}, A {}, B {}{}",
        tiling_.m, tiling_.n, k_, tiling_.batch, tiling_.tile_m, tiling_.tile_n, slices_.size(),
        slices_.size() == 1 ? "" : "s", kernel_.mr, kernel_.nr, by_rows_ ? "by rows" : "packed per tile",
        constant_b_ ? "packed at the first execute"
        : shared_b_ ? "packed once"
                    : "packed per tile",
        sizeof(E) == 8   ? ", in double"
        : sizeof(E) == 2 ? ", pairs of bfloat16"
                         : "");
  }

 private:
  static constexpr bool kPairs = std::is_same_v<E, Bfloat16Bits>;

  // One execute.
  struct Launch {
    Launch(const Memory& m, double* partial) : memory(m), partial(partial) {}
    const Memory& memory;
    void* base[3][kMaxAccesses];  // of A, B, the result
    const E* packed = nullptr;    // all of B
    double* partial;
    bool by_rows = false;
    bool plain = false, straight = false;  // the micro-kernel does what follows the sums; and stores the results
  };

  // One task.
  class Tile {
   public:
    Tile(const Contraction& c, const Launch& launch) : c_(c), launch_(launch), epilogue_(c.epilogue_) {}

    void compute(int64_t tile) {
      cut_scratch([&](Cutter& c) { cut(c); });
      m0_ = c_.tiling_.m0(tile), n0_ = c_.tiling_.n0(tile);
      rows_ = std::min(c_.tiling_.tile_m, c_.tiling_.m - m0_);
      columns_ = std::min(c_.tiling_.tile_n, c_.tiling_.n - n0_);
      batch_ = c_.tiling_.batch_of(tile);
      int64_t index[kMaxProblem] = {};
      c_.batch_index_.decode(batch_, index);
      if (launch_.by_rows) c_.rows_.walk().points(m0_, rows_, c_.rows_.walk().batch_offset(index), spot_);
      epilogue_.start(tile, launch_.memory, launch_.base[2], launch_.partial);
      if (launch_.plain) tile_finish_ = c_.epilogue_.finish_of(launch_.base[2], batch_, n0_);
      for (size_t s = 0; s < c_.slices_.size(); ++s) multiply(s);
    }

   private:
    void cut(Cutter& c) {
      const int64_t mr = c_.kernel_.mr;
      const Tiling& t = c_.tiling_;
      sum_ = c.template take<T>((c_.slices_.size() == 1 ? c_.chunk_ : t.tile_m) * t.tile_n);
      if (!c_.shared_b_) right_ = c.template take<E>(t.tile_n * c_.most_ks_);
      left_ = c.template take<E>((launch_.by_rows ? 2 * mr : t.tile_m) * c_.most_ks_);
      pointer_ = c.template take<const E*>(2 * mr * c_.most_runs_);
      spot_ = c.template take<Spot>(t.tile_m);
      packing_ = c.template take<char>(c_.packing_bytes());
      epilogue_.cut(c);
    }

    void multiply(size_t slice) {
      const SumSlice& s = c_.slices_[slice];
      const E* b = right_;
      if (c_.shared_b_) b = launch_.packed + c_.packed_at(batch_, n0_, s);
      else pack(1, n0_, columns_, s, right_);
      if constexpr (kPairs)
        tiny_b_ = c_.shared_b_ ? launch_.packed[c_.flag_at(batch_, n0_, slice)]
                               : has_tiny(b, round_up(columns_, c_.kernel_.nr) * s.ks);
      if (!launch_.by_rows) pack(0, m0_, rows_, s, left_);
      Rows now = rows_of(s, 0, 0);
      for (int64_t i = 0; i < rows_; i += c_.chunk_)
        now = multiply_chunk(slice, i, std::min(c_.chunk_, rows_ - i), b, now);
    }

    void pack(int operand, int64_t row, int64_t rows, const SumSlice& s, E* to) {
      c_.pack(launch_, operand, batch_, row, rows, s, packing_, to);
    }

    // Rows of A for one micro-tile. There is room for two.
    struct Rows : RowRuns<E> {
      int half = 0;
      bool tiny = false;
    };
    // Rows of the tile that go through the epilogue together, `now` being the first of them; returns the first after.
    Rows multiply_chunk(size_t slice, int64_t first, int64_t rows, const E* b, Rows now) {
      const SumSlice& s = c_.slices_[slice];
      const int64_t mr = c_.kernel_.mr, nr = c_.kernel_.nr;
      const bool last = slice + 1 == c_.slices_.size();
      const bool straight = launch_.straight && rows % mr == 0 && columns_ % nr == 0;
      const bool finishes = last && (straight || (launch_.plain && !launch_.straight && columns_ % nr == 0));
      T* sum = sum_ + (c_.slices_.size() == 1 ? 0 : first * c_.tiling_.tile_n);
      int64_t ld = c_.tiling_.tile_n;
      if (straight) {
        sum = c_.epilogue_.plain_address(launch_.base[2], batch_, m0_ + first, n0_);
        ld = c_.epilogue_.plain_row_stride();
      }
      for (int64_t i = 0; i < rows; i += mr) {
        const Rows next = first + i + mr < rows_ ? rows_of(s, first + i + mr, now.half ^ 1) : Rows();
        const auto run = now.tiny || tiny_b_ ? c_.kernel_.careful : c_.kernel_.run;
        for (int64_t j = 0; j < columns_; j += nr)
          run(now, b + j * s.ks, nr, sum + i * ld + j, ld, slice > 0,
              j == 0 && c_.fetches_ && next.offset ? &next : nullptr, finishes ? finish_at(j) : nullptr);
        now = next;
      }
      if (finishes && !straight) c_.epilogue_.store(launch_.base[2], batch_, m0_ + first, n0_, sum, ld, rows, columns_);
      else if (last && !straight) epilogue_.apply(sum, ld, first, rows);
      return now;
    }

    const Finish<T>* finish_at(int64_t j) {
      finish_ = tile_finish_;
      if (finish_.add) finish_.add += j;
      return &finish_;
    }

    Rows rows_of(const SumSlice& s, int64_t first, int half) {
      const int64_t mr = c_.kernel_.mr, rows = std::min(mr, rows_ - first);
      const E** const pointer = pointer_ + half * mr * c_.most_runs_;
      if (launch_.by_rows) {
        Rows now = {
            c_.rows_.point(launch_.base[0][0], spot_ + first, rows, s, left_ + half * mr * c_.most_ks_, pointer), half};
        const int64_t after = first + 2 * mr;
        if (after < rows_) c_.rows_.fetch(launch_.base[0][0], spot_ + after, std::min(mr, rows_ - after), s);
        now.tiny = holds_tiny(now, rows);
        return now;
      }
      for (int64_t r = 0; r < mr; ++r) pointer[r] = left_ + first * s.ks + r;
      return {{pointer, nullptr, 1, s.ks, mr}, half};
    }

    bool holds_tiny(const Rows& a, int64_t rows) const {
      if constexpr (kPairs)
        for (int64_t r = 0; r < a.runs; ++r)
          for (int64_t i = 0; i < rows; ++i)
            if (has_tiny(a.offset ? a.row[i] + a.offset[r] : a.row[r * c_.kernel_.mr + i], a.len)) return true;
      return false;
    }

    const Contraction& c_;
    const Launch& launch_;
    typename Epilogue<T>::Tile epilogue_;
    T* sum_ = nullptr;
    E *left_ = nullptr, *right_ = nullptr;
    const E** pointer_ = nullptr;
    Finish<T> tile_finish_, finish_;
    Spot* spot_ = nullptr;
    char* packing_ = nullptr;
    bool tiny_b_ = false;
    int64_t batch_ = 0, m0_ = 0, n0_ = 0, rows_ = 0, columns_ = 0;
  };

  // Whether rows and columns change roles. The epilogue runs along the columns, where memory should like that. But with
  // only a few of one kind, the work is reading the other operand once: as A, if it can be read in place.
  bool rows_are_columns(const fuse::Region& region) {
    const auto streams = [&](char many, char few, int operand) {
      if (problem_.size(few) > kFew || problem_.size(many) < 16 * kFew) return false;
      const Factors s = main_strides(operand, region.operand[size_t(operand)]);
      for (int d : problem_.dims_of(many))
        if (s[size_t(d)] == 1 && problem_.dims[size_t(d)].extent > 1) return false;
      for (int d : problem_.dims_of('k'))
        if (s[size_t(d)] == 1 && problem_.dims[size_t(d)].extent > 1) return true;
      return false;
    };
    if (streams('m', 'n', 0)) return false;
    if (streams('n', 'm', 1)) return true;
    return lane_cost_of('m', region.program) < lane_cost_of('n', region.program);
  }

  // What lanes along the fastest dim of a group would cost the epilogue.
  double lane_cost_of(char group, const fuse::PwProgram& program) {
    sort_group(problem_, group, result_strides(program));
    const std::vector<int> dims = problem_.dims_of(group);
    const int dim = dims.back();
    double cost = 24.0 / double(std::clamp<int64_t>(problem_.dims[size_t(dim)].extent, 1, kLanes));
    for (const fuse::Access& a : program.access)
      if (a.tensor != ir::kNone) cost += lane_cost(problem_strides(problem_, a)[size_t(dim)]);
    return cost;
  }

  // The layout that the result is stored in.
  Factors result_strides(const fuse::PwProgram& program) const {
    for (const fuse::Instr& i : program.code)
      if (i.op == fuse::PwOp::Store) return problem_strides(problem_, program.access[size_t(i.access)]);
    fuse::Access a;  // nothing is stored but reductions
    a.stride = row_major_strides(program.domain);
    return problem_strides(problem_, a);
  }

  Factors main_strides(int operand, const fuse::PwProgram& p) const {
    Factors best = {};
    int most = -1;
    for (const fuse::Instr& i : p.code) {
      if (i.op != fuse::PwOp::Load) continue;
      const Factors s = operand_strides(problem_, operand, p.access[size_t(i.access)]);
      const int moving = int(std::count_if(s.begin(), s.end(), [](int64_t v) { return v != 0; }));
      if (moving > most) most = moving, best = s;
    }
    return best;
  }

  // The micro-tile that wastes least at the edges of the result.
  void choose_kernel() {
    const auto& kernels = micro_kernels<E>();
    double best = 0;
    for (const MicroKernel<E>& k : kernels) {
      const double area = double(round_up(tiling_.m, k.mr)) * double(round_up(tiling_.n, k.nr));
      if (best != 0 && area >= 0.97 * best) continue;
      best = area;
      kernel_ = k;
    }
  }

  void cut() {
    const auto pieces = [](int64_t n, int64_t target, int64_t unit) {
      const int64_t tiles = std::max<int64_t>(1, (n + target - 1) / target);
      return std::max(unit, round_up((n + tiles - 1) / tiles, unit));
    };
    const int64_t mr = kernel_.mr, nr = kernel_.nr, most_n = kTileN / nr * nr;
    Tiling& t = tiling_;
    int64_t target_m = kTileM, target_n = kTileN;
    // Narrower tiles whose sums are one slice need no pass over unfinished ones.
    if (k_ > kSliceElements / kTileN && k_ <= 2 * kSliceElements / kTileN) target_n = kTileN / 2;
    // Many products: higher tiles, so that each packs its B alone.
    if (t.batch * ((t.n + target_n - 1) / target_n) >= kEnoughTiles) target_m = 2 * kTileM;
    for (;;) {
      t.tile_m = pieces(t.m, target_m, mr);
      t.tile_n = std::min(most_n, pieces(t.n, target_n, nr));
      t.m_tiles = (t.m + t.tile_m - 1) / t.tile_m;
      t.n_tiles = (t.n + t.tile_n - 1) / t.tile_n;
      if (t.count() >= kEnoughTiles) break;
      // Smaller tiles for more threads, as long as reading their operands stays worth it.
      if (t.tile_m >= 2 * 48) target_m = t.tile_m / 2;
      else if (t.tile_n >= 2 * 64) target_n = t.tile_n / 2;
      else break;
    }
    const int64_t most_ks = std::max(kWholeSlice, kSliceElements / t.tile_n);
    if (by_rows_) {
      slices_ = rows_.cut(k_, most_ks);
    } else {
      const int64_t count = std::max<int64_t>(1, (k_ + most_ks - 1) / most_ks), ks = (k_ + count - 1) / count;
      for (int64_t k = 0; k == 0 || k < k_; k += std::max<int64_t>(1, ks)) {
        const int64_t n = std::min(ks, k_ - k);
        slices_.push_back({k, n, 0, 1, 0, n, {}});
      }
    }
    for (const SumSlice& s : slices_) most_ks_ = std::max(most_ks_, s.ks), most_runs_ = std::max(most_runs_, s.runs);
    shared_b_ = constant_b_ || t.m_tiles >= 4;
    chunk_ = std::max<int64_t>(1, kChunkElements / (mr * t.tile_n)) * mr;
  }

  int64_t copy_bytes() const { return by_rows_ ? round_up(rows_.copy_bytes(), 64) : 0; }
  int64_t packed_columns() const { return tiling_.n_tiles * tiling_.tile_n; }
  int64_t packed_bytes() const {
    if (!shared_b_) return 0;
    const int64_t flags = kPairs ? tiling_.batch * tiling_.n_tiles * int64_t(slices_.size()) : 0;
    return round_up((tiling_.batch * packed_columns() * k_ + flags) * int64_t(sizeof(E)), 64);
  }
  // Behind the panels: whether those of a slice of a tile hold tiny elements.
  int64_t flag_at(int64_t batch, int64_t n0, size_t slice) const {
    return tiling_.batch * packed_columns() * k_ +
           (batch * tiling_.n_tiles + n0 / tiling_.tile_n) * int64_t(slices_.size()) + int64_t(slice);
  }
  int64_t packed_at(int64_t batch, int64_t n0, const SumSlice& s) const {
    return batch * packed_columns() * k_ + n0 * k_ + s.k * tiling_.tile_n;
  }
  int64_t packing_bytes() const {
    return std::max(packer_[0].scratch_bytes(tiling_.tile_m, most_ks_),
                    packer_[1].scratch_bytes(tiling_.tile_n, most_ks_));
  }

  static int64_t volume_of(const fuse::PwProgram& p) {
    int64_t n = 1;
    for (int64_t d : p.domain) n *= d;
    return n;
  }

  // Every tensor that the operand is made of is marked constant.
  bool is_constant(const fuse::PwProgram& p) const {
    bool constant = problem_.n_end == ir::kNone && problem_.k_end == ir::kNone;
    for (const fuse::Instr& i : p.code) constant = constant && i.op != fuse::PwOp::Scalar;
    for (const fuse::Access& a : p.access)
      constant = constant && (a.tensor == ir::kNone || fused_.graph.tensor(a.tensor).constant);
    return constant;
  }

  const E* packed_b(const Launch& launch, E* scratch) const {
    if (constant_b_) {
      const size_t accesses = packer_[1].program().access.size();
      if (const E* kept = kept_b_.find(launch.base[1], accesses)) return kept;
      if (const E* kept = kept_b_.keep(launch.base[1], accesses, packed_bytes(), [&](E* to) { pack_all(launch, to); }))
        return kept;
    }
    pack_all(launch, scratch);
    return scratch;
  }

  void pack_all(const Launch& launch, E* to) const {
    const int64_t slices = int64_t(slices_.size());
    parallel_for(tiling_.batch * tiling_.n_tiles * slices, [&](int64_t task) {
      const SumSlice& s = slices_[size_t(task % slices)];
      const int64_t n0 = task / slices % tiling_.n_tiles * tiling_.tile_n, batch = task / slices / tiling_.n_tiles;
      E* const panels = to + packed_at(batch, n0, s);
      const int64_t columns = std::min(tiling_.tile_n, tiling_.n - n0);
      pack(launch, 1, batch, n0, columns, s, thread_scratch(packing_bytes()), panels);
      if constexpr (kPairs)
        to[flag_at(batch, n0, size_t(task % slices))] = has_tiny(panels, round_up(columns, kernel_.nr) * s.ks);
    });
  }

  void pack(const Launch& launch, int operand, int64_t batch, int64_t row, int64_t rows, const SumSlice& s,
            char* scratch, E* to) const {
    int64_t index[kMaxProblem] = {};
    batch_index_.decode(batch, index);
    const auto end = [&](ir::TensorId t, int64_t full) { return size_of(launch.memory, batch, t, full); };
    const int64_t row_end = operand == 0 ? end(problem_.m_end, tiling_.m) : end(problem_.n_end, tiling_.n);
    packer_[operand].pack(launch.memory, launch.base[operand], {row, rows, s.k, s.ks, row_end, end(problem_.k_end, k_)},
                          T(problem_.padding), index, scratch, to);
  }

  int64_t size_of(const Memory& memory, int64_t batch, ir::TensorId t, int64_t full) const {
    if (t == ir::kNone) return full;
    const ir::Tensor& tensor = fused_.graph.tensor(t);
    const double v =
        tensor.value ? ir::scalar_value(*tensor.value)
                     : load_element(memory.tensor(t), tensor.storage_type(), offset_of_linear(batch, tensor.view()));
    return std::clamp<int64_t>(int64_t(v), 0, full);
  }

  const fuse::FusedGraph& fused_;
  Problem problem_;
  Tiling tiling_;
  int64_t k_ = 0;
  MicroKernel<E> kernel_ = {};
  GroupIndex batch_index_;
  RowSource<E> rows_;
  bool usable_ = true;
  bool fetches_ = false;  // A's rows ahead of their use
  bool by_rows_ = false, shared_b_ = false, constant_b_ = false;
  using PackerOf = std::conditional_t<std::is_same_v<E, Bfloat16Bits>, PairPacker, Packer<E>>;
  PackerOf packer_[2];
  KeptPanels<E> kept_b_;
  std::vector<SumSlice> slices_;
  int64_t chunk_ = 1, most_ks_ = 0, most_runs_ = 1;
  Epilogue<T> epilogue_;
};

// The gradient of a strided convolution: its dense parts one after the other.
class Parts : public Kernel {
 public:
  explicit Parts(std::vector<std::unique_ptr<Kernel>> parts) : parts_(std::move(parts)) {}
  int64_t scratch_bytes() const override {
    int64_t most = 0;
    for (const auto& p : parts_) most = std::max(most, p->scratch_bytes());
    return most;
  }
  void run(const Memory& memory, char* scratch) const override {
    for (const auto& p : parts_) p->run(memory, scratch);
  }
  double speed() const override { return parts_[0]->speed(); }
  double memory_share() const override { return parts_[0]->memory_share(); }
  std::string describe() const override {
    return fmt::format("{} parts by position between the strides, the first: {}", parts_.size(), parts_[0]->describe());
  }

 private:
  std::vector<std::unique_ptr<Kernel>> parts_;
};

template <class T>
std::unique_ptr<Kernel> make_part(const fuse::FusedGraph& fused, const fuse::Region& region, const Problem& problem) {
  if constexpr (std::is_same_v<T, float>)
    if (!micro_kernels<Bfloat16Bits>().empty()) {
      auto pairs = std::make_unique<Contraction<float, Bfloat16Bits>>(fused, region, problem);
      if (pairs->usable()) return pairs;
    }
  return std::make_unique<Contraction<T>>(fused, region, problem);
}

template <class T>
std::unique_ptr<Kernel> make(const fuse::FusedGraph& fused, const fuse::Region& region) {
  const Problem problem = fuse::make_problem(fused.graph, fused.graph.nodes[size_t(region.heavy)]);
  std::vector<Problem> problems = {problem};
  if (region.side.empty()) problems = dense_parts(problem);  // a side reduction is joined over one problem's tiles
  std::vector<std::unique_ptr<Kernel>> parts;
  for (const Problem& p : problems) parts.push_back(make_part<T>(fused, region, p));
  return parts.size() == 1 ? std::move(parts[0]) : std::make_unique<Parts>(std::move(parts));
}

}  // namespace

std::unique_ptr<Kernel> make_contraction(const fuse::FusedGraph& fused, const fuse::Region& region) {
  const DataType_t compute = fused.graph.nodes[size_t(region.heavy)].compute;
  const bool wide = compute == DataType_t::DOUBLE || compute == DataType_t::INT32 || compute == DataType_t::INT64;
  if (wide || region.program.needs_double() || region.operand[0].needs_double() || region.operand[1].needs_double())
    return make<double>(fused, region);
  return make<float>(fused, region);
}

}  // namespace tilewright::cpu
