// What we use of cuDNN 9's backend interface, declared here because the library is found at run time and its headers
// need not be installed. Names and values are the interface's; cudnn_api_test.cc compares them with <cudnn.h>.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engines/cudnn/numbers.h"

struct cudnnContext;
struct CUstream_st;
struct CUgraph_st;

namespace tilewright::cudnn {

using Handle = cudnnContext*;
using RawDescriptor = void*;
using Stream = CUstream_st*;
using CudaGraph = CUgraph_st*;

enum StatusCode : int { kSuccess = 0 };

// X(member, exported name, result, arguments): what every cuDNN 9 has.
#define TW_CUDNN_FUNCTIONS(X) \
  X(get_version, cudnnGetVersion, size_t, ()) \
  X(get_cudart_version, cudnnGetCudartVersion, size_t, ()) \
  X(get_error_string, cudnnGetErrorString, const char*, (StatusCode)) \
  X(get_last_error_string, cudnnGetLastErrorString, void, (char* text, size_t size)) \
  X(create, cudnnCreate, StatusCode, (Handle*)) \
  X(destroy, cudnnDestroy, StatusCode, (Handle)) \
  X(set_stream, cudnnSetStream, StatusCode, (Handle, Stream)) \
  X(get_stream, cudnnGetStream, StatusCode, (Handle, Stream*)) \
  X(backend_create_descriptor, cudnnBackendCreateDescriptor, StatusCode, (Kind, RawDescriptor*)) \
  X(backend_destroy_descriptor, cudnnBackendDestroyDescriptor, StatusCode, (RawDescriptor)) \
  X(backend_initialize, cudnnBackendInitialize, StatusCode, (RawDescriptor)) \
  X(backend_finalize, cudnnBackendFinalize, StatusCode, (RawDescriptor)) \
  X(backend_set_attribute, cudnnBackendSetAttribute, StatusCode, \
    (RawDescriptor, Attr, AttrType, int64_t count, const void* elements)) \
  X(backend_get_attribute, cudnnBackendGetAttribute, StatusCode, \
    (RawDescriptor, Attr, AttrType, int64_t asked, int64_t * there, void* elements)) \
  X(backend_execute, cudnnBackendExecute, StatusCode, (Handle, RawDescriptor plan, RawDescriptor variant_pack))

// What came with a later 9.x; null where it is missing.
#define TW_CUDNN_LATER_FUNCTIONS(X) \
  X(backend_populate_cuda_graph, cudnnBackendPopulateCudaGraph, StatusCode, \
    (Handle, RawDescriptor plan, RawDescriptor variant_pack, CudaGraph)) \
  X(backend_update_cuda_graph, cudnnBackendUpdateCudaGraph, StatusCode, \
    (Handle, RawDescriptor plan, RawDescriptor variant_pack, CudaGraph))

}  // namespace tilewright::cudnn
