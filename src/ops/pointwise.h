// Typed access to a pointwise node, for engines.
#pragma once

#include "ir/op_def.h"
#include "ops/pointwise_math.h"

namespace tilewright {
PointwiseMode_t pointwise_mode(const ir::Node&);
PwParams pointwise_params(const ir::Node&);
}  // namespace tilewright
