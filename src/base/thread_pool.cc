#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "base/environment.h"

namespace tilewright {
namespace {

constexpr int kMaxThreads = 1024;
// Waiting costs a wake-up of some 10 us; kernels of a graph follow each other faster than that, so spin about as long.
constexpr int kSpins = 1000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int default_thread_count() {
  static const int count = [] {
    if (const char* text = kNumThreads.value()) {
      char* end = nullptr;
      const long n = std::strtol(text, &end, 10);
      if (end != text && *end == 0 && n >= 1) return int(std::min<long>(n, kMaxThreads));
    }
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
      return std::min(CPU_COUNT(&set), kMaxThreads);
    return std::clamp(int(std::thread::hardware_concurrency()), 1, kMaxThreads);
  }();
  return count;
}

std::atomic<int> g_thread_count{0};  // 0: the default
thread_local bool t_in_body = false;

// One call of parallel_for, on its caller's stack.
struct Job {
  void (*body)(void*, int64_t);
  void* context;
  int64_t count;
  int64_t chunk;                 // indices claimed at once
  std::atomic<int64_t> next{0};  // the first index not claimed yet
  // Guarded by the pool's mutex, except that the caller may watch `helpers` go to 0.
  int places;                   // workers that may still join
  std::atomic<int> helpers{0};  // workers inside now
  Job* following = nullptr;

  bool has_work() const { return next.load(std::memory_order_relaxed) < count; }
  void work() {
    t_in_body = true;
    for (;;) {
      const int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= count) break;
      for (int64_t i = begin, end = std::min(count, begin + chunk); i < end; ++i) body(context, i);
    }
    t_in_body = false;
  }
};

class Pool {
 public:
  // Never destroyed: its threads may outlive main.
  static Pool& instance() {
    static Pool* const pool = [] {
      // A forked child has none of the threads, and perhaps a mutex that one of them held: it starts afresh.
      pthread_atfork(nullptr, nullptr, [] { new (&instance()) Pool; });
      return new Pool;
    }();
    return *pool;
  }

  void run(Job& job) {
    int wake = 0;
    {
      std::lock_guard lock(mutex_);
      start_workers(job.places);
      Job** end = &jobs_;
      while (*end) end = &(*end)->following;
      *end = &job;
      submissions_.fetch_add(1, std::memory_order_release);
      wake = std::min(sleepers_, job.places);
    }
    while (wake-- > 0) work_.notify_one();
    job.work();
    // All indices are claimed: take the job away so that no one joins, then wait for those who are inside.
    {
      std::lock_guard lock(mutex_);
      Job** p = &jobs_;
      while (*p != &job) p = &(*p)->following;
      *p = job.following;
    }
    for (int i = 0; i < kSpins; ++i) {
      if (job.helpers.load(std::memory_order_acquire) == 0) return;
      pause_briefly();
    }
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return job.helpers.load(std::memory_order_acquire) == 0; });
  }

 private:
  void start_workers(int wanted) {
    while (workers_ < wanted) {
      try {
        std::thread([this] { loop(); }).detach();
      } catch (const std::system_error&) {
        return;  // out of threads: those that there are, and the caller, do the work
      }
      ++workers_;
    }
  }

  Job* join() {
    for (Job* job = jobs_; job; job = job->following)
      if (job->places > 0 && job->has_work()) {
        --job->places;
        job->helpers.fetch_add(1, std::memory_order_relaxed);
        return job;
      }
    return nullptr;
  }

  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (Job* job = join()) {
        lock.unlock();
        job->work();
        lock.lock();
        // The job is gone as soon as its caller sees 0.
        if (job->helpers.fetch_sub(1, std::memory_order_release) == 1) done_.notify_all();
        continue;
      }
      const uint64_t seen = submissions_.load(std::memory_order_relaxed);
      lock.unlock();
      for (int i = 0; i < kSpins && submissions_.load(std::memory_order_acquire) == seen; ++i) pause_briefly();
      lock.lock();
      if (submissions_.load(std::memory_order_relaxed) != seen) continue;
      ++sleepers_;
      work_.wait(lock);
      --sleepers_;
    }
  }

  std::mutex mutex_;
  std::condition_variable work_, done_;
  Job* jobs_ = nullptr;  // oldest first
  int workers_ = 0, sleepers_ = 0;
  std::atomic<uint64_t> submissions_{0};
};

}  // namespace

int thread_count() {
  const int n = g_thread_count.load(std::memory_order_relaxed);
  return n > 0 ? n : default_thread_count();
}

void set_thread_count(int n) { g_thread_count.store(std::clamp(n, 0, kMaxThreads), std::memory_order_relaxed); }

void parallel_for_raw(int64_t count, void (*body)(void* context, int64_t index), void* context) {
  if (count <= 0) return;
  const int threads = thread_count();
  if (t_in_body || threads == 1 || count == 1) {
    const bool outer = t_in_body;
    t_in_body = true;
    for (int64_t i = 0; i < count; ++i) body(context, i);
    t_in_body = outer;
    return;
  }
  Job job{};
  job.body = body;
  job.context = context;
  job.count = count;
  // Small enough to even out bodies of unequal length, large enough that claiming costs little.
  job.chunk = std::max<int64_t>(1, count / (int64_t{32} * threads));
  job.places = int(std::min<int64_t>(threads - 1, count - 1));
  Pool::instance().run(job);
}

}  // namespace tilewright
