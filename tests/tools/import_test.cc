#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "import_log.h"
#include "tilewright/graph.h"

namespace tilewright::tool {
namespace {

using testing::Contains;
using testing::HasSubstr;

// A log as cuDNN Frontend writes it: one object per line, uids as references, floats as bits.
const char* const kMatmulLine =
    R"({"context":{"compute_data_type":"FLOAT","intermediate_data_type":"FLOAT","io_data_type":"HALF","is_dynamic_shape_enabled":false,)"
    R"("is_override_shape_enabled":false,"name":"","sm_count":132},"cudnn_backend_version":"9.19.0","cudnn_frontend_version":12300,)"
    R"("json_version":"1.0","nodes":[{"compute_data_type":"FLOAT","inputs":{"A":7,"B":"weights"},"name":"0","outputs":{"C":"0::C"},)"
    R"("padding_value":"00000000","tag":"MATMUL"},{"axis":null,"compute_data_type":"FLOAT","elu_alpha":null,"inputs":{"IN_0":"0::C"},)"
    R"("mode":"RELU_FWD","name":"act","outputs":{"OUT_0":9},"relu_lower_clip":"3F000000","relu_lower_clip_slope":null,)"
    R"("relu_upper_clip":null,"softplus_beta":null,"swish_beta":null,"tag":"POINTWISE"}],"tensors":{)"
    R"("0::C":{"data_type":"FLOAT","dim":[2,8,16],"is_pass_by_value":false,"is_virtual":true,"name":"0::C","pass_by_value":null,)"
    R"("reordering_type":"NONE","stride":[128,16,1],"uid":0,"uid_assigned":false},)"
    R"("7":{"data_type":"HALF","dim":[2,8,32],"is_pass_by_value":false,"is_virtual":false,"name":"act_in","pass_by_value":null,)"
    R"("reordering_type":"NONE","stride":[256,32,1],"uid":7,"uid_assigned":true},)"
    R"("9":{"data_type":"HALF","dim":[2,8,16],"is_pass_by_value":false,"is_virtual":false,"name":"out","pass_by_value":null,)"
    R"("reordering_type":"NONE","stride":[128,16,1],"uid":9,"uid_assigned":true},)"
    R"("weights":{"data_type":"HALF","dim":[2,32,16],"is_pass_by_value":false,"is_virtual":false,"name":"weights","pass_by_value":null,)"
    R"("reordering_type":"NONE","stride":[512,16,1],"uid":0,"uid_assigned":false}}})";

// Attention in an older spelling: SDPA_FWD, FLOAT16, causal_mask, BIAS, K transposed.
const char* const kOldAttention = R"({
  "context": {"name": "old", "io_data_type": "FLOAT16", "intermediate_data_type": "FLOAT32", "compute_data_type": "FLOAT32"},
  "nodes": [{
    "tag": "SDPA_FWD", "name": "flash", "causal_mask": true, "attn_scale_value": "3DFBE76D", "generate_stats": false,
    "inputs": {"Q": "flash::Q", "K": 2, "V": "V", "BIAS": "bias", "SEQ_LEN_Q": null}, "outputs": {"O": "O"}
  }],
  "tensors": {
    "flash::Q": {"name": "flash::Q", "data_type": "FLOAT16", "dim": [1, 2, 24, 16], "stride": [768, 384, 16, 1], "uid": 1},
    "k": {"name": "k", "data_type": "FLOAT16", "dim": [1, 2, 16, 40], "stride": [1280, 640, 1, 16], "uid": 2},
    "V": {"name": "V", "data_type": "FLOAT16", "dim": [1, 2, 40, 16], "stride": [1280, 640, 16, 1], "uid": 3},
    "bias": {"name": "bias", "data_type": "FLOAT16", "dim": [1, 1, 24, 40], "stride": [960, 960, 40, 1], "uid": 4},
    "O": {"name": "O", "data_type": "FLOAT16", "dim": [1, 2, 24, 16], "stride": [768, 384, 16, 1], "uid": 5}
  }
})";

Imported converted(const ordered_json& logged) {
  auto imported = convert_graph(logged);
  EXPECT_TRUE(imported) << imported.status().get_message();
  return imported ? *imported : Imported();
}

error_t loads(const ordered_json& graph) {
  graph::Graph g;
  error_t status = g.deserialize(Json::parse(graph.dump()));
  return status.is_good() ? g.validate() : status;
}

TEST(Import, FindsOneLineEntriesAmongOtherLines) {
  const std::string log = std::string("[cudnn_frontend] INFO: validating {\n") + kMatmulLine +
                          "\nsomething else\n[cudnn_frontend] " + kMatmulLine + "\n{\"context\": broken\n";
  EXPECT_EQ(find_graphs(log).size(), 2u);
  EXPECT_EQ(find_graphs("nothing here").size(), 0u);
  EXPECT_EQ(find_graphs("{}").size(), 0u);
}

TEST(Import, TakesWholeFilesAndGraphsInProse) {
  EXPECT_EQ(find_graphs(kOldAttention).size(), 1u);
  EXPECT_EQ(
      find_graphs(std::string("It fails with this graph:\n```\n") + kOldAttention + "\n```\nPlease help {now}.").size(),
      1u);
  EXPECT_EQ(find_graphs(std::string("[") + kMatmulLine + "," + kOldAttention + "]").size(), 2u);
}

