#pragma once

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

// Y = exp(X - max) / sum exp(X - max) along `axis` (default: the last dim). A row of -inf alone gives zeros.
class Softmax_attributes : public Attributes<Softmax_attributes> {
 public:
  Softmax_attributes& set_axis(int64_t v) { return put("axis", v); }
  // Also yield Stats = max + log(sum exp(X - max)), dims of X with the axis set to 1.
  Softmax_attributes& set_generate_stats(bool v) { return put("generate_stats", v); }
};

}  // namespace tilewright::graph
