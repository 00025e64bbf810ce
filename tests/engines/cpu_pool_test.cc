// Pooling on the CPU with the pointwise nodes around it, against the reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engines/cpu/engine.h"
#include "fuse/regions.h"
#include "support/engine_check.h"
#include "support/ir_builder.h"
#include "support/pooling_graph.h"

namespace tilewright::testing {
namespace {

using P = PointwiseMode_t;
using R = ReductionMode_t;
using D = DataType_t;
using ::testing::ElementsAre;

std::vector<std::string> region_names(const IrBuilder& b) {
  std::vector<std::string> list;
  for (const fuse::Region& r : fuse::fuse(b.graph).regions) list.push_back(r.name);
  return list;
}

TEST(CpuPool, TakesWhatIsAroundIt) {
  IrBuilder b;
  const Window w;
  auto x = b.input(w.x), scale = b.input({1, 5, 1, 1});
  AttrMap attrs = w.attrs();
  attrs["generate_index"] = false;
  auto y = b.op("resample", {b.pw(P::RELU_FWD, {b.pw(P::MUL, {x, scale})})}, attrs);
  auto z = b.pw(P::ADD, {y, b.input(w.y())});
  b.output(b.pw(P::TANH_FWD, {z}), D::HALF);
  EXPECT_THAT(region_names(b), ElementsAre("pooling mul+relu_fwd+resample+add+tanh_fwd"));
  EXPECT_EQ(fuse::fuse(b.graph).workspace_bytes, 0);
  check_engine(cpu_fused_engine(), b.graph);
}

TEST(CpuPool, ReductionsOfItsResultAndReadersOfItsIndexComeAfter) {
  IrBuilder b;
  const Window w;
  AttrMap attrs = w.attrs();
  attrs["generate_index"] = true;
  b.intermediate = D::FLOAT;
  auto out = b.node("resample", {b.pw(P::ABS, {b.input(w.x)})}, attrs);
  b.output(b.reduce(R::ADD, b.pw(P::NEG, {out[0]}), {1, 5, 1, 1}));
  b.output(b.pw(P::MUL, {out[0], out[1]}));
  EXPECT_EQ(fuse::fuse(b.graph).regions.size(), 3u) << fuse::fuse(b.graph).text();
  check_engine(cpu_fused_engine(), b.graph, {.fill = Fill::Integers});
}

TEST(CpuPool, RandomForward) {
  for (uint64_t seed : seeds(1, 80)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const ir::Graph graph = random_pooling(random);
    EXPECT_EQ(fuse::fuse(graph).regions.size(), 1u) << fuse::fuse(graph).text();
    check_engine(cpu_fused_engine(), graph, {.seed = seed, .fill = random.of({Fill::Random, Fill::Integers})});
  }
}

TEST(CpuPool, RandomBackward) {
  for (uint64_t seed : seeds(1, 80)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const ir::Graph graph = random_pooling_backward(random);
    EXPECT_EQ(fuse::fuse(graph).regions.size(), 1u) << fuse::fuse(graph).text();
    check_engine(cpu_fused_engine(), graph, {.seed = seed, .fill = random.of({Fill::Random, Fill::Integers})});
  }
}

}  // namespace
}  // namespace tilewright::testing