TEST(Import, WritesAGraphThatLoads) {
  const Imported imported = converted(find_graphs(kMatmulLine).at(0));
  const ordered_json& g = imported.graph;
  ASSERT_TRUE(loads(g).is_good()) << loads(g).get_message();
  EXPECT_EQ(g["nodes"][0]["inputs"]["A"], "act_in");
  EXPECT_EQ(g["nodes"][1]["relu_lower_clip"], 0.5);
  EXPECT_EQ(g["tensors"]["act_in"]["uid"], 7);
  EXPECT_FALSE(g["tensors"]["weights"].contains("uid"));
  EXPECT_FALSE(g["nodes"][1].contains("axis"));
  EXPECT_THAT(imported.notes, Contains(HasSubstr("sm_count 132")));
  EXPECT_EQ(imported.notes.size(), 1u);
}

TEST(Import, UnderstandsOlderSpellings) {
  const Imported imported = converted(find_graphs(kOldAttention).at(0));
  const ordered_json& g = imported.graph;
  ASSERT_TRUE(loads(g).is_good()) << loads(g).get_message() << g.dump(2);
  const ordered_json& node = g["nodes"][0];
  EXPECT_EQ(node["tag"], "SDPA");
  EXPECT_EQ(node["right_bound"], 0);
  EXPECT_EQ(node["diagonal_alignment"], "TOP_LEFT");
  EXPECT_NEAR(node["attn_scale_value"].get<double>(), 0.123, 1e-3);
  EXPECT_EQ(node["inputs"]["Bias"], "bias");
  EXPECT_EQ(g["context"]["io_data_type"], "HALF");
  EXPECT_EQ(g["tensors"]["k"]["dim"], ordered_json({1, 2, 40, 16}));
  EXPECT_EQ(g["tensors"]["k"]["stride"], ordered_json({1280, 640, 16, 1}));
  EXPECT_THAT(imported.notes, Contains(HasSubstr("swapped back")));
  EXPECT_THAT(imported.notes, Contains(HasSubstr("SDPA_FWD is called SDPA")));
}

TEST(Import, LeavesAnOrdinaryKWithSequenceFastestAlone) {
  ordered_json g = ordered_json::parse(kOldAttention);
  g["tensors"]["k"]["dim"] = {1, 2, 40, 16};
  g["tensors"]["k"]["stride"] = {1280, 640, 1, 40};
  EXPECT_EQ(converted(g).graph["tensors"]["k"]["dim"], ordered_json({1, 2, 40, 16}));
}

TEST(Import, SaysWhatALogDoesNotHold) {
  ordered_json g = ordered_json::parse(kOldAttention);
  g["nodes"][0]["inputs"]["SEQ_LEN_Q"] = "lengths";
  g["tensors"]["lengths"] = {
      {"name", "lengths"}, {"data_type", "INT32"}, {"dim", {1, 1, 1, 1}}, {"stride", {1, 1, 1, 1}}};
  g["nodes"][0]["inputs"]["Offset"] = "nowhere";
  g["nodes"][0]["mystery"] = 3;
  const Imported imported = converted(g);
  EXPECT_THAT(imported.notes, Contains(HasSubstr("values of SEQ_LEN_Q are not in a log")));
  EXPECT_THAT(imported.notes, Contains(HasSubstr("nothing describes \"nowhere\"")));
  EXPECT_THAT(imported.notes, Contains(HasSubstr("mystery = 3 means nothing here")));
}

TEST(Import, KeepsUnnamedAndEquallyNamedTensorsApart) {
  ordered_json g = ordered_json::parse(kMatmulLine);
  g["tensors"]["7"]["name"] = "";
  g["tensors"]["9"]["name"] = "weights";
  const Imported imported = converted(g);
  EXPECT_EQ(imported.graph["tensors"].size(), 4u);
  EXPECT_TRUE(imported.graph["tensors"].contains("t7"));
  EXPECT_TRUE(imported.graph["tensors"].contains("weights_2"));
  EXPECT_TRUE(loads(imported.graph).is_good()) << loads(imported.graph).get_message();
}

// Whatever a log holds, reading it ends: in a graph or in a message.
TEST(Import, SurvivesTruncatedLogsAndFieldsOfForeignTypes) {
  const std::string line = kMatmulLine;
  for (size_t length = 0; length < line.size(); length += 7) EXPECT_EQ(find_graphs(line.substr(0, length)).size(), 0u);
  const ordered_json good = find_graphs(line).at(0);
  const ordered_json flat = good.flatten();
  int refused = 0;
  for (const auto& [path, value] : flat.items())
    for (const ordered_json& foreign : {ordered_json(nullptr), ordered_json(-1), ordered_json("x"),
                                        ordered_json::array({1}), ordered_json{{"a", 1}}, ordered_json(true)}) {
      ordered_json changed = good;
      changed[ordered_json::json_pointer(path)] = foreign;
      auto imported = convert_graph(changed);
      if (imported) {
        (void)loads(imported->graph);
      } else {
        ++refused;
        EXPECT_THAT(imported.status().get_message(), HasSubstr("not a graph as cuDNN Frontend writes it"));
      }
    }
  EXPECT_GT(refused, 0);
}

TEST(Import, PrettyTextParsesBackAndKeepsLinesShort) {
  const ordered_json g = converted(find_graphs(kMatmulLine).at(0)).graph;
  const std::string text = pretty(g);
  EXPECT_EQ(ordered_json::parse(text), g);
  EXPECT_THAT(text, HasSubstr("\"dim\": [2, 8, 32]"));
}

}  // namespace
}  // namespace tilewright::tool
