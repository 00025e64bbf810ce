// MATMUL: C[..., M, N] = A[..., M, K] B[..., K, N]; leading dims broadcast. With M/N/K_override (INT32, one size per
// batch) the elements of A and B beyond those sizes count as the padding value.
#include "ops/reference.h"

namespace tilewright::ops {
namespace {

using namespace ir;

enum In { kA, kB, kM, kN, kK };

Status infer(InferContext& c) {
  const Tensor &a = c.in(kA), &b = c.in(kB);
  const size_t rank = a.dim.size();
  if (rank < 2 || b.dim.size() != rank)
    return invalid("matmul \"{}\": A \"{}\" {} and B \"{}\" {} must have one rank of at least 2", c.node.name, a.name,
                   to_text(a.dim), b.name, to_text(b.dim));
  if (a.dim[rank - 1] != b.dim[rank - 2])
    return invalid("matmul \"{}\": inner sizes differ: A \"{}\" is {} (K = {}), B \"{}\" is {} (K = {})", c.node.name,
                   a.name, to_text(a.dim), a.dim[rank - 1], b.name, to_text(b.dim), b.dim[rank - 2]);
  const Dims batch_a(a.dim.begin(), a.dim.end() - 2), batch_b(b.dim.begin(), b.dim.end() - 2);
  Dims dim;
  if (rank > 2) {
    auto batch = broadcast_dims({batch_a, batch_b});
    if (!batch)
      return error(error_code_t::SHAPE_DEDUCTION_FAILED, "matmul \"{}\": batch dims of A \"{}\" {} and B \"{}\" {}: {}",
                   c.node.name, a.name, to_text(a.dim), b.name, to_text(b.dim), batch.status().err_msg);
    dim = *batch;
  }
  dim.push_back(a.dim[rank - 2]);
  dim.push_back(b.dim[rank - 1]);
  c.set_dim(c.out(0), dim);
  if (c.out(0).dim != dim)
    return invalid("matmul \"{}\": C \"{}\" is {}, expected {}", c.node.name, c.out(0).name, to_text(c.out(0).dim),
                   to_text(dim));
  c.set_stride(c.out(0), row_major_strides(dim));
  return {};
}

Status verify(const Graph& g, const Node& n) {
  const Dims& dim = g.tensor(n.out[0]).dim;
  Dims batch(dim.begin(), dim.end() - 2);
  for (size_t port = kM; port <= kK; ++port) {
    if (port >= n.in.size() || n.in[port] == kNone) continue;
    const Tensor& t = g.tensor(n.in[port]);
    if (!is_integer_type(t.type) || volume(t.dim) != volume(batch))
      return invalid("matmul \"{}\": {} \"{}\" is {} {}, expected INT32 with one size per batch ({} of them)", n.name,
                     n.op->inputs[port].name, t.name, to_string(t.type), to_text(t.dim), volume(batch));
  }
  for (TensorId id : {n.in[kA], n.in[kB], n.out[0]})
    if (g.tensor(id).type == DataType_t::COMPLEX_FP32 || g.tensor(id).type == DataType_t::COMPLEX_FP64)
      return not_supported("matmul \"{}\": \"{}\" is complex; complex arithmetic is not available in this version",
                           n.name, g.tensor(id).name);
  return {};
}

// The size per batch from an override tensor, or the full size.
int64_t size_of(const RefContext& c, size_t port, int64_t batch, int64_t full) {
  return c.has_in(port) ? std::clamp<int64_t>(int64_t(c.in(port).at_linear(batch).v), 0, full) : full;
}

void reference(RefContext& c) {
  RefTensor& out = c.out(0);
  const Dims& dim = out.dim();
  const size_t rank = dim.size();
  const int64_t m_size = dim[rank - 2], n_size = dim[rank - 1], k_size = c.in(kA).dim()[rank - 1];
  Dims batch(dim.begin(), dim.end() - 2);
  if (batch.empty()) batch = {1};
  const RefTensor::Dense a = c.in(kA).dense(), b = c.in(kB).dense();
  const bool exact = a.errors.empty() && b.errors.empty();
  const double pad = c.node.attr("padding_value", 0.0);

  // Element strides of the batch dims in the dense operands: 0 where an operand broadcasts.
  auto batch_strides = [&](const Dims& operand) {
    Dims packed = row_major_strides(operand), stride(batch.size(), 0);
    for (size_t d = 0; d + 2 < rank; ++d) stride[d] = operand[d] == 1 ? 0 : packed[d];
    return stride;
  };
  const Dims stride_a = batch_strides(c.in(kA).dim()), stride_b = batch_strides(c.in(kB).dim());

  c.for_each(volume(batch) * m_size, [&](int64_t row) {
    const int64_t bi = row / m_size, m = row % m_size;
    Dims index(batch.size());
    unravel(bi, batch, index.data());
    const int64_t a0 = offset_of(stride_a, index.data()) + m * k_size;
    const int64_t b0 = offset_of(stride_b, index.data());
    const int64_t m_end = size_of(c, kM, bi, m_size), n_end = size_of(c, kN, bi, n_size),
                  k_end = size_of(c, kK, bi, k_size);
    std::vector<double> sum(size_t(n_size), 0), magnitude(sum), error(sum);
    for (int64_t k = 0; k < k_size; ++k) {
      const bool given = m < m_end && k < k_end;
      const double av = given ? a.values[size_t(a0 + k)] : pad;
      const double ae = given && !a.errors.empty() ? a.errors[size_t(a0 + k)] : 0;
      const double* bv = b.values.data() + b0 + k * n_size;
      const int64_t inside = k < k_end ? n_end : 0;
      for (int64_t n = 0; n < inside; ++n) sum[size_t(n)] += av * bv[n];
      for (int64_t n = 0; n < inside; ++n) magnitude[size_t(n)] += std::fabs(av * bv[n]);
      for (int64_t n = inside; n < n_size; ++n) sum[size_t(n)] += av * pad, magnitude[size_t(n)] += std::fabs(av * pad);
      if (exact) continue;
      const double* be = b.errors.empty() ? nullptr : b.errors.data() + b0 + k * n_size;
      for (int64_t n = 0; n < inside; ++n) {
        const double eb = be ? be[n] : 0;
        error[size_t(n)] +=
            bounded::product(std::fabs(av), eb) + bounded::product(std::fabs(bv[n]), ae) + bounded::product(ae, eb);
      }
    }
    for (int64_t n = 0; n < n_size; ++n) {
      BoundedSum total;
      total.v = sum[size_t(n)], total.e = error[size_t(n)], total.magnitude = magnitude[size_t(n)];
      total.terms = k_size + 1;  // a product rounds as well: seen when there is only one
      out.values[size_t(row * n_size + n)] = total.total();
    }
  });
}

double flops(const Graph& g, const Node& n) {
  return 2.0 * double(volume(g.tensor(n.out[0]).dim)) * double(g.tensor(n.in[kA]).dim.back());
}

}  // namespace

extern const OpDef kMatmul;
const OpDef kMatmul = {
    .name = "matmul",
    .tag = "MATMUL",
    .inputs = {{"A"},
               {"B"},
               {"M_override", PortKind::Optional},
               {"N_override", PortKind::Optional},
               {"K_override", PortKind::Optional}},
    .outputs = {{"C"}},
    .attrs = {{"padding_value", AttrKind::Float}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .flops = flops,
};

}  // namespace tilewright::ops
