#include "tilewright/device_memory.h"

#include <cstdlib>
#include <cstring>

#include "device/cuda/gpu.h"
#include "frontend/handle.h"

namespace tilewright {
namespace {

constexpr int64_t kAlignment = 256;

cuda::CUdeviceptr address(const void* p) { return reinterpret_cast<cuda::CUdeviceptr>(p); }
bool on_device(const void* p) { return cuda::pointer_info(p).kind == cuda::MemoryKind::Device; }

Status wait(const Queue& queue) {
  return cuda::check(cuda::driver().stream_synchronize(static_cast<cuda::CUstream>(queue.stream)),
                     "cuStreamSynchronize");
}

Status copy_on_gpu(const Queue& queue, void* to, const void* from, int64_t bytes) {
  const cuda::Driver& d = cuda::driver();
  TW_RETURN_IF_BAD(wait(queue));
  const auto size = size_t(bytes);
  const bool to_device = on_device(to), from_device = on_device(from);
  if (!to_device && !from_device) return std::memcpy(to, from, size), Status{};
  const cuda::CUresult copied =
      to_device && from_device
          ? d.memcpy_dtod_async(address(to), address(from), size, static_cast<cuda::CUstream>(queue.stream))
      : to_device ? d.memcpy_htod(address(to), from, size)
                  : d.memcpy_dtoh(to, address(from), size);
  TW_RETURN_IF_BAD(cuda::check(copied, fmt::format("device_copy of {} bytes", bytes)));
  // The end of a copy from pageable memory may still be on its way.
  return cuda::check(d.ctx_synchronize(), "cuCtxSynchronize");
}

}  // namespace

error_t device_allocate(Handle handle, int64_t bytes, void** memory) {
  if (!memory) return invalid("device_allocate: the result pointer is null");
  *memory = nullptr;
  if (bytes < 0) return invalid("device_allocate: {} bytes; expected 0 or more", bytes);
  TW_ASSIGN_OR_RETURN(const Queue queue, queue_of(handle));
  if (bytes == 0) return {};
  const std::string what = fmt::format("device_allocate of {} bytes", bytes);
  if (queue.ordinal < 0) {
    *memory = std::aligned_alloc(size_t(kAlignment), size_t((bytes + kAlignment - 1) / kAlignment * kAlignment));
    return *memory ? Status{} : invalid("{}: there is not as much memory", what);
  }
  const cuda::ScopedDevice device(queue.ordinal);
  TW_RETURN_IF_BAD(device.status());
  cuda::CUdeviceptr made = 0;
  TW_RETURN_IF_BAD(cuda::check(cuda::driver().mem_alloc(&made, size_t(bytes)), what));
  *memory = reinterpret_cast<void*>(made);
  return {};
}

error_t device_free(Handle handle, void* memory) {
  if (!memory) return {};
  TW_ASSIGN_OR_RETURN(const Queue queue, queue_of(handle));
  if (queue.ordinal < 0) return std::free(memory), Status{};
  const cuda::ScopedDevice device(queue.ordinal);
  TW_RETURN_IF_BAD(device.status());
  return cuda::check(cuda::driver().mem_free(address(memory)), "device_free");
}

error_t device_copy(Handle handle, void* to, const void* from, int64_t bytes) {
  if (bytes < 0 || (bytes > 0 && (!to || !from)))
    return invalid("device_copy: {} bytes from {} to {}", bytes, from, to);
  TW_ASSIGN_OR_RETURN(const Queue queue, queue_of(handle));
  if (bytes == 0) return {};
  if (queue.ordinal < 0) return std::memcpy(to, from, size_t(bytes)), Status{};
  const cuda::ScopedDevice device(queue.ordinal);
  TW_RETURN_IF_BAD(device.status());
  return copy_on_gpu(queue, to, from, bytes);
}

error_t device_synchronize(Handle handle) {
  TW_ASSIGN_OR_RETURN(const Queue queue, queue_of(handle));
  if (queue.ordinal < 0) return {};
  const cuda::ScopedDevice device(queue.ordinal);
  TW_RETURN_IF_BAD(device.status());
  return wait(queue);
}

}  // namespace tilewright
