#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

#include "fuse/views.h"
#include "ops/pointwise.h"

namespace tilewright::fuse {
namespace {

using ir::kNone;
using ir::Node;
using ir::NodeId;
using ir::Role;
using ir::Tensor;
using ir::TensorId;

constexpr int kMaxCopies = 12;  // nodes computed anew for a view

struct Strides {
  Dims stride;
  int64_t offset = 0;
};

// Strides over the dims of `from` as strides over those of `to`, where both views describe the same packed memory, each
// element at one address. Empty if they are not, or if no strides over `to` visit the elements.
std::optional<Dims> restride(const View& from, const View& to, const Dims& stride) {
  const auto packed = [](const View& v) {  // the dims of more than one element, fastest first
    std::vector<size_t> order;
    for (size_t d = 0; d < v.dim.size(); ++d)
      if (v.dim[d] != 1) order.push_back(d);
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return v.stride[a] < v.stride[b]; });
    int64_t next = 1;
    for (size_t d : order) {
      if (v.stride[d] != next || v.dim[d] == 0) return std::optional<std::vector<size_t>>();
      next *= v.dim[d];
    }
    return std::optional(order);
  };
  const auto read = packed(from), made = packed(to);
  if (!read || !made || volume(from.dim) != volume(to.dim)) return {};
  Dims out(to.dim.size(), 0);
  size_t at = 0;
  int64_t left = 1, step = 0;  // of the dim of `from` in hand: elements, and how far apart
  for (size_t d : *made) {
    for (int64_t rest = to.dim[d]; rest > 1;) {
      const bool first = rest == to.dim[d];
      if (left == 1) {
        const size_t next = (*read)[at++];
        if (!first && stride[next] != step) return {};  // the dim does not go on evenly
        left = from.dim[next], step = stride[next];
      }
      if (first) out[d] = step;
      const int64_t some = std::min(left, rest);
      if (left % some || rest % some) return {};
      left /= some, rest /= some, step *= some;
    }
  }
  return out;
}

// Strides over x's dims as strides over y's, y being a view of x.
std::optional<Strides> through(const Node& n, const View& x, const Tensor& y, const Dims& stride) {
  const std::string_view op = n.op->name;
  Strides s;
  if (op == "transpose") {
    for (int64_t p : n.attr<Dims>("permutation")) s.stride.push_back(stride[size_t(p)]);
  } else if (op == "slice") {
    const Dims slices = n.attr<Dims>("slices");
    Dims step = n.attr<Dims>("slice_strides");
    step.resize(x.dim.size(), 1);
    for (size_t d = 0; d < x.dim.size(); ++d) {
      s.stride.push_back(y.dim[d] > 1 ? stride[d] * step[d] : stride[d]);
      s.offset += stride[d] * slices[2 * d];
    }
  } else if (stride == x.stride) {
    s.stride = y.stride;
  } else {
    const auto over_y = restride(x, y.view(), stride);
    if (!over_y) return {};
    s.stride = *over_y;
  }
  return s;
}

class ViewFolding {
 public:
  ViewFolding(FusedGraph& f, bool rewrite) : f_(f), g_(f.graph), rewrite_(rewrite) {
    const ir::Links links = ir::links(g_);
    producer_ = links.producer;
    consumers_ = links.consumers;
    given_ = std::move(g_.nodes);
    given_origin_ = std::move(f_.origin);
    behind_.resize(g_.tensors.size());
  }

  void run() {
    for (size_t i = 0; i < given_.size(); ++i) {
      now_ = NodeId(i);
      const Node& n = given_[i];
      if (is_view(n)) view(n);
      else if (!compute_before(n)) keep(n);
    }
    g_.nodes = std::move(nodes_);
    f_.origin = std::move(origin_);
  }

 private:
  // A tensor that is a view of one that may not be in memory: `base` seen with other dims and strides.
  struct Behind {
    TensorId base = kNone;
    View seen;
  };

  void add(Node n, NodeId origin) {
    for (TensorId t : n.out)
      if (t != kNone) maker_[t] = nodes_.size();
    nodes_.push_back(std::move(n));
    origin_.push_back(origin);
  }
  // A node that reads memory.
  void keep(Node n) {
    for (TensorId t : n.in)
      if (t != kNone) settle(t);
    add(std::move(n), given_origin_[size_t(now_)]);
  }

