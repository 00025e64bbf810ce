// What the examples share: data, timing, printing. The library itself is used in the examples alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "tilewright/exact_reference.h"
#include "tilewright/tilewright.h"

namespace example {

namespace tw = tilewright;
namespace fe = tilewright::graph;
using Pack = std::unordered_map<fe::TensorPtr, void*>;  // which memory holds which tensor

// Leaves the example with exit code 1 when a call did not succeed.
#define EXAMPLE_OK(expr) \
  do { \
    if (const tilewright::error_t status_ = (expr); status_.is_bad()) { \
      std::cerr << "failed: " #expr "\n  " << status_.get_message() << std::endl; \
      return 1; \
    } \
  } while (0)

// Numbers, about normal.
template <class T>
std::vector<T> random(int64_t count, unsigned seed, float deviation = 1) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<T> v(static_cast<size_t>(count));
  for (T& x : v) x = T(normal(bits));
  return v;
}

// An output before it is computed: NaN, so that an element that nothing writes is seen.
template <class T>
std::vector<T> unwritten(int64_t count) {
  return std::vector<T>(static_cast<size_t>(count), T(std::numeric_limits<float>::quiet_NaN()));
}

// Memory for what a plan keeps between its kernels, aligned as an allocator of a device aligns.
class Workspace {
 public:
  explicit Workspace(int64_t bytes) : storage_(static_cast<size_t>(bytes) + 256) {}
  void* data() {
    void* p = storage_.data();
    size_t space = storage_.size();
    return std::align(256, 1, p, space);
  }

 private:
  std::vector<char> storage_;
};

struct Timing {
  double median = 0, min = 0, max = 0;  // milliseconds
  int runs = 0;
};

// The first run warms up. What takes a second is not run again; else some 0.3 s of runs, 3 at least.
template <class Body>
Timing time_runs(const Body& body) {
  using clock = std::chrono::steady_clock;
  const auto run = [&] {
    const auto start = clock::now();
    body();
    return std::chrono::duration<double, std::milli>(clock::now() - start).count();
  };
  std::vector<double> ms{run()};
  if (ms[0] < 1000) {
    ms.clear();
    for (double total = 0; ms.size() < 3 || (total < 300 && ms.size() < 100); total += ms.back()) ms.push_back(run());
  }
  std::sort(ms.begin(), ms.end());
  return {ms[ms.size() / 2], ms.front(), ms.back(), int(ms.size())};
}

inline std::string text(const char* format, double x) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, x);
  return buffer;
}
inline std::string time_text(double ms) { return ms < 1 ? text("%.1f us", ms * 1e3) : text("%.2f ms", ms); }

// Where results go: printed at once, and kept for the summary of the tour.
class Tour {
 public:
  struct Row {
    int section = 0;
    std::string title, problem, plan;
    double ms = 0, flops = 0, error = 0, of_bound = 0;
    bool ok = false;
  };
  bool quick = false;
  std::vector<Row> rows;

  void begin(int section, const std::string& title, const std::string& problem) {
    rows.emplace_back();
    rows.back().section = section, rows.back().title = title, rows.back().problem = problem;
    std::cout << section << ". " << title << "\n   problem  " << problem << std::endl;
  }

  // Prints what the chosen plan did, compares the outputs in the pack with the exact reference, and says if all is
  // right.
  bool finish(const fe::Graph& graph, const Pack& pack, const Timing& timing, double flops) {
    tw::ExactReference reference;
    tw::error_t status = reference.evaluate(graph, pack);
    return finish(graph, pack, timing, flops, status.is_good() ? &reference : nullptr, status);
  }
  bool finish(const fe::Graph& graph, const Pack& pack, const Timing& timing, double flops,
              const tw::ExactReference* reference, tw::error_t status = {}) {
    Row& row = rows.back();
    if (graph.get_plan_name(row.plan).is_bad()) row.plan = "?";
    row.ms = timing.median, row.flops = flops;
    std::vector<tw::JudgedOutput> outputs;
    if (reference) status = reference->judge(pack, &outputs);
    for (const auto& o : outputs)
      row.error = std::max(row.error, o.max_error), row.of_bound = std::max(row.of_bound, o.of_bound);
    row.ok = status.is_good();
    std::cout << "   plan     " << row.plan << "\n   time     " << time_text(timing.median) << " median of "
              << timing.runs << " (" << time_text(timing.min) << " to " << time_text(timing.max) << ")\n   rate     "
              << text("%.1f GFLOP/s", flops / timing.median / 1e6) << "\n   error    " << text("%.2e", row.error)
              << " at most from the exact reference, " << text("%.0f %%", 100 * row.of_bound)
              << " of what rounding can explain" << std::endl;
    if (!row.ok) std::cerr << "   WRONG    " << status.get_message() << std::endl;
    return row.ok;
  }
};

// Each example is a program of its own, and a section of `tilewright tour`.
#ifdef EXAMPLE_IN_TOUR
#define EXAMPLE_MAIN(section)
#else
#define EXAMPLE_MAIN(section) \
  int main(int argc, char** argv) { \
    example::Tour tour; \
    tour.quick = argc > 1 && argv[1] == std::string("--quick"); \
    return section(tour); \
  }
#endif

}  // namespace example
