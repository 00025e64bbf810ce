#include "engines/cuda/node.h"

#include <fmt/format.h>

#include <algorithm>

#include "engines/cuda/element.h"
#include "engines/cuda/emit.h"
#include "layout/view.h"
#include "ops/rng.h"

namespace tilewright::cuda {
namespace {

using fuse::FusedGraph;
using fuse::Region;

constexpr int kThreads = 256;

// A seed or an offset, as an expression: passed by value, or read where it lies on the GPU.
std::string key(Arguments& args, const char* name, const FusedGraph& fused, const ir::Node& node, size_t port) {
  if (port >= node.in.size() || node.in[port] == ir::kNone) {
    args.bits(name, port == 0 ? uint64_t(node.attr<int64_t>("seed")) : 0);
    return fmt::format("a.{}", name);
  }
  const ir::TensorId id = node.in[port];
  const ir::Tensor& t = fused.graph.tensor(id);
  if (t.value || t.role == ir::Role::Scalar) {
    args.key(name, fused.graph, id);
    return fmt::format("a.{}", name);
  }
  const fuse::Place& place = fused.place[size_t(id)];
  args.pointer(element_type(t.type), name, fused, place.root, place.offset * (t.type == DataType_t::INT64 ? 8 : 4));
  return fmt::format("u64(i64(a.{}->v))", name);
}

// A thread for each block of four numbers. NORMAL is computed in double, as the reference does.
Result<std::vector<Launch>> rng_launches(const FusedGraph& fused, const Region& region) {
  const ir::Node& node = fused.graph.nodes[size_t(region.heavy)];
  const ir::Tensor& y = fused.graph.tensor(node.out[0]);
  if (!any_element(y.storage_type())) return check_type(y.storage_type());
  const fuse::Place& place = fused.place[size_t(node.out[0])];
  const ops::RngNumbers numbers = ops::rng_numbers(node, Philox());

  Arguments args;
  args.pointer(memory_type(y.storage_type()), "y", fused, place.root);
  const std::string seed = key(args, "seed", fused, node, 0), offset = key(args, "offset", fused, node, 1);
  args.bits("threshold", numbers.threshold);
  args.integer("count", volume(y.dim), true);
  args.integer("y_at", place.offset, true);
  args.integers("extent", y.dim, true);
  args.integers("y_stride", y.stride, true);

  std::string value = "F(word < a.threshold ? 1 : 0)";
  if (numbers.distribution == RngDistribution_t::UNIFORM) value = "uniform(word)";
  if (numbers.distribution == RngDistribution_t::NORMAL) value = "normal(b.word[k & 2], b.word[k | 1], k & 1)";
  std::string where = "a.y_at";
  for (size_t d = 0; d < y.dim.size(); ++d) where += fmt::format(" + i{} * a.y_stride[{}]", d, d);
  Launch launch;
  launch.name = region.name;
  launch.block = kThreads;
  launch.text = page_title(region.name, {}, fused.graph) +
                fmt::format(
                    "//   {}: word k of block n of Philox({{seed}}, {{offset}}) makes element 4 n + k of \"{}\"\n"
                    "#include \"tilewright/narrow.cuh\"\n#include \"tilewright/random.cuh\"\nnamespace tw {{\ntypedef "
                    "{} F;      // values\ntypedef i64 Index;  // "
                    "of "
                    "elements\n\nstruct Args {{\n{}}};\n\n"
                    "extern \"C\" __global__ void __launch_bounds__({}) tw_kernel(const __grid_constant__ Args a) {{\n"
                    "  const Index n = blockIdx.x * Index({}) + threadIdx.x;\n  if (4 * n >= a.count) return;\n"
                    "  const Philox philox = {{{}, {}}};\n  const Philox::Block b = philox.block(u64(n));\n"
                    "#pragma unroll\n  for (int k = 0; k < 4; ++k) {{\n    const Index at = 4 * n + k;\n"
                    "    if (at >= a.count) break;\n    const u32 word = b.word[k];\n{}    {}\n  }}\n}}\n"
                    "}}  // namespace tw\n",
                    to_string(numbers.distribution), printable(y.name),
                    numbers.distribution == RngDistribution_t::NORMAL ? "double" : "float", args.declaration(),
                    kThreads, kThreads, seed, offset, decompose("i", "at", "extent", y.dim.size(), "    "),
                    store_text(y.storage_type(), "y", where, value));
  args.finish(launch);
  const int64_t blocks = (volume(y.dim) + 3) / 4;
  launch.grid = std::max<int64_t>(1, (blocks + kThreads - 1) / kThreads);
  return std::vector<Launch>{std::move(launch)};
}

// --- copies: one element after the other of two views, whatever their types
// ---------------------------------------------

struct Side {
  ir::TensorId tensor;
  Dims dim, stride;    // the elements in row-major order of dim
  int64_t offset = 0;  // of the first, in elements from the tensor's own
};

struct Copy {
  Side from, to;
  const char* value = "v";  // what becomes of an element v
};

// Arguments and the place of element `at` on one side.
std::string place_of(Arguments& args, const FusedGraph& fused, const Side& side, const std::string& name) {
  const fuse::Place& place = fused.place[size_t(side.tensor)];
  args.pointer(memory_type(fused.graph.tensor(side.tensor).storage_type()), name, fused, place.root);
  args.integer(name + "_at", place.offset + side.offset, true);
  args.integers(name + "_extent", side.dim, true);
  args.integers(name + "_stride", side.stride, true);
  std::string text = fmt::format("a.{}_at", name);
  for (size_t d = 0; d < side.dim.size(); ++d) text += fmt::format(" + {0}{1} * a.{0}_stride[{1}]", name, d);
  return text;
}

Result<Launch> copy_launch(const FusedGraph& fused, const std::string& title, const Copy& copy) {
  const ir::Tensor &x = fused.graph.tensor(copy.from.tensor), &y = fused.graph.tensor(copy.to.tensor);
  for (const ir::Tensor* t : {&x, &y}) {
    if (!any_element(t->storage_type())) return check_type(t->storage_type());
    if (t->ragged_offset != ir::kNone || t->reordering != TensorReordering_t::NONE)
      return not_supported("tensor \"{}\" is ragged or reordered, which no kernel of ours takes here", t->name);
  }
  const bool scalar = x.value || x.role == ir::Role::Scalar;
  Arguments args;
  std::string load = "F(a.x)";
  if (scalar) args.scalar("x", fused.graph, copy.from.tensor, true);
  else load = load_text(x.storage_type(), "x", place_of(args, fused, copy.from, "x"));
  const std::string to = place_of(args, fused, copy.to, "y");
  args.integer("count", volume(copy.to.dim), true);
  Launch launch;
  launch.name = title;
  launch.block = kThreads;
  launch.text = page_title(title, {}, fused.graph) +
                fmt::format(
                    "//   \"{}\" -> \"{}\", element by element\n"
                    "#include \"tilewright/narrow.cuh\"\nnamespace tw {{\ntypedef double F;   // values\n"
                    "typedef i64 Index;  // of elements\n\nstruct Args {{\n{}}};\n\n"
                    "extern \"C\" __global__ void __launch_bounds__({}) tw_kernel(const __grid_constant__ Args a) {{\n"
                    "  const Index at = blockIdx.x * Index({}) + threadIdx.x;\n  if (at >= a.count) return;\n{}{}"
                    "  const F v = {};\n  {}\n}}\n}}  // namespace tw\n",
                    printable(x.name), printable(y.name), args.declaration(), kThreads, kThreads,
                    scalar ? "" : decompose("x", "at", "x_extent", copy.from.dim.size(), "  "),
                    decompose("y", "at", "y_extent", copy.to.dim.size(), "  "), load,
                    store_text(y.storage_type(), "y", to, copy.value));
  args.finish(launch);
  launch.grid = std::max<int64_t>(1, (volume(copy.to.dim) + kThreads - 1) / kThreads);
  return launch;
}

// What moves elements, as copies; empty for other nodes.
std::vector<Copy> copies_of(const ir::Graph& graph, const ir::Node& node) {
  const std::string_view op = node.op->name;
  const ir::Tensor &x = graph.tensor(node.in[0]), &y = graph.tensor(node.out[0]);
  Copy copy{{node.in[0], y.dim, x.stride}, {node.out[0], y.dim, y.stride}};
  if (op == "transpose") {
    const Dims order = node.attr<Dims>("permutation");
    for (size_t d = 0; d < order.size(); ++d) copy.from.stride[d] = x.stride[size_t(order[d])];
    return {copy};
  }
  if (op == "slice") {
    const Dims slices = node.attr<Dims>("slices");
    Dims step = node.attr<Dims>("slice_strides");
    step.resize(x.dim.size(), 1);
    for (size_t d = 0; d < x.dim.size(); ++d) {
      copy.from.offset += slices[2 * d] * x.stride[d];
      if (y.dim[d] > 1) copy.from.stride[d] *= step[d];
    }
    return {copy};
  }
  if (op == "reshape") {
    if (node.attr_enum("reshape_mode", ReshapeMode_t::VIEW_ONLY) == ReshapeMode_t::LOGICAL) copy.from.dim = x.dim;
    else copy.from.stride = y.stride;
    return {copy};
  }
  if (op == "reduction" && x.dim == y.dim) {  // of nothing
    if (node.attr_enum("mode", ReductionMode_t::NOT_SET) != ReductionMode_t::MUL_NO_ZEROS) return {};
    copy.value = "ProductNoZeros::element(v)";
    return {copy};
  }
  if (op != "concatenate") return {};
  const size_t axis = size_t(node.attr<int64_t>("axis")), first = size_t(node.attr<int64_t>("in_place_index", 0));
  std::vector<Copy> list;
  int64_t before = 0;
  for (ir::TensorId id : node.in) {
    const ir::Tensor& part = graph.tensor(id);
    list.push_back({{id, part.dim, part.stride}, {node.out[0], part.dim, y.stride, before * y.stride[axis]}});
    before += part.dim[axis];
  }
  std::rotate(list.begin(), list.begin() + long(first), list.begin() + long(first) + 1);
  return list;
}

}  // namespace

Result<std::vector<Launch>> node_launches(const FusedGraph& fused, const Region& region) {
  const ir::Node& node = fused.graph.nodes[size_t(region.heavy)];
  if (std::string_view(node.op->name) == "rng") return rng_launches(fused, region);
  std::vector<Launch> launches;
  for (const Copy& copy : copies_of(fused.graph, node)) {
    TW_ASSIGN_OR_RETURN(Launch launch, copy_launch(fused, region.name, copy));
    launches.push_back(std::move(launch));
  }
  if (launches.empty()) return not_supported("no kernel of ours computes {} on such tensors", node.op->name);
  return launches;
}

}  // namespace tilewright::cuda
