// resample and resample_backward, with the pointwise nodes around them. Lanes are neighbouring channels where those lie
// side by side in memory, else there is one channel at a time and rows run along the last spatial dim.
//
// Forward, without Index: the rows of the input that a row of windows covers are joined element by element, and then
// the elements along the joined row, so that most of the work is whole vectors. Everything else goes window by window.
#include "ops/pooling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/numeric_types.h"
#include "base/thread_pool.h"
#include "engines/cpu/kernel.h"
#include "engines/cpu/plane_rows.h"

namespace tilewright::cpu {
namespace {

constexpr int64_t kRowElements = 8192;          // of a row of lanes in flight
constexpr int64_t kPlaneElements = 128 * 1024;  // of a plane of lanes in flight

void load(const void* m, DataType_t t, int64_t at, int64_t stride, int64_t n, float* out) {
  load_floats(m, t, at, stride, n, out);
}
void load(const void* m, DataType_t t, int64_t at, int64_t stride, int64_t n, double* out) {
  load_doubles(m, t, at, stride, n, out);
}
void store(void* m, DataType_t t, int64_t at, int64_t stride, int64_t n, const float* in) {
  store_floats(m, t, at, stride, n, in);
}
void store(void* m, DataType_t t, int64_t at, int64_t stride, int64_t n, const double* in) {
  store_doubles(m, t, at, stride, n, in);
}

// Index, [N, C, spatial...] with three spatial dims, missing ones in front.
struct Plane {
  ir::TensorId id = ir::kNone;
  DataType_t type = DataType_t::FLOAT;
  int64_t n = 0, c = 0, d = 0, h = 0, w = 0;  // strides
};

struct Range {
  int64_t begin, end;
};

template <class T>
class Pool : public Kernel {
 public:
  Pool(const fuse::FusedGraph& fused, const fuse::Region& region, const ir::Node& node)
      : pool_(ops::pooling_of(fused.graph, node)), forward_(std::string_view(node.op->name) == "resample") {
    const size_t missing = 3 - pool_.rank();
    for (Dims* list : {&pool_.in, &pool_.out, &pool_.window, &pool_.stride}) list->insert(list->begin(), missing, 1);
    for (Dims* list : {&pool_.pre, &pool_.post}) list->insert(list->begin(), missing, 0);
    x_.prepare(region.operand[forward_ ? 0 : 1]);
    if (!forward_) dy_.prepare(region.operand[0]);
    result_.prepare(region.program);
    index_ = index_of(fused, forward_ ? node.out : node.in, forward_ ? 1 : 2);
    const Dims& dim = fused.graph.tensor(forward_ ? node.in[0] : node.out[0]).dim;
    batch_ = dim[0], channels_ = dim[1];
    const PlaneRows<T>& in = forward_ ? x_ : result_;
    const bool by_channel = std::abs(in.channel_stride()) < std::abs(in.row_stride()) || pool_.in[2] == 1;
    const int64_t beside = forward_ && index_.id == ir::kNone ? kRowElements / std::max<int64_t>(1, pool_.in[2])
                                                              : kPlaneElements / std::max<int64_t>(1, volume(pool_.in));
    lanes_ =
        by_channel ? std::clamp<int64_t>(beside, 1, std::min<int64_t>(kLanes, std::max<int64_t>(1, channels_))) : 1;
    lane_blocks_ = (channels_ + lanes_ - 1) / lanes_;
  }

  void run(const Memory& memory, char*) const override {
    if (!forward_) {
      parallel_for(batch_ * lane_blocks_, [&](int64_t task) { backward(memory, task); });
    } else {
      parallel_for(batch_ * lane_blocks_ * pool_.out[0] * pool_.out[1],
                   [&](int64_t task) { index_.id == ir::kNone ? row(memory, task) : row_with_index(memory, task); });
    }
  }

  std::string describe() const override {
    return fmt::format("windows {}, {} channel{} at a time{}", to_text(pool_.window), lanes_, lanes_ == 1 ? "" : "s",
                       sizeof(T) == 8 ? ", in double" : "");
  }

 private:
  // The positions in window `o` of dim d that lie inside the input; window position 0 is at `start`.
  Range inside(size_t d, int64_t o) const {
    const int64_t start = start_of(d, o);
    return {std::max<int64_t>(0, -start), std::min(pool_.window[d], pool_.in[d] - start)};
  }
  int64_t start_of(size_t d, int64_t o) const { return o * pool_.stride[d] - pool_.pre[d]; }
  double divisor(int64_t inside) const {
    return double(pool_.mode == ResampleMode_t::AVGPOOL_INCLUDE_PADDING ? volume(pool_.window) : inside);
  }

