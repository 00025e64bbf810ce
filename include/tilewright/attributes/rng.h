#pragma once

#include <optional>

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

// Y in {0,1} with P(1) = p, keyed by the Seed and Offset tensors (counter-based: same keys, same numbers).
class Rng_attributes : public Attributes<Rng_attributes> {
 public:
  Rng_attributes& set_distribution(RngDistribution_t v) { return put_enum("distribution", v); }
  RngDistribution_t get_distribution() const { return enum_value("distribution", RngDistribution_t::NOT_SET); }
  Rng_attributes& set_seed(std::optional<int64_t> v) { return v ? put("seed", *v) : put("seed", std::monostate{}); }
  std::optional<int64_t> get_seed() const {
    auto it = values.find("seed");
    if (it == values.end() || !std::holds_alternative<int64_t>(it->second)) return std::nullopt;
    return std::get<int64_t>(it->second);
  }
  Rng_attributes& set_bernoulli_probability(std::optional<double> v) {
    return v ? put("bernoulli_probability", *v) : put("bernoulli_probability", std::monostate{});
  }
  std::optional<double> get_bernoulli_probability() const {
    auto it = values.find("bernoulli_probability");
    if (it == values.end() || !std::holds_alternative<double>(it->second)) return std::nullopt;
    return std::get<double>(it->second);
  }
  Rng_attributes& set_dim(const std::vector<int64_t>& v) { return put("dim", v); }
  std::vector<int64_t> get_dim() const { return value<std::vector<int64_t>>("dim"); }
  Rng_attributes& set_stride(const std::vector<int64_t>& v) { return put("stride", v); }
  std::vector<int64_t> get_stride() const { return value<std::vector<int64_t>>("stride"); }
};

}  // namespace tilewright::graph
