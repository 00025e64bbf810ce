// Random graphs of views between other ops, against the reference: what is read, computed and stored through them.
#include <gtest/gtest.h>

#include <numeric>

#include "engines/cpu/engine.h"
#include "support/engine_check.h"
#include "support/ir_builder.h"
#include "support/random.h"

namespace tilewright::testing {
namespace {

using Id = ir::TensorId;
using P = PointwiseMode_t;
using R = ReductionMode_t;
using D = DataType_t;

class ViewGraph {
 public:
  explicit ViewGraph(uint64_t seed) : random_(seed) {}

  IrBuilder build() {
    std::vector<Id> made = {first()};
    for (int64_t steps = random_.between(3, 9); steps > 0; --steps) {
      const Id x = made.size() > 1 && random_.one_in(3) ? random_.of(made) : made.back();
      made.push_back(random_.one_in(2) ? view(x) : compute(x));
      if (random_.one_in(5)) output(made.back());
    }
    output(made.back());
    return std::move(b_);
  }

 private:
  Id input(const Dims& dim) { return b_.input(dim, random_.of({D::FLOAT, D::HALF}), random_.input_strides(dim)); }

  Id first() {
    switch (random_.between(0, 2)) {
      case 0: return b_.op("matmul", {input({2, 6, 7}), input({2, 7, 20})});
      case 1: return b_.conv("conv_fprop", input({2, 3, 5, 4}), input({6, 3, 3, 3}), {1, 1}, {1, 1}, {1, 1});
      default: return b_.pw(P::ABS, {input({2, 6, 20})});
    }
  }

  Id view(Id x) {
    const Dims dim = b_.dim(x);
    const int64_t kind = random_.between(0, 3);
    if (kind == 0) {
      Dims slices, step;
      for (int64_t d : dim) {
        const int64_t begin = random_.one_in(3) ? random_.between(0, d - 1) : 0;
        slices.push_back(begin), slices.push_back(random_.one_in(2) ? d : random_.between(begin + 1, d));
        step.push_back(random_.between(1, 2));
      }
      return b_.op("slice", {x}, {{"slices", slices}, {"slice_strides", step}});
    }
    if (kind == 1) return reshape(x);
    Dims order(dim.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[size_t(random_.between(0, int64_t(i) - 1))]);
    return b_.op("transpose", {x}, {{"permutation", order}});
  }

  // Splits a dim or joins two, as a view of row-major memory or by the order of elements.
  Id reshape(Id x) {
    Dims dim = b_.dim(x);
    const size_t d = size_t(random_.between(0, int64_t(dim.size()) - 1));
    if (d + 1 < dim.size() && random_.one_in(2)) {
      dim[d] *= dim[d + 1];
      dim.erase(dim.begin() + int64_t(d) + 1);
    } else if (dim.size() < 6) {
      const int64_t part = dim[d] % 2 == 0 ? 2 : 1;
      dim[d] /= part;
      dim.insert(dim.begin() + int64_t(d) + random_.between(0, 1), part);
    }
    const bool row_major =
        b_.graph.tensor(x).role == ir::Role::Virtual && b_.graph.tensor(x).stride == row_major_strides(b_.dim(x));
    if (!row_major || random_.one_in(2))
      return b_.op("reshape", {x}, {{"reshape_mode", std::string("LOGICAL")}, {"dim", dim}});
    return b_.op("reshape", {x}, {{"dim", dim}, {"stride", row_major_strides(dim)}});
  }

  Id compute(Id x) {
    const Dims dim = b_.dim(x);
    if (random_.one_in(6)) {
      Dims kept = dim;
      kept[size_t(random_.between(0, int64_t(dim.size()) - 1))] = 1;
      return b_.pw(P::SUB, {x, b_.reduce(random_.of({R::MAX, R::AVG}), x, kept)});
    }
    if (random_.one_in(3)) return b_.pw(random_.of({P::TANH_FWD, P::RELU_FWD, P::NEG, P::IDENTITY}), {x});
    if (random_.one_in(5)) return b_.pw(P::MUL, {x, x});
    Dims other = dim;
    for (int64_t& d : other)
      if (random_.one_in(3)) d = 1;
    Id y = random_.one_in(6) ? b_.scalar(0.5f, dim.size()) : input(other);
    if (random_.one_in(4)) y = b_.pw(P::SIN, {y});
    return b_.pw(random_.of({P::ADD, P::MUL, P::SUB, P::MAX}), {x, y});
  }

  void output(Id t) {
    if (b_.graph.tensor(t).role != ir::Role::Virtual) return;
    b_.output(t, random_.of({D::FLOAT, D::HALF, D::BFLOAT16}));
  }

  Random random_;
  IrBuilder b_;
};

TEST(ViewGraphFuzz, EveryPlanAgreesWithTheReference) {
  for (uint64_t seed : seeds(1, 400)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    const IrBuilder b = ViewGraph(seed).build();
    if (::testing::Test::HasFatalFailure()) return;
    check_engine(cpu_fused_engine(), b.graph, {.seed = seed});
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace tilewright::testing