  void join(T* to, const T* with, int64_t n) const {
    lane_ops<T>().pointwise[int(pool_.max() ? PointwiseMode_t::MAX : PointwiseMode_t::ADD)](to, to, with, nullptr, n,
                                                                                            PwParams());
  }

  // A tensor that nobody reads is not in memory.
  static Plane index_of(const fuse::FusedGraph& fused, const std::vector<ir::TensorId>& list, size_t port) {
    if (port >= list.size() || list[port] == ir::kNone || fused.place[size_t(list[port])].root == ir::kNone) return {};
    const ir::Tensor& t = fused.graph.tensor(list[port]);
    const auto spatial = [&](size_t from_last) {
      return from_last + 2 < t.dim.size() ? t.stride[t.dim.size() - 1 - from_last] : 0;
    };
    return {list[port], t.storage_type(), t.stride[0], t.stride[1], spatial(2), spatial(1), spatial(0)};
  }

  // Where a task is: sample, channels, and the row of windows.
  struct Place {
    int64_t n, c, lanes, d, h;
    typename PlaneRows<T>::Position position(int64_t at_d, int64_t at_h) const { return {n, c, at_d, at_h, 0}; }
  };
  Place place_of(int64_t task) const {
    Place p;
    p.h = task % pool_.out[1], task /= pool_.out[1];
    p.d = task % pool_.out[0], task /= pool_.out[0];
    p.c = task % lane_blocks_ * lanes_, p.n = task / lane_blocks_;
    p.lanes = std::min(lanes_, channels_ - p.c);
    return p;
  }

  // Rows of Index along the last spatial dim, as [count][lanes]: body(offset, stride, lanes, where they are in the
  // row).
  template <class Body>
  void each_index_run(const Place& p, int64_t d, int64_t h, int64_t count, const Body& body) const {
    const int64_t at = p.n * index_.n + p.c * index_.c + d * index_.d + h * index_.h;
    if (p.lanes == 1) return body(at, index_.w, count, 0);
    for (int64_t w = 0; w < count; ++w) body(at + w * index_.w, index_.c, p.lanes, w * p.lanes);
  }

  // The scratch of a task: rows or planes of the input, a and b, and rows of the result.
  struct Work {
    typename PlaneRows<T>::Work x, dy, result;
    T *a, *b, *p, *q;
  };
  Work work(const Memory& memory, int64_t a, int64_t b, int64_t out) const {
    Work w;
    cut_scratch([&](Cutter& c) {
      x_.cut(c, w.x), dy_.cut(c, w.dy), result_.cut(c, w.result);
      w.a = c.template take<T>(a), w.b = c.template take<T>(b);
      w.p = c.template take<T>(out), w.q = c.template take<T>(out);
    });
    x_.start(memory, w.x), dy_.start(memory, w.dy), result_.start(memory, w.result);
    return w;
  }

  void row(const Memory& memory, int64_t task) const {
    const Place p = place_of(task);
    const int64_t width = pool_.in[2], out_width = pool_.out[2], lanes = p.lanes;
    Work work = this->work(memory, width * lanes, width * lanes, out_width * lanes);
    T *const joined = work.a, *const fresh = work.b, *const out = work.p, *const count = work.q;
    const T empty = pool_.max() ? -std::numeric_limits<T>::infinity() : T(0);
    const Range ds = inside(0, p.d), hs = inside(1, p.h);
    bool first = true;
    for (int64_t d = ds.begin; d < ds.end; ++d)
      for (int64_t h = hs.begin; h < hs.end; ++h, first = false) {
        x_.load(work.x, p.position(start_of(0, p.d) + d, start_of(1, p.h) + h), width, lanes, first ? joined : fresh);
        if (!first) join(joined, fresh, width * lanes);
      }
    if (first) std::fill_n(joined, width * lanes, empty);
    const int64_t rows = std::max<int64_t>(0, ds.end - ds.begin) * std::max<int64_t>(0, hs.end - hs.begin);
    if (lanes == 1) join_along(joined, out);
    const bool all_alike = pool_.mode == ResampleMode_t::AVGPOOL_INCLUDE_PADDING;
    if (all_alike) std::fill_n(count, out_width * lanes, T(volume(pool_.window)));
    for (int64_t o = 0; o < out_width; ++o) {
      const Range ws = inside(2, o);
      const T* const from = joined + start_of(2, o) * lanes;
      if (lanes > 1 && ws.begin >= ws.end) {
        std::fill_n(out + o * lanes, lanes, empty);
      } else if (lanes > 1) {
        std::copy_n(from + ws.begin * lanes, lanes, out + o * lanes);
        for (int64_t w = ws.begin + 1; w < ws.end; ++w) join(out + o * lanes, from + w * lanes, lanes);
      }
      if (!pool_.max() && !all_alike)
        std::fill_n(count + o * lanes, lanes, T(rows * std::max<int64_t>(0, ws.end - ws.begin)));
    }
    if (!pool_.max())
      lane_ops<T>().pointwise[int(PointwiseMode_t::DIV)](out, out, count, nullptr, out_width * lanes, PwParams());
    result_.store(work.result, p.position(p.d, p.h), out_width, lanes, out);
  }

