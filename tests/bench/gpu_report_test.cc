#include "gpu_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tilewright::bench {
namespace {

using ::testing::HasSubstr;

GpuRow row() {
  GpuRow r;
  r.name = "matmul/1x2x3", r.flops = 2e9;
  return r;
}

GpuPlan plan(const char* engine, const char* name, double ms, const char* problem = "", bool wrong = false,
             bool excused = false) {
  GpuPlan p;
  p.engine = engine, p.name = name, p.ms = ms, p.problem = problem, p.wrong = wrong, p.excused = excused;
  p.build_ms = 10;
  return p;
}

GpuContest contest() {
  GpuContest c;
  c.plans = {plan("cudnn", "cudnn.eng1", 2), plan("cudnn", "cudnn.eng2", 1), plan("other", "other[x]", 4),
             plan("cudnn", "cudnn.eng3", 0, "it did not build")};
  c.refused = {{"third", "op: no such op"}};
  c.copy_ms = 0.5, c.bytes = 1e6;
  return c;
}

TEST(BenchReport, ALinePerEngineWithItsFirstAndItsBestPlan) {
  const auto list = outcomes_of(row(), contest());
  ASSERT_EQ(list.size(), 3u);
  const GpuOutcome &cudnn = list[0], &other = list[1], &third = list[2];
  EXPECT_EQ(cudnn.plan, "cudnn.eng2");
  EXPECT_EQ(cudnn.plan0, "cudnn.eng1");
  EXPECT_EQ(cudnn.plan0_ms, 2);
  EXPECT_EQ(cudnn.best_ms, 1);
  EXPECT_EQ(cudnn.plans, 3);
  EXPECT_EQ(cudnn.failed, 1);
  EXPECT_EQ(cudnn.rate(), 2e12);
  EXPECT_TRUE(cudnn.ok());
  EXPECT_EQ(other.ratio_to_cudnn_best, 0.25);
  EXPECT_EQ(third.note, "refused: op: no such op");
  EXPECT_TRUE(third.ok());
}

TEST(BenchReport, AWrongPlanIsAnErrorUnlessItsNotesTellOfLessExactness) {
  GpuContest c = contest();
  c.plans.push_back(plan("cudnn", "cudnn.fft", 0, "off by 1", true, true));
  EXPECT_TRUE(outcomes_of(row(), c)[0].ok());
  EXPECT_EQ(outcomes_of(row(), c)[0].excused, 1);
  c.plans.push_back(plan("cudnn", "cudnn.eng9", 0, "12 of 64 differ", true));
  EXPECT_FALSE(outcomes_of(row(), c)[0].ok());
  EXPECT_EQ(outcomes_of(row(), c)[0].error, "cudnn.eng9: 12 of 64 differ");
}

TEST(BenchReport, AnEngineWithNoPlanThatRunsIsAnError) {
  GpuContest c;
  c.plans = {plan("cudnn", "cudnn.eng3", 0, "it did not build")};
  EXPECT_THAT(outcomes_of(row(), c)[0].error, HasSubstr("no plan ran: cudnn.eng3: it did not build"));
}

TEST(BenchReport, PeersAreReadAndHeldAgainst) {
  const auto front_end = Peer::parse(
      R"({"name": "front end", "held": "cudnn", "rows": [{"row": "matmul/1x2x3", "ms": 0.99, "plan0_ms": 2.0, "plans": 2}]})");
  const auto torch = Peer::parse(R"({"name": "PyTorch 2", "rows": [{"row": "matmul/1x2x3", "ms": 3}]})");
  ASSERT_TRUE(front_end && torch);
  GpuOutcome o = outcomes_of(row(), contest())[0];
  hold_against(o, {*torch, *front_end});
  EXPECT_EQ(o.target, 0.98);
  EXPECT_TRUE(o.ok());
  ASSERT_EQ(o.peers.size(), 2u);
  EXPECT_EQ(o.peers[0].peer, "front end");
  EXPECT_EQ(o.peers[1].ratio, 3);
  GpuOutcome fewer = o;
  fewer.failed = 2;  // of 3
  EXPECT_FALSE(fewer.ok());
  GpuOutcome slower = o;
  slower.peers[0].ratio = 0.97;
  EXPECT_FALSE(slower.ok());
  GpuOutcome worse_first = o;
  worse_first.plan0_ms = 2.1;
  EXPECT_FALSE(worse_first.ok());
  EXPECT_THAT(table_line(slower, {*torch, *front_end}, false), HasSubstr("SHORT"));

  EXPECT_THAT(Peer::parse("[]").status().err_msg, HasSubstr("\"name\""));
  EXPECT_THAT(Peer::parse(R"({"name": "x", "rows": [{"row": 1}]})").status().err_msg, HasSubstr("\"ms\""));
  EXPECT_THAT(Peer::read("/absent.json").status().err_msg, HasSubstr("cannot read \"/absent.json\""));
}

TEST(BenchReport, JsonHasEveryRowAndKeepsThoseOfAnEarlierFile) {
  GpuHeader h;
  h.gpu = "a GPU", h.copy_bandwidth = 4e12, h.command = "./dev bench gpu";
  const auto j = to_json(h, outcomes_of(row(), contest()), {}, nullptr);
  for (const char* key :
       {"gpu", "target", "driver", "cudnn", "clocks", "copy_bandwidth", "matmul_rate", "date", "command"})
    EXPECT_TRUE(j.contains(key)) << key;
  ASSERT_EQ(j["rows"].size(), 3u);
  for (const auto& r : j["rows"])
    for (const char* key :
         {"row", "engine", "plan", "plan0_ms", "best_ms", "rate", "ratio_to_cudnn_best", "error", "target", "ok"})
      EXPECT_TRUE(r.contains(key)) << key;
  const nlohmann::ordered_json before = {{"rows", {{{"row", "older"}, {"ok", true}}, {{"row", "matmul/1x2x3"}}}}};
  const auto merged = to_json(h, outcomes_of(row(), contest()), {}, &before);
  EXPECT_EQ(merged["rows"].size(), 4u);
  EXPECT_EQ(merged["rows"][3]["row"], "older");
}

}  // namespace
}  // namespace tilewright::bench
