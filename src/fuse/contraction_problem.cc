#include "fuse/contraction_problem.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "ops/convolution.h"

namespace tilewright::fuse {

Coordinate along(int dim, int64_t extent, int64_t factor) {
  Coordinate c;
  c.factor[size_t(dim)] = factor;
  c.extent = extent;
  return c;
}

namespace {

using Factors = std::array<int64_t, kMaxProblem>;

Problem make_matmul(const ir::Graph& g, const ir::Node& n) {
  Problem p;
  const Dims &a = g.tensor(n.in[0]).dim, &b = g.tensor(n.in[1]).dim, &c = g.tensor(n.out[0]).dim;
  const size_t batch = c.size() - 2;
  for (size_t d = 0; d < batch; ++d) p.dims.push_back({c[d], 'b'});
  const int m = int(batch), k = m + 2;
  p.dims.push_back({c[batch], 'm'});
  p.dims.push_back({c[batch + 1], 'n'});
  p.dims.push_back({a[batch + 1], 'k'});
  for (size_t d = 0; d < batch; ++d) {
    p.operand[0].push_back(along(int(d), a[d], a[d] != 1));  // 0: broadcast
    p.operand[1].push_back(along(int(d), b[d], b[d] != 1));
  }
  p.operand[0].push_back(along(m, a[batch]));
  p.operand[0].push_back(along(k, a[batch + 1]));
  p.operand[1].push_back(along(k, b[batch]));
  p.operand[1].push_back(along(m + 1, b[batch + 1]));
  for (size_t d = 0; d < c.size(); ++d) p.result.push_back(along(int(d), 1).factor);
  const auto port = [&](size_t i) { return i < n.in.size() ? n.in[i] : ir::kNone; };
  p.m_end = port(2), p.n_end = port(3), p.k_end = port(4);
  p.padding = n.attr("padding_value", 0.0);
  return p;
}

Problem make_convolution(const ir::Graph& g, const ir::Node& node) {
  const ops::Convolution conv = ops::convolution_of(g, node);
  const std::string_view op = node.op->name;
  const bool fprop = op == "conv_fprop", dgrad = op == "conv_dgrad";
  const size_t rank = conv.rank();
  Problem p;
  const auto add = [&](int64_t extent, char group) {
    p.dims.push_back({extent, group});
    return int(p.dims.size()) - 1;
  };
  // Which group each index belongs to: fprop sums over input channels and taps, dgrad over output channels and taps,
  // wgrad over images and positions.
  const int group = add(conv.groups, 'b');
  int image, x_channel, y_channel;
  std::vector<int> position, tap;  // of Y (of X in dgrad), of W
  if (fprop || dgrad) {
    image = add(conv.n, 'm');
    for (size_t d = 0; d < rank; ++d) position.push_back(add(fprop ? conv.out[d] : conv.in[d], 'm'));
    const int kept = add(fprop ? conv.k_per_group() : conv.c_per_group(), 'n');
    const int summed = add(fprop ? conv.c_per_group() : conv.k_per_group(), 'k');
    for (size_t d = 0; d < rank; ++d) tap.push_back(add(conv.filter[d], 'k'));
    x_channel = fprop ? summed : kept;
    y_channel = fprop ? kept : summed;
  } else {
    y_channel = add(conv.k_per_group(), 'm');
    x_channel = add(conv.c_per_group(), 'n');
    for (size_t d = 0; d < rank; ++d) tap.push_back(add(conv.filter[d], 'n'));
    image = add(conv.n, 'k');
    for (size_t d = 0; d < rank; ++d) position.push_back(add(conv.out[d], 'k'));
  }
  const auto channel = [&](int dim, int64_t per_group, int64_t all) {
    Coordinate c = along(dim, all);
    c.factor[size_t(group)] = per_group;
    return c;
  };
  std::vector<Coordinate> x = {along(image, conv.n), channel(x_channel, conv.c_per_group(), conv.c)};
  std::vector<Coordinate> y = {along(image, conv.n), channel(y_channel, conv.k_per_group(), conv.k)};
  std::vector<Coordinate> w = {channel(y_channel, conv.k_per_group(), conv.k), along(x_channel, conv.c_per_group())};
  for (size_t d = 0; d < rank; ++d) {
    // `tap` counts W's taps; with a flipped filter tap r lies at offset filter - 1 - r.
    const int64_t last = conv.filter[d] - 1, dilation = conv.dilation[d];
    const int64_t offset_base = conv.flip ? last * dilation : 0, offset_step = conv.flip ? -dilation : dilation;
    w.push_back(along(tap[d], conv.filter[d]));
    Coordinate from;
    if (dgrad) {  // position of Y that meets this one of X: (q + pre - offset) / stride
      from = along(position[d], conv.out[d]);
      from.base = conv.pre[d] - offset_base;
      from.factor[size_t(tap[d])] = -offset_step;
      from.divisor = conv.stride[d];
      y.push_back(from);
      x.push_back(along(position[d], conv.in[d]));
    } else {
      from = along(position[d], conv.in[d], conv.stride[d]);
      from.base = offset_base - conv.pre[d];
      from.factor[size_t(tap[d])] = offset_step;
      x.push_back(from);
      y.push_back(along(position[d], conv.out[d]));
    }
  }
  p.operand = {fprop ? x : y, fprop || dgrad ? w : x};
  for (const Coordinate& c : fprop ? y : dgrad ? x : w) p.result.push_back(c.factor);
  return p;
}

}  // namespace

int64_t Problem::size(char group) const {
  int64_t n = 1;
  for (const ProblemDim& d : dims)
    if (d.group == group) n *= d.extent;
  return n;
}

std::vector<int> Problem::dims_of(char group) const {
  std::vector<int> list;
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d].group == group) list.push_back(int(d));
  return list;
}