  bool in_memory(TensorId t) const { return f_.place[size_t(t)].root != kNone; }
  bool waits(TensorId t) const { return size_t(t) < behind_.size() && behind_[size_t(t)].base != kNone; }
  bool same_frame(const Behind& a, const Behind& b) const {
    return a.seen.dim == b.seen.dim && a.seen.stride == b.seen.stride &&
           g_.tensor(a.base).dim == g_.tensor(b.base).dim && g_.tensor(a.base).stride == g_.tensor(b.base).stride;
  }

  // Puts the base in memory, where the reader of a view needs it there.
  void settle(TensorId t) {
    if (in_memory(t) || !waits(t)) return;
    const Behind b = behind_[size_t(t)];
    put_in_memory(b.base, g_.tensor(t).name);
    TensorId alias = t;
    if (b.seen.stride != g_.tensor(t).stride && read_by_reshape(t)) alias = copy_of_view(t);
    behind_[size_t(t)] = {};
    f_.place[size_t(alias)] = f_.place[size_t(b.base)];
    g_.tensors[size_t(alias)].type = g_.tensor(b.base).type;
    g_.tensors[size_t(alias)].stride = b.seen.stride;
  }
  // A view that t is a copy of: t is real, or a reshape looks at the memory that its own strides describe.
  TensorId copy_of_view(TensorId t) {
    const TensorId view = add_virtual(f_, g_.tensor(t), " (view)", {});
    add(identity(given_[size_t(now_)], view, t), given_origin_[size_t(now_)]);
    return view;
  }
  void put_in_memory(TensorId x, const std::string& view) {
    if (in_memory(x)) return;
    f_.place[size_t(x)].root = x;
    f_.notes.push_back(
        fmt::format("virtual tensor \"{}\" is in memory: \"{}\" is a view of it", g_.tensor(x).name, view));
  }

  bool read_by_reshape(TensorId t) const {
    return std::any_of(consumers_[size_t(t)].begin(), consumers_[size_t(t)].end(),
                       [&](NodeId c) { return std::string_view(given_[size_t(c)].op->name) == "reshape"; });
  }

  void view(const Node& n) {
    const TensorId x = n.in[0], y = n.out[0];
    const Tensor from = g_.tensor(x), to = g_.tensor(y);
    // A sub-byte element has no address, a stored scalar no memory, and an integer result of another type rounds.
    const bool foldable = !from.value && from.role != Role::Scalar && element_bits(from.storage_type()) >= 8 &&
                          !to.bit_packed && from.dim.size() <= size_t(kMaxRank) && to.dim.size() <= size_t(kMaxRank) &&
                          !(from.type != to.type && is_integer_type(to.type));
    if (!foldable) return keep(n);
    // A reshape that changes nothing is a copy of the value, which fuses better than a view of memory.
    if (from.dim == to.dim && std::string_view(n.op->name) == "reshape" && from.stride == to.stride) {
      const Node copy = identity(n, x, y);
      if (!compute_before(copy)) keep(copy);
      return;
    }
    if (rewrite_ && !in_memory(x) && (compute_anew(n) || look_behind(n))) return;
    settle(x);
    put_in_memory(x, to.name);
    const Strides seen = *through(n, g_.tensor(x).view(), to, g_.tensor(x).stride);
    Place place = f_.place[size_t(x)];
    place.offset += seen.offset;
    TensorId view = y;
    if (to.role != Role::Virtual || (seen.stride != to.stride && read_by_reshape(y))) view = copy_of_view(y);
    g_.tensors[size_t(view)].type = from.type;
    g_.tensors[size_t(view)].stride = seen.stride;
    f_.place[size_t(view)] = place;
  }

  // --- operands seen through the view ------------------------------------------------------------------------------
  using Map = std::function<std::optional<Strides>(const Dims&)>;
  struct Copies {
    std::vector<Node> nodes;
    std::vector<NodeId> origin;
    std::map<TensorId, TensorId> made;
  };

