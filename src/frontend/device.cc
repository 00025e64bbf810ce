#include "tilewright/device.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/result.h"
#include "frontend/handle.h"

namespace tilewright {
namespace {

// Live handles. The opaque pointers are numbers, never used twice and no addresses that a process can have; what a
// caller passes is looked up and never read. So a destroyed handle and a foreign pointer are told from a live one.
struct Registry {
  std::shared_mutex mutex;
  std::map<const void*, Queue> queues;
  uintptr_t last = uintptr_t{0x7477} << 48;
  std::atomic<uint64_t> changes{0};  // handles destroyed and streams set so far
};
Registry& registry() {
  static Registry* r = new Registry;  // outlives every static object that may still destroy a handle
  return *r;
}

Status unknown_handle(Handle h) {
  return error(error_code_t::HANDLE_ERROR,
               "handle {} was not made by create_handle, or is destroyed; this version runs on the CPU, whose handle "
               "is create_handle's or null",
               static_cast<const void*>(h.get()));
}

}  // namespace

Result<Queue> queue_of(Handle h) {
  if (!h) return Queue{};
  // No lock while a thread keeps to one handle and none changes.
  thread_local const void* known = nullptr;
  thread_local Queue queue;
  thread_local uint64_t known_at = 0;
  Registry& r = registry();
  const uint64_t now = r.changes.load(std::memory_order_acquire);
  if (known == h.get() && known_at == now) return queue;
  std::shared_lock lock(r.mutex);
  const auto it = r.queues.find(h.get());
  if (it == r.queues.end()) return unknown_handle(h);
  known = h.get(), known_at = now, queue = it->second;
  return queue;
}

error_t create_handle(Handle* handle) {
  if (!handle) return invalid("create_handle: the result pointer is null");
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  auto* opaque = reinterpret_cast<cudnnContext*>(++r.last);
  r.queues[opaque] = {};
  *handle = Handle(opaque);
  return {};
}

error_t destroy_handle(Handle h) {
  if (!h) return {};
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  if (!r.queues.erase(h.get())) return unknown_handle(h);
  r.changes.fetch_add(1, std::memory_order_release);
  return {};
}

error_t set_stream(Handle h, void* stream) {
  if (!h) return invalid("set_stream: the handle is null; create one with create_handle");
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  auto it = r.queues.find(h.get());
  if (it == r.queues.end()) return unknown_handle(h);
  it->second.stream = stream;
  r.changes.fetch_add(1, std::memory_order_release);
  return {};
}

error_t get_stream(Handle h, void** stream) {
  if (!stream) return invalid("get_stream: the result pointer is null");
  *stream = nullptr;
  if (!h) return {};
  Registry& r = registry();
  std::shared_lock lock(r.mutex);
  auto it = r.queues.find(h.get());
  if (it == r.queues.end()) return unknown_handle(h);
  *stream = it->second.stream;
  return {};
}

const char* version_string() { return "0.1.0"; }
int version() { return 100; }

}  // namespace tilewright
