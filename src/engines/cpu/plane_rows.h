// Rows of a tensor [N, C, spatial...] through the program around it: read and made while they are wanted, or finished
// and stored. A row runs along the last spatial dim, as [positions][lanes], lanes being neighbouring channels.
#pragma once

#include "engines/cpu/block.h"

namespace tilewright::cpu {

template <class T>
class PlaneRows {
 public:
  // With a result, the program of an operand; else that of the result, `In` being its values.
  void prepare(const fuse::PwProgram&);
  explicit operator bool() const { return !program_.code.empty(); }
  // Of what moves along most dims: elements from one channel, and from one position of a row, to the next.
  int64_t channel_stride() const { return main_ < 0 ? 0 : access_[size_t(main_)].c; }
  int64_t row_stride() const { return main_ < 0 ? 0 : access_[size_t(main_)].w; }

  // What a task needs.
  struct Work {
    Frame<T> frame;
    void** base = nullptr;
    int64_t *offset = nullptr, *stride = nullptr;
  };
  void cut(Cutter&, Work&) const;
  void start(const Memory&, Work&) const;

  // The first position of a row: sample, channel, depth, height, width.
  struct Position {
    int64_t n, c, d, h, w;
  };
  void load(Work&, const Position&, int64_t count, int64_t lanes, T* to) const;
  void store(Work&, const Position&, int64_t count, int64_t lanes, const T* from) const;

 private:
  struct Strides {
    int64_t n, c, d, h, w;
  };
  // body(lanes done, lanes), the frame's offsets and strides being set.
  template <class Body>
  void each_run(Work&, const Position&, int64_t count, int64_t lanes, const Body& body) const;

  fuse::PwProgram program_;
  std::vector<Strides> access_;
  int main_ = -1, in_ = -1;  // an access; the instruction
  bool plain_ = false;       // only loads, or only stores
  BlockOps<T> uniform_, ops_;
  int slots_ = 0;
};

}  // namespace tilewright::cpu
