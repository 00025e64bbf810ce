// What we use of the C interface of oneDNN 2.x, declared here because the library is found at run time and its headers
// need not be installed. Names and values are the interface's; onednn_api_test.cc compares them with <dnnl_types.h>.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilewright::onednn {

enum Status : int { kSuccess = 0 };
enum DataType : int { kF16 = 1, kBf16 = 2, kF32 = 3, kS32 = 4, kS8 = 5, kU8 = 6 };
enum PropKind : int { kForwardTraining = 64, kForwardInference = 96 };
enum EngineKind : int { kCpu = 1 };
enum StreamFlags : unsigned { kStreamDefault = 1 };
enum FormatTag : int { kFormatAny = 1 };
enum ScratchpadMode : int { kScratchpadUser = 1 };
enum NormFlags : unsigned { kUseScale = 0x8, kUseShift = 0x10 };
enum Query : int {
  kQueryImplInfo = 8,
  kQueryWeightsMd = 131,
  kQueryDiffWeightsMd = 132,
  kQueryScratchpadMd = 136,
};
enum AlgKind : int {
  kConvolutionDirect = 0x1,
  kEltwiseRelu = 0x1f,
  kEltwiseTanh = 0x2f,
  kEltwiseElu = 0x3f,
  kEltwiseAbs = 0x5f,
  kEltwiseSqrt = 0x6f,
  kEltwiseLinear = 0x7f,
  kEltwiseLogistic = 0xaf,
  kEltwiseExp = 0xbf,
  kEltwiseGeluTanh = 0xcf,
  kEltwiseSwish = 0xdf,
  kEltwiseLog = 0xef,
  kEltwisePow = 0x20,
  kEltwiseGeluErf = 0x30,
  kPoolingMax = 0x1ff,
  kPoolingAvgIncludePadding = 0x2ff,
  kPoolingAvgExcludePadding = 0x3ff,
  kBinaryAdd = 0x1fff0,
  kBinaryMul = 0x1fff1,
  kBinaryMax = 0x1fff2,
  kBinaryMin = 0x1fff3,
  kBinaryDiv = 0x1fff4,
  kBinarySub = 0x1fff5,
  kReductionMax = 0x2fff2,
  kReductionMin = 0x2fff3,
  kReductionSum = 0x2fff4,
  kReductionMul = 0x2fff5,
  kReductionMean = 0x2fff6,
  kSoftmaxAccurate = 0x30000,
};
// Arguments of an execution.
enum Arg : int {
  kArgSrc = 1,
  kArgSrc1 = 2,
  kArgDst = 17,
  kArgWeights = 33,
  kArgBias = 41,
  kArgMean = 49,
  kArgVariance = 50,
  kArgScale = 51,
  kArgShift = 52,
  kArgScratchpad = 80,
  kArgDiffSrc = 129,
  kArgDiffDst = 145,
  kArgDiffWeights = 161,
  kArgPostOp = 16384,  // times (position + 1), together with kArgSrc1
};
constexpr int kMaxDims = 12;

using Dim = int64_t;
using Handle = struct Opaque*;  // engine, stream, primitive, memory, ...: never dereferenced here

// The library's functions fill these; only their size matters, and it is ample.
struct alignas(8) MemoryDesc {
  unsigned char bytes[1024] = {};
};
struct alignas(8) OpDesc {
  unsigned char bytes[8192] = {};
};
struct ExecArg {
  int arg;
  Handle memory;
};
struct Version {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};

