#include "engines/cuda/contraction.h"

#include <algorithm>

#include "engines/cuda/contraction_page.h"
#include "engines/cuda/element.h"
#include "engines/cuda/side.h"

namespace tilewright::cuda {
namespace {

using fuse::FusedGraph;
using fuse::Region;

struct Part {
  OrderedProblem ordered;
  ContractionSpace space;
  ContractionRoute route;
};

// The gradient of a strided convolution as dense problems, unless those are many.
std::vector<Part> parts_of(const FusedGraph& fused, const Region& region, const KernelOptions& options) {
  constexpr size_t kMostParts = 16;
  const OrderedProblem ordered = order_problem(fused, region);
  std::vector<fuse::Problem> problems = dense_parts(ordered.problem);
  if (problems.size() > kMostParts) problems = {ordered.problem};
  std::vector<Part> parts;
  const size_t first = ordered.exchanged ? 1 : 0;
  for (fuse::Problem& p : problems) {
    Part part{{std::move(p), ordered.exchanged}, {}, {}};
    part.space =
        make_contraction_space(part.ordered.problem, {&region.operand[first], &region.operand[1 - first]}, region);
    part.route = choose_route(fused, region, part.ordered, part.space, options);
    parts.push_back(std::move(part));
  }
  return parts;
}

int64_t part_bytes(const Part& p) {
  if (p.route.parts < 2) return 0;
  return p.route.parts * p.space.size('b') * p.space.size('m') * p.space.size('n') * p.route.sum_bytes();
}

Status check(const FusedGraph& fused, const Region& region) {
  for (const fuse::PwProgram* p : {&region.program, &region.operand[0], &region.operand[1]})
    for (const fuse::Access& a : p->access)
      if (a.tensor != ir::kNone && !any_element(a.type)) return check_type(a.type);
  for (const fuse::SideReduction& s : region.side)
    if (!any_element(s.out.type)) return check_type(s.out.type);
  const ir::Node& node = fused.graph.nodes[size_t(region.heavy)];
  for (size_t port = 2; port < node.in.size(); ++port)
    if (node.in[port] != ir::kNone) TW_RETURN_IF_BAD(check_type(fused.graph.tensor(node.in[port]).storage_type()));
  return {};
}

}  // namespace

int64_t contraction_scratch_bytes(const FusedGraph& fused, const Region& region, const KernelOptions& options) {
  if (check(fused, region).is_bad()) return 0;
  int64_t most = 0, side = 0;
  for (const Part& p : parts_of(fused, region, options)) {
    most = std::max(most, part_bytes(p));
    side = side_scratch_bytes(region, p.route.wide);
  }
  return side + most;
}

Result<std::vector<Launch>> contraction_launches(const FusedGraph& fused, const Region& region,
                                                 const KernelOptions& options) {
  TW_RETURN_IF_BAD(check(fused, region));
  std::vector<Launch> launches;
  bool wide = false;
  for (const Part& p : parts_of(fused, region, options)) {
    wide = p.route.wide;
    const int64_t sides = side_scratch_bytes(region, wide);
    const ContractionPage page(fused, region, p.ordered, p.space, p.route, region.scratch_offset,
                               region.scratch_offset + sides);
    launches.push_back(page.multiply());
    if (launches.back().grid > INT32_MAX) return not_supported("its result has more tiles than one launch has blocks");
    if (p.route.parts > 1) launches.push_back(page.join_parts());
  }
  launches[0].zero_offset = region.scratch_offset, launches[0].zero_bytes = side_scratch_bytes(region, wide);
  for (size_t s = 0; s < region.side.size(); ++s) {
    std::vector<int64_t> extents, stride;
    for (size_t d = 0; d < region.program.domain.size(); ++d)
      if (!(region.side[s].reduced >> d & 1))
        extents.push_back(region.program.domain[d]), stride.push_back(region.side[s].out.stride[d]);
    launches.push_back(side_launch(fused, region, s, wide, extents, stride, region.scratch_offset));
  }
  return launches;
}

}  // namespace tilewright::cuda
