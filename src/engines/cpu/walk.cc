#include "engines/cpu/walk.h"

#include <algorithm>

namespace tilewright::cpu {
namespace {

constexpr int64_t kMaxSegments = 1 << 16;  // bounds the table

// The values that a coordinate takes.
std::pair<int64_t, int64_t> range_of(const Problem& p, const Coordinate& c) {
  int64_t low = c.base, high = c.base;
  for (size_t i = 0; i < p.dims.size(); ++i) {
    const int64_t reach = c.factor[i] * std::max<int64_t>(0, p.dims[i].extent - 1);
    (reach < 0 ? low : high) += reach;
  }
  return {low, high};
}

}  // namespace

bool Walk::prepare(const Problem& p, int operand, char points, char lanes, const fuse::PwProgram& program) {
  if (program.code.size() != 1 || program.code[0].op != fuse::PwOp::Load) return false;
  if (p.m_end != ir::kNone || p.n_end != ir::kNone || p.k_end != ir::kNone) return false;
  const fuse::Access& access = program.access[0];
  type_ = access.type;
  origin_.at = access.offset;
  const auto& coordinates = p.operand[size_t(operand)];
  for (size_t d = 0; d < coordinates.size(); ++d) {
    const Coordinate& c = coordinates[d];
    if (c.divisor != 1) return false;
    origin_.at += c.base * access.stride[d];
    const auto [low, high] = range_of(p, c);
    if (low >= 0 && high < c.extent) continue;
    if (checks_ == kMaxChecked) return false;
    origin_.coordinate[checks_] = c.base;
    extent_[checks_] = c.extent;
    factor_[checks_++] = c.factor;
  }
  const auto strides = operand_strides(p, operand, access);
  batch_ = dims_of(p, 'b', strides);
  for (const Dim& d : batch_)
    for (int c = 0; c < checks_; ++c)
      if (d.factor[c] != 0 && d.extent > 1) return false;
  point_ = dims_of(p, points, strides);
  // Points without checks whose addresses go on from dim to dim are one dim.
  for (size_t d = point_.size(); d-- > 1;) {
    Dim &outer = point_[d - 1], &inner = point_[d];
    bool merges = outer.stride == inner.stride * inner.extent || outer.extent == 1;
    for (int c = 0; c < checks_; ++c) merges = merges && inner.factor[c] == 0 && outer.factor[c] == 0;
    if (!merges) continue;
    inner.extent *= outer.extent;
    point_.erase(point_.begin() + int64_t(d) - 1);
  }
  make_segments(dims_of(p, lanes, strides));
  return !segment_.empty();
}

std::vector<Walk::Dim> Walk::dims_of(const Problem& p, char group,
                                     const std::array<int64_t, kMaxProblem>& strides) const {
  std::vector<Dim> list;
  for (int i : p.dims_of(group)) {
    Dim d;
    d.problem_dim = i;
    d.extent = p.dims[size_t(i)].extent;
    d.stride = strides[size_t(i)];
    for (int c = 0; c < checks_; ++c) d.factor[c] = factor_[c][size_t(i)];
    list.push_back(d);
  }
  return list;
}

void Walk::make_segments(std::vector<Dim> dims) {
  const auto checks_of = [&](const Dim& d) {
    int n = 0, which = -1;
    for (int c = 0; c < checks_; ++c)
      if (d.factor[c] != 0) ++n, which = c;
    return std::pair(n, which);
  };
  // Lanes take in the fastest dim, and what memory goes on with, up to one dim that a check depends on.
  bool first = true;
  while (!dims.empty()) {
    const Dim d = dims.back();
    const auto [n, check] = checks_of(d);
    if (d.extent != 1) {
      if (n > 1 || (n == 1 && d.factor[check] < 0) || lane_check_ >= 0) break;
      if (!first && d.stride != step_ * length_) break;
      if (first) step_ = d.stride;
      first = false;
      if (n == 1) {
        lane_check_ = check, lane_factor_ = d.factor[check], lane_inner_ = length_;
        lane_reach_ = lane_factor_ * (d.extent - 1);
      }
      length_ *= d.extent;
    }
    dims.pop_back();
  }
  int64_t count = 1;
  for (const Dim& d : dims) {
    count *= d.extent;
    if (count > kMaxSegments) return;
  }
  for (int64_t i = 0; i < count; ++i) {
    Spot s;
    int64_t rest = i;
    for (size_t d = dims.size(); d-- > 0;) {
      const int64_t digit = rest % dims[d].extent;
      rest /= dims[d].extent;
      s.at += digit * dims[d].stride;
      for (int c = 0; c < checks_; ++c) s.coordinate[c] += digit * dims[d].factor[c];
    }
    segment_.push_back(s);
  }
}

void Walk::clip(Run& r, int64_t v, int64_t extent) const {
  // Steps j of the coordinate with 0 <= v + j * factor < extent.
  const int64_t f = lane_factor_;
  const int64_t low = v >= 0 ? 0 : (-v + f - 1) / f, high = v >= extent ? 0 : (extent - 1 - v) / f + 1;
  r.from = std::max(r.from, std::min(low * lane_inner_, length_));
  r.to = std::min(r.to, std::max<int64_t>(high, 0) * lane_inner_);
}

Walk::Span Walk::span(int64_t segment, int64_t count) const {
  Span span;
  for (int c = 0; c < checks_; ++c) {
    span.low[c] = INT64_MAX, span.high[c] = INT64_MIN;
    for (int64_t s = segment; s < segment + count; ++s) {
      const int64_t v = segment_[size_t(s)].coordinate[c];
      span.low[c] = std::min(span.low[c], v);
      span.high[c] = std::max(span.high[c], v + (c == lane_check_ ? lane_reach_ : 0));
    }
  }
  return span;
}

int64_t Walk::batch_offset(const int64_t* index) const {
  int64_t at = 0;
  for (const Dim& d : batch_) at += index[d.problem_dim] * d.stride;
  return at;
}

void Walk::move(Spot& spot, const Dim& dim, int64_t steps) {
  spot.at += steps * dim.stride;
  for (int c = 0; c < kMaxChecked; ++c) spot.coordinate[c] += steps * dim.factor[c];
}

void Walk::points(int64_t first, int64_t count, int64_t batch_offset, Spot* out) const {
  if (count == 0) return;  // dims may be empty
  Spot now = origin_;
  now.at += batch_offset;
  if (checks_ == 0 && point_.size() == 1) {
    for (int64_t i = 0; i < count; ++i) out[i].at = now.at + (first + i) * point_[0].stride;
    return;
  }
  int64_t digit[kMaxProblem];
  for (size_t d = point_.size(); d-- > 0;) {
    const Dim& dim = point_[d];
    digit[d] = d == 0 ? first : first % dim.extent;
    first /= std::max<int64_t>(1, dim.extent);
    now.at += digit[d] * dim.stride;
    for (int c = 0; c < checks_; ++c) now.coordinate[c] += digit[d] * dim.factor[c];
  }
  for (int64_t i = 0; i < count;) {
    // Along the fastest dim.
    const size_t last = point_.size();
    const Dim inner = last ? point_[last - 1] : Dim();
    const int64_t left = last > 1 ? std::min(count - i, inner.extent - digit[last - 1]) : count - i;
    for (int64_t j = 0; j < left; ++j, ++i) {
      out[i].at = now.at + j * inner.stride;
      for (int c = 0; c < kMaxChecked; ++c) out[i].coordinate[c] = now.coordinate[c] + j * inner.factor[c];
    }
    if (i == count) return;
    move(now, inner, left);
    digit[last - 1] += left;
    for (size_t d = last - 1; d > 0 && digit[d] == point_[d].extent; --d) {
      move(now, point_[d], -point_[d].extent);
      digit[d] = 0;
      move(now, point_[d - 1], 1);
      ++digit[d - 1];
    }
  }
}

}  // namespace tilewright::cpu