// name, result, arguments
#define TW_ONEDNN_FUNCTIONS(X) \
  X(version, const Version*, ()) \
  X(engine_create, Status, (Handle * engine, EngineKind, size_t index)) \
  X(stream_create, Status, (Handle * stream, Handle engine, unsigned flags)) \
  X(stream_destroy, Status, (Handle)) \
  X(memory_desc_init_by_strides, Status, (MemoryDesc*, int rank, const Dim* dims, DataType, const Dim* strides)) \
  X(memory_desc_init_by_tag, Status, (MemoryDesc*, int rank, const Dim* dims, DataType, FormatTag)) \
  X(memory_desc_get_size, size_t, (const MemoryDesc*)) \
  X(memory_desc_equal, int, (const MemoryDesc*, const MemoryDesc*)) \
  X(memory_create, Status, (Handle * memory, const MemoryDesc*, Handle engine, void* data)) \
  X(memory_set_data_handle, Status, (Handle memory, void* data)) \
  X(memory_destroy, Status, (Handle)) \
  X(primitive_attr_create, Status, (Handle*)) \
  X(primitive_attr_set_post_ops, Status, (Handle attr, Handle post_ops)) \
  X(primitive_attr_set_scratchpad_mode, Status, (Handle attr, ScratchpadMode)) \
  X(primitive_attr_destroy, Status, (Handle)) \
  X(post_ops_create, Status, (Handle*)) \
  X(post_ops_append_eltwise, Status, (Handle post_ops, float scale, AlgKind, float alpha, float beta)) \
  X(post_ops_append_binary, Status, (Handle post_ops, AlgKind, const MemoryDesc*)) \
  X(post_ops_destroy, Status, (Handle)) \
  X(primitive_desc_create, Status, (Handle*, const OpDesc*, Handle attr, Handle engine, Handle forward)) \
  X(primitive_desc_query, Status, (Handle desc, Query, int index, void* result)) \
  X(primitive_desc_query_md, const MemoryDesc*, (Handle desc, Query, int index)) \
  X(primitive_desc_destroy, Status, (Handle)) \
  X(primitive_create, Status, (Handle * primitive, Handle desc)) \
  X(primitive_execute, Status, (Handle primitive, Handle stream, int count, const ExecArg*)) \
  X(primitive_destroy, Status, (Handle)) \
  X(reorder_primitive_desc_create, Status, \
    (Handle*, const MemoryDesc* from, Handle from_engine, const MemoryDesc* to, Handle to_engine, Handle attr)) \
  X(matmul_desc_init, Status, \
    (OpDesc*, const MemoryDesc* a, const MemoryDesc* b, const MemoryDesc* bias, const MemoryDesc* c)) \
  X(dilated_convolution_forward_desc_init, Status, \
    (OpDesc*, PropKind, AlgKind, const MemoryDesc* x, const MemoryDesc* w, const MemoryDesc* bias, \
     const MemoryDesc* y, const Dim* stride, const Dim* dilation, const Dim* pre, const Dim* post)) \
  X(dilated_convolution_backward_data_desc_init, Status, \
    (OpDesc*, AlgKind, const MemoryDesc* dx, const MemoryDesc* w, const MemoryDesc* dy, const Dim* stride, \
     const Dim* dilation, const Dim* pre, const Dim* post)) \
  X(dilated_convolution_backward_weights_desc_init, Status, \
    (OpDesc*, AlgKind, const MemoryDesc* x, const MemoryDesc* dw, const MemoryDesc* dbias, const MemoryDesc* dy, \
     const Dim* stride, const Dim* dilation, const Dim* pre, const Dim* post)) \
  X(eltwise_forward_desc_init, Status, (OpDesc*, PropKind, AlgKind, const MemoryDesc*, float alpha, float beta)) \
  X(binary_desc_init, Status, (OpDesc*, AlgKind, const MemoryDesc* x, const MemoryDesc* y, const MemoryDesc* z)) \
  X(reduction_desc_init, Status, (OpDesc*, AlgKind, const MemoryDesc* x, const MemoryDesc* y, float p, float eps)) \
  X(softmax_v2_forward_desc_init, Status, \
    (OpDesc*, PropKind, AlgKind, const MemoryDesc* x, const MemoryDesc* y, int axis)) \
  X(softmax_v2_backward_desc_init, Status, \
    (OpDesc*, AlgKind, const MemoryDesc* dx, const MemoryDesc* dy, const MemoryDesc* y, int axis)) \
  X(layer_normalization_forward_desc_init, Status, \
    (OpDesc*, PropKind, const MemoryDesc* data, const MemoryDesc* statistics, float epsilon, unsigned flags)) \
  X(pooling_v2_forward_desc_init, Status, \
    (OpDesc*, PropKind, AlgKind, const MemoryDesc* x, const MemoryDesc* y, const Dim* stride, const Dim* window, \
     const Dim* dilation, const Dim* pre, const Dim* post))

}  // namespace tilewright::onednn
