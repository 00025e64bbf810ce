// Random attention problems as graphs of one node, for tests of the reference and of the engines.
#pragma once

#include <optional>
#include <string>

#include "ir/op_def.h"
#include "support/random.h"

namespace tilewright::testing {

struct AttentionCase {
  int64_t b = 1, hq = 1, hk = 1, hv = 1, sq = 1, skv = 1, dqk = 1, dv = 1;
  DataType_t type = DataType_t::FLOAT, compute = DataType_t::FLOAT;
  std::optional<double> scale;
  bool scale_tensor = false, padding = false, alibi = false, bottom_right = false, stats = false, max = false,
       sum_exp = false, sink = false, dump = false, custom_dropout = false;
  std::optional<int64_t> left, right;
  double dropout = 0;
  Dims bias, dbias;  // empty: none
  uint64_t layout_seed = 0;
  bool plain = false;  // all tensors packed, row-major

  // Of row statistics, sinks and sums of gradients.
  DataType_t statistic() const { return type == DataType_t::DOUBLE ? type : DataType_t::FLOAT; }
  std::string text() const;
  ir::Graph forward() const;
  ir::Graph backward() const;
};

// `longest`: of the sequences.
AttentionCase random_attention(Random&, int64_t longest, bool backward);

}  // namespace tilewright::testing
