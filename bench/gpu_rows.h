// The rows of `./dev bench gpu`: what is computed, and which parts of it the exact reference can afford to judge.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rows.h"

namespace tilewright::bench {

// An element of an input with a particular value.
struct Plant {
  std::string tensor;
  int64_t index;  // in its memory
  double value;
};

struct GpuRow {
  std::string name;  // "matmul/4096x4096x4096": m, k, n
  std::function<GraphPtr()> make;
  // Parts of the outputs, spread by the seed, the first and the last elements among them. An output of a sample's graph
  // that the row's graph does not have by this name is not judged.
  std::function<std::vector<Sample>(uint64_t seed)> samples;
  double flops = 0;                                 // 0: memory bounds it, and its rate is that of its tensors' bytes
  std::vector<NumericalNote_t> barred = {};         // plans with such a note are another row's
  std::function<GraphPtr()> inputs_from = nullptr;  // what makes inputs that only another graph's results can be
  std::vector<Plant> planted = {};
  // What our kernels aim at (docs/performance.md): how often as fast as cuDNN's best plan; a share of a copy's rate.
  double wanted_of_cudnn = 0, wanted_of_copy = 0;
  bool tf32 = true;  // plans that round FLOAT operands to TF32 take part; the samples allow it
};

// Every row; or each with sizes that the reference computes whole, to test the samples with.
std::vector<GpuRow> gpu_rows(bool small = false);

// The matmul whose execute() is all overhead.
GraphPtr smallest_matmul();

}  // namespace tilewright::bench
