#include "fuse/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "ops/pointwise.h"

namespace tilewright::fuse {
namespace {

using ir::kNone;
using ir::Node;
using ir::Role;
using ir::Tensor;
using ir::TensorId;

struct Seen {
  View view;
  int64_t offset = 0;
};

// y as a view of x's memory.
Seen view_of(const Node& n, const Tensor& x, const Tensor& y) {
  const std::string_view op = n.op->name;
  Seen s;
  s.view.dim = y.dim;
  if (op == "transpose") {
    for (int64_t p : n.attr<Dims>("permutation")) s.view.stride.push_back(x.stride[size_t(p)]);
  } else if (op == "slice") {
    const Dims slices = n.attr<Dims>("slices");
    Dims step = n.attr<Dims>("slice_strides");
    step.resize(x.dim.size(), 1);
    for (size_t d = 0; d < x.dim.size(); ++d) {
      s.view.stride.push_back(y.dim[d] > 1 ? x.stride[d] * step[d] : x.stride[d]);
      s.offset += x.stride[d] * slices[2 * d];
    }
  } else {
    s.view.stride = y.stride;
  }
  return s;
}

ir::Node identity(const Node& of, TensorId from, TensorId to) {
  Node n;
  n.op = ir::find_op("pointwise");
  n.name = of.name;
  n.compute = of.compute;
  n.attrs["mode"] = to_string(PointwiseMode_t::IDENTITY);
  n.in = {from, kNone, kNone};
  n.out = {to};
  return n;
}

bool read_by_reshape(const ir::Graph& g, TensorId t) {
  for (const Node& n : g.nodes)
    if (n.op && std::string_view(n.op->name) == "reshape" && n.in[0] == t) return true;
  return false;
}

}  // namespace

bool is_view(const Node& n) {
  const std::string_view op = n.op->name;
  if (op == "slice" || op == "transpose") return true;
  return op == "reshape" && n.attr_enum("reshape_mode", ReshapeMode_t::VIEW_ONLY) == ReshapeMode_t::VIEW_ONLY;
}

namespace {

bool is_logical_reshape(const Node& n) {
  return std::string_view(n.op->name) == "reshape" &&
         n.attr_enum("reshape_mode", ReshapeMode_t::VIEW_ONLY) == ReshapeMode_t::LOGICAL;
}

bool row_major(const Tensor& t) {
  const Dims stride = row_major_strides(t.dim);
  for (size_t d = 0; d < t.dim.size(); ++d)
    if (t.dim[d] > 1 && t.stride[d] != stride[d]) return false;
  return true;
}

TensorId add_virtual(FusedGraph& f, Tensor like, const char* suffix, Place place) {
  like.role = Role::Virtual;
  like.name += suffix;
  like.value.reset();
  f.graph.tensors.push_back(std::move(like));
  f.place.push_back(place);
  return TensorId(f.graph.tensors.size()) - 1;
}

bool fits_loops(const Tensor& t) {
  return element_bits(t.storage_type()) >= 8 && t.dim.size() <= size_t(kMaxRank) && t.ragged_offset == kNone &&
         t.reordering == TensorReordering_t::NONE;
}

// Rewrites nodes: each becomes what `replace` appends, or stays.
template <class Replace>
void rewrite(FusedGraph& f, const Replace& replace) {
  std::vector<Node> nodes;
  std::vector<ir::NodeId> origin;
  const std::vector<Node> given = std::move(f.graph.nodes);
  for (size_t i = 0; i < given.size(); ++i) {
    if (!replace(given[i], nodes)) nodes.push_back(given[i]);
    origin.resize(nodes.size(), f.origin[i]);
  }
  f.graph.nodes = std::move(nodes);
  f.origin = std::move(origin);
}

}  // namespace

void lower_movement(FusedGraph& f) {
  rewrite(f, [&](const Node& n, std::vector<Node>& nodes) {
    if (is_logical_reshape(n)) {
      // The elements in row-major order: a view of x if it lies so in memory, else of a copy that does.
      const Tensor x = f.graph.tensor(n.in[0]), y = f.graph.tensor(n.out[0]);
      if (!fits_loops(x) || !fits_loops(y) || y.bit_packed || (x.type != y.type && is_integer_type(y.type)))
        return false;
      TensorId from = n.in[0];
      if (!row_major(x) || x.role == Role::Scalar || x.value) {
        Tensor dense = x;
        dense.stride = row_major_strides(x.dim);
        from = add_virtual(f, dense, " (row-major)", {});
        nodes.push_back(identity(n, n.in[0], from));
      }
      Tensor seen = y;
      seen.stride = row_major_strides(y.dim);
      seen.type = x.type;
      const TensorId to = add_virtual(f, seen, " (reshaped)", {});
      Node view = n;
      view.attrs["reshape_mode"] = to_string(ReshapeMode_t::VIEW_ONLY);
      view.attrs.erase("dim");
      view.attrs.erase("stride");
      view.in[0] = from;
      view.out = {to};
      nodes.push_back(view);
      nodes.push_back(identity(n, to, n.out[0]));
      return true;
    }
    if (std::string_view(n.op->name) == "concatenate") {
      // Copies into the parts of y; first that of the input whose memory may be its own part.
      const TensorId y = n.out[0];
      const Tensor whole = f.graph.tensor(y);
      if (!fits_loops(whole) || whole.bit_packed) return false;
      for (TensorId x : n.in)
        if (!fits_loops(f.graph.tensor(x))) return false;
      if (f.place[size_t(y)].root == kNone) {
        f.place[size_t(y)].root = y;
        f.notes.push_back(fmt::format("virtual tensor \"{}\" is in memory: it is put together there", whole.name));
      }
      const size_t axis = size_t(n.attr<int64_t>("axis"));
      const size_t first = nodes.size(), in_place = size_t(n.attr<int64_t>("in_place_index", 0));
      int64_t before = 0;
      for (TensorId x : n.in) {
        Tensor part = whole;
        part.dim = f.graph.tensor(x).dim;
        Place place = f.place[size_t(y)];
        place.offset += before * whole.stride[axis];
        before += part.dim[axis];
        nodes.push_back(identity(n, x, add_virtual(f, part, " (part)", place)));
      }
      std::rotate(nodes.begin() + long(first), nodes.begin() + long(first + in_place),
                  nodes.begin() + long(first + in_place + 1));
      return true;
    }
    return false;
  });
}

void fold_views(FusedGraph& f) {
  ir::Graph& g = f.graph;
  std::vector<Node> nodes;
  std::vector<ir::NodeId> origin;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    auto keep = [&](Node node) {
      nodes.push_back(std::move(node));
      origin.push_back(f.origin[i]);
    };
    if (!is_view(n)) {
      keep(n);
      continue;
    }
    const TensorId x = n.in[0], y = n.out[0];
    const Tensor from = g.tensor(x);
    const Tensor to = g.tensor(y);
    // A sub-byte element has no address, a stored scalar no memory, and an integer result of another type rounds.
    const bool foldable = !from.value && from.role != Role::Scalar && element_bits(from.storage_type()) >= 8 &&
                          !to.bit_packed && from.dim.size() <= size_t(kMaxRank) && to.dim.size() <= size_t(kMaxRank) &&
                          !(from.type != to.type && is_integer_type(to.type));
    if (!foldable) {
      keep(n);
      continue;
    }
    // A reshape that changes nothing is a copy of the value, which fuses better than a view of memory.
    if (from.dim == to.dim && std::string_view(n.op->name) == "reshape" && from.stride == to.stride) {
      keep(identity(n, x, y));
      continue;
    }
    const Seen seen = view_of(n, from, to);
    Place place = f.place[size_t(x)];
    if (place.root == kNone) {  // a virtual tensor must be in memory for this
      place.root = x;
      f.place[size_t(x)] = place;
      f.notes.push_back(fmt::format("virtual tensor \"{}\" is in memory: \"{}\" is a view of it", from.name, to.name));
    }
    place.offset += seen.offset;
    TensorId view = y;
    // A real tensor must be written. A reshape of the result looks at the memory that its own strides describe.
    if (to.role != Role::Virtual || (seen.view.stride != to.stride && read_by_reshape(g, y))) {
      Tensor hidden = to;
      hidden.role = Role::Virtual;
      hidden.name = to.name + " (view)";
      view = TensorId(g.tensors.size());
      g.tensors.push_back(std::move(hidden));
      f.place.push_back({});
      keep(identity(n, view, y));
    }
    g.tensors[size_t(view)].type = from.type;
    g.tensors[size_t(view)].stride = seen.view.stride;
    f.place[size_t(view)] = place;
  }
  g.nodes = std::move(nodes);
  f.origin = std::move(origin);
}

}  // namespace tilewright::fuse
