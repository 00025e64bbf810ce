// While one lives, the process's threads are bound to the processors of its affinity mask in turn: the caller's to the
// first, each pool's workers to the others. Else a scheduler may keep two of them on one processor for seconds, and the
// times of contestants with pools of their own would say which one had luck.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <vector>

namespace tilewright::bench {

class Pinned {
 public:
  Pinned();
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t before_;
  std::vector<pid_t> threads_;
};

}  // namespace tilewright::bench
