// Matmul and the convolutions as one blocked matrix product. A task makes one tile of the result: it packs panels of A
// and B for a slice of the sum, runs the micro-kernel over them, and with the sum complete evaluates the epilogue on
// the tile while that is in the cache. Tiles are cut by shape alone and every sum is made by one task in order, so
// results do not depend on the number of threads. Side reductions leave one partial result per tile, joined in order at
// the end.
#include <fmt/format.h>

#include <algorithm>

#include "base/numeric_types.h"
#include "base/thread_pool.h"
#include "engines/cpu/gemm.h"
#include "engines/cpu/kernel.h"
#include "engines/cpu/packing.h"
#include "engines/cpu/problem.h"

namespace tilewright::cpu {
namespace {

using fuse::Instr;
using fuse::PwOp;
using Factors = std::array<int64_t, kMaxProblem>;

constexpr int64_t kTileM = 192, kTileN = kLanes, kTileK = 256;
constexpr int64_t kEnoughTiles = 16;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

template <class T>
class Contraction : public Kernel {
 public:
  Contraction(const fuse::FusedGraph& fused, const fuse::Region& region)
      : fused_(fused), program_(region.program), side_(region.side), kernel_(micro_kernel<T>()) {
    const ir::Node& node = fused.graph.nodes[size_t(region.heavy)];
    problem_ = make_problem(fused.graph, node);
    int a = 0, b = 1;
    // The epilogue runs along the columns: rows and columns change roles where memory likes that better.
    if (lane_cost_of('m') < lane_cost_of('n')) {
      exchange(problem_);
      std::swap(a, b);
    }
    sort_group(problem_, 'm', result_strides());
    sort_group(problem_, 'n', result_strides());
    sort_group(problem_, 'k', main_strides(0, region.operand[size_t(a)]));
    m_ = problem_.size('m'), n_ = problem_.size('n'), k_ = problem_.size('k'), batch_ = problem_.size('b');
    batch_index_.set(problem_, 'b');
    row_.set(problem_, 'm');
    column_.set(problem_, 'n');
    cut_tiles();
    packer_[0].prepare(problem_, 0, 'm', region.operand[size_t(a)], kernel_.mr);
    packer_[1].prepare(problem_, 1, 'n', region.operand[size_t(b)], kernel_.nr);
    make_epilogue();
    make_sides();
  }

  int64_t scratch_bytes() const override { return side_scratch_ * int64_t(sizeof(double)); }

  void run(const Memory& memory, char* scratch) const override {
    if (batch_ * m_ * n_ == 0) return finish_sides(memory, reinterpret_cast<double*>(scratch));
    void* base[3][kMaxAccesses];
    resolve(memory, packer_[0].program(), base[0]);
    resolve(memory, packer_[1].program(), base[1]);
    resolve(memory, program_, base[2]);
    double* const partial = reinterpret_cast<double*>(scratch);
    parallel_for(batch_ * m_tiles_ * n_tiles_, [&](int64_t tile) { Tile(*this, memory, base, partial).compute(tile); });
    finish_sides(memory, partial);
  }

  std::string describe() const override {
    return fmt::format("{} x {} x {} (batch {}) in tiles of {} x {}, sums in slices of {}, micro-tile {} x {}{}", m_,
                       n_, k_, batch_, tile_m_, tile_n_, tile_k_, kernel_.mr, kernel_.nr,
                       sizeof(T) == 8 ? ", in double" : "");
  }

 private:
  struct Side {
    bool m_folded = false, n_folded = false;
    std::vector<int> kept_batch;  // problem dims
    int64_t per_tile = 1;         // doubles of a tile's partial result
    int64_t offset = 0;           // of the partial results
    int64_t outputs = 1, out_offset = 0;
    Factors out_stride = {};    // in memory
    Factors index_stride = {};  // in the joined results
  };

  // One task.
  class Tile {
   public:
    Tile(const Contraction& c, const Memory& memory, void* const (*base)[kMaxAccesses], double* partial)
        : c_(c), memory_(memory), base_(base), partial_(partial) {}

