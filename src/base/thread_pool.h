// One pool for the process. Work is cut by problem shape, never by thread count, so results do not depend on it.
#pragma once

#include <cstdint>

namespace tilewright {

// Threads that parallel_for may use: TILEWRIGHT_NUM_THREADS, else the processors of the affinity mask.
int thread_count();
// Overrides thread_count() for the process (tests); 0 restores the default.
void set_thread_count(int);

void parallel_for_raw(int64_t count, void (*body)(void* context, int64_t index), void* context);

// Calls body(i) for i in [0, count), in any order, from several threads, and returns when all are done. No allocation.
// Safe from several callers at once; a call from inside a body runs in that thread alone.
template <class Body>
void parallel_for(int64_t count, const Body& body) {
  parallel_for_raw(
      count, [](void* context, int64_t i) { (*static_cast<const Body*>(context))(i); }, const_cast<Body*>(&body));
}

}  // namespace tilewright
