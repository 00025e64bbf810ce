// Which values an input should hold, from the ports that read it.
#pragma once

#include <cstdint>

#include "ir/op_def.h"

namespace tilewright {

struct FillRange {
  enum Kind { Normal, Uniform, Integer } kind = Normal;
  double a = 0, b = 1;  // Normal: mean and deviation. Uniform: ends. Integer: least and greatest.
};

// The range that the first particular port among the consumers asks for; standard normal when none does.
FillRange fill_range(const ir::Graph& graph, ir::TensorId tensor);
// The same with values that stay exact: integers, or powers of two where the range is positive.
FillRange integer_range(const FillRange& range);

// Number `index` of stream `seed` in the range. Counter-based: the order of calls does not matter.
double fill_value(const FillRange& range, uint64_t seed, uint64_t index);

}  // namespace tilewright