    void compute(int64_t tile) {
      Cutter counter(nullptr);
      cut(counter);
      Cutter cutter(thread_scratch(counter.bytes()));
      cut(cutter);
      n0_ = tile % c_.n_tiles_ * c_.tile_n_;
      m0_ = tile / c_.n_tiles_ % c_.m_tiles_ * c_.tile_m_;
      batch_ = tile / c_.n_tiles_ / c_.m_tiles_;
      tile_ = tile;
      rows_ = std::min(c_.tile_m_, c_.m_ - m0_);
      columns_ = std::min(c_.tile_n_, c_.n_ - n0_);
      std::fill_n(index_, kMaxProblem, 0);
      multiply();
      epilogue();
    }

   private:
    void cut(Cutter& c) {
      sum_ = c.template take<T>(c_.tile_m_ * c_.tile_n_);
      left_ = c.template take<T>(c_.tile_m_ * c_.tile_k_);
      right_ = c.template take<T>(c_.tile_n_ * c_.tile_k_);
      packing_ = c.template take<char>(std::max(c_.packer_[0].scratch_bytes(c_.tile_m_, c_.tile_k_),
                                                c_.packer_[1].scratch_bytes(c_.tile_n_, c_.tile_k_)));
      const int64_t accesses = int64_t(c_.program_.access.size());
      frame_.value = c.template take<const T*>(int64_t(c_.program_.code.size()));
      frame_.buffers = c.template take<T>(int64_t(c_.slots_) * kLanes);
      offset_ = c.template take<int64_t>(accesses);
      row_offset_ = c.template take<int64_t>(accesses);
    }

    void multiply() {
      std::fill_n(sum_, c_.tile_m_ * c_.tile_n_, T(0));
      c_.batch_index_.decode(batch_, index_);
      const int64_t m_end = size_of(c_.problem_.m_end, c_.m_), n_end = size_of(c_.problem_.n_end, c_.n_);
      const int64_t k_end = size_of(c_.problem_.k_end, c_.k_);
      const T padding = T(c_.problem_.padding);
      for (int64_t k = 0; k < c_.k_; k += c_.tile_k_) {
        const int64_t ks = std::min(c_.tile_k_, c_.k_ - k);
        c_.packer_[0].pack(memory_, base_[0], {m0_, rows_, k, ks, m_end, k_end}, padding, index_, packing_, left_);
        std::fill_n(index_, kMaxProblem, 0);
        c_.batch_index_.decode(batch_, index_);
        c_.packer_[1].pack(memory_, base_[1], {n0_, columns_, k, ks, n_end, k_end}, padding, index_, packing_, right_);
        std::fill_n(index_, kMaxProblem, 0);
        c_.batch_index_.decode(batch_, index_);
        const int64_t mr = c_.kernel_.mr, nr = c_.kernel_.nr;
        for (int64_t j = 0; j < columns_; j += nr)
          for (int64_t i = 0; i < rows_; i += mr)
            c_.kernel_.run(left_ + i * ks, right_ + j * ks, ks, sum_ + i * c_.tile_n_ + j, c_.tile_n_);
      }
    }

    int64_t size_of(ir::TensorId t, int64_t full) const {
      if (t == ir::kNone) return full;
      const ir::Tensor& tensor = c_.fused_.graph.tensor(t);
      const double v = tensor.value ? ir::scalar_value(*tensor.value)
                                    : load_element(memory_.tensor(t), tensor.storage_type(),
                                                   offset_of_linear(batch_, tensor.view()));
      return std::clamp<int64_t>(int64_t(v), 0, full);
    }

