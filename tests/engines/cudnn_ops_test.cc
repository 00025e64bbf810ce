// What each op asks of cuDNN, against a stand-in that remembers it; no cuDNN is needed. Tensor i of a graph is
// "t(i+1)".
#include <gmock/gmock.h>

#include "engines/cudnn/lowering.h"
#include "support/cudnn_table.h"
#include "support/ir_builder.h"
#include "support/recording_cudnn.h"

namespace tilewright::testing {
namespace {

using cudnn::Place;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const Target& h200() {
  static const Target target = *Target::parse("h200");
  return target;
}

cudnn::Lowered lower(const ir::Graph& g) {
  std::vector<ir::NodeId> nodes;
  for (size_t i = 0; i < g.nodes.size(); ++i) nodes.push_back(ir::NodeId(i));
  return cudnn::Lowering(g, nodes, h200()).run();
}

std::string asked(const char* name) {
  for (const CudnnGraph& row : cudnn_graphs())
    if (row.name == name) {
      RecordingCudnn recorder;
      const cudnn::Lowered l = lower(row.graph);
      EXPECT_THAT(l.reasons, IsEmpty()) << name;
      return recorder.operations();
    }
  ADD_FAILURE() << "no graph " << name;
  return "";
}

struct Line {
  const char* graph;
  std::vector<const char*> parts;  // of what is asked
};

void check(const std::vector<Line>& lines) {
  for (const Line& line : lines) {
    const std::string text = asked(line.graph);
    EXPECT_THAT(text, Not(HasSubstr("(not finalized)"))) << line.graph;
    for (const char* part : line.parts) EXPECT_THAT(text, HasSubstr(part)) << line.graph;
  }
}

TEST(CudnnOps, Pointwise) {
  check({
      {"pointwise/SUB", {"MODE=9 ", "XDESC=t1 OPERATION_POINTWISE_YDESC=t3 OPERATION_POINTWISE_BDESC=t2\n"}},
      {"pointwise/GELU_APPROX_TANH_BWD",
       {"MODE=207 ", "XDESC=t2 OPERATION_POINTWISE_DYDESC=t1 OPERATION_POINTWISE_DXDESC=t3\n"}},
      {"pointwise/relu_clips",
       {"NAN_PROPAGATION=1 POINTWISE_RELU_LOWER_CLIP=-0.5 POINTWISE_RELU_UPPER_CLIP=1 "
        "POINTWISE_RELU_LOWER_CLIP_SLOPE=0\n"}},
      {"pointwise/relu_bwd_slope", {"MODE=200 ", "POINTWISE_RELU_LOWER_CLIP_SLOPE=0.125\n"}},
      {"pointwise/parameters",
       {"MODE=103 POINTWISE_MATH_PREC=0 POINTWISE_ELU_ALPHA=0.75\n",
        "MODE=105 POINTWISE_MATH_PREC=0 POINTWISE_SOFTPLUS_BETA=2\n",
        "MODE=106 POINTWISE_MATH_PREC=0 POINTWISE_SWISH_BETA=0.5\n"}},
      {"pointwise/gen_index_select",
       {"MODE=501 POINTWISE_MATH_PREC=0 POINTWISE_AXIS=1\n", "POINTWISE_AXIS=2\n",
        "XDESC=t1 OPERATION_POINTWISE_YDESC=t6 OPERATION_POINTWISE_BDESC=t5 OPERATION_POINTWISE_TDESC=t4\n"}},
      {"conv_fprop/int8", {"MODE=21 ", "OPERATION_POINTWISE_XDESC=t3 OPERATION_POINTWISE_YDESC=t4\n"}},  // no B
  });
}

TEST(CudnnOps, LoopsOverManyDimsBecomeThree) {
  check({
      {"pointwise/rows", {"TENSOR_DIMENSIONS=[1,512,32] TENSOR_STRIDES=[16384,32,1] ", "TENSOR_DIMENSIONS=[1,1,32] "}},
      {"pointwise/broadcast_of_lower_rank", {"TENSOR_DIMENSIONS=[1,512,32] ", "TENSOR_DIMENSIONS=[1,1,32] "}},
      {"pointwise/SUB", {"TENSOR_DIMENSIONS=[4,32,16,16] TENSOR_STRIDES=[8192,1,512,32] "}},  // as it is
  });
}

TEST(CudnnOps, Reductions) {
  check({
      {"reduction/MAX", {"OPERATOR=3\n", "XDESC=t1 OPERATION_REDUCTION_YDESC=t2 "}},
      {"reduction/deterministic", {"REDUCTION_IS_DETERMINISTIC=yes\n"}},
      // The mean is the sum of parts, the sum of magnitudes that of absolute values.
      {"reduction/AVG", {"POINTWISE_MODE=6 ", "XDESC=t1 OPERATION_POINTWISE_YDESC=t4 ", "REDUCTION_OPERATOR=0\n"}},
      {"reduction/NORM1", {"POINTWISE_MODE=10 ", "REDUCTION_OPERATOR=0\n", "OPERATION_REDUCTION_XDESC=t3 "}},
      // Over as few dims as they have, the fastest of which is dim 1, and four at least.
      {"reduction/rows",
       {"TENSOR_DIMENSIONS=[512,64,1,1] TENSOR_STRIDES=[64,1,64,64] ", "TENSOR_DIMENSIONS=[512,1,1,1] "}},
      {"reduction/per_channel", {"TENSOR_DIMENSIONS=[4,32,16,16] TENSOR_STRIDES=[8192,1,512,32] "}},
  });
}

TEST(CudnnOps, Matmul) {
  check({
      {"matmul/int8_bias", {"MATMUL_COMP_TYPE=4\n", "POINTWISE_MATH_PREC=0\n"}},
      {"matmul/rank_4",
       {"TENSOR_DIMENSIONS=[8,32,64] TENSOR_STRIDES=[2048,64,1] ", "TENSOR_DIMENSIONS=[8,64,32] ",
        "TENSOR_DIMENSIONS=[8,32,32] "}},
      {"matmul/transposed", {"TENSOR_DIMENSIONS=[16,32,128] TENSOR_STRIDES=[4096,1,32] "}},
  });
}

TEST(CudnnOps, BatchesThatDoNotLieInOneStayApart) {
  RecordingCudnn recorder;
  IrBuilder b;
  const auto x = b.input({2, 4, 8, 16}, DataType_t::HALF, {128, 256, 16, 1});
  b.output(b.op("matmul", {x, b.input({2, 4, 16, 8}, DataType_t::HALF)}), DataType_t::HALF);
  ASSERT_THAT(lower(b.graph).reasons, IsEmpty());
  EXPECT_THAT(recorder.operations(), HasSubstr("TENSOR_DIMENSIONS=[2,4,8,16] TENSOR_STRIDES=[128,256,16,1] "));
}

TEST(CudnnOps, Convolutions) {
  check({
      {"conv_fprop/uneven",
       {"CONV_MODE=1 CONVOLUTION_SPATIAL_DIMS=2 CONVOLUTION_PRE_PADDINGS=[2,0] CONVOLUTION_POST_PADDINGS=[1,3] "
        "CONVOLUTION_DILATIONS=[1,2] CONVOLUTION_FILTER_STRIDES=[2,3]\n",
        "FORWARD_X=t1 OPERATION_CONVOLUTION_FORWARD_W=t2 OPERATION_CONVOLUTION_FORWARD_Y=t3 ",
        "ALPHA=1 OPERATION_CONVOLUTION_FORWARD_BETA=0\n"}},
      {"conv_fprop/flipped", {"CONV_MODE=0 "}},
      {"conv_dgrad/strided",
       {"DATA_DX=t3 OPERATION_CONVOLUTION_BWD_DATA_W=t2 OPERATION_CONVOLUTION_BWD_DATA_DY=t1 ",
        "CONVOLUTION_FILTER_STRIDES=[2,2]\n"}},
      {"conv_wgrad/3x3",
       {"FILTER_X=t2 OPERATION_CONVOLUTION_BWD_FILTER_DW=t3 OPERATION_CONVOLUTION_BWD_FILTER_DY=t1 "}},
  });
}

TEST(CudnnOps, Norms) {
  check({
      {"layernorm/training",
       {"FWD_MODE=0 OPERATION_NORM_FWD_PHASE=1 OPERATION_NORM_FWD_XDESC=t1 OPERATION_NORM_FWD_SCALE_DESC=t2 "
        "OPERATION_NORM_FWD_BIAS_DESC=t3 OPERATION_NORM_FWD_EPSILON_DESC=t4 OPERATION_NORM_FWD_YDESC=t5 "
        "OPERATION_NORM_FWD_MEAN_DESC=t6 OPERATION_NORM_FWD_INV_VARIANCE_DESC=t7\n"}},
      {"layernorm/inference", {"FWD_PHASE=0 ", "YDESC=t5\n"}},
      {"rmsnorm/inference", {"FWD_MODE=4 OPERATION_NORM_FWD_PHASE=0 ", "BIAS_DESC=t1 "}},
      {"instancenorm/training", {"FWD_MODE=1 OPERATION_NORM_FWD_PHASE=1 "}},
      {"adalayernorm/training", {"FWD_MODE=5 OPERATION_NORM_FWD_PHASE=1 "}},
      {"rmsnorm_backward/dbias",
       {"BWD_MODE=4 OPERATION_NORM_BWD_XDESC=t2 OPERATION_NORM_BWD_DYDESC=t1 OPERATION_NORM_BWD_SCALE_DESC=t3 "
        "OPERATION_NORM_BWD_INV_VARIANCE_DESC=t4 OPERATION_NORM_BWD_DXDESC=t5 OPERATION_NORM_BWD_DSCALE_DESC=t6 "
        "OPERATION_NORM_BWD_DBIAS_DESC=t7\n"}},
      {"adalayernorm_backward/plain", {"BWD_MODE=5 ", "MEAN_DESC=t4 OPERATION_NORM_BWD_INV_VARIANCE_DESC=t5 "}},
      {"instancenorm_backward/plain", {"BWD_MODE=1 "}},
      {"layernorm_backward/plain", {"BWD_MODE=0 "}},
  });
  EXPECT_THAT(asked("rmsnorm_backward/plain"), Not(HasSubstr("DBIAS")));
}

TEST(CudnnOps, BatchNorm) {
  check({
      {"batchnorm/running",
       {"FWD_MODE=2 OPERATION_NORM_FWD_PHASE=1 ", "EPSILON_DESC=t6 OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC=t7 ",
        "INPUT_RUNNING_MEAN_DESC=t4 OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC=t5 ",
        "OUTPUT_RUNNING_MEAN_DESC=t11 OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC=t12\n"}},
      {"batchnorm/one_spatial_dim", {"TENSOR_DIMENSIONS=[4,32,64,1] TENSOR_STRIDES=[2048,1,32,32] "}},
      {"batchnorm_backward/inference_relu",
       {"FWD_MODE=2 OPERATION_NORM_FWD_PHASE=0 ", "FWD_MEAN_DESC=t4 OPERATION_NORM_FWD_INV_VARIANCE_DESC=t5 ",
        "BWD_MODE=2 ", "BWD_DYDESC=t8 "}},
      // By itself: (x - mean) * inv * scale + bias.
      {"batchnorm_inference/plain",
       {"XDESC=t1 OPERATION_POINTWISE_YDESC=t7 OPERATION_POINTWISE_BDESC=t2\n",
        "XDESC=t7 OPERATION_POINTWISE_YDESC=t8 OPERATION_POINTWISE_BDESC=t3\n",
        "XDESC=t8 OPERATION_POINTWISE_YDESC=t9 OPERATION_POINTWISE_BDESC=t4\n",
        "XDESC=t9 OPERATION_POINTWISE_YDESC=t6 OPERATION_POINTWISE_BDESC=t5\n"}},
      {"bn_finalize/running",
       {"Y_SUM_DESC=t1 OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC=t2 OPERATION_BN_FINALIZE_SCALE_DESC=t3 "
        "OPERATION_BN_FINALIZE_BIAS_DESC=t4 ",
        "ACCUM_COUNT_DESC=t5 ", "TENSOR_DATA_TYPE=10 ",  // INT64
        "EQ_SCALE_DESC=t10 OPERATION_BN_FINALIZE_EQ_BIAS_DESC=t11 OPERATION_BN_FINALIZE_SAVED_MEAN_DESC=t12 "
        "OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC=t13 OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC=t14 "
        "OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC=t15\n"}},
      {"dbn_weight/plain",
       {"X_DESC=t2 OPERATION_BN_BWD_WEIGHTS_DY_DESC=t1 OPERATION_BN_BWD_WEIGHTS_MEAN_DESC=t4 "
        "OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC=t5 OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC=t3 ",
        "EQ_DY_SCALE_DESC=t8 OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC=t9 OPERATION_BN_BWD_WEIGHTS_EQ_BIAS=t10\n"}},
      {"conv_fprop/prologue_genstats", {"GENSTATS_XDESC=t8 OPERATION_GENSTATS_SUMDESC=t9 "}},
  });
  EXPECT_THAT(asked("genstats/plain"), Not(HasSubstr("GENSTATS")));  // two reductions
}

TEST(CudnnOps, Pooling) {
  check({
      {"resample/max_index",
       {"RESAMPLE_MODE=3 ", "NAN_PROPAGATION=1 RESAMPLE_PADDING_MODE=1 ", "XDESC=t1 OPERATION_RESAMPLE_FWD_YDESC=t2 ",
        "IDXDESC=t3\n"}},
      {"resample/average_exclude_padding", {"RESAMPLE_MODE=4 ", "RESAMPLE_PADDING_MODE=0 "}},
      {"resample_backward/max_index", {"BWD_DXDESC=t3 OPERATION_RESAMPLE_BWD_DYDESC=t2 ", "BWD_IDXDESC=t1\n"}},
      {"resample_backward/average", {"RESAMPLE_MODE=2 "}},
  });
  EXPECT_THAT(asked("resample/max"), Not(HasSubstr("IDXDESC")));
}

// Where the tensors that are bound lie: tensor and offset in bytes, of uids that are no tensor of the graph.
std::vector<std::pair<ir::TensorId, int64_t>> parts(const ir::Graph& g, const cudnn::Lowered& l) {
  std::vector<std::pair<ir::TensorId, int64_t>> list;
  for (const cudnn::Bound& b : l.bound)
    if (b.uid > int64_t(g.tensors.size())) list.emplace_back(b.place.tensor, b.place.offset);
  return list;
}

TEST(CudnnOps, ASliceIsReadWhereItLies) {
  RecordingCudnn recorder;
  IrBuilder b;
  const auto whole = b.input({20, 40, 128}, DataType_t::HALF);
  const auto a = b.op("slice", {whole}, {{"slices", Dims{2, 18, 4, 36, 0, 128}}});
  b.graph.tensors[size_t(a)].type = DataType_t::HALF;
  const auto w = b.input({16, 128, 64}, DataType_t::HALF);
  b.output(b.op("matmul", {a, w}), DataType_t::HALF);
  const cudnn::Lowered l = lower(b.graph);
  ASSERT_THAT(l.reasons, IsEmpty());
  EXPECT_THAT(recorder.operations(), HasSubstr("TENSOR_DIMENSIONS=[16,32,128] TENSOR_STRIDES=[5120,128,1] "));
  EXPECT_EQ(l.operations.size(), 1u);  // the product alone
  EXPECT_THAT(parts(b.graph, l), ElementsAre(std::pair(whole, int64_t(2 * (2 * 5120 + 4 * 128)))));
}

TEST(CudnnOps, AResultThatIsTransposedIsWrittenSo) {
  RecordingCudnn recorder;
  IrBuilder b;
  b.intermediate = DataType_t::HALF;
  const auto c = b.op("matmul", {b.input({16, 32, 128}, DataType_t::HALF), b.input({16, 128, 64}, DataType_t::HALF)});
  const auto y = b.output(b.op("transpose", {c}, {{"permutation", Dims{0, 2, 1}}}), DataType_t::HALF,
                          row_major_strides({16, 64, 32}));
  const cudnn::Lowered l = lower(b.graph);
  ASSERT_THAT(l.reasons, IsEmpty());
  EXPECT_THAT(recorder.operations(), HasSubstr("TENSOR_DIMENSIONS=[16,32,64] TENSOR_STRIDES=[2048,1,32] "));
  EXPECT_EQ(l.operations.size(), 1u);
  EXPECT_THAT(parts(b.graph, l), ElementsAre(std::pair(y, int64_t(0))));
  EXPECT_THAT(l.writes, ElementsAre(y));
}

TEST(CudnnOps, AChainOfMovementsIsOne) {
  RecordingCudnn recorder;
  IrBuilder b;
  b.intermediate = DataType_t::HALF;
  const auto c = b.op("matmul", {b.input({2, 8, 16}, DataType_t::HALF), b.input({2, 16, 4}, DataType_t::HALF)});
  const auto t = b.op("transpose", {c}, {{"permutation", Dims{0, 2, 1}}});
  b.graph.tensors[size_t(t)].stride = row_major_strides({2, 4, 8});
  const auto y = b.op("reshape", {t}, {{"dim", Dims{8, 8}}, {"stride", Dims{8, 1}}});
  b.output(y, DataType_t::HALF, {8, 1});
  const cudnn::Lowered l = lower(b.graph);
  ASSERT_THAT(l.reasons, IsEmpty());
  EXPECT_EQ(l.operations.size(), 1u);
  EXPECT_THAT(recorder.operations(), HasSubstr("TENSOR_DIMENSIONS=[2,8,4] TENSOR_STRIDES=[32,1,8] "));
  EXPECT_THAT(parts(b.graph, l), ElementsAre(std::pair(y, int64_t(0))));
}

TEST(CudnnOps, PartsOfWhatIsMadeAreNotReadBesideIt) {
  RecordingCudnn recorder;
  IrBuilder b;
  const auto c = b.output(b.op("matmul", {b.input({2, 8, 16}), b.input({2, 16, 4})}));
  const auto part = b.op("slice", {c}, {{"slices", Dims{0, 2, 0, 4, 0, 4}}});
  b.output(b.pw(PointwiseMode_t::ABS, {part}), DataType_t::FLOAT, row_major_strides({2, 4, 4}));
  const cudnn::Lowered l = lower(b.graph);
  ASSERT_EQ(l.reasons.size(), 1u);
  EXPECT_EQ(l.reasons[0].why, Why::Fusion);
  EXPECT_EQ(l.reasons[0].node, 1);
}

TEST(CudnnOps, AConcatenationIsWrittenPartByPart) {
  RecordingCudnn recorder;
  IrBuilder b;
  b.intermediate = DataType_t::HALF;
  const auto x = b.input({2, 3, 8}, DataType_t::HALF), other = b.input({2, 5, 8}, DataType_t::HALF);
  const auto y = b.op("concatenate", {b.pw(PointwiseMode_t::ABS, {x}), other}, {{"axis", int64_t(1)}});
  b.output(y, DataType_t::HALF, row_major_strides({2, 8, 8}));
  const cudnn::Lowered l = lower(b.graph);
  ASSERT_THAT(l.reasons, IsEmpty());
  EXPECT_EQ(l.operations.size(), 2u);  // the absolute values, and a copy of the other
  EXPECT_THAT(parts(b.graph, l),
              ElementsAre(std::pair(y, int64_t(0)), std::pair(other, int64_t(0)), std::pair(y, int64_t(2 * 3 * 8))));
}

TEST(CudnnOps, WhatCudnnCannotSayIsAReasonThatNamesTheNode) {
  for (const CudnnGraph& row : cudnn_graphs()) {
    if (row.answer != CudnnAnswer::Refused) continue;
    RecordingCudnn recorder;
    const cudnn::Lowered l = lower(row.graph);
    ASSERT_FALSE(l.reasons.empty()) << row.name;
    const Reason& r = l.reasons[0];
    ASSERT_TRUE(r.node >= 0 || r.tensor >= 0) << row.name;
    const std::string& name = r.tensor >= 0 ? row.graph.tensor(r.tensor).name : row.graph.nodes[size_t(r.node)].name;
    EXPECT_THAT(r.text, HasSubstr('"' + name + '"')) << row.name;
  }
}

TEST(CudnnOps, EveryOpHasARow) {
  const std::string_view later[] = {"sdpa_fp8",
                                    "sdpa_mxfp8",
                                    "sdpa_fp8_backward",
                                    "sdpa_mxfp8_backward",
                                    "block_scale_quantize",
                                    "block_scale_dequantize",
                                    "moe_grouped_matmul",
                                    "moe_grouped_matmul_bwd"};  // validation refuses them
  for (const ir::OpDef* op : ir::all_ops())
    EXPECT_EQ(cudnn::find_lower_op(op->name) != nullptr,
              std::find(std::begin(later), std::end(later), op->name) == std::end(later))
        << op->name;
}

}  // namespace
}  // namespace tilewright::testing
