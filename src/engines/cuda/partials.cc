#include "engines/cuda/partials.h"

#include <fmt/format.h>

#include <algorithm>

#include "engines/cuda/emit.h"

namespace tilewright::cuda {
namespace {

// A block has 8 columns, and 32 lanes that share out their parts.
constexpr const char* kJoin = R"(
template <class R>
DEV F joined(const F* fold, const Args& a, Index at, F (*shared)[8]) {
  const int lane = threadIdx.x / 8, column = threadIdx.x % 8;
  F x = R::template start<F>();
  if (at < a.count)
#pragma unroll 8
    for (Index part = lane; part < a.parts; part += 32) x = R::join(x, fold[part * a.count + at]);
  shared[lane][column] = x;
  __syncthreads();
  x = shared[0][column];
#pragma unroll
  for (int i = 1; i < 32; ++i) x = R::join(x, shared[i][column]);
  return x;
}
)";

constexpr const char* kMoments = R"(
DEV F rows_of(const Args& a, Index part) {
  const Index rest = a.rest - part * a.step;
  return F(a.whole + (rest < 0 ? 0 : rest < a.step ? rest : a.step));
}
DEV F total(F x, F (*shared)[8]) {
  const int lane = threadIdx.x / 8, column = threadIdx.x % 8;
  __syncthreads();
  shared[lane][column] = x;
  __syncthreads();
  x = shared[0][column];
#pragma unroll
  for (int i = 1; i < 32; ++i) x += shared[i][column];
  return x;
}
DEV void moments(const Args& a, Index at, F (*shared)[8], F& mean, F& variance) {
  F x = F(0);
  if (at < a.count)
#pragma unroll 8
    for (Index part = threadIdx.x / 8; part < a.parts; part += 32) x += rows_of(a, part) * a.fold0[part * a.count + at];
  mean = total(x, shared) / F(a.rows);
  x = F(0);
  if (at < a.count)
#pragma unroll 8
    for (Index part = threadIdx.x / 8; part < a.parts; part += 32) {
      const F distance = a.fold0[part * a.count + at] - mean;
      x += a.fold1[part * a.count + at] + rows_of(a, part) * distance * distance;
    }
  variance = total(x, shared) / F(a.rows);
}
)";

}  // namespace

Launch partials_launch(const fuse::FusedGraph& fused, const fuse::Region& region, bool wide, const Partials& partials,
                       const std::vector<int64_t>& extents, const std::vector<std::vector<int64_t>>& stride) {
  Launch launch;
  launch.name = fmt::format("result of {}", region.name);
  launch.block = 256;
  const size_t sides = region.side.size();
  Arguments args;
  for (size_t s = 0; s < sides; ++s) {
    args.workspace("const F", fmt::format("fold{}", s), partials.offset[s]);
    args.pointer(element_type(region.side[s].out.type), fmt::format("y{}", s), fused, region.side[s].out.tensor);
  }
  args.integer("count", partials.count, true);
  args.integer("parts", partials.parts, true);
  if (partials.moments) {
    const int64_t whole = partials.rows / (partials.parts * partials.step);  // times that all parts have `step` rows
    args.integer("rows", partials.rows, true), args.integer("step", partials.step, true);
    args.integer("whole", whole * partials.step, true);
    args.integer("rest", partials.rows - whole * partials.parts * partials.step, true);
  }
  args.integers("extent", extents, true);
  for (size_t s = 0; s < sides; ++s) {
    args.integer(fmt::format("y{}_at", s), region.side[s].out.offset, true);
    args.integer(fmt::format("y{}_of", s), region.side[s].count, true);
    args.integers(fmt::format("y{}_stride", s), stride[s], true);
  }
  args.finish(launch);
  const auto result = [&](size_t s, const std::string& value) {
    std::string at = fmt::format("a.y{}_at", s);
    for (size_t d = 0; d < extents.size(); ++d)
      if (stride[s][d] != 0) at += fmt::format(" + i{} * a.y{}_stride[{}]", d, s, d);
    return fmt::format("a.y{}[{}] = {}::set({});\n", s, at, element_type(region.side[s].out.type), value);
  };
  std::string body = fmt::format(
      "  __shared__ F shared[32][8];\n  const int side = blockIdx.x % {0};\n"
      "  const Index at = blockIdx.x / {0} * Index(8) + threadIdx.x % 8;\n",
      partials.moments ? 1 : sides);
  body += decompose("i", "at", "extent", extents.size(), "  ");
  if (partials.moments) {
    body +=
        "  F mean, variance;\n  moments(a, at, shared, mean, variance);\n"
        "  if (threadIdx.x >= 8 || at >= a.count) return;\n  " +
        result(0, "mean") + "  " + result(1, "variance");
  } else {
    for (size_t s = 0; s < sides; ++s) {
      const char* r = reduction_type(region.side[s].mode);
      body += fmt::format(
          "  if (side == {0}) {{\n    const F x = joined<{1}>(a.fold{0}, a, at, shared);\n"
          "    if (threadIdx.x < 8 && at < a.count) {2}  }}\n",
          s, r, result(s, fmt::format("{}::finish(x, double(a.y{}_of))", r, s)));
    }
  }
  launch.text = fmt::format(
                    "// {}\n#include \"tilewright/prelude.cuh\"\nnamespace tw {{\ntypedef {} F;\n"
                    "typedef i64 Index;\n\nstruct Args {{\n{}}};\n",
                    printable(launch.name), wide ? "double" : "float", args.declaration()) +
                (partials.moments ? kMoments : kJoin) +
                "\nextern \"C\" __global__ void __launch_bounds__(256) tw_kernel(const __grid_constant__ Args a) {\n" +
                body + "}\n}  // namespace tw\n";
  launch.grid = (partials.count + 7) / 8 * (partials.moments ? 1 : int64_t(sides));
  launch.grid = std::max<int64_t>(launch.grid, 1);
  return launch;
}

}  // namespace tilewright::cuda
