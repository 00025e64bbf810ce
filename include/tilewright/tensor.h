// Tensor_attributes: what a program says of a tensor. Dims and strides count elements; any stride is legal
// (packed, padded, permuted, 0 for broadcast). Dims are in logical order: N,C,spatial... for convolutions,
// batch...,M,N for matmul, b,h,s,d for attention.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tilewright/status.h"
#include "tilewright/types.h"

#pragma GCC visibility push(default)
namespace tilewright {
class Json;

namespace graph {

// The types that a graph scalar may have. A foreign 16-bit type (CUDA's __half) joins by specialising
// scalar_convert with `static half from(T)`.
template <class T>
struct scalar_convert : std::false_type {};

class Tensor_attributes {
 public:
  using uid_t = int64_t;
  using pass_by_values_t = std::variant<int64_t, int32_t, half, float, double, bfloat16>;

  Tensor_attributes() = default;
  // Scalars: dim = stride = {1}, pass by value, the value is carried by the graph.
  Tensor_attributes(float value) : Tensor_attributes(pass_by_values_t(value), DataType_t::FLOAT) {}
  Tensor_attributes(double value) : Tensor_attributes(pass_by_values_t(value), DataType_t::DOUBLE) {}
  Tensor_attributes(half value) : Tensor_attributes(pass_by_values_t(value), DataType_t::HALF) {}
  Tensor_attributes(bfloat16 value) : Tensor_attributes(pass_by_values_t(value), DataType_t::BFLOAT16) {}
  Tensor_attributes(int32_t value) : Tensor_attributes(pass_by_values_t(value), DataType_t::INT32) {}
  Tensor_attributes(int64_t value) : Tensor_attributes(pass_by_values_t(value), DataType_t::INT64) {}
  template <class T, std::enable_if_t<scalar_convert<T>::value, int> = 0>
  Tensor_attributes(T value) : Tensor_attributes(scalar_convert<T>::from(value)) {}
  Tensor_attributes(const Json& json);
  operator Json() const;

  std::string get_name() const { return name_; }
  Tensor_attributes& set_name(const std::string& v) { return name_ = v, *this; }
  DataType_t get_data_type() const { return data_type_; }
  Tensor_attributes& set_data_type(DataType_t v) { return data_type_ = v, *this; }
  std::vector<int64_t> get_dim() const { return dim_; }
  Tensor_attributes& set_dim(const std::vector<int64_t>& v) { return dim_ = v, *this; }
  std::vector<int64_t> get_stride() const { return stride_; }
  Tensor_attributes& set_stride(const std::vector<int64_t>& v) { return stride_ = v, *this; }
  // A virtual tensor lives only inside the graph; set_output(true) makes an op's result a real tensor.
  bool get_is_virtual() const { return is_virtual_; }
  Tensor_attributes& set_is_virtual(bool v) { return is_virtual_ = v, *this; }
  Tensor_attributes& set_output(bool v) { return is_virtual_ = !v, *this; }
  // Pass by value without a stored value: the variant pack holds a *host* pointer, read at each execute.
  bool get_is_pass_by_value() const { return is_pass_by_value_; }
  Tensor_attributes& set_is_pass_by_value(bool v) { return is_pass_by_value_ = v, *this; }
  std::optional<pass_by_values_t> get_pass_by_value() const { return value_; }
  Tensor_attributes& set_pass_by_value(pass_by_values_t v) { return value_ = v, *this; }
  // A constant baked into the plan: never in the variant pack.
  std::optional<pass_by_values_t> get_compile_time_constant() const { return constant_; }
  bool get_has_compile_time_constant() const { return constant_.has_value(); }
  Tensor_attributes& set_compile_time_constant(pass_by_values_t v) {
    constant_ = v, value_.reset(), is_pass_by_value_ = false;
    return *this;
  }
  Tensor_attributes& set_as_runtime_parameter() {
    if (constant_) value_ = constant_, constant_.reset(), is_pass_by_value_ = true;
    return *this;
  }
  // The caller's promise that this input holds the same values at every execute (the weights of a trained network): a
  // plan may keep them in the form that its kernels like best, made at the first execute from the memory bound then.
  // Bound to other memory they are still read there. After a change of the values, build the plan again.
  bool get_is_constant() const { return is_constant_; }
  Tensor_attributes& set_is_constant(bool v) { return is_constant_ = v, *this; }
  TensorReordering_t get_reordering_type() const { return reordering_; }
  Tensor_attributes& set_reordering_type(TensorReordering_t v) { return reordering_ = v, *this; }
  int64_t get_alignment() const { return alignment_; }  // bytes
  Tensor_attributes& set_alignment(int64_t v) { return alignment_ = v, *this; }
  int64_t get_vector_count() const { return vector_count_; }
  int64_t get_vector_dimension() const { return vector_dimension_; }
  Tensor_attributes& set_vector_count_and_dimension(int64_t count, int64_t dimension) {
    vector_count_ = count, vector_dimension_ = dimension;
    return *this;
  }
  uid_t get_uid() const { return uid_; }
  bool has_uid() const { return uid_assigned_; }
  Tensor_attributes& set_uid(uid_t v) { return uid_ = v, uid_assigned_ = true, *this; }
  Tensor_attributes& clear_uid() { return uid_ = 0, uid_assigned_ = false, *this; }
  std::shared_ptr<Tensor_attributes> get_ragged_offset() const { return ragged_offset_; }
  Tensor_attributes& set_ragged_offset(std::shared_ptr<Tensor_attributes> v) {
    return ragged_offset_ = std::move(v), *this;
  }
  int64_t get_volume() const {
    int64_t n = 1;
    for (int64_t d : dim_) n *= d;
    return n;
  }

  // Dims and strides present and of one rank, flags that do not contradict each other (ATTRIBUTE_NOT_SET else).
  error_t validate() const;

 private:
  Tensor_attributes(pass_by_values_t value, DataType_t type)
      : data_type_(type), dim_{1}, stride_{1}, is_pass_by_value_(true), value_(value) {}

  std::string name_;
  DataType_t data_type_ = DataType_t::NOT_SET;
  std::vector<int64_t> dim_, stride_;
  bool is_virtual_ = false, is_pass_by_value_ = false, is_constant_ = false, uid_assigned_ = false;
  std::optional<pass_by_values_t> value_, constant_;
  TensorReordering_t reordering_ = TensorReordering_t::NONE;
  int64_t alignment_ = 16, vector_count_ = 1, vector_dimension_ = -1;
  uid_t uid_ = 0;
  std::shared_ptr<Tensor_attributes> ragged_offset_;
};

}  // namespace graph
}  // namespace tilewright
#pragma GCC visibility pop
