// softmax along any axis, its statistics, and rows of -inf.
#include <gmock/gmock.h>

#include "ops/norm_cases.h"

namespace tilewright {
namespace {

using namespace norm_test;
using testing::HasSubstr;

OpGraph softmax(const Dims& dim, Layout layout, int64_t axis, bool stats, DataType_t io, DataType_t compute) {
  OpGraph g(io, compute);
  AttrMap attrs{{"generate_stats", stats}};
  if (axis >= 0) attrs["axis"] = axis;
  const Status s = g.add("softmax", {{"X", g.input("X", dim, strides(layout, dim))}}, attrs);
  EXPECT_TRUE(s.is_good()) << s.err_msg;
  return g;
}

const Dims kShapes[] = {{2, 3, 4, 5}, {3, 17}, {7}, {2, 1, 6}};

TEST(Softmax, IsTheFormula) {
  for (const Dims& dim : kShapes)
    for (int64_t axis = -1; axis < int64_t(dim.size()); ++axis)
      for (Layout layout : {Layout::kRowMajor, Layout::kPadded}) {
        const OpGraph g = softmax(dim, layout, axis, true, DataType_t::DOUBLE, DataType_t::DOUBLE);
        const Harness h(g.graph, {.seed = 1});
        const Reader x(h, g, g.in("X"));
        Dims rows = dim;
        rows[axis < 0 ? dim.size() - 1 : size_t(axis)] = 1;
        EXPECT_EQ(g[g.out("Stats")].dim, rows);
        ByIndex sum = sums(dim, rows, [&](const Dims& i) { return std::exp(x(i)); });
        expect_values(g, h, g.out("Y"), [&](const Dims& i) { return std::exp(x(i)) / sum[masked(i, rows)]; });
        expect_values(g, h, g.out("Stats"), [&](const Dims& i) { return std::log(sum[i]); });
      }
}

TEST(Softmax, DecompositionAgrees) {
  for (const Dims& dim : kShapes)
    for (int64_t axis = 0; axis < int64_t(dim.size()); ++axis)
      for (auto [io, compute] :
           {std::pair(DataType_t::FLOAT, DataType_t::FLOAT), std::pair(DataType_t::HALF, DataType_t::FLOAT),
            std::pair(DataType_t::DOUBLE, DataType_t::DOUBLE)})
        for (bool stats : {false, true}) {
          const OpGraph g = softmax(dim, Layout::kRowMajor, axis, stats, io, compute);
          expect_decomposition_agrees(g.graph, Harness(g.graph, {.seed = 3}).bindings());
        }
}

TEST(Softmax, RowsOfMinusInfinityGiveZeros) {
  const OpGraph g = softmax({3, 4}, Layout::kRowMajor, 1, true, DataType_t::FLOAT, DataType_t::FLOAT);
  Harness h(g.graph, {.fill = Fill::None});
  float* x = static_cast<float*>(h.memory(g.in("X")));
  const float inf = std::numeric_limits<float>::infinity();
  const float rows[] = {1, 2, 3, 4, -inf, -inf, -inf, -inf, -inf, 0, -inf, 0};
  std::copy(std::begin(rows), std::end(rows), x);
  h.inputs_changed();
  expect_decomposition_agrees(g.graph, h.bindings());
  const auto values = *evaluate_reference(g.graph, h.bindings());
  const auto& y = values[size_t(g.out("Y"))].values;
  const auto& stats = values[size_t(g.out("Stats"))].values;
  for (size_t i = 4; i < 8; ++i) EXPECT_EQ(y[i].v, 0);
  EXPECT_EQ(stats[1].v, -kInfinity);
  EXPECT_EQ(y[8].v, 0);
  EXPECT_EQ(y[9].v, 0.5);
  EXPECT_NEAR(stats[2].v, std::log(2.0), 1e-15);
}

TEST(Softmax, LargeValuesDoNotOverflow) {
  const OpGraph g = softmax({1, 3}, Layout::kRowMajor, 1, true, DataType_t::FLOAT, DataType_t::FLOAT);
  Harness h(g.graph, {.fill = Fill::None});
  float* x = static_cast<float*>(h.memory(g.in("X")));
  x[0] = 30000, x[1] = 30000, x[2] = -30000;
  h.inputs_changed();
  expect_decomposition_agrees(g.graph, h.bindings());
  const auto values = *evaluate_reference(g.graph, h.bindings());
  EXPECT_EQ(values[size_t(g.out("Y"))].values[0].v, 0.5);
  EXPECT_EQ(values[size_t(g.out("Y"))].values[2].v, 0);
  EXPECT_NEAR(values[size_t(g.out("Stats"))].values[0].v, 30000 + std::log(2.0), 1e-9);
}

TEST(Softmax, WithoutStatistics) {
  const OpGraph g = softmax({2, 3}, Layout::kRowMajor, -1, false, DataType_t::FLOAT, DataType_t::FLOAT);
  EXPECT_EQ(g.out("Stats"), ir::kNone);
}

TEST(SoftmaxRules, AxisIsADimOfX) {
  for (int64_t axis : {-1, 2}) {
    OpGraph g;
    const Status s = g.add("softmax", {{"X", g.input("scores", {2, 3})}}, {{"axis", axis}});
    EXPECT_EQ(s.code, error_code_t::INVALID_VALUE);
    EXPECT_THAT(s.err_msg, HasSubstr(fmt::format("axis {} is not a dim of X \"scores\", which is [2, 3]", axis)));
  }
}

TEST(SoftmaxBounds, StayTightOnLongRows) {
  const OpGraph g = softmax({2, 4096}, Layout::kRowMajor, 1, true, DataType_t::FLOAT, DataType_t::FLOAT);
  const auto values = evaluate_reference(g.graph, Harness(g.graph, {.seed = 7}).bindings());
  ASSERT_TRUE(values);
  for (const Bounded& b : (*values)[size_t(g.out("Y"))].values) EXPECT_LT(b.e, 1e-3 * b.v);
  for (const Bounded& b : (*values)[size_t(g.out("Stats"))].values) EXPECT_LT(b.e, 1e-3);
}

}  // namespace
}  // namespace tilewright
