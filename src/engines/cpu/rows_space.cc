#include "engines/cpu/rows_space.h"

#include <algorithm>
#include <cstdlib>

#include "engines/cpu/block.h"

namespace tilewright::cpu {
namespace {

using fuse::Instr;
using fuse::PwOp;
using fuse::PwProgram;

// The layout to follow: that of the store (else load) that varies along most dims.
int primary_access(const PwProgram& p) {
  int primary = -1;
  int64_t best = -1;
  for (const Instr& i : p.code) {
    if (i.op != PwOp::Store && i.op != PwOp::Load) continue;
    const Dims& s = p.access[size_t(i.access)].stride;
    int64_t reach = 1;
    for (size_t d = 0; d < s.size(); ++d)
      if (s[d] != 0) reach *= p.domain[d];
    const int64_t score = 2 * reach + (i.op == PwOp::Store);
    if (score > best) best = score, primary = i.access;
  }
  return primary;
}

// The domain's dims of more than one element, slowest first, outer ones before inner ones.
std::vector<size_t> dims_by_memory(const PwProgram& p) {
  const int primary = primary_access(p);
  std::vector<size_t> order;
  for (size_t d = 0; d < p.domain.size(); ++d)
    if (p.domain[d] != 1) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const bool ia = p.inner >> a & 1, ib = p.inner >> b & 1;
    if (ia != ib) return ib;
    if (primary < 0) return false;
    const Dims& s = p.access[size_t(primary)].stride;
    return std::abs(s[a]) > std::abs(s[b]);
  });
  return order;
}

// The dims as loops, merged where every access allows it.
std::vector<Loop> make_loops(const PwProgram& p, const std::vector<size_t>& order) {
  std::vector<Loop> loops;
  for (size_t d : order) {
    Loop l;
    l.extent = p.domain[d];
    l.inner = p.inner >> d & 1;
    for (const fuse::Access& a : p.access) l.stride.push_back(a.stride[d]);
    bool merges = !loops.empty() && loops.back().inner == l.inner;
    for (size_t a = 0; merges && a < l.stride.size(); ++a) merges = loops.back().stride[a] == l.stride[a] * l.extent;
    if (merges) {
      loops.back().extent *= l.extent;
      loops.back().stride = l.stride;
    } else {
      loops.push_back(l);
    }
  }
  return loops;
}

size_t best_lane(const std::vector<Loop>& loops, double ops) {
  double best = 0;
  size_t lane = loops.size();
  for (size_t d = 0; d < loops.size(); ++d) {
    const double n = double(std::clamp<int64_t>(loops[d].extent, 1, 256));
    double cost = 0.2 * ops + (8 * ops + 20) / n;
    for (int64_t s : loops[d].stride) cost += lane_cost(s);
    if (lane == loops.size() || cost < best) best = cost, lane = d;
  }
  return lane;
}

// Where few lanes lie side by side: puts several repetitions of the last loop into a block, if every access either runs
// on through all of them or repeats itself.
void repeat(const PwProgram& p, std::vector<Loop>& loops, RowSpace& s) {
  const int64_t lanes = s.lane.extent;
  if (loops.empty() || loops.back().extent < 2 || lanes < 2 || 2 * lanes > kRowLanes) return;
  Loop& loop = loops.back();
  const size_t accesses = p.access.size();
  std::vector<bool> stored(accesses);
  for (const Instr& i : p.code)  // other stores are made once, after the loop
    if (i.op == PwOp::Store) stored[size_t(i.access)] = !loop.inner || (i.dims & p.inner);
  Dims advance = s.lane.stride;
  for (size_t a = 0; a < accesses; ++a) {
    if (loop.stride[a] == s.lane.stride[a] * lanes) continue;
    if (loop.stride[a] != 0 || stored[a]) return;
    advance[a] = 0;
  }
  s.period = lanes;
  s.far = loop.stride;
  s.advance = advance;
  const int64_t fit = std::min(kRowLanes / lanes, loop.extent);
  if (loop.inner) {
    s.repeats = fit;
    s.repeated_extent = loop.extent;
    loop.extent = (loop.extent + fit - 1) / fit;
    for (int64_t& stride : loop.stride) stride *= fit;
    return;
  }
  s.lane.extent = lanes * loop.extent;
  s.lane_step = lanes * fit;
  loops.pop_back();
}

// Where the lanes of one access lie a cache line or more apart and the next ones along another loop share those lines:
// blocks are tiles, which use up what they touch of either layout.
bool make_tiles(const PwProgram& p, std::vector<Loop>& loops, RowSpace& s) {
  constexpr int64_t kSide = 32;
  static_assert(kSide * kSide <= kRowLanes);
  const auto transposed = [&](const Loop& l) {
    for (size_t a = 0; a < p.access.size(); ++a)
      if (std::abs(s.lane.stride[a]) >= 16 && std::abs(l.stride[a]) == 1) return true;
    return false;
  };
  const auto loop = std::find_if(loops.begin(), loops.end(), transposed);
  if (loop == loops.end() || loop->extent < 4 || s.lane.extent < 4) return false;
  for (const Instr& i : p.code)
    if (i.op == PwOp::Store && (s.lane.stride[size_t(i.access)] == 0 || loop->stride[size_t(i.access)] == 0))
      return false;
  std::rotate(loop, loop + 1, loops.end());
  Loop& last = loops.back();
  s.tiles = true;
  s.far = last.stride;
  s.repeats = std::min(kSide, last.extent);
  s.repeated_extent = last.extent;
  s.lane_step = kSide;
  last.extent = (last.extent + s.repeats - 1) / s.repeats;
  for (int64_t& stride : last.stride) stride *= s.repeats;
  return true;
}

}  // namespace

SpacedProgram make_row_space(const PwProgram& program, const std::vector<fuse::SideReduction>& side) {
  SpacedProgram out{program, {}, {}, {}};
  PwProgram& p = out.program;
  const std::vector<size_t> order = dims_by_memory(p);
  for (const fuse::SideReduction& r : side) {
    fuse::Access dense;
    dense.stride.assign(p.domain.size(), 0);
    int64_t size = 1;
    for (size_t k = order.size(); k-- > 0;) {
      if (r.reduced >> order[k] & 1) continue;
      dense.stride[order[k]] = size;
      size *= p.domain[order[k]];
    }
    out.side_access.push_back(int(p.access.size()));
    out.side_size.push_back(size);
    p.access.push_back(dense);
  }
  RowSpace& s = out.space;
  std::vector<Loop> loops = make_loops(p, order);
  s.lane.stride.assign(p.access.size(), 0);
  const size_t lane = best_lane(loops, double(p.code.size()));
  if (lane < loops.size()) {
    s.lane = loops[lane];
    loops.erase(loops.begin() + int64_t(lane));
  }
  for (const Loop& l : loops) (l.inner ? s.inner : s.outer).push_back(l);
  s.advance = s.lane.stride;
  s.far.assign(p.access.size(), 0);
  if (!s.lane.inner && !(p.inner == 0 && make_tiles(p, s.outer, s))) repeat(p, s.inner.empty() ? s.outer : s.inner, s);
  // A map has no rows to begin and to end: one walk over everything, cut anywhere.
  if (p.inner == 0) {
    s.lane.inner = true;
    s.inner.swap(s.outer);
  }
  return out;
}

}  // namespace tilewright::cpu
