#include "tilewright/score_modifiers.h"

#include <utility>

namespace tilewright::graph::attn::score_modifiers {
namespace {

TensorPtr op(const GraphPtr& graph, PointwiseMode_t mode, const TensorPtr& a, const TensorPtr& b) {
  return graph->pointwise(a, b, Pointwise_attributes().set_mode(mode));
}

// The same on indices, in integers.
TensorPtr index_op(const GraphPtr& graph, PointwiseMode_t mode, const TensorPtr& a, const TensorPtr& b,
                   DataType_t result = DataType_t::INT32) {
  TensorPtr y = graph->pointwise(a, b, Pointwise_attributes().set_mode(mode).set_compute_data_type(DataType_t::INT32));
  y->set_data_type(result);
  return y;
}
TensorPtr compare(const GraphPtr& graph, PointwiseMode_t mode, const TensorPtr& a, const TensorPtr& b) {
  return index_op(graph, mode, a, b, DataType_t::BOOLEAN);
}

// The index of every element of `score` along `axis`.
TensorPtr index_along(const GraphPtr& graph, const TensorPtr& score, int64_t axis) {
  TensorPtr y = graph->pointwise(score, Pointwise_attributes()
                                            .set_mode(PointwiseMode_t::GEN_INDEX)
                                            .set_axis(axis)
                                            .set_compute_data_type(DataType_t::INT32));
  y->set_data_type(DataType_t::INT32);
  return y;
}

TensorPtr integer(const GraphPtr& graph, int64_t value) { return graph->tensor(int32_t(value)); }

TensorPtr keep_where(const GraphPtr& graph, const TensorPtr& score, const TensorPtr& mask) {
  return graph->pointwise(score, graph->tensor(get_negative_inf_value()), mask,
                          Pointwise_attributes().set_mode(PointwiseMode_t::BINARY_SELECT));
}

constexpr int64_t kRowAxis = 2, kKeyAxis = 3;

}  // namespace

TensorPtr bias(GraphPtr graph, TensorPtr score, TensorPtr bias) { return op(graph, PointwiseMode_t::ADD, score, bias); }

TensorPtr sliding_window_mask(GraphPtr graph, TensorPtr score, DiagonalAlignment_t alignment,
                              std::optional<int64_t> left_bound, std::optional<int64_t> right_bound, int64_t s_q,
                              int64_t s_kv, TensorPtr seq_len_q, TensorPtr seq_len_kv) {
  if (!left_bound && !right_bound) return score;
  TensorPtr row = index_along(graph, score, kRowAxis);
  const TensorPtr key = index_along(graph, score, kKeyAxis);
  if (alignment == DiagonalAlignment_t::BOTTOM_RIGHT) {
    row = index_op(graph, PointwiseMode_t::ADD, row, seq_len_kv ? seq_len_kv : integer(graph, s_kv));
    row = index_op(graph, PointwiseMode_t::SUB, row, seq_len_q ? seq_len_q : integer(graph, s_q));
  }
  if (right_bound) {
    const TensorPtr last =
        *right_bound == 0 ? row : index_op(graph, PointwiseMode_t::ADD, row, integer(graph, *right_bound));
    score = keep_where(graph, score, compare(graph, PointwiseMode_t::CMP_GE, last, key));
  }
  if (left_bound) {
    const TensorPtr reach = index_op(graph, PointwiseMode_t::ADD, key, integer(graph, *left_bound));
    score = keep_where(graph, score, compare(graph, PointwiseMode_t::CMP_GT, reach, row));
  }
  return score;
}

TensorPtr causal_mask(GraphPtr graph, TensorPtr score) {
  return sliding_window_mask(graph, score, DiagonalAlignment_t::TOP_LEFT, std::nullopt, 0, 0, 0, nullptr, nullptr);
}

TensorPtr causal_mask_bottom_right(GraphPtr graph, TensorPtr score, int64_t s_q, int64_t s_kv, TensorPtr seq_len_q,
                                   TensorPtr seq_len_kv) {
  return sliding_window_mask(graph, score, DiagonalAlignment_t::BOTTOM_RIGHT, std::nullopt, 0, s_q, s_kv, seq_len_q,
                             seq_len_kv);
}

TensorPtr padding_mask(GraphPtr graph, TensorPtr score, TensorPtr seq_len_kv, TensorPtr seq_len_q) {
  const TensorPtr row_in = compare(graph, PointwiseMode_t::CMP_LT, index_along(graph, score, kRowAxis), seq_len_q);
  const TensorPtr key_in = compare(graph, PointwiseMode_t::CMP_LT, index_along(graph, score, kKeyAxis), seq_len_kv);
  TensorPtr both = graph->pointwise(
      row_in, key_in,
      Pointwise_attributes().set_mode(PointwiseMode_t::LOGICAL_AND).set_compute_data_type(DataType_t::BOOLEAN));
  both->set_data_type(DataType_t::BOOLEAN);
  return keep_where(graph, score, both);
}

TensorPtr alibi_mask(GraphPtr graph, TensorPtr score, TensorPtr& slopes, int64_t query_heads, int64_t& slopes_bytes) {
  slopes = graph->tensor(Tensor_attributes()
                             .set_dim({1, query_heads, 1, 1})
                             .set_stride({query_heads, 1, 1, 1})
                             .set_data_type(DataType_t::FLOAT));
  slopes_bytes = query_heads * int64_t(sizeof(float));
  const TensorPtr distance =
      index_op(graph, PointwiseMode_t::SUB, index_along(graph, score, kKeyAxis), index_along(graph, score, kRowAxis));
  return op(graph, PointwiseMode_t::ADD, score, op(graph, PointwiseMode_t::MUL, distance, slopes));
}

TensorPtr Softcap::forward(GraphPtr graph, TensorPtr score, TensorPtr cap) {
  scaled_ = op(graph, PointwiseMode_t::DIV, score, cap);
  const TensorPtr t = graph->pointwise(scaled_, Pointwise_attributes().set_mode(PointwiseMode_t::TANH_FWD));
  return op(graph, PointwiseMode_t::MUL, t, cap);
}

// d(cap tanh(s/cap))/ds = tanh'(s/cap): the cap cancels.
TensorPtr Softcap::backward(GraphPtr graph, TensorPtr dscore, TensorPtr) {
  return op(graph, PointwiseMode_t::TANH_BWD, dscore, scaled_);
}

}  // namespace tilewright::graph::attn::score_modifiers
