// Graphs for cuDNN: one or more for each op that it has, in the types and layouts that its engines like, and small
// enough for the exact reference.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace tilewright::testing {

// What is known of cuDNN 9.19 on an H200, asked for the graph as one. (Where it has no engine, the graph may yet be
// served in parts.)
enum class CudnnAnswer {
  Plans,    // it has engine configs
  None,     // it has no engine
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