    void epilogue() {
      frame_.memory = base_[2];
      frame_.tensors = &memory_;
      frame_.offset = offset_;
      frame_.lane_stride = c_.lane_stride_.data();
      frame_.n = kLanes;
      run_ops(c_.uniform_, frame_);
      for (const Side& s : c_.sides_)
        std::fill_n(partial_ + s.offset + tile_ * s.per_tile, s.per_tile,
                    fuse::reduction_start(c_.side_[size_t(&s - c_.sides_.data())].mode));
      const size_t accesses = c_.program_.access.size();
      for (int64_t i = 0; i < rows_; ++i) {
        c_.row_.decode(m0_ + i, index_);
        for (int64_t j = 0; j < columns_;) {
          c_.column_.decode(n0_ + j, index_);
          const int64_t lane = c_.lane_ < 0 ? 0 : index_[c_.lane_];
          const int64_t n = std::min(columns_ - j, c_.lane_extent_ - lane);
          for (size_t a = 0; a < accesses; ++a) {
            int64_t at = c_.program_.access[a].offset;
            for (size_t d = 0; d < c_.problem_.dims.size(); ++d) at += index_[d] * c_.strides_[a][d];
            offset_[a] = at;
          }
          frame_.n = n;
          frame_.value[c_.in_] = sum_ + i * c_.tile_n_ + j;
          run_ops(c_.ops_, frame_);
          for (size_t s = 0; s < c_.sides_.size(); ++s) fold(c_.sides_[s], c_.side_[s], i, j, n);
          j += n;
        }
      }
    }

    void fold(const Side& s, const fuse::SideReduction& side, int64_t i, int64_t j, int64_t n) {
      double* const to = partial_ + s.offset + tile_ * s.per_tile;
      const T* const x = frame_.value[side.value];
      const LaneOps<T>& lanes = lane_ops<T>();
      const int64_t row = s.m_folded ? 0 : i;
      if (s.n_folded) to[row] = lanes.fold(side.mode, x, n, to[row]);
      else lanes.fold_lanes(side.mode, x, n, to + row * c_.tile_n_ + j);
    }

    const Contraction& c_;
    const Memory& memory_;
    void* const (*base_)[kMaxAccesses];
    double* partial_;
    Frame<T> frame_;
    T *sum_, *left_, *right_;
    char* packing_;
    int64_t *offset_, *row_offset_;
    int64_t index_[kMaxProblem];
    int64_t tile_ = 0, batch_ = 0, m0_ = 0, n0_ = 0, rows_ = 0, columns_ = 0;
  };

  static void resolve(const Memory& memory, const fuse::PwProgram& p, void** base) {
    for (size_t a = 0; a < p.access.size(); ++a)
      base[a] = p.access[a].tensor == ir::kNone ? nullptr : memory.root(p.access[a].tensor);
  }

  // What lanes along the fastest dim of a group would cost the epilogue.
  double lane_cost_of(char group) {
    sort_group(problem_, group, result_strides());
    const std::vector<int> dims = problem_.dims_of(group);
    const int dim = dims.back();
    double cost = 24.0 / double(std::clamp<int64_t>(problem_.dims[size_t(dim)].extent, 1, kLanes));
    for (const fuse::Access& a : program_.access)
      if (a.tensor != ir::kNone) cost += lane_cost(problem_strides(problem_, a)[size_t(dim)]);
    return cost;
  }

  // The layout that the result is stored in.
  Factors result_strides() const {
    for (const Instr& i : program_.code)
      if (i.op == PwOp::Store) return problem_strides(problem_, program_.access[size_t(i.access)]);
    fuse::Access a;  // nothing is stored but reductions
    a.stride = row_major_strides(program_.domain);
    return problem_strides(problem_, a);
  }

  Factors main_strides(int operand, const fuse::PwProgram& p) const {
    Factors best = {};
    int most = -1;
    for (const Instr& i : p.code) {
      if (i.op != PwOp::Load) continue;
      const Factors s = operand_strides(problem_, operand, p.access[size_t(i.access)]);
      const int moving = int(std::count_if(s.begin(), s.end(), [](int64_t v) { return v != 0; }));
      if (moving > most) most = moving, best = s;
    }
    return best;
  }

