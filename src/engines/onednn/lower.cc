#include "engines/onednn/lower.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "ops/convolution.h"
#include "ops/pointwise.h"
#include "ops/pointwise_math.h"

namespace tilewright::onednn {
namespace {

using ir::NodeId;
using ir::TensorId;
using M = PointwiseMode_t;

std::optional<DataType> data_type(DataType_t type) {
  switch (type) {
    case DataType_t::FLOAT: return kF32;
    case DataType_t::HALF: return kF16;
    case DataType_t::BFLOAT16: return kBf16;
    default: return std::nullopt;
  }
}

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

struct Eltwise {
  AlgKind algorithm;
  float alpha = 0, beta = 0;
  // The library's formula is as good as the bound asks for; those that are not serve comparisons only.
  bool close = true;
};

std::optional<Eltwise> eltwise(M mode, const PwParams& p) {
  switch (mode) {
    case M::RELU_FWD:  // of NaN it is 0
      if (p.lower != 0 || !std::isinf(p.upper)) return std::nullopt;
      return Eltwise{kEltwiseRelu, float(p.slope)};
    case M::TANH_FWD: return Eltwise{kEltwiseTanh};
    case M::SIGMOID_FWD: return Eltwise{kEltwiseLogistic};
    case M::ELU_FWD: return Eltwise{kEltwiseElu, float(p.elu_alpha), 0, false};
    case M::GELU_FWD: return Eltwise{kEltwiseGeluErf, 0, 0, false};
    case M::GELU_APPROX_TANH_FWD: return Eltwise{kEltwiseGeluTanh};
    case M::SWISH_FWD: return Eltwise{kEltwiseSwish, float(p.swish_beta)};
    case M::ABS: return Eltwise{kEltwiseAbs};
    case M::SQRT: return Eltwise{kEltwiseSqrt};
    case M::EXP: return Eltwise{kEltwiseExp};
    case M::LOG: return Eltwise{kEltwiseLog, 0, 0, false};
    case M::NEG: return Eltwise{kEltwiseLinear, -1, 0};
    default: return std::nullopt;
  }
}

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

// One pointwise node that a primitive applies to its result.
struct PostOp {
  NodeId node;
  TensorId operand = ir::kNone;  // binary: the other operand
  AlgKind algorithm;
  float alpha = 0, beta = 0;
  TensorId result;
};

class Lowering {
 public:
  Lowering(const ir::Graph& graph, const LowerOptions& options)
      : graph_(graph),
        options_(options),
        links_(links(graph)),
        done_(graph.nodes.size()),
        place_(graph.tensors.size()) {}

  Program run() {
    const Threads threads(options_.threads);
    for (size_t t = 0; t < graph_.tensors.size(); ++t) check_tensor(TensorId(t));
    for (size_t n = 0; n < graph_.nodes.size() && program_.reasons.empty(); ++n)
      if (!done_[n]) lower_node(NodeId(n));
    // Every launch's scratchpad is the same place, behind all else.
    for (Launch& launch : program_.launches)
      for (Argument& a : launch.arguments)
        if (a.index == kArgScratchpad) a.place.offset = program_.workspace_bytes;
    program_.workspace_bytes += scratch_bytes_;
    return std::move(program_);
  }

 private:
  const ir::Tensor& tensor(TensorId id) const { return graph_.tensor(id); }
  const ir::Node& node(NodeId id) const { return graph_.nodes[size_t(id)]; }

  void refuse(Why why, NodeId n, std::string text, TensorId t = ir::kNone) {
    program_.reasons.push_back({why, n, t, std::move(text)});
  }

  void check_tensor(TensorId id) {
    const ir::Tensor& t = tensor(id);
    if (t.role != ir::Role::Scalar && t.role != ir::Role::Constant && !data_type(t.type))
      refuse(Why::Dtype, -1,
             fmt::format("tensor \"{}\" is {}; taken are FLOAT, HALF, BFLOAT16", t.name, to_string(t.type)), id);
    else if (volume(t.dim) == 0) refuse(Why::Shape, -1, fmt::format("tensor \"{}\" is empty", t.name), id);
    else if (t.dim.size() > size_t(kMaxDims))
      refuse(Why::Limit, -1, fmt::format("tensor \"{}\" has {} dims, at most {} serve", t.name, t.dim.size(), kMaxDims),
             id);
    else if (t.ragged_offset != ir::kNone) refuse(Why::Feature, -1, fmt::format("tensor \"{}\" is ragged", t.name), id);
  }

