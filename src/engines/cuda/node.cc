#include "engines/cuda/node.h"

#include <fmt/format.h>

#include <cstdlib>

#include "engines/cuda/emit.h"
#include "layout/view.h"
#include "ops/rng.h"

namespace tilewright::cuda {
namespace {

using fuse::FusedGraph;
using fuse::Region;

constexpr int kThreads = 256;

// A thread for each block of four numbers. NORMAL is computed in double, as the reference does.
Result<std::vector<Launch>> rng_launches(const FusedGraph& fused, const Region& region) {
  const ir::Node& node = fused.graph.nodes[size_t(region.heavy)];
  const ir::Tensor& y = fused.graph.tensor(node.out[0]);
  TW_RETURN_IF_BAD(check_type(y.storage_type()));
  const fuse::Place& place = fused.place[size_t(node.out[0])];
  const ops::RngNumbers numbers = ops::rng_numbers(node, Philox());

  Arguments args;
  args.pointer(element_type(y.storage_type()), "y", fused, place.root);
  const char* names[] = {"seed", "offset"};
  for (size_t port = 0; port < 2; ++port)
    if (port < node.in.size() && node.in[port] != ir::kNone) args.key(names[port], fused.graph, node.in[port]);
    else args.bits(names[port], port == 0 ? uint64_t(node.attr<int64_t>("seed")) : 0);
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
  launch.text =
      page_title(region.name, {}, fused.graph) +
      fmt::format(
          "//   {}: word k of block n of Philox({{seed}}, {{offset}}) makes element 4 n + k of \"{}\"\n"
          "#include \"tilewright/random.cuh\"\nnamespace tw {{\ntypedef {} F;      // values\ntypedef i64 Index;  // "
          "of "
          "elements\n\nstruct Args {{\n{}}};\n\n"
          "extern \"C\" __global__ void __launch_bounds__({}) tw_kernel(const __grid_constant__ Args a) {{\n"
          "  const Index n = blockIdx.x * Index({}) + threadIdx.x;\n  if (4 * n >= a.count) return;\n"
          "  const Philox philox = {{a.seed, a.offset}};\n  const Philox::Block b = philox.block(u64(n));\n"
          "#pragma unroll\n  for (int k = 0; k < 4; ++k) {{\n    const Index at = 4 * n + k;\n"
          "    if (at >= a.count) break;\n    const u32 word = b.word[k];\n{}    a.y[{}] = {}::set({});\n  }}\n}}\n"
          "}}  // namespace tw\n",
          to_string(numbers.distribution), printable(y.name),
          numbers.distribution == RngDistribution_t::NORMAL ? "double" : "float", args.declaration(), kThreads,
          kThreads, decompose("i", "at", "extent", y.dim.size(), "    "), where, element_type(y.storage_type()), value);
  args.finish(launch);
  const int64_t blocks = (volume(y.dim) + 3) / 4;
  launch.grid = std::max<int64_t>(1, (blocks + kThreads - 1) / kThreads);
  return std::vector<Launch>{std::move(launch)};
}

}  // namespace

Result<std::vector<Launch>> node_launches(const FusedGraph& fused, const Region& region) {
  const ir::Node& node = fused.graph.nodes[size_t(region.heavy)];
  if (std::string_view(node.op->name) == "rng") return rng_launches(fused, region);
  return not_supported("no kernel of ours computes {} on such tensors", node.op->name);
}

}  // namespace tilewright::cuda
