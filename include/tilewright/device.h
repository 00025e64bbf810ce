// A handle names the device that a graph is built for and runs on, and there the stream. A null handle means the CPU.
// On an NVIDIA GPU, a program's own cudnnHandle_t is one too.
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
// For a device by its name: "cpu", "cuda" (the first GPU) or "cuda:N"; `stream`: a cudaStream_t of that GPU, null for
// its default stream. INVALID_CUDA_DEVICE, with what is missing, where there is no such GPU. "cuda:N,compute_75": the
// same GPU as one of compute capability 7.5, on which kernels of this library go through the driver's own compiler.
error_t create_handle(Handle* handle, const std::string& device, void* stream = nullptr);
error_t destroy_handle(Handle handle);
// On a GPU executions are put on this stream. On the CPU it is kept only: executions run in the caller's thread.
error_t set_stream(Handle handle, void* stream);
error_t get_stream(Handle handle, void** stream);
// As create_handle takes it: "cpu", "cuda:N".
error_t get_device(Handle handle, std::string& device);

// The cuDNN 9 to use and no other: libcudnn.so.9 or a folder that has it. To be called before a GPU is first used.
error_t set_cudnn_path(const std::string& path);

// "0.1.0", and the same as major * 10000 + minor * 100 + patch.
const char* version_string();
int version();

}  // namespace tilewright
#pragma GCC visibility pop