  // --- memory ----------------------------------------------------------------------------------------------------

  static std::optional<MemoryDesc> describe(const Dims& dim, DataType type, Dims stride) {
    // The stride of a dim of one element says nothing; the library wants a plausible one.
    for (size_t d = dim.size(); d-- > 0;)
      if (dim[d] == 1) stride[d] = d + 1 < dim.size() ? stride[d + 1] * dim[d + 1] : 1;
    MemoryDesc desc;
    if (library().memory_desc_init_by_strides(&desc, int(dim.size()), dim.data(), type, stride.data()) != kSuccess)
      return std::nullopt;
    return desc;
  }
  // The tensor with its rank extended on the left.
  std::optional<MemoryDesc> describe(TensorId id, size_t rank = 0) const {
    const ir::Tensor& t = tensor(id);
    Dims dim = t.dim, stride = t.stride;
    while (dim.size() < rank) dim.insert(dim.begin(), 1), stride.insert(stride.begin(), 0);
    const bool number = t.role == ir::Role::Scalar || t.role == ir::Role::Constant;
    return describe(dim, number ? kF32 : *data_type(t.type), stride);
  }

  int64_t reserve(int64_t bytes) {
    const int64_t offset = program_.workspace_bytes;
    program_.workspace_bytes += (bytes + 63) / 64 * 64;
    return offset;
  }

  int constant(double value) {
    program_.constants.push_back(float(value));
    return int(program_.constants.size()) - 1;
  }

  Place place(TensorId id) {
    Place& p = place_[size_t(id)];
    if (p.tensor != ir::kNone || p.offset >= 0 || p.constant >= 0) return p;
    const ir::Tensor& t = tensor(id);
    if (t.bound_by_caller()) p.tensor = id;
    else if (t.value) p.constant = constant(ir::scalar_value(*t.value));
    else p.offset = reserve(t.storage_bytes());
    return p;
  }

  // Whether a value can be read at this point, as an operand of that dims.
  bool available(TensorId id) const {
    const NodeId producer = links_.producer[size_t(id)];
    return producer < 0 || done_[size_t(producer)];
  }
  // A number that float does not hold, or that is read at each execute in another type, cannot be an operand.
  bool usable_number(TensorId id) const {
    const ir::Tensor& t = tensor(id);
    if (t.role != ir::Role::Scalar && t.role != ir::Role::Constant) return true;
    if (t.value) return double(float(ir::scalar_value(*t.value))) == ir::scalar_value(*t.value);
    return t.type == DataType_t::FLOAT;
  }

  // --- chains ----------------------------------------------------------------------------------------------------

  std::optional<PostOp> post_op(NodeId n, TensorId value) const {
    const ir::Node& p = node(n);
    if (std::string_view(p.op->name) != "pointwise" || tensor(p.out[0]).dim != tensor(value).dim) return std::nullopt;
    const M mode = pointwise_mode(p);
    if (mode == M::IDENTITY) return PostOp{n, ir::kNone, kEltwiseLinear, 1, 0, p.out[0]};
    if (const auto e = eltwise(mode, pointwise_params(p)); e && (e->close || options_.approximate))
      return PostOp{n, ir::kNone, e->algorithm, e->alpha, e->beta, p.out[0]};
    const auto binary = binary_algorithm(mode);
    if (!binary || p.in[0] == p.in[1]) return std::nullopt;
    const bool first = p.in[0] == value;
    if (!first && !commutes(*binary)) return std::nullopt;
    const TensorId other = p.in[first ? 1 : 0];
    if (!available(other) || !usable_number(other)) return std::nullopt;
    return PostOp{n, other, *binary, 0, 0, p.out[0]};
  }

