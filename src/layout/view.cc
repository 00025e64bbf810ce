#include "layout/view.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

namespace tilewright {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Sizes come from callers and may be absurd before they are verified: saturate instead of overflowing.
int64_t mul_saturated(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a, b, &r) ? ((a < 0) == (b < 0) ? kMax : -kMax) : r;
}
int64_t add_saturated(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_add_overflow(a, b, &r) ? (a > 0 ? kMax : -kMax) : r;
}

// Packed strides; `fastest_first` lists the dims from the fastest on.
Dims packed(const Dims& dim, const std::vector<size_t>& fastest_first) {
  Dims stride(dim.size());
  int64_t step = 1;
  for (size_t d : fastest_first) {
    stride[d] = step;
    step = mul_saturated(step, std::max<int64_t>(dim[d], 1));
  }
  return stride;
}

std::vector<size_t> last_to_first(size_t rank) {
  std::vector<size_t> order(rank);
  std::iota(order.rbegin(), order.rend(), size_t{0});
  return order;
}

// Looks for steps |delta[i]| < extent[i], not all 0, whose strides cancel out: two indices that far apart share an
// address. Dims come with descending strides, so what the remaining dims can still reach prunes the search.
class OverlapSearch {
 public:
  struct Dim {
    int64_t extent, stride;
  };
  explicit OverlapSearch(std::vector<Dim> dims) : dims_(std::move(dims)), reach_(dims_.size() + 1), gcd_(reach_) {
    for (size_t i = dims_.size(); i-- > 0;) {
      reach_[i] = add_saturated(reach_[i + 1], mul_saturated(dims_[i].extent - 1, dims_[i].stride));
      gcd_[i] = std::gcd(gcd_[i + 1], dims_[i].stride);
    }
  }
  bool found() { return search(0, 0, false); }

 private:
  // `offset` from the dims before i; moved: some delta before i is not 0.
  bool search(size_t i, int64_t offset, bool moved) {
    if (i == dims_.size()) return moved && offset == 0;
    if (offset % gcd_[i] != 0 || std::abs(offset) > reach_[i]) return false;
    // A search this long is of a view that nobody meant; call it overlapping.
    if (++visited_ > kMaxVisited) return true;
    const auto [extent, stride] = dims_[i];
    const int64_t rest = reach_[i + 1];
    // Of a pair of opposite solutions, the one whose first step is positive is enough.
    const int64_t lowest = moved ? -(extent - 1) : 0;
    const int64_t from = std::max(lowest, ceil_div(add_saturated(-rest, -offset), stride));
    const int64_t to = std::min(extent - 1, floor_div(add_saturated(rest, -offset), stride));
    for (int64_t delta = from; delta <= to; ++delta)
      if (search(i + 1, offset + delta * stride, moved || delta != 0)) return true;
    return false;
  }
  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
  static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }

  static constexpr int64_t kMaxVisited = 1 << 20;
  std::vector<Dim> dims_;
  std::vector<int64_t> reach_, gcd_;  // of the dims from i on
  int64_t visited_ = 0;
};

}  // namespace

std::string to_text(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

int64_t volume(const Dims& dims) {
  int64_t v = 1;
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return 0;
  for (int64_t d : dims) v = mul_saturated(v, d);
  return v;
}

std::optional<int64_t> volume_checked(const Dims& dims) {
  bool empty = false;
  for (int64_t d : dims) {
    if (d < 0) return std::nullopt;
    empty |= d == 0;
  }
  if (empty) return 0;
  int64_t v = 1;
  for (int64_t d : dims)
    if (__builtin_mul_overflow(v, d, &v)) return std::nullopt;
  return v;
}

int64_t storage_elements(const View& view) {
  int64_t last = 0;
  for (size_t i = 0; i < view.dim.size(); ++i) {
    if (view.dim[i] <= 0) return 0;
    if (view.stride[i] > 0) last = add_saturated(last, mul_saturated(view.dim[i] - 1, view.stride[i]));
  }
  return add_saturated(last, 1);
}

bool self_overlaps(const View& view) {
  std::vector<OverlapSearch::Dim> dims;
  int64_t reach = 1;  // addresses between the lowest and the highest, both included
  int64_t elements = 1;
  for (size_t i = 0; i < view.dim.size(); ++i) {
    if (view.dim[i] <= 0) return false;
    if (view.dim[i] == 1) continue;
    if (view.stride[i] == 0) return true;
    // Walking a dim backwards reaches the same addresses, so the sign does not matter.
    const int64_t stride = view.stride[i] < 0 ? mul_saturated(view.stride[i], -1) : view.stride[i];
    dims.push_back({view.dim[i], stride});
    reach = add_saturated(reach, mul_saturated(view.dim[i] - 1, stride));
    elements = mul_saturated(elements, view.dim[i]);
  }
  if (elements > reach || reach == kMax) return elements > reach;
  std::sort(dims.begin(), dims.end(), [](const auto& a, const auto& b) { return a.stride > b.stride; });
  return OverlapSearch(std::move(dims)).found();
}

// --- strides ---------------------------------------------------------------------------------------------------------

Dims strides_from_order(const Dims& dim, const std::vector<int64_t>& order) {
  TW_CHECK(order.size() == dim.size());
  std::vector<size_t> dims(dim.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return order[a] < order[b]; });
  return packed(dim, dims);
}

