#include "plan/device_timer.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tilewright {
namespace {

constexpr double kBatchMs = 1;    // a sample of brief runs takes about so long
constexpr double kBriefMs = 0.5;  // longer runs are samples of their own: the host is well ahead of them
constexpr int64_t kMostBatch = 2000;

}  // namespace

DeviceTimer::~DeviceTimer() {
  if (exec_) cuda::driver().graph_exec_destroy(exec_);
}

DeviceTimer::DeviceTimer(DeviceTimer&& o) noexcept
    : queue_(o.queue_),
      run_(std::move(o.run_)),
      turn_(o.turn_),
      batch_(o.batch_),
      estimate_ms_(o.estimate_ms_),
      exec_(std::exchange(o.exec_, nullptr)),
      watches_(std::move(o.watches_)) {}

Result<DeviceTimer> DeviceTimer::make(const Queue& queue, Run run, int64_t turns) {
  const cuda::ScopedDevice device(queue.ordinal);
  TW_RETURN_IF_BAD(device.status());
  DeviceTimer timer(queue, std::move(run));
  TW_RETURN_IF_BAD(timer.measure_roughly(turns));
  if (timer.estimate_ms_ >= kBriefMs) return timer;
  const auto wanted = int64_t(std::ceil(kBatchMs / std::max(timer.estimate_ms_, 1e-4) / double(turns))) * turns;
  timer.batch_ = std::clamp<int64_t>(wanted, 1, std::max(kMostBatch, turns));
  timer.capture();
  return timer;
}

Status DeviceTimer::measure_roughly(int64_t turns) {
  TW_ASSIGN_OR_RETURN(const std::unique_ptr<cuda::Stopwatch> watch, cuda::Stopwatch::make());
  // The first run may load code, and the next ones settle clocks; of those that take long, fewer do.
  for (const int count : {1, 3, int(std::clamp<int64_t>(turns, 4, 32))}) {
    TW_RETURN_IF_BAD(watch->start(queue_.stream));
    for (int i = 0; i < count; ++i) TW_RETURN_IF_BAD(run_(turn_++ % turns));
    TW_RETURN_IF_BAD(watch->stop(queue_.stream));
    TW_ASSIGN_OR_RETURN(const double ms, watch->elapsed_ms());
    estimate_ms_ = ms / count;
    if (estimate_ms_ > (count == 1 ? 300 : 10)) break;
  }
  turn_ = 0;
  run_ = [run = std::move(run_), turns](int64_t turn) { return run(turn % turns); };
  return {};
}

void DeviceTimer::capture() {
  const cuda::Driver& d = cuda::driver();
  const auto stream = static_cast<cuda::CUstream>(queue_.stream);
  // The default stream cannot be captured.
  if (!stream || d.stream_begin_capture(stream, cuda::kCaptureRelaxed) != cuda::kSuccess) return;
  Status status;
  for (int64_t i = 0; i < batch_ && status.is_good(); ++i) status = run_(i);
  cuda::CUgraph graph = nullptr;
  const bool ended = d.stream_end_capture(stream, &graph) == cuda::kSuccess && graph;
  if (ended && status.is_good() && d.graph_instantiate(&exec_, graph, 0) != cuda::kSuccess) exec_ = nullptr;
  if (graph) d.graph_destroy(graph);
}

Status DeviceTimer::enqueue() {
  if (exec_)
    return cuda::check(cuda::driver().graph_launch(exec_, static_cast<cuda::CUstream>(queue_.stream)), "cuGraphLaunch");
  for (int64_t i = 0; i < batch_; ++i) TW_RETURN_IF_BAD(run_(turn_++));
  return {};
}

Result<std::vector<double>> DeviceTimer::samples(int count) {
  const cuda::ScopedDevice device(queue_.ordinal);
  TW_RETURN_IF_BAD(device.status());
  while (int(watches_.size()) < count) {
    TW_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Stopwatch> watch, cuda::Stopwatch::make());
    watches_.push_back(std::move(watch));
  }
  TW_RETURN_IF_BAD(enqueue());
  for (int i = 0; i < count; ++i) {
    TW_RETURN_IF_BAD(watches_[size_t(i)]->start(queue_.stream));
    TW_RETURN_IF_BAD(enqueue());
    TW_RETURN_IF_BAD(watches_[size_t(i)]->stop(queue_.stream));
  }
  std::vector<double> ms;
  for (int i = 0; i < count; ++i) {
    TW_ASSIGN_OR_RETURN(const double total, watches_[size_t(i)]->elapsed_ms());
    ms.push_back(total / double(batch_));
  }
  return ms;
}

}  // namespace tilewright
