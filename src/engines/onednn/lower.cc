#include "engines/onednn/lower.h"

#include <algorithm>

#include "engines/onednn/lowering.h"
#include "ops/pointwise.h"

namespace tilewright::onednn {

using ir::NodeId;
using ir::TensorId;

namespace {

bool is_number(const ir::Tensor& t) { return t.role == ir::Role::Scalar || t.role == ir::Role::Constant; }
int64_t size_of(const MemoryDesc& desc) { return int64_t(library().memory_desc_get_size(&desc)); }
int64_t rounded_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

std::optional<Launch> make_reorder(const Argument& from, const Argument& to) {
  const Library& lib = library();
  Launch launch;
  launch.name = launch.implementation = "reorder";
  Attributes attributes;
  if (lib.primitive_attr_create(attributes.put()) != kSuccess ||
      lib.primitive_attr_set_scratchpad_mode(attributes.get(), kScratchpadUser) != kSuccess ||
      lib.reorder_primitive_desc_create(launch.desc.put(), &from.desc, lib.engine, &to.desc, lib.engine,
                                        attributes.get()) != kSuccess)
    return std::nullopt;
  launch.arguments = {{kArgSrc, from.desc, from.place}, {kArgDst, to.desc, to.place}};
  return launch;
}

}  // namespace

std::optional<DataType> data_type(DataType_t type) {
  switch (type) {
    case DataType_t::FLOAT: return kF32;
    case DataType_t::HALF: return kF16;
    case DataType_t::BFLOAT16: return kBf16;
    case DataType_t::INT8: return kS8;
    case DataType_t::UINT8: return kU8;
    case DataType_t::INT32: return kS32;
    default: return std::nullopt;
  }
}

std::optional<MemoryDesc> describe(const Dims& dim, DataType type, Dims stride) {
  // The stride of a dim of one element says nothing; the library wants a plausible one.
  for (size_t d = dim.size(); d-- > 0;)
    if (dim[d] == 1) stride[d] = d + 1 < dim.size() ? stride[d + 1] * dim[d + 1] : 1;
  MemoryDesc desc;
  if (library().memory_desc_init_by_strides(&desc, int(dim.size()), dim.data(), type, stride.data()) != kSuccess)
    return std::nullopt;
  return desc;
}

Lowering::Lowering(const ir::Graph& graph, const LowerOptions& options)
    : graph_(graph), options_(options), links_(links(graph)), done_(graph.nodes.size()), place_(graph.tensors.size()) {}

Program Lowering::run() {
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

void Lowering::refuse(Why why, NodeId n, std::string text, TensorId t) {
  program_.reasons.push_back({why, n, t, std::move(text)});
}

void Lowering::check_tensor(TensorId id) {
  const ir::Tensor& t = tensor(id);
  const auto no = [&](Why why, const std::string& text) {
    refuse(why, -1, fmt::format("tensor \"{}\" {}", t.name, text), id);
  };
  if (!is_number(t) && !data_type(t.type))
    no(Why::Dtype, fmt::format("is {}; taken are FLOAT, HALF, BFLOAT16 and some integers", to_string(t.type)));
  else if (volume(t.dim) == 0) no(Why::Shape, "is empty");
  else if (t.dim.size() > size_t(kMaxDims))
    no(Why::Limit, fmt::format("has {} dims; at most {} serve", t.dim.size(), kMaxDims));
  else if (t.ragged_offset != ir::kNone) no(Why::Feature, "is ragged");
}

// Products of bytes, summed exactly: what the library does with integers that has a meaning here.
bool Lowering::multiplies_bytes(NodeId n) const {
  const ir::Node& p = node(n);
  const std::string_view op = p.op->name;
  const auto byte = [&](TensorId id) {
    return tensor(id).type == DataType_t::INT8 || tensor(id).type == DataType_t::UINT8;
  };
  const DataType_t out = tensor(p.out[0]).type;
  return (op == "matmul" || op == "conv_fprop") && byte(p.in[0]) && tensor(p.in[1]).type == DataType_t::INT8 &&
         (out == DataType_t::INT32 || out == DataType_t::FLOAT);
}

// Says what stands in the way of a node's types.
bool Lowering::check_types(NodeId n) {
  const DataType_t compute = node(n).compute;
  if (multiplies_bytes(n)) {
    // Without such instructions the library adds products of bytes in 16 bits, which overflow.
    static const bool exact = [] {
      const std::vector<std::string> f = cpu_info().features;
      return std::find(f.begin(), f.end(), "avx512_vnni") != f.end();
    }();
    if (!exact) refuse(Why::Arch, n, "products of INT8 need a CPU with avx512_vnni");
    else if (compute != DataType_t::INT32 && compute != DataType_t::FLOAT)
      refuse(Why::Dtype, n, fmt::format("it computes in {}; INT32 or FLOAT serve", to_string(compute)));
    return program_.reasons.empty();
  }
  if (compute != DataType_t::FLOAT && compute != DataType_t::HALF && compute != DataType_t::BFLOAT16)
    refuse(Why::Dtype, n, fmt::format("it computes in {}; oneDNN computes in FLOAT", to_string(compute)));
  for (const auto* list : {&node(n).in, &node(n).out})
    for (TensorId id : *list)
      if (id != ir::kNone && !is_number(tensor(id)) && is_integer_type(tensor(id).type))
        refuse(
            Why::Dtype, n,
            fmt::format("\"{}\" is {}; only products of bytes are taken", tensor(id).name, to_string(tensor(id).type)),
            id);
  return program_.reasons.empty();
}

void Lowering::lower_node(NodeId n) {
  const std::string_view op = node(n).op->name;
  if (!check_types(n)) return;
  for (TensorId id : node(n).in)
    if (id != ir::kNone && !usable_number(id))
      return refuse(Why::Dtype, n, fmt::format("the number \"{}\" is not a FLOAT", tensor(id).name), id);
  if (op == "matmul") matmul(n);
  else if (op == "conv_fprop" || op == "conv_dgrad" || op == "conv_wgrad") convolution(n);
  else if (op == "pointwise") pointwise(n);
  else if (op == "reduction") reduction(n);
  else if (op == "softmax") softmax(n);
  else if (op == "layernorm") layernorm(n);
  else if (op == "resample") pooling(n);
  else if (op == "transpose") transpose(n);
  else refuse(Why::Op, n, fmt::format("the engine has no primitive for {}", op));
}

// --- memory --------------------------------------------------------------------------------------------------------

std::optional<MemoryDesc> Lowering::describe(TensorId id, size_t rank) const {
  const ir::Tensor& t = tensor(id);
  Dims dim = t.dim, stride = t.stride;
  while (dim.size() < rank) dim.insert(dim.begin(), 1), stride.insert(stride.begin(), 0);
  return onednn::describe(dim, is_number(t) ? kF32 : *data_type(t.type), stride);
}

int64_t Lowering::reserve(int64_t bytes) {
  const int64_t offset = program_.workspace_bytes;
  program_.workspace_bytes += rounded_up(bytes);
  return offset;
}

int Lowering::constant(double value) {
  program_.constants.push_back(float(value));
  return int(program_.constants.size()) - 1;
}

Place Lowering::place(TensorId id) {
  Place& p = place_[size_t(id)];
  if (p.tensor != ir::kNone || p.offset >= 0 || p.constant >= 0) return p;
  const ir::Tensor& t = tensor(id);
  if (t.bound_by_caller()) p.tensor = id;
  else if (t.value) p.constant = constant(ir::scalar_value(*t.value));
  else p.offset = reserve(t.storage_bytes());
  return p;
}

Argument Lowering::scratch(int index, const MemoryDesc& desc) {
  Place place;
  place.offset = reserve(size_of(desc));
  return {index, desc, place};
}

// --- pointwise nodes behind a primitive ------------------------------------------------------------------------------

bool Lowering::available(TensorId id) const {
  const NodeId producer = links_.producer[size_t(id)];
  return producer < 0 || done_[size_t(producer)];
}

// An operand is memory of FLOAT: a number that is stored must fit one, and the caller's is read where it lies.
bool Lowering::usable_number(TensorId id) const {
  const ir::Tensor& t = tensor(id);
  if (!is_number(t)) return true;
  if (t.value) return double(float(ir::scalar_value(*t.value))) == ir::scalar_value(*t.value);
  return t.type == DataType_t::FLOAT;
}

std::optional<PostOp> Lowering::post_op(NodeId n, TensorId value) const {
  const ir::Node& p = node(n);
  if (std::string_view(p.op->name) != "pointwise" || tensor(p.out[0]).dim != tensor(value).dim ||
      is_integer_type(tensor(p.out[0]).type))
    return std::nullopt;
  if (const auto e = eltwise(p); e && (e->close || options_.approximate))
    return PostOp{n, ir::kNone, e->algorithm, e->alpha, e->beta, p.out[0]};
  const auto binary = binary_algorithm(pointwise_mode(p));
  if (!binary || p.in[0] == p.in[1]) return std::nullopt;
  const bool first = p.in[0] == value;
  if (!first && !commutes(*binary)) return std::nullopt;
  const TensorId other = p.in[first ? 1 : 0];
  if (!available(other) || !usable_number(other) || (!is_number(tensor(other)) && is_integer_type(tensor(other).type)))
    return std::nullopt;
  return PostOp{n, other, *binary, 0, 0, p.out[0]};
}

// The pointwise nodes that follow a value which nothing else needs.
std::vector<PostOp> Lowering::chain(TensorId value) const {
  std::vector<PostOp> list;
  while (options_.post_ops && !is_integer_type(tensor(value).type)) {
    const NodeId next = only_consumer(value);
    const auto op = next < 0 ? std::nullopt : post_op(next, value);
    if (!op) break;
    list.push_back(*op);
    value = op->result;
  }
  return list;
}

// "+ a vector along one dim", as the primitive's own bias, where it is that.
std::optional<MemoryDesc> Lowering::bias(const Build& b, const PostOp& op) const {
  if (!b.bias_dim || op.algorithm != kBinaryAdd || op.operand == ir::kNone) return std::nullopt;
  const ir::Tensor& t = tensor(op.operand);
  if (is_number(t) || t.type != DataType_t::FLOAT) return std::nullopt;
  const Dims& dim = tensor(op.result).dim;
  const size_t channel = *b.bias_dim, skip = dim.size() - t.dim.size();
  Dims vector(dim.size(), 1);
  vector[channel] = dim[channel];
  for (size_t d = 0; d < dim.size(); ++d)
    if ((d < skip ? 1 : t.dim[d - skip]) != vector[d]) return std::nullopt;
  if (dim[channel] > 1 && t.stride[channel - skip] != 1) return std::nullopt;
  if (b.flat_bias) return onednn::describe({dim[channel]}, kF32, {1});
  return onednn::describe(vector, kF32, row_major_strides(vector));
}

// Appends post-ops with their operands, the bias excepted.
bool Lowering::append(const Build& b, const std::vector<PostOp>& ops, const std::optional<MemoryDesc>& bias,
                      Launch& launch, Handle post) {
  const Library& lib = library();
  int position = 0;
  for (const PostOp& op : ops) {
    if (op.node != b.node) launch.nodes.push_back(op.node);
    const bool is_bias = bias && &op == &ops[0];
    if (is_bias) launch.name += "+bias";
    else if (op.node != b.node || b.elementwise) launch.name += "+" + mode_text(op.node);
    if (is_bias) {
      launch.arguments.push_back(argument(kArgBias, op.operand, *bias));
      continue;
    }
    ++position;
    if (op.operand == ir::kNone) {
      if (lib.post_ops_append_eltwise(post, 1, op.algorithm, op.alpha, op.beta) != kSuccess) return false;
      continue;
    }
    const auto operand = describe(op.operand, tensor(op.result).dim.size());
    if (!operand || lib.post_ops_append_binary(post, op.algorithm, &*operand) != kSuccess) return false;
    launch.arguments.push_back(argument(kArgPostOp * position | kArgSrc1, op.operand, *operand));
  }
  return true;
}

// --- making primitives -----------------------------------------------------------------------------------------------

std::string Lowering::mode_text(NodeId n) const {
  std::string text = to_string(pointwise_mode(node(n)));
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Whether the library's primitive makes NaN of NaN, as this library does.
bool Lowering::keeps_nan(NodeId n) const {
  const ir::Node& p = node(n);
  const std::string_view op = p.op->name;
  if (op == "reduction") {
    const auto mode = p.attr_enum("mode", ReductionMode_t::NOT_SET);
    return mode != ReductionMode_t::MAX && mode != ReductionMode_t::MIN;
  }
  if (op == "resample") return p.attr_enum("resample_mode", ResampleMode_t::NOT_SET) != ResampleMode_t::MAXPOOL;
  if (op != "pointwise") return true;
  const PointwiseMode_t mode = pointwise_mode(p);
  return mode != PointwiseMode_t::RELU_FWD && mode != PointwiseMode_t::MAX && mode != PointwiseMode_t::MIN;
}

bool Lowering::build(const Build& b) {
  std::vector<PostOp> ops = b.head;
  if (b.takes_post_ops) {
    const std::vector<PostOp> behind = chain(b.result);
    ops.insert(ops.end(), behind.begin(), behind.end());
  }
  only_reference_ = false;
  for (;; ops.pop_back()) {
    if (try_build(b, ops, options_.any_weights) || try_build(b, ops, !options_.any_weights)) return true;
    if (ops.size() <= b.head.size()) break;
  }
  std::vector<std::string> operands;
  for (const auto* list : {&node(b.node).in, &node(b.node).out})
    for (TensorId id : *list)
      if (id != ir::kNone) operands.push_back(ir::describe(graph_, tensor(id)));
  refuse(Why::Library, b.node,
         fmt::format("oneDNN {} has {} {} for this CPU and {}", lookup().version,
                     only_reference_ ? "only slow reference loops of" : "no", b.what, fmt::join(operands, ", ")));
  return false;
}

// `open`: the library chooses the layout of the weights or of their gradient, and a reorder brings the tensor there, or
// back.
bool Lowering::try_build(const Build& b, const std::vector<PostOp>& ops, bool open) {
  const TensorId result = ops.empty() ? b.result : ops.back().result;
  const auto result_desc = b.result_desc ? b.result_desc : describe(result);
  if (!result_desc) return false;
  Launch launch;
  launch.name = b.what;
  launch.arguments = b.arguments;
  launch.nodes = b.also;
  launch.nodes.insert(launch.nodes.begin(), b.node);
  launch.elementwise = b.elementwise;

  PostOps post;
  Attributes attributes;
  const Library& lib = library();
  if (lib.post_ops_create(post.put()) != kSuccess || lib.primitive_attr_create(attributes.put()) != kSuccess)
    return false;
  const auto with_bias = ops.empty() ? std::nullopt : bias(b, ops[0]);
  if (!append(b, ops, with_bias, launch, post.get()) ||
      lib.primitive_attr_set_post_ops(attributes.get(), post.get()) != kSuccess ||
      lib.primitive_attr_set_scratchpad_mode(attributes.get(), kScratchpadUser) != kSuccess)
    return false;
  launch.arguments.push_back(argument(b.result_arg, result, *result_desc));

  const auto weights_at = std::find_if(launch.arguments.begin(), launch.arguments.end(), [](const Argument& a) {
    return a.index == kArgWeights || a.index == kArgDiffWeights;
  });
  const bool has_weights = weights_at != launch.arguments.end();
  MemoryDesc weights = has_weights ? weights_at->desc : MemoryDesc{};
  if (open && !(has_weights && any_layout(b, weights_at->place.tensor, weights))) return false;
  OpDesc desc;
  const MemoryDesc& made = b.result_arg == kArgDiffWeights ? weights : *result_desc;
  if (b.init(desc, weights, made, with_bias ? &*with_bias : nullptr) != kSuccess ||
      !create(launch, desc, attributes.get(), b.forward))
    return false;
  std::optional<Launch> before, after;
  if (open && !own_layout(launch, *weights_at, before, after)) return false;
  if (before) add(std::move(*before));
  add(std::move(launch));
  if (after) add(std::move(*after));

  std::vector<NodeId> nodes = b.also;
  nodes.push_back(b.node);
  for (const PostOp& op : ops) nodes.push_back(op.node);
  for (NodeId n : nodes) done_[size_t(n)] = true, program_.keeps_nan &= keeps_nan(n);
  return true;
}

bool Lowering::create(Launch& launch, const OpDesc& desc, Handle attributes, Handle forward) {
  const Library& lib = library();
  if (lib.primitive_desc_create(launch.desc.put(), &desc, attributes, lib.engine, forward) != kSuccess) return false;
  const char* implementation = nullptr;
  lib.primitive_desc_query(launch.desc.get(), kQueryImplInfo, 0, &implementation);
  launch.implementation = implementation ? implementation : "";
  // The library's plain loops take a thousand times longer than anyone else's.
  const bool reference = launch.implementation.rfind("ref", 0) == 0;
  only_reference_ |= reference;
  return !reference;
}

// Gives the weights, or their gradient, the layout that the primitive wants, with the reorder that it takes.
bool Lowering::own_layout(Launch& launch, Argument& weights, std::optional<Launch>& before,
                          std::optional<Launch>& after) {
  const Library& lib = library();
  const bool gradient = weights.index == kArgDiffWeights;
  const MemoryDesc* wanted =
      lib.primitive_desc_query_md(launch.desc.get(), gradient ? kQueryDiffWeightsMd : kQueryWeightsMd, 0);
  if (!wanted) return false;
  if (lib.memory_desc_equal(wanted, &weights.desc)) return true;
  Argument own = scratch(weights.index, *wanted);
  if (!gradient && weights.place.tensor != ir::kNone && tensor(weights.place.tensor).constant) {
    own.place.kept = int(program_.kept.size());
    program_.kept.push_back({weights.place.tensor, size_of(*wanted)});
  }
  auto& reorder = gradient ? after : before;
  reorder = gradient ? make_reorder(own, weights) : make_reorder(weights, own);
  if (reorder) reorder->makes_kept = own.place.kept >= 0;
  weights = own;
  return reorder.has_value();
}

// Makes a launch complete: its scratchpad, and what it costs.
void Lowering::add(Launch launch) {
  const MemoryDesc* scratchpad = library().primitive_desc_query_md(launch.desc.get(), kQueryScratchpadMd, 0);
  for (const Argument& a : launch.arguments) launch.bytes += double(size_of(a.desc));
  for (NodeId n : launch.nodes) launch.flops += ir::cost(graph_, node(n)).flops;
  if (const int64_t bytes = scratchpad ? size_of(*scratchpad) : 0; bytes > 0) {
    scratch_bytes_ = std::max(scratch_bytes_, rounded_up(bytes));
    launch.arguments.push_back({kArgScratchpad, *scratchpad, {}});
  }
  program_.launches.push_back(std::move(launch));
}

Program lower(const ir::Graph& graph, const LowerOptions& options) { return Lowering(graph, options).run(); }

}  // namespace tilewright::onednn
