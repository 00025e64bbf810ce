// A graph's description as JSON: the field's own form (docs/graph-file.md), written for logs and keys of the field, for
// files, and for the plan file.
#pragma once

#include <nlohmann/json.hpp>

#include "frontend/builder.h"

namespace tilewright::graph {

struct JsonStyle {
  bool hex_floats = false;  // attributes and scalars as 8 hex digits, as the field's logs have them
  bool inferred = true;     // with what validate() filled in
  bool defaults = true;     // also fields that have their default value
};
nlohmann::json to_json(const Description&, const JsonStyle&);
nlohmann::json tensor_to_json(const Tensor_attributes&, const JsonStyle&);
// Name, compute type and values of an attributes object that is in no graph yet.
nlohmann::json attributes_to_json(const Attributes_base&, const JsonStyle&);

// Takes all styles. A node's "tag" may be the op's tag or its method name. UNSUPPORTED_GRAPH_FORMAT, saying where, when
// the JSON is no graph.
Result<Description> description_from_json(const nlohmann::json&);
Result<Tensor_attributes> tensor_from_json(const nlohmann::json&);

}  // namespace tilewright::graph
