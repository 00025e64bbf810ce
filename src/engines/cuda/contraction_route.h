// How a contraction is computed: on tensor cores, on the other units, or point by point; in which tiles; whether its
// sums are cut into slices.
#pragma once

#include <string>

#include "engines/cuda/contraction_space.h"
#include "engines/cuda/launch.h"

namespace tilewright::cuda {

struct ContractionRoute {
  enum Kind { TensorCores, Cores, Points } kind = Cores;
  std::array<std::string, 2> element;  // of A and B as they are multiplied
  std::string sum = "float";           // "float", "double", "int"
  bool wide = false;                   // values of the programs are double
  int rows = 64, columns = 64;         // a tile
  int across_m = 16, across_n = 16;    // warps, or threads, that share a tile
  bool batch_fastest = false;          // Points: neighbouring threads take neighbouring batches
  bool copies = false;                 // the GPU copies to shared memory while it computes
  int64_t parts = 1, part_sums = 0;    // slices of the sums
  double flops_share = 0.02;           // see Launch

  int threads() const { return kind == Points ? 256 : across_m * across_n * (kind == TensorCores ? 32 : 1); }
  int sum_bytes() const { return sum == "double" ? 8 : 4; }
};

// By the types of the operands and the compute type, the sizes, and what the GPU has.
ContractionRoute choose_route(const fuse::FusedGraph&, const fuse::Region&, const OrderedProblem&,
                              const ContractionSpace&, const KernelOptions&);

}  // namespace tilewright::cuda