Problem make_problem(const ir::Graph& g, const ir::Node& n) {
  Problem p = std::string_view(n.op->name) == "matmul" ? make_matmul(g, n) : make_convolution(g, n);
  TW_CHECK(p.dims.size() <= size_t(kMaxProblem));
  return p;
}

namespace {

// Puts the dims in another order: position i holds what was at order[i].
void reorder(Problem& p, const std::vector<int>& order) {
  const std::vector<ProblemDim> dims = p.dims;
  for (size_t i = 0; i < order.size(); ++i) p.dims[i] = dims[size_t(order[i])];
  const auto permute = [&](Factors& f) {
    const Factors old = f;
    for (size_t i = 0; i < order.size(); ++i) f[i] = old[size_t(order[i])];
  };
  for (auto& operand : p.operand)
    for (Coordinate& c : operand) permute(c.factor);
  for (Factors& f : p.result) permute(f);
}

}  // namespace

namespace {

// Index i of dim `dim` becomes start + step * i, i < extent.
void substitute(Problem& p, int dim, int64_t start, int64_t step, int64_t extent) {
  p.dims[size_t(dim)].extent = extent;
  for (auto& operand : p.operand)
    for (Coordinate& c : operand) {
      c.base += c.factor[size_t(dim)] * start;
      c.factor[size_t(dim)] *= step;
    }
  p.result_base.resize(p.result.size(), 0);
  for (size_t d = 0; d < p.result.size(); ++d) {
    p.result_base[d] += p.result[d][size_t(dim)] * start;
    p.result[d][size_t(dim)] *= step;
  }
}

// The coordinate's numerator is base + position + factor * tap: its positions and taps by their remainders.
bool split(const Problem& p, size_t operand, size_t coordinate, std::vector<Problem>& parts) {
  const Coordinate& c = p.operand[operand][coordinate];
  int position = -1, tap = -1;
  for (int i = 0; i < int(p.dims.size()); ++i) {
    if (c.factor[size_t(i)] == 0) continue;
    int& role = p.dims[size_t(i)].group == 'k' ? tap : position;
    if (role >= 0) return false;
    role = i;
  }
  if (position < 0 || tap < 0 || c.factor[size_t(position)] != 1) return false;
  const int64_t s = c.divisor, factor = c.factor[size_t(tap)], step = s / std::gcd(std::abs(factor), s);
  const int64_t positions = p.dims[size_t(position)].extent, taps = p.dims[size_t(tap)].extent;
  for (int64_t r = 0; r < std::min(s, positions); ++r) {
    int64_t first = 0;
    while (first < std::min(step, taps) && (c.base + r + factor * first) % s != 0) ++first;
    const bool none = first == std::min(step, taps);
    Problem part = p;
    substitute(part, position, r, s, (positions - r + s - 1) / s);
    substitute(part, tap, none ? 0 : first, step, none ? 0 : (taps - first + step - 1) / step);
    Coordinate& dense = part.operand[operand][coordinate];
    dense.base = none ? 0 : dense.base / s;
    for (int64_t& f : dense.factor) f /= s;
    dense.divisor = 1;
    parts.push_back(std::move(part));
  }
  return true;
}

}  // namespace

