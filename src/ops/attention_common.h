// What sdpa and sdpa_backward have in common: ports, options, rules, and the scores of one row in the reference.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/philox.h"
#include "ir/op_def.h"
#include "ops/contraction.h"
#include "ops/reference.h"

namespace tilewright::ops {

// Input ports. The first twelve are the same in both ops.
enum AttentionIn : size_t {
  kQ,
  kK,
  kV,
  kAttnScale,
  kBias,
  kSeqLenQ,
  kSeqLenKv,
  kSeed,
  kOffset,
  kDropoutMask,
  kDropoutScale,
  kSinkToken,
  kCommonInputs,
  kPageTableK = kCommonInputs,
  kPageTableV,
  kBlockMask,  // forward
  kO = kCommonInputs,
  kDO,
  kStatsIn,
  kDropoutScaleInverse,  // backward
};
enum SdpaOut : size_t { kOutO, kOutStats, kOutMax, kOutSumExp, kOutRngDump };
enum SdpaBackwardOut : size_t { kOutDQ, kOutDK, kOutDV, kOutDBias, kOutRngDumpBackward, kOutDSink };

std::vector<ir::Port> attention_inputs(std::vector<ir::Port> more);
std::vector<ir::AttrSpec> attention_attrs(std::vector<ir::AttrSpec> more);
// Stats is there when generate_stats asks for it.
bool wants_stats(const AttrMap&, const std::vector<std::string>&);

// A node's sizes and options, read from the graph.
struct AttentionOptions {
  int64_t b = 0, hq = 0, hk = 0, hv = 0, sq = 0, skv = 0, dqk = 0, dv = 0;
  bool alibi = false, padding = false, bottom_right = false;
  std::optional<int64_t> left, right;
  std::optional<double> scale;  // when it is an attribute
  bool philox = false;          // dropout keyed by Seed and Offset
  double drop_probability = 0;

  // Query head h reads these heads of K and V.
  int64_t k_head(int64_t h) const { return h / (hq / hk); }
  int64_t v_head(int64_t h) const { return h / (hq / hv); }
  Dims score_dims() const { return {b, hq, sq, skv}; }
  double keep_scale() const { return 1 / (1 - drop_probability); }
};
AttentionOptions attention_options(const ir::Graph&, const ir::Node&);
// Pairs (query, key) of all batches and heads that the diagonal bounds leave: what counts as work. (Lengths are not
// known before execution.)
double visible_pairs(const AttentionOptions&);

// The slope of head h of `heads`: powers of 2^(-8/n), n the largest power of two in `heads`; the heads beyond n take
// the odd powers of 2^(-4/n).
double alibi_slope(int64_t h, int64_t heads);

// Dims and strides of an output that follows `like`: its dims, packed in the order of its strides.
void infer_like(ir::InferContext&, size_t out_port, const Dims& dim, const ir::Tensor& like);

// The rules that both ops share.
Status verify_attention(const ir::Graph&, const ir::Node&);
// "sdpa \"attn\"": how messages name a node.
std::string node_label(const ir::Node&);
// The tensor's dims must be `want`.
Status expect_dims(const ir::Graph&, const ir::Node&, ir::TensorId, const char* port, const Dims& want);

// The reference's view of a node: operands in double, masks decided element by element.
class ReferenceAttention {
 public:
  explicit ReferenceAttention(const RefContext&);

  struct Operand {
    RefTensor::Dense data;
    int64_t heads = 0, rows = 0, cols = 0;
    const double* values(int64_t b, int64_t h, int64_t row) const { return data.values.data() + at(b, h, row); }
    // Null when the operand is exact.
    const double* errors(int64_t b, int64_t h, int64_t row) const {
      return data.errors.empty() ? nullptr : data.errors.data() + at(b, h, row);
    }

   private:
    int64_t at(int64_t b, int64_t h, int64_t row) const { return ((b * heads + h) * rows + row) * cols; }
  };
  static Operand operand(const RefTensor&);

  const AttentionOptions o;
  const Operand q, k, v;

  // Whether query i of batch b sees key j, as far as padding and the diagonal bounds say.
  bool sees(int64_t b, int64_t i, int64_t j) const;
  // The scores of one query row, scaled, biased; kept[j] = 0 where a mask or a bias of -inf excludes key j.
  void scores(int64_t b, int64_t h, int64_t i, std::vector<Bounded>& s, std::vector<char>& kept) const;
  // What dropout multiplies P(i, j) with: 1 when there is none.
  Bounded dropout_factor(int64_t b, int64_t h, int64_t i, int64_t j) const;
  double keep_mask(int64_t b, int64_t h, int64_t i, int64_t j) const;  // 0 or 1 (Philox)
  Bounded scale() const { return scale_; }
  // What an engine may do to a factor of a matrix product: round it to the narrow type of the other operand, at once
  // or before it is multiplied by `later`.
  Bounded as_factor(Bounded x, double later = 1) const;

 private:
  const RefContext& ctx_;
  Bounded scale_ = 1;
  bool has_scale_ = false;
  std::vector<int64_t> len_q_, len_kv_;
  std::optional<RefBroadcast> bias_, drop_mask_, drop_scale_;
  Philox philox_;
  double factor_u_ = 0, factor_eta_ = 0;
};

// Sum of a[k] * b[k]; null errors mean exact operands.
Bounded bounded_dot(const double* a, const double* a_errors, const double* b, const double* b_errors, int64_t n);

// A vector of sums with one number of terms: sums[c] += w * x[c].
struct BoundedRow {
  std::vector<double> v, e, magnitude;
  int64_t terms = 0;
  explicit BoundedRow(size_t n = 0) : v(n), e(n), magnitude(n) {}
  void add(Bounded w, const double* x, const double* x_errors);
  Bounded total(size_t c) const { return sum_of_products(v[c], magnitude[c], e[c], terms); }
};

}  // namespace tilewright::ops
