#include "engines/host/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/harness.h"
#include "support/ir_builder.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

// A product, and a turned copy of it.
ir::Graph product_and_copy() {
  testing::IrBuilder b;
  const auto y = b.pw(PointwiseMode_t::MUL, {b.input({3, 5, 7}, DataType_t::HALF), b.scalar(std::nullopt, 3)});
  b.graph.tensors[size_t(y)].role = ir::Role::Output;
  const auto t = b.pw(PointwiseMode_t::GELU_FWD, {y});
  b.graph.tensors[size_t(t)].role = ir::Role::Output;
  b.graph.tensors[size_t(t)].stride = {60, 1, 7};  // with gaps
  return b.graph;
}

TEST(HostEngine, ServesGpusOnly) {
  EXPECT_TRUE(host_engine().unavailable(*Target::parse("h200")).empty());
  const auto reasons = host_engine().unavailable(Target::this_machine());
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_THAT(reasons[0].text, HasSubstr("cpu:"));
}

TEST(HostEngine, SaysThatItIsSlowAndWhatItDoes) {
  const Verdict v = host_engine().propose(product_and_copy(), *Target::parse("h200"));
  ASSERT_TRUE(v.proposal);
  const auto candidates = v.proposal->candidates();
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_TRUE(candidates[0].everything && candidates[0].last_resort);
  EXPECT_EQ(candidates[0].workspace_bytes, 0);
  EXPECT_THAT(candidates[0].notes[0], HasSubstr("copies to the host"));
  EXPECT_THAT(v.proposal->explain(), HasSubstr("copies outputs back"));
}

TEST(HostEngineGpu, IsRight) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::driver_lookup().problem;
  const Target target = *Target::of_gpu(0);
  const ir::Graph graph = product_and_copy();
  const Verdict v = host_engine().propose(graph, target);
  ASSERT_TRUE(v.proposal);
  const auto artifact = v.proposal->compile(v.proposal->candidates()[0].config, nullptr);
  ASSERT_TRUE(artifact);
  const auto plan = host_engine().load(graph, *artifact, target, nullptr);
  ASSERT_TRUE(plan) << plan.status();
  Harness harness(graph);
  const cuda::ScopedDevice device(0);
  for (int run = 0; run < 2; ++run) {
    const Status s = harness.check_run(**plan, {0, nullptr, nullptr});
    EXPECT_TRUE(s.is_good()) << s;
  }
}

}  // namespace
}  // namespace tilewright
