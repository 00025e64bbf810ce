// What all attribute objects share: a name, a compute type, named values and named tensors ("ports").
// A setter writes a value under the key that the op's schema (src/ops/<op>.cc) declares; JSON, keys,
// printing and the plan file all read that one table.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tilewright/tensor.h"

namespace tilewright {

// monostate: not set. Enums are kept by name.
using AttrValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>>;
using AttrMap = std::map<std::string, AttrValue>;

namespace graph {

using TensorPtr = std::shared_ptr<Tensor_attributes>;

#pragma GCC visibility push(default)
struct Attributes_base {
  std::string name;
  DataType_t compute_data_type = DataType_t::NOT_SET;
  AttrMap values;
  std::map<std::string, TensorPtr> inputs, outputs;

  // Name, compute type and values; which op it is, only the graph knows.
  operator Json() const;
};
#pragma GCC visibility pop

template <class Self>
class Attributes : public Attributes_base {
 public:
  Self& set_name(const std::string& v) { return name = v, self(); }
  std::string get_name() const { return name; }
  Self& set_compute_data_type(DataType_t v) { return compute_data_type = v, self(); }

 protected:
  Self& self() { return static_cast<Self&>(*this); }
  Self& put(const char* key, AttrValue v) { return values[key] = std::move(v), self(); }
  template <class Enum>
  Self& put_enum(const char* key, Enum v) {
    return put(key, to_string(v));
  }
  Self& port(const char* key, TensorPtr t) { return inputs[key] = std::move(t), self(); }
  Self& output_port(const char* key, TensorPtr t) { return outputs[key] = std::move(t), self(); }

  // The value under `key`, or `otherwise` when it is not set.
  template <class T>
  T value(const char* key, T otherwise = T{}) const {
    auto it = values.find(key);
    if (it == values.end()) return otherwise;
    const T* v = std::get_if<T>(&it->second);
    return v ? *v : otherwise;
  }
  template <class Enum>
  Enum enum_value(const char* key, Enum otherwise) const {
    Enum e = otherwise;
    from_string(value<std::string>(key), e);
    return e;
  }
};

}  // namespace graph
}  // namespace tilewright
