#include "plan/tuning_db.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plan/engine.h"
#include "support/every_plan.h"
#include "support/ir_builder.h"
#include "tilewright/graph.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::IrBuilder;

class TuningDb : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("tilewright-tuning-{}", getpid());
    fs::create_directories(folder_);
    use(folder_ / "a" / "tuning.jsonl");
  }
  void TearDown() override {
    setenv("TILEWRIGHT_TUNING_DB", "off", 1);
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  void use(const fs::path& file) {
    file_ = file;
    setenv("TILEWRIGHT_TUNING_DB", file.c_str(), 1);
  }
  std::vector<std::string> lines() const {
    std::ifstream in(file_);
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }
  void append(const std::string& text) { std::ofstream(file_, std::ios::app) << text; }
  // Appends a copy of the last line with some fields changed.
  void append_changed(const json& changes) {
    json line = json::parse(lines().back());
    line.update(changes);
    append(line.dump() + "\n");
  }
  std::string fastest(const Target& target = target_of(2)) const {
    const auto tuned = find_tuned(graph(), target);
    return tuned ? fmt::format("{}[{}] {}", tuned->engine, tuned->config, tuned->ms) : "none";
  }
  static Target target_of(int threads) {
    Target t;
    t.arch = "avx2";
    t.threads = threads;
    return t;
  }
  static ir::Graph graph(int64_t size = 4) {
    IrBuilder b;
    b.output(b.pw(PointwiseMode_t::ADD, {b.input({size, 3}), b.input({1, 3})}));
    return b.graph;
  }

  fs::path folder_, file_;
};

TEST_F(TuningDb, RemembersTheFastestPlan) {
  EXPECT_EQ(fastest(), "none");
  ASSERT_TRUE(remember_tuned(graph(), target_of(2), {{"cpu.fused", "fuse=all", 2}, {"reference", "", 30}}).is_good());
  EXPECT_EQ(fastest(), "cpu.fused[fuse=all] 2");
  // Measured again, later: of each plan the last time counts.
  ASSERT_TRUE(remember_tuned(graph(), target_of(2), {{"cpu.fused", "fuse=anchors", 1}}).is_good());
  EXPECT_EQ(fastest(), "cpu.fused[fuse=anchors] 1");
  ASSERT_TRUE(remember_tuned(graph(), target_of(2), {{"cpu.fused", "fuse=anchors", 5}}).is_good());
  EXPECT_EQ(fastest(), "cpu.fused[fuse=all] 2");
}

TEST_F(TuningDb, OnlyTheSameWorkOnTheSameMachineCounts) {
  ASSERT_TRUE(remember_tuned(graph(), target_of(2), {{"cpu.fused", "fuse=all", 2}}).is_good());
  EXPECT_EQ(fastest(target_of(4)), "none");
  EXPECT_FALSE(find_tuned(graph(5), target_of(2)));
  append_changed({{"hardware", "another CPU"}, {"ms", 0.5}});
  append_changed({{"target", "cpu:avx512,threads=2"}, {"ms", 0.5}});
  append_changed({{"version", 1000}, {"ms", 0.5}});
  append_changed({{"engine", "gone"}, {"ms", 0.5}});
  EXPECT_EQ(fastest(), "cpu.fused[fuse=all] 2");
}

TEST_F(TuningDb, BadLinesAreSkippedAndCounted) {
  ASSERT_TRUE(remember_tuned(graph(), target_of(2), {{"cpu.fused", "fuse=all", 2}}).is_good());
  const std::string good = lines()[0];
  append("\n{\n[1, 2]\nnull\n\xff\xfe\n" + json{{"key", 5}}.dump() + "\n");
  append_changed({{"ms", "fast"}});
  append(good + "\n");
  append_changed({{"ms", -1}});
  append(good.substr(0, good.size() / 2));  // a process ended while it wrote
  ASSERT_TRUE(remember_tuned(graph(), target_of(2), {{"cpu.fused", "fuse=anchors", 1}}).is_good());
  EXPECT_EQ(fastest(), "cpu.fused[fuse=anchors] 1");
  const TuningDbInfo info = tuning_db_info();
  EXPECT_EQ(info.path, file_.string());
  EXPECT_EQ(info.records, 3);
  EXPECT_EQ(info.skipped, 8);
  EXPECT_EQ(info.problem, "");
}

