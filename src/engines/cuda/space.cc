#include "engines/cuda/space.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/numeric_types.h"

namespace tilewright::cuda {

using fuse::Access;
using fuse::PwOp;
using fuse::PwProgram;

int64_t Space::rows() const { return std::accumulate(outer.begin(), outer.end(), int64_t{1}, std::multiplies<>()); }
int64_t Space::row_size() const { return std::accumulate(inner.begin(), inner.end(), int64_t{1}, std::multiplies<>()); }

namespace {

// The access whose layout is followed: a store before a load, and of those the one that reaches most elements.
int primary_access(const PwProgram& p) {
  int primary = -1;
  int64_t best = -1;
  for (const fuse::Instr& i : p.code) {
    if (i.op != PwOp::Store && i.op != PwOp::Load) continue;
    int64_t reach = 1;
    for (size_t d = 0; d < p.domain.size(); ++d)
      if (p.access[size_t(i.access)].stride[d] != 0) reach *= p.domain[d];
    const int64_t score = 2 * reach + (i.op == PwOp::Store);
    if (score > best) best = score, primary = i.access;
  }
  return primary;
}

// A dim of the domain, or several as one.
struct Dim {
  int64_t extent;
  bool inner;
  std::vector<int64_t> stride;  // by access, then by side reduction
  std::vector<bool> reduced;    // by side reduction
};

bool joins(const Dim& slow, const Dim& fast) {
  if (slow.inner != fast.inner || slow.reduced != fast.reduced) return false;
  for (size_t a = 0; a < slow.stride.size(); ++a)
    if (slow.stride[a] != fast.stride[a] * fast.extent) return false;
  return true;
}

}  // namespace

Space make_space(const fuse::Region& region) {
  const PwProgram& p = region.program;
  std::vector<Dim> dims;
  for (size_t d = 0; d < p.domain.size(); ++d) {
    if (p.domain[d] == 1) continue;
    Dim dim{p.domain[d], bool(p.inner >> d & 1), {}, {}};
    for (const Access& a : p.access) dim.stride.push_back(a.stride[d]);
    for (const fuse::SideReduction& s : region.side) {
      dim.stride.push_back(s.out.stride[d]);
      dim.reduced.push_back(s.reduced >> d & 1);
    }
    dims.push_back(std::move(dim));
  }
  const int primary = primary_access(p);
  std::stable_sort(dims.begin(), dims.end(), [&](const Dim& x, const Dim& y) {
    if (x.inner != y.inner) return y.inner;
    return primary >= 0 && std::abs(x.stride[size_t(primary)]) > std::abs(y.stride[size_t(primary)]);
  });
  std::vector<Dim> joined;
  for (Dim& d : dims) {
    if (!joined.empty() && joins(joined.back(), d)) {
      d.extent *= joined.back().extent;
      joined.back() = std::move(d);
    } else {
      joined.push_back(std::move(d));
    }
  }
  const bool map = p.inner == 0;
  if (map && !joined.empty()) joined.back().inner = true;

  Space space;
  space.stride.resize(p.access.size());
  space.side.resize(region.side.size());
  for (const Dim& d : joined) {
    (d.inner ? space.inner : space.outer).push_back(d.extent);
    for (size_t a = 0; a < p.access.size(); ++a) space.stride[a].push_back(d.stride[a]);
    for (size_t s = 0; s < region.side.size(); ++s) space.side[s].push_back(d.stride[p.access.size() + s]);
  }
  int64_t most = space.rows() * space.row_size();
  const auto reach = [&](const std::vector<int64_t>& stride, int64_t offset) {
    size_t at = 0;
    for (const auto* extents : {&space.outer, &space.inner})
      for (int64_t e : *extents) offset += std::abs(stride[at++]) * (e - 1);
    most = std::max(most, offset);
  };
  for (size_t a = 0; a < p.access.size(); ++a) reach(space.stride[a], std::abs(p.access[a].offset));
  for (size_t s = 0; s < region.side.size(); ++s) reach(space.side[s], std::abs(region.side[s].out.offset));
  space.wide = most > (int64_t{1} << 30);  // room for what a block adds to it
  return space;
}

int vector_width(const Space& space, const fuse::FusedGraph& fused, const fuse::Region& region) {
  if (space.inner.size() != 1) return 1;
  const PwProgram& p = region.program;
  const size_t last = space.outer.size();
  int width = 16;
  while (space.inner[0] % width != 0) width /= 2;
  for (const fuse::Instr& i : p.code) {
    if (i.op != PwOp::Load && i.op != PwOp::Store) continue;
    const size_t a = size_t(i.access);
    const Access& access = p.access[a];
    const int64_t along = space.stride[a][last];
    if (along == 0) continue;
    if (along != 1) return 1;
    const int bytes = std::max(1, element_bits(access.type) / 8);
    const bool streams =
        std::any_of(space.stride[a].begin(), space.stride[a].begin() + long(last), [](int64_t s) { return s != 0; }) ||
        last == 0;
    const bool ours = fused.place[size_t(access.tensor)].workspace >= 0;
    const int64_t alignment = ours ? 16 : fused.graph.tensor(access.tensor).alignment;
    const auto fits = [&](int w) {
      if (streams && w * bytes > 16) return false;
      if (space.inner[0] % w != 0 || access.offset % w != 0) return false;
      if (alignment % std::min(w * bytes, 16) != 0) return false;
      for (size_t d = 0; d < last; ++d)
        if (space.stride[a][d] % w != 0) return false;
      return true;
    };
    while (width > 1 && !fits(width)) width /= 2;
  }
  return width;
}

}  // namespace tilewright::cuda
