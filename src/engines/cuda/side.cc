#include "engines/cuda/side.h"

#include <fmt/format.h>

#include <algorithm>

#include "engines/cuda/element.h"
#include "engines/cuda/emit.h"

namespace tilewright::cuda {
namespace {

using fuse::Region;
using fuse::SideReduction;

bool is_product(ReductionMode_t mode) { return mode == ReductionMode_t::MUL || mode == ReductionMode_t::MUL_NO_ZEROS; }

int64_t side_elements(const Region& r, const SideReduction& s) {
  int64_t n = 1;
  for (size_t d = 0; d < r.program.domain.size(); ++d)
    if (!(s.reduced >> d & 1)) n *= r.program.domain[d];
  return n;
}

int64_t scratch_of(const Region& r, const SideReduction& s, bool wide) {
  return (side_elements(r, s) * (wide ? 8 : 4) + 255) / 256 * 256;
}

}  // namespace

Status check_sides(const Region& region) {
  for (const SideReduction& s : region.side) {
    TW_RETURN_IF_BAD(check_type(s.out.type));
    if (is_product(s.mode)) return not_supported("a product beside other results");
  }
  return {};
}

int64_t side_scratch_bytes(const Region& region, bool wide) { return side_offset(region, region.side.size(), wide); }

int64_t side_offset(const Region& region, size_t side, bool wide) {
  int64_t at = 0;
  for (size_t s = 0; s < side; ++s) at += scratch_of(region, region.side[s], wide);
  return at;
}

const char* fold_type(ReductionMode_t mode) {
  if (is_product(mode)) return "Product";
  if (mode == ReductionMode_t::MIN) return "Min";
  return mode == ReductionMode_t::MAX || mode == ReductionMode_t::AMAX ? "Max" : "Sum";
}

Launch side_launch(const fuse::FusedGraph& fused, const Region& region, size_t s, bool wide,
                   const std::vector<int64_t>& extents, const std::vector<int64_t>& stride, int64_t scratch_offset) {
  const SideReduction& side = region.side[s];
  Launch launch;
  launch.name = fmt::format("result of {}", region.name);
  launch.block = 256;
  Arguments args;
  args.workspace("const F", "fold", scratch_offset + side_offset(region, s, wide));
  args.pointer(memory_type(side.out.type), "y", fused, side.out.tensor);
  const int64_t count = side_elements(region, side);
  args.integer("count", count, true);
  args.number("folded", double(side.count), true);
  args.integer("y_at", side.out.offset, true);
  args.integers("extent", extents, true);
  args.integers("y_stride", stride, true);
  args.finish(launch);
  std::string at = "a.y_at";
  for (size_t d = 0; d < extents.size(); ++d) at += fmt::format(" + i{} * a.y_stride[{}]", d, d);
  launch.text =
      fmt::format(
          "// {}\n#include \"tilewright/{}.cuh\"\nnamespace tw {{\ntypedef {} F;\ntypedef i64 "
          "Index;\n\nstruct Args {{\n{}}};\n\n",
          printable(launch.name), element_type(side.out.type).empty() ? "narrow" : "prelude", wide ? "double" : "float",
          args.declaration()) +
      "extern \"C\" __global__ void tw_kernel(const __grid_constant__ Args a) {\n"
      "  const Index at = blockIdx.x * Index(blockDim.x) + threadIdx.x;\n  if (at >= a.count) return;\n" +
      decompose("i", "at", "extent", extents.size(), "  ") +
      fmt::format("  const F all = {0}::finish({0}::join({0}::start<F>(), unfold({1}(), a.fold[at])), a.folded);\n",
                  reduction_type(side.mode), fold_type(side.mode)) +
      "  " + store_text(side.out.type, "y", at, "all") + "\n}\n}  // namespace tw\n";
  launch.grid = std::max<int64_t>(1, (count + 255) / 256);
  return launch;
}

}  // namespace tilewright::cuda
