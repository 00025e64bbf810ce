// How long what is put on a GPU's stream takes there, by device events. Brief runs are batched in a CUDA graph, so that
// the time the host takes to launch them does not count; where they cannot be captured, they are launched back to back.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/cuda/gpu.h"
#include "plan/engine.h"

namespace tilewright {

class DeviceTimer {
 public:
  using Run = std::function<Status(int64_t turn)>;  // enqueues one run; `turn` says whose memory it takes

  // Runs it a few times, to warm up and to learn how long it takes. `turns`: after so many the memory repeats.
  static Result<DeviceTimer> make(const Queue&, Run run, int64_t turns);
  ~DeviceTimer();
  DeviceTimer(DeviceTimer&&) noexcept;
  DeviceTimer& operator=(DeviceTimer&&) = delete;

  double estimate_ms() const { return estimate_ms_; }
  int64_t batch() const { return batch_; }  // runs in a sample
  bool captured() const { return exec_ != nullptr; }
  // Milliseconds of a run, `count` times: enqueued in one go behind one that is not measured.
  Result<std::vector<double>> samples(int count);

 private:
  DeviceTimer(const Queue& queue, Run run) : queue_(queue), run_(std::move(run)) {}
  Status enqueue();  // a batch
  Status measure_roughly(int64_t turns);
  void capture();

  Queue queue_;
  Run run_;
  int64_t turn_ = 0, batch_ = 1;
  double estimate_ms_ = 0;
  cuda::CUgraphExec exec_ = nullptr;
  std::vector<std::unique_ptr<cuda::Stopwatch>> watches_;
};

}  // namespace tilewright
