// The rows of `./dev bench cpu`: what is computed, against what it is held, and what is wanted.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tilewright/graph.h"

namespace tilewright::bench {

using GraphPtr = std::shared_ptr<graph::Graph>;

// A part of a row's outputs that the exact reference can afford: the same graph on fewer elements of the same memory.
struct Sample {
  GraphPtr graph;                          // tensors by name, with the strides of the whole
  std::map<std::string, int64_t> offsets;  // elements; 0 where not named
};

enum class Against {
  OneDnn,          // its fastest way: post-ops, weights in the layout that it likes; constants are reordered once
  OneDnnSeparate,  // a primitive per step
  OwnFloat,        // our own time in FLOAT
  Copy,            // copying as many bytes as the row must read and write
};

struct Row {
  std::string name;  // "matmul/float/512"
  std::function<GraphPtr(DataType_t)> make;
  DataType_t type = DataType_t::FLOAT;
  std::function<Sample(DataType_t, uint64_t seed)> sample;
  std::vector<Against> peers;                      // the first one is judged by; the others are for information
  double target = 0;                               // of peer's time / ours; 0: none
  std::function<GraphPtr(DataType_t)> peer_graph;  // where oneDNN is given the graph in other words
  std::function<void(const std::string& name, int64_t index, float& value)> fill;  // tensors with particular values
  // What makes inputs that only another graph's results can be, by the names of its outputs.
  std::function<GraphPtr(DataType_t)> inputs_from;
  // More bytes than this beyond the caller's tensors are a failure; 0: any number serves.
  double extra_bytes_limit = 0;
};

const std::vector<Row>& rows();

// One addition: what is left of its time is the cost of execute() itself.
GraphPtr smallest_graph();

}  // namespace tilewright::bench
