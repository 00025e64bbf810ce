// A harness's memory, copied to a GPU and back.
#pragma once

#include "device/cuda/gpu.h"
#include "plan/harness.h"

namespace tilewright {

class DeviceCopy {
 public:
  // Of every tensor that the caller binds, and of the workspace; scalars stay on the host. Both must outlive it.
  static Result<DeviceCopy> make(const ir::Graph&, const Harness&, int ordinal);
  const Bindings& bindings() const { return bindings_; }  // device pointers; host pointers of scalars
  void* workspace() const { return workspace_; }
  Status upload();
  Status download();  // waits for all that runs on the device

 private:
  struct Pair {
    const GuardedBuffer* host;
    cuda::DeviceMemory device;
    int64_t offset;  // so that it is aligned as the host's memory is
  };
  Result<void*> add(const GuardedBuffer&);

  int ordinal_ = -1;
  std::vector<Pair> pairs_;
  Bindings bindings_;
  void* workspace_ = nullptr;
};

}  // namespace tilewright