  // t, of dims that broadcast to `from`, over the dims `to`: a view of memory, or computed anew from such. kNone if it
  // is neither.
  TensorId remake(TensorId t, const Dims& from, const Dims& to, const Map& map, Copies& copies) {
    const auto done = copies.made.find(t);
    if (done != copies.made.end()) return done->second;
    const Tensor tensor = g_.tensor(t);
    if (tensor.dim.size() > from.size()) return kNone;
    if (tensor.value || tensor.role == Role::Scalar) return tensor.dim.size() <= to.size() ? t : kNone;
    if (!fits_loops(tensor)) return kNone;
    const bool computed = !in_memory(t);
    if (computed && waits(t)) return kNone;
    Tensor like = tensor;
    like.dim = to;
    std::optional<Strides> seen;
    if (!computed || tensor.dim != from) {
      seen = map(broadcast_strides(tensor.view(), from));
      if (!seen) return kNone;
      for (size_t d = 0; d < to.size(); ++d)
        if (seen->stride[d] == 0) like.dim[d] = 1;
    }
    if (!computed) {
      Place place = f_.place[size_t(t)];
      place.offset += seen->offset;
      like.stride = seen->stride;
      return copies.made[t] = add_virtual(f_, like, " (view)", place);
    }
    const auto maker = maker_.find(t);
    if (maker == maker_.end() || copies.nodes.size() >= size_t(kMaxCopies)) return kNone;
    Node n = nodes_[maker->second];
    if (!is_plain(n)) return kNone;
    for (TensorId& in : n.in)
      if (in != kNone && (in = remake(in, from, to, map, copies)) == kNone) return kNone;
    like.stride = row_major_strides(like.dim);
    n.out = {copies.made[t] = add_virtual(f_, like, " (seen through a view)", {})};
    copies.nodes.push_back(n);
    copies.origin.push_back(origin_[maker->second]);
    return n.out[0];
  }

  // Pointwise, and the same wherever its elements lie.
  bool is_plain(const Node& n) const {
    return std::string_view(n.op->name) == "pointwise" && pointwise_mode(n) != PointwiseMode_t::GEN_INDEX &&
           fits_loops(g_.tensor(n.out[0]));
  }

  TensorId remake_all(TensorId t, const Dims& from, const Dims& to, const Map& map) {
    Copies copies;
    const size_t tensors = g_.tensors.size();
    const TensorId made = remake(t, from, to, map, copies);
    if (made == kNone) {
      g_.tensors.resize(tensors);
      f_.place.resize(tensors);
      return kNone;
    }
    for (size_t k = 0; k < copies.nodes.size(); ++k) add(std::move(copies.nodes[k]), copies.origin[k]);
    return made;
  }

  // y from what x is made of.
  bool compute_anew(const Node& n) {
    const TensorId x = n.in[0], y = n.out[0];
    const View view = g_.tensor(x).view();
    const Tensor to = g_.tensor(y);
    if (waits(x) || !fits_loops(to)) return false;
    const TensorId made =
        remake_all(x, view.dim, to.dim, [&](const Dims& stride) { return through(n, view, to, stride); });
    if (made == kNone) return false;
    add(identity(n, made, y), given_origin_[size_t(now_)]);
    return true;
  }

  // --- pointwise nodes behind the view, before it ------------------------------------------------------------------
  // What a tensor that is not in memory looks at, or would, if nothing put it there: itself, where no view made it.
  std::optional<Behind> behind(TensorId t) const {
    if (waits(t)) return behind_[size_t(t)];
    const NodeId p = producer_[size_t(t)];
    if (p < now_ || !is_view(given_[size_t(p)])) return Behind{t, g_.tensor(t).view()};
    const TensorId x = given_[size_t(p)].in[0];
    const auto b = in_memory(x) ? std::nullopt : behind(x);
    return b ? behind_view(given_[size_t(p)], *b) : std::nullopt;
  }
  std::optional<Behind> behind_view(const Node& n, Behind b) const {
    const TensorId y = n.out[0];
    if (std::string_view(n.op->name) == "slice" || g_.tensor(y).bit_packed || !fits_loops(g_.tensor(b.base))) return {};
    const auto seen = through(n, g_.tensor(n.in[0]).view(), g_.tensor(y), b.seen.stride);
    if (!seen) return {};
    b.seen = {g_.tensor(y).dim, seen->stride};
    const View base = g_.tensor(b.base).view();
    if (!restride(b.seen, base, b.seen.stride)) return {};
    return b;
  }

  bool look_behind(const Node& n) {
    const TensorId y = n.out[0];
    const Tensor to = g_.tensor(y);
    const auto behind = behind_view(n, *this->behind(n.in[0]));
    if (!behind) return false;
    if (to.role == Role::Virtual && behind->seen.stride != to.stride && read_by_reshape(y)) return false;
    std::map<TensorId, bool> known;
    if (!ends_in_memory(y, *behind, known)) return false;
    behind_[size_t(y)] = *behind;
    if (to.role != Role::Virtual) store_behind(behind->base, y, *behind, n);
    return true;
  }

