// Ready-made modifiers of attention scores, for Attention_attributes::set_score_mod. Each takes the graph and the score
// tensor [b,h,sq,skv] and gives the new score; masked scores become -inf.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "tilewright/graph.h"

#pragma GCC visibility push(default)
namespace tilewright::graph::attn::score_modifiers {

using GraphPtr = std::shared_ptr<Graph>;

inline float get_negative_inf_value() { return -std::numeric_limits<float>::infinity(); }

TensorPtr bias(GraphPtr graph, TensorPtr score, TensorPtr bias);
TensorPtr causal_mask(GraphPtr graph, TensorPtr score);
// The diagonal ends in the last row and column: of the tensors where given (INT32 [b,1,1,1]), else of s_q and s_kv.
TensorPtr causal_mask_bottom_right(GraphPtr graph, TensorPtr score, int64_t s_q, int64_t s_kv, TensorPtr seq_len_q,
                                   TensorPtr seq_len_kv);
// Row i keeps key j with j <= i + right + shift and j > i - left + shift, where shift is 0 for TOP_LEFT and
// s_kv - s_q for BOTTOM_RIGHT.
TensorPtr sliding_window_mask(GraphPtr graph, TensorPtr score, DiagonalAlignment_t alignment,
                              std::optional<int64_t> left_bound, std::optional<int64_t> right_bound, int64_t s_q,
                              int64_t s_kv, TensorPtr seq_len_q, TensorPtr seq_len_kv);
// Keeps rows below seq_len_q and keys below seq_len_kv.
TensorPtr padding_mask(GraphPtr graph, TensorPtr score, TensorPtr seq_len_kv, TensorPtr seq_len_q);
// score + slope[h] * (j - i). Makes the slopes' tensor, FLOAT [1,h,1,1], which the variant pack must hold.
TensorPtr alibi_mask(GraphPtr graph, TensorPtr score, TensorPtr& slopes, int64_t query_heads, int64_t& slopes_bytes);

// cap * tanh(score / cap). `forward` keeps what `backward` needs, so one object serves one attention.
class Softcap {
 public:
  TensorPtr forward(GraphPtr graph, TensorPtr score, TensorPtr cap);
  TensorPtr backward(GraphPtr graph, TensorPtr dscore, TensorPtr cap);

 private:
  TensorPtr scaled_;  // score / cap
};

}  // namespace tilewright::graph::attn::score_modifiers
#pragma GCC visibility pop
