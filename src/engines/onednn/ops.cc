// What each op asks of the library.
#include <array>
#include <cmath>

#include "engines/onednn/lowering.h"
#include "ops/norm_common.h"
#include "ops/pointwise.h"
#include "ops/pointwise_math.h"
#include "ops/pooling.h"

namespace tilewright::onednn {

using ir::NodeId;
using ir::TensorId;
using M = PointwiseMode_t;

std::optional<AlgKind> binary_algorithm(M mode) {
  switch (mode) {
    case M::ADD: return kBinaryAdd;
    case M::MUL: return kBinaryMul;
    case M::SUB: return kBinarySub;
    case M::DIV: return kBinaryDiv;
    case M::MAX: return kBinaryMax;
    case M::MIN: return kBinaryMin;
    default: return std::nullopt;
  }
}

bool commutes(AlgKind a) { return a != kBinarySub && a != kBinaryDiv; }

std::optional<Eltwise> eltwise(const ir::Node& n) {
  const PwParams p = pointwise_params(n);
  switch (pointwise_mode(n)) {
    case M::RELU_FWD:
      if (p.lower != 0 || !std::isinf(p.upper)) return std::nullopt;
      return Eltwise{kEltwiseRelu, float(p.slope)};
    case M::IDENTITY: return Eltwise{kEltwiseLinear, 1};
    case M::NEG: return Eltwise{kEltwiseLinear, -1};
    case M::TANH_FWD: return Eltwise{kEltwiseTanh};
    case M::SIGMOID_FWD: return Eltwise{kEltwiseLogistic};
    case M::ELU_FWD: return Eltwise{kEltwiseElu, float(p.elu_alpha), 0, false};
    case M::GELU_FWD: return Eltwise{kEltwiseGeluErf, 0, 0, false};
    case M::GELU_APPROX_TANH_FWD: return Eltwise{kEltwiseGeluTanh};
    case M::SWISH_FWD: return Eltwise{kEltwiseSwish, float(p.swish_beta)};
    case M::ABS: return Eltwise{kEltwiseAbs};
    case M::SQRT: return Eltwise{kEltwiseSqrt};
    case M::EXP: return Eltwise{kEltwiseExp, 0, 0, false};
    case M::LOG: return Eltwise{kEltwiseLog, 0, 0, false};
    default: return std::nullopt;
  }
}

namespace {

std::optional<AlgKind> reduction_algorithm(ReductionMode_t mode) {
  switch (mode) {
    case ReductionMode_t::ADD: return kReductionSum;
    case ReductionMode_t::AVG: return kReductionMean;
    case ReductionMode_t::MAX: return kReductionMax;
    case ReductionMode_t::MIN: return kReductionMin;
    case ReductionMode_t::MUL: return kReductionMul;
    default: return std::nullopt;
  }
}

// Dims K, C, ... of W, or groups, K, C, ... of a grouped convolution.
Dims filter_dims(const Dims& dim, const ops::Convolution& c) {
  Dims d = dim;
  if (c.groups > 1) d[0] /= c.groups, d.insert(d.begin(), c.groups);
  return d;
}

constexpr const char* kOverlap = "an operand's elements share memory";

}  // namespace

std::optional<MemoryDesc> Lowering::describe_filter(TensorId id, const ops::Convolution& c) const {
  const ir::Tensor& w = tensor(id);
  Dims stride = w.stride;
  if (c.groups > 1) stride.insert(stride.begin(), stride[0] * c.k_per_group());
  return onednn::describe(filter_dims(w.dim, c), *data_type(w.type), stride);
}

// A tensor between nodes keeps the layout that its maker gives it.
bool Lowering::any_layout(const Build& b, TensorId id, MemoryDesc& desc) const {
  if (id == ir::kNone) return false;
  const ir::Tensor& t = tensor(id);
  const bool filter = std::string_view(node(b.node).op->name) != "matmul";
  const Dims dim = filter ? filter_dims(t.dim, ops::convolution_of(graph_, node(b.node))) : t.dim;
  return library().memory_desc_init_by_tag(&desc, int(dim.size()), dim.data(), *data_type(t.type), kFormatAny) ==
         kSuccess;
}

void Lowering::matmul(NodeId n) {
  const ir::Node& p = node(n);
  for (size_t port = 2; port < p.in.size(); ++port)
    if (p.in[port] != ir::kNone)
      return refuse(Why::Feature, n, fmt::format("sizes per batch ({})", p.op->inputs[port].name), p.in[port]);
  const auto a = describe(p.in[0]), b = describe(p.in[1]);
  if (!a || !b) return refuse(Why::Stride, n, kOverlap, p.in[a ? 1 : 0]);
  build({.node = n,
         .what = "matmul",
         .arguments = {argument(kArgSrc, p.in[0], *a), argument(kArgWeights, p.in[1], *b)},
         .result = p.out[0],
         .init = [&](OpDesc& d, const MemoryDesc& weights, const MemoryDesc& c,
                     const MemoryDesc* bias) { return library().matmul_desc_init(&d, &*a, &weights, bias, &c); },
         .bias_dim = tensor(p.out[0]).dim.size() - 1});
}

void Lowering::convolution(NodeId n) {
  const ir::Node& p = node(n);
  const ops::Convolution c = ops::convolution_of(graph_, p);
  if (c.flip && volume(c.filter) > 1)
    return refuse(Why::Feature, n, "CONVOLUTION turns the filter around; oneDNN has CROSS_CORRELATION only");
  if (c.rank() > 3) return refuse(Why::Shape, n, fmt::format("{} spatial dims; at most 3 serve", c.rank()));
  Dims dilation = c.dilation;  // the library counts the gaps
  for (int64_t& d : dilation) --d;
  const std::string_view op = p.op->name;
  const bool wgrad = op == "conv_wgrad";
  const auto first = describe(p.in[0]), second = wgrad ? describe(p.in[1]) : describe_filter(p.in[1], c);
  if (!first || !second) return refuse(Why::Stride, n, kOverlap, p.in[first ? 1 : 0]);
  const Library& lib = library();
  Build b{.node = n, .what = p.op->name, .arguments = {}, .result = p.out[0], .takes_post_ops = false};
  if (op == "conv_fprop") {  // X, W -> Y
    b.arguments = {argument(kArgSrc, p.in[0], *first), argument(kArgWeights, p.in[1], *second)};
    b.bias_dim = 1;
    b.flat_bias = b.takes_post_ops = true;
    b.init = [&](OpDesc& d, const MemoryDesc& w, const MemoryDesc& y, const MemoryDesc* bias) {
      return lib.dilated_convolution_forward_desc_init(&d, kForwardInference, kConvolutionDirect, &*first, &w, bias, &y,
                                                       c.stride.data(), dilation.data(), c.pre.data(), c.post.data());
    };
  } else if (wgrad) {  // DY, X -> DW
    b.arguments = {argument(kArgDiffDst, p.in[0], *first), argument(kArgSrc, p.in[1], *second)};
    b.result_arg = kArgDiffWeights;
    b.result_desc = describe_filter(p.out[0], c);
    b.init = [&](OpDesc& d, const MemoryDesc&, const MemoryDesc& dw, const MemoryDesc*) {
      return lib.dilated_convolution_backward_weights_desc_init(&d, kConvolutionDirect, &*second, &dw, nullptr, &*first,
                                                                c.stride.data(), dilation.data(), c.pre.data(),
                                                                c.post.data());
    };
  } else {  // DY, W -> DX
    b.arguments = {argument(kArgDiffDst, p.in[0], *first), argument(kArgWeights, p.in[1], *second)};
    b.result_arg = kArgDiffSrc;
    b.init = [&](OpDesc& d, const MemoryDesc& w, const MemoryDesc& dx, const MemoryDesc*) {
      return lib.dilated_convolution_backward_data_desc_init(&d, kConvolutionDirect, &dx, &w, &*first, c.stride.data(),
                                                             dilation.data(), c.pre.data(), c.post.data());
    };
  }
  build(b);
}

void Lowering::pointwise(NodeId n) {
  const ir::Node& p = node(n);
  if (softmax_backward(n)) return;
  const Dims& dim = tensor(p.out[0]).dim;
  const auto binary = binary_algorithm(pointwise_mode(p));
  const auto unary = eltwise(p);
  if (!binary && !unary)
    return refuse(Why::Op, n, fmt::format("the engine has no primitive for {}", to_string(pointwise_mode(p))));
  if (unary && !unary->close && !options_.approximate)
    return refuse(Why::Library, n, fmt::format("oneDNN's {} is less exact than this library's bound", mode_text(n)));
  std::array<TensorId, 2> in = {p.in[0], binary ? p.in[1] : ir::kNone};
  if (binary && tensor(in[0]).dim != dim && commutes(*binary)) std::swap(in[0], in[1]);
  const auto x = describe(in[0], dim.size());
  if (!x) return refuse(Why::Stride, n, kOverlap, in[0]);
  if (const auto y = describe(p.out[0]); unary && y && library().memory_desc_equal(&*x, &*y)) {
    build({.node = n,
           .what = "eltwise",
           .arguments = {argument(kArgSrc, in[0], *x)},
           .result = p.out[0],
           .init =
               [&](OpDesc& d, const MemoryDesc&, const MemoryDesc&, const MemoryDesc*) {
                 return library().eltwise_forward_desc_init(&d, kForwardInference, unary->algorithm, &*x, unary->alpha,
                                                            unary->beta);
               },
           .elementwise = true});
    return;
  }
  // One operand, and another type or layout of the result: times 1, and then the function.
  const Dims ones(dim.size(), 1);
  const auto other = binary ? describe(in[1], dim.size()) : onednn::describe(ones, kF32, ones);
  if (!other) return refuse(Why::Stride, n, kOverlap, in[1]);
  Place place_of_other;
  if (binary) place_of_other = place(in[1]);
  else place_of_other.constant = constant(1);
  Build b{.node = n,
          .what = "binary",
          .arguments = {argument(kArgSrc, in[0], *x), {kArgSrc1, *other, place_of_other}},
          .result = p.out[0],
          .init =
              [&](OpDesc& d, const MemoryDesc&, const MemoryDesc& z, const MemoryDesc*) {
                return library().binary_desc_init(&d, binary ? *binary : kBinaryMul, &*x, &*other, &z);
              },
          .elementwise = true};
  if (unary) b.head = {{n, ir::kNone, unary->algorithm, unary->alpha, unary->beta, p.out[0]}};
  build(b);
}

void Lowering::reduction(NodeId n) {
  const ir::Node& p = node(n);
  const ReductionMode_t mode = p.attr_enum("mode", ReductionMode_t::NOT_SET);
  const auto algorithm = reduction_algorithm(mode);
  if (!algorithm)
    return refuse(Why::Op, n, fmt::format("the engine has no primitive for the reduction {}", to_string(mode)));
  const auto x = describe(p.in[0]);
  if (!x) return refuse(Why::Stride, n, kOverlap, p.in[0]);
  build({.node = n,
         .what = "reduction",
         .arguments = {argument(kArgSrc, p.in[0], *x)},
         .result = p.out[0],
         .init = [&](OpDesc& d, const MemoryDesc&, const MemoryDesc& y, const MemoryDesc*) {
           return library().reduction_desc_init(&d, *algorithm, &*x, &y, 0, 0);
         }});
}

// Of one virtual tensor to another it is the same memory, seen with other strides.
void Lowering::transpose(NodeId n) {
  const ir::Node& p = node(n);
  const ir::Tensor& x = tensor(p.in[0]);
  ir::Tensor& y = graph_.tensors[size_t(p.out[0])];
  if (x.role != ir::Role::Virtual || y.role != ir::Role::Virtual || x.type != y.type)
    return refuse(Why::Op, n, "a transposed copy; only views of virtual tensors are taken");
  const Dims order = p.attr<Dims>("permutation");
  for (size_t d = 0; d < order.size(); ++d) y.stride[d] = x.stride[size_t(order[d])];
  place_[size_t(p.out[0])] = place(p.in[0]);
  done_[size_t(n)] = true;
}

// --- softmax -------------------------------------------------------------------------------------------------------

void Lowering::softmax(NodeId n) {
  const ir::Node& p = node(n);
  if (!options_.approximate)
    return refuse(Why::Library, n, "oneDNN's softmax makes NaN of a row that is -inf alone, where zeros are right");
  if (p.out.size() > 1 && p.out[1] != ir::kNone)
    return refuse(Why::Feature, n, "oneDNN's softmax gives no statistics", p.out[1]);
  const auto x = describe(p.in[0]);
  if (!x) return refuse(Why::Stride, n, kOverlap, p.in[0]);
  const int64_t axis = p.attr<int64_t>("axis", int64_t(tensor(p.in[0]).dim.size()) - 1);
  build({.node = n,
         .what = "softmax",
         .arguments = {argument(kArgSrc, p.in[0], *x)},
         .result = p.out[0],
         .init =
             [&](OpDesc& d, const MemoryDesc&, const MemoryDesc& y, const MemoryDesc*) {
               return library().softmax_v2_forward_desc_init(&d, kForwardInference, kSoftmaxAccurate, &*x, &y,
                                                             int(axis));
             },
         .takes_post_ops = false});
}

// The only node that reads a virtual tensor; -1 where there are others, or none.
NodeId Lowering::only_consumer(TensorId id) const {
  const auto& all = links_.consumers[size_t(id)];
  return tensor(id).role == ir::Role::Virtual && all.size() == 1 ? all[0] : -1;
}
bool Lowering::is_pointwise(NodeId n, M mode) const {
  return n >= 0 && std::string_view(node(n).op->name) == "pointwise" && pointwise_mode(node(n)) == mode;
}

// The gradient of softmax as it is written in nodes: with Y the softmax and DY its gradient, the product DY * Y here,
// its sum over one dim, DY minus that, times Y.
bool Lowering::softmax_backward(NodeId n) {
  const NodeId sum = only_consumer(node(n).out[0]);
  if (!options_.post_ops || !is_pointwise(n, M::MUL) || sum < 0) return false;
  if (std::string_view(node(sum).op->name) != "reduction" ||
      node(sum).attr_enum("mode", ReductionMode_t::NOT_SET) != ReductionMode_t::ADD)
    return false;
  const Dims &dim = tensor(node(n).out[0]).dim, &summed = tensor(node(sum).out[0]).dim;
  int axis = -1;
  for (size_t d = 0; d < dim.size(); ++d) {
    if (dim[d] == summed[d]) continue;
    if (axis >= 0) return false;
    axis = int(d);
  }
  const NodeId sub = only_consumer(node(sum).out[0]);
  if (axis < 0 || !is_pointwise(sub, M::SUB) || node(sub).in[1] != node(sum).out[0]) return false;
  const TensorId dy = node(sub).in[0], y = node(n).in[node(n).in[0] == dy ? 1 : 0];
  const NodeId mul = only_consumer(node(sub).out[0]);
  if (!is_pointwise(mul, M::MUL) || (node(n).in[0] != dy && node(n).in[1] != dy)) return false;
  if (node(mul).in[node(mul).in[0] == node(sub).out[0] ? 1 : 0] != y) return false;
  if (tensor(dy).dim != dim || tensor(y).dim != dim || tensor(node(mul).out[0]).dim != dim) return false;
  const auto dy_desc = describe(dy), y_desc = describe(y);
  if (!dy_desc || !y_desc) return false;
  OpDesc forward;
  PrimitiveDesc forward_desc;
  const Library& lib = library();
  if (lib.softmax_v2_forward_desc_init(&forward, kForwardTraining, kSoftmaxAccurate, &*y_desc, &*y_desc, axis) !=
          kSuccess ||
      lib.primitive_desc_create(forward_desc.put(), &forward, nullptr, lib.engine, nullptr) != kSuccess)
    return false;
  return try_build({.node = n,
                    .what = "softmax_backward",
                    .arguments = {argument(kArgDiffDst, dy, *dy_desc), argument(kArgDst, y, *y_desc)},
                    .result = node(mul).out[0],
                    .result_arg = kArgDiffSrc,
                    .init =
                        [&](OpDesc& d, const MemoryDesc&, const MemoryDesc& dx, const MemoryDesc*) {
                          return lib.softmax_v2_backward_desc_init(&d, kSoftmaxAccurate, &dx, &*dy_desc, &*y_desc,
                                                                   axis);
                        },
                    .forward = forward_desc.get(),
                    .also = {sum, sub, mul}},
                   {}, false);
}

// --- normalisation and pooling ---------------------------------------------------------------------------------------

// The library normalises rows of a matrix: X must be one, with the statistics a vector and scale and bias another.
void Lowering::layernorm(NodeId n) {
  const ir::Node& p = node(n);
  const ir::Tensor &x = tensor(p.in[0]), &scale = tensor(p.in[1]), &bias = tensor(p.in[2]), &epsilon = tensor(p.in[3]);
  const ir::Tensor& y = tensor(p.out[0]);
  const bool training = p.out.size() > 2 && p.out[1] != ir::kNone && p.out[2] != ir::kNone;
  if (!epsilon.value) return refuse(Why::Feature, n, "epsilon must be known when the plan is made", p.in[3]);
  if (x.type != y.type || x.stride != y.stride)
    return refuse(Why::Stride, n, "oneDNN's layernorm gives Y the type and the strides of X", p.out[0]);
  for (size_t port : {1, 2})
    if (tensor(p.in[port]).type != DataType_t::FLOAT)
      return refuse(Why::Dtype, n, "oneDNN's layernorm takes scale and bias in FLOAT", p.in[port]);

  Dims inner, outer;
  std::vector<Dims> inner_strides(3), outer_strides(training ? 3 : 1);
  const Dims statistics = ops::norm::statistic_dims(x.dim, scale.dim);
  for (size_t d = 0; d < x.dim.size(); ++d) {
    const bool normalised = statistics[d] == 1 && x.dim[d] > 1;
    (normalised ? inner : outer).push_back(x.dim[d]);
    if (normalised) {
      for (size_t k = 0; k < 3; ++k) inner_strides[k].push_back((k == 0 ? x : k == 1 ? scale : bias).stride[d]);
    } else {
      outer_strides[0].push_back(x.stride[d]);
      for (size_t k = 1; k < outer_strides.size(); ++k) outer_strides[k].push_back(tensor(p.out[k]).stride[d]);
    }
  }
  if (inner.empty()) return refuse(Why::Shape, n, "rows of one element");
  if (scale.dim != bias.dim) return refuse(Why::Shape, n, "scale and bias of different dims", p.in[2]);
  const Collapsed columns = collapse(inner, inner_strides), rows = collapse(outer, outer_strides);
  if (columns.dim.size() != 1 || rows.dim.size() != 1 || columns.stride[1][0] != 1 || columns.stride[2][0] != 1)
    return refuse(Why::Stride, n, "X is no matrix of packed rows", p.in[0]);
  const auto data =
      onednn::describe({rows.dim[0], columns.dim[0]}, *data_type(x.type), {rows.stride[0][0], columns.stride[0][0]});
  const auto parameter = onednn::describe({columns.dim[0]}, kF32, {1}), vector = onednn::describe(rows.dim, kF32, {1});
  if (!data || !parameter || !vector) return refuse(Why::Stride, n, kOverlap, p.in[0]);

  Build b{.node = n,
          .what = "layernorm",
          .arguments = {argument(kArgSrc, p.in[0], *data), argument(kArgScale, p.in[1], *parameter),
                        argument(kArgShift, p.in[2], *parameter)},
          .result = p.out[0],
          .init =
              [&](OpDesc& d, const MemoryDesc&, const MemoryDesc&, const MemoryDesc*) {
                return library().layer_normalization_forward_desc_init(
                    &d, training ? kForwardTraining : kForwardInference, &*data, &*vector,
                    float(ir::scalar_value(*epsilon.value)), kUseScale | kUseShift);
              },
          .result_desc = data,
          .takes_post_ops = false};
  if (!training) return void(build(b));

  for (size_t k : {1, 2})
    if (rows.stride[k][0] != 1 || tensor(p.out[k]).type != DataType_t::FLOAT)
      return refuse(Why::Stride, n, "oneDNN's layernorm gives packed statistics in FLOAT", p.out[k]);
  const Argument variance = scratch(kArgVariance, *vector);
  b.arguments.push_back(argument(kArgMean, p.out[1], *vector));
  b.arguments.push_back(variance);
  if (!build(b)) return;
  // What is asked for is 1 / sqrt(variance + epsilon).
  const auto one = onednn::describe({1}, kF32, {1});
  const Place epsilon_place = place(p.in[3]);
  build({.node = n,
         .what = "inverse_deviation",
         .arguments = {{kArgSrc, variance.desc, variance.place}, {kArgSrc1, *one, epsilon_place}},
         .result = p.out[2],
         .init = [&](OpDesc& d, const MemoryDesc&, const MemoryDesc& z,
                     const MemoryDesc*) { return library().binary_desc_init(&d, kBinaryAdd, &*vector, &*one, &z); },
         .result_desc = vector,
         .takes_post_ops = false,
         .head = {{n, ir::kNone, kEltwisePow, 1, -0.5f, p.out[2]}}});
}

void Lowering::pooling(NodeId n) {
  const ir::Node& p = node(n);
  if (p.out.size() > 1 && p.out[1] != ir::kNone)
    return refuse(Why::Feature, n, "oneDNN keeps the positions of maxima in a form of its own", p.out[1]);
  const ops::Pooling pool = ops::pooling_of(graph_, p);
  for (size_t d = 0; d < pool.rank(); ++d)
    if (pool.pre[d] >= pool.window[d] || pool.post[d] >= pool.window[d])
      return refuse(Why::Shape, n, "windows that see only padding");
  const AlgKind algorithm = pool.max()                                             ? kPoolingMax
                            : pool.mode == ResampleMode_t::AVGPOOL_INCLUDE_PADDING ? kPoolingAvgIncludePadding
                                                                                   : kPoolingAvgExcludePadding;
  const auto x = describe(p.in[0]);
  if (!x) return refuse(Why::Stride, n, kOverlap, p.in[0]);
  // The library derives the size of Y and wants padding that fits: what no window reaches is left out.
  Dims post = pool.post;
  for (size_t d = 0; d < pool.rank(); ++d)
    post[d] = (pool.out[d] - 1) * pool.stride[d] + pool.window[d] - pool.pre[d] - pool.in[d];
  const Dims dilation(pool.rank(), 0);
  build({.node = n,
         .what = "pooling",
         .arguments = {argument(kArgSrc, p.in[0], *x)},
         .result = p.out[0],
         .init = [&](OpDesc& d, const MemoryDesc&, const MemoryDesc& y, const MemoryDesc*) {
           return library().pooling_v2_forward_desc_init(&d, kForwardInference, algorithm, &*x, &y, pool.stride.data(),
                                                         pool.window.data(), dilation.data(), pool.pre.data(),
                                                         post.data());
         }});
}

}  // namespace tilewright::onednn