  // Whether all that is made of t can be computed in the frame of the base, down to real tensors.
  bool ends_in_memory(TensorId t, const Behind& b, std::map<TensorId, bool>& known) {
    const auto [entry, fresh] = known.emplace(t, false);
    if (!fresh) return entry->second;
    const bool real = g_.tensor(t).role != Role::Virtual;
    if (real && (!fits_loops(g_.tensor(t)) || !restride(b.seen, g_.tensor(b.base).view(), g_.tensor(t).stride)))
      return false;
    bool all = real || !consumers_[size_t(t)].empty();
    for (NodeId c : consumers_[size_t(t)]) {
      const Node& n = given_[size_t(c)];
      const auto next = is_view(n)                        ? behind_view(n, b)
                        : can_compute_before(n, b, known) ? std::optional(b)
                                                          : std::nullopt;
      // Other readers of a real tensor read its memory.
      all = all && (real || (next && ends_in_memory(n.out[0], *next, known)));
    }
    return known[t] = all;
  }
  bool can_compute_before(const Node& n, const Behind& b, const std::map<TensorId, bool>& known) {
    if (!is_plain(n) || g_.tensor(n.out[0]).dim != b.seen.dim) return false;
    return std::all_of(n.in.begin(), n.in.end(), [&](TensorId t) { return t == kNone || can_remake(t, b, known, 0); });
  }
  // Roughly; what fails later is put in memory then.
  bool can_remake(TensorId t, const Behind& b, const std::map<TensorId, bool>& known, int depth) {
    const Tensor& tensor = g_.tensor(t);
    if (tensor.value || tensor.role == Role::Scalar || in_memory(t)) return true;
    if (waits(t)) return same_frame(behind_[size_t(t)], b);
    const NodeId p = producer_[size_t(t)];
    if (known.count(t)) return true;
    if (p < 0 || depth > kMaxCopies) return false;
    const Node& n = given_[size_t(p)];
    if (is_view(n)) {
      const auto other = behind(t);
      return in_memory(n.in[0]) || (other && same_frame(*other, b));
    }
    return is_plain(n) && std::all_of(n.in.begin(), n.in.end(),
                                      [&](TensorId in) { return in == kNone || can_remake(in, b, known, depth + 1); });
  }

  // A pointwise node that reads a waiting view is computed before it.
  bool compute_before(const Node& n) {
    const auto first = std::find_if(n.in.begin(), n.in.end(), [&](TensorId t) { return t != kNone && waits(t); });
    if (first == n.in.end()) return false;
    const Behind b = behind_[size_t(*first)];
    std::map<TensorId, bool> known;
    if (!can_compute_before(n, b, known) || !ends_in_memory(n.out[0], b, known)) return false;
    const Tensor base = g_.tensor(b.base);
    Node before = n;
    for (TensorId& t : before.in) {
      if (t == kNone) continue;
      if (waits(t)) {
        t = behind_[size_t(t)].base;
        continue;
      }
      t = remake_all(t, b.seen.dim, base.dim, [&](const Dims& stride) -> std::optional<Strides> {
        const auto over_base = restride(b.seen, base.view(), stride);
        if (!over_base) return {};
        return Strides{*over_base, 0};
      });
      if (t == kNone) return false;
    }
    const TensorId z = n.out[0];
    Tensor like = g_.tensor(z);
    like.dim = base.dim, like.stride = base.stride;
    before.out = {add_virtual(f_, like, " (before the view)", {})};
    behind_[size_t(z)] = {before.out[0], b.seen};
    add(before, given_origin_[size_t(now_)]);
    if (g_.tensor(z).role != Role::Virtual) store_behind(before.out[0], z, b, n);
    return true;
  }

  // Writes the real tensor y as the base lies.
  void store_behind(TensorId from, TensorId y, const Behind& b, const Node& of) {
    const Tensor base = g_.tensor(b.base);
    Tensor part = g_.tensor(y);
    part.stride = *restride(b.seen, base.view(), part.stride);
    part.dim = base.dim;
    add(identity(of, from, add_virtual(f_, part, " (stored)", f_.place[size_t(y)])), given_origin_[size_t(now_)]);
  }

  FusedGraph& f_;
  ir::Graph& g_;
  const bool rewrite_;
  std::vector<Node> given_, nodes_;
  std::vector<NodeId> given_origin_, origin_, producer_;
  std::vector<std::vector<NodeId>> consumers_;
  std::vector<Behind> behind_;        // by tensor that was given
  std::map<TensorId, size_t> maker_;  // the position in nodes_
  NodeId now_ = 0;
};

}  // namespace

void fold_views(FusedGraph& f, bool rewrite) { ViewFolding(f, rewrite).run(); }

}  // namespace tilewright::fuse
