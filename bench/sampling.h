// The exact reference of some parts of a row's outputs: evaluated once, then any number of plans is judged by it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gpu_rows.h"
#include "ops/reference.h"
#include "tensors.h"

namespace tilewright::bench {

class SampledReference {
 public:
  // `inputs` holds what the row's graph reads.
  static Result<SampledReference> make(const GpuRow&, const ir::Graph& whole, const Tensors& inputs, uint64_t seed);

  // Copies `bytes` of an output, from `offset` on.
  using Read = std::function<Status(const std::string& output, int64_t offset, int64_t bytes, void* to)>;
  struct Judgement {
    int64_t elements = 0;
    double worst_error = 0, worst_ratio = 0;  // from the reference, and as a share of the derived bound
    std::string wrong;                        // the first output that is, and how; empty: none
  };
  Result<Judgement> judge(const Read&) const;

 private:
  struct Part {
    std::shared_ptr<const ir::Graph> graph;  // of the sample; keeps `expected` alive
    RefTensor expected;
    int64_t offset;  // in the memory of the whole, in bytes
  };
  std::vector<Part> parts_;
};

// Validated; or what is wrong with the row's graph.
Result<std::shared_ptr<const ir::Graph>> frozen(const GraphPtr&);

// Puts a row's particular values into its inputs.
void plant(const GpuRow&, const ir::Graph&, const Tensors& inputs);

}  // namespace tilewright::bench