  // The pointwise nodes that follow a value which nothing else needs.
  std::vector<PostOp> chain(TensorId value) const {
    std::vector<PostOp> list;
    while (options_.post_ops && tensor(value).role == ir::Role::Virtual &&
           links_.consumers[size_t(value)].size() == 1) {
      const auto op = post_op(links_.consumers[size_t(value)][0], value);
      if (!op) break;
      list.push_back(*op);
      value = op->result;
    }
    return list;
  }

  // Adds "+ vector along `channel`" of the chain's head as the bias that a primitive takes: where it is.
  std::optional<MemoryDesc> bias(const PostOp& op, const Dims& dim, size_t channel, bool flat) const {
    if (op.algorithm != kBinaryAdd || tensor(op.operand).type != DataType_t::FLOAT) return std::nullopt;
    const ir::Tensor& t = tensor(op.operand);
    if (t.role == ir::Role::Scalar || t.role == ir::Role::Constant) return std::nullopt;
    const size_t skip = dim.size() - t.dim.size();
    for (size_t d = 0; d < dim.size(); ++d) {
      const int64_t size = d < skip ? 1 : t.dim[d - skip];
      if (size != (d == channel ? dim[d] : 1)) return std::nullopt;
    }
    if (dim[channel] > 1 && t.stride[channel - skip] != 1) return std::nullopt;
    if (flat) return describe({dim[channel]}, kF32, {1});
    Dims ones(dim.size(), 1);
    ones[channel] = dim[channel];
    return describe(ones, kF32, row_major_strides(ones));
  }

  // --- primitives ------------------------------------------------------------------------------------------------

  struct Build {
    NodeId node;
    const char* what;  // "matmul"
    std::vector<Argument> arguments;
    TensorId result;
    int result_arg = kArgDst;
    // Fills the op descriptor for weights and a result, whose layout may be open, and a bias (null: none).
    std::function<Status(OpDesc&, const MemoryDesc& weights, const MemoryDesc& result, const MemoryDesc* bias)> init =
        {};
    std::optional<size_t> bias_dim = {};  // the dim of the result along which the primitive takes a bias
    bool flat_bias = false;
    bool takes_post_ops = true;
    bool elementwise = false;
    std::vector<PostOp> head = {};  // what is applied before the chain
    Handle forward = nullptr;       // of a gradient that needs it: the primitive descriptor of the forward pass
    std::vector<NodeId> also = {};  // other nodes that the primitive computes
  };

  // The argument whose layout the library may choose: the weights, or their gradient.
  static bool open_layout(const Argument& a) { return a.index == kArgWeights || a.index == kArgDiffWeights; }

