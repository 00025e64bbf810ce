// An sdpa or sdpa_backward node as engines see it: its options, and each operand with the strides that it is read with.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "ops/attention_common.h"

namespace tilewright::fuse {

// A tensor with four dims of stride; a factor of the scores is broadcast to theirs.
struct AttentionOperand {
  ir::TensorId id = ir::kNone;
  DataType_t type = DataType_t::NOT_SET;
  std::array<int64_t, 4> stride{};
  // The stored value of a scalar, in its type.
  std::shared_ptr<const std::array<uint8_t, 16>> stored;

  explicit operator bool() const { return id != ir::kNone; }
  int64_t at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3];
  }
};

struct AttentionProblem {
  AttentionProblem(const ir::Graph&, const ir::Node&);

  ops::AttentionOptions o;
  bool in_double = false;  // an operand or the compute type is DOUBLE
  AttentionOperand q, k, v, scale, bias, seq_q, seq_kv, seed, offset, drop_mask, drop_scale, sink;  // both
  AttentionOperand o_in, d_out, stats_in;                                                           // backward
  std::vector<AttentionOperand> out;                                                                // by port
  Dims dbias_dim;
  std::vector<double> slope;  // ALiBi, by head

  bool backward() const { return bool(o_in); }
  bool has_out(size_t port) const { return port < out.size() && out[port]; }
};

}  // namespace tilewright::fuse
