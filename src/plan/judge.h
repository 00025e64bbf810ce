// What a plan's notes admit is judged by a graph whose bounds allow that and no more.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace tilewright {

// Tensor cores round FLOAT operands to TF32.
extern const char* const kTf32Note;
// tanh by the instruction of NVIDIA GPUs, whose relative error is up to 2^-11 (PTX, tanh.approx.f32).
extern const char* const kTanhNote;
// dBias times the attention's scale, of each batch, is rounded to the type of dBias.
extern const char* const kDbiasNote;

// The same graph, where each FLOAT operand of a product may or may not be rounded before it is multiplied: by way of a
// virtual HALF, which keeps as many bits as TF32. Tensors keep their ids, here and below; the new ones come after them.
ir::Graph with_tf32(const ir::Graph&);
ir::Graph with_coarse_tanh(const ir::Graph&);
// dBias as cuDNN makes it: of each batch, times the scale, rounded; added where batches share it; over the scale.
ir::Graph with_coarse_dbias(const ir::Graph&);

// Whether pointwise nodes compute a tanh; whether a node of the graph makes a dBias.
bool has_tanh(const ir::Graph&);
bool has_dbias(const ir::Graph&);

// A graph's judges by the notes of plans.
class Judges {
 public:
  explicit Judges(const ir::Graph& graph) : graph_(graph) {}
  // The graph itself where nothing is admitted; lives as long as this and the graph do.
  const ir::Graph& of(const std::vector<std::string>& notes);

 private:
  const ir::Graph& graph_;
  std::map<std::string, ir::Graph> made_;  // by what is admitted
};

}  // namespace tilewright
