// A graph as a list of oneDNN primitives. A primitive takes along as many of the pointwise nodes behind it as the
// library has post-ops for; every other pointwise node is a primitive of its own.
#pragma once

#include <string>
#include <vector>

#include "engines/onednn/loader.h"
#include "plan/engine.h"

namespace tilewright::onednn {

struct LowerOptions {
  bool post_ops = true;      // false: every node is its own primitive
  bool any_weights = false;  // the library chooses the layout of weights, and they are reordered
  bool approximate = false;  // also what differs from this library's meaning or bounds: for comparisons only
  int threads = 1;
};

// Where an argument is: the caller's memory of a tensor, the workspace, or a number of the program's own.
struct Place {
  ir::TensorId tensor = ir::kNone;
  int64_t offset = -1;  // bytes of the workspace
  int constant = -1;    // of Program::constants
  int kept = -1;        // of Program::kept: there rather than in the workspace, once it is there
};

// A tensor that is marked constant, in the layout that the library likes: reordered once, and kept.
struct Kept {
  ir::TensorId tensor;
  int64_t bytes;
};

struct Argument {
  int index;  // an Arg
  MemoryDesc desc;
  Place place;
};

struct Launch {
  std::string name;  // "convolution+bias+relu_fwd"
  std::string implementation;
  PrimitiveDesc desc;
  std::vector<Argument> arguments;
  double flops = 0, bytes = 0;
  std::vector<ir::NodeId> nodes;
  bool makes_kept = false;   // brings a constant into the library's layout, at the first execute only
  bool elementwise = false;  // reads an element before it writes it
};

struct Program {
  std::vector<Launch> launches;
  std::vector<float> constants;
  std::vector<Kept> kept;
  int64_t workspace_bytes = 0;
  bool keeps_nan = true;        // NaN comes out wherever this library has it come out
  std::vector<Reason> reasons;  // not empty: the graph is not taken, and the rest is incomplete
};

Program lower(const ir::Graph&, const LowerOptions&);

// Makes the primitives. The graph is needed no longer.
std::unique_ptr<Executable> make_executable(const ir::Graph&, Program, int threads);

}  // namespace tilewright::onednn