  // One channel: window position by window position, along all windows that have it inside the input.
  void join_along(const T* joined, T* out) const {
    const int64_t stride = pool_.stride[2], width = pool_.in[2], pre = pool_.pre[2];
    std::fill_n(out, pool_.out[2], pool_.max() ? -std::numeric_limits<T>::infinity() : T(0));
    for (int64_t w = 0; w < pool_.window[2]; ++w) {
      const int64_t first = std::max<int64_t>(0, (pre - w + stride - 1) / stride);
      const int64_t last = width - 1 + pre - w < 0 ? -1 : std::min(pool_.out[2] - 1, (width - 1 + pre - w) / stride);
      const T* const from = joined + w - pre;
      if (pool_.max())
        for (int64_t o = first; o <= last; ++o) {
          const T v = from[o * stride], a = out[o];
          out[o] = (v > a) | (v != v) ? v : a;
        }
      else
        for (int64_t o = first; o <= last; ++o) out[o] += from[o * stride];
    }
  }

  // The maximum of each lane in a window and where it is: the first of equals, the first NaN.
  struct Best {
    T value[kLanes];
    T window[kLanes];       // position in the window
    int64_t input[kLanes];  // position in the input plane; -1: nothing but padding
  };
  // value(d, h, w): the lanes at a position of the input.
  template <class Value>
  void find_best(int64_t od, int64_t oh, int64_t ow, int64_t lanes, Best& best, const Value& value) const {
    std::fill_n(best.value, lanes, -std::numeric_limits<T>::infinity());
    std::fill_n(best.window, lanes, T(0));
    std::fill_n(best.input, lanes, int64_t(-1));
    each_in_window(od, oh, ow, [&](int64_t w, int64_t q) {
      const T* const v = value(q);
      for (int64_t l = 0; l < lanes; ++l) {
        const bool better =
            best.input[l] < 0 || v[l] > best.value[l] || (v[l] != v[l] && best.value[l] == best.value[l]);
        best.value[l] = better ? v[l] : best.value[l];
        best.window[l] = better ? T(w) : best.window[l];
        best.input[l] = better ? q : best.input[l];
      }
    });
  }
  template <class Body>
  void each_in_window(int64_t od, int64_t oh, int64_t ow, const Body& body) const {
    const Range ds = inside(0, od), hs = inside(1, oh), ws = inside(2, ow);
    for (int64_t d = ds.begin; d < ds.end; ++d)
      for (int64_t h = hs.begin; h < hs.end; ++h)
        for (int64_t w = ws.begin; w < ws.end; ++w)
          body((d * pool_.window[1] + h) * pool_.window[2] + w,
               ((start_of(0, od) + d) * pool_.in[1] + start_of(1, oh) + h) * pool_.in[2] + start_of(2, ow) + w);
  }

  void row_with_index(const Memory& memory, int64_t task) const {
    const Place p = place_of(task);
    const int64_t width = pool_.in[2], height = pool_.in[1], lanes = p.lanes, out_width = pool_.out[2];
    const Range ds = inside(0, p.d), hs = inside(1, p.h);
    const int64_t d0 = start_of(0, p.d), h0 = start_of(1, p.h), first = (d0 + ds.begin) * height + h0 + hs.begin;
    const int64_t rows = std::max<int64_t>(0, (ds.end - ds.begin - 1) * height + hs.end - hs.begin);
    Work work = this->work(memory, rows * width * lanes, 0, out_width * lanes);
    for (int64_t d = ds.begin; d < ds.end; ++d)
      for (int64_t h = hs.begin; h < hs.end; ++h)
        x_.load(work.x, p.position(d0 + d, h0 + h), width, lanes,
                work.a + ((d0 + d) * height + h0 + h - first) * width * lanes);
    Best best;
    for (int64_t o = 0; o < out_width; ++o) {
      find_best(p.d, p.h, o, lanes, best, [&](int64_t q) { return work.a + (q - first * width) * lanes; });
      std::copy_n(best.value, lanes, work.p + o * lanes);
      std::copy_n(best.window, lanes, work.q + o * lanes);
    }
    result_.store(work.result, p.position(p.d, p.h), out_width, lanes, work.p);
    each_index_run(p, p.d, p.h, out_width, [&](int64_t at, int64_t stride, int64_t n, int64_t done) {
      store(memory.tensor(index_.id), index_.type, at, stride, n, work.q + done);
    });
  }

