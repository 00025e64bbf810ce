// What executing on a GPU needs beside what a CPU needs: pointers told apart, device time, CUDA graphs.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "plan/plan_list.h"

namespace tilewright::graph {

// Plans are bound to the device that they were made for.
Status check_device(const Target& plan, const Queue& queue);

// Memory of the queue's GPU for tensors and workspace, host memory for scalars, each as aligned as its tensor says. A
// pointer that a thread has seen in its place lately is not looked up again.
Status check_gpu_pointers(const PlanBinding&, const Bindings&, void* workspace, const Queue&);

// Times runs on a GPU by events on the queue's stream; before each, the cache is filled with other data.
class GpuTimer {
 public:
  static Result<std::unique_ptr<GpuTimer>> make(const Target&, const Queue&);
  // After one run that is not counted: the median of at least 5, of more while they are short.
  Result<double> median_ms(const std::function<Status()>& run);

 private:
  Queue queue_;
  cuda::DeviceMemory flush_;
  std::unique_ptr<cuda::Stopwatch> watch_;
};

// The launches of a plan as an instantiated CUDA graph.
class GpuGraph {
 public:
  static Result<std::unique_ptr<GpuGraph>> make(const Executable&, const Bindings&, void* workspace, const Queue&);
  ~GpuGraph();
  Status launch() const;

 private:
  GpuGraph() = default;
  Queue queue_;
  cuda::CUgraph graph_ = nullptr;
  cuda::CUgraphExec exec_ = nullptr;
};

}  // namespace tilewright::graph
