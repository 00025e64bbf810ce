#include "fuse/attention_problem.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace tilewright::fuse {
namespace {

AttentionOperand operand(const ir::Graph& g, ir::TensorId id) {
  AttentionOperand x;
  x.id = id;
  if (id == ir::kNone) return x;
  const ir::Tensor& t = g.tensor(id);
  x.type = t.type;
  for (size_t d = 0; d < std::min<size_t>(t.stride.size(), 4); ++d) x.stride[d] = t.stride[d];
  if (t.value) {
    auto bytes = std::make_shared<std::array<uint8_t, 16>>();
    const int64_t* whole = std::get_if<int64_t>(&*t.value);
    if (whole && t.type == DataType_t::INT64) std::memcpy(bytes->data(), whole, sizeof *whole);
    else store_element(bytes->data(), t.type, 0, ir::scalar_value(*t.value));
    x.stored = std::move(bytes);
  }
  return x;
}

// A factor of the scores, read with their dims.
AttentionOperand factor(const ir::Graph& g, ir::TensorId id, const Dims& scores) {
  AttentionOperand x = operand(g, id);
  if (!x) return x;
  const Dims stride = broadcast_strides(g.tensor(id).view(), scores);
  std::copy(stride.begin(), stride.end(), x.stride.begin());
  return x;
}

}  // namespace

AttentionProblem::AttentionProblem(const ir::Graph& g, const ir::Node& n) : o(ops::attention_options(g, n)) {
  auto in = [&](size_t port) { return port < n.in.size() ? n.in[port] : ir::kNone; };
  q = operand(g, in(ops::kQ)), k = operand(g, in(ops::kK)), v = operand(g, in(ops::kV));
  scale = operand(g, in(ops::kAttnScale));
  bias = factor(g, in(ops::kBias), o.score_dims());
  drop_mask = factor(g, in(ops::kDropoutMask), o.score_dims());
  drop_scale = factor(g, in(ops::kDropoutScale), o.score_dims());
  if (o.padding) seq_q = operand(g, in(ops::kSeqLenQ)), seq_kv = operand(g, in(ops::kSeqLenKv));
  if (o.philox) seed = operand(g, in(ops::kSeed)), offset = operand(g, in(ops::kOffset));
  sink = operand(g, in(ops::kSinkToken));
  if (n.op->name == std::string_view("sdpa_backward"))
    o_in = operand(g, in(ops::kO)), d_out = operand(g, in(ops::kDO)), stats_in = operand(g, in(ops::kStatsIn));
  for (ir::TensorId id : n.out) out.push_back(operand(g, id));
  if (o_in && has_out(ops::kOutDBias)) dbias_dim = g.tensor(n.out[ops::kOutDBias]).dim;
  if (o.alibi)
    for (int64_t h = 0; h < o.hq; ++h) slope.push_back(ops::alibi_slope(h, o.hq));
  in_double = n.compute == DataType_t::DOUBLE;
  for (const auto& ids : {n.in, n.out})
    for (ir::TensorId id : ids) in_double |= id != ir::kNone && g.tensor(id).type == DataType_t::DOUBLE;
}

}  // namespace tilewright::fuse
