// What follows a contraction: its region's program on rows of the finished tile while they are in the cache, and the
// side reductions, which leave one partial result per tile, joined in order at the end.
#pragma once

#include "engines/cpu/gemm.h"
#include "engines/cpu/packing.h"

namespace tilewright::cpu {

using Factors = std::array<int64_t, kMaxProblem>;

// How a result [batch, m, n] is cut into tiles, counted along n first.
struct Tiling {
  int64_t batch = 1, m = 0, n = 0;
  int64_t tile_m = 1, tile_n = 1, m_tiles = 1, n_tiles = 1;

  int64_t count() const { return batch * m_tiles * n_tiles; }
  int64_t m0(int64_t tile) const { return tile / n_tiles % m_tiles * tile_m; }
  int64_t n0(int64_t tile) const { return tile % n_tiles * tile_n; }
  int64_t batch_of(int64_t tile) const { return tile / n_tiles / m_tiles; }
};

template <class T>
class Epilogue {
 public:
  void prepare(const fuse::Region&, const Problem&, const Tiling&);
  int64_t scratch_bytes() const { return side_scratch_ * int64_t(sizeof(double)); }
  const fuse::PwProgram& program() const { return program_; }

  // Whether a kernel may do all of it with this memory: add what is the same for all rows, its elements for
  // neighbouring columns `add_stride` apart, then what else a Finish does, then store elements that are side by side
  // along n.
  bool is_finish_for(void* const* base, int64_t add_stride) const {
    return plain_ && (plain_add_ < 0 || (add_stride_ == add_stride && is_native<T>(kNativeType<T>, base[plain_add_])));
  }
  Finish<T> finish_of(void* const* base, int64_t batch, int64_t column) const;
  // Then: whether what is stored are elements of T, to be written in place; else store() converts rows of them.
  bool stores_sums(void* const* base) const {
    return is_native<T>(program_.access[size_t(plain_store_)].type, base[plain_store_]);
  }
  int64_t plain_row_stride() const { return row_stride_[size_t(plain_store_)]; }
  T* plain_address(void* const* base, int64_t batch, int64_t row, int64_t column) const {
    return static_cast<T*>(base[plain_store_]) + plain_element(batch, row, column);
  }
  void store(void* const* base, int64_t batch, int64_t row, int64_t column, const T* values, int64_t ld, int64_t rows,
             int64_t columns) const;

  // One task's use of it.
  class Tile {
   public:
    explicit Tile(const Epilogue& e) : e_(e) {}
    void cut(Cutter&);
    void start(int64_t tile, const Memory&, void* const* base, double* partial);
    // Rows first .. first + rows of the tile. sums[i * ld + j]
    void apply(const T* sums, int64_t ld, int64_t first, int64_t rows);

   private:
    void place(int64_t column, int64_t* at);
    void repeat();
    void apply_at(const T* sums, int64_t i, int64_t j, int64_t n);
    void fold(size_t side, int64_t i, int64_t j, int64_t n, const T* x);

    const Epilogue& e_;
    Frame<T> frame_;
    int64_t *offset_ = nullptr, *start_ = nullptr;
    int64_t index_[kMaxProblem] = {};
    int64_t tile_ = 0, m0_ = 0, n0_ = 0, columns_ = 0;
    double* partial_ = nullptr;
  };

  // Joins the partial results of all tiles in order, and stores.
  void finish(const Memory&, double* partial) const;

 private:
  struct Side {
    bool m_folded = false, n_folded = false;
    int64_t per_tile = 1;  // doubles of a tile's partial result
    int64_t offset = 0;    // of the partial results
    int64_t outputs = 1, out_offset = 0;
    Factors out_stride = {};    // in memory
    Factors index_stride = {};  // in the joined results
  };
  void make_ops_lists();
  void make_rows();
  void make_plain();
  int64_t offset_of(size_t access, int64_t batch, int64_t column) const;
  int64_t plain_element(int64_t batch, int64_t row, int64_t column) const {
    return offset_of(size_t(plain_store_), batch, column) + row * plain_row_stride();
  }
  void make_sides();
  void finish_side(size_t side, const Memory&, double* partial) const;

  Problem problem_;
  Tiling tiling_;
  fuse::PwProgram program_;
  std::vector<fuse::SideReduction> side_;
  GroupIndex batch_index_, row_, column_;
  std::vector<Factors> strides_;  // of the accesses, per problem dim
  std::vector<int64_t> origin_, lane_stride_;
  int lane_ = -1, in_ = -1;
  int64_t lane_extent_ = 1;
  std::vector<int64_t> row_stride_;  // of the accesses, where rows_affine_
  bool rows_affine_ = false;
  // Short rows that follow each other in memory go together: `block_` of them make a block of lanes. What all rows load
  // alike is then loaded once, `repeated_`.
  int64_t block_ = 1;
  BlockOps<T> uniform_, repeated_, ops_;
  int slots_ = 0;
  std::vector<Side> sides_;
  int64_t side_scratch_ = 0;
  bool plain_ = false;
  int plain_store_ = 0, plain_add_ = -1;  // accesses
  int64_t add_stride_ = 1;                // along n
  Finish<T> finish_;
};

}  // namespace tilewright::cpu
