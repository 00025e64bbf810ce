#include "fuse/views.h"

#include <fmt/format.h>

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
