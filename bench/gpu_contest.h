// One row on a GPU: its plans built, judged by samples, and timed on memory that rotates past the cache.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu_rows.h"
#include "plan/device_timer.h"
#include "plan/plan_list.h"
#include "sampling.h"

namespace tilewright::bench {

// A GPU, with a stream of ours that can be captured. One for the process.
class Gpu {
 public:
  static Result<std::unique_ptr<Gpu>> open(const std::string& device);  // "cuda:0"
  ~Gpu();
  const Target& target() const { return target_; }
  const Queue& queue() const { return queue_; }
  Handle handle() const { return handle_; }
  Status wait() const { return cuda::check(cuda::driver().stream_synchronize(stream()), "running on the GPU"); }
  cuda::CUstream stream() const { return static_cast<cuda::CUstream>(queue_.stream); }

 private:
  Gpu() = default;
  std::optional<cuda::ScopedDevice> current_;
  Target target_;
  Queue queue_;
  Handle handle_;
};

// The host's tensors, several times over, on the GPU.
class GpuTensors {
 public:
  static int sets_for(const Target&, double bytes);  // three times the L2, two at least
  GpuTensors(const Gpu& gpu, int sets) : gpu_(gpu), sets_(sets) {}
  Status add(const ir::Graph&, const Tensors& host);  // the tensors that are not there yet
  Status poison(const ir::Graph&);                    // outputs of the first set
  Status read(const std::string& name, int64_t offset, int64_t bytes, void* to) const;  // of the first set
  Bindings bindings(const ir::Graph&, int set) const;
  int sets() const { return sets_; }

 private:
  const Gpu& gpu_;
  int sets_;
  std::map<std::string, std::vector<cuda::DeviceMemory>> buffers_;
};

struct GpuPlan {
  std::string name, engine;
  int64_t rank = 0;                     // in the list
  std::string problem;                  // why it did not build or run, or how it is wrong; empty: it is in the contest
  bool wrong = false, excused = false;  // excused: its notes say that it computes less exactly
  double worst_error = 0, build_ms = 0;
  double ms = 0;      // median
  std::string batch;  // "graph of 40": how it was timed
};

struct GpuContest {
  std::vector<GpuPlan> plans;                  // by rank
  std::map<std::string, std::string> refused;  // by engine, why
  double copy_ms = 0;                          // copying as many bytes as the row's tensors have
  double bytes = 0;
  double build_ms = 0;  // of all plans
};

struct ContestOptions {
  bool quick = false;  // the first plans of each engine only
  bool check_only = false;
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};
Result<GpuContest> hold_contest(const Gpu&, const GpuRow&, const ContestOptions&);

}  // namespace tilewright::bench
