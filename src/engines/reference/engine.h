// Engine "reference": every op's meaning in double precision, node by node. Slow, exact, takes any graph.
#pragma once

#include "plan/engine.h"

namespace tilewright {
const Engine& reference_engine();
}
