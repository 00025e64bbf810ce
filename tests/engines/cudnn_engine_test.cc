// Planning with the cuDNN that is installed, for a GPU that is only described. What cuDNN compiles at run time needs a
// driver, so these graphs are convolutions.
#include <gmock/gmock.h>

#include "engines/cudnn/engine.h"
#include "engines/cudnn/loader.h"
#include "plan/plan_list.h"
#include "support/cudnn_graphs.h"

namespace tilewright::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CudnnPlanning : public ::testing::Test {
 protected:
  void SetUp() override {
    target_ = *Target::parse("h200");
    const std::vector<Reason> reasons = cudnn_engine().unavailable(target_);
    if (!reasons.empty()) GTEST_SKIP() << reasons[0].text;
  }
  Verdict propose(const ir::Graph& g) { return cudnn_engine().propose(g, target_); }
  std::unique_ptr<Executable> load(const ir::Graph& g, const Artifact& artifact) {
    auto e = cudnn_engine().load(g, artifact, target_, nullptr);
    EXPECT_TRUE(e) << e.status().err_msg;
    return e ? std::move(*e) : nullptr;
  }
  Target target_;
};

TEST_F(CudnnPlanning, AConvolutionHasPlans) {
  const IrBuilder b = conv_bias_relu({32, 128, 56, 56}, {256, 128, 3, 3}, DataType_t::BFLOAT16);
  const Verdict v = propose(b.graph);
  ASSERT_TRUE(v.proposal) << v.reasons[0].text;
  const std::vector<Candidate> list = v.proposal->candidates();
  EXPECT_GT(list.size(), 10u);
  int built = 0;
  for (const Candidate& c : list) {
    EXPECT_THAT(c.config, StartsWith("eng"));
    EXPECT_FALSE(c.modes.empty());
    const auto artifact = v.proposal->compile(c.config, nullptr);
    if (!artifact) {
      EXPECT_EQ(artifact.status().err_msg.find('\n'), std::string::npos);
      continue;
    }
    const auto e = load(b.graph, *artifact);
    ASSERT_TRUE(e);
    EXPECT_EQ(e->workspace_bytes(), c.workspace_bytes) << c.config;
    ++built;
  }
  EXPECT_GT(built, 10);
  EXPECT_GT(v.proposal->engine_count(), 0);
}

TEST_F(CudnnPlanning, PlansGoThroughFiles) {
  const IrBuilder b = conv_bias_relu({2, 16, 12, 12}, {32, 16, 3, 3});
  const Verdict v = propose(b.graph);
  ASSERT_TRUE(v.proposal) << v.reasons[0].text;
  const std::string config = v.proposal->candidates()[0].config;
  const auto artifact = v.proposal->compile(config, nullptr);
  ASSERT_TRUE(artifact) << artifact.status().err_msg;
  const auto e = load(b.graph, *artifact);
  ASSERT_TRUE(e);
  const auto bytes = e->saved();
  ASSERT_TRUE(bytes) << bytes.status().err_msg;
  const auto again = load(b.graph, {"cudnn", config, *bytes, nullptr});
  ASSERT_TRUE(again);
  EXPECT_EQ(*again->saved(), *bytes);
  EXPECT_EQ(again->steps()[0].name, e->steps()[0].name);
  EXPECT_EQ(again->workspace_bytes(), e->workspace_bytes());
  const auto from_config = load(b.graph, {"cudnn", config, {}, nullptr});
  ASSERT_TRUE(from_config);
  EXPECT_EQ(*from_config->saved(), *bytes);
}

TEST_F(CudnnPlanning, TwoConvolutionsAreTwoPlans) {
  const IrBuilder b = two_convolutions();
  const Verdict v = propose(b.graph);
  ASSERT_TRUE(v.proposal) << v.reasons[0].text;
  ASSERT_EQ(v.proposal->candidates()[0].config, "split");
  EXPECT_EQ(v.proposal->regions().size(), 2u);
  const auto artifact = v.proposal->compile("split", nullptr);
  ASSERT_TRUE(artifact) << artifact.status().err_msg;
  const auto e = load(b.graph, *artifact);
  ASSERT_TRUE(e);
  EXPECT_EQ(e->steps().size(), 2u);
  EXPECT_GE(e->workspace_bytes(), 2 * 16 * 12 * 12 * 2);
}

TEST_F(CudnnPlanning, KnobsOfAnEngine) {
  const IrBuilder b = conv_bias_relu({2, 16, 12, 12}, {32, 16, 3, 3});
  const Verdict v = propose(b.graph);
  ASSERT_TRUE(v.proposal);
  size_t knobs = 0;
  for (int64_t engine = 0; engine < v.proposal->engine_count(); ++engine)
    if (const auto list = v.proposal->knobs(engine)) {
      knobs += list->size();
      for (const Knob& k : *list) EXPECT_LE(k.minValue, k.maxValue);
    }
  EXPECT_GT(knobs, 0u);
  EXPECT_FALSE(v.proposal->knobs(v.proposal->engine_count()));
}

TEST_F(CudnnPlanning, ARefusalIsOneLineForEachEngine) {
  IrBuilder b;  // sums of no type that cuDNN convolves
  const auto x = b.input({2, 3, 8, 8}, DataType_t::INT64), w = b.input({4, 3, 3, 3}, DataType_t::INT64);
  b.output(b.conv("conv_fprop", x, w, {1, 1}, {1, 1}, {1, 1}), DataType_t::INT64);
  const Verdict v = propose(b.graph);
  EXPECT_FALSE(v.proposal);
  EXPECT_FALSE(v.reasons.empty());
  for (const Reason& r : v.reasons) {
    EXPECT_EQ(r.text.find('\n'), std::string::npos) << r.text;
    EXPECT_LT(r.text.size(), 400u);
    EXPECT_THAT(r.text, AnyOf(HasSubstr("engine "), HasSubstr("cuDNN ")));
  }
}

}  // namespace
}  // namespace tilewright::testing