  // `open`: the library chooses that layout, and a reorder brings the tensor there, or back.
  bool try_build(const Build& b, const std::vector<PostOp>& ops, bool open) {
    const TensorId result = ops.empty() ? b.result : ops.back().result;
    const auto plain_result = describe_as(result, b);
    if (!plain_result) return false;
    Launch launch;
    launch.name = b.what;
    launch.arguments = b.arguments;
    launch.nodes = {b.node};
    launch.nodes.insert(launch.nodes.end(), b.also.begin(), b.also.end());
    launch.elementwise = b.elementwise;
    const auto add_bias = b.bias_dim && !ops.empty() ? bias(ops[0], tensor(result).dim, *b.bias_dim, b.flat_bias)
                                                     : std::optional<MemoryDesc>();
    PostOps post;
    Attributes attributes;
    const Library& lib = library();
    if (lib.post_ops_create(post.put()) != kSuccess || lib.primitive_attr_create(attributes.put()) != kSuccess)
      return false;
    int position = 0;
    for (size_t i = 0; i < ops.size(); ++i) {
      const PostOp& op = ops[i];
      if (op.node != b.node) launch.nodes.push_back(op.node);
      launch.name += "+" + (i == 0 && add_bias ? std::string("bias") : mode_text(op.node));
      if (i == 0 && add_bias) {
        launch.arguments.push_back({kArgBias, *add_bias, place(op.operand)});
      } else if (op.operand == ir::kNone) {
        if (lib.post_ops_append_eltwise(post.get(), 1, op.algorithm, op.alpha, op.beta) != kSuccess) return false;
        ++position;
      } else {
        const auto operand = describe(op.operand, tensor(result).dim.size());
        if (!operand || lib.post_ops_append_binary(post.get(), op.algorithm, &*operand) != kSuccess) return false;
        launch.arguments.push_back({kArgPostOp * ++position | kArgSrc1, *operand, place(op.operand)});
      }
    }
    lib.primitive_attr_set_post_ops(attributes.get(), post.get());
    lib.primitive_attr_set_scratchpad_mode(attributes.get(), kScratchpadUser);
    launch.arguments.push_back({b.result_arg, *plain_result, place(result)});
    const auto at = std::find_if(launch.arguments.begin(), launch.arguments.end(), open_layout);
    const bool has_open = at != launch.arguments.end();
    if (open && !has_open) return false;
    MemoryDesc weights = has_open ? at->desc : MemoryDesc{};
    if (open && !any_layout(b, at->place.tensor, weights)) return false;
    const MemoryDesc& dst = b.result_arg == kArgDiffWeights ? weights : *plain_result;
    OpDesc desc;
    if (b.init(desc, weights, dst, add_bias ? &*add_bias : nullptr) != kSuccess) return false;
    if (lib.primitive_desc_create(launch.desc.put(), &desc, attributes.get(), lib.engine, b.forward) != kSuccess)
      return false;
    const char* implementation = nullptr;
    lib.primitive_desc_query(launch.desc.get(), kQueryImplInfo, 0, &implementation);
    launch.implementation = implementation ? implementation : "";
    if (launch.implementation.rfind("ref", 0) == 0) {  // its plain loops, thousands of times slower than ours
      only_reference_ = true;
      return false;
    }
    std::optional<Launch> before, after;
    if (open) {
      const bool gradient = at->index == kArgDiffWeights;
      const MemoryDesc* wanted =
          lib.primitive_desc_query_md(launch.desc.get(), gradient ? kQueryDiffWeightsMd : kQueryWeightsMd, 0);
      if (!wanted) return false;
      if (!lib.memory_desc_equal(wanted, &at->desc)) {
        const Argument plain = *at, own{at->index, *wanted, {ir::kNone, reserve(size_of(*wanted)), -1}};
        (gradient ? after : before) = gradient ? reorder(own, plain) : reorder(plain, own);
        if (!before && !after) return false;
        *at = own;
      }
    }
    if (before) add(std::move(*before));
    add(std::move(launch));
    if (after) add(std::move(*after));
    done_[size_t(b.node)] = true;
    for (NodeId n : b.also) done_[size_t(n)] = true;
    for (const PostOp& op : ops) done_[size_t(op.node)] = true;
    program_.keeps_nan &=
        keeps_nan(b.node) && std::all_of(ops.begin(), ops.end(), [&](const PostOp& op) { return keeps_nan(op.node); });
    return true;
  }

  // Whether the library's primitive makes NaN of NaN, as this library does.
  bool keeps_nan(NodeId n) const {
    const ir::Node& p = node(n);
    const std::string_view op = p.op->name;
    if (op == "reduction" || op == "resample") return false;
    if (op != "pointwise") return true;
    const M mode = pointwise_mode(p);
    return mode != M::RELU_FWD && mode != M::MAX && mode != M::MIN;
  }

  static std::string lower_case(std::string s) {
    for (char& c : s) c = char(std::tolower(static_cast<unsigned char>(c)));
    return s;
  }
  std::string mode_text(NodeId n) const { return lower_case(to_string(pointwise_mode(node(n)))); }