std::vector<Problem> dense_parts(const Problem& p) {
  for (size_t o = 0; o < 2; ++o)
    for (size_t d = 0; d < p.operand[o].size(); ++d) {
      if (p.operand[o][d].divisor == 1) continue;
      std::vector<Problem> parts, all;
      if (!split(p, o, d, parts)) return {p};
      for (const Problem& part : parts)
        for (Problem& dense : dense_parts(part)) all.push_back(std::move(dense));
      return all;
    }
  return {p};
}

void exchange(Problem& p) {
  std::swap(p.operand[0], p.operand[1]);
  std::swap(p.m_end, p.n_end);
  std::vector<int> order = p.dims_of('b');
  for (char group : {'n', 'm', 'k'})
    for (int d : p.dims_of(group)) order.push_back(d);
  for (ProblemDim& d : p.dims)
    if (d.group == 'm' || d.group == 'n') d.group = d.group == 'm' ? 'n' : 'm';
  reorder(p, order);
}

void sort_group(Problem& p, char group, const Factors& weight) {
  std::vector<int> order(p.dims.size());
  std::iota(order.begin(), order.end(), 0);
  const std::vector<int> list = p.dims_of(group);
  if (list.empty()) return;
  std::stable_sort(order.begin() + list.front(), order.begin() + list.back() + 1, [&](int a, int b) {
    // Dims of one element go to the front, where they cost nothing.
    const bool one_a = p.dims[size_t(a)].extent == 1, one_b = p.dims[size_t(b)].extent == 1;
    if (one_a != one_b) return one_a;
    return std::abs(weight[size_t(a)]) > std::abs(weight[size_t(b)]);
  });
  reorder(p, order);
}

Factors problem_strides(const Problem& p, const Access& a) {
  Factors s = {};
  for (size_t d = 0; d < p.result.size(); ++d)
    for (size_t i = 0; i < p.dims.size(); ++i) s[i] += p.result[d][i] * a.stride[d];
  return s;
}

int64_t problem_offset(const Problem& p, const Access& a) {
  int64_t at = a.offset;
  for (size_t d = 0; d < p.result_base.size(); ++d) at += p.result_base[d] * a.stride[d];
  return at;
}

Factors operand_strides(const Problem& p, int operand, const Access& a) {
  Factors s = {};
  const auto& coordinates = p.operand[size_t(operand)];
  for (size_t d = 0; d < coordinates.size(); ++d)
    for (size_t i = 0; i < p.dims.size(); ++i) s[i] += coordinates[d].factor[i] * a.stride[d];
  return s;
}

}  // namespace tilewright::fuse
