// Passes over rows as steps in registers, on every instruction set that the machine has, against the reference.
#include <gtest/gtest.h>

#include "engines/cpu/engine.h"
#include "support/engine_check.h"
#include "support/every_target.h"
#include "support/ir_builder.h"
#include "support/random.h"

namespace tilewright::testing {
namespace {

using P = PointwiseMode_t;
using R = ReductionMode_t;
using D = DataType_t;

// Lanes of all counts around those in flight, and a few blocks of them.
int64_t random_width(Random& random) {
  return random.one_in(3) ? random.of({int64_t{1}, int64_t{16}, int64_t{256}, int64_t{4096}, int64_t{9000}})
                          : random.between(1, 700);
}

// A row's values in random order, of random types, read several times, kept, folded and stored.
IrBuilder random_rows(Random& random) {
  const int64_t rows = random.one_in(4) ? 130 : random.between(1, 9), width = random_width(random);
  const auto type = [&] { return random.of({D::FLOAT, D::FLOAT, D::HALF, D::BFLOAT16, D::FP8_E5M2}); };
  IrBuilder b;
  std::vector<ir::TensorId> lanes = {b.input({rows, width}, type()), b.input({rows, width}, type())};
  std::vector<ir::TensorId> numbers = {b.input({rows, 1}), b.scalar(0.75f, 2)};
  const auto any = [&] {
    const int64_t kind = random.between(0, 9);
    if (kind < 2) return random.of(numbers);
    if (kind == 2) return b.input({1, width}, type());
    return random.one_in(2) ? lanes.back() : random.of(lanes);
  };
  for (int64_t steps = random.between(2, 10); steps > 0; --steps) {
    const auto x = lanes.back();
    if (random.one_in(5)) lanes.push_back(b.pw(random.of({P::TANH_FWD, P::RELU_FWD, P::GELU_FWD, P::ABS}), {x}));
    else if (random.one_in(6)) lanes.push_back(b.pw(P::MUL, {x, x}));
    else if (random.one_in(2)) lanes.push_back(b.pw(random.of({P::ADD, P::SUB, P::MUL, P::MAX}), {x, any()}));
    else lanes.push_back(b.pw(random.of({P::SUB, P::SUB, P::ADD}), {any(), x}));
    if (b.dim(lanes.back()) != Dims{rows, width}) lanes.pop_back();
    if (random.one_in(4))
      numbers.push_back(b.reduce(random.of({R::AVG, R::ADD, R::MAX, R::NORM2}), random.of(lanes), {rows, 1}));
  }
  if (random.one_in(2)) b.output(b.reduce(random.of({R::ADD, R::AVG, R::AMAX}), random.of(lanes), {1, width}));
  if (random.one_in(3)) b.output(b.pw(P::NEG, {random.of(lanes)}), D::INT8);
  b.output(b.pw(P::ADD, {lanes.back(), numbers.back()}), random.of({D::FLOAT, D::HALF, D::BFLOAT16}));
  return b;
}

TEST(CpuLaneSteps, RandomRowsOnEveryInstructionSet) {
  on_every_target([] {
    for (uint64_t seed : seeds(1, 60)) {
      SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
      Random random(seed);
      check_engine(cpu_fused_engine(), random_rows(random).graph, {.seed = seed});
      if (::testing::Test::HasFailure()) return;
    }
  });
}

}  // namespace
}  // namespace tilewright::testing
