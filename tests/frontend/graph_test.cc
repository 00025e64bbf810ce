// The life of a graph through the public API: describe, build, choose, execute, save.
#include "tilewright/graph.h"

#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "ops/reference.h"

namespace tilewright {
namespace {

using graph::Graph;
using graph::Matmul_attributes;
using graph::Pointwise_attributes;
using graph::Reduction_attributes;
using graph::Tensor_attributes;
using graph::TensorPtr;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor_attributes described(const char* name, std::vector<int64_t> dim, int64_t uid = -1) {
  Tensor_attributes t;
  t.set_name(name).set_dim(dim).set_stride(row_major_strides(dim));
  if (uid >= 0) t.set_uid(uid);
  return t;
}

Graph float_graph() {
  Graph g;
  g.set_io_data_type(DataType_t::FLOAT)
      .set_intermediate_data_type(DataType_t::FLOAT)
      .set_compute_data_type(DataType_t::FLOAT);
  return g;
}

// C = relu(A B) with uids 0, 1, 2.
struct MatmulRelu {
  Graph g = float_graph();
  TensorPtr a, b, c;
  explicit MatmulRelu(int64_t m = 2, int64_t k = 3, int64_t n = 2) {
    a = g.tensor(described("A", {1, m, k}, 0));
    b = g.tensor(described("B", {1, k, n}, 1));
    auto product = g.matmul(a, b, Matmul_attributes().set_name("mm"));
    c = g.pointwise(product, Pointwise_attributes().set_name("act").set_mode(PointwiseMode_t::RELU_FWD));
    c->set_output(true).set_uid(2);
  }
};

TEST(Graph, AnAlignmentIsAtLeastAByte) {
  for (int64_t alignment : {0, -16}) {
    MatmulRelu s;
    s.a->set_alignment(alignment);
    const error_t e = s.g.validate();
    EXPECT_EQ(e.code, error_code_t::INVALID_VALUE);
    EXPECT_THAT(e.err_msg, HasSubstr(fmt::format("\"A\" has an alignment of {} bytes", alignment)));
  }
}

TEST(Graph, RunsMatmulRelu) {
  MatmulRelu s;
  ASSERT_TRUE(s.g.build({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
  EXPECT_THAT(s.c->get_dim(), ElementsAre(1, 2, 2));
  std::vector<float> a = {1, 2, 3, -4, -5, -6}, b = {1, 0, 0, 1, 1, 1}, c(4, -1);
  for (int64_t i = 0; i < s.g.get_execution_plan_count(); ++i) {
    ASSERT_TRUE(s.g.build_plan_at_index(i).is_good());
    std::vector<char> workspace(size_t(s.g.get_workspace_size_plan_at_index(i)) + 1);
    std::unordered_map<TensorPtr, void*> by_tensor = {{s.a, a.data()}, {s.b, b.data()}, {s.c, c.data()}};
    ASSERT_TRUE(s.g.execute_plan_at_index(nullptr, by_tensor, workspace.data(), i).is_good());
    EXPECT_THAT(c, ElementsAre(4, 5, 0, 0));
    std::fill(c.begin(), c.end(), -1.f);
    std::unordered_map<int64_t, void*> by_uid = {{0, a.data()}, {1, b.data()}, {2, c.data()}, {77, nullptr}};
    ASSERT_TRUE(s.g.execute_plan_at_index(nullptr, by_uid, workspace.data(), i).is_good());
    EXPECT_THAT(c, ElementsAre(4, 5, 0, 0));
    std::fill(c.begin(), c.end(), -1.f);
    void* sorted[] = {a.data(), b.data(), c.data()};
    ASSERT_TRUE(s.g.execute_plan_at_index(nullptr, sorted, 3, workspace.data(), i).is_good());
    EXPECT_THAT(c, ElementsAre(4, 5, 0, 0));
  }
}

TEST(Graph, NamesTheMissingTensor) {
  MatmulRelu s;
  ASSERT_TRUE(s.g.build({HeurMode_t::FALLBACK}).is_good());
  std::vector<float> a(6), c(4);
  std::unordered_map<int64_t, void*> pack = {{0, a.data()}, {2, c.data()}};
  error_t e = s.g.execute(nullptr, pack, nullptr);
  EXPECT_EQ(e.code, error_code_t::INVALID_VARIANT_PACK);
  EXPECT_THAT(e.err_msg, HasSubstr("\"B\""));
  pack[1] = nullptr;
  e = s.g.execute(nullptr, pack, nullptr);
  EXPECT_EQ(e.code, error_code_t::INVALID_VARIANT_PACK);
  EXPECT_THAT(e.err_msg, HasSubstr("null"));
}

TEST(Graph, ReportsStepsOutOfOrder) {
  MatmulRelu s;
  EXPECT_EQ(s.g.create_execution_plans({HeurMode_t::A}).code, error_code_t::HEURISTIC_QUERY_FAILED);
  EXPECT_EQ(s.g.check_support().code, error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED);
  std::unordered_map<int64_t, void*> pack;
  EXPECT_EQ(s.g.execute(nullptr, pack, nullptr).code, error_code_t::GRAPH_EXECUTION_FAILED);
  std::vector<BehaviorNote_t> notes;
  EXPECT_TRUE(s.g.get_behavior_notes(notes).is_bad());
  std::vector<uint8_t> bytes;
  EXPECT_TRUE(s.g.serialize(bytes).is_bad());
}

TEST(Graph, ValidatesTwiceAndFollowsChangedInputs) {
  MatmulRelu s;
  ASSERT_TRUE(s.g.validate().is_good());
  ASSERT_TRUE(s.g.validate().is_good());
  s.a->set_dim({1, 5, 3}).set_stride({15, 3, 1});
  ASSERT_TRUE(s.g.validate().is_good());
  EXPECT_THAT(s.c->get_dim(), ElementsAre(1, 5, 2));
}

TEST(Graph, EmptyGraphValidatesAndMoves) {
  Graph g;
  EXPECT_TRUE(g.validate().is_good());
  Graph h = std::move(g);
  EXPECT_TRUE(h.validate().is_good());
  EXPECT_TRUE(h.validate().is_good());
}

TEST(Graph, RejectsInnerSizesThatDiffer) {
  Graph g = float_graph();
  auto a = g.tensor(described("left", {1, 2, 3}));
  auto b = g.tensor(described("right", {1, 4, 2}));
  g.matmul(a, b, Matmul_attributes().set_name("mm"))->set_output(true);
  const error_t e = g.validate();
  EXPECT_EQ(e.code, error_code_t::INVALID_VALUE);
  for (const char* part : {"mm", "left", "right", "3", "4"}) EXPECT_THAT(e.err_msg, HasSubstr(part));
}

TEST(Graph, NamesTheTensorWithoutDims) {
  Graph g = float_graph();
  auto a = g.tensor(Tensor_attributes().set_name("nameless dims"));
  g.pointwise(a, Pointwise_attributes().set_mode(PointwiseMode_t::ABS))->set_output(true);
  const error_t e = g.validate();
  EXPECT_EQ(e.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(e.err_msg, HasSubstr("nameless dims"));
}

TEST(Graph, NamesTheVirtualTensorWithoutType) {  // neither an intermediate type nor a compute type to take
  Graph g;
  g.set_io_data_type(DataType_t::FLOAT);
  auto a = g.tensor(described("A", {2, 2}));
  auto y = g.pointwise(a, Pointwise_attributes().set_name("first").set_mode(PointwiseMode_t::ABS));
  g.pointwise(y, Pointwise_attributes().set_mode(PointwiseMode_t::NEG))->set_output(true);
  const error_t e = g.validate();
  EXPECT_EQ(e.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(e.err_msg, HasSubstr("first::OUT_0"));
  g.set_compute_data_type(DataType_t::FLOAT);
  EXPECT_TRUE(g.validate().is_good());
  EXPECT_EQ(y->get_data_type(), DataType_t::FLOAT);
}

TEST(Graph, NamesTheSecondUserOfAUid) {
  Graph g = float_graph();
  auto a = g.tensor(described("A", {2, 2}, 1));
  auto y = g.pointwise(a, Pointwise_attributes().set_name("op").set_mode(PointwiseMode_t::ABS));
  y->set_output(true).set_uid(1).set_name("result");
  const error_t e = g.validate();
  EXPECT_EQ(e.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(e.err_msg, HasSubstr("result"));
}

TEST(Graph, OnlyInputsAreConstant) {
  MatmulRelu s;
  s.b->set_is_constant(true);
  ASSERT_TRUE(s.g.validate().is_good());
  const size_t key = s.g.key();
  Graph rebuilt;
  ASSERT_TRUE(rebuilt.deserialize(Json(s.g)).is_good());
  ASSERT_TRUE(rebuilt.validate().is_good());
  EXPECT_EQ(rebuilt.key(), key);
  MatmulRelu plain;
  ASSERT_TRUE(plain.g.validate().is_good());
  EXPECT_NE(plain.g.key(), key);
  s.c->set_name("result").set_is_constant(true);
  const error_t e = s.g.validate();
  EXPECT_EQ(e.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(e.err_msg, HasSubstr("\"result\" is marked constant, which only inputs can be"));
}

TEST(Graph, RejectsAnOutputThatOverlapsItself) {
  Graph g = float_graph();
  auto a = g.tensor(described("A", {2, 2, 3}));
  auto y = g.pointwise(a, Pointwise_attributes().set_mode(PointwiseMode_t::IDENTITY));
  y->set_output(true).set_name("Y").set_dim({2, 2, 3}).set_stride({6, 1, 3});
  const error_t e = g.validate();
  EXPECT_EQ(e.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(e.err_msg, HasSubstr("\"Y\""));
}

TEST(Graph, IdentityChangesTheLayout) {  // a report of the field's: logical values stay, memory is permuted
  Graph g = float_graph();
  auto a = g.tensor(described("A", {2, 2, 3}, 0));
  auto y = g.pointwise(a, Pointwise_attributes().set_mode(PointwiseMode_t::IDENTITY));
  y->set_output(true).set_uid(1).set_stride({6, 1, 2});
  ASSERT_TRUE(g.build({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
  std::vector<float> in(12), out(12, NAN);
  for (int i = 0; i < 12; ++i) in[size_t(i)] = float((5 * i + 3) % 17 - 8) / 8;
  std::unordered_map<int64_t, void*> pack = {{0, in.data()}, {1, out.data()}};
  std::vector<char> workspace(size_t(g.get_workspace_size()) + 1);
  ASSERT_TRUE(g.execute(nullptr, pack, workspace.data()).is_good());
  EXPECT_THAT(std::vector<float>(out.begin(), out.begin() + 6),
              ElementsAre(-0.625f, -0.875f, 0, -0.25f, 0.625f, 0.375f));
}

TEST(Graph, SixtyChainedAdds) {
  Graph g = float_graph();
  auto t = g.tensor(described("start", {1, 1, 1}, 0));
  auto quarter = g.tensor(0.25f);
  for (int i = 0; i < 60; ++i) t = g.pointwise(t, quarter, Pointwise_attributes().set_mode(PointwiseMode_t::ADD));
  t->set_output(true).set_uid(1);
  ASSERT_TRUE(g.build({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
  float in = 0.5f, out = 0;
  std::unordered_map<int64_t, void*> pack = {{0, &in}, {1, &out}};
  std::vector<char> workspace(size_t(g.get_workspace_size()) + 1);
  ASSERT_TRUE(g.execute(nullptr, pack, workspace.data()).is_good());
  EXPECT_EQ(out, 15.5f);
}

TEST(Graph, ReadsHostScalarsAtEachExecute) {
  Graph g = float_graph();
  auto a = g.tensor(described("A", {4}, 0));
  auto s = g.tensor(described("s", {1}, 1).set_is_pass_by_value(true));
  auto y = g.pointwise(a, s, Pointwise_attributes().set_mode(PointwiseMode_t::MUL));
  y->set_output(true).set_uid(2);
  ASSERT_TRUE(g.build({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
  std::vector<float> in = {1, 2, 3, 4}, out(4);
  float scale = 2;
  std::unordered_map<int64_t, void*> pack = {{0, in.data()}, {1, &scale}, {2, out.data()}};
  std::vector<char> workspace(size_t(g.get_workspace_size()) + 1);
  ASSERT_TRUE(g.execute(nullptr, pack, workspace.data()).is_good());
  EXPECT_THAT(out, ElementsAre(2, 4, 6, 8));
  scale = -1;
  ASSERT_TRUE(g.execute(nullptr, pack, workspace.data()).is_good());
  EXPECT_THAT(out, ElementsAre(-1, -2, -3, -4));
}

TEST(Graph, KeyIsOfContentNotOfNames) {
  MatmulRelu one, two, other(3);
  two.a->set_name("renamed").set_uid(40);
  two.g.set_name("another name");
  EXPECT_EQ(one.g.key(), two.g.key());
  EXPECT_NE(one.g.key(), other.g.key());
  MatmulRelu scaled;
  auto s = scaled.g.tensor(2.0f);
  scaled.g.pointwise(scaled.c, s, Pointwise_attributes().set_mode(PointwiseMode_t::MUL))->set_output(true);
  MatmulRelu scaled3;
  auto s3 = scaled3.g.tensor(3.0f);
  scaled3.g.pointwise(scaled3.c, s3, Pointwise_attributes().set_mode(PointwiseMode_t::MUL))->set_output(true);
  EXPECT_NE(scaled.g.key(), scaled3.g.key());  // a baked value is content
  const size_t before = one.g.key();
  ASSERT_TRUE(one.g.build({HeurMode_t::FALLBACK}).is_good());
  EXPECT_EQ(one.g.key(), before);
}

TEST(Graph, DynamicShapesShareAKeyAndACache) {
  auto cache = std::make_shared<KernelCache>();
  size_t key = 0;
  for (int64_t m : {2, 5, 9}) {
    MatmulRelu s(m);
    s.g.set_dynamic_shape_enabled(true).set_kernel_cache(cache);
    ASSERT_TRUE(s.g.build({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
    if (key) {
      EXPECT_EQ(s.g.key(), key);
    }
    key = s.g.key();
  }
  EXPECT_TRUE(cache->is_finalized());
  EXPECT_EQ(cache->misses(), 1);
  EXPECT_EQ(cache->hits(), 2);
  std::string text;
  ASSERT_TRUE(cache->to_json(text).is_good());
  EXPECT_TRUE(cache->from_json(text).is_bad());  // finalized already
  auto restored = std::make_shared<KernelCache>();
  ASSERT_TRUE(restored->from_json(text).is_good());
  MatmulRelu s(4);
  s.g.set_dynamic_shape_enabled(true).set_kernel_cache(restored);
  ASSERT_TRUE(s.g.build({HeurMode_t::A}).is_good());
  EXPECT_EQ(restored->hits(), 1);
  EXPECT_TRUE(KernelCache().from_json("{\"tilewright_kernel_cache\":2}").is_bad());
  EXPECT_TRUE(KernelCache().from_json("nonsense").is_bad());
}

TEST(Graph, KernelCacheNeedsDynamicShapes) {
  MatmulRelu s;
  s.g.set_kernel_cache(std::make_shared<KernelCache>());
  EXPECT_EQ(s.g.validate().code, error_code_t::GRAPH_NOT_SUPPORTED);
}

TEST(Graph, ExecutesWithOverriddenShapes) {
  MatmulRelu s(2, 3, 2);
  s.g.set_override_shape_enabled(true);
  ASSERT_TRUE(s.g.build({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
  std::vector<float> a = {1, 2, 3, 4, 5, 6, 7, 8, 9}, b = {1, 0, 0, 1, 1, 1}, c(6);
  std::unordered_map<int64_t, void*> pack = {{0, a.data()}, {1, b.data()}, {2, c.data()}};
  std::vector<char> workspace(size_t(s.g.get_workspace_size()) + 1);
  for (int repeat = 0; repeat < 2; ++repeat) {
    std::fill(c.begin(), c.end(), NAN);
    const error_t e =
        s.g.execute(nullptr, pack, workspace.data(), {0, 2}, {{1, 3, 3}, {1, 3, 2}}, {{9, 3, 1}, {6, 2, 1}});
    ASSERT_TRUE(e.is_good()) << e.err_msg;
    EXPECT_THAT(c, ElementsAre(4, 5, 10, 11, 16, 17));
  }
  EXPECT_TRUE(
      s.g.execute(nullptr, pack, workspace.data(), {0, 2}, {{1, 3, 4}, {1, 3, 2}}, {{12, 4, 1}, {6, 2, 1}}).is_bad());
  EXPECT_TRUE(s.g.execute(nullptr, pack, workspace.data(), {99}, {{1}}, {{1}}).is_bad());
}

TEST(Graph, FiltersKeepTheRowAndTheReason) {
  MatmulRelu s;
  ASSERT_TRUE(s.g.validate().is_good());
  s.g.deselect_engines({"no such engine"});  // harmless before the list exists
  ASSERT_TRUE(s.g.build_operation_graph().is_good());
  ASSERT_TRUE(s.g.create_execution_plans({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
  const int64_t count = s.g.get_execution_plan_count();
  s.g.deselect_engines({"reference"});
  for (int64_t i = 0; i < count; ++i) {
    std::string name;
    ASSERT_TRUE(s.g.get_plan_name_at_index(i, name).is_good());
    if (name != "reference") continue;
    const error_t e = s.g.build_plan_at_index(i);
    EXPECT_TRUE(e.is_bad());
    EXPECT_THAT(e.err_msg, HasSubstr("deselected \"reference\""));
    EXPECT_EQ(s.g.plans()[size_t(i)].state, PlanState::Excluded);
  }
  EXPECT_EQ(s.g.get_execution_plan_count(), count);
  s.g.deselect_engines({""});  // everything
  const error_t e = s.g.check_support();
  EXPECT_EQ(e.code, error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED);
  s.g.deselect_engines({});
  EXPECT_TRUE(s.g.check_support().is_good());
}

TEST(Graph, AutotuneMeasuresEveryPlanAndChoosesTheFastest) {
  MatmulRelu s(32, 32, 32);
  ASSERT_TRUE(s.g.build({HeurMode_t::A, HeurMode_t::FALLBACK}, BuildPlanPolicy_t::ALL).is_good());
  std::vector<float> a(1024, 1), b(1024, 1), c(1024);
  std::unordered_map<int64_t, void*> pack = {{0, a.data()}, {1, b.data()}, {2, c.data()}};
  std::vector<char> workspace(size_t(s.g.get_autotune_workspace_size()) + 1);
  ASSERT_TRUE(s.g.autotune(nullptr, pack, workspace.data()).is_good());
  double best = 1e30, chosen = 0;
  for (const PlanInfo& p : s.g.plans()) {
    if (p.index < 0) continue;
    ASSERT_TRUE(p.measured_ms.has_value());
    best = std::min(best, *p.measured_ms);
    if (p.chosen) chosen = *p.measured_ms;
  }
  EXPECT_EQ(chosen, best);
}

TEST(Graph, SerializesAndRunsByUid) {
  MatmulRelu s;
  ASSERT_TRUE(s.g.build({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(s.g.serialize(bytes).is_good());
  Graph loaded;
  const error_t e = loaded.deserialize(nullptr, bytes);
  ASSERT_TRUE(e.is_good()) << e.err_msg;
  std::string before, after;
  ASSERT_TRUE(s.g.get_plan_name(before).is_good());
  ASSERT_TRUE(loaded.get_plan_name(after).is_good());
  EXPECT_EQ(before, after);
  EXPECT_EQ(s.g.key(), loaded.key());
  Tensor_attributes t;
  ASSERT_TRUE(loaded.query_tensor_attributes_of_uid(2, t).is_good());
  EXPECT_THAT(t.get_dim(), ElementsAre(1, 2, 2));
  std::vector<float> a = {1, 2, 3, -4, -5, -6}, b = {1, 0, 0, 1, 1, 1}, c(4, -1);
  std::unordered_map<int64_t, void*> pack = {{0, a.data()}, {1, b.data()}, {2, c.data()}};
  std::vector<char> workspace(size_t(loaded.get_workspace_size()) + 1);
  ASSERT_TRUE(loaded.execute(nullptr, pack, workspace.data()).is_good());
  EXPECT_THAT(c, ElementsAre(4, 5, 0, 0));
  std::vector<uint8_t> again;
  ASSERT_TRUE(loaded.serialize(again).is_good());
  EXPECT_EQ(bytes, again);
}

TEST(Graph, RefusesDamagedPlanFiles) {
  MatmulRelu s;
  ASSERT_TRUE(s.g.build({HeurMode_t::FALLBACK}).is_good());
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(s.g.serialize(bytes).is_good());
  auto refused = [](const std::vector<uint8_t>& b) {
    Graph g;
    const error_t e = g.deserialize(nullptr, b);
    return e.is_bad() && !e.err_msg.empty();
  };
  for (size_t n = 0; n < bytes.size(); ++n)
    ASSERT_TRUE(refused({bytes.begin(), bytes.begin() + long(n)})) << "cut to " << n << " bytes";
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<uint8_t> b = bytes;
    b[i] ^= uint8_t(1u << (i % 8));
    ASSERT_TRUE(refused(b)) << "bit flipped in byte " << i;
  }
  std::vector<uint8_t> longer = bytes;
  longer.push_back(0);
  EXPECT_TRUE(refused(longer));
  EXPECT_TRUE(refused({}));
}

TEST(Graph, JsonRoundTrip) {
  MatmulRelu s;
  const Json before = s.g;
  Graph rebuilt;
  ASSERT_TRUE(rebuilt.deserialize(before).is_good());
  const Json after = rebuilt;
  EXPECT_EQ(before, after) << before << "\n" << after;
  EXPECT_TRUE(rebuilt.validate().is_good());
  ASSERT_TRUE(s.g.validate().is_good());
  EXPECT_EQ(s.g.key(), rebuilt.key());
}

TEST(Graph, JsonErrorsSayWhere) {
  auto message = [](const char* text) {
    Graph g;
    return g.deserialize(Json::parse(text)).err_msg;
  };
  EXPECT_THAT(message("[]"), HasSubstr("no object"));
  EXPECT_THAT(message(R"({"nodes":[{"tag":"WHAT"}]})"), HasSubstr("\"WHAT\""));
  EXPECT_THAT(message(R"({"nodes":[{"tag":"MATMUL","inputs":{"Z":"a"}}]})"), HasSubstr("\"Z\""));
  EXPECT_THAT(message(R"({"nodes":[{"tag":"POINTWISE","name":"p","mode":"ADDD"}]})"), HasSubstr("ADDD"));
  EXPECT_THAT(message(R"({"tensors":{"a":{"dim":"x"}}})"), HasSubstr("dim"));
}

TEST(Graph, RecordsAndReplays) {
  MatmulRelu s;
  ASSERT_TRUE(s.g.build({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
  std::vector<float> a = {1, 2, 3, -4, -5, -6}, b = {1, 0, 0, 1, 1, 1}, c(4, -1), d(4, -1);
  std::unordered_map<int64_t, void*> pack = {{0, a.data()}, {1, b.data()}, {2, c.data()}};
  std::vector<char> workspace(size_t(s.g.get_workspace_size()) + 1);
  LaunchList list;
  EXPECT_TRUE(list.replay().is_bad());
  ASSERT_TRUE(s.g.record(nullptr, pack, workspace.data(), list).is_good());
  EXPECT_GE(list.launch_count(), 1);
  ASSERT_TRUE(list.replay().is_good());
  EXPECT_THAT(c, ElementsAre(4, 5, 0, 0));
  a[0] = 11;  // new data in the same memory
  ASSERT_TRUE(list.replay().is_good());
  EXPECT_THAT(c, ElementsAre(14, 5, 0, 0));
  pack[2] = d.data();
  ASSERT_TRUE(s.g.update(nullptr, pack, workspace.data(), list).is_good());
  ASSERT_TRUE(list.replay().is_good());
  EXPECT_THAT(d, ElementsAre(14, 5, 0, 0));
}

TEST(Graph, VerifyModePassesRightPlans) {
  MatmulRelu s;
  s.g.set_verify_enabled(true);
  ASSERT_TRUE(s.g.build({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
  std::vector<float> a = {1, 2, 3, -4, -5, -6}, b = {1, 0, 0, 1, 1, 1}, c(4, -1);
  std::unordered_map<int64_t, void*> pack = {{0, a.data()}, {1, b.data()}, {2, c.data()}};
  std::vector<char> workspace(size_t(s.g.get_workspace_size()) + 1);
  const error_t e = s.g.execute(nullptr, pack, workspace.data());
  ASSERT_TRUE(e.is_good()) << e.err_msg;
  EXPECT_THAT(c, ElementsAre(4, 5, 0, 0));
}

TEST(Graph, ManyThreadsExecuteOnePlan) {
  MatmulRelu s(8, 16, 8);
  ASSERT_TRUE(s.g.build({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
  std::vector<float> a(128), b(128);
  std::iota(a.begin(), a.end(), 0.f);
  std::iota(b.begin(), b.end(), 1.f);
  auto run = [&](std::vector<float>& c) {
    std::vector<char> workspace(size_t(s.g.get_workspace_size()) + 64);
    std::unordered_map<int64_t, void*> pack = {{0, a.data()}, {1, b.data()}, {2, c.data()}};
    return s.g.execute(nullptr, pack, workspace.data());
  };
  std::vector<float> want(64);
  ASSERT_TRUE(run(want).is_good());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        std::vector<float> c(64, NAN);
        if (run(c).is_bad() || c != want) ++wrong[t];
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

TEST(Graph, CopiesByValue) {
  MatmulRelu s;
  Graph copy = s.g;
  ASSERT_TRUE(copy.build({HeurMode_t::FALLBACK}).is_good());
  EXPECT_GT(copy.get_execution_plan_count(), 0);
  EXPECT_EQ(s.g.get_execution_plan_count(), 0);
}

TEST(Graph, ForeignHandleIsRefused) {
  MatmulRelu s;
  int not_a_handle = 0;
  const error_t e = s.g.build(reinterpret_cast<cudnnContext*>(&not_a_handle), {HeurMode_t::A});
  EXPECT_EQ(e.code, error_code_t::HANDLE_ERROR);
  Handle h;
  ASSERT_TRUE(create_handle(&h).is_good());
  EXPECT_TRUE(s.g.build(h, {HeurMode_t::FALLBACK}).is_good());
  EXPECT_TRUE(destroy_handle(h).is_good());
  EXPECT_TRUE(destroy_handle(h).is_bad());
}

TEST(Graph, BuildsForDescribedDevicesWithoutAHandle) {
  auto here = std::make_shared<DeviceProperties>();
  ASSERT_TRUE(here->build().is_good());
  std::vector<uint8_t> bytes, again;
  ASSERT_TRUE(here->serialize(bytes).is_good());
  auto there = std::make_shared<DeviceProperties>();
  ASSERT_TRUE(there->deserialize(bytes).is_good());
  ASSERT_TRUE(there->serialize(again).is_good());
  EXPECT_EQ(bytes, again);
  MatmulRelu s;
  s.g.set_device_properties(there);
  EXPECT_TRUE(s.g.build({HeurMode_t::FALLBACK}).is_good());
  EXPECT_TRUE(DeviceProperties().deserialize({1, 2, 3}).is_bad());
}

TEST(Graph, PlansAreNeverRefused) {  // one mode that yields nothing still gives plans
  MatmulRelu s;
  for (HeurMode_t mode : {HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK, HeurMode_t::OPENSOURCE}) {
    MatmulRelu one;
    EXPECT_TRUE(one.g.build({mode}).is_good()) << mode;
  }
  MatmulRelu none;
  EXPECT_TRUE(none.g.build(std::vector<HeurMode_t>{}).is_good());
}

}  // namespace
}  // namespace tilewright
