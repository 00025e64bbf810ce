// The C functions of include/compat/no_cudnn, on host memory. A stream has no queue: every call has run when it
// returns.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <unistd.h>

#include "cuda_runtime_api.h"
#include "cudnn.h"
#include "tilewright/device.h"

struct CUstream_st {};
struct CUevent_st {
  std::chrono::steady_clock::time_point at;
  bool recorded = false;
};

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string last_cudnn_error;

cudaError_t set(cudaError_t e) {
  if (e != cudaSuccess) last_error = e;
  return e;
}

cudaError_t allocate(void** pointer, size_t size) {
  if (!pointer) return set(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  constexpr size_t kAlignment = 256;
  if (size > SIZE_MAX - kAlignment) return set(cudaErrorMemoryAllocation);
  *pointer = std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  return *pointer ? cudaSuccess : set(cudaErrorMemoryAllocation);
}

cudaError_t release(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, size_t size) {
  if (size && (!to || !from)) return set(cudaErrorInvalidValue);
  if (size) std::memmove(to, from, size);
  return cudaSuccess;
}

cudaError_t fill(void* to, int byte, size_t size) {
  if (size && !to) return set(cudaErrorInvalidValue);
  if (size) std::memset(to, byte, size);
  return cudaSuccess;
}

// Ten times the major version, plus the minor one.
int compute_capability() {
  const char* text = std::getenv("TILEWRIGHT_COMPAT_SM");
  const int sm = text ? std::atoi(text) : 0;
  return sm > 0 ? sm : 90;
}

size_t memory_bytes(int which) { return size_t(sysconf(which)) * size_t(sysconf(_SC_PAGESIZE)); }
int processors() { return int(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))); }

cudaError_t no_graphs() { return set(cudaErrorNotSupported); }

cudnnStatus_t status(const tilewright::error_t& e) {
  if (e.is_good()) return CUDNN_STATUS_SUCCESS;
  last_cudnn_error = e.get_message();
  return CUDNN_STATUS_BAD_PARAM;
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError: return "cudaErrorInitializationError";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorUnknown: return "cudaErrorUnknown";
  }
  return "cudaErrorUnknown";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "an argument is not valid";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "no such device: there is one, number 0, the CPU";
    case cudaErrorInvalidResourceHandle: return "no such stream or event";
    case cudaErrorNotSupported: return "not on a CPU: this program runs without CUDA";
    default: return cudaGetErrorName(error);
  }
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : set(cudaErrorInvalidDevice); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device != 0) return set(cudaErrorInvalidDevice);
  *p = cudaDeviceProp{};
  std::snprintf(p->name, sizeof p->name, "CPU (Tilewright)");
  p->totalGlobalMem = memory_bytes(_SC_PHYS_PAGES);
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = 227 << 10;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->multiProcessorCount = processors();
  p->major = compute_capability() / 10;
  p->minor = compute_capability() % 10;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (cudaError_t e = cudaGetDeviceProperties(&p, device); e != cudaSuccess) return e;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(p.sharedMemPerBlock); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(p.sharedMemPerBlockOptin); break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    default: return set(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDeviceReset() { return cudaSuccess; }

cudaError_t cudaMalloc(void** pointer, size_t size) { return allocate(pointer, size); }
cudaError_t cudaMallocHost(void** pointer, size_t size) { return allocate(pointer, size); }
cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) { return allocate(pointer, size); }
cudaError_t cudaMallocManaged(void** pointer, size_t size, unsigned) { return allocate(pointer, size); }
cudaError_t cudaMallocAsync(void** pointer, size_t size, cudaStream_t) { return allocate(pointer, size); }
cudaError_t cudaFree(void* pointer) { return release(pointer); }
cudaError_t cudaFreeHost(void* pointer) { return release(pointer); }
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return release(pointer); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = memory_bytes(_SC_AVPHYS_PAGES), *total = memory_bytes(_SC_PHYS_PAGES);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) { return copy(to, from, size); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t) {
  return copy(to, from, size);
}
cudaError_t cudaMemset(void* to, int byte, size_t size) { return fill(to, byte, size); }
cudaError_t cudaMemsetAsync(void* to, int byte, size_t size, cudaStream_t) { return fill(to, byte, size); }

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = new CUstream_st, cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new CUevent_st, cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (!event) return set(cudaErrorInvalidResourceHandle);
  event->at = std::chrono::steady_clock::now(), event->recorded = true;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (!start || !end || !start->recorded || !end->recorded) return set(cudaErrorInvalidResourceHandle);
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) { return *graph = nullptr, no_graphs(); }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return no_graphs(); }
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, size_t, cudaGraph_t) {
  return no_graphs();
}
cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t, cudaGraph_t*) { return no_graphs(); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) { return no_graphs(); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return no_graphs(); }
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*) { return no_graphs(); }
cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t, cudaGraphNode_t, cudaGraph_t) { return no_graphs(); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return no_graphs(); }

size_t cudnnGetVersion() { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion() { return CUDART_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t s) {
  switch (s) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR: return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
  return "unknown cudnnStatus_t";
}
void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (max_size) std::snprintf(message, max_size, "%s", last_cudnn_error.c_str());
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (!handle) return CUDNN_STATUS_BAD_PARAM;
  tilewright::Handle made;
  const cudnnStatus_t s = status(tilewright::create_handle(&made));
  *handle = made.get();
  return s;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return status(tilewright::destroy_handle(handle)); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return status(tilewright::set_stream(handle, stream));
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  void* s = nullptr;
  const cudnnStatus_t result = status(tilewright::get_stream(handle, &s));
  *stream = static_cast<cudaStream_t>(s);
  return result;
}

}  // extern "C"