Dims row_major_strides(const Dims& dim) { return packed(dim, last_to_first(dim.size())); }

Dims column_major_strides(const Dims& dim) {
  std::vector<size_t> order = last_to_first(dim.size());
  if (dim.size() > 2) std::swap(order[0], order[1]);
  return packed(dim, order);
}

Dims channels_last_strides(const Dims& dim) {
  std::vector<size_t> order = last_to_first(dim.size());
  if (dim.size() > 2) std::rotate(order.begin(), order.end() - 2, order.end() - 1);  // dim 1 to the front
  return packed(dim, order);
}

Dims strides_like(const Dims& dim, const Dims& like) {
  std::vector<size_t> order(dim.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Equal strides mean a dim of size 1 (or a broadcast), whose place its own layout does not tell. Beside a unit stride
  // the channel dim is taken as the fastest (channels-last with one channel); elsewhere the later dim is.
  const auto faster = [&](size_t a, size_t b) {
    const bool has_a = a < like.size(), has_b = b < like.size();
    if (has_a != has_b) return has_a;
    if (!has_a) return a < b;
    if (like[a] != like[b]) return like[a] < like[b];
    if (like[a] == 1 && a != b && (a == 1 || b == 1)) return a == 1;
    return a > b;
  };
  std::sort(order.begin(), order.end(), faster);
  return packed(dim, order);
}

Result<Dims> broadcast_dims(const std::vector<Dims>& shapes) {
  size_t rank = 0;
  for (const Dims& s : shapes) rank = std::max(rank, s.size());
  if (rank == 0)
    return error(error_code_t::SHAPE_DEDUCTION_FAILED, "broadcast: none of {} shapes is set", shapes.size());
  Dims result(rank, 1);
  for (const Dims& s : shapes)
    for (size_t i = 0; i < s.size(); ++i) {
      int64_t& to = result[rank - s.size() + i];
      if (s[i] == 1 || s[i] == to) continue;
      if (to != 1) {
        std::string text;
        for (const Dims& each : shapes) text += (text.empty() ? "" : " and ") + to_text(each);
        return error(error_code_t::SHAPE_DEDUCTION_FAILED, "shapes {} do not broadcast: sizes {} and {} clash", text,
                     to, s[i]);
      }
      to = s[i];
    }
  return result;
}

Dims broadcast_strides(const View& view, const Dims& to) {
  TW_CHECK(view.dim.size() <= to.size());
  const size_t extra = to.size() - view.dim.size();
  Dims stride(to.size(), 0);
  for (size_t i = 0; i < view.dim.size(); ++i)
    if (view.dim[i] == to[extra + i]) stride[extra + i] = view.stride[i];
  return stride;
}

// --- walking ---------------------------------------------------------------------------------------------------------

void unravel(int64_t linear, const Dims& dim, int64_t* index) {
  for (size_t i = dim.size(); i-- > 0;) {
    index[i] = linear % dim[i];
    linear /= dim[i];
  }
}

int64_t offset_of(const Dims& stride, const int64_t* index) {
  int64_t offset = 0;
  for (size_t i = 0; i < stride.size(); ++i) offset += index[i] * stride[i];
  return offset;
}

int64_t offset_of_linear(int64_t linear, const View& view) {
  int64_t offset = 0;
  for (size_t i = view.dim.size(); i-- > 0;) {
    offset += linear % view.dim[i] * view.stride[i];
    linear /= view.dim[i];
  }
  return offset;
}

Collapsed collapse(const Dims& domain, const std::vector<Dims>& strides) {
  Collapsed c;
  c.stride.resize(strides.size());
  if (volume(domain) <= 1) {  // one element, or none
    c.dim = {volume(domain)};
    for (Dims& s : c.stride) s = {1};
    return c;
  }
  for (size_t i = 0; i < domain.size(); ++i) {
    if (domain[i] == 1) continue;
    bool merges = !c.dim.empty();
    for (size_t t = 0; merges && t < strides.size(); ++t)
      merges = c.stride[t].back() == mul_saturated(strides[t][i], domain[i]);
    if (merges) {
      c.dim.back() *= domain[i];
      for (size_t t = 0; t < strides.size(); ++t) c.stride[t].back() = strides[t][i];
    } else {
      c.dim.push_back(domain[i]);
      for (size_t t = 0; t < strides.size(); ++t) c.stride[t].push_back(strides[t][i]);
    }
  }
  return c;
}

}  // namespace tilewright
