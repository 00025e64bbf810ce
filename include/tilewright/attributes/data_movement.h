#pragma once

#include <utility>

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

// VIEW_ONLY reads X's memory through the new dims and strides; LOGICAL keeps the row-major order of elements.
class Reshape_attributes : public Attributes<Reshape_attributes> {
 public:
  Reshape_attributes& set_dim(const std::vector<int64_t>& v) { return put("dim", v); }
  std::vector<int64_t> get_dim() const { return value<std::vector<int64_t>>("dim"); }
  Reshape_attributes& set_stride(const std::vector<int64_t>& v) { return put("stride", v); }
  std::vector<int64_t> get_stride() const { return value<std::vector<int64_t>>("stride"); }
  Reshape_attributes& set_reshape_mode(ReshapeMode_t v) { return put_enum("reshape_mode", v); }
  ReshapeMode_t get_reshape_mode() const { return enum_value("reshape_mode", ReshapeMode_t::VIEW_ONLY); }
};

// Y = X[start:limit:step] per dim.
class Slice_attributes : public Attributes<Slice_attributes> {
 public:
  Slice_attributes& set_slices(const std::vector<std::pair<int64_t, int64_t>>& v) {
    std::vector<int64_t> flat;
    for (const auto& s : v) flat.push_back(s.first), flat.push_back(s.second);
    return put("slices", std::move(flat));
  }
  Slice_attributes& set_strides(const std::vector<int64_t>& v) { return put("slice_strides", v); }
};

// Y's dim i is X's dim permutation[i].
class Transpose_attributes : public Attributes<Transpose_attributes> {
 public:
  Transpose_attributes& set_permutation(const std::vector<int64_t>& v) { return put("permutation", v); }
  std::vector<int64_t> get_permutation() const { return value<std::vector<int64_t>>("permutation"); }
};

class Concatenate_attributes : public Attributes<Concatenate_attributes> {
 public:
  Concatenate_attributes& set_axis(int64_t v) { return put("axis", v); }
  // Input i shares memory with Y.
  Concatenate_attributes& set_in_place_index(int64_t v) { return put("in_place_index", v); }
};

}  // namespace tilewright::graph