  // Takes as much of the chain along as the library does.
  bool build(const Build& b) {
    std::vector<PostOp> ops = b.head;
    if (b.takes_post_ops) {
      const std::vector<PostOp> behind = chain(b.result);
      ops.insert(ops.end(), behind.begin(), behind.end());
    }
    only_reference_ = false;
    for (;; ops.pop_back()) {
      if (!options_.any_weights && try_build(b, ops, false)) return true;
      if (try_build(b, ops, true) || (options_.any_weights && try_build(b, ops, false))) return true;
      if (ops.size() <= b.head.size()) break;
    }
    std::string operands;
    for (const auto* list : {&node(b.node).in, &node(b.node).out})
      for (TensorId id : *list)
        if (id != ir::kNone) operands += (operands.empty() ? "" : ", ") + ir::describe(graph_, tensor(id));
    refuse(Why::Library, b.node,
           fmt::format("oneDNN {} has {} {} for this CPU and {}", lookup().version,
                       only_reference_ ? "only its slow reference loops of" : "no", b.what, operands));
    return false;
  }

  // Makes a launch complete: its scratchpad, what it costs, how it runs.
  void add(Launch launch) {
    const Library& lib = library();
    const MemoryDesc* scratch = lib.primitive_desc_query_md(launch.desc.get(), kQueryScratchpadMd, 0);
    if (const int64_t bytes = scratch ? int64_t(lib.memory_desc_get_size(scratch)) : 0; bytes > 0) {
      scratch_bytes_ = std::max(scratch_bytes_, (bytes + 63) / 64 * 64);
      launch.arguments.push_back({kArgScratchpad, *scratch, {}});
    }
    for (const Argument& a : launch.arguments)
      if (a.index != kArgScratchpad) launch.bytes += double(size_of(a.desc));
    for (NodeId n : launch.nodes) launch.flops += ir::cost(graph_, node(n)).flops;
    program_.launches.push_back(std::move(launch));
  }

  static int64_t size_of(const MemoryDesc& desc) { return int64_t(library().memory_desc_get_size(&desc)); }

  static std::optional<Launch> reorder(const Argument& from, const Argument& to) {
    const Library& lib = library();
    Launch launch;
    launch.name = "reorder";
    launch.reordered_weight = to.place.tensor == ir::kNone ? from.place.tensor : ir::kNone;
    Attributes attributes;
    lib.primitive_attr_create(attributes.put());
    lib.primitive_attr_set_scratchpad_mode(attributes.get(), kScratchpadUser);
    if (lib.reorder_primitive_desc_create(launch.desc.put(), &from.desc, lib.engine, &to.desc, lib.engine,
                                          attributes.get()) != kSuccess)
      return std::nullopt;
    launch.arguments = {{kArgSrc, from.desc, from.place}, {kArgDst, to.desc, to.place}};
    launch.implementation = "reorder";
    return launch;
  }

  // --- ops -------------------------------------------------------------------------------------------------------

  void lower_node(NodeId n) {
    const std::string_view op = node(n).op->name;
    const DataType_t compute = node(n).compute;
    if (compute != DataType_t::FLOAT && compute != DataType_t::HALF && compute != DataType_t::BFLOAT16)
      return refuse(Why::Dtype, n, fmt::format("it computes in {}; oneDNN computes in FLOAT", to_string(compute)));
    for (TensorId id : node(n).in)
      if (id != ir::kNone && !usable_number(id))
        return refuse(Why::Dtype, n, fmt::format("the number \"{}\" is not a FLOAT", tensor(id).name), id);
    if (op == "matmul") matmul(n);
    else if (op == "conv_fprop" || op == "conv_dgrad" || op == "conv_wgrad") convolution(n);
    else if (op == "pointwise") pointwise(n);
    else if (op == "reduction") reduction(n);
    else if (op == "softmax") softmax(n);
    else if (op == "transpose") transpose(n);
    else refuse(Why::Op, n, fmt::format("the engine has no primitive for {}", op));
  }

  Argument argument(int index, TensorId id, const MemoryDesc& desc) { return {index, desc, place(id)}; }

  void matmul(NodeId n) {
    const ir::Node& p = node(n);
    for (size_t port = 2; port < p.in.size(); ++port)
      if (p.in[port] != ir::kNone)
        return refuse(Why::Feature, n, fmt::format("sizes per batch ({})", p.op->inputs[port].name), p.in[port]);
    const auto a = describe(p.in[0]), b = describe(p.in[1]);
    if (!a || !b) return refuse(Why::Stride, n, "an operand's elements overlap", p.in[a ? 1 : 0]);
    const Build build_it{
        .node = n,
        .what = "matmul",
        .arguments = {argument(kArgSrc, p.in[0], *a), argument(kArgWeights, p.in[1], *b)},
        .result = p.out[0],
        .init = [&](OpDesc& d, const MemoryDesc& weights, const MemoryDesc& c,
                    const MemoryDesc* bias) { return library().matmul_desc_init(&d, &*a, &weights, bias, &c); },
        .bias_dim = tensor(p.out[0]).dim.size() - 1,
    };
    build(build_it);
  }

