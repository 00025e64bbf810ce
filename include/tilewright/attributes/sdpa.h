// Scaled dot-product attention. Q [b,hq,sq,dqk], K [b,hk,skv,dqk], V [b,hv,skv,dv], O [b,hq,sq,dv]; hk and hv divide
// hq. S = scale * Q K^T + bias + alibi, masked; P = softmax(S); O = P V. No scale set means 1.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

class __attribute__((visibility("default"))) Graph;  // exported, as graph.h says
using Score_modifier = std::function<TensorPtr(std::shared_ptr<Graph>, TensorPtr)>;

template <class Self>
class Attention_attributes : public Attributes<Self> {
 public:
  Self& set_attn_scale(TensorPtr v) { return this->port("Attn_scale", std::move(v)); }
  Self& set_attn_scale(float v) { return this->put("attn_scale_value", double(v)); }
  // Added to the scores; broadcasts to [b,hq,sq,skv].
  Self& set_bias(TensorPtr v) { return this->port("Bias", std::move(v)); }
  // Adds slope[h] * (j - i); needs a right bound of 0.
  Self& set_alibi_mask(bool v) { return this->put("alibi_mask", v); }
  // Lengths [b,1,1,1] INT32 of each sequence; both with the padding mask.
  Self& set_padding_mask(bool v) { return this->put("padding_mask", v); }
  Self& set_seq_len_q(TensorPtr v) { return this->port("SEQ_LEN_Q", std::move(v)); }
  Self& set_seq_len_kv(TensorPtr v) { return this->port("SEQ_LEN_KV", std::move(v)); }
  // Row i keeps key j with j <= i + R + shift and j > i - L + shift; shift is 0 or (BOTTOM_RIGHT) skv - sq.
  Self& set_diagonal_alignment(DiagonalAlignment_t v) { return this->put_enum("diagonal_alignment", v); }
  Self& set_diagonal_band_right_bound(int v) { return this->put("right_bound", int64_t(v)); }
  Self& set_diagonal_band_left_bound(int v) { return this->put("left_bound", int64_t(v)); }
  Self& set_sliding_window_length(int v) { return set_diagonal_band_left_bound(v); }
  Self& set_causal_mask(bool v) {
    return v ? set_diagonal_alignment(DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0) : this->self();
  }
  Self& set_causal_mask_bottom_right(bool v) {
    return v ? set_diagonal_alignment(DiagonalAlignment_t::BOTTOM_RIGHT).set_diagonal_band_right_bound(0)
             : this->self();
  }
  // Drop probability p with Philox keys; kept values are divided by 1 - p.
  Self& set_dropout(float p, TensorPtr seed, TensorPtr offset) {
    this->put("dropout_probability", double(p));
    return this->port("Seed", std::move(seed)), this->port("Offset", std::move(offset));
  }
  Self& set_rng_dump(TensorPtr v) { return this->output_port("RNG_DUMP", std::move(v)); }
  // FLOAT [1,hq,1,1]: one extra logit per head that takes part in the softmax and has no value row.
  Self& set_sink_token(TensorPtr v) { return this->port("SINK_TOKEN", std::move(v)); }
  Self& set_score_mod(Score_modifier v) { return score_mod = std::move(v), this->self(); }

  bool has_bias() const { return this->inputs.count("Bias") != 0; }
  bool has_causal_like_masking() const { return this->values.count("right_bound") != 0; }
  bool has_causal_mask_bottom_right() const {
    return has_causal_like_masking() &&
           this->enum_value("diagonal_alignment", DiagonalAlignment_t::TOP_LEFT) == DiagonalAlignment_t::BOTTOM_RIGHT;
  }
  bool has_sink_token() const { return this->inputs.count("SINK_TOKEN") != 0; }

  Score_modifier score_mod;
};

class SDPA_attributes : public Attention_attributes<SDPA_attributes> {
 public:
  using Attention_attributes::set_dropout;
  // Stats = max + log(sum exp) per row, FLOAT [b,hq,sq,1].
  SDPA_attributes& set_generate_stats(bool v) { return put("generate_stats", v); }
  SDPA_attributes& set_is_inference(bool v) { return set_generate_stats(!v); }
  SDPA_attributes& set_logit_max(TensorPtr v) { return output_port("Max", std::move(v)); }
  SDPA_attributes& set_score_sum_exp(TensorPtr v) { return output_port("Sum_exp", std::move(v)); }
  // P * scale * mask; both broadcast, so their order does not matter.
  SDPA_attributes& set_dropout(TensorPtr mask, TensorPtr scale) {
    return port("Dropout_mask", std::move(mask)), port("Dropout_scale", std::move(scale));
  }
  SDPA_attributes& set_paged_attention_k_table(TensorPtr v) { return port("Page_table_K", std::move(v)); }
  SDPA_attributes& set_paged_attention_v_table(TensorPtr v) { return port("Page_table_V", std::move(v)); }
  SDPA_attributes& set_paged_attention_max_seq_len_kv(int v) { return put("max_seq_len_kv", int64_t(v)); }
  SDPA_attributes& set_block_mask(TensorPtr v) { return port("Block_mask", std::move(v)); }
  SDPA_attributes& set_implementation(AttentionImplementation_t v) { return put_enum("implementation", v); }
  SDPA_attributes& set_unfuse_fma(bool v) { return put("unfuse_fma", v); }
};
using SDPA_fp8_attributes = SDPA_attributes;
using Scaled_dot_product_flash_attention_attributes = SDPA_attributes;

class SDPA_backward_attributes : public Attention_attributes<SDPA_backward_attributes> {
 public:
  using Attention_attributes::set_dropout;
  SDPA_backward_attributes& set_dbias(TensorPtr v) { return output_port("dBias", std::move(v)); }
  SDPA_backward_attributes& set_dropout(TensorPtr mask, TensorPtr scale, TensorPtr scale_inv) {
    port("Dropout_mask", std::move(mask)), port("Dropout_scale", std::move(scale));
    return port("Dropout_scale_inv", std::move(scale_inv));
  }
  SDPA_backward_attributes& set_max_total_seq_len_q(int64_t v) { return put("max_total_seq_len_q", v); }
  SDPA_backward_attributes& set_max_total_seq_len_kv(int64_t v) { return put("max_total_seq_len_kv", v); }
  SDPA_backward_attributes& set_deterministic_algorithm(bool v) { return put("is_deterministic_algorithm", v); }
  SDPA_backward_attributes& set_dsink_token(TensorPtr v) { return output_port("DSINK_TOKEN", std::move(v)); }
  SDPA_backward_attributes& set_score_mod_bprop(Score_modifier v) { return score_mod_bprop = std::move(v), *this; }

  Score_modifier score_mod_bprop;
};
using Scaled_dot_product_flash_attention_backward_attributes = SDPA_backward_attributes;

class SDPA_fp8_backward_attributes : public Attention_attributes<SDPA_fp8_backward_attributes> {
 public:
  using Attention_attributes::set_dropout;
  SDPA_fp8_backward_attributes& set_dropout(TensorPtr mask, TensorPtr scale, TensorPtr scale_inv) {
    port("Dropout_mask", std::move(mask)), port("Dropout_scale", std::move(scale));
    return port("Dropout_scale_inv", std::move(scale_inv));
  }
  SDPA_fp8_backward_attributes& set_deterministic_algorithm(bool v) { return put("is_deterministic_algorithm", v); }
  SDPA_fp8_backward_attributes& set_dsink_token(TensorPtr v) { return output_port("DSINK_TOKEN", std::move(v)); }
};

}  // namespace tilewright::graph
