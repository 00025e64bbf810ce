// Engine "host": on a GPU, the CPU's plan over copies of the tensors. Slow, right, takes any graph: no valid graph is
// refused on a GPU whose other engines do not take it.
#pragma once

#include "plan/engine.h"

namespace tilewright {
const Engine& host_engine();
}