  void cut_tiles() {
    const auto cut = [](int64_t n, int64_t target, int64_t unit) {
      const int64_t tiles = std::max<int64_t>(1, (n + target - 1) / target);
      return std::max(unit, round_up((n + tiles - 1) / tiles, unit));
    };
    int64_t target_m = kTileM, target_n = kTileN;
    for (;;) {
      tile_m_ = cut(m_, target_m, kernel_.mr);
      tile_n_ = std::min<int64_t>(kTileN, cut(n_, target_n, kernel_.nr));
      m_tiles_ = (m_ + tile_m_ - 1) / tile_m_;
      n_tiles_ = (n_ + tile_n_ - 1) / tile_n_;
      if (batch_ * m_tiles_ * n_tiles_ >= kEnoughTiles) break;
      // Smaller tiles for more threads, as long as packing stays worth it.
      if (target_n >= 2 * target_m && tile_n_ >= 2 * 64) target_n = tile_n_ / 2;
      else if (tile_m_ >= 2 * 48) target_m = tile_m_ / 2;
      else if (tile_n_ >= 2 * 64) target_n = tile_n_ / 2;
      else break;
    }
    tile_k_ = std::clamp<int64_t>(k_, 1, kTileK);
  }

  void make_epilogue() {
    for (const fuse::Access& a : program_.access) strides_.push_back(problem_strides(problem_, a));
    lane_ = column_.dims.back();
    lane_extent_ = std::max<int64_t>(1, problem_.dims[size_t(lane_)].extent);
    for (const Factors& s : strides_) lane_stride_.push_back(s[size_t(lane_)]);
    std::vector<int> uniform, rest;
    std::vector<bool> is_uniform(program_.code.size());
    for (size_t k = 0; k < program_.code.size(); ++k) {
      const Instr& i = program_.code[k];
      if (i.op == PwOp::In) in_ = int(k);
      bool u = i.op != PwOp::Load && i.op != PwOp::Index && i.op != PwOp::In && i.op != PwOp::Store;
      for (int a : i.arg) u = u && (a < 0 || is_uniform[size_t(a)]);
      is_uniform[k] = u;
      (u ? uniform : rest).push_back(int(k));
    }
    std::stable_partition(rest.begin(), rest.end(), [&](int k) { return program_.code[size_t(k)].op != PwOp::Store; });
    uniform_ = make_ops<T>(program_, uniform);
    ops_ = make_ops<T>(program_, rest);
    // What a side reduction folds must outlive the list: it keeps a buffer of its own.
    BlockOps<T> folded;
    for (const fuse::SideReduction& s : side_) folded.push_back(make_ops<T>(program_, {s.value})[0]);
    slots_ = assign_slots<T>({&uniform_, &folded}, {&ops_}, int(program_.code.size()));
    for (BlockOp<T>& op : ops_)
      for (const BlockOp<T>& f : folded)
        if (op.id == f.id) op.slot = f.slot;
  }

  void make_sides() {
    int64_t at = 0;
    for (const fuse::SideReduction& side : side_) {
      Side s;
      const auto folded = [&](int problem_dim) {
        for (size_t d = 0; d < problem_.result.size(); ++d)
          if (problem_.result[d][size_t(problem_dim)] != 0 && !(side.reduced >> d & 1) && program_.domain[d] != 1)
            return false;
        return true;
      };
      // The builder made sure that a group is folded as a whole or not at all; dims of one element fold either way.
      const auto group_folded = [&](const GroupIndex& g) {
        return std::all_of(g.dims.begin(), g.dims.end(),
                           [&](int d) { return problem_.dims[size_t(d)].extent == 1 || folded(d); });
      };
      s.m_folded = group_folded(row_);
      s.n_folded = group_folded(column_);
      s.out_stride = problem_strides(problem_, side.out);
      const auto keep = [&](int d) { s.index_stride[size_t(d)] = 1; };
      for (int d : batch_index_.dims)
        if (!folded(d)) keep(d);
      if (!s.m_folded)
        for (int d : row_.dims) keep(d);
      if (!s.n_folded)
        for (int d : column_.dims) keep(d);
      for (size_t d = problem_.dims.size(); d-- > 0;)
        if (s.index_stride[d]) s.index_stride[d] = s.outputs, s.outputs *= problem_.dims[d].extent;
      s.per_tile = (s.m_folded ? 1 : tile_m_) * (s.n_folded ? 1 : tile_n_);
      s.offset = at;
      at += s.per_tile * batch_ * m_tiles_ * n_tiles_;
      s.out_offset = at;
      at += s.outputs;
      sides_.push_back(s);
    }
    side_scratch_ = at;
  }

