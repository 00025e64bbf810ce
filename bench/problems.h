// The graphs that the benchmarks time, as rows.
#pragma once

#include <memory>
#include <vector>

#include "tilewright/graph.h"

namespace tilewright::bench {

using GraphPtr = std::shared_ptr<graph::Graph>;

struct Problem {
  const char* name;  // "matmul_bias_gelu/half/16x512x1024x512"
  GraphPtr (*make)();
};

const std::vector<Problem>& problems();

// One addition: what is left of its time is the cost of execute() itself.
GraphPtr smallest_graph();

}  // namespace tilewright::bench
