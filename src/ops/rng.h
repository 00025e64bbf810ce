// What an engine needs of rng: the generator's key read from its tensors without loss.
#pragma once

#include "base/philox.h"
#include "ir/op_def.h"

namespace tilewright::ops {

// The seed or offset that a tensor holds: stored in the graph, or in memory.
int64_t key_value(const ir::Tensor&, const void* memory);

// The generator of an rng node. `seed` and `offset` are the tensors' memory, null where the node has no such tensor;
// scalars stored in the graph need none. INT64 keys keep all their bits.
Philox philox_of(const ir::Graph&, const ir::Node&, const void* seed, const void* offset);

// Element i (row-major) of the node's numbers.
struct RngNumbers {
  Philox philox;
  RngDistribution_t distribution = RngDistribution_t::BERNOULLI;
  uint64_t threshold = 0;  // BERNOULLI

  double at(int64_t i) const {
    switch (distribution) {
      case RngDistribution_t::UNIFORM: return philox.uniform(uint64_t(i));
      case RngDistribution_t::NORMAL: return philox.normal(uint64_t(i));
      default: return philox.below(uint64_t(i), threshold) ? 1 : 0;
    }
  }
};
RngNumbers rng_numbers(const ir::Node&, const Philox&);

}  // namespace tilewright::ops
