#include "support/cudnn_table.h"

#include "ops/pointwise.h"
#include "support/ir_builder.h"

namespace tilewright::testing {
namespace {

using P = PointwiseMode_t;
using R = ReductionMode_t;
using Id = ir::TensorId;
constexpr auto FP32 = DataType_t::FLOAT, FP16 = DataType_t::HALF, BF16 = DataType_t::BFLOAT16, I8 = DataType_t::INT8,
               I32 = DataType_t::INT32, BOOL = DataType_t::BOOLEAN, E4M3 = DataType_t::FP8_E4M3;

Dims nhwc(const Dims& dim) { return channels_last_strides(dim); }

class Table {
 public:
  template <class Make>
  void add(const std::string& name, CudnnAnswer answer, const Make& make) {
    IrBuilder b;
    make(b);
    b.graph.name = name;
    rows.push_back({name, std::move(b.graph), answer});
  }
  template <class Make>
  void add(const std::string& name, const Make& make) {
    add(name, CudnnAnswer::Plans, make);
  }
  std::vector<CudnnGraph> rows;
};

// A result between nodes that is of another type than the builder's.
Id typed(IrBuilder& b, Id t, DataType_t type) {
  b.graph.tensors[size_t(t)].type = type;
  return t;
}
Id channels(IrBuilder& b, int64_t c, DataType_t type = FP32) { return b.input({1, c, 1, 1}, type, nhwc({1, c, 1, 1})); }
Id image(IrBuilder& b, const Dims& dim, DataType_t type = FP16) { return b.input(dim, type, nhwc(dim)); }

// --- pointwise, reductions -------------------------------------------------------------------------------------------

void pointwise(Table& t) {
  const Dims dim = {4, 32, 16, 16};
#define PW(MODE, ARITY, DOMAIN_, ...) \
  if (P::MODE != P::BINARY_SELECT && !std::string_view(#MODE).starts_with("LOGICAL")) \
    t.add("pointwise/" #MODE, [&](IrBuilder& b) { \
      const bool backward = std::string_view(#MODE).ends_with("_BWD"); \
      std::vector<Id> in = {image(b, dim)}; \
      if (ARITY == 2) in.push_back(backward ? image(b, dim) : channels(b, 32, FP16)); \
      b.output(b.pw(P::MODE, in), FP16, nhwc(dim)); \
    });
#include "ops/pw_ops.def"
#undef PW
  t.add("pointwise/scalar", [&](IrBuilder& b) {
    const Id x = b.input({64, 64, 64}, FP16);
    b.output(b.pw(P::ADD, {x, b.scalar(5.0f)}), FP16);
  });
  t.add("pointwise/scalar_from_host", [&](IrBuilder& b) {
    const Id x = b.input({64, 64, 64}, FP16);
    b.output(b.pw(P::MUL, {x, b.scalar({}, 3)}), FP16);
  });
  t.add("pointwise/relu_clips", [&](IrBuilder& b) {
    const Id x = image(b, dim);
    const Id y = b.pw(P::RELU_FWD, {x}, {{"relu_lower_clip", -0.5}, {"relu_upper_clip", 1.0}});
    b.output(y, FP16, nhwc(dim));
  });
  t.add("pointwise/relu_slope", [&](IrBuilder& b) {
    b.output(b.pw(P::RELU_FWD, {image(b, dim)}, {{"relu_lower_clip_slope", 0.125}}), FP16, nhwc(dim));
  });
  t.add("pointwise/relu_bwd_clips", [&](IrBuilder& b) {
    const Id dy = image(b, dim), x = image(b, dim);
    const Id dx = b.pw(P::RELU_BWD, {dy, x}, {{"relu_lower_clip", -0.5}, {"relu_upper_clip", 1.0}});
    b.output(dx, FP16, nhwc(dim));
  });
  t.add("pointwise/relu_bwd_slope", [&](IrBuilder& b) {
    const Id dy = image(b, dim), x = image(b, dim);
    b.output(b.pw(P::RELU_BWD, {dy, x}, {{"relu_lower_clip_slope", 0.125}}), FP16, nhwc(dim));
  });
  t.add("pointwise/parameters", [&](IrBuilder& b) {
    Id x = image(b, dim);
    x = b.pw(P::ELU_FWD, {x}, {{"elu_alpha", 0.75}});
    x = b.pw(P::SOFTPLUS_FWD, {x}, {{"softplus_beta", 2.0}});
    x = b.pw(P::SWISH_FWD, {x}, {{"swish_beta", 0.5}});
    b.output(x, FP16, nhwc(dim));
  });
  t.add("pointwise/parameters_bwd", [&](IrBuilder& b) {
    Id g = image(b, dim);
    const Id x = image(b, dim);
    g = b.pw(P::ELU_BWD, {g, x}, {{"elu_alpha", 0.75}});
    g = b.pw(P::SOFTPLUS_BWD, {g, x}, {{"softplus_beta", 2.0}});
    g = b.pw(P::SWISH_BWD, {g, x}, {{"swish_beta", 0.5}});
    b.output(g, FP16, nhwc(dim));
  });
  t.add("pointwise/gen_index_select", [&](IrBuilder& b) {  // a causal mask
    const Id x = b.input({4, 64, 64}, FP16);
    const Id row = typed(b, b.pw(P::GEN_INDEX, {x}, {{"axis", int64_t(1)}}), I32);
    const Id column = typed(b, b.pw(P::GEN_INDEX, {x}, {{"axis", int64_t(2)}}), I32);
    const Id mask = typed(b, b.pw(P::CMP_GE, {row, column}), BOOL);
    b.output(b.pw(P::BINARY_SELECT, {x, b.scalar(-1.0f, 3), mask}), FP16);
  });
  t.add("pointwise/logical", [&](IrBuilder& b) {
    const Id x = b.input({4, 64, 64}, FP16), y = b.input({4, 64, 64}, FP16);
    const Id above = typed(b, b.pw(P::CMP_GT, {x, y}), BOOL), below = typed(b, b.pw(P::CMP_LT, {x, y}), BOOL);
    b.compute = BOOL;
    const Id either = typed(b, b.pw(P::LOGICAL_OR, {above, below}), BOOL);
    const Id both = typed(b, b.pw(P::LOGICAL_AND, {either, above}), BOOL);
    const Id neither = typed(b, b.pw(P::LOGICAL_NOT, {both}), BOOL);
    b.compute = FP32;
    b.output(b.pw(P::BINARY_SELECT, {x, y, neither}), FP16);
  });
  t.add("pointwise/boolean_input", CudnnAnswer::Refused, [&](IrBuilder& b) {
    b.output(b.pw(P::MUL, {b.input({4, 64, 64}, FP16), b.input({4, 64, 64}, BOOL)}), FP16);
  });
  t.add("pointwise/nchw", CudnnAnswer::Refused, [&](IrBuilder& b) {
    const Id x = b.input(dim, FP16), y = b.input({1, 32, 1, 1}, FP16);
    b.output(b.pw(P::RELU_FWD, {b.pw(P::ADD, {x, y})}), FP16);
  });
  t.add("pointwise/rows", [&](IrBuilder& b) {
    b.output(b.pw(P::ADD, {b.input({4, 8, 16, 32}, FP16), b.input({1, 1, 1, 32}, FP16)}), FP16);
  });
  t.add("pointwise/rank_5", CudnnAnswer::None, [&](IrBuilder& b) {
    const Id x = b.input({2, 3, 4, 5, 16}, FP16), y = b.input({1, 3, 1, 5, 1}, FP16);
    b.output(b.pw(P::ADD, {x, y}), FP16);
  });
  t.add("pointwise/transposed_operand", CudnnAnswer::None, [&](IrBuilder& b) {
    b.output(b.pw(P::ADD, {b.input({4, 64, 32}, FP16), b.input({4, 64, 32}, FP16, {2048, 1, 64})}), FP16);
  });
  t.add("pointwise/rank_2", [&](IrBuilder& b) {
    b.output(b.pw(P::ADD, {b.input({64, 32}, FP16), b.input({1, 32}, FP16)}), FP16);
  });
  t.add("pointwise/broadcast_of_lower_rank", [&](IrBuilder& b) {
    b.output(b.pw(P::MUL, {b.input({8, 64, 32}, FP16), b.input({32}, FP16)}), FP16);
  });
}

void reductions(Table& t) {
  for (const R mode : {R::ADD, R::MUL, R::MIN, R::MAX, R::AMAX, R::AVG, R::NORM1, R::NORM2, R::MUL_NO_ZEROS}) {
    const CudnnAnswer answer = mode == R::MUL                                ? CudnnAnswer::None
                               : mode == R::NORM2 || mode == R::MUL_NO_ZEROS ? CudnnAnswer::Refused
                                                                             : CudnnAnswer::Plans;
    t.add(std::string("reduction/") + to_string(mode), answer, [&](IrBuilder& b) {
      b.output(b.reduce(mode, image(b, {4, 32, 16, 16}, FP32), {1, 32, 1, 1}), FP32, nhwc({1, 32, 1, 1}));
    });
  }
  t.add("reduction/rows", [](IrBuilder& b) { b.output(b.reduce(R::ADD, b.input({16, 32, 64}), {16, 32, 1})); });
  t.add("reduction/softmax_shape", CudnnAnswer::Refused, [](IrBuilder& b) {
    const Id x = b.input({4, 8, 32, 64}, FP16);
    b.output(b.reduce(R::ADD, b.pw(P::EXP, {x}), {4, 8, 32, 1}));
  });
  t.add("reduction/channels", [](IrBuilder& b) {
    b.output(b.reduce(R::ADD, image(b, {4, 32, 16, 16}, FP32), {4, 1, 16, 16}), FP32, nhwc({4, 1, 16, 16}));
  });
  t.add("reduction/spatial", CudnnAnswer::None, [](IrBuilder& b) {
    b.output(b.reduce(R::ADD, image(b, {4, 32, 16, 16}, FP32), {4, 32, 1, 1}), FP32, nhwc({4, 32, 1, 1}));
  });
  t.add("reduction/rank_3_channels", [](IrBuilder& b) {
    b.output(b.reduce(R::ADD, b.input({16, 64, 32}, FP32, {2048, 1, 64}), {16, 1, 32}), FP32, {32, 32, 1});
  });
  t.add("reduction/columns", [](IrBuilder& b) { b.output(b.reduce(R::ADD, b.input({16, 32, 64}), {1, 1, 64})); });
  t.add("reduction/rank_3_keeps_channels", [](IrBuilder& b) {
    b.output(b.reduce(R::ADD, b.input({16, 64, 32}, FP32, {2048, 1, 64}), {1, 64, 1}), FP32, {64, 1, 64});
  });
  t.add("reduction/to_scalar", [](IrBuilder& b) {
    b.output(b.reduce(R::MAX, image(b, {16, 16, 16, 16}, FP32), {1, 1, 1, 1}), FP32);
  });
  t.add("reduction/per_channel", [](IrBuilder& b) {
    b.output(b.reduce(R::ADD, image(b, {4, 32, 16, 16}), {1, 32, 1, 1}), FP32, nhwc({1, 32, 1, 1}));
  });
  t.add("reduction/amax_and_cast", [](IrBuilder& b) {
    const Id x = image(b, {16, 16, 16, 16}, FP32), scale = b.input({1, 1, 1, 1});
    b.output(b.reduce(R::AMAX, x, {1, 1, 1, 1}), FP32);
    b.output(b.pw(P::MUL, {x, scale}), E4M3, nhwc({16, 16, 16, 16}));
  });
  t.add("reduction/deterministic", CudnnAnswer::None, [](IrBuilder& b) {
    const Id y = b.op("reduction", {b.input({16, 32, 64})}, {{"mode", std::string("ADD")}, {"is_deterministic", true}},
                      {16, 32, 1});
    b.output(y);
  });
}

// --- matmul ----------------------------------------------------------------------------------------------------------

void matmuls(Table& t) {
  const Dims a_dim = {16, 32, 128}, b_dim = {16, 128, 64};
  const Dims transposed_b = {128 * 64, 1, 128};
  t.add("matmul/bf16", [&](IrBuilder& b) {
    b.output(b.op("matmul", {b.input(a_dim, BF16), b.input(b_dim, BF16)}), BF16);
  });
  t.add("matmul/fp32", [&](IrBuilder& b) { b.output(b.op("matmul", {b.input(a_dim), b.input(b_dim)})); });
  t.add("matmul/transposed", [&](IrBuilder& b) {
    const Id x = b.input(a_dim, FP16, {128 * 32, 1, 32}), y = b.input(b_dim, FP16, transposed_b);
    b.output(b.op("matmul", {x, y}), FP16);
  });
  t.add("matmul/batch_broadcast", [&](IrBuilder& b) {
    b.output(b.op("matmul", {b.input(a_dim, FP16), b.input({1, 128, 64}, FP16)}), FP16);
  });
  t.add("matmul/rank_4", [&](IrBuilder& b) {
    b.output(b.op("matmul", {b.input({2, 4, 32, 64}, FP16), b.input({2, 4, 64, 32}, FP16)}), FP16);
  });
  t.add("matmul/rank_2", [&](IrBuilder& b) {
    b.output(b.op("matmul", {b.input({64, 128}, FP16), b.input({128, 32}, FP16)}), FP16);
  });
  t.add("matmul/abs", [&](IrBuilder& b) {
    const Id x = typed(b, b.pw(P::ABS, {b.input(a_dim, BF16)}), BF16);
    b.output(b.op("matmul", {x, b.input(b_dim, BF16)}), BF16);
  });
  t.add("matmul/bias_prologue", [&](IrBuilder& b) {
    const Id x = typed(b, b.pw(P::ADD, {b.input(a_dim, BF16), b.input({16, 32, 1}, BF16)}), BF16);
    b.output(b.op("matmul", {x, b.input(b_dim, BF16)}), BF16);
  });
  t.add("matmul/scale_bias_relu", [&](IrBuilder& b) {
    Id x = b.op("matmul", {b.input(a_dim, FP16), b.input(b_dim, FP16)});
    x = b.pw(P::MUL, {x, b.input({1, 32, 1}, FP16)});
    x = b.pw(P::ADD, {x, b.input({1, 32, 1}, FP16)});
    b.output(b.pw(P::RELU_FWD, {x}), FP16);
  });
  t.add("matmul/bias_gelu", [&](IrBuilder& b) {
    Id x = b.op("matmul", {b.input(a_dim, FP16), b.input(b_dim, FP16)});
    x = b.pw(P::ADD, {x, b.input({1, 1, 64}, FP16)});
    b.output(b.pw(P::GELU_APPROX_TANH_FWD, {x}), FP16);
  });
  t.add("matmul/fp8", [&](IrBuilder& b) {
    Id x = b.op("matmul", {b.input(a_dim, E4M3), b.input(b_dim, E4M3, transposed_b)});
    for (int i = 0; i < 2; ++i) x = b.pw(P::MUL, {x, b.input({1, 1, 1})});
    b.output(x, BF16);
  });
  t.add("matmul/int8_bias", [&](IrBuilder& b) {
    b.compute = I32;
    const Id x = b.op("matmul", {b.input(a_dim, I8), b.input(b_dim, I8, transposed_b)});
    b.compute = FP32;
    b.output(b.pw(P::ADD, {x, b.input({16, 32, 64})}));
  });
  t.add("matmul/mixed", [&](IrBuilder& b) {
    const Id x = typed(b, b.pw(P::IDENTITY, {b.input(a_dim, I8)}), BF16);
    b.output(b.op("matmul", {x, b.input(b_dim, BF16)}), BF16);
  });
  t.add("matmul/scalar_scale_add", [&](IrBuilder& b) {
    const Id x = typed(b, b.pw(P::MUL, {b.input(a_dim, FP16), b.scalar(0.5f)}), FP16);
    const Id c = b.op("matmul", {x, b.input(b_dim, FP16)});
    b.output(b.pw(P::ADD, {c, b.scalar({}, 3)}), FP16);
  });
  t.add("matmul/row_sums", [&](IrBuilder& b) {
    const Id c = b.op("matmul", {b.input(a_dim, FP16), b.input(b_dim, FP16)});
    b.output(b.reduce(R::ADD, c, {16, 32, 1}));
  });
  t.add("matmul/overrides", CudnnAnswer::Refused, [&](IrBuilder& b) {
    const Id m = b.input({16, 1, 1}, I32), n = b.input({16, 1, 1}, I32), k = b.input({16, 1, 1}, I32);
    b.output(b.op("matmul", {b.input(a_dim, FP16), b.input(b_dim, FP16), m, n, k}), FP16);
  });
}

// --- convolutions ----------------------------------------------------------------------------------------------------

AttrMap geometry(Dims pre, Dims post, Dims stride, Dims dilation) {
  return {{"pre_padding", pre}, {"post_padding", post}, {"stride", stride}, {"dilation", dilation}};
}
const Dims kOnes = {1, 1};

void forward_convolutions(Table& t) {
  t.add("conv_fprop/1x1", [](IrBuilder& b) {
    b.output(b.conv("conv_fprop", image(b, {2, 64, 16, 16}), image(b, {128, 64, 1, 1}), {0, 0}, kOnes, kOnes), FP16);
  });
  t.add("conv_fprop/3x3", [](IrBuilder& b) {
    b.output(b.conv("conv_fprop", image(b, {2, 64, 16, 16}), image(b, {64, 64, 3, 3}), kOnes, kOnes, kOnes), FP16);
  });
  t.add("conv_fprop/fp32", [](IrBuilder& b) {
    const Id x = image(b, {2, 32, 16, 16}, FP32), w = image(b, {32, 32, 3, 3}, FP32);
    b.output(b.conv("conv_fprop", x, w, kOnes, kOnes, kOnes), FP32);
  });
  t.add("conv_fprop/uneven", [](IrBuilder& b) {  // padding, stride and dilation all differ
    const Id x = image(b, {2, 32, 17, 20}), w = image(b, {32, 32, 3, 2});
    b.output(b.op("conv_fprop", {x, w}, geometry({2, 0}, {1, 3}, {2, 3}, {1, 2})), FP16);
  });
  t.add("conv_fprop/flipped", [](IrBuilder& b) {
    AttrMap attrs = geometry(kOnes, kOnes, kOnes, kOnes);
    attrs["math_mode"] = std::string("CONVOLUTION");
    b.output(b.op("conv_fprop", {image(b, {2, 32, 16, 16}), image(b, {32, 32, 3, 3})}, attrs), FP16);
  });
  t.add("conv_fprop/groups", [](IrBuilder& b) {
    b.output(b.conv("conv_fprop", image(b, {2, 64, 16, 16}), image(b, {64, 16, 3, 3}), kOnes, kOnes, kOnes), FP16);
  });
  t.add("conv_fprop/depthwise", [](IrBuilder& b) {
    b.output(b.conv("conv_fprop", image(b, {2, 64, 16, 16}), image(b, {64, 1, 3, 3}), kOnes, kOnes, kOnes), FP16);
  });
  t.add("conv_fprop/3d", [](IrBuilder& b) {
    const Id x = image(b, {1, 32, 6, 8, 8}), w = image(b, {32, 32, 3, 3, 3});
    b.output(b.conv("conv_fprop", x, w, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}), FP16);
  });
  t.add("conv_fprop/1d", [](IrBuilder& b) {
    b.output(b.conv("conv_fprop", image(b, {2, 32, 64}), image(b, {32, 32, 3}), {1}, {1}, {1}), FP16);
  });
  t.add("conv_fprop/scale_bias_relu", [](IrBuilder& b) {
    Id y = b.conv("conv_fprop", image(b, {8, 32, 16, 16}), image(b, {64, 32, 3, 3}), kOnes, kOnes, kOnes);
    y = b.pw(P::ADD, {b.pw(P::MUL, {y, channels(b, 64, FP16)}), channels(b, 64, FP16)});
    b.output(b.pw(P::RELU_FWD, {y}), FP16);
  });
  t.add("conv_fprop/nchw_bias_relu", [](IrBuilder& b) {
    const Dims out = {8, 64, 16, 16};
    Id y = b.conv("conv_fprop", b.input({8, 32, 16, 16}, FP16), b.input({64, 32, 3, 3}, FP16), kOnes, kOnes, kOnes);
    y = b.pw(P::ADD, {b.pw(P::ADD, {y, b.input(out, FP16)}), b.input({1, 64, 1, 1}, FP16)});
    b.output(b.pw(P::RELU_FWD, {y}), FP16, row_major_strides(out));
  });
  t.add("conv_fprop/prologue_genstats", [](IrBuilder& b) {
    Id x = image(b, {4, 64, 16, 16});
    x = b.pw(P::ADD, {b.pw(P::MUL, {x, channels(b, 64, FP16)}), channels(b, 64, FP16)});
    x = typed(b, b.pw(P::RELU_FWD, {x}), FP16);
    const Id y = b.output(b.conv("conv_fprop", x, image(b, {32, 64, 3, 3}), kOnes, kOnes, kOnes), FP16);
    for (Id s : b.node("genstats", {y})) b.output(s);
  });
  t.add("conv_fprop/int8", [](IrBuilder& b) {
    b.compute = b.intermediate = I32;
    const Id y = b.conv("conv_fprop", image(b, {1, 64, 16, 16}, I8), image(b, {32, 64, 3, 3}, I8), kOnes, kOnes, kOnes);
    b.output(b.pw(P::IDENTITY, {y, y}), I32);
  });
  t.add("conv_fprop/fp8_amax", [](IrBuilder& b) {
    Id y = b.conv("conv_fprop", image(b, {2, 64, 16, 16}, E4M3), image(b, {64, 64, 1, 1}, E4M3), {0, 0}, kOnes, kOnes);
    for (int i = 0; i < 2; ++i) y = b.pw(P::MUL, {y, b.input({1, 1, 1, 1})});
    b.output(b.pw(P::MUL, {y, b.input({1, 1, 1, 1})}), E4M3);
    b.output(b.reduce(R::AMAX, y, {1, 1, 1, 1}));
  });
}

void gradient_convolutions(Table& t) {
  t.add("conv_dgrad/3x3", [](IrBuilder& b) {
    const Id dy = image(b, {4, 64, 16, 16}), w = image(b, {64, 32, 3, 3});
    b.output(b.conv("conv_dgrad", dy, w, kOnes, kOnes, kOnes, {4, 32, 16, 16}), FP16);
  });
  t.add("conv_dgrad/strided", [](IrBuilder& b) {
    const Id dy = image(b, {2, 64, 8, 8}), w = image(b, {64, 32, 3, 3});
    b.output(b.conv("conv_dgrad", dy, w, kOnes, {2, 2}, kOnes, {2, 32, 16, 16}), FP16);
  });
  t.add("conv_dgrad/relu_bwd", [](IrBuilder& b) {
    const Id dy = image(b, {4, 64, 16, 16}), w = image(b, {64, 32, 3, 3});
    const Id g = b.conv("conv_dgrad", dy, w, kOnes, kOnes, kOnes, {4, 32, 16, 16});
    b.output(b.pw(P::RELU_BWD, {g, image(b, {4, 32, 16, 16})}), FP16);
  });
  t.add("conv_dgrad/relu_bwd_dbn_weight", [](IrBuilder& b) {
    const Id dy = image(b, {4, 64, 16, 16}), w = image(b, {64, 32, 3, 3}), x = image(b, {4, 32, 16, 16});
    const Id mean = channels(b, 32), inv = channels(b, 32), scale = channels(b, 32), bias = channels(b, 32);
    const Id g = b.conv("conv_dgrad", dy, w, kOnes, kOnes, kOnes, {4, 32, 16, 16});
    Id xhat = b.pw(P::MUL, {b.pw(P::SUB, {x, mean}), inv});
    xhat = b.pw(P::ADD, {b.pw(P::MUL, {xhat, scale}), bias});
    const Id gated = b.output(b.pw(P::RELU_BWD, {g, xhat}), FP16);
    for (Id d : b.node("dbn_weight", {gated, x, scale, mean, inv})) b.output(d);
  });
  t.add("conv_wgrad/3x3", [](IrBuilder& b) {
    const Id dy = image(b, {4, 64, 16, 16}), x = image(b, {4, 64, 16, 16});
    b.output(b.conv("conv_wgrad", dy, x, kOnes, kOnes, kOnes, {64, 64, 3, 3}), FP16);
  });
  t.add("conv_wgrad/prologue", [](IrBuilder& b) {
    b.intermediate = FP16;
    const Id dy = image(b, {4, 64, 16, 16});
    Id x = image(b, {4, 64, 16, 16});
    x = b.pw(P::ADD, {b.pw(P::MUL, {x, channels(b, 64, FP16)}), channels(b, 64, FP16)});
    x = b.pw(P::RELU_FWD, {x});
    b.output(b.conv("conv_wgrad", dy, x, kOnes, kOnes, kOnes, {64, 64, 3, 3}), FP16);
  });
}

// --- norms -----------------------------------------------------------------------------------------------------------

const AttrMap kTraining = {{"forward_phase", std::string("TRAINING")}};
const AttrMap kInference = {{"forward_phase", std::string("INFERENCE")}};
constexpr int64_t kRows = 64, kHidden = 128;

Id rows(IrBuilder& b, DataType_t type) { return image(b, {kRows, kHidden, 1, 1}, type); }
Id parameter(IrBuilder& b, DataType_t type = FP32) { return channels(b, kHidden, type); }
Id statistic(IrBuilder& b) { return b.input({kRows, 1, 1, 1}); }
// Real outputs: the first in `type`, the statistics or parameter gradients behind it in FLOAT.
void outputs(IrBuilder& b, const std::vector<Id>& out, DataType_t type) {
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] != ir::kNone) b.output(out[i], i == 0 ? type : FP32);
}

void layer_norms(Table& t) {
  for (const bool training : {false, true}) {
    const AttrMap& phase = training ? kTraining : kInference;
    const std::string suffix = training ? "training" : "inference";
    t.add("layernorm/" + suffix, [&](IrBuilder& b) {
      outputs(b, b.node("layernorm", {rows(b, FP16), parameter(b), parameter(b), b.scalar(1e-3f, 4)}, phase), FP16);
    });
    t.add("rmsnorm/" + suffix, [&](IrBuilder& b) {
      const Id bias = training ? ir::kNone : parameter(b);
      outputs(b, b.node("rmsnorm", {rows(b, FP32), parameter(b), bias, b.scalar(1e-3f, 4)}, phase), FP32);
    });
    t.add("adalayernorm/" + suffix, [&](IrBuilder& b) {
      const Dims scale = {4, 1, kHidden, 1}, stride = {kHidden, kHidden, 1, 1};
      const Id x = b.input({4, 16, kHidden, 1}, BF16, {16 * kHidden, kHidden, 1, 1});
      const Id s = b.input(scale, FP32, stride), bias = b.input(scale, FP32, stride);
      outputs(b, b.node("adalayernorm", {x, s, bias, b.scalar(1e-3f, 4)}, phase), BF16);
    });
    t.add("instancenorm/" + suffix, [&](IrBuilder& b) {
      const Id x = image(b, {4, 32, 8, 8});
      outputs(b, b.node("instancenorm", {x, channels(b, 32), channels(b, 32), b.scalar(1e-3f, 4)}, phase), FP16);
    });
  }
  t.add("layernorm/zero_centred_gamma", [](IrBuilder& b) {
    const Id scale = b.pw(P::ADD, {parameter(b), b.scalar(1.0f, 4)});
    outputs(b, b.node("layernorm", {rows(b, FP16), scale, parameter(b), b.scalar(1e-3f, 4)}, kTraining), FP16);
  });
  t.add("layernorm/bitmask_relu", [](IrBuilder& b) {
    const auto out = b.node("layernorm", {rows(b, FP32), parameter(b), parameter(b), b.scalar(1e-3f, 4)}, kTraining);
    b.output(out[1]), b.output(out[2]);
    const Id low = b.scalar(0.0f, 4), high = b.scalar(1.0f, 4);
    const Id y = b.output(b.pw(P::RELU_FWD, {out[0]}, {{"relu_upper_clip", 1.0}}), FP32, nhwc(b.dim(out[0])));
    const Id above = typed(b, b.pw(P::CMP_GT, {y, low}), BOOL);
    const Id below = typed(b, b.pw(P::CMP_LT, {y, high}), BOOL);
    b.compute = BOOL;
    const Id mask = b.output(b.pw(P::LOGICAL_AND, {above, below}), BOOL);
    b.graph.tensors[size_t(mask)].bit_packed = true;
  });
  t.add("layernorm_backward/plain", [](IrBuilder& b) {
    outputs(b, b.node("layernorm_backward", {rows(b, FP16), rows(b, FP16), parameter(b), statistic(b), statistic(b)}),
            FP16);
  });
  t.add("layernorm_backward/bitmask_relu", [](IrBuilder& b) {
    const Id dy = rows(b, FP32), mask = rows(b, BOOL);
    b.graph.tensors[size_t(mask)].bit_packed = true;
    const Id gated = b.pw(P::MUL, {dy, mask});
    outputs(b, b.node("layernorm_backward", {gated, rows(b, FP32), parameter(b), statistic(b), statistic(b)}), FP32);
  });
  t.add("rmsnorm_backward/plain", [](IrBuilder& b) {
    outputs(
        b,
        b.node("rmsnorm_backward", {rows(b, FP32), rows(b, FP32), parameter(b), statistic(b)}, {{"has_dbias", false}}),
        FP32);
  });
  t.add("rmsnorm_backward/dbias", [](IrBuilder& b) {
    outputs(
        b,
        b.node("rmsnorm_backward", {rows(b, FP32), rows(b, FP32), parameter(b), statistic(b)}, {{"has_dbias", true}}),
        FP32);
  });
  t.add("adalayernorm_backward/plain", [](IrBuilder& b) {
    const Dims dim = {4, 16, kHidden, 1}, stride = {16 * kHidden, kHidden, 1, 1};
    const Id dy = b.input(dim, BF16, stride), x = b.input(dim, BF16, stride);
    const Id scale = b.input({4, 1, kHidden, 1}, FP32, {kHidden, kHidden, 1, 1});
    const Id mean = b.input({4, 16, 1, 1}), inv = b.input({4, 16, 1, 1});
    outputs(b, b.node("adalayernorm_backward", {dy, x, scale, mean, inv}), BF16);
  });
  t.add("instancenorm_backward/plain", [](IrBuilder& b) {
    const Id dy = image(b, {4, 32, 8, 8}), x = image(b, {4, 32, 8, 8});
    const Dims stat = {4, 32, 1, 1};
    const Id mean = b.input(stat, FP32, nhwc(stat)), inv = b.input(stat, FP32, nhwc(stat));
    outputs(b, b.node("instancenorm_backward", {dy, x, channels(b, 32), mean, inv}), FP16);
  });
}

void batch_norms(Table& t) {
  const Dims dim = {4, 32, 16, 16};
  t.add("batchnorm/running", [&](IrBuilder& b) {
    const Id x = image(b, dim), scale = channels(b, 32), bias = channels(b, 32);
    const Id mean = channels(b, 32), variance = channels(b, 32);
    outputs(b, b.node("batchnorm", {x, scale, bias, b.scalar(1e-3f, 4), mean, variance, b.scalar(0.1f, 4)}), FP16);
  });
  t.add("batchnorm/one_spatial_dim", [&](IrBuilder& b) {
    const Id x = b.input({4, 32, 64}, FP16, nhwc({4, 32, 64})), scale = b.input({1, 32, 1}), bias = b.input({1, 32, 1});
    const auto out = b.node("batchnorm", {x, scale, bias, b.scalar(1e-3f)});
    b.output(out[1]), b.output(out[2]);
    b.output(b.pw(P::RELU_FWD, {out[0]}), FP16, nhwc({4, 32, 64}));
  });
  t.add("batchnorm/no_running", [&](IrBuilder& b) {
    outputs(b, b.node("batchnorm", {image(b, dim), channels(b, 32), channels(b, 32), b.scalar(1e-3f, 4)}), FP16);
  });
  t.add("batchnorm/add_relu", [&](IrBuilder& b) {
    const Id x = image(b, dim), scale = channels(b, 32), bias = channels(b, 32);
    const Id mean = channels(b, 32), variance = channels(b, 32);
    const auto out = b.node("batchnorm", {x, scale, bias, b.scalar(1e-3f, 4), mean, variance, b.scalar(0.1f, 4)});
    for (size_t i = 1; i < out.size(); ++i) b.output(out[i]);  // statistics, new running statistics
    b.output(b.pw(P::RELU_FWD, {b.pw(P::ADD, {out[0], image(b, dim)})}), FP16, nhwc(dim));
  });
  t.add("batchnorm_inference/plain", [&](IrBuilder& b) {
    const Id x = image(b, dim), mean = channels(b, 32), inv = channels(b, 32);
    b.output(b.op("batchnorm_inference", {x, mean, inv, channels(b, 32), channels(b, 32)}), FP16, nhwc(dim));
  });
  t.add("batchnorm_backward/plain", [&](IrBuilder& b) {
    const Id dy = image(b, dim), x = image(b, dim);
    outputs(b, b.node("batchnorm_backward", {dy, x, channels(b, 32), channels(b, 32), channels(b, 32)}), FP16);
  });
  t.add("batchnorm_backward/no_statistics", CudnnAnswer::Refused, [&](IrBuilder& b) {
    outputs(b, b.node("batchnorm_backward", {image(b, dim), image(b, dim), channels(b, 32)}), FP16);
  });
  t.add("batchnorm_backward/mask", [&](IrBuilder& b) {
    const Id dy = image(b, dim), mask = image(b, dim, BOOL);
    b.graph.tensors[size_t(mask)].bit_packed = true;
    const Id gated = b.output(b.pw(P::MUL, {dy, mask}), FP16, nhwc(dim));
    const Id x = image(b, dim);
    outputs(b, b.node("batchnorm_backward", {gated, x, channels(b, 32), channels(b, 32), channels(b, 32)}), FP16);
  });
  t.add("batchnorm_backward/inference_relu", [&](IrBuilder& b) {
    const Id x = image(b, dim), scale = channels(b, 32), bias = channels(b, 32);
    const Id mean = channels(b, 32), inv = channels(b, 32);
    const Id y = b.op("batchnorm_inference", {x, mean, inv, scale, bias});
    const Id gated = typed(b, b.pw(P::RELU_BWD, {image(b, dim), y}), FP16);
    outputs(b, b.node("batchnorm_backward", {gated, x, scale, mean, inv}), FP16);
  });
  t.add("bn_finalize/running", [&](IrBuilder& b) {
    const Id sum = channels(b, 32), squares = channels(b, 32), scale = channels(b, 32), bias = channels(b, 32);
    const Id count = b.scalar(64.0f);
    b.graph.tensors[size_t(count)].type = DataType_t::INT64;
    b.graph.tensors[size_t(count)].value = int64_t(64);
    const Id mean = channels(b, 32), variance = channels(b, 32);
    outputs(b,
            b.node("bn_finalize", {sum, squares, scale, bias, b.scalar(1e-3f), count, mean, variance, b.scalar(0.1f)}),
            FP32);
  });
  t.add("genstats/plain", [&](IrBuilder& b) { outputs(b, b.node("genstats", {image(b, dim)}), FP32); });
  t.add("dbn_weight/plain", CudnnAnswer::None, [&](IrBuilder& b) {
    const Id dy = image(b, dim), x = image(b, dim);
    outputs(b, b.node("dbn_weight", {dy, x, channels(b, 32), channels(b, 32), channels(b, 32)}), FP32);
  });
}

// --- the rest --------------------------------------------------------------------------------------------------------

AttrMap pooling(const char* mode, const char* padding) {
  return {{"resample_mode", std::string(mode)},
          {"padding_mode", std::string(padding)},
          {"window", Dims{2, 3}},
          {"stride", Dims{4, 5}},
          {"pre_padding", Dims{1, 2}},
          {"post_padding", Dims{1, 1}}};
}
AttrMap with_index(AttrMap attrs, bool index) {
  attrs["generate_index"] = index;
  return attrs;
}

void resamples(Table& t) {
  const Dims dim = {2, 32, 16, 16};
  t.add("resample/max", [&](IrBuilder& b) {
    b.output(b.op("resample", {image(b, dim)}, with_index(pooling("MAXPOOL", "NEG_INF_PAD"), false)), FP16);
  });
  t.add("resample/max_index", [&](IrBuilder& b) {
    const auto out = b.node("resample", {image(b, dim)}, with_index(pooling("MAXPOOL", "NEG_INF_PAD"), true));
    b.output(out[0], FP16), b.output(out[1], I8);
  });
  t.add("resample/average", [&](IrBuilder& b) {
    const AttrMap attrs = with_index(pooling("AVGPOOL_INCLUDE_PADDING", "ZERO_PAD"), false);
    b.output(b.op("resample", {image(b, dim)}, attrs), FP16);
  });
  t.add("resample/average_exclude_padding", [&](IrBuilder& b) {
    const AttrMap attrs = with_index(pooling("AVGPOOL_EXCLUDE_PADDING", "ZERO_PAD"), false);
    b.output(b.op("resample", {image(b, dim)}, attrs), FP16);
  });
  const Dims dy = {2, 32, 5, 4};
  t.add("resample_backward/max_index", [&](IrBuilder& b) {
    const Id index = image(b, dy, I8);
    const Id dx = b.op("resample_backward", {image(b, dy), ir::kNone, index}, pooling("MAXPOOL", "NEG_INF_PAD"), dim);
    b.output(dx, FP16);
  });
  t.add("resample_backward/max_x", CudnnAnswer::Refused, [&](IrBuilder& b) {
    b.output(b.op("resample_backward", {image(b, dy), image(b, dim)}, pooling("MAXPOOL", "NEG_INF_PAD")), FP16);
  });
  t.add("resample_backward/average", [&](IrBuilder& b) {
    const AttrMap attrs = pooling("AVGPOOL_INCLUDE_PADDING", "ZERO_PAD");
    b.output(b.op("resample_backward", {image(b, dy)}, attrs, dim), FP16);
  });
}

void movements(Table& t) {
  t.add("slice/matmul", [](IrBuilder& b) {
    const Id whole = b.input({20, 40, 128}, FP16);
    const Id a = typed(b, b.op("slice", {whole}, {{"slices", Dims{2, 18, 4, 36, 0, 128}}}), FP16);
    b.output(b.pw(P::RELU_FWD, {b.op("matmul", {a, b.input({16, 128, 64}, FP16)})}), FP16);
  });
  t.add("slice/steps", [](IrBuilder& b) {
    const Id x = b.input({8, 32, 64}, FP16);
    const AttrMap attrs = {{"slices", Dims{0, 8, 1, 32, 0, 64}}, {"slice_strides", Dims{2, 3, 1}}};
    b.output(typed(b, b.op("slice", {x}, attrs), FP16), FP16, row_major_strides({4, 11, 64}));
  });
  t.add("transpose/input", [](IrBuilder& b) {
    const Id a = b.op("transpose", {b.input({16, 128, 32}, FP16)}, {{"permutation", Dims{0, 2, 1}}});
    b.output(b.op("matmul", {typed(b, a, FP16), b.input({16, 128, 64}, FP16)}), FP16);
  });
  t.add("transpose/result", [](IrBuilder& b) {
    const Id c = typed(b, b.op("matmul", {b.input({16, 32, 128}, FP16), b.input({16, 128, 64}, FP16)}), FP16);
    b.output(b.op("transpose", {c}, {{"permutation", Dims{0, 2, 1}}}), FP16, row_major_strides({16, 64, 32}));
  });
  t.add("transpose/between", CudnnAnswer::None, [](IrBuilder& b) {
    const Id c = typed(b, b.op("matmul", {b.input({16, 32, 128}, FP16), b.input({16, 128, 64}, FP16)}), FP16);
    const Id y = typed(b, b.op("transpose", {c}, {{"permutation", Dims{0, 2, 1}}}), FP16);
    b.output(b.pw(P::ADD, {y, b.input({16, 64, 32}, FP16)}), FP16, row_major_strides({16, 64, 32}));
  });
  t.add("slice/between", CudnnAnswer::Refused, [](IrBuilder& b) {
    const Id c = typed(b, b.op("matmul", {b.input({16, 32, 128}, FP16), b.input({16, 128, 64}, FP16)}), FP16);
    const Id y = typed(b, b.op("slice", {c}, {{"slices", Dims{2, 14, 0, 32, 16, 48}}}), FP16);
    b.output(b.pw(P::RELU_FWD, {y}), FP16, row_major_strides({12, 32, 32}));
  });
  t.add("slice/of_output", CudnnAnswer::Refused, [](IrBuilder& b) {
    const Id c = b.op("matmul", {b.input({16, 32, 128}, FP16), b.input({16, 128, 64}, FP16)});
    b.output(c, FP16);
    const Id y = typed(b, b.op("slice", {c}, {{"slices", Dims{2, 14, 0, 32, 16, 48}}}), FP16);
    b.output(b.pw(P::RELU_FWD, {y}), FP16, row_major_strides({12, 32, 32}));
  });
  t.add("reshape/logical_between", CudnnAnswer::None, [](IrBuilder& b) {
    const Id c = typed(b, b.op("matmul", {b.input({16, 32, 128}, FP16), b.input({16, 128, 64}, FP16)}), FP16);
    const AttrMap attrs = {{"dim", Dims{16, 64, 32}}, {"reshape_mode", std::string("LOGICAL")}};
    const Id y = typed(b, b.op("reshape", {c}, attrs), FP16);
    b.output(b.pw(P::ADD, {y, b.input({16, 64, 32}, FP16)}), FP16, row_major_strides({16, 64, 32}));
  });
  t.add("concatenate/read_again", CudnnAnswer::Refused, [](IrBuilder& b) {
    const Id x = typed(b, b.pw(P::ABS, {b.input({4, 32, 64}, FP16)}), FP16), other = b.input({4, 32, 64}, FP16);
    const Id y = typed(b, b.op("concatenate", {x, other}, {{"axis", int64_t(1)}}), FP16);
    b.output(b.pw(P::RELU_FWD, {y}), FP16, row_major_strides({4, 64, 64}));
  });
  t.add("reshape/view_of_input", [](IrBuilder& b) {
    const AttrMap attrs = {{"dim", Dims{16, 32, 128}}, {"stride", Dims{32 * 128, 128, 1}}};
    const Id a = typed(b, b.op("reshape", {b.input({512, 128}, FP16)}, attrs), FP16);
    b.output(b.op("matmul", {a, b.input({16, 128, 64}, FP16)}), FP16);
  });
  t.add("reshape/logical", [](IrBuilder& b) {
    const AttrMap attrs = {{"dim", Dims{6, 80}}, {"reshape_mode", std::string("LOGICAL")}};
    b.output(typed(b, b.op("reshape", {b.input({3, 8, 20}, FP16)}, attrs), FP16), FP16, {80, 1});
  });
  t.add("concatenate/in_place", [](IrBuilder& b) {
    const Id x = image(b, {2, 64, 16, 16}), w = image(b, {64, 64, 1, 1}), other = image(b, {2, 64, 16, 16});
    const Id y = typed(b, b.conv("conv_fprop", x, w, {0, 0}, kOnes, kOnes), FP16);
    const AttrMap attrs = {{"axis", int64_t(1)}, {"in_place_index", int64_t(0)}};
    b.output(b.op("concatenate", {y, other}, attrs), FP16, nhwc({2, 128, 16, 16}));
  });
  t.add("concatenate/copies", CudnnAnswer::None, [](IrBuilder& b) {
    const Id x = image(b, {2, 64, 16, 16}), y = image(b, {2, 32, 16, 16});
    b.output(b.op("concatenate", {x, y}, {{"axis", int64_t(1)}}), FP16, nhwc({2, 96, 16, 16}));
  });
  t.add("rng/uniform", CudnnAnswer::Refused, [](IrBuilder& b) {
    b.output(
        b.op("rng", {}, {{"distribution", std::string("UNIFORM")}, {"seed", int64_t(7)}, {"dim", Dims{64, 64, 1}}}));
  });
  t.add("softmax/rows", CudnnAnswer::Refused, [](IrBuilder& b) {
    b.output(b.op("softmax", {b.input({4, 8, 32, 64}, FP16)}), FP16);
  });
}

}  // namespace

std::vector<CudnnGraph> cudnn_graphs() {
  Table t;
  pointwise(t);
  reductions(t);
  matmuls(t);
  forward_convolutions(t);
  gradient_convolutions(t);
  layer_norms(t);
  batch_norms(t);
  resamples(t);
  movements(t);
  return std::move(t.rows);
}

}  // namespace tilewright::testing
