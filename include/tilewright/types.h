// The vocabulary's enums. Spelling and order follow the field's graph API (cuDNN Frontend 1.23);
// the JSON text of a value is its bare name.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace tilewright {

// clang-format off
// One list per enum serves the enum, its text form and the parser of that text.
#define TILEWRIGHT_DATA_TYPES(X) \
  X(NOT_SET) X(FLOAT) X(DOUBLE) X(HALF) X(INT8) X(INT32) X(INT8x4) X(UINT8) X(UINT8x4) X(INT8x32) X(BFLOAT16) \
  X(INT64) X(BOOLEAN) X(FP8_E4M3) X(FP8_E5M2) X(FAST_FLOAT_FOR_FP8) X(FP8_E8M0) X(FP4_E2M1) X(INT4) \
  X(COMPLEX_FP32) X(COMPLEX_FP64)
#define TILEWRIGHT_HEUR_MODES(X) X(A) X(B) X(FALLBACK) X(OPENSOURCE)
#define TILEWRIGHT_BUILD_POLICIES(X) X(HEURISTICS_CHOICE) X(ALL)
#define TILEWRIGHT_POINTWISE_MODES(X) \
  X(NOT_SET) X(ADD) X(MUL) X(SQRT) X(MAX) X(MIN) X(RELU_FWD) X(TANH_FWD) X(SIGMOID_FWD) X(ELU_FWD) X(GELU_FWD) \
  X(SOFTPLUS_FWD) X(SWISH_FWD) X(RELU_BWD) X(TANH_BWD) X(SIGMOID_BWD) X(ELU_BWD) X(GELU_BWD) X(SOFTPLUS_BWD) \
  X(SWISH_BWD) X(ERF) X(IDENTITY) X(GELU_APPROX_TANH_BWD) X(GELU_APPROX_TANH_FWD) X(GEN_INDEX) X(BINARY_SELECT) \
  X(EXP) X(LOG) X(NEG) X(MOD) X(POW) X(ABS) X(CEIL) X(COS) X(FLOOR) X(RSQRT) X(SIN) X(LOGICAL_NOT) X(TAN) X(SUB) \
  X(ADD_SQUARE) X(DIV) X(CMP_EQ) X(CMP_NEQ) X(CMP_GT) X(CMP_GE) X(CMP_LT) X(CMP_LE) X(LOGICAL_AND) X(LOGICAL_OR) \
  X(RECIPROCAL)
#define TILEWRIGHT_REDUCTION_MODES(X) \
  X(NOT_SET) X(ADD) X(MUL) X(MIN) X(MAX) X(AMAX) X(AVG) X(NORM1) X(NORM2) X(MUL_NO_ZEROS)
#define TILEWRIGHT_RESAMPLE_MODES(X) \
  X(NOT_SET) X(AVGPOOL_EXCLUDE_PADDING) X(AVGPOOL_INCLUDE_PADDING) X(BILINEAR) X(NEAREST) X(MAXPOOL)
#define TILEWRIGHT_PADDING_MODES(X) X(NOT_SET) X(EDGE_VAL_PAD) X(NEG_INF_PAD) X(ZERO_PAD)
#define TILEWRIGHT_CONVOLUTION_MODES(X) X(NOT_SET) X(CONVOLUTION) X(CROSS_CORRELATION)
#define TILEWRIGHT_NORM_PHASES(X) X(NOT_SET) X(INFERENCE) X(TRAINING)
#define TILEWRIGHT_NORM_MODES(X) \
  X(NOT_SET) X(LAYER_NORM) X(INSTANCE_NORM) X(BATCH_NORM) X(GROUP_NORM) X(RMS_NORM) X(ADA_LAYER_NORM)
#define TILEWRIGHT_RNG_DISTRIBUTIONS(X) X(NOT_SET) X(BERNOULLI) X(UNIFORM) X(NORMAL)
#define TILEWRIGHT_REORDERINGS(X) X(NONE) X(INT8x32) X(F16x16) X(F8_128x4)
#define TILEWRIGHT_RESHAPE_MODES(X) X(NOT_SET) X(VIEW_ONLY) X(LOGICAL)
#define TILEWRIGHT_MOE_MODES(X) X(NOT_SET) X(NONE) X(GATHER) X(SCATTER)
#define TILEWRIGHT_DIAGONAL_ALIGNMENTS(X) X(TOP_LEFT) X(BOTTOM_RIGHT)
#define TILEWRIGHT_ATTENTION_IMPLEMENTATIONS(X) X(AUTO) X(COMPOSITE) X(UNIFIED)
#define TILEWRIGHT_BEHAVIOR_NOTES(X) \
  X(NOT_SET) X(RUNTIME_COMPILATION) X(REQUIRES_FILTER_INT8x32_REORDER) X(REQUIRES_BIAS_INT8x32_REORDER) \
  X(SUPPORTS_CUDA_GRAPH_NATIVE_API) X(CUBLASLT_DEPENDENCY)
