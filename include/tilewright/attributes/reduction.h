#pragma once

#include <optional>

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

// The reduced axes are those where the caller set the output's dim to 1 and the input's is not.
class Reduction_attributes : public Attributes<Reduction_attributes> {
 public:
  Reduction_attributes& set_mode(ReductionMode_t v) { return put_enum("mode", v); }
  std::optional<ReductionMode_t> get_mode() const {
    return values.count("mode") ? std::optional(enum_value("mode", ReductionMode_t::NOT_SET)) : std::nullopt;
  }
  Reduction_attributes& set_is_deterministic(bool v) { return put("is_deterministic", v); }
  bool get_is_deterministic() const { return value<bool>("is_deterministic"); }
};

}  // namespace tilewright::graph
