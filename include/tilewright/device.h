// A handle names the device that a graph is built for and runs on. A null handle means the CPU.
#pragma once

#include <cstddef>
#include <string>

#include "tilewright/status.h"

struct cudnnContext;  // what the field's programs hold as cudnnHandle_t
struct CUgraph_st;    // cudaGraph_t

#pragma GCC visibility push(default)
namespace tilewright {

class Handle {
 public:
  Handle() = default;
  Handle(std::nullptr_t) {}
  Handle(cudnnContext* context) : context_(context) {}
  cudnnContext* get() const { return context_; }
  explicit operator bool() const { return context_ != nullptr; }

 private:
  cudnnContext* context_ = nullptr;
};

// A handle for this machine's CPU. It needs no CUDA. Destroy it with destroy_handle.
error_t create_handle(Handle* handle);
error_t destroy_handle(Handle handle);
// A stream pointer that the caller keeps with the handle; the CPU executes in the caller's thread.
error_t set_stream(Handle handle, void* stream);
error_t get_stream(Handle handle, void** stream);

// "0.1.0", and the same as major * 10000 + minor * 100 + patch.
const char* version_string();
int version();

}  // namespace tilewright
#pragma GCC visibility pop
