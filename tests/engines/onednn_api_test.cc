// The names, values and sizes that we declare ourselves, against the library's own headers where they are installed.
#include <gtest/gtest.h>

#include "engines/onednn/api.h"

#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#if DNNL_VERSION_MAJOR == 2
#define TW_HAS_ONEDNN_HEADERS 1
#endif
#endif

namespace tilewright::onednn {
namespace {

TEST(OnednnApi, ValuesAreThoseOfTheHeaders) {
#ifndef TW_HAS_ONEDNN_HEADERS
  GTEST_SKIP() << "the headers of oneDNN 2.x are not installed (libdnnl-dev)";
#else
#define SAME(OURS, THEIRS) EXPECT_EQ(int64_t(OURS), int64_t(THEIRS)) << #OURS
  SAME(kSuccess, dnnl_success);
  SAME(kF16, dnnl_f16);
  SAME(kBf16, dnnl_bf16);
  SAME(kF32, dnnl_f32);
  SAME(kS32, dnnl_s32);
  SAME(kS8, dnnl_s8);
  SAME(kU8, dnnl_u8);
  SAME(kForwardTraining, dnnl_forward_training);
  SAME(kForwardInference, dnnl_forward_inference);
  SAME(kCpu, dnnl_cpu);
  SAME(kStreamDefault, dnnl_stream_default_flags);
  SAME(kFormatAny, dnnl_format_tag_any);
  SAME(kScratchpadUser, dnnl_scratchpad_mode_user);
  SAME(kUseScale, dnnl_use_scale);
  SAME(kUseShift, dnnl_use_shift);
  SAME(kQueryImplInfo, dnnl_query_impl_info_str);
  SAME(kQueryWeightsMd, dnnl_query_weights_md);
  SAME(kQueryDiffWeightsMd, dnnl_query_diff_weights_md);
  SAME(kQueryScratchpadMd, dnnl_query_scratchpad_md);
  SAME(kConvolutionDirect, dnnl_convolution_direct);
  SAME(kEltwiseRelu, dnnl_eltwise_relu);
  SAME(kEltwiseTanh, dnnl_eltwise_tanh);
  SAME(kEltwiseElu, dnnl_eltwise_elu);
  SAME(kEltwiseAbs, dnnl_eltwise_abs);
  SAME(kEltwiseSqrt, dnnl_eltwise_sqrt);
  SAME(kEltwiseLinear, dnnl_eltwise_linear);
  SAME(kEltwiseLogistic, dnnl_eltwise_logistic);
  SAME(kEltwiseExp, dnnl_eltwise_exp);
  SAME(kEltwiseGeluTanh, dnnl_eltwise_gelu_tanh);
  SAME(kEltwiseSwish, dnnl_eltwise_swish);
  SAME(kEltwiseLog, dnnl_eltwise_log);
  SAME(kEltwisePow, dnnl_eltwise_pow);
  SAME(kEltwiseGeluErf, dnnl_eltwise_gelu_erf);
  SAME(kPoolingMax, dnnl_pooling_max);
  SAME(kPoolingAvgIncludePadding, dnnl_pooling_avg_include_padding);
  SAME(kPoolingAvgExcludePadding, dnnl_pooling_avg_exclude_padding);
  SAME(kBinaryAdd, dnnl_binary_add);
  SAME(kBinaryMul, dnnl_binary_mul);
  SAME(kBinaryMax, dnnl_binary_max);
  SAME(kBinaryMin, dnnl_binary_min);
  SAME(kBinaryDiv, dnnl_binary_div);
  SAME(kBinarySub, dnnl_binary_sub);
  SAME(kReductionMax, dnnl_reduction_max);
  SAME(kReductionMin, dnnl_reduction_min);
  SAME(kReductionSum, dnnl_reduction_sum);
  SAME(kReductionMul, dnnl_reduction_mul);
  SAME(kReductionMean, dnnl_reduction_mean);
  SAME(kSoftmaxAccurate, dnnl_softmax_accurate);
  SAME(kArgSrc, DNNL_ARG_SRC);
  SAME(kArgSrc1, DNNL_ARG_SRC_1);
  SAME(kArgDst, DNNL_ARG_DST);
  SAME(kArgWeights, DNNL_ARG_WEIGHTS);
  SAME(kArgBias, DNNL_ARG_BIAS);
  SAME(kArgMean, DNNL_ARG_MEAN);
  SAME(kArgVariance, DNNL_ARG_VARIANCE);
  SAME(kArgScale, DNNL_ARG_SCALE);
  SAME(kArgShift, DNNL_ARG_SHIFT);
  SAME(kArgScratchpad, DNNL_ARG_SCRATCHPAD);
  SAME(kArgDiffSrc, DNNL_ARG_DIFF_SRC);
  SAME(kArgDiffDst, DNNL_ARG_DIFF_DST);
  SAME(kArgDiffWeights, DNNL_ARG_DIFF_WEIGHTS);
  SAME(kArgPostOp * 3, DNNL_ARG_ATTR_MULTIPLE_POST_OP(2));
  SAME(kMaxDims, DNNL_MAX_NDIMS);
#undef SAME
  EXPECT_LE(sizeof(dnnl_memory_desc_t), sizeof(MemoryDesc));
  for (size_t theirs : {sizeof(dnnl_matmul_desc_t), sizeof(dnnl_convolution_desc_t), sizeof(dnnl_eltwise_desc_t),
                        sizeof(dnnl_binary_desc_t), sizeof(dnnl_reduction_desc_t), sizeof(dnnl_softmax_v2_desc_t),
                        sizeof(dnnl_layer_normalization_desc_t), sizeof(dnnl_pooling_v2_desc_t)})
    EXPECT_LE(theirs, sizeof(OpDesc));
  EXPECT_EQ(sizeof(dnnl_exec_arg_t), sizeof(ExecArg));
  EXPECT_EQ(sizeof(dnnl_version_t), sizeof(Version));
#endif
}

}  // namespace
}  // namespace tilewright::onednn
