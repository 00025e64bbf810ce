#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace tilewright {
namespace {

class ThreadPool : public testing::Test {
 protected:
  ~ThreadPool() override { set_thread_count(0); }
};

// Plain counters: two threads on one index would be a race that tsan sees, too.
void expect_each_index_once(int64_t count) {
  std::vector<int> visits(size_t(count), 0);
  parallel_for(count, [&](int64_t i) { ++visits[size_t(i)]; });
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(visits[size_t(i)], 1) << i << " of " << count;
}

TEST_F(ThreadPool, VisitsEachIndexOnce) {
  for (int threads = 1; threads <= 4; ++threads) {
    set_thread_count(threads);
    EXPECT_EQ(thread_count(), threads);
    for (int64_t count : {0, 1, 2, 3, 7, 64, 129, 1000, 100000}) expect_each_index_once(count);
    for (int repeat = 0; repeat < 500; ++repeat) expect_each_index_once(5);
  }
  parallel_for(-3, [](int64_t) { FAIL(); });
}

TEST_F(ThreadPool, WritesAreSeenByTheCallerAndTheNextCall) {
  set_thread_count(4);
  std::vector<int64_t> a(1000), b(1000);
  for (int64_t round = 0; round < 200; ++round) {
    parallel_for(1000, [&](int64_t i) { a[size_t(i)] = i + round; });
    parallel_for(1000, [&](int64_t i) { b[size_t(i)] = a[size_t(999 - i)]; });
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(b[size_t(i)], 999 - i + round);
  }
}

TEST_F(ThreadPool, UsesSeveralThreads) {
  set_thread_count(3);
  // Two bodies that wait for each other finish only if two threads run them.
  std::atomic<int> inside{0};
  parallel_for(2, [&](int64_t) {
    ++inside;
    while (inside < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 2);
}

TEST_F(ThreadPool, NeverUsesMoreThreadsThanAsked) {
  for (int threads : {4, 2, 3, 1}) {  // workers of an earlier, larger count stay out
    set_thread_count(threads);
    std::mutex mutex;
    std::set<std::thread::id> ids;
    for (int repeat = 0; repeat < 20; ++repeat) {
      ids.clear();
      parallel_for(64, [&](int64_t) {
        std::this_thread::yield();
        std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      });
      ASSERT_LE(int(ids.size()), threads);
    }
  }
}

TEST_F(ThreadPool, NestedCallStaysInItsThread) {
  set_thread_count(4);
  std::vector<std::atomic<int>> visits(50 * 20);
  std::atomic<int> strays{0};
  parallel_for(50, [&](int64_t i) {
    const auto self = std::this_thread::get_id();
    parallel_for(20, [&](int64_t j) {
      strays += std::this_thread::get_id() != self;
      ++visits[size_t(i * 20 + j)];
      parallel_for(1, [&](int64_t) { strays += std::this_thread::get_id() != self; });
    });
  });
  EXPECT_EQ(strays, 0);
  for (auto& v : visits) ASSERT_EQ(v, 1);
}

TEST_F(ThreadPool, ServesConcurrentCallers) {
  set_thread_count(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int c = 0; c < 8; ++c)
    callers.emplace_back([&total, c] {
      for (int repeat = 0; repeat < 100; ++repeat) {
        const int64_t count = 1 + (repeat * 37 + c * 11) % 200;
        std::vector<int> visits(size_t(count), 0);
        parallel_for(count, [&](int64_t i) { ++visits[size_t(i)]; });
        for (int v : visits) total += v == 1;
        total -= count;
      }
    });
  for (auto& t : callers) t.join();
  EXPECT_EQ(total, 0);
}

TEST_F(ThreadPool, WorksAfterAFork) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "tsan does not start threads after a fork";
#endif
  set_thread_count(4);
  expect_each_index_once(1000);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int64_t sum = 0;
    std::vector<int64_t> squares(100);
    parallel_for(100, [&](int64_t i) { squares[size_t(i)] = i * i; });
    for (int64_t s : squares) sum += s;
    _exit(sum == 328350 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(ThreadPool, CountIsClampedAndRestored) {
  const int standard = thread_count();
  EXPECT_GE(standard, 1);
  set_thread_count(-5);
  EXPECT_EQ(thread_count(), standard);
  set_thread_count(1 << 30);
  EXPECT_LE(thread_count(), 4096);
  set_thread_count(0);
  EXPECT_EQ(thread_count(), standard);
}

}  // namespace
}  // namespace tilewright
