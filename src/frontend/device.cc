#include "tilewright/device.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/result.h"
#include "engines/cudnn/loader.h"
#include "frontend/handle.h"
#include "plan/target.h"

namespace tilewright {
namespace {

// Live handles. The opaque pointers are numbers, never used twice and no addresses that a process can have; what a
// caller passes is looked up and never read. So a destroyed handle is told from a live one, and ours from cuDNN's.
constexpr uintptr_t kMark = 0x7477;
struct Registry {
  std::shared_mutex mutex;
  std::map<const void*, Queue> queues;
  uintptr_t last = kMark << 48;
  std::atomic<uint64_t> changes{0};  // handles destroyed and streams set so far
};
Registry& registry() {
  static Registry* r = new Registry;  // outlives every static object that may still destroy a handle
  return *r;
}

bool is_ours(Handle h) { return reinterpret_cast<uintptr_t>(h.get()) >> 48 == kMark; }

Status unknown_handle(Handle h) {
  return error(error_code_t::HANDLE_ERROR, "handle {} was not made by create_handle, or is destroyed",
               static_cast<const void*>(h.get()));
}

std::string no_driver() {
  return fmt::format("{}\nto mend it: {}", cuda::driver_lookup().problem, cuda::kDriverInstall);
}

// A cudnnHandle_t that the program made itself: its stream, on the device of the calling thread, as cuDNN takes it.
Result<Queue> queue_of_cudnn(Handle h) {
  const cudnn::Library* library = cuda::device_count() > 0 ? cudnn::lookup().calls : nullptr;
  if (!library)
    return error(error_code_t::HANDLE_ERROR,
                 "handle {} was not made by create_handle, and there is no cuDNN here whose handle it could be: {}",
                 static_cast<const void*>(h.get()),
                 cuda::device_count() > 0 ? cudnn::lookup().error_text() : no_driver());
  Queue queue;
  queue.cudnn = h.get();
  if (library->get_stream(h.get(), reinterpret_cast<cuda::CUstream*>(&queue.stream)) != 0)
    return error(error_code_t::HANDLE_ERROR, "handle {}: cuDNN does not give its stream",
                 static_cast<const void*>(h.get()));
  queue.ordinal = std::max(cuda::current_device(), 0);
  return queue;
}

Status set_cudnn_stream(const Queue& queue) {
  if (!queue.cudnn) return {};
  const cuda::ScopedDevice device(queue.ordinal);
  const auto handle = static_cast<cudnnContext*>(queue.cudnn);
  if (cudnn::lookup().calls->set_stream(handle, static_cast<cuda::CUstream>(queue.stream)) == 0) return {};
  return error(error_code_t::HANDLE_ERROR, "set_stream: cuDNN does not take stream {}", queue.stream);
}

// cuDNN's part of a handle of ours, made when the handle is first used: it takes a while and some device memory.
Status add_cudnn(Queue& queue) {
  const cudnn::Library* library = cudnn::lookup().calls;
  if (queue.ordinal < 0 || queue.ptx > 0 || queue.cudnn || !library) return {};
  const cuda::ScopedDevice device(queue.ordinal);
  TW_RETURN_IF_BAD(device.status());
  cudnnContext* made = nullptr;
  if (const cudnn::StatusCode status = library->create(&made); status != cudnn::kSuccess)
    return error(error_code_t::HANDLE_ERROR, "cuDNN cannot make a handle on GPU {}: {}", queue.ordinal,
                 library->get_error_string(status));
  queue.cudnn = made;
  return set_cudnn_stream(queue);
}

// "cpu", "cuda", "cuda:1", "cuda:1,compute_75".
Result<Queue> queue_of_name(const std::string& device) {
  if (device == "cpu") return Queue{};
  const auto not_understood = [&] {
    return invalid("create_handle: device \"{}\" is not understood; expected cpu, cuda, cuda:N or cuda:N,compute_75",
                   device);
  };
  const std::string place = device.size() > 5 ? device.substr(5) : "0";
  const std::string digits = place.substr(0, place.find(','));
  if (device.rfind("cuda", 0) != 0 || (device.size() > 4 && device[4] != ':') || device.size() == 5 || digits.empty() ||
      digits.size() > 4 || digits.find_first_not_of("0123456789") != digits.npos)
    return not_understood();
  if (!cuda::driver_lookup().driver)
    return error(error_code_t::INVALID_CUDA_DEVICE, "create_handle: device \"{}\": {}", device, no_driver());
  Queue queue;
  queue.ordinal = std::stoi(digits);
  if (queue.ordinal >= cuda::device_count())
    return error(error_code_t::INVALID_CUDA_DEVICE,
                 "create_handle: device \"{}\": this machine has {} GPU{}, counted from 0", device,
                 cuda::device_count(), cuda::device_count() == 1 ? "" : "s");
  if (digits == place) return queue;
  TW_ASSIGN_OR_RETURN(const Target target, Target::parse(device));
  queue.ptx = target.gpu->arch;
  return queue;
}

}  // namespace

Result<Queue> queue_of(Handle h) {
  if (!h) return Queue{};
  if (!is_ours(h)) return queue_of_cudnn(h);
  // No lock while a thread keeps to one handle and none changes.
  thread_local const void* known = nullptr;
  thread_local Queue queue;
  thread_local uint64_t known_at = 0;
  Registry& r = registry();
  const uint64_t now = r.changes.load(std::memory_order_acquire);
  if (known == h.get() && known_at == now) return queue;
  std::unique_lock lock(r.mutex);
  const auto it = r.queues.find(h.get());
  if (it == r.queues.end()) return unknown_handle(h);
  TW_RETURN_IF_BAD(add_cudnn(it->second));
  known = h.get(), known_at = now, queue = it->second;
  return queue;
}

error_t create_handle(Handle* handle) { return create_handle(handle, "cpu", nullptr); }

error_t create_handle(Handle* handle, const std::string& device, void* stream) {
  if (!handle) return invalid("create_handle: the result pointer is null");
  TW_ASSIGN_OR_RETURN(Queue queue, queue_of_name(device));
  if (queue.ordinal >= 0) TW_RETURN_IF_BAD(cuda::primary_context(queue.ordinal).status());
  queue.stream = stream;
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  auto* opaque = reinterpret_cast<cudnnContext*>(++r.last);
  r.queues[opaque] = queue;
  *handle = Handle(opaque);
  return {};
}

error_t destroy_handle(Handle h) {
  if (!h) return {};
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  const auto it = r.queues.find(h.get());
  if (it == r.queues.end()) return unknown_handle(h);
  if (it->second.cudnn) {
    const cuda::ScopedDevice device(it->second.ordinal);
    cudnn::lookup().calls->destroy(static_cast<cudnnContext*>(it->second.cudnn));
  }
  r.queues.erase(it);
  r.changes.fetch_add(1, std::memory_order_release);
  return {};
}

error_t set_stream(Handle h, void* stream) {
  if (!h) return invalid("set_stream: the handle is null; create one with create_handle");
  if (!is_ours(h)) {
    TW_ASSIGN_OR_RETURN(Queue queue, queue_of_cudnn(h));
    queue.stream = stream;
    return set_cudnn_stream(queue);
  }
  Registry& r = registry();
  std::unique_lock lock(r.mutex);
  const auto it = r.queues.find(h.get());
  if (it == r.queues.end()) return unknown_handle(h);
  it->second.stream = stream;
  r.changes.fetch_add(1, std::memory_order_release);
  return set_cudnn_stream(it->second);
}

error_t get_stream(Handle h, void** stream) {
  if (!stream) return invalid("get_stream: the result pointer is null");
  *stream = nullptr;
  if (!h) return {};
  if (!is_ours(h)) {
    TW_ASSIGN_OR_RETURN(const Queue queue, queue_of_cudnn(h));
    *stream = queue.stream;
    return {};
  }
  Registry& r = registry();
  std::shared_lock lock(r.mutex);
  const auto it = r.queues.find(h.get());
  if (it == r.queues.end()) return unknown_handle(h);
  *stream = it->second.stream;
  return {};
}

error_t get_device(Handle h, std::string& device) {
  TW_ASSIGN_OR_RETURN(const Queue queue, queue_of(h));
  device = queue.ordinal < 0 ? "cpu" : fmt::format("cuda:{}", queue.ordinal);
  if (queue.ptx > 0) device += fmt::format(",compute_{}", queue.ptx);
  return {};
}

error_t set_cudnn_path(const std::string& path) {
  if (cudnn::set_path(path)) return {};
  return invalid("set_cudnn_path: this process has looked for cuDNN already; give its path before a GPU is first used");
}

const char* version_string() { return "0.1.0"; }
int version() { return 100; }

}  // namespace tilewright
