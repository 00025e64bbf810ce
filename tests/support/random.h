// Seeded random choices for tests. TILEWRIGHT_TEST_SEED replaces the seeds of a run by one: the failing one, printed by
// the test that failed.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "layout/view.h"

namespace tilewright::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u) {}

  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t between(int64_t least, int64_t most) { return least + int64_t(bits() % uint64_t(most - least + 1)); }
  bool one_in(int64_t n) { return between(1, n) == 1; }
  template <class T>
  T of(std::initializer_list<T> list) {
    return list.begin()[between(0, int64_t(list.size()) - 1)];
  }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[size_t(between(0, int64_t(list.size()) - 1))];
  }

  // Strides of a layout that no two elements share: row-major, channels-last, or any order of dims, with gaps or not.
  Dims strides(const Dims& dim) {
    const int64_t kind = between(0, 3);
    if (kind == 0) return row_major_strides(dim);
    if (kind == 1) return channels_last_strides(dim);
    std::vector<int64_t> order(dim.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[size_t(between(0, int64_t(i) - 1))]);
    Dims stride(dim.size());
    int64_t step = kind == 3 && one_in(4) ? 2 : 1;
    for (int64_t d : order) {
      stride[size_t(d)] = step;
      step = step * std::max<int64_t>(dim[size_t(d)], 1) + (kind == 3 && one_in(2) ? between(1, 3) : 0);
    }
    return stride;
  }
  // The same for a tensor that is only read: now and then a dim is a broadcast.
  Dims input_strides(const Dims& dim) {
    Dims stride = strides(dim);
    if (one_in(8)) stride[size_t(between(0, int64_t(dim.size()) - 1))] = 0;
    return stride;
  }

 private:
  uint64_t state_;
};

// The seeds of a test: first, first + 1, ... or the one of the environment.
inline std::vector<uint64_t> seeds(uint64_t first, int count) {
  if (const char* text = std::getenv("TILEWRIGHT_TEST_SEED")) return {std::strtoull(text, nullptr, 0)};
  std::vector<uint64_t> list(static_cast<size_t>(count));
  std::iota(list.begin(), list.end(), first);
  return list;
}

}  // namespace tilewright::testing
