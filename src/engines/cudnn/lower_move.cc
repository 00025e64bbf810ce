// Slices, transposes, reshapes and concatenations. cuDNN reads and writes any strides, so they are views of memory
// where they touch any: an operand that starts elsewhere, or a result that is written to its place at once. Only what
// must be in two places is copied.
#include <algorithm>

#include "engines/cudnn/lower_ops.h"

namespace tilewright::cudnn {
namespace {

using ir::NodeId;
using ir::TensorId;

bool is_reshape(const ir::Node& n) { return std::string_view(n.op->name) == "reshape"; }
bool is_logical(const ir::Node& n) {
  return is_reshape(n) && n.attr_enum("reshape_mode", ReshapeMode_t::VIEW_ONLY) == ReshapeMode_t::LOGICAL;
}

bool packed_row_major(const View& v) {
  const Dims packed = row_major_strides(v.dim);
  for (size_t d = 0; d < v.dim.size(); ++d)
    if (v.dim[d] > 1 && v.stride[d] != packed[d]) return false;
  return true;
}

// The result of a movement whose X lies in memory; null where the elements do not lie there as a view.
std::optional<Lowering::Part> moved(const Lowering& l, const ir::Node& n, const Lowering::Part& from) {
  const ir::Tensor &x = l.graph().tensor(n.in[0]), &y = l.graph().tensor(n.out[0]);
  const Dims& stride = from.view.stride;
  Lowering::Part part{from.root, from.offset, {y.dim, {}}};
  if (is_logical(n)) {
    if (!packed_row_major(from.view)) return std::nullopt;
    part.view.stride = row_major_strides(y.dim);
  } else if (is_reshape(n)) {
    if (stride != x.stride) return std::nullopt;  // it reads memory as X's own strides have it
    part.view.stride = y.stride;
  } else if (std::string_view(n.op->name) == "transpose") {
    for (int64_t p : n.attr<Dims>("permutation")) part.view.stride.push_back(stride[size_t(p)]);
  } else {
    const Dims slices = n.attr<Dims>("slices");
    Dims step = n.attr<Dims>("slice_strides");
    step.resize(x.dim.size(), 1);
    int64_t first = 0;
    for (size_t d = 0; d < x.dim.size(); ++d) {
      part.view.stride.push_back(y.dim[d] > 1 ? stride[d] * step[d] : stride[d]);
      first += stride[d] * slices[2 * d];
    }
    const int64_t bits = first * int64_t(element_bits(x.storage_type()));
    if (bits % 8 != 0) return std::nullopt;
    part.offset += bits / 8;
  }
  return part;
}

// Where X must lie for its elements to be in their places of Y; null where they cannot.
std::optional<Lowering::Part> moved_back(const Lowering& l, const ir::Node& n, const Lowering::Part& to) {
  const ir::Tensor &x = l.graph().tensor(n.in[0]), &y = l.graph().tensor(n.out[0]);
  const std::string_view op = n.op->name;
  if (op == "transpose") {
    Lowering::Part part{to.root, to.offset, {x.dim, Dims(x.dim.size())}};
    const Dims order = n.attr<Dims>("permutation");
    for (size_t d = 0; d < order.size(); ++d) part.view.stride[size_t(order[d])] = to.view.stride[d];
    return part;
  }
  if (op == "slice" || volume(x.dim) != volume(y.dim)) return std::nullopt;
  if (!is_logical(n)) {
    if (to.view.stride != y.stride || storage_elements(x.view()) != storage_elements(y.view())) return std::nullopt;
    return Lowering::Part{to.root, to.offset, x.view()};
  }
  if (!packed_row_major(to.view)) return std::nullopt;
  return Lowering::Part{to.root, to.offset, {x.dim, row_major_strides(x.dim)}};
}

// The places of a concatenation's inputs in its result.
std::vector<Lowering::Part> parts_of(const Lowering& l, const ir::Node& n, const Lowering::Part& whole) {
  const size_t axis = size_t(n.attr<int64_t>("axis"));
  std::vector<Lowering::Part> parts;
  int64_t before = 0;
  for (TensorId x : n.in) {
    const ir::Tensor& t = l.graph().tensor(x);
    const int64_t bytes = element_bits(t.storage_type()) / 8;
    parts.push_back({whole.root, whole.offset + before * whole.view.stride[axis] * bytes, {t.dim, whole.view.stride}});
    before += t.dim[axis];
  }
  return parts;
}

bool same_type(const Lowering& l, TensorId a, TensorId b) {
  return l.graph().tensor(a).storage_type() == l.graph().tensor(b).storage_type();
}

// cuDNN knows nothing of parts that share memory: what one operation writes no other may read under another name.
bool written_here(const Lowering& l, TensorId root) {
  return std::any_of(l.nodes().begin(), l.nodes().end(), [&](NodeId id) {
    const std::vector<TensorId>& out = l.node(id).out;
    return std::find(out.begin(), out.end(), root) != out.end();
  });
}
bool read_here(const Lowering& l, TensorId t) {
  return std::any_of(l.nodes().begin(), l.nodes().end(), [&](NodeId id) {
    const std::vector<TensorId>& in = l.node(id).in;
    return std::find(in.begin(), in.end(), t) != in.end();
  });
}

// Whether t, which lies at `place`, may be written under the names of its parts. What was put in its place has one
// reader, which then does nothing.
bool may_be_parts(const Lowering& l, TensorId t, const std::optional<Lowering::Part>& place) {
  return place && (place->root != t || !read_here(l, t));
}

// Over as few dims as both have in common: engines take any strides of three.
void copy(Lowering& l, const Lowering::Part& from, const Lowering::Part& to) {
  const Collapsed c = collapse(from.view.dim, {from.view.stride, to.view.stride});
  const auto part = [&](const Lowering::Part& p, const Dims& stride) {
    return l.part(p.root, p.offset, Lowering::widened({c.dim, stride}, 3));
  };
  const RawDescriptor x = part(from, c.stride[0]), y = part(to, c.stride[1]);
  add_pointwise(l, PointwiseMode_t::IDENTITY, x, nullptr, y, DataType_t::FLOAT);
}

std::string quoted(const Lowering& l, TensorId t) { return '"' + l.graph().tensor(t).name + '"'; }

// A tensor in no memory, seen in another way: cuDNN has an operation for it.
void reshape(Lowering& l, NodeId id) {
  const ir::Node& n = l.node(id);
  if (std::string_view(n.op->name) == "slice")
    return l.refuse(Why::Fusion, fmt::format("node \"{}\": {} is in no memory, of which cuDNN could read a part",
                                             n.name, quoted(l, n.in[0])));
  Descriptor op(Kind::OPERATION_RESHAPE);
  op.descriptor(Attr::OPERATION_RESHAPE_XDESC, l.in(id, 0)).descriptor(Attr::OPERATION_RESHAPE_YDESC, l.out(id, 0));
  l.operation(std::move(op));
}

void lower_movement(Lowering& l, NodeId id) {
  const ir::Node& n = l.node(id);
  const TensorId x = n.in[0], y = n.out[0];
  const std::optional<Lowering::Part> from = l.memory(x), to = l.memory(y);
  if (from && to && from->root == to->root) return;  // put there by place_moved
  if (!from) return reshape(l, id);
  if (written_here(l, from->root))
    return l.refuse(Why::Fusion, fmt::format("node \"{}\": {} is made by the same operation graph, within which cuDNN "
                                             "does not read it as {} does",
                                             n.name, quoted(l, from->root), n.op->name));
  const std::optional<Lowering::Part> part = moved(l, n, *from);
  if (!part)
    return l.refuse(Why::Stride,
                    fmt::format("node \"{}\": the elements of {} do not lie in memory as {} {} of its result", n.name,
                                quoted(l, x), n.op->name, tilewright::to_text(l.graph().tensor(y).dim)));
  if (!to && same_type(l, x, y)) return l.put(y, *part);
  if (to && !read_here(l, y)) return copy(l, *part, *to);
  const size_t rank = std::max<size_t>(3, l.view(y).dim.size());
  l.set_view(y, Lowering::widened(l.view(y), rank));
  add_pointwise(l, PointwiseMode_t::IDENTITY, l.part(part->root, part->offset, Lowering::widened(part->view, rank)),
                nullptr, l.out(id, 0), DataType_t::FLOAT);
}

}  // namespace

void place_moved(Lowering& l, const std::vector<NodeId>& nodes) {
  const ir::Links links = ir::links(l.graph());
  const auto movable = [&](TensorId x, TensorId y) {
    return !l.memory(x) && links.producer[size_t(x)] >= 0 && links.consumers[size_t(x)].size() == 1 &&
           same_type(l, x, y);
  };
  for (size_t i = nodes.size(); i-- > 0;) {
    const ir::Node& n = l.node(nodes[i]);
    const std::string_view op = n.op->name;
    if (op != "concatenate" && op != "slice" && op != "transpose" && op != "reshape") continue;
    const std::optional<Lowering::Part> to = l.memory(n.out[0]);
    if (!may_be_parts(l, n.out[0], to)) continue;
    if (op == "concatenate") {
      const std::vector<Lowering::Part> parts = parts_of(l, n, *to);
      for (size_t k = 0; k < n.in.size(); ++k)
        if (movable(n.in[k], n.out[0])) l.put(n.in[k], parts[k]);
    } else if (movable(n.in[0], n.out[0])) {
      if (const std::optional<Lowering::Part> part = moved_back(l, n, *to)) l.put(n.in[0], *part);
    }
  }
}

void lower_slice(Lowering& l, NodeId id) { lower_movement(l, id); }
void lower_transpose(Lowering& l, NodeId id) { lower_movement(l, id); }
void lower_reshape(Lowering& l, NodeId id) { lower_movement(l, id); }

void lower_concatenate(Lowering& l, NodeId id) {
  const ir::Node& n = l.node(id);
  const TensorId y = n.out[0];
  const std::optional<Lowering::Part> to = l.memory(y);
  if (!may_be_parts(l, y, to))
    return l.refuse(Why::Fusion, fmt::format("node \"{}\": {} is {}, and cuDNN puts tensors together in memory only",
                                             n.name, quoted(l, y), to ? "read again" : "in no memory"));
  const std::vector<Lowering::Part> parts = parts_of(l, n, *to);
  for (size_t k = 0; k < n.in.size(); ++k) {
    const std::optional<Lowering::Part> from = l.memory(n.in[k]);
    if (from && from->root == to->root) continue;  // put there by place_moved
    if (from && !written_here(l, from->root)) {
      copy(l, *from, parts[k]);
      continue;
    }
    const size_t rank = l.view(n.in[k]).dim.size();
    add_pointwise(l, PointwiseMode_t::IDENTITY, l.in(id, k), nullptr,
                  l.part(parts[k].root, parts[k].offset, Lowering::widened(parts[k].view, rank)), DataType_t::FLOAT);
  }
}

}  // namespace tilewright::cudnn