  bool any_layout(const Build& b, TensorId id, MemoryDesc& desc) const {
    if (id == ir::kNone) return false;  // a tensor between nodes has the layout that its maker gave it
    const ir::Tensor& t = tensor(id);
    const bool filter = std::string_view(node(b.node).op->name) != "matmul";
    const Dims dim = filter ? filter_dims(t.dim, ops::convolution_of(graph_, node(b.node))) : t.dim;
    return library().memory_desc_init_by_tag(&desc, int(dim.size()), dim.data(), *data_type(t.type), kFormatAny) ==
           kSuccess;
  }

  // Dims K, C, ... of W, or groups, K, C, ... of a grouped convolution.
  static Dims filter_dims(const Dims& dim, const ops::Convolution& c) {
    Dims d = dim;
    if (c.groups > 1) d[0] /= c.groups, d.insert(d.begin(), c.groups);
    return d;
  }
  std::optional<MemoryDesc> describe_filter(TensorId id, const ops::Convolution& c) const {
    const ir::Tensor& w = tensor(id);
    Dims stride = w.stride;
    if (c.groups > 1) stride.insert(stride.begin(), stride[0] * c.k_per_group());
    return describe(filter_dims(w.dim, c), *data_type(w.type), stride);
  }
  std::optional<MemoryDesc> describe_as(TensorId id, const Build& b) const {
    if (b.result_arg != kArgDiffWeights) return describe(id);
    return describe_filter(id, ops::convolution_of(graph_, node(b.node)));
  }

  void convolution(NodeId n) {
    const ir::Node& p = node(n);
    const ops::Convolution c = ops::convolution_of(graph_, p);
    if (c.flip && volume(c.filter) > 1)
      return refuse(Why::Feature, n, "CONVOLUTION turns the filter around; oneDNN has CROSS_CORRELATION only");
    if (c.rank() > 3) return refuse(Why::Shape, n, fmt::format("{} spatial dims, at most 3 serve", c.rank()));
    Dims dilation = c.dilation;
    for (int64_t& d : dilation) --d;
    const std::string_view op = p.op->name;
    const bool fprop = op == "conv_fprop", wgrad = op == "conv_wgrad";
    const auto first = describe(p.in[0]);
    const auto second = fprop || !wgrad ? describe_filter(p.in[1], c) : describe(p.in[1]);
    if (!first || !second) return refuse(Why::Stride, n, "an operand's elements overlap", p.in[first ? 1 : 0]);
    const Library& lib = library();
    Build b{.node = n, .what = p.op->name, .arguments = {}, .result = p.out[0]};
    if (fprop) {
      b.arguments = {argument(kArgSrc, p.in[0], *first), argument(kArgWeights, p.in[1], *second)};
      b.init = [&](OpDesc& d, const MemoryDesc& w, const MemoryDesc& y, const MemoryDesc* bias) {
        return lib.dilated_convolution_forward_desc_init(&d, kForwardInference, kConvolutionDirect, &*first, &w, bias,
                                                         &y, c.stride.data(), dilation.data(), c.pre.data(),
                                                         c.post.data());
      };
      b.bias_dim = 1;
      b.flat_bias = true;
    } else if (wgrad) {  // DY, X -> DW
      b.arguments = {argument(kArgDiffDst, p.in[0], *first), argument(kArgSrc, p.in[1], *second)};
      b.result_arg = kArgDiffWeights;
      b.takes_post_ops = false;
      b.init = [&](OpDesc& d, const MemoryDesc&, const MemoryDesc& dw, const MemoryDesc*) {
        return lib.dilated_convolution_backward_weights_desc_init(&d, kConvolutionDirect, &*second, &dw, nullptr,
                                                                  &*first, c.stride.data(), dilation.data(),
                                                                  c.pre.data(), c.post.data());
      };
    } else {  // DY, W -> DX
      b.arguments = {argument(kArgDiffDst, p.in[0], *first), argument(kArgWeights, p.in[1], *second)};
      b.result_arg = kArgDiffSrc;
      b.takes_post_ops = false;
      b.init = [&](OpDesc& d, const MemoryDesc& w, const MemoryDesc& dx, const MemoryDesc*) {
        return lib.dilated_convolution_backward_data_desc_init(
            &d, kConvolutionDirect, &dx, &w, &*first, c.stride.data(), dilation.data(), c.pre.data(), c.post.data());
      };
    }
    build(b);
  }

