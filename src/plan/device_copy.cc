#include "plan/device_copy.h"

namespace tilewright {

Result<void*> DeviceCopy::add(const GuardedBuffer& host) {
  constexpr int64_t kAlignment = 256;  // what the driver's allocations have at least
  const int64_t offset = int64_t(reinterpret_cast<uintptr_t>(host.whole()) % kAlignment);
  auto device = cuda::DeviceMemory::allocate(ordinal_, host.whole_bytes() + offset);
  if (!device) return device.status();
  pairs_.push_back({&host, std::move(*device), offset});
  return static_cast<void*>(static_cast<uint8_t*>(pairs_.back().device.data()) + offset + GuardedBuffer::kGuardBytes);
}

Result<DeviceCopy> DeviceCopy::make(const ir::Graph& graph, const Harness& harness, int ordinal) {
  DeviceCopy copy;
  copy.ordinal_ = ordinal;
  copy.bindings_ = harness.bindings();
  for (size_t id = 0; id < graph.tensors.size(); ++id) {
    const ir::Tensor& t = graph.tensors[id];
    if (!t.bound_by_caller() || t.role == ir::Role::Scalar) continue;
    TW_ASSIGN_OR_RETURN(copy.bindings_[id], copy.add(harness.buffer(ir::TensorId(id))));
  }
  if (harness.workspace_buffer().data()) {
    TW_ASSIGN_OR_RETURN(copy.workspace_, copy.add(harness.workspace_buffer()));
  }
  return copy;
}

Status DeviceCopy::upload() {
  const cuda::ScopedDevice device(ordinal_);
  TW_RETURN_IF_BAD(device.status());
  for (const Pair& p : pairs_)
    TW_RETURN_IF_BAD(cuda::check(
        cuda::driver().memcpy_htod(reinterpret_cast<cuda::CUdeviceptr>(p.device.data()) + cuda::CUdeviceptr(p.offset),
                                   p.host->whole(), size_t(p.host->whole_bytes())),
        "copy to the GPU"));
  // From pageable memory the last of it may still be on its way, which only the default stream would wait for.
  return cuda::check(cuda::driver().ctx_synchronize(), "copy to the GPU");
}

Status DeviceCopy::download() {
  const cuda::ScopedDevice device(ordinal_);
  TW_RETURN_IF_BAD(device.status());
  TW_RETURN_IF_BAD(cuda::check(cuda::driver().ctx_synchronize(), "running on the GPU"));
  for (const Pair& p : pairs_)
    TW_RETURN_IF_BAD(cuda::check(
        cuda::driver().memcpy_dtoh(p.host->whole(),
                                   reinterpret_cast<cuda::CUdeviceptr>(p.device.data()) + cuda::CUdeviceptr(p.offset),
                                   size_t(p.host->whole_bytes())),
        "copy from the GPU"));
  return {};
}

}  // namespace tilewright
