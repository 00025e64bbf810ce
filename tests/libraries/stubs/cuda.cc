// A CUDA driver with one GPU whose memory is the host's and whose streams run everything at once: what uses the driver
// is tested with it where there is no GPU. It aborts where a real one would fault: on memory that is not the GPU's.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "device/cuda/driver.h"

namespace tilewright::cuda {
extern "C" {  // as the library that opens it declares them
#define TW_CUDA(member, symbol, arguments) CUresult symbol arguments;
#include "device/cuda/driver.def"
#undef TW_CUDA
}
}  // namespace tilewright::cuda

using Work = std::vector<std::function<void()>>;

struct CUctx_st {};
struct CUstream_st {
  bool capturing = false;
  Work captured;
};
struct CUevent_st {
  std::chrono::steady_clock::time_point at;
};
struct CUgraph_st {
  Work work;
};
struct CUgraphNode_st {};
struct CUgraphExec_st {
  Work work;
};

namespace tilewright::cuda {
namespace {

constexpr CUresult kInvalidContext = 201, kStreamCaptureUnsupported = 900;
constexpr size_t kMemoryBytes = size_t{8} << 30, kMostBytes = size_t{4} << 30;

CUctx_st g_context;
thread_local CUcontext t_current = nullptr;
std::mutex g_mutex;
std::map<CUdeviceptr, size_t>& blocks() {  // what is allocated
  static auto* map = new std::map<CUdeviceptr, size_t>;
  return *map;
}

bool is_of_gpu(CUdeviceptr p, size_t bytes) {
  std::lock_guard lock(g_mutex);
  auto it = blocks().upper_bound(p);
  if (it == blocks().begin()) return false;
  --it;
  return p + bytes <= it->first + it->second;
}
void* checked(CUdeviceptr p, size_t bytes) {
  if (!is_of_gpu(p, bytes)) std::abort();
  return reinterpret_cast<void*>(p);
}

CUresult put(CUstream stream, std::function<void()> work) {
  if (stream && stream->capturing) stream->captured.push_back(std::move(work));
  else work();
  return kSuccess;
}
CUresult copy(void* to, const void* from, size_t bytes, CUstream stream = nullptr) {
  return put(stream, [=] { std::memcpy(to, from, bytes); });
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return kSuccess; }
CUresult cuDriverGetVersion(int* version) { return *version = 13000, kSuccess; }
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "an error of the stand-in", kSuccess; }

CUresult cuDeviceGetCount(int* count) { return *count = 1, kSuccess; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) { return *device = ordinal, kSuccess; }
CUresult cuDeviceGetName(char* text, int size, CUdevice) {
  return std::strncpy(text, "NVIDIA stand-in", size_t(size)), kSuccess;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) { return *bytes = kMemoryBytes, kSuccess; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  static const std::map<int, int> known = {{16, 132}, {38, 8 << 20}, {75, 9}, {76, 0}, {97, 232448}, {88, 0}};
  const auto it = known.find(attribute);
  return *value = it == known.end() ? 1024 : it->second, kSuccess;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return *context = &g_context, kSuccess; }
CUresult cuCtxGetCurrent(CUcontext* context) { return *context = t_current, kSuccess; }
CUresult cuCtxSetCurrent(CUcontext context) { return t_current = context, kSuccess; }
CUresult cuCtxGetDevice(CUdevice* device) { return t_current ? (*device = 0, kSuccess) : kInvalidContext; }
CUresult cuCtxSynchronize() { return kSuccess; }

CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) {
  if (!t_current) return kInvalidContext;
  if (bytes == 0) return kErrorInvalidValue;
  if (bytes > kMostBytes) return kErrorOutOfMemory;
  void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  if (!memory) return kErrorOutOfMemory;
  std::memset(memory, 0x77, bytes);  // nothing in particular
  *p = reinterpret_cast<CUdeviceptr>(memory);
  std::lock_guard lock(g_mutex);
  blocks()[*p] = bytes;
  return kSuccess;
}
CUresult cuMemFree_v2(CUdeviceptr p) {
  std::lock_guard lock(g_mutex);
  if (blocks().erase(p) != 1) std::abort();
  std::free(reinterpret_cast<void*>(p));
  return kSuccess;
}
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) { return *free = *total = kMemoryBytes, kSuccess; }
CUresult cuMemAllocHost_v2(void** p, size_t bytes) { return *p = std::malloc(bytes), kSuccess; }
CUresult cuMemFreeHost(void* p) { return std::free(p), kSuccess; }
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t n) { return copy(checked(to, n), from, n); }
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t n) { return copy(to, checked(from, n), n); }
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t n, CUstream s) {
  return copy(checked(to, n), from, n, s);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t n, CUstream s) {
  return copy(to, checked(from, n), n, s);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
  return copy(checked(to, n), checked(from, n), n, s);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream s) {
  return put(s, [=, memory = checked(to, n)] { std::memset(memory, value, n); });
}
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* wanted, void** values, CUdeviceptr p) {
  const bool known = is_of_gpu(p, 1);
  for (unsigned i = 0; i < count; ++i)
    if (wanted[i] == kPointerMemoryType) *static_cast<unsigned*>(values[i]) = known ? kMemoryTypeDevice : 0;
    else *static_cast<int*>(values[i]) = known ? 0 : -2;
  return kSuccess;
}

