// Plan files that fit, that fit no more, and that never did.
#include "plan/plan_file.h"

#include <gmock/gmock.h>

#include "frontend/builder.h"

namespace tilewright {
namespace {

using graph::Graph;
using graph::Pointwise_attributes;
using graph::Tensor_attributes;
using ::testing::HasSubstr;

TEST(PlanFile, SectionsComeBack) {
  const Sections sections = {{"a", {1, 2, 3}}, {"empty", {}}, {"eightchr", std::vector<uint8_t>(1000, 7)}};
  auto read = read_sections(write_sections(sections));
  ASSERT_TRUE(read) << read.status().err_msg;
  EXPECT_EQ(*read, sections);
}

TEST(PlanFile, NewerFormatIsSaidSo) {
  std::vector<uint8_t> bytes = write_sections({{"a", {1}}});
  bytes[8] = 9;  // the format number
  const auto read = read_sections(bytes);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.status().err_msg, HasSubstr("format 9"));
}

std::vector<uint8_t> saved(Graph& g) {
  g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  auto x = g.tensor(Tensor_attributes().set_name("x").set_dim({4}).set_stride({1}).set_uid(1));
  g.pointwise(x, Pointwise_attributes().set_mode(PointwiseMode_t::NEG))->set_output(true).set_uid(2);
  std::vector<uint8_t> bytes;
  g.deselect_engines({"cpu."});
  EXPECT_TRUE(g.build({HeurMode_t::FALLBACK}).is_good());
  EXPECT_TRUE(g.serialize(bytes).is_good());
  return bytes;
}

// The file with one text of its plan section replaced by another.
std::vector<uint8_t> altered(const std::vector<uint8_t>& bytes, const std::string& from, const std::string& to) {
  Sections sections = *read_sections(bytes);
  std::string plan(sections["plan"].begin(), sections["plan"].end());
  const size_t at = plan.find(from);
  EXPECT_NE(at, plan.npos) << plan;
  plan.replace(at, from.size(), to);
  sections["plan"] = {plan.begin(), plan.end()};
  return write_sections(sections);
}

TEST(PlanFile, AnotherEngineVersionIsAnErrorOrBuiltAgain) {
  Graph g;
  const auto bytes = altered(saved(g), "\"engine_version\":1", "\"engine_version\":77");
  Graph strict, lenient;
  const Status s = graph::load_plan_file(strict.impl(), bytes, graph::Loading::Strict, {});
  EXPECT_EQ(s.code, error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED);
  EXPECT_THAT(s.err_msg, HasSubstr("version 77"));
  ASSERT_TRUE(graph::load_plan_file(lenient.impl(), bytes, graph::Loading::Lenient, {}).is_good());
  EXPECT_THAT(lenient.explain(), HasSubstr("built again"));
  std::vector<float> x = {1, 2, 3, 4}, y(4);
  std::unordered_map<int64_t, void*> pack = {{1, x.data()}, {2, y.data()}};
  std::vector<char> workspace(size_t(lenient.get_workspace_size()) + 64);
  ASSERT_TRUE(lenient.execute(nullptr, pack, workspace.data()).is_good());
  EXPECT_THAT(y, ::testing::ElementsAre(-1, -2, -3, -4));
}

TEST(PlanFile, AnUnknownEngineIsNamed) {
  Graph g;
  const auto bytes = altered(saved(g), "\"engine\":\"reference\"", "\"engine\":\"future.engine\"");
  Graph strict, lenient;
  EXPECT_THAT(graph::load_plan_file(strict.impl(), bytes, graph::Loading::Strict, {}).err_msg,
              HasSubstr("future.engine"));
  EXPECT_TRUE(graph::load_plan_file(lenient.impl(), bytes, graph::Loading::Lenient, {}).is_good());
}

TEST(PlanFile, ASectionThatIsMissingOrNoJson) {
  Graph g;
  Sections sections = *read_sections(saved(g));
  for (const char* tag : {"graph", "plan"}) {
    Sections without = sections, nonsense = sections;
    without.erase(tag);
    nonsense[tag] = {'{', '{'};
    Graph a, b;
    EXPECT_THAT(a.deserialize(nullptr, write_sections(without)).err_msg, HasSubstr(tag));
    EXPECT_THAT(b.deserialize(nullptr, write_sections(nonsense)).err_msg, HasSubstr(tag));
  }
}

}  // namespace
}  // namespace tilewright
