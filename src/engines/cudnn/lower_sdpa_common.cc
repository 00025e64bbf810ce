#include <cstring>
#include <limits>

#include "engines/cudnn/lower_sdpa.h"

namespace tilewright::cudnn {

using ir::TensorId;
using P = PointwiseMode_t;
using namespace ops;

AttentionPattern::AttentionPattern(Lowering& lowering, ir::NodeId node)
    : l(lowering),
      id(node),
      n(lowering.node(node)),
      o(attention_options(lowering.graph(), n)),
      type(lowering.graph().tensor(n.in[kQ]).type) {}

void AttentionPattern::refuse(Why why, const std::string& text, TensorId about) {
  l.refuse(why, fmt::format("{}: {}", node_label(n), text), about);
}

// --- what is taken ---------------------------------------------------------------------------------------------------

bool AttentionPattern::takes_types() {
  if (n.compute != DataType_t::FLOAT)
    refuse(Why::Dtype, fmt::format("it computes in {}; cuDNN's attention in FLOAT", to_string(n.compute)));
  for (size_t port : {size_t(kQ), size_t(kK), size_t(kV)}) {
    const ir::Tensor& t = tensor(port);
    const char* name = n.op->inputs[port].name;
    if (t.type != DataType_t::HALF && t.type != DataType_t::BFLOAT16)
      refuse(Why::Dtype, fmt::format("{} \"{}\" is {}; HALF and BFLOAT16 serve", name, t.name, to_string(t.type)),
             n.in[port]);
    else if (t.type != type)
      refuse(Why::Dtype,
             fmt::format("{} \"{}\" is {} and Q {}; they must agree", name, t.name, to_string(t.type), to_string(type)),
             n.in[port]);
    if (t.dim[3] % 8 != 0)
      refuse(Why::Shape, fmt::format("{} \"{}\" has head size {}; multiples of 8 serve", name, t.name, t.dim[3]),
             n.in[port]);
    if (view(port).stride[3] != 1)
      refuse(Why::Stride,
             fmt::format("{} \"{}\" has stride {} in its last dim; 1 serves", name, t.name, view(port).stride[3]),
             n.in[port]);
  }
  return l.ok();
}

bool AttentionPattern::takes_bounds() {
  const bool dropout = o.philox || has(kDropoutMask) || has(kDropoutScale);
  if (o.bottom_right && o.right && (has(kBias) || o.alibi || dropout))
    refuse(Why::Feature,
           fmt::format("a bottom-right aligned right bound of {} is not served together with {}", *o.right,
                       has(kBias) ? "a bias"
                       : o.alibi  ? "alibi"
                                  : "dropout"));
  const bool more_rows = o.sq > o.skv && !o.padding;
  if (more_rows && o.bottom_right && o.right)
    refuse(Why::Shape, fmt::format("a bottom-right aligned right bound with more queries than keys ({} and {}) needs "
                                   "the padding mask",
                                   o.sq, o.skv));
  if (more_rows && o.left)
    refuse(Why::Shape, fmt::format("a left bound of {} with more queries than keys ({} and {}) needs the padding mask",
                                   *o.left, o.sq, o.skv));
  if (l.version() == 91400 && o.left && !o.right && o.skv > 1024)
    refuse(Why::Library, fmt::format("cuDNN 9.14.0 gives wrong results with a left bound alone over {} keys", o.skv));
  return l.ok();
}

bool AttentionPattern::takes() {
  if (l.version() < 90600)
    refuse(Why::Library, fmt::format("attention needs cuDNN 9.6 or newer, not {}", version_text(l.version())));
  if (l.version() == 91000 || l.version() == 91001)
    refuse(Why::Library, fmt::format("cuDNN {} gives wrong results of attention", version_text(l.version())));
  if (l.nodes().size() > 1)
    refuse(Why::Fusion, fmt::format("cuDNN fuses nothing with it; it came with {} other nodes", l.nodes().size() - 1));
  if (!l.ok() || !takes_types() || !takes_bounds()) return false;
  if (o.padding) lengths_q_ = lengths(kSeqLenQ), lengths_kv_ = lengths(kSeqLenKv);
  return l.ok();
}

// --- operands --------------------------------------------------------------------------------------------------------

RawDescriptor AttentionPattern::out(size_t port) {
  if (port >= n.out.size() || n.out[port] == ir::kNone) return nullptr;
  const TensorId t = n.out[port];
  if (l.graph().tensor(t).role == ir::Role::Virtual) {
    bool read = false;
    for (const ir::Node& other : l.graph().nodes)
      for (TensorId in : other.in) read = read || in == t;
    if (!read) return nullptr;
  }
  return l.tensor(t);
}

View AttentionPattern::view(size_t port) const {
  const std::optional<Lowering::Part> place = l.memory(n.in[port]);
  return place ? place->view : tensor(port).view();
}

RawDescriptor AttentionPattern::seen_as(size_t port, const View& v) {
  const std::optional<Lowering::Part> place = l.memory(n.in[port]);
  return place ? l.part(place->root, place->offset, v) : l.part(n.in[port], 0, v);
}

RawDescriptor AttentionPattern::transposed(size_t port) {
  View v = view(port);
  std::swap(v.dim[2], v.dim[3]), std::swap(v.stride[2], v.stride[3]);
  return seen_as(port, v);
}

RawDescriptor AttentionPattern::scale() {
  if (!scale_) scale_ = has(kAttnScale) ? in(kAttnScale) : o.scale ? number(*o.scale) : nullptr;
  return scale_;
}

RawDescriptor AttentionPattern::lengths(size_t port) {
  const ir::Tensor& t = tensor(port);
  if (t.type != DataType_t::INT32) {
    refuse(Why::Dtype, fmt::format("{} \"{}\" is {}; INT32 serves", n.op->inputs[port].name, t.name, to_string(t.type)),
           n.in[port]);
    return nullptr;
  }
  const Dims want = {o.b, 1, 1, 1};
  if (t.dim == want) return l.tensor(n.in[port]);
  int64_t step = 1, long_dims = 0;
  for (size_t d = 0; d < t.dim.size(); ++d)
    if (t.dim[d] > 1) step = view(port).stride[d], ++long_dims;
  if (long_dims <= 1) return seen_as(port, {want, {step, 1, 1, 1}});
  refuse(Why::Shape,
         fmt::format("{} \"{}\" is {}; {} serves", n.op->inputs[port].name, t.name, tilewright::to_text(t.dim),
                     tilewright::to_text(want)),
         n.in[port]);
  return nullptr;
}

void AttentionPattern::give_full_lengths() {
  const auto full = [&](int64_t length) {
    const std::vector<int32_t> values(size_t(o.b), int32_t(length));
    std::vector<uint8_t> bytes(values.size() * sizeof values[0]);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return l.workspace(DataType_t::INT32, {o.b, 1, 1, 1}, {1, 1, 1, 1}, false, std::move(bytes));
  };
  lengths_q_ = full(o.sq), lengths_kv_ = full(o.skv);
}

// --- operations ------------------------------------------------------------------------------------------------------

RawDescriptor AttentionPattern::pointwise(P mode, RawDescriptor x, RawDescriptor b, RawDescriptor t, RawDescriptor y) {
  if (!y) y = scores();
  add_pointwise(l, mode, x, b, y, DataType_t::FLOAT, nullptr, t);
  return y;
}

void AttentionPattern::matmul(RawDescriptor a, RawDescriptor b, RawDescriptor c, Sizes sizes) {
  Descriptor matmul(Kind::MATMUL);
  matmul.type(Attr::MATMUL_COMP_TYPE, DataType_t::FLOAT);
  Descriptor op(Kind::OPERATION_MATMUL);
  op.descriptor(Attr::OPERATION_MATMUL_ADESC, a)
      .descriptor(Attr::OPERATION_MATMUL_BDESC, b)
      .descriptor(Attr::OPERATION_MATMUL_CDESC, c)
      .descriptor(Attr::OPERATION_MATMUL_DESC, l.keep(std::move(matmul)));
  if (sizes.m) op.descriptor(Attr::OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, sizes.m);
  if (sizes.n) op.descriptor(Attr::OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, sizes.n);
  if (sizes.k) op.descriptor(Attr::OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, sizes.k);
  l.operation(std::move(op));
}

RawDescriptor AttentionPattern::index(RawDescriptor s, int64_t axis, DataType_t compute) {
  ir::Node attributes;
  attributes.attrs["axis"] = axis;
  const RawDescriptor y = scores(DataType_t::INT32);
  add_pointwise(l, P::GEN_INDEX, s, nullptr, y, compute, &attributes);
  return y;
}

RawDescriptor AttentionPattern::on_indices(P mode, RawDescriptor a, RawDescriptor b, DataType_t t) {
  const RawDescriptor y = scores(t);
  add_pointwise(l, mode, a, b, y, t);
  return y;
}

RawDescriptor AttentionPattern::keep_where(RawDescriptor s, RawDescriptor mask) {
  return pointwise(P::BINARY_SELECT, s, number(-std::numeric_limits<double>::infinity()), mask);
}

RawDescriptor AttentionPattern::biased_scores(RawDescriptor transposed_k) {
  RawDescriptor s = scores();
  matmul(in(kQ), transposed_k, s, {lengths_q_, lengths_kv_});
  if (scale()) s = pointwise(P::MUL, s, scale());
  if (has(kBias)) s = pointwise(P::ADD, s, in(kBias));
  return o.alibi ? with_alibi(s) : s;
}

RawDescriptor AttentionPattern::with_alibi(RawDescriptor s) {
  std::vector<uint8_t> slopes(size_t(o.hq) * sizeof(float));
  for (int64_t h = 0; h < o.hq; ++h) store_element(slopes.data(), DataType_t::FLOAT, h, alibi_slope(h, o.hq));
  const RawDescriptor row = index(s, 2, DataType_t::INT32), key = index(s, 3, DataType_t::INT32);
  const RawDescriptor distance = on_indices(P::SUB, key, row, DataType_t::INT32);
  const RawDescriptor slope =
      l.workspace(DataType_t::FLOAT, {1, o.hq, 1, 1}, {o.hq, 1, 1, 1}, false, std::move(slopes));
  return pointwise(P::ADD, s, pointwise(P::MUL, distance, slope));
}

RawDescriptor AttentionPattern::padded(RawDescriptor s) {
  if (!lengths_q_) return s;
  const RawDescriptor row = index(s, 2, DataType_t::INT32), key = index(s, 3, DataType_t::INT32);
  const RawDescriptor row_in = on_indices(P::CMP_LT, row, lengths_q_, DataType_t::BOOLEAN);
  const RawDescriptor key_in = on_indices(P::CMP_LT, key, lengths_kv_, DataType_t::BOOLEAN);
  return keep_where(s, on_indices(P::LOGICAL_AND, row_in, key_in, DataType_t::BOOLEAN));
}

RawDescriptor AttentionPattern::banded(RawDescriptor s) {
  if (o.right) s = within_right_bound(s);
  return o.left ? within_left_bound(s) : s;
}

// j <= i + right, aligned at the bottom: + keys - queries.
RawDescriptor AttentionPattern::within_right_bound(RawDescriptor s) {
  RawDescriptor row = index(s, 2, DataType_t::FLOAT);
  const RawDescriptor key = index(s, 3, DataType_t::FLOAT);
  if (o.bottom_right) {
    row = on_indices(P::ADD, row, lengths_kv_ ? lengths_kv_ : number(double(o.skv), DataType_t::INT32),
                     DataType_t::INT32);
    row = on_indices(P::SUB, row, lengths_q_ ? lengths_q_ : number(double(o.sq), DataType_t::INT32), DataType_t::INT32);
  }
  if (*o.right != 0) row = on_indices(P::ADD, row, number(double(*o.right), DataType_t::INT32), DataType_t::INT32);
  return keep_where(s, on_indices(P::CMP_GE, row, key, DataType_t::BOOLEAN));
}

// j + left > i, aligned at the bottom: - keys + queries. The bound is a FLOAT unless lengths take part.
RawDescriptor AttentionPattern::within_left_bound(RawDescriptor s) {
  const RawDescriptor row = index(s, 2, DataType_t::FLOAT);
  RawDescriptor key = index(s, 3, DataType_t::FLOAT);
  if (o.bottom_right && lengths_q_) {
    key = on_indices(P::ADD, key, number(double(*o.left), DataType_t::INT32), DataType_t::INT32);
    key = on_indices(P::SUB, key, lengths_kv_, DataType_t::INT32);
    key = on_indices(P::ADD, key, lengths_q_, DataType_t::INT32);
  } else {
    const int64_t bound = *o.left + (o.bottom_right ? o.sq - o.skv : 0);
    key = on_indices(P::ADD, key, number(double(bound)), DataType_t::FLOAT);
  }
  return keep_where(s, on_indices(P::CMP_GT, key, row, DataType_t::BOOLEAN));
}

// cuDNN reads keys of INT64.
RawDescriptor AttentionPattern::key(size_t port) {
  const ir::Tensor& t = tensor(port);
  if (t.value && t.type != DataType_t::INT64) return number(ir::scalar_value(*t.value), DataType_t::INT64);
  if (t.type != DataType_t::INT64)
    refuse(Why::Dtype, fmt::format("{} \"{}\" is {}; INT64 serves", n.op->inputs[port].name, t.name, to_string(t.type)),
           n.in[port]);
  return in(port);
}

RawDescriptor AttentionPattern::random_mask(RawDescriptor y) {
  if (!y) y = scores();
  Descriptor rng(Kind::RNG);
  rng.value(Attr::RNG_DISTRIBUTION, AttrType::RNG_DISTRIBUTION, cudnn::number(RngDistribution_t::BERNOULLI))
      .real(Attr::RNG_BERNOULLI_DIST_PROBABILITY, 1 - o.drop_probability);
  Descriptor op(Kind::OPERATION_RNG);
  op.descriptor(Attr::OPERATION_RNG_YDESC, y)
      .descriptor(Attr::OPERATION_RNG_DESC, l.keep(std::move(rng)))
      .descriptor(Attr::OPERATION_RNG_SEED, key(kSeed))
      .descriptor(Attr::OPERATION_RNG_OFFSET_DESC, key(kOffset));
  l.operation(std::move(op));
  return y;
}

}  // namespace tilewright::cudnn