#define TILEWRIGHT_NUMERICAL_NOTES(X) \
  X(NOT_SET) X(TENSOR_CORE) X(DOWN_CONVERT_INPUTS) X(REDUCED_PRECISION_REDUCTION) X(FFT) X(NONDETERMINISTIC) \
  X(WINOGRAD) X(WINOGRAD_TILE_4x4) X(WINOGRAD_TILE_6x6) X(WINOGRAD_TILE_13x13) X(STRICT_NAN_PROP)
#define TILEWRIGHT_KNOB_TYPES(X) \
  X(NOT_SET) X(SWIZZLE) X(TILE_SIZE) X(EDGE) X(MULTIPLY) X(SPLIT_K_BUF) X(TILEK) X(STAGES) X(REDUCTION_MODE) \
  X(SPLIT_K_SLC) X(IDX_MODE) X(SPECFILT) X(KERNEL_CFG) X(WORKSPACE) X(TILE_CGA_M) X(TILE_CGA_N) X(BLOCK_SIZE) \
  X(OCCUPANCY) X(ARRAY_SIZE_PER_THREAD) X(SPLIT_COLS) X(TILE_ROWS) X(TILE_COLS) X(LOAD_SIZE) X(CTA_COUNT) \
  X(STREAM_K) X(SPLIT_P_SLC) X(TILE_M) X(TILE_N) X(WARP_SPEC_CFG)

// Every enum with its list: TILEWRIGHT_ENUMS(F) expands F(type, list).
#define TILEWRIGHT_ENUMS(F) \
  F(DataType_t, TILEWRIGHT_DATA_TYPES) \
  F(HeurMode_t, TILEWRIGHT_HEUR_MODES) \
  F(BuildPlanPolicy_t, TILEWRIGHT_BUILD_POLICIES) \
  F(PointwiseMode_t, TILEWRIGHT_POINTWISE_MODES) \
  F(ReductionMode_t, TILEWRIGHT_REDUCTION_MODES) \
  F(ResampleMode_t, TILEWRIGHT_RESAMPLE_MODES) \
  F(PaddingMode_t, TILEWRIGHT_PADDING_MODES) \
  F(ConvolutionMode_t, TILEWRIGHT_CONVOLUTION_MODES) \
  F(NormFwdPhase_t, TILEWRIGHT_NORM_PHASES) \
  F(NormMode_t, TILEWRIGHT_NORM_MODES) \
  F(RngDistribution_t, TILEWRIGHT_RNG_DISTRIBUTIONS) \
  F(TensorReordering_t, TILEWRIGHT_REORDERINGS) \
  F(ReshapeMode_t, TILEWRIGHT_RESHAPE_MODES) \
  F(MoeGroupedMatmulMode_t, TILEWRIGHT_MOE_MODES) \
  F(DiagonalAlignment_t, TILEWRIGHT_DIAGONAL_ALIGNMENTS) \
  F(AttentionImplementation_t, TILEWRIGHT_ATTENTION_IMPLEMENTATIONS) \
  F(BehaviorNote_t, TILEWRIGHT_BEHAVIOR_NOTES) \
  F(NumericalNote_t, TILEWRIGHT_NUMERICAL_NOTES) \
  F(KnobType_t, TILEWRIGHT_KNOB_TYPES)

// clang-format on

#define TILEWRIGHT_ENUMERATOR(name) name,
#define TILEWRIGHT_DECLARE_ENUM(type, list) enum class type { list(TILEWRIGHT_ENUMERATOR) };
TILEWRIGHT_ENUMS(TILEWRIGHT_DECLARE_ENUM)
#undef TILEWRIGHT_DECLARE_ENUM

// Text of a value ("FLOAT"), the value of a text (false when there is none), and streaming.
#define TILEWRIGHT_DECLARE_TEXT(type, list) \
  std::string to_string(type); \
  bool from_string(std::string_view text, type& value); \
  std::ostream& operator<<(std::ostream&, type);
TILEWRIGHT_ENUMS(TILEWRIGHT_DECLARE_TEXT)
#undef TILEWRIGHT_DECLARE_TEXT

struct Knob {
  KnobType_t type = KnobType_t::NOT_SET;
  int64_t maxValue = 0;
  int64_t minValue = 0;
  int64_t stride = 0;
  Knob(KnobType_t t, int64_t max, int64_t min, int64_t step) : type(t), maxValue(max), minValue(min), stride(step) {}
};

// 16-bit floating-point values as storage; arithmetic goes through float.
struct half {
  uint16_t bits = 0;
  half() = default;
  half(float value);
  operator float() const;
};

struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  bfloat16(float value);
  operator float() const;
};

namespace graph {
enum class ScalarType { RUNTIME_PARAM, COMPILE_TIME_CONST };
}

}  // namespace tilewright
#pragma GCC visibility pop
