#include "engines/cuda/contraction_space.h"

#include <algorithm>
#include <cstdlib>

namespace tilewright::cuda {

using fuse::Access;
using fuse::kMaxProblem;
using fuse::Problem;
using fuse::PwOp;
using fuse::PwProgram;
using Factors = std::array<int64_t, kMaxProblem>;

int64_t ContractionSpace::size(char group) const {
  int64_t n = 1;
  for (const fuse::ProblemDim& d : dims)
    if (d.group == group) n *= d.extent;
  return n;
}

std::vector<int> ContractionSpace::dims_of(char group) const {
  std::vector<int> list;
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d].group == group) list.push_back(int(d));
  return list;
}

int ContractionSpace::last(char group) const {
  const std::vector<int> list = dims_of(group);
  return list.empty() ? -1 : list.back();
}

namespace {

// The coordinate's least and greatest numerator.
std::pair<int64_t, int64_t> range(const Problem& p, const fuse::Coordinate& c) {
  int64_t low = c.base, high = c.base;
  for (size_t i = 0; i < p.dims.size(); ++i) {
    const int64_t reach = c.factor[i] * std::max<int64_t>(0, p.dims[i].extent - 1);
    (reach < 0 ? low : high) += reach;
  }
  return {low, high};
}

bool is_checked(const Problem& p, const fuse::Coordinate& c) {
  const auto [low, high] = range(p, c);
  return c.divisor != 1 || low < 0 || high >= c.extent;
}

Line line(const Problem& p, int64_t start, const Factors& step) {
  return {start, {step.begin(), step.begin() + long(p.dims.size())}};
}

void add_operand(ContractionSpace& s, const Problem& p, size_t o, const PwProgram& program) {
  const auto& coordinates = p.operand[o];
  for (const Access& a : program.access) {
    Factors step = {};
    int64_t start = a.offset;
    for (size_t d = 0; d < coordinates.size(); ++d) {
      if (coordinates[d].divisor != 1) continue;
      start += coordinates[d].base * a.stride[d];
      for (size_t i = 0; i < p.dims.size(); ++i) step[i] += coordinates[d].factor[i] * a.stride[d];
    }
    s.operand[o].push_back(line(p, start, step));
  }
  for (size_t d = 0; d < coordinates.size(); ++d) {
    const fuse::Coordinate& c = coordinates[d];
    if (!is_checked(p, c)) continue;
    Window w{line(p, c.base, c.factor), c.extent, c.divisor, {}};
    for (const Access& a : program.access) w.along.push_back(a.stride[d]);
    s.window[o].push_back(std::move(w));
  }
}

// Where a side reduction's results lie when they are folded: row-major over the kept dims.
Access fold_access(const PwProgram& program, const fuse::SideReduction& side) {
  Access a;
  a.stride.assign(program.domain.size(), 0);
  int64_t step = 1;
  for (size_t d = program.domain.size(); d-- > 0;)
    if (!(side.reduced >> d & 1)) a.stride[d] = step, step *= program.domain[d];
  return a;
}

// All lines, for what is done to each of them alike.
std::vector<Line*> lines(ContractionSpace& s) {
  std::vector<Line*> all;
  for (size_t o = 0; o < 2; ++o) {
    for (Line& l : s.operand[o]) all.push_back(&l);
    for (Window& w : s.window[o]) all.push_back(&w.at);
  }
  for (Line& l : s.result) all.push_back(&l);
  for (Line& l : s.side) all.push_back(&l);
  return all;
}

void remove_dim(ContractionSpace& s, size_t d) {
  s.dims.erase(s.dims.begin() + long(d));
  for (Line* l : lines(s)) l->step.erase(l->step.begin() + long(d));
}

void join_dims(ContractionSpace& s) {
  for (size_t d = s.dims.size(); d-- > 0;)
    if (s.dims[d].extent == 1) remove_dim(s, d);
  for (size_t d = s.dims.size(); d-- > 1;) {
    if (s.dims[d - 1].group != s.dims[d].group) continue;
    const std::vector<Line*> all = lines(s);
    const int64_t extent = s.dims[d].extent;
    if (!std::all_of(all.begin(), all.end(), [&](Line* l) { return l->step[d - 1] == l->step[d] * extent; })) continue;
    s.dims[d].extent *= s.dims[d - 1].extent;
    remove_dim(s, d - 1);
  }
}

bool is_wide(ContractionSpace& s) {
  constexpr int64_t kMost = int64_t{1} << 30;  // room for what a tile adds
  for (const char group : {'b', 'm', 'n', 'k'})
    if (s.size(group) > kMost) return true;
  if (s.size('b') * s.size('m') * s.size('n') > kMost) return true;
  for (const Line* l : lines(s)) {
    int64_t reach = std::abs(l->start);
    for (size_t d = 0; d < s.dims.size(); ++d) reach += std::abs(l->step[d]) * std::max<int64_t>(0, s.dims[d].extent);
    if (reach > kMost) return true;
  }
  for (size_t o = 0; o < 2; ++o)
    for (const Window& w : s.window[o])
      for (int64_t along : w.along)
        if (std::abs(along) * w.extent > kMost) return true;
  return false;
}

// The access that decides an order: the store, or load, that reaches most elements.
const Access* main_access(const PwProgram& p, PwOp op) {
  const Access* best = nullptr;
  int64_t most = -1;
  for (const fuse::Instr& i : p.code) {
    if (i.op != op) continue;
    const Access& a = p.access[size_t(i.access)];
    int64_t reach = 1;
    for (size_t d = 0; d < p.domain.size(); ++d)
      if (a.stride[d] != 0) reach *= p.domain[d];
    if (reach > most) most = reach, best = &a;
  }
  return best;
}

}  // namespace

ContractionSpace make_contraction_space(const Problem& p, const std::array<const PwProgram*, 2>& program,
                                        const fuse::Region& region) {
  ContractionSpace s;
  s.dims = p.dims;
  for (size_t o = 0; o < 2; ++o) add_operand(s, p, o, *program[o]);
  const auto add = [&](std::vector<Line>& to, const Access& a) {
    to.push_back(line(p, problem_offset(p, a), problem_strides(p, a)));
  };
  for (const Access& a : region.program.access) add(s.result, a);
  for (const fuse::SideReduction& side : region.side) add(s.side, fold_access(region.program, side));
  join_dims(s);
  s.wide = is_wide(s);
  return s;
}

OrderedProblem order_problem(const fuse::FusedGraph& fused, const fuse::Region& region) {
  OrderedProblem o{fuse::make_problem(fused.graph, fused.graph.nodes[size_t(region.heavy)])};
  Problem& p = o.problem;
  const Access* store = main_access(region.program, PwOp::Store);
  if (!store) store = main_access(region.program, PwOp::Load);
  Factors weight = {};
  if (store) weight = problem_strides(p, *store);
  char fastest = 'n';
  int64_t least = INT64_MAX;
  for (size_t d = 0; d < p.dims.size(); ++d) {
    const int64_t stride = std::abs(weight[d]);
    if (p.dims[d].extent > 1 && stride != 0 && stride < least) least = stride, fastest = p.dims[d].group;
  }
  if (fastest == 'm') {
    exchange(p);
    o.exchanged = true;
    if (store) weight = problem_strides(p, *store);
  }
  sort_group(p, 'm', weight);
  if (store) weight = problem_strides(p, *store);
  sort_group(p, 'n', weight);
  if (const Access* a = main_access(region.operand[o.exchanged ? 1 : 0], PwOp::Load))
    sort_group(p, 'k', operand_strides(p, 0, *a));
  return o;
}

}  // namespace tilewright::cuda
