// softmax: Y = exp(X - max) / sum exp(X - max) along one axis; Stats = max + log(sum exp(X - max)). A row of -inf alone
// gives zeros, and -inf in Stats.
#include "ops/norm_common.h"
#include "ops/pointwise_math.h"

namespace tilewright::ops {
namespace {

size_t axis_of(const ir::Node& n, const Dims& x) { return size_t(n.attr<int64_t>("axis", int64_t(x.size()) - 1)); }

Dims row_dims(const ir::Node& n, const Dims& x) {
  Dims d = x;
  d[axis_of(n, x)] = 1;
  return d;
}

Status check_axis(const ir::Node& n, const ir::Tensor& x) {
  const int64_t rank = int64_t(x.dim.size()), axis = n.attr<int64_t>("axis", rank - 1);
  if (axis >= 0 && axis < rank) return {};
  return invalid("softmax \"{}\": axis {} is not a dim of X \"{}\", which is {}", n.name, axis, x.name, to_text(x.dim));
}

Status infer(ir::InferContext& c) {
  const ir::Tensor& x = c.in(0);
  TW_RETURN_IF_BAD(check_axis(c.node, x));
  norm::fill_same(c, c.out(0), x);
  if (c.has_out(1)) norm::fill_like(c, c.out(1), row_dims(c.node, x.dim), x);
  return {};
}

Status verify(const ir::Graph& g, const ir::Node& n) {
  const ir::Tensor& x = g.tensor(n.in[0]);
  TW_RETURN_IF_BAD(check_axis(n, x));
  return norm::Rules(g, n).out_is(0, x.dim).out_is(1, row_dims(n, x.dim)).status();
}

void reference(RefContext& c) {
  const norm::Values x(c.in(0));
  const norm::Groups rows(c.in(0).dim(), row_dims(c.node, c.in(0).dim()));
  c.for_each(rows.count(), [&](int64_t row) {
    Bounded max = -kInfinity;
    for (int64_t k = 0; k < rows.size(); ++k) max = pw::max(max, x[rows.element(row, k)]);
    const bool empty = max.v == -kInfinity;
    BoundedSum sum;
    std::vector<Bounded> e(size_t(rows.size()));
    for (int64_t k = 0; k < rows.size(); ++k) {
      e[size_t(k)] = empty ? Bounded(0) : pw::exp(x[rows.element(row, k)] - max);
      sum.add(e[size_t(k)]);
    }
    const Bounded total = sum.total();
    for (int64_t k = 0; k < rows.size(); ++k)
      c.out(0).values[size_t(rows.element(row, k))] = empty ? Bounded(0) : e[size_t(k)] / total;
    if (c.has_out(1)) c.out(1).values[size_t(row)] = empty ? max : max + pw::log(total);
  });
}

void decompose(Rewriter& r) {
  const ir::TensorId x = r.in(0);
  const Dims rows = row_dims(r.node(), r.dim(x));
  const DataType_t compute = r.node().compute == DataType_t::NOT_SET ? DataType_t::FLOAT : r.node().compute;
  const ir::TensorId max = r.reduce(ReductionMode_t::MAX, x, rows);
  // -inf - lowest is -inf, where -inf - -inf would be NaN.
  const ir::TensorId shift = r.pointwise(PointwiseMode_t::MAX, {max, r.constant(-largest_finite(compute))});
  const ir::TensorId e = r.pointwise(PointwiseMode_t::EXP, {r.minus(x, shift)});
  const ir::TensorId sum = r.reduce(ReductionMode_t::ADD, e, rows);
  // The largest element gives exp(0) = 1, so only a row of -inf alone has a sum below 1/2.
  r.pointwise(PointwiseMode_t::DIV, {e, r.pointwise(PointwiseMode_t::MAX, {sum, r.constant(0.5)})}, r.out(0));
  if (r.has_out(1)) r.plus(max, r.pointwise(PointwiseMode_t::LOG, {sum}), r.out(1));
}

// max, subtract, exp, add, divide
double flops(const ir::Graph& g, const ir::Node& n) { return 5.0 * double(volume(g.tensor(n.in[0]).dim)); }

bool with_stats(const AttrMap& attrs, const std::vector<std::string>&) {
  auto it = attrs.find("generate_stats");
  return it != attrs.end() && it->second == AttrValue(true);
}

}  // namespace

extern const ir::OpDef kSoftmax;
const ir::OpDef kSoftmax{
    .name = "softmax",
    .tag = "SOFTMAX",
    .inputs = {{"X"}},
    .outputs = {{"Y"}, {"Stats", ir::PortKind::Required, with_stats}},
    .attrs = {{"axis", ir::AttrKind::Int}, {"generate_stats", ir::AttrKind::Bool}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .decompose = decompose,
    .flops = flops,
};

}  // namespace tilewright::ops
