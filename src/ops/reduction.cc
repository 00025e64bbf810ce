// REDUCTION: X -> Y over the dims where Y is 1 and X is not.
#include "ops/pointwise_math.h"
#include "ops/reference.h"

namespace tilewright::ops {
namespace {

using namespace ir;

Status infer(InferContext& c) {
  c.set_dim(c.out(0), c.in(0).dim);
  c.set_stride(c.out(0), channels_last_strides(c.out(0).dim));
  return {};
}

Status verify(const Graph& g, const Node& n) {
  if (n.attr_enum("mode", ReductionMode_t::NOT_SET) == ReductionMode_t::NOT_SET)
    return not_set("reduction \"{}\": mode is not set", n.name);
  const Tensor &x = g.tensor(n.in[0]), &y = g.tensor(n.out[0]);
  bool fits = x.dim.size() == y.dim.size();
  for (size_t d = 0; fits && d < x.dim.size(); ++d) fits = y.dim[d] == x.dim[d] || y.dim[d] == 1;
  if (!fits)
    return invalid("reduction \"{}\": \"{}\" {} does not reduce to \"{}\" {}: each dim of Y must be X's or 1", n.name,
                   x.name, to_text(x.dim), y.name, to_text(y.dim));
  return {};
}

// Products: the relative errors add up.
struct Product {
  Bounded total = 1;
  void add(Bounded x) { total = total * x; }
};

Bounded fold(ReductionMode_t mode, int64_t count, const auto& element) {
  BoundedSum sum;
  Product product;
  Bounded best;
  for (int64_t i = 0; i < count; ++i) {
    const Bounded x = element(i);
    switch (mode) {
      case ReductionMode_t::ADD:
      case ReductionMode_t::AVG: sum.add(x); break;
      case ReductionMode_t::NORM1: sum.add(pw::abs(x)); break;
      case ReductionMode_t::NORM2: sum.add(x * x); break;
      case ReductionMode_t::MUL: product.add(x); break;
      case ReductionMode_t::MUL_NO_ZEROS: product.add(pw::where(pw::ne(x, Bounded(0)), x, Bounded(1))); break;
      case ReductionMode_t::MAX: best = i ? pw::max(best, x) : x; break;
      case ReductionMode_t::MIN: best = i ? pw::min(best, x) : x; break;
      case ReductionMode_t::AMAX: best = i ? pw::max(best, pw::abs(x)) : pw::abs(x); break;
      default: break;
    }
  }
  switch (mode) {
    case ReductionMode_t::ADD:
    case ReductionMode_t::NORM1: return sum.total();
    case ReductionMode_t::AVG: return sum.total() / Bounded(double(count));
    case ReductionMode_t::NORM2:  // of squares, which no error makes negative
      return bounded::apply([](double a) { return std::sqrt(std::max(a, 0.0)); }, sum.total());
    case ReductionMode_t::MUL:
    case ReductionMode_t::MUL_NO_ZEROS: return product.total;
    // The identity of an empty maximum or minimum; 0 for an empty largest magnitude.
    case ReductionMode_t::MAX: return count ? best : Bounded(-kInfinity);
    case ReductionMode_t::MIN: return count ? best : Bounded(kInfinity);
    default: return best;
  }
}

void reference(RefContext& c) {
  const RefTensor& x = c.in(0);
  RefTensor& y = c.out(0);
  const auto mode = c.node.attr_enum("mode", ReductionMode_t::NOT_SET);
  const size_t rank = x.dim().size();
  // The reduced dims as one small domain; its strides walk x's index.
  Dims reduced(rank, 1);
  for (size_t d = 0; d < rank; ++d)
    if (y.dim()[d] != x.dim()[d]) reduced[d] = x.dim()[d];
  const int64_t count = volume(reduced);
  c.for_each(y.volume(), [&](int64_t i) {
    Dims base(rank), step(rank);
    unravel(i, y.dim(), base.data());
    y.values[size_t(i)] = fold(mode, count, [&](int64_t k) {
      unravel(k, reduced, step.data());
      for (size_t d = 0; d < rank; ++d) step[d] += base[d];
      return x.at(step.data());
    });
  });
}

double flops(const Graph& g, const Node& n) { return double(volume(g.tensor(n.in[0]).dim)); }

}  // namespace

extern const OpDef kReduction;
const OpDef kReduction = {
    .name = "reduction",
    .tag = "REDUCTION",
    .inputs = {{"X"}},
    .outputs = {{"Y"}},
    .attrs = {{"mode", AttrKind::Enum, true, is_name_of<ReductionMode_t>}, {"is_deterministic", AttrKind::Bool}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
    .flops = flops,
};

}  // namespace tilewright::ops
