// The immutable graph that engines see. Dense ids; nodes in topological (= insertion) order; every dim, stride and
// type is set. Names and uids serve messages and bindings and never enter keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/numeric_types.h"
#include "layout/view.h"
#include "tilewright/attributes/base.h"

namespace tilewright::ir {

struct OpDef;
using TensorId = int32_t;
using NodeId = int32_t;
constexpr TensorId kNone = -1;

enum class Role {
  Input,     // memory of the caller's
  Output,    // memory of the caller's
  Virtual,   // exists only between nodes
  Scalar,    // by value: stored in the graph, or read through a host pointer at each execute
  Constant,  // a value baked into the plan
};

struct Tensor {
  std::string name;
  int64_t uid = 0;
  DataType_t type = DataType_t::NOT_SET;
  Dims dim, stride;
  Role role = Role::Virtual;
  std::optional<graph::Tensor_attributes::pass_by_values_t> value;  // of Scalar (if stored) and Constant
  int64_t alignment = 16;
  TensorReordering_t reordering = TensorReordering_t::NONE;
  TensorId ragged_offset = kNone;
  bool constant = false;    // an input whose values the caller promises not to change
  bool bit_packed = false;  // BOOLEAN stored as one bit per element (norm fusions)

  View view() const { return {dim, stride}; }
  DataType_t storage_type() const { return bit_packed ? kBitBoolean : type; }
  int64_t storage_bytes() const { return tilewright::storage_bytes(storage_type(), storage_elements(view())); }
  bool bound_by_caller() const {  // has an entry in the variant pack
    return role == Role::Input || role == Role::Output || (role == Role::Scalar && !value);
  }
};

double scalar_value(const graph::Tensor_attributes::pass_by_values_t&);

struct Node {
  const OpDef* op = nullptr;
  std::string name;
  DataType_t compute = DataType_t::NOT_SET;
  AttrMap attrs;
  std::vector<TensorId> in, out;  // by port; kNone where absent. Variadic inputs fill `in` from the port on.

  // The attribute as T; `otherwise` when it is not set.
  template <class T>
  T attr(const char* key, T otherwise = T{}) const {
    auto it = attrs.find(key);
    if (it == attrs.end()) return otherwise;
    const T* v = std::get_if<T>(&it->second);
    return v ? *v : otherwise;
  }
  bool has_attr(const char* key) const {
    auto it = attrs.find(key);
    return it != attrs.end() && !std::holds_alternative<std::monostate>(it->second);
  }
  template <class Enum>
  Enum attr_enum(const char* key, Enum otherwise) const {
    Enum e = otherwise;
    from_string(attr<std::string>(key), e);
    return e;
  }
};

struct Graph {
  std::string name;
  DataType_t io_type = DataType_t::NOT_SET, intermediate_type = DataType_t::NOT_SET, compute_type = DataType_t::NOT_SET;
  bool dynamic_shapes = false;
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;

  const Tensor& tensor(TensorId id) const { return tensors[size_t(id)]; }
};

// Which node makes each tensor (-1: none), and which nodes read it.
struct Links {
  std::vector<NodeId> producer;
  std::vector<std::vector<NodeId>> consumers;
};
Links links(const Graph&);

// Content key: ops, attributes, types, dims, strides, roles, baked values; not names, not uids. Without `shapes`,
// dims and strides are left out (the key of a class of shapes).
uint64_t content_key(const Graph&, bool shapes = true);

std::string describe(const Graph&, const Tensor&);  // `"X" HALF [2, 3] stride [3, 1] input`
std::string describe(const Graph&);                 // one line per node

}  // namespace tilewright::ir
