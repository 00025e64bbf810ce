// The exact reference for programs: what a graph's outputs should be, in double precision, with a bound on how far an
// honest engine may be from it.
//
//   ExactReference reference;
//   reference.evaluate(graph, pack);  // reads the inputs
//   graph.execute(handle, pack, workspace);
//   reference.judge(pack, &outputs);  // looks at the outputs
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tilewright/status.h"
#include "tilewright/tensor.h"

namespace tilewright {

namespace graph {
class __attribute__((visibility("default"))) Graph;  // exported, as graph.h says
}

#pragma GCC visibility push(default)

struct JudgedOutput {
  std::string name;
  int64_t elements = 0;
  int64_t wrong = 0;     // elements farther from the exact value than rounding can explain
  double max_error = 0;  // largest |got - exact|
  double of_bound = 0;   // largest |got - exact| / what rounding can explain; at most 1 when nothing is wrong
};

class ExactReference {
 public:
  using TensorMap = std::unordered_map<std::shared_ptr<graph::Tensor_attributes>, void*>;
  using UidMap = std::unordered_map<int64_t, void*>;

  ExactReference();
  ~ExactReference();
  ExactReference(ExactReference&&) noexcept;
  ExactReference& operator=(ExactReference&&) noexcept;

  // The graph must be built (build_operation_graph at least). Takes seconds where a GEMM takes milliseconds.
  error_t evaluate(const graph::Graph& graph, const TensorMap& pack);
  error_t evaluate(const graph::Graph& graph, const UidMap& pack);
  // GRAPH_EXECUTION_FAILED, naming output and element, when an output in the pack is wrong.
  error_t judge(const TensorMap& pack, std::vector<JudgedOutput>* outputs = nullptr) const;
  error_t judge(const UidMap& pack, std::vector<JudgedOutput>* outputs = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

#pragma GCC visibility pop

}  // namespace tilewright
