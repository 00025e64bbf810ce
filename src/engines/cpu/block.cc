#include "engines/cpu/block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/numeric_rows.h"
#include "base/numeric_types.h"

namespace tilewright::cpu {

using fuse::Instr;
using fuse::PwOp;

void* Memory::tensor(ir::TensorId t) const {
  const fuse::Place& place = fused_.place[size_t(t)];
  if (place.root == ir::kNone) return size_t(t) < bindings_.size() ? bindings_[size_t(t)] : nullptr;
  const int bits = element_bits(fused_.graph.tensor(t).storage_type());
  return static_cast<char*>(root(place.root)) + place.offset * bits / 8;
}

double Memory::scalar(ir::TensorId t) const {
  return load_element(bindings_[size_t(t)], fused_.graph.tensor(t).storage_type(), 0);
}

void resolve(const Memory& memory, const fuse::PwProgram& p, void** base) {
  for (size_t a = 0; a < p.access.size(); ++a)
    base[a] = p.access[a].tensor == ir::kNone ? nullptr : memory.root(p.access[a].tensor);
}

char* thread_scratch(int64_t bytes) {
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<char, Free> block;
  thread_local int64_t size = 0;
  if (bytes > size) {
    block.reset();
    size = (bytes + 4095) / 4096 * 4096;
    block.reset(static_cast<char*>(std::aligned_alloc(4096, size_t(size))));
    TW_CHECK(block != nullptr);
  }
  return block.get();
}

double lane_cost(int64_t stride) {
  if (stride == 1 || stride == 0) return 1;
  return std::abs(stride) < 16 ? 3 : 6;
}

template <class T>
BlockOps<T> make_ops(const fuse::PwProgram& p, const std::vector<int>& instructions) {
  BlockOps<T> ops;
  for (int id : instructions) {
    const Instr& i = p.code[size_t(id)];
    BlockOp<T> op;
    op.op = i.op;
    op.id = id;
    for (int k = 0; k < 3; ++k) op.arg[k] = i.arg[size_t(k)];
    op.access = i.access;
    op.params = &i.params;
    op.type = i.op == PwOp::Load || i.op == PwOp::Store ? p.access[size_t(i.access)].type : i.type;
    op.value = i.value;
    op.tensor = i.tensor;
    if (i.op == PwOp::Load)
      for (const Instr& s : p.code) op.copy |= s.op == PwOp::Store && s.arg[0] == id;
    if (i.op == PwOp::Pointwise) {
      op.mode = i.mode;
      op.function = lane_ops<T>().pointwise[int(i.mode)];
      TW_CHECK(op.function);
    }
    ops.push_back(op);
  }
  return ops;
}

namespace {

int fusable(PointwiseMode_t mode) {
  for (int k = 0; k < 3; ++k)
    if (kFusable[k] == mode) return k;
  return -1;
}

}  // namespace

template <class T>
void fuse_pairs(BlockOps<T>& list, const std::vector<bool>& read) {
  std::vector<int> at(read.size(), -1), uses(read.size(), 0);
  for (size_t k = 0; k < list.size(); ++k) {
    at[size_t(list[k].id)] = int(k);
    for (int a : list[k].arg)
      if (a >= 0) ++uses[size_t(a)];
  }
  std::vector<bool> gone(list.size());
  for (BlockOp<T>& op : list) {
    const int second = op.op == PwOp::Pointwise && op.arg[2] < 0 ? fusable(op.mode) : -1;
    for (int side = 0; second >= 0 && side < 2 && op.arg[2] < 0; ++side) {
      const int id = op.arg[side], other = op.arg[1 - side];
      if (at[size_t(id)] < 0 || uses[size_t(id)] != 1 || read[size_t(id)]) continue;
      const BlockOp<T>& inside = list[size_t(at[size_t(id)])];
      const int first =
          inside.op == PwOp::Pointwise && inside.kept < 0 && inside.arg[2] < 0 ? fusable(inside.mode) : -1;
      if (first < 0) continue;
      gone[size_t(at[size_t(id)])] = true;
      op.function = lane_ops<T>().fused[first][second == 1 && side == 1 ? 3 : second];
      op.arg[0] = inside.arg[0], op.arg[1] = inside.arg[1], op.arg[2] = other;
    }
  }
  size_t kept = 0;
  for (size_t k = 0; k < list.size(); ++k)
    if (!gone[k]) list[kept++] = list[k];
  list.resize(kept);
}

template <class T>
int assign_slots(const std::vector<BlockOps<T>*>& kept, const std::vector<BlockOps<T>*>& passing, int instructions) {
  int slots = 0;
  std::vector<int> slot_of(size_t(instructions), -1);
  for (BlockOps<T>* list : kept)
    for (BlockOp<T>& op : *list) {
      int& slot = slot_of[size_t(op.id)];
      if (slot < 0) slot = slots++;
      op.slot = slot;
    }
  int most = slots;
  for (BlockOps<T>* list : passing) {
    std::vector<int> last(size_t(instructions), -1), here(size_t(instructions), -1), free;
    std::vector<bool> keep(size_t(instructions), false);
    for (const BlockOp<T>& op : *list) keep[size_t(op.id)] = op.keep;
    for (size_t k = 0; k < list->size(); ++k)
      for (int a : (*list)[k].arg)
        if (a >= 0) last[size_t(a)] = int(k);
    int next = slots;
    for (size_t k = 0; k < list->size(); ++k) {
      BlockOp<T>& op = (*list)[k];
      if (op.op == PwOp::Store) continue;
      if (free.empty()) {
        op.slot = next++;
      } else {
        op.slot = free.back();
        free.pop_back();
      }
      here[size_t(op.id)] = op.slot;
      for (int a = 0; a < 3; ++a) {
        const int id = op.arg[a];
        const bool again = std::find(op.arg, op.arg + a, id) != op.arg + a;
        if (id >= 0 && here[size_t(id)] >= 0 && last[size_t(id)] == int(k) && !again && !keep[size_t(id)])
          free.push_back(here[size_t(id)]);
      }
    }
    most = std::max(most, next);
  }
  return most;
}

namespace {

inline void load(const void* m, DataType_t t, int64_t at, int64_t stride, int64_t n, float* out) {
  load_floats(m, t, at, stride, n, out);
}
inline void load(const void* m, DataType_t t, int64_t at, int64_t stride, int64_t n, double* out) {
  load_doubles(m, t, at, stride, n, out);
}
inline void store(void* m, DataType_t t, int64_t at, int64_t stride, int64_t n, const float* in) {
  store_floats(m, t, at, stride, n, in);
}
inline void store(void* m, DataType_t t, int64_t at, int64_t stride, int64_t n, const double* in) {
  store_doubles(m, t, at, stride, n, in);
}
template <class T>
constexpr DataType_t kNative = sizeof(T) == 4 ? DataType_t::FLOAT : DataType_t::DOUBLE;

}  // namespace

namespace {

// Past the caches: converted to a block of bytes first.
template <class T>
void stream_row(void* memory, DataType_t type, int64_t at, int64_t n, const T* in) {
  const int64_t size = element_bits(type) / 8;
  char* to = static_cast<char*>(memory) + at * size;
  if (type == kNative<T>) return stream_bytes(to, in, n * size);
  alignas(64) char block[4096];
  const int64_t fit = int64_t(sizeof block) / size;
  for (int64_t done = 0; done < n; done += fit, to += sizeof block) {
    const int64_t some = std::min(fit, n - done);
    store(block, type, 0, 1, some, in + done);
    stream_bytes(to, block, some * size);
  }
}

template <class T>
void repeat(T* lanes, int64_t period, int64_t n) {
  for (int64_t i = period; i < n; i *= 2) std::memcpy(lanes + i, lanes, size_t(std::min(i, n - i)) * sizeof(T));
}

// A block of several repetitions of `period` lanes, `near` apart, each `far` elements after the one before. Where
// neighbours lie along the repetitions, tiles are turned around.
struct Block {
  int64_t at, near, far, period, n;
  bool runs_on() const { return far == near * period; }
  bool turned() const { return std::abs(near) != 1 && std::abs(far) == 1; }
  int64_t repeats() const { return n / period; }
};
constexpr int64_t kTile = 1024;  // lanes of the longest block with repetitions

template <class T>
void load_block(const void* memory, DataType_t type, const Block& b, T* out) {
  if (b.runs_on()) return load(memory, type, b.at, b.near, b.n, out);
  if (b.far == 0) {
    load(memory, type, b.at, b.near, b.period, out);
    return repeat(out, b.period, b.n);
  }
  const int64_t repeats = b.repeats();
  if (!b.turned()) {
    for (int64_t r = 0; r < repeats; ++r) load(memory, type, b.at + r * b.far, b.near, b.period, out + r * b.period);
    return;
  }
  T tile[kTile];
  for (int64_t l = 0; l < b.period; ++l) load(memory, type, b.at + l * b.near, b.far, repeats, tile + l * repeats);
  lane_ops<T>().transpose(tile, repeats, out, b.period, b.period, repeats);
}

template <class T>
void store_block(void* memory, DataType_t type, const Block& b, bool stream, const T* in) {
  const int64_t repeats = b.repeats();
  if (!b.turned()) {
    const int64_t size = element_bits(type) / 8;
    stream = stream && (reinterpret_cast<uintptr_t>(memory) + uintptr_t(b.at * size)) % 64 == 0 &&
             b.far * size % 64 == 0 && b.period * size % 64 == 0;
    for (int64_t r = 0; r < repeats; ++r) {
      const T* const row = in + r * b.period;
      if (stream) stream_row(memory, type, b.at + r * b.far, b.period, row);
      else store(memory, type, b.at + r * b.far, b.near, b.period, row);
    }
    return;
  }
  T tile[kTile];
  lane_ops<T>().transpose(in, b.period, tile, repeats, repeats, b.period);
  for (int64_t l = 0; l < b.period; ++l) store(memory, type, b.at + l * b.near, b.far, repeats, tile + l * repeats);
}

}  // namespace

template <class T>
void run_ops(const BlockOps<T>& ops, Frame<T>& f) {
  const LaneOps<T>& lanes = lane_ops<T>();
  for (const BlockOp<T>& op : ops) {
    T* const out = op.kept < 0 ? f.buffers + int64_t(op.slot) * f.pitch
                               : f.rows + (int64_t(op.kept) * f.row_steps + f.step) * f.pitch;
    const int64_t n = f.n;
    Block block{0, 0, 0, n, n};
    if (op.access >= 0) {
      block.at = f.offset[op.access], block.near = f.lane_stride[op.access];
      if (f.period > 0 && n > f.period) block.far = f.far[op.access], block.period = f.period;
    }
    const bool dense = block.period == n || block.runs_on();
    switch (op.op) {
      case PwOp::Pointwise:
        op.function(out, f.value[op.arg[0]], op.arg[1] < 0 ? nullptr : f.value[op.arg[1]],
                    op.arg[2] < 0 ? nullptr : f.value[op.arg[2]], n, *op.params);
        break;
      case PwOp::Load: {
        const void* memory = f.memory[op.access];
        if (dense && block.near == 1 && op.type == kNative<T> && !op.copy &&
            reinterpret_cast<uintptr_t>(memory) % sizeof(T) == 0) {
          f.value[op.id] = static_cast<const T*>(memory) + block.at;
          continue;
        }
        if (dense && block.near == 0) {
          T v;
          load(memory, op.type, block.at, 1, 1, &v);
          lanes.fill(out, v, n);
        } else if (dense) {
          load(memory, op.type, block.at, block.near, n, out);
        } else {
          load_block(memory, op.type, block, out);
        }
        break;
      }
      case PwOp::Store: {
        const int64_t count = f.store_lanes ? f.store_lanes[op.access] : n;
        if (count <= 0) continue;
        void* const memory = f.memory[op.access];
        const T* const in = f.value[op.arg[0]];
        if (!dense) store_block(memory, op.type, block, op.stream, in);
        else if (op.stream) stream_row(memory, op.type, block.at, count, in);
        else store(memory, op.type, block.at, block.near, count, in);
        continue;
      }
      case PwOp::Const: lanes.fill(out, T(op.value), n); break;
      case PwOp::Scalar: lanes.fill(out, T(f.tensors->scalar(op.tensor)), n); break;
      case PwOp::Index:
        for (int64_t r = 0; r < n; r += block.period)
          for (int64_t i = 0; i < block.period; ++i)
            out[r + i] = T(block.at + r / block.period * block.far + i * block.near);
        break;
      case PwOp::Cast: lanes.cast(op.type, out, f.value[op.arg[0]], n); break;
      case PwOp::In:
      case PwOp::Reduce: continue;  // set by the driver
    }
    f.value[op.id] = out;
  }
}

template BlockOps<float> make_ops(const fuse::PwProgram&, const std::vector<int>&);
template BlockOps<double> make_ops(const fuse::PwProgram&, const std::vector<int>&);
template void fuse_pairs(BlockOps<float>&, const std::vector<bool>&);
template void fuse_pairs(BlockOps<double>&, const std::vector<bool>&);
template int assign_slots(const std::vector<BlockOps<float>*>&, const std::vector<BlockOps<float>*>&, int);
template int assign_slots(const std::vector<BlockOps<double>*>&, const std::vector<BlockOps<double>*>&, int);
template void run_ops(const BlockOps<float>&, Frame<float>&);
template void run_ops(const BlockOps<double>&, Frame<double>&);

}  // namespace tilewright::cpu