  // --- backward: the windows of one plane add to the same elements ---------------------------------------------------
  void backward(const Memory& memory, int64_t task) const {
    Place p{task / lane_blocks_, task % lane_blocks_ * lanes_, 0, 0, 0};
    p.lanes = std::min(lanes_, channels_ - p.c);
    const bool by_index = pool_.max() && index_.id != ir::kNone, by_value = pool_.max() && !by_index;
    const int64_t in = volume(pool_.in), width = pool_.in[2], out_width = pool_.out[2], lanes = p.lanes;
    Work work = this->work(memory, in * lanes, by_value ? in * lanes : 0, out_width * lanes);
    T *const sum = work.a, *const x = work.b, *const g = work.p, *const position = work.q;
    std::fill_n(sum, in * lanes, T(0));
    const auto each_row = [&](const auto& body) {
      for (int64_t d = 0; d < pool_.in[0]; ++d)
        for (int64_t h = 0; h < pool_.in[1]; ++h) body(d, h, (d * pool_.in[1] + h) * width * lanes);
    };
    if (by_value)
      each_row([&](int64_t d, int64_t h, int64_t to) { x_.load(work.x, p.position(d, h), width, lanes, x + to); });
    for (int64_t d = 0; d < pool_.out[0]; ++d)
      for (int64_t h = 0; h < pool_.out[1]; ++h) {
        dy_.load(work.dy, p.position(d, h), out_width, lanes, g);
        if (by_index)
          each_index_run(p, d, h, out_width, [&](int64_t at, int64_t stride, int64_t n, int64_t done) {
            load(memory.tensor(index_.id), index_.type, at, stride, n, position + done);
          });
        for (int64_t w = 0; w < out_width; ++w) {
          T* const part = g + w * lanes;
          if (by_value) give_to_largest(d, h, w, lanes, part, x, sum);
          else if (by_index) give_to_named(d, h, w, lanes, part, position + w * lanes, sum);
          else give_to_all(d, h, w, lanes, part, sum);
        }
      }
    each_row([&](int64_t d, int64_t h, int64_t from) {
      result_.store(work.result, p.position(d, h), width, lanes, sum + from);
    });
  }
  void give_to_all(int64_t d, int64_t h, int64_t w, int64_t lanes, T* part, T* sum) const {
    int64_t count = 0;
    each_in_window(d, h, w, [&](int64_t, int64_t) { ++count; });
    const T by = T(divisor(count));
    for (int64_t l = 0; l < lanes; ++l) part[l] /= by;
    each_in_window(d, h, w, [&](int64_t, int64_t q) {
      for (int64_t l = 0; l < lanes; ++l) sum[q * lanes + l] += part[l];
    });
  }
  void give_to_named(int64_t d, int64_t h, int64_t w, int64_t lanes, const T* part, const T* position, T* sum) const {
    each_in_window(d, h, w, [&](int64_t k, int64_t q) {
      for (int64_t l = 0; l < lanes; ++l) sum[q * lanes + l] += position[l] == T(k) ? part[l] : T(0);
    });
  }
  void give_to_largest(int64_t d, int64_t h, int64_t w, int64_t lanes, const T* part, const T* x, T* sum) const {
    Best best;
    find_best(d, h, w, lanes, best, [&](int64_t q) { return x + q * lanes; });
    for (int64_t l = 0; l < lanes; ++l)
      if (best.input[l] >= 0) sum[best.input[l] * lanes + l] += part[l];
  }

  ops::Pooling pool_;
  bool forward_;
  PlaneRows<T> x_, dy_, result_;  // result_: Y or DX
  Plane index_;
  int64_t batch_ = 0, channels_ = 0, lanes_ = 1, lane_blocks_ = 1;
};

bool wide(DataType_t t) { return t == DataType_t::DOUBLE || t == DataType_t::INT32 || t == DataType_t::INT64; }

}  // namespace

std::unique_ptr<Kernel> make_pool(const fuse::FusedGraph& fused, const fuse::Region& region) {
  const ir::Node& node = fused.graph.nodes[size_t(region.heavy)];
  bool in_double = wide(node.compute) || region.program.needs_double();
  for (const fuse::PwProgram& p : region.operand) in_double |= p.needs_double();
  for (const auto* list : {&node.in, &node.out})
    for (ir::TensorId id : *list) in_double |= id != ir::kNone && wide(fused.graph.tensor(id).type);
  if (in_double) return std::make_unique<Pool<double>>(fused, region, node);
  return std::make_unique<Pool<float>>(fused, region, node);
}

}  // namespace tilewright::cpu
