// What the lowerings of sdpa and sdpa_backward share. cuDNN knows attention as a pattern of matmul, pointwise and
// reduction operations over virtual scores, and recognises it by its order, its types and its layouts: all of them are
// as here, and nothing is left out or folded.
#pragma once

#include "engines/cudnn/lower_ops.h"
#include "ops/attention_common.h"

namespace tilewright::cudnn {

// p = softmax of s over the last of four dims, as attention has it.
struct SoftmaxOptions {
  RawDescriptor stats = nullptr;                   // wanted or not, they are part of the pattern
  RawDescriptor max = nullptr, sum_exp = nullptr;  // instead of them
  RawDescriptor sink = nullptr;                    // one more score of each row, without a column
};
void add_softmax(Lowering&, const Dims& dim, RawDescriptor s, RawDescriptor p, const SoftmaxOptions&);

class AttentionPattern {
 public:
  AttentionPattern(Lowering&, ir::NodeId);

  Lowering& l;
  const ir::NodeId id;
  const ir::Node& n;
  const ops::AttentionOptions o;
  const DataType_t type;  // of Q, and of what the matrix products read

  // The rules that both directions share; false, and a reason, where this cuDNN cannot serve.
  bool takes();
  // A reason that begins with the node: sdpa "attn": ...
  void refuse(Why, const std::string& text, ir::TensorId = ir::kNone);
  int arch() const { return l.target().gpu ? l.target().gpu->arch : 0; }

  bool has(size_t port) const { return port < n.in.size() && n.in[port] != ir::kNone; }
  const ir::Tensor& tensor(size_t port) const { return l.graph().tensor(n.in[port]); }
  RawDescriptor in(size_t port) { return l.in(id, port); }
  // Of an output that someone reads; null: no one does.
  RawDescriptor out(size_t port);
  // Of an operand as it lies in memory.
  View view(size_t port) const;
  // An operand with its last two dims swapped.
  RawDescriptor transposed(size_t port);
  RawDescriptor scale();  // null: there is none

  // Sizes of the sequences; null where all have full length.
  RawDescriptor lengths_q() const { return lengths_q_; }
  RawDescriptor lengths_kv() const { return lengths_kv_; }
  // Full lengths, from the workspace: for kernels that go wrong beyond the last whole tile otherwise.
  void give_full_lengths();

  RawDescriptor number(double v, DataType_t t = DataType_t::FLOAT) { return l.constant(v, t, 4); }
  RawDescriptor scores(DataType_t t = DataType_t::FLOAT) { return l.scratch(t, o.score_dims()); }
  RawDescriptor rows() { return l.scratch(DataType_t::FLOAT, {o.b, o.hq, o.sq, 1}); }

  // y = mode(x, b, t) in FLOAT; returns y, scores unless given.
  RawDescriptor pointwise(PointwiseMode_t, RawDescriptor x, RawDescriptor b = nullptr, RawDescriptor t = nullptr,
                          RawDescriptor y = nullptr);
  // c = a b. Rows, columns and terms beyond these lengths do not count.
  struct Sizes {
    RawDescriptor m = nullptr, n = nullptr, k = nullptr;
  };
  void matmul(RawDescriptor a, RawDescriptor b, RawDescriptor c, Sizes);

  // scale Q K^T + bias + alibi.
  RawDescriptor biased_scores(RawDescriptor transposed_k);
  // -inf where the lengths, or the diagonal bounds, exclude an element.
  RawDescriptor padded(RawDescriptor s);
  RawDescriptor banded(RawDescriptor s);
  // 1 where dropout by probability keeps an element, into `y`: virtual where that is null.
  RawDescriptor random_mask(RawDescriptor y);

 private:
  bool takes_types();
  bool takes_bounds();
  RawDescriptor seen_as(size_t port, const View&);
  RawDescriptor lengths(size_t port);
  RawDescriptor key(size_t port);
  RawDescriptor index(RawDescriptor s, int64_t axis, DataType_t compute);
  // Computed in the type of the result.
  RawDescriptor on_indices(PointwiseMode_t, RawDescriptor a, RawDescriptor b, DataType_t);
  RawDescriptor keep_where(RawDescriptor s, RawDescriptor mask);
  RawDescriptor with_alibi(RawDescriptor s);
  RawDescriptor within_right_bound(RawDescriptor s);
  RawDescriptor within_left_bound(RawDescriptor s);

  RawDescriptor lengths_q_ = nullptr, lengths_kv_ = nullptr, scale_ = nullptr;
};

}  // namespace tilewright::cudnn