  // The only node that reads a virtual tensor; -1 where there are others, or none.
  NodeId only_consumer(TensorId id) const {
    const auto& all = links_.consumers[size_t(id)];
    return tensor(id).role == ir::Role::Virtual && all.size() == 1 ? all[0] : -1;
  }
  bool is_pointwise(NodeId n, M mode) const {
    return n >= 0 && std::string_view(node(n).op->name) == "pointwise" && pointwise_mode(node(n)) == mode;
  }

  // The gradient of softmax as it is written in nodes: with Y the softmax and DY its gradient, the product DY * Y here,
  // its sum over one dim, DY minus that, times Y.
  bool softmax_backward(NodeId n) {
    const NodeId sum = only_consumer(node(n).out[0]);
    if (!is_pointwise(n, M::MUL) || sum < 0 || std::string_view(node(sum).op->name) != "reduction") return false;
    if (node(sum).attr_enum("mode", ReductionMode_t::NOT_SET) != ReductionMode_t::ADD) return false;
    const Dims& dim = tensor(node(n).out[0]).dim;
    const Dims& summed = tensor(node(sum).out[0]).dim;
    int axis = -1;
    for (size_t d = 0; d < dim.size(); ++d)
      if (dim[d] != summed[d]) {
        if (axis >= 0) return false;
        axis = int(d);
      }
    const NodeId sub = only_consumer(node(sum).out[0]);
    if (axis < 0 || !is_pointwise(sub, M::SUB) || node(sub).in[1] != node(sum).out[0]) return false;
    const TensorId dy = node(sub).in[0], y = node(n).in[node(n).in[0] == dy ? 1 : 0];
    const NodeId mul = only_consumer(node(sub).out[0]);
    if (!is_pointwise(mul, M::MUL) || (node(n).in[0] != dy && node(n).in[1] != dy)) return false;
    if (node(mul).in[node(mul).in[0] == node(sub).out[0] ? 1 : 0] != y) return false;
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
                      .takes_post_ops = false,
                      .forward = forward_desc.get(),
                      .also = {sum, sub, mul}},
                     {}, false);
  }

