// The functions of the table, by op.
#pragma once

#include "engines/cudnn/lowering.h"
#include "ir/op_def.h"

// X(name of the op)
// clang-format off
#define TW_CUDNN_LOWERED_OPS(X) \
  X(pointwise) X(reduction) X(matmul) X(conv_fprop) X(conv_dgrad) X(conv_wgrad) X(layernorm) X(layernorm_backward) \
  X(rmsnorm) X(rmsnorm_backward) X(instancenorm) X(instancenorm_backward) X(adalayernorm) X(adalayernorm_backward) \
  X(batchnorm) X(batchnorm_inference) X(batchnorm_backward) X(genstats) X(bn_finalize) X(dbn_weight) X(resample) \
  X(resample_backward) X(slice) X(transpose) X(reshape) X(concatenate) X(rng) X(softmax) X(sdpa) X(sdpa_backward)
// clang-format on

namespace tilewright::cudnn {

#define TW_DECLARE(OP) void lower_##OP(Lowering&, ir::NodeId);
TW_CUDNN_LOWERED_OPS(TW_DECLARE)
#undef TW_DECLARE

}  // namespace tilewright::cudnn