CUresult cuStreamCreate(CUstream* stream, unsigned) { return *stream = new CUstream_st, kSuccess; }
CUresult cuStreamDestroy_v2(CUstream stream) {
  delete stream;
  return kSuccess;
}
CUresult cuStreamSynchronize(CUstream s) { return s && s->capturing ? kStreamCaptureUnsupported : kSuccess; }
CUresult cuStreamGetCtx(CUstream, CUcontext* context) { return *context = &g_context, kSuccess; }
CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus* status) {
  return *status = s && s->capturing ? 1 : kNotCapturing, kSuccess;
}
CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode) {
  if (!s || s->capturing) return kStreamCaptureUnsupported;
  s->capturing = true, s->captured.clear();
  return kSuccess;
}
CUresult cuStreamEndCapture(CUstream s, CUgraph* graph) {
  if (!s || !s->capturing) return kStreamCaptureUnsupported;
  s->capturing = false;
  *graph = new CUgraph_st{std::move(s->captured)};
  return kSuccess;
}
CUresult cuLaunchHostFunc(CUstream s, CUhostFn function, void* argument) {
  return put(s, [=] { function(argument); });
}

CUresult cuEventCreate(CUevent* event, unsigned) { return *event = new CUevent_st, kSuccess; }
CUresult cuEventDestroy_v2(CUevent event) {
  delete event;
  return kSuccess;
}
CUresult cuEventRecord(CUevent event, CUstream) { return event->at = std::chrono::steady_clock::now(), kSuccess; }
CUresult cuEventSynchronize(CUevent) { return kSuccess; }
CUresult cuEventElapsedTime(float* ms, CUevent from, CUevent to) {
  return *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count(), kSuccess;
}

CUresult cuGraphCreate(CUgraph* graph, unsigned) { return *graph = new CUgraph_st, kSuccess; }
CUresult cuGraphDestroy(CUgraph graph) {
  delete graph;
  return kSuccess;
}
CUresult cuGraphGetNodes(CUgraph, CUgraphNode*, size_t* count) { return *count = 0, kSuccess; }
CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t, CUgraph child) {
  static CUgraphNode_st one;
  graph->work.insert(graph->work.end(), child->work.begin(), child->work.end());
  return *node = &one, kSuccess;
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode, CUgraph*) { return kErrorInvalidValue; }
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  return *exec = new CUgraphExec_st{graph->work}, kSuccess;
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  delete exec;
  return kSuccess;
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream) {
  for (const auto& work : exec->work) work();
  return kSuccess;
}

}  // extern "C"
}  // namespace tilewright::cuda