  // Joins the partial results of all tiles in order, and stores.
  void finish_sides(const Memory& memory, double* scratch) const {
    for (size_t k = 0; k < sides_.size(); ++k) {
      const Side& s = sides_[k];
      const fuse::SideReduction& side = side_[k];
      double* const total = scratch + s.out_offset;
      std::fill_n(total, s.outputs, fuse::reduction_start(side.mode));
      int64_t index[kMaxProblem] = {};
      const auto linear = [&](const Factors& stride) {
        int64_t at = 0;
        for (size_t d = 0; d < problem_.dims.size(); ++d) at += index[d] * stride[d];
        return at;
      };
      for (int64_t tile = 0; tile < batch_ * m_tiles_ * n_tiles_; ++tile) {
        const int64_t n0 = tile % n_tiles_ * tile_n_, m0 = tile / n_tiles_ % m_tiles_ * tile_m_;
        batch_index_.decode(tile / n_tiles_ / m_tiles_, index);
        const double* const from = scratch + s.offset + tile * s.per_tile;
        const int64_t rows = s.m_folded ? 1 : std::min(tile_m_, m_ - m0);
        const int64_t columns = s.n_folded ? 1 : std::min(tile_n_, n_ - n0);
        for (int64_t i = 0; i < rows; ++i) {
          row_.decode(s.m_folded ? 0 : m0 + i, index);
          for (int64_t j = 0; j < columns; ++j) {
            column_.decode(s.n_folded ? 0 : n0 + j, index);
            double& t = total[linear(s.index_stride)];
            t = fuse::reduction_join(side.mode, t, from[i * (s.n_folded ? 1 : tile_n_) + j]);
          }
        }
      }
      std::fill_n(index, kMaxProblem, 0);
      void* const to = memory.root(side.out.tensor);
      for (int64_t o = 0; o < s.outputs; ++o) {
        for (size_t d = 0; d < problem_.dims.size(); ++d)
          if (s.index_stride[d]) index[d] = o / s.index_stride[d] % problem_.dims[d].extent;
        store_element(to, side.out.type, side.out.offset + linear(s.out_stride),
                      fuse::reduction_finish(side.mode, total[o], side.count));
      }
    }
  }

  const fuse::FusedGraph& fused_;
  fuse::PwProgram program_;
  std::vector<fuse::SideReduction> side_;
  const MicroKernel<T>& kernel_;
  Problem problem_;
  int64_t m_ = 0, n_ = 0, k_ = 0, batch_ = 1;
  int64_t tile_m_ = 1, tile_n_ = 1, tile_k_ = 1, m_tiles_ = 1, n_tiles_ = 1;
  GroupIndex batch_index_, row_, column_;
  Packer<T> packer_[2];
  std::vector<Factors> strides_;  // of the epilogue's accesses, per problem dim
  std::vector<int64_t> lane_stride_;
  int lane_ = -1, in_ = -1;
  int64_t lane_extent_ = 1;
  BlockOps<T> uniform_, ops_;
  int slots_ = 0;
  std::vector<Side> sides_;
  int64_t side_scratch_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_contraction(const fuse::FusedGraph& fused, const fuse::Region& region) {
  const DataType_t compute = fused.graph.nodes[size_t(region.heavy)].compute;
  const bool wide = compute == DataType_t::DOUBLE || compute == DataType_t::INT32 || compute == DataType_t::INT64;
  if (wide || region.program.needs_double() || region.operand[0].needs_double() || region.operand[1].needs_double())
    return std::make_unique<Contraction<double>>(fused, region);
  return std::make_unique<Contraction<float>>(fused, region);
}

}  // namespace tilewright::cpu