TEST_F(TuningDb, ProcessesThatWriteAtOnceLoseNothing) {
  constexpr int kWrites = 200;
  const std::string config(300, 'x');
  pid_t children[2];
  for (pid_t& child : children) {
    child = fork();
    if (child != 0) continue;
    bool good = true;
    for (int i = 0; i < kWrites; ++i)
      good = good && remember_tuned(graph(), target_of(2), {{"cpu.fused", config, double(i + 1)}}).is_good();
    _exit(good ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(tuning_db_info().records, 2 * kWrites);
  EXPECT_EQ(tuning_db_info().skipped, 0);
}

TEST_F(TuningDb, AFolderThatCannotBeWrittenIsNoErrorButIsTold) {
  std::ofstream(folder_ / "file") << "no folder";
  use(folder_ / "file" / "tuning.jsonl");
  const Status s = remember_tuned(graph(), target_of(2), {{"cpu.fused", "fuse=all", 2}});
  EXPECT_THAT(s.err_msg, ::testing::HasSubstr("nothing is remembered: cannot open " + file_.string()));
  EXPECT_EQ(fastest(), "none");
  EXPECT_THAT(tuning_db_info().problem, ::testing::HasSubstr("is no folder"));
}

TEST_F(TuningDb, OffIsOff) {
  setenv("TILEWRIGHT_TUNING_DB", "off", 1);
  EXPECT_EQ(tuning_db_path(), "");
  EXPECT_TRUE(remember_tuned(graph(), target_of(2), {{"cpu.fused", "fuse=all", 2}}).is_bad());
  EXPECT_EQ(fastest(), "none");
  EXPECT_NE(tuning_db_info().problem, "");
}

TEST_F(TuningDb, TheUsersCacheFolderIsTheDefault) {
  unsetenv("TILEWRIGHT_TUNING_DB");
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before ? before : "";
  setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  EXPECT_EQ(tuning_db_path(), (folder_ / "tilewright" / "tuning.jsonl").string());
  before ? setenv("XDG_CACHE_HOME", kept.c_str(), 1) : unsetenv("XDG_CACHE_HOME");
}

// Names of the plans in their order; engines that offer none are left out.
std::vector<std::string> names(const graph::Graph& g) {
  std::vector<std::string> list;
  for (const PlanInfo& p : g.plans())
    if (p.index >= 0) list.push_back(p.name);
  return list;
}

graph::Graph public_graph() {
  graph::Graph g;
  g.set_io_data_type(DataType_t::FLOAT).set_intermediate_data_type(DataType_t::FLOAT);
  g.set_compute_data_type(DataType_t::FLOAT);
  auto x = g.tensor(graph::Tensor_attributes().set_name("x").set_dim({8, 16}).set_stride({16, 1}).set_uid(1));
  auto y = g.pointwise(x, graph::Pointwise_attributes().set_mode(PointwiseMode_t::COS));
  auto z = g.pointwise(y, graph::Pointwise_attributes().set_mode(PointwiseMode_t::SIN));
  z->set_output(true).set_uid(2);
  return g;
}

// What autotune finds, the next graph of the same content takes first; the order of the other rows stays.
TEST_F(TuningDb, LaterGraphsListTheTunedPlanFirst) {
  graph::Graph first = public_graph();
  ASSERT_TRUE(first.build({HeurMode_t::A, HeurMode_t::FALLBACK}, BuildPlanPolicy_t::ALL).is_good());
  std::vector<float> x(128, 0.5f), y(128);
  std::unordered_map<int64_t, void*> pack = {{1, x.data()}, {2, y.data()}};
  std::vector<char> workspace(size_t(first.get_autotune_workspace_size()) + 1);
  ASSERT_TRUE(first.autotune(nullptr, pack, workspace.data()).is_good());
  EXPECT_THAT(first.explain(), ::testing::HasSubstr("autotune: remembered in " + file_.string()));
  EXPECT_EQ(lines().size(), names(first).size());

  // As if the slowest by estimate had been the fastest.
  std::vector<std::string> expected = names(first);
  const std::string last = expected.back();
  for (const std::string& line : lines())
    if (json j = json::parse(line); last.rfind(std::string(j["engine"]), 0) == 0) {
      j["ms"] = 1e-6;
      append(j.dump() + "\n");
    }
  graph::Graph second = public_graph();
  ASSERT_TRUE(second.build({HeurMode_t::A, HeurMode_t::FALLBACK}).is_good());
  std::rotate(expected.begin(), expected.end() - 1, expected.end());
  EXPECT_EQ(names(second), expected);
  EXPECT_TRUE(second.plans()[0].chosen);
  EXPECT_EQ(second.plans()[0].notes.back(), "fastest when tuned: 1e-06 ms");
  EXPECT_THAT(second.explain(), ::testing::HasSubstr("fastest when tuned"));
}

}  // namespace
}  // namespace tilewright
