// The CUDA driver (libcuda), opened at run time: nothing links it and its headers are not needed. The declarations are
// our own; a test compares them with the toolkit's where that is installed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphExec_st;
struct CUmod_st;
struct CUfunc_st;

namespace tilewright::cuda {

using CUresult = int;  // 0: success
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = CUctx_st*;
using CUstream = CUstream_st*;
using CUevent = CUevent_st*;
using CUgraph = CUgraph_st*;
using CUgraphNode = CUgraphNode_st*;
using CUgraphExec = CUgraphExec_st*;
using CUmodule = CUmod_st*;
using CUfunction = CUfunc_st*;
using CUhostFn = void (*)(void*);
using CUdevice_attribute = int;
using CUpointer_attribute = int;
using CUstreamCaptureMode = int;
using CUstreamCaptureStatus = int;

constexpr CUresult kSuccess = 0, kErrorInvalidValue = 1, kErrorOutOfMemory = 2;
constexpr CUpointer_attribute kPointerMemoryType = 2, kPointerDeviceOrdinal = 9;
constexpr unsigned kMemoryTypeHost = 1, kMemoryTypeDevice = 2;
constexpr CUstreamCaptureMode kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2;
constexpr CUstreamCaptureStatus kNotCapturing = 0;
constexpr unsigned kStreamNonBlocking = 1;
constexpr CUdevice_attribute kPageableMemoryAccess = 88;

struct Driver {
#define TW_CUDA(member, symbol, arguments) CUresult(*member) arguments = nullptr;
#include "device/cuda/driver.def"
#undef TW_CUDA
};

struct DriverLookup {
  const Driver* driver = nullptr;  // null: `problem` says why
  std::string path, version;       // "13.0"
  std::string problem;
  std::vector<std::string> tried;  // every place looked at, and what was there
  int devices = 0;                 // 0 is a problem too, and `driver` is null then
};
const DriverLookup& driver_lookup();  // made at the first call
extern const char* const kDriverInstall;

// What is called; only where driver_lookup().driver is not null.
const Driver& driver();
// GRAPH_EXECUTION_FAILED-like status of a call: "cuMemAlloc of 12 bytes: out of memory (2)".
Status check(CUresult, const std::string& what);

}  // namespace tilewright::cuda
