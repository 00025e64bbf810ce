#include "engines/cpu/plane_rows.h"

#include <algorithm>

#include "engines/cpu/packing.h"

namespace tilewright::cpu {

using fuse::Instr;
using fuse::PwOp;

template <class T>
void PlaneRows<T>::prepare(const fuse::PwProgram& program) {
  program_ = program;
  int64_t most = -1;
  for (const Instr& i : program_.code) {
    if (i.op != (program_.result < 0 ? PwOp::Store : PwOp::Load)) continue;
    const Dims& s = program_.access[size_t(i.access)].stride;
    const int64_t moving = int64_t(s.size()) - std::count(s.begin(), s.end(), 0);
    if (moving > most) most = moving, main_ = i.access;
  }
  for (const fuse::Access& a : program_.access) {
    const size_t rank = a.stride.size();
    access_.push_back({a.stride[0], a.stride[1], rank > 4 ? a.stride[rank - 3] : 0, rank > 3 ? a.stride[rank - 2] : 0,
                       a.stride[rank - 1]});
  }
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
  // Every load of a block comes before the stores to it.
  std::stable_partition(rest.begin(), rest.end(), [&](int k) { return program_.code[size_t(k)].op != PwOp::Store; });
  uniform_ = make_ops<T>(program_, uniform);
  ops_ = make_ops<T>(program_, rest);
  plain_ = uniform.empty() && ops_.size() == (program_.result < 0 ? 2 : 1) && main_ >= 0;
  slots_ = assign_slots<T>({&uniform_}, {&ops_}, int(program_.code.size()));
}

template <class T>
void PlaneRows<T>::cut(Cutter& c, Work& w) const {
  const int64_t accesses = int64_t(program_.access.size());
  w.frame.value = c.template take<const T*>(int64_t(program_.code.size()));
  w.frame.buffers = c.template take<T>(int64_t(slots_) * kLanes);
  w.base = c.template take<void*>(accesses);
  w.offset = c.template take<int64_t>(accesses);
  w.stride = c.template take<int64_t>(accesses);
}

template <class T>
void PlaneRows<T>::start(const Memory& memory, Work& w) const {
  resolve(memory, program_, w.base);
  w.frame.memory = w.base;
  w.frame.offset = w.offset;
  w.frame.lane_stride = w.stride;
  w.frame.tensors = &memory;
  w.frame.n = kLanes;
  run_ops(uniform_, w.frame);
}

template <class T>
template <class Body>
void PlaneRows<T>::each_run(Work& w, const Position& p, int64_t count, int64_t lanes, const Body& body) const {
  // Channels that go on from position to position are one run.
  bool along_channels = lanes > 1, in_line = along_channels;
  for (const Strides& s : access_) in_line = in_line && s.w == s.c * lanes;
  const int64_t n = in_line ? count * lanes : along_channels ? lanes : count;
  for (size_t a = 0; a < access_.size(); ++a) w.stride[a] = along_channels ? access_[a].c : access_[a].w;
  for (int64_t done = 0; done < count * lanes; done += n)
    for (int64_t i = 0; i < n; i += kLanes) {
      for (size_t a = 0; a < access_.size(); ++a) {
        const Strides& s = access_[a];
        w.offset[a] = program_.access[a].offset + p.n * s.n + p.c * s.c + p.d * s.d + p.h * s.h +
                      (p.w + (along_channels ? done / lanes : 0)) * s.w + i * w.stride[a];
      }
      w.frame.n = std::min<int64_t>(kLanes, n - i);
      body(done + i, w.frame.n);
    }
}

template <class T>
void PlaneRows<T>::load(Work& w, const Position& p, int64_t count, int64_t lanes, T* to) const {
  each_run(w, p, count, lanes, [&](int64_t done, int64_t n) {
    if (plain_)
      return load_values(w.base[main_], program_.access[size_t(main_)].type, w.offset[main_], w.stride[main_], n,
                         to + done);
    run_ops(ops_, w.frame);
    std::copy_n(w.frame.value[program_.result], n, to + done);
  });
}

template <class T>
void PlaneRows<T>::store(Work& w, const Position& p, int64_t count, int64_t lanes, const T* from) const {
  each_run(w, p, count, lanes, [&](int64_t done, int64_t) {
    w.frame.value[in_] = from + done;
    run_ops(ops_, w.frame);
  });
}

template class PlaneRows<float>;
template class PlaneRows<double>;

}  // namespace tilewright::cpu
