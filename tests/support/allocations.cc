#include "support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

// Apart from the tests, so that the compiler does not pair an inlined free() with a call of operator new.
static std::atomic<int64_t> g_allocations{0};

int64_t tilewright::testing::allocations() { return g_allocations.load(); }

void* operator new(size_t bytes) {
  ++g_allocations;
  void* p = std::malloc(bytes ? bytes : 1);
  if (!p) throw std::bad_alloc();
  return p;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++g_allocations;
  return std::malloc(bytes ? bytes : 1);
}
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
