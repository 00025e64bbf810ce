// Runs pointwise programs a block of lanes at a time: every instruction is one loop over up to kLanes neighbouring
// points of the domain. Who drives it (rows.cc, contraction.cc) decides which instructions run how often, and tells for
// each access where the block begins in memory and how far apart its lanes are.
#pragma once

#include <cstdint>
#include <vector>

#include "engines/cpu/lane_ops.h"
#include "fuse/regions.h"
#include "plan/engine.h"

namespace tilewright::cpu {

// Accesses of one launch: a bound, so that per-launch tables lie on the stack.
constexpr int kMaxAccesses = 256;

// Where the tensors of a fused graph are while a plan runs.
class Memory {
 public:
  Memory(const fuse::FusedGraph& fused, const Bindings& bindings, void* workspace)
      : fused_(fused), bindings_(bindings), workspace_(static_cast<char*>(workspace)) {}
  void* root(ir::TensorId t) const {
    const int64_t at = fused_.place[size_t(t)].workspace;
    return at >= 0 ? workspace_ + at : (size_t(t) < bindings_.size() ? bindings_[size_t(t)] : nullptr);
  }
  // The first element of a tensor, views included.
  void* tensor(ir::TensorId t) const;
  // The value of a by-value tensor whose value the graph does not hold.
  double scalar(ir::TensorId t) const;
  const Bindings& bindings() const { return bindings_; }
  char* workspace() const { return workspace_; }

 private:
  const fuse::FusedGraph& fused_;
  const Bindings& bindings_;
  char* workspace_;
};

// Scratch of the calling thread, 64-byte aligned, kept from call to call. Not initialised. One user at a time: a task
// takes it once and cuts it up.
char* thread_scratch(int64_t bytes);
// Cuts pieces off a block of scratch; with a null block it only counts.
class Cutter {
 public:
  explicit Cutter(char* base) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    at_ = (at_ + 63) / 64 * 64;
    T* p = reinterpret_cast<T*>(base_ + at_);
    at_ += count * int64_t(sizeof(T));
    return base_ ? p : nullptr;
  }
  int64_t bytes() const { return (at_ + 63) / 64 * 64; }

 private:
  char* base_;
  int64_t at_ = 0;
};

// Scratch of the calling thread, cut by `cut(Cutter&)`, which is called twice: to count, and to take.
template <class Cut>
void cut_scratch(const Cut& cut) {
  Cutter counter(nullptr);
  cut(counter);
  Cutter cutter(thread_scratch(counter.bytes()));
  cut(cutter);
}

// Where the tensors of a program's accesses are.
void resolve(const Memory&, const fuse::PwProgram&, void** base);

template <class T>
struct BlockOp {
  fuse::PwOp op = fuse::PwOp::Const;
  int id = 0;  // the instruction's position: its register
  int arg[3] = {-1, -1, -1};
  int slot = 0;  // the buffer that holds its value
  int access = -1;
  bool keep = false;    // its value is read after the list: its buffer is not shared
  bool copy = false;    // Load: never hand out the memory itself
  bool stream = false;  // Store: past the caches; flush_streams() when done
  int kept = -1;        // its values of a whole row are kept: which of Frame::rows
  PointwiseMode_t mode = PointwiseMode_t::NOT_SET;
  typename LaneOps<T>::Pointwise function = nullptr;
  const PwParams* params = nullptr;
  DataType_t type = DataType_t::FLOAT;
  double value = 0;
  ir::TensorId tensor = ir::kNone;
};

// A block in flight.
template <class T>
struct Frame {
  const T** value = nullptr;  // by instruction: where its lanes are
  T* buffers = nullptr;       // slots of `pitch` lanes
  int64_t pitch = kLanes;
  T* rows = nullptr;                     // values kept for whole rows, row_steps blocks of `pitch` each
  int64_t row_steps = 0, step = 0;       // `step`: the block of the row in flight
  int64_t n = 0;                         // lanes, at most `pitch`
  int64_t period = 0;                    // lanes of one repetition of a loop in the block; 0: all of them
  const int64_t* far = nullptr;          // by access: elements from one repetition to the next
  void* const* memory = nullptr;         // by access
  const int64_t* offset = nullptr;       // by access: element of lane 0
  const int64_t* lane_stride = nullptr;  // by access
  const int64_t* store_lanes = nullptr;  // by access: lanes to store, 0 for none; null: all
  const Memory* tensors = nullptr;
};

template <class T>
using BlockOps = std::vector<BlockOp<T>>;

// Operations for some instructions of a program (positions in ascending order), without slots.
template <class T>
BlockOps<T> make_ops(const fuse::PwProgram&, const std::vector<int>& instructions);

// Makes pairs of additions, subtractions and multiplications one operation, where nothing else reads the first one's
// value. `read` says which values are read beside the list.
template <class T>
void fuse_pairs(BlockOps<T>&, const std::vector<bool>& read);

// Gives the values of `kept` (which live on after their list) a buffer each, and lets those of each list in `passing`
// share buffers once nothing in the list reads them any more. Returns the number of buffers.
template <class T>
int assign_slots(const std::vector<BlockOps<T>*>& kept, const std::vector<BlockOps<T>*>& passing, int instructions);

template <class T>
void run_ops(const BlockOps<T>&, Frame<T>&);

// How much a lane costs when lanes lie `stride` elements apart in memory; 1: nothing better.
double lane_cost(int64_t stride);

}  // namespace tilewright::cpu
