#include "pinned.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

namespace tilewright::bench {

Pinned::Pinned() {
  if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  std::vector<int> processors;
  for (int c = 0; c < CPU_SETSIZE; ++c)
    if (CPU_ISSET(c, &before_)) processors.push_back(c);
  if (processors.size() < 2) return;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    threads_.push_back(pid_t(std::stol(task.path().filename().string())));
  std::sort(threads_.begin(), threads_.end());  // the main thread first, then each pool's, in the order of their making
  const size_t others = processors.size() - 1;
  for (size_t t = 0; t < threads_.size(); ++t) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processors[t == 0 ? 0 : 1 + (t - 1) % others], &one);
    sched_setaffinity(threads_[t], sizeof one, &one);
  }
}

Pinned::~Pinned() {
  for (const pid_t t : threads_) sched_setaffinity(t, sizeof before_, &before_);
}

}  // namespace tilewright::bench
