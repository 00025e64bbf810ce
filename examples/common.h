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

// What a graph's tensors hold: vectors on the host, which the exact reference reads too, and where the handle's device
// has them. On a CPU that is the same memory, and nothing is copied. A program with CUDA would call cudaMalloc and
// cudaMemcpy instead.
class Data {
 public:
  explicit Data(tw::Handle device) : device_(device) {
    std::string name = "cpu";
    on_gpu_ = tw::get_device(device, name).is_good() && name != "cpu";
  }
  ~Data() {
    for (void* memory : owned_) (void)tw::device_free(device_, memory);
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  // The tensor's contents from now on; the device has them after the next upload().
  template <class T>
  void bind(const fe::TensorPtr& tensor, std::vector<T>& values) {
    host[tensor] = values.data();
    if (!on_gpu_) device[tensor] = values.data();
    else device[tensor] = allocate(bytes_[tensor] = int64_t(values.size() * sizeof(T)));
  }
  // Of a scalar that is passed by value: always on the host.
  void bind_value(const fe::TensorPtr& tensor, void* value) { host[tensor] = device[tensor] = value; }
  // For what a plan keeps between its kernels.
  void* workspace(int64_t bytes) { return allocate(bytes > 0 ? bytes : 1); }

  tw::error_t upload() { return copy(device, host); }
  tw::error_t download() { return copy(host, device); }

  Pack host, device;  // for the reference; for execute()

 private:
  // Null where there is not as much; executing then says so.
  void* allocate(int64_t bytes) {
    void* memory = nullptr;
    if (tw::device_allocate(device_, bytes, &memory).is_good()) owned_.push_back(memory);
    return memory;
  }
  tw::error_t copy(const Pack& to, const Pack& from) {
    for (const auto& [tensor, bytes] : bytes_)
      if (tw::error_t s = tw::device_copy(device_, to.at(tensor), from.at(tensor), bytes); s.is_bad()) return s;
    return {};
  }

  tw::Handle device_;
  bool on_gpu_ = false;
  std::unordered_map<fe::TensorPtr, int64_t> bytes_;  // of what is copied
  std::vector<void*> owned_;
};

struct Timing {
  double median = 0, min = 0, max = 0;  // milliseconds
  int runs = 0;
};

// The first run warms up. What takes a second is not run again; else some 0.3 s of runs, 3 at least. A GPU only puts
// runs on its stream, so there it is a number of runs and the wait for them that is timed.
template <class Body>
Timing time_runs(tw::Handle device, const Body& body) {
  using clock = std::chrono::steady_clock;
  std::string name = "cpu";
  const bool on_gpu = tw::get_device(device, name).is_good() && name != "cpu";
  const auto run = [&](int count) {
    const auto start = clock::now();
    for (int i = 0; i < count; ++i) body();
    (void)tw::device_synchronize(device);
    return std::chrono::duration<double, std::milli>(clock::now() - start).count() / count;
  };
  std::vector<double> ms{run(1)};
  if (ms[0] < 1000) {
    const int count = on_gpu && run(1) < 5 ? 20 : 1;
    ms.clear();
    for (double total = 0; ms.size() < 3 || (total < 300 && ms.size() < 100); total += ms.back() * count)
      ms.push_back(run(count));
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
  tw::Handle device;  // what graphs are built for and run on
  std::vector<Row> rows;

  // Of a program of its own: --quick for small sizes, --device cuda:0 for another device than the CPU.
  bool start(int argc, char** argv) {
    tw::error_t status;
    for (int i = 1; i < argc && status.is_good(); ++i) {
      if (argv[i] == std::string("--quick")) quick = true;
      else if (argv[i] == std::string("--device") && i + 1 < argc) status = tw::create_handle(&device, argv[++i]);
      else status = {tw::error_code_t::INVALID_VALUE, "options: [--quick] [--device cpu|cuda:N]"};
    }
    if (status.is_bad()) std::cerr << status.get_message() << std::endl;
    return status.is_good();
  }

  void begin(int section, const std::string& title, const std::string& problem) {
    rows.emplace_back();
    rows.back().section = section, rows.back().title = title, rows.back().problem = problem;
    std::cout << section << ". " << title << "\n   problem  " << problem << std::endl;
  }

  // Prints what the chosen plan did, compares the outputs with the exact reference, and says if all is right.
  bool finish(const fe::Graph& graph, Data& data, const Timing& timing, double flops) {
    tw::ExactReference reference;
    tw::error_t status = data.download();
    if (status.is_good()) status = reference.evaluate(graph, data.host);
    return finish(graph, data, timing, flops, status.is_good() ? &reference : nullptr, status);
  }
  bool finish(const fe::Graph& graph, Data& data, const Timing& timing, double flops,
              const tw::ExactReference* reference, tw::error_t status = {}) {
    Row& row = rows.back();
    if (graph.get_plan_name(row.plan).is_bad()) row.plan = "?";
    row.ms = timing.median, row.flops = flops;
    std::vector<tw::JudgedOutput> outputs;
    if (status.is_good()) status = data.download();
    if (reference && status.is_good()) status = reference->judge(data.host, &outputs);
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
    return tour.start(argc, argv) ? section(tour) : 2; \
  }
#endif

}  // namespace example
