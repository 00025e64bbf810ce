// Attributes with one entry per spatial dim, of convolutions and pooling.
#pragma once

#include <limits>

#include "base/result.h"
#include "ir/op_def.h"

namespace tilewright::ops {

// Attribute values beyond this are mistakes, and would overflow the size arithmetic: with spatial dims up to
// kLargestDim, a padded size and the reach of a dilated filter stay below 2^63.
constexpr int64_t kLargestEntry = std::numeric_limits<int32_t>::max();
constexpr int64_t kLargestDim = int64_t(1) << 61;

inline Status read_spatial(const ir::Node& node, const char* key, size_t rank, int64_t least, Dims& into) {
  if (!node.has_attr(key)) return not_set("{} \"{}\": {} is not set", node.op->name, node.name, key);
  into = node.attr<Dims>(key);
  if (into.size() != rank)
    return invalid("{} \"{}\": {} {} has {} entries, the tensors have {} spatial dims", node.op->name, node.name, key,
                   to_text(into), into.size(), rank);
  for (int64_t v : into)
    if (v < least || v > kLargestEntry)
      return invalid("{} \"{}\": {} {} must be at least {} in every dim", node.op->name, node.name, key, to_text(into),
                     least);
  return {};
}

}  // namespace tilewright::ops
