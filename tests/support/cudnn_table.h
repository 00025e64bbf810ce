// Graphs for cuDNN: one or more for each op that it has, in the types and layouts that its engines like, and small
// enough for the exact reference.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace tilewright::testing {

// What is known of cuDNN 9.19 on an H200.
enum class CudnnAnswer {
  Plans,    // it has engine configs
  None,     // the descriptors are made, but it has no engine: what its heuristics say
  Refused,  // our lowering says why not
};

struct CudnnGraph {
  std::string name;  // "conv_fprop/bias_relu"
  ir::Graph graph;
  CudnnAnswer answer = CudnnAnswer::Plans;
};

std::vector<CudnnGraph> cudnn_graphs();
inline void PrintTo(const CudnnGraph& g, std::ostream* out) { *out << g.name; }

}  // namespace tilewright::testing
