#include "base/result.h"
#include "frontend/graph_json.h"
#include "frontend/json_value.h"

namespace tilewright::graph {

error_t Tensor_attributes::validate() const {
  if (dim_.empty()) return not_set("tensor \"{}\": dims are not set", name_);
  if (stride_.empty()) return not_set("tensor \"{}\": strides are not set", name_);
  if (dim_.size() != stride_.size())
    return not_set("tensor \"{}\": dims [{}] and strides [{}] differ in rank", name_, fmt::join(dim_, ", "),
                   fmt::join(stride_, ", "));
  if (is_virtual_ && is_pass_by_value_) return not_set("tensor \"{}\" is both virtual and passed by value", name_);
  if (value_ && !is_pass_by_value_)
    return not_set("tensor \"{}\" holds a value, but is not marked as passed by value", name_);
  if (constant_ && (is_virtual_ || is_pass_by_value_))
    return not_set("tensor \"{}\" is a compile-time constant and cannot be virtual or passed by value", name_);
  return {};
}

Tensor_attributes::Tensor_attributes(const Json& json) {
  if (auto t = tensor_from_json(json.rep().value)) *this = *t;
}

Tensor_attributes::operator Json() const {
  return Json(std::make_unique<Json::Rep>(Json::Rep{tensor_to_json(*this, JsonStyle{true})}));
}

Attributes_base::operator Json() const {
  return Json(std::make_unique<Json::Rep>(Json::Rep{attributes_to_json(*this, JsonStyle{true})}));
}

}  // namespace tilewright::graph
