#pragma once

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

class Block_scale_quantize_attributes : public Attributes<Block_scale_quantize_attributes> {
 public:
  Block_scale_quantize_attributes& set_block_size(int32_t v) { return put("block_size", int64_t(v)); }
  Block_scale_quantize_attributes& set_axis(int64_t v) { return put("axis", v); }
  Block_scale_quantize_attributes& set_transpose(bool v) { return put("transpose", v); }
};

class Block_scale_dequantize_attributes : public Attributes<Block_scale_dequantize_attributes> {
 public:
  // Block sizes of the trailing dims; one value, a list, or one entry of the list.
  Block_scale_dequantize_attributes& set_block_size(int32_t v, int32_t index = 0) {
    auto list = value<std::vector<int64_t>>("block_size");
    if (int32_t(list.size()) <= index) list.resize(size_t(index) + 1, 1);
    list[size_t(index)] = v;
    return put("block_size", std::move(list));
  }
  Block_scale_dequantize_attributes& set_block_size(const int32_t* v, int32_t len = 1) {
    return put("block_size", std::vector<int64_t>(v, v + len));
  }
  Block_scale_dequantize_attributes& set_block_size(const std::vector<int32_t>& v) {
    return put("block_size", std::vector<int64_t>(v.begin(), v.end()));
  }
  Block_scale_dequantize_attributes& set_is_negative_scale(bool v) { return put("is_negative_scale", v); }
  bool get_is_negative_scale() const { return value<bool>("is_negative_scale"); }
};

class Moe_grouped_matmul_attributes : public Attributes<Moe_grouped_matmul_attributes> {
 public:
  Moe_grouped_matmul_attributes& set_mode(MoeGroupedMatmulMode_t v) { return put_enum("mode", v); }
  Moe_grouped_matmul_attributes& set_top_k(int32_t v) { return put("top_k", int64_t(v)); }
};

class Moe_grouped_matmul_bwd_attributes : public Attributes<Moe_grouped_matmul_bwd_attributes> {};

class DiagonalBandMask_attributes : public Attributes<DiagonalBandMask_attributes> {
 public:
  DiagonalBandMask_attributes& set_comparison_mode(PointwiseMode_t v) { return put_enum("comparison_mode", v); }
  PointwiseMode_t get_comparison_mode() const { return enum_value("comparison_mode", PointwiseMode_t::CMP_GT); }
};

}  // namespace tilewright::graph
