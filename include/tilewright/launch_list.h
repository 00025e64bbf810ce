// A recorded execution: the launches of a plan with their pointers bound, replayed without looking anything up.
// What a CUDA graph is on a GPU, this is on a CPU.
#pragma once

#include <memory>

#include "tilewright/status.h"

#pragma GCC visibility push(default)
namespace tilewright {

class LaunchList {
 public:
  LaunchList();
  ~LaunchList();
  LaunchList(LaunchList&&) noexcept;
  LaunchList& operator=(LaunchList&&) noexcept;

  bool empty() const;
  int launch_count() const;
  // Runs the recorded launches on the memory that was bound when they were recorded.
  error_t replay() const;

  struct Impl;
  std::unique_ptr<Impl> impl;
};

}  // namespace tilewright
#pragma GCC visibility pop