  void pointwise(NodeId n) {
    const ir::Node& p = node(n);
    if (softmax_backward(n)) return;
    const M mode = pointwise_mode(p);
    const Dims& dim = tensor(p.out[0]).dim;
    const auto binary = binary_algorithm(mode);
    const auto unary = eltwise(mode, pointwise_params(p));
    if (!binary && !unary && mode != M::IDENTITY)
      return refuse(Why::Op, n, fmt::format("the engine has no primitive for {}", to_string(mode)));
    if (unary && !unary->close && !options_.approximate)
      return refuse(Why::Library, n, fmt::format("oneDNN's {} is less exact than this library's bound", mode_text(n)));
    std::array<TensorId, 2> in = {p.in[0], binary ? p.in[1] : ir::kNone};
    if (binary && tensor(in[0]).dim != dim && commutes(*binary)) std::swap(in[0], in[1]);
    const auto x = describe(in[0], dim.size());
    if (!x) return refuse(Why::Stride, n, "an operand's elements overlap", in[0]);
    if (const auto y = describe(p.out[0]); unary && y && library().memory_desc_equal(&*x, &*y)) {
      build({.node = n,
             .what = "eltwise",
             .arguments = {argument(kArgSrc, in[0], *x)},
             .result = p.out[0],
             .init =
                 [&](OpDesc& d, const MemoryDesc&, const MemoryDesc&, const MemoryDesc*) {
                   return library().eltwise_forward_desc_init(&d, kForwardInference, unary->algorithm, &*x,
                                                              unary->alpha, unary->beta);
                 },
             .elementwise = true});
      return;
    }
    // One operand, and another type or layout of the result: times 1, and then the function.
    Dims ones(dim.size(), 1);
    const auto other = binary ? describe(in[1], dim.size()) : describe(ones, kF32, ones);
    if (!other) return refuse(Why::Stride, n, "an operand's elements overlap", in[1]);
    Argument second{kArgSrc1, *other, {}};
    second.place = binary ? place(in[1]) : Place{ir::kNone, -1, constant(1)};
    Build b{.node = n,
            .what = "binary",
            .arguments = {argument(kArgSrc, in[0], *x), second},
            .result = p.out[0],
            .init =
                [&](OpDesc& d, const MemoryDesc&, const MemoryDesc& z, const MemoryDesc*) {
                  return library().binary_desc_init(&d, binary ? *binary : kBinaryMul, &*x, &*other, &z);
                },
            .elementwise = true};
    if (unary) b.head = {{n, ir::kNone, unary->algorithm, unary->alpha, unary->beta, p.out[0]}};
    build(b);
  }

  void reduction(NodeId n) {
    const ir::Node& p = node(n);
    const ReductionMode_t mode = p.attr_enum("mode", ReductionMode_t::NOT_SET);
    TensorId from = p.in[0];
    const auto algorithm = reduction_algorithm(mode);
    if (!algorithm)
      return refuse(Why::Op, n, fmt::format("the engine has no primitive for the reduction {}", to_string(mode)));
    const auto x = describe(from);
    if (!x) return refuse(Why::Stride, n, "an operand's elements overlap", from);
    build({.node = n,
           .what = "reduction",
           .arguments = {argument(kArgSrc, from, *x)},
           .result = p.out[0],
           .init = [&](OpDesc& d, const MemoryDesc&, const MemoryDesc& y, const MemoryDesc*) {
             return library().reduction_desc_init(&d, *algorithm, &*x, &y, 0, 0);
           }});
  }

  // Of one virtual tensor to another it is the same memory, seen with other strides.
  void transpose(NodeId n) {
    const ir::Node& p = node(n);
    const ir::Tensor& x = tensor(p.in[0]);
    ir::Tensor& y = graph_.tensors[size_t(p.out[0])];
    if (y.role != ir::Role::Virtual || x.type != y.type)
      return refuse(Why::Op, n, "a transposed copy; only views of virtual tensors are taken");
    const Dims order = p.attr<Dims>("permutation");
    for (size_t d = 0; d < order.size(); ++d) y.stride[d] = x.stride[size_t(order[d])];
    place_[size_t(p.out[0])] = place(p.in[0]);
    done_[size_t(n)] = true;
  }

  void softmax(NodeId n) {
    const ir::Node& p = node(n);
    if (!options_.approximate)
      return refuse(Why::Library, n, "oneDNN's softmax makes NaN of a row that is -inf alone, and zeros are right");
    if (p.out.size() > 1 && p.out[1] != ir::kNone)
      return refuse(Why::Feature, n, "oneDNN's softmax gives no statistics", p.out[1]);
    const auto x = describe(p.in[0]);
    if (!x) return refuse(Why::Stride, n, "an operand's elements overlap", p.in[0]);
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

  ir::Graph graph_;  // a copy: transposed virtual tensors get the strides of the view
  const LowerOptions& options_;
  const ir::Links links_;
  std::vector<bool> done_;    // by node
  std::vector<Place> place_;  // by tensor
  int64_t scratch_bytes_ = 0;
  bool only_reference_ = false;  // of what was tried last
  Program program_;
};

}  // namespace

Program lower(const ir::Graph& graph, const LowerOptions& options) { return Lowering(graph, options).run(); }

}  // namespace tilewright::onednn
