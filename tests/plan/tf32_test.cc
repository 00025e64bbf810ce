#include "plan/tf32.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "plan/harness.h"
#include "support/ir_builder.h"

namespace tilewright {
namespace {

using testing::IrBuilder;

// Cut to 10 bits of fraction.
float as_tf32(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits &= 0xffffe000u;
  std::memcpy(&x, &bits, 4);
  return x;
}

// The product of operands, each of them first changed.
template <class Change>
bool right(const ir::Graph& graph, const Change& change) {
  Harness harness(graph, {1});
  const auto* a = static_cast<const float*>(harness.memory(0));
  const auto* b = static_cast<const float*>(harness.memory(1));
  auto* y = static_cast<float*>(harness.memory(2));
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) {
      double sum = 0;
      for (int k = 0; k < 16; ++k) sum += double(change(a[i * 16 + k])) * double(change(b[k * 8 + j]));
      y[i * 8 + j] = float(sum);
    }
  return harness.check().is_good();
}

TEST(Tf32, RoundedAndUnroundedOperandsAreRightAndCoarserOnesAreNot) {
  IrBuilder b;
  const auto x = b.input({1, 8, 16}), w = b.input({1, 16, 8});
  b.output(b.node("matmul", {x, w})[0]);
  const ir::Graph wide = with_tf32(b.graph);
  ASSERT_EQ(wide.nodes.size(), 3u);
  const auto same = [](float v) { return v; };
  EXPECT_TRUE(right(b.graph, same));
  EXPECT_FALSE(right(b.graph, as_tf32));
  EXPECT_TRUE(right(wide, same));
  EXPECT_TRUE(right(wide, [](float v) { return as_tf32(v + v / 4096); }));  // rounded to nearest, about
  EXPECT_FALSE(right(wide, [](float v) { return v * 1.01f; }));
}

TEST(Tf32, OtherTypesAndOtherOpsStay) {
  IrBuilder b;
  const auto x = b.input({1, 8, 16}, DataType_t::HALF), w = b.input({1, 16, 8}, DataType_t::HALF);
  b.output(b.pw(PointwiseMode_t::RELU_FWD, {b.node("matmul", {x, w})[0]}));
  EXPECT_EQ(with_tf32(b.graph).nodes.size(), 2u);
}

}  // namespace
}  // namespace tilewright
