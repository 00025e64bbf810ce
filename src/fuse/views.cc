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

}  // namespace

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

}  // namespace tilewright::fuse
