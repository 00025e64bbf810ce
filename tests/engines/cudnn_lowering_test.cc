// What is asked of cuDNN, against a stand-in that remembers it; no cuDNN is needed.
#include <gmock/gmock.h>

#include "engines/cudnn/engine.h"
#include "engines/cudnn/lowering.h"
#include "engines/cudnn/operation_graph.h"
#include "plan/kernel_cache.h"
#include "plan/plan_list.h"
#include "support/cudnn_graphs.h"
#include "support/recording_cudnn.h"

namespace tilewright::testing {
namespace {

using cudnn::Attr;
using cudnn::Config;
using cudnn::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Target h200() { return *Target::parse("h200"); }

IrBuilder matmul_bias_relu() {
  IrBuilder b;
  const auto x = b.input({2, 8, 16}, DataType_t::HALF), w = b.input({2, 16, 4}, DataType_t::HALF);
  const auto bias = b.input({1, 1, 4}, DataType_t::HALF);
  const auto y = b.pw(PointwiseMode_t::ADD, {b.op("matmul", {x, w}), bias});
  b.output(b.pw(PointwiseMode_t::RELU_FWD, {y}), DataType_t::HALF);
  return b;
}

cudnn::Lowered lower(const ir::Graph& g, const Target& target) {
  std::vector<ir::NodeId> nodes;
  for (size_t i = 0; i < g.nodes.size(); ++i) nodes.push_back(ir::NodeId(i));
  return cudnn::Lowering(g, nodes, target).run();
}

TEST(CudnnLowering, DescriptorsOfMatmulBiasRelu) {
  RecordingCudnn recorder;
  const IrBuilder b = matmul_bias_relu();
  const Target target = h200();
  const cudnn::Lowered l = lower(b.graph, target);
  ASSERT_THAT(l.reasons, IsEmpty());
  const auto tensor = [](int type, const char* dims, const char* strides, int uid, bool is_virtual) {
    return fmt::format(
        "TENSOR TENSOR_DATA_TYPE={} TENSOR_DIMENSIONS={} TENSOR_STRIDES={} TENSOR_UNIQUE_ID={} "
        "TENSOR_BYTE_ALIGNMENT=16{}\n",
        type, dims, strides, uid, is_virtual ? " TENSOR_IS_VIRTUAL=yes" : "");
  };
  const std::string text = recorder.operations();
  for (const std::string& line :
       {tensor(2, "[2,8,16]", "[128,16,1]", 1, false), tensor(2, "[2,16,4]", "[64,4,1]", 2, false),
        tensor(0, "[2,8,4]", "[32,4,1]", 4, true)})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, HasSubstr("MATMUL MATMUL_COMP_TYPE=0\n"));
  EXPECT_THAT(text, HasSubstr("OPERATION_MATMUL_ADESC=t1 OPERATION_MATMUL_BDESC=t2 OPERATION_MATMUL_CDESC=t4 "
                              "OPERATION_MATMUL_DESC=MATMUL"));
  EXPECT_THAT(text, HasSubstr("POINTWISE POINTWISE_MODE=0 POINTWISE_MATH_PREC=0\n"));
  EXPECT_THAT(text, HasSubstr("POINTWISE POINTWISE_MODE=100 POINTWISE_MATH_PREC=0 POINTWISE_NAN_PROPAGATION=1 "
                              "POINTWISE_RELU_LOWER_CLIP=0 "));
  EXPECT_THAT(text,
              HasSubstr("OPERATION_POINTWISE_XDESC=t4 OPERATION_POINTWISE_YDESC=t5 OPERATION_POINTWISE_BDESC=t3\n"));
  EXPECT_THAT(text, HasSubstr("OPERATION_POINTWISE_XDESC=t5 OPERATION_POINTWISE_YDESC=t6\n"));
  EXPECT_THAT(text, Not(HasSubstr("(not finalized)")));
  // The operations in the order of the nodes, the caller's tensors by uid.
  std::vector<std::string> kinds;
  for (cudnn::RawDescriptor op : l.operations) kinds.push_back(to_text(static_cast<RecordedDescriptor*>(op)->kind));
  EXPECT_THAT(kinds, ElementsAre("OPERATION_MATMUL", "OPERATION_POINTWISE", "OPERATION_POINTWISE"));
  std::vector<int64_t> uids;
  for (const cudnn::Bound& bound : l.bound) uids.push_back(bound.uid);
  EXPECT_THAT(uids, ::testing::UnorderedElementsAre(1, 2, 3, 6));
  EXPECT_THAT(l.reads, ElementsAre(0, 1, 2));
  EXPECT_THAT(l.writes, ElementsAre(5));
}

TEST(CudnnLowering, SmallRanksAreWidened) {
  RecordingCudnn recorder;
  IrBuilder b;
  const auto x = b.input({5, 7}), y = b.input({7});
  b.output(b.pw(PointwiseMode_t::ADD, {x, y}));
  const Target target = h200();
  ASSERT_THAT(lower(b.graph, target).reasons, IsEmpty());
  EXPECT_THAT(recorder.operations(), HasSubstr("TENSOR_DIMENSIONS=[1,5,7] TENSOR_STRIDES=[35,7,1]"));
  EXPECT_THAT(recorder.operations(), HasSubstr("TENSOR_DIMENSIONS=[1,1,7] TENSOR_STRIDES=[7,7,1]"));
}

TEST(CudnnLowering, AnAxisCountsTheDimsInFront) {
  RecordingCudnn recorder;
  IrBuilder b;
  b.output(b.pw(PointwiseMode_t::GEN_INDEX, {b.input({5, 7})}, {{"axis", int64_t(1)}}));
  const Target target = h200();
  ASSERT_THAT(lower(b.graph, target).reasons, IsEmpty());
  EXPECT_THAT(recorder.operations(), HasSubstr("POINTWISE_AXIS=2"));
}

TEST(CudnnLowering, ScalarsGoByValue) {
  RecordingCudnn recorder;
  IrBuilder b;
  const auto x = b.input({2, 5, 7}), stored = b.scalar(2.5f, 3), given = b.scalar(std::nullopt, 3);
  b.output(b.pw(PointwiseMode_t::ADD, {b.pw(PointwiseMode_t::MUL, {x, stored}), given}));
  const Target target = h200();
  const cudnn::Lowered l = lower(b.graph, target);
  ASSERT_EQ(l.constants.size(), 1u);
  float value = 0;
  std::memcpy(&value, l.constants[0].data(), sizeof value);
  EXPECT_EQ(value, 2.5f);
  for (const cudnn::Bound& bound : l.bound)
    EXPECT_EQ(bound.place.where == cudnn::Place::Constant, bound.uid == stored + 1) << bound.uid;
  int by_value = 0;
  for (const RecordedDescriptor* d : recorder.of_kind(Kind::TENSOR))
    by_value += d->find(Attr::TENSOR_IS_BY_VALUE) != nullptr;
  EXPECT_EQ(by_value, 2);
}

TEST(CudnnLowering, WhatCannotBeSaidIsAReason) {
  RecordingCudnn recorder;
  IrBuilder b;
  const auto x = b.input({2, 5, 7});
  const auto y = b.pw(PointwiseMode_t::CMP_GT, {x, x});
  b.output(y, DataType_t::BOOLEAN);
  const Target target = h200();
  const cudnn::Lowered l = lower(b.graph, target);
  ASSERT_EQ(l.reasons.size(), 1u);
  EXPECT_EQ(l.reasons[0].why, Why::Dtype);
  EXPECT_EQ(l.reasons[0].tensor, y);
  EXPECT_THAT(l.reasons[0].text, HasSubstr("BOOLEAN"));
}

TEST(CudnnLowering, ACallThatFailsNamesDescriptorAndAttribute) {
  RecordingCudnn recorder;
  recorder.set_fails = Attr::MATMUL_COMP_TYPE;
  recorder.pages =
      "Error: CUDNN_STATUS_BAD_PARAM; Reason: type is none\nError: CUDNN_STATUS_BAD_PARAM; Reason: outer\n";
  const Target target = h200();
  cudnn::Lowered l = lower(matmul_bias_relu().graph, target);
  ASSERT_EQ(l.reasons.size(), 1u);
  EXPECT_THAT(l.reasons[0].text, HasSubstr("cuDNN MATMUL: attribute MATMUL_COMP_TYPE: BAD_PARAM: type is none"));
  EXPECT_EQ(l.reasons[0].text.find('\n'), std::string::npos);
  EXPECT_EQ(l.reasons[0].node, 0);
  recorder.set_fails.reset();
  recorder.finalize_fails = Kind::OPERATION_POINTWISE;
  recorder.pages.clear();
  l = lower(matmul_bias_relu().graph, target);
  ASSERT_EQ(l.reasons.size(), 1u);
  EXPECT_THAT(l.reasons[0].text, HasSubstr("cuDNN OPERATION_POINTWISE: cannot be finalized: NOT_SUPPORTED"));
  EXPECT_EQ(l.reasons[0].node, 1);
}

TEST(CudnnErrors, PagesBecomeOneLineForEachEngine) {
  const std::string pages =
      "{\"engineId\":7,\"knobChoices\":{}}\n"
      "Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: k % 8 != 0\n"
      "Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: ptr->isSupported()\n\n"
      "{\"engineId\":7,\"knobChoices\":{\"X\":1}}\n"
      "Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: k % 8 != 0\n\n"
      "{\"engineId\":-1,\"knobChoices\":{}}\n"
      "Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: not found\n\n"
      "{\"engineId\":12}\n"
      "Warning: CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE; Reason: fp8\n";
  EXPECT_THAT(cudnn::refusals_in(pages),
              ElementsAre("engine 7: NOT_SUPPORTED_SHAPE: k % 8 != 0", "engine 12: NOT_SUPPORTED_DATA_TYPE: fp8"));
  EXPECT_THAT(cudnn::refusals_in(""), IsEmpty());
  EXPECT_EQ(cudnn::condense("plain\n text \t here\n"), "plain text here");
  EXPECT_LT(cudnn::condense(std::string(5000, 'x')).size(), 300u);
}

TEST(CudnnConfig, TextIsReadBack) {
  const Config c{41, {{2, 0}, {13, -1}}};
  EXPECT_EQ(c.text(), "eng41,k2=0,k13=-1");
  EXPECT_EQ(c.tag(), "eng41_k2=0_k13=-1");
  const auto back = Config::parse(c.text());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->engine, 41);
  EXPECT_EQ(back->knobs, c.knobs);
  EXPECT_EQ(Config::parse("eng0")->text(), "eng0");
  for (const char* bad : {"", "eng", "eng-1", "eng4,", "eng4,k", "eng4,k2", "eng4,k2=", "eng4,k2=1x", "split", "eng4 "})
    EXPECT_THAT(Config::parse(bad).status().err_msg, HasSubstr("eng41,k2=0")) << bad;
  EXPECT_THAT(cudnn_engine().plan_names(c.text()), ElementsAre("cudnn.eng41[k2=0,k13=-1]", "eng41_k2=0_k13=-1"));
  EXPECT_THAT(cudnn_engine().plan_names("eng3"), ElementsAre("cudnn.eng3", "eng3"));
  EXPECT_THAT(cudnn_engine().plan_names("split"), ElementsAre("cudnn.split"));
  EXPECT_THAT(cudnn_engine().plan_names(""), ElementsAre("cudnn"));
}

TEST(CudnnKnownBad, EngineKnobsOpAndVersionsMustAllFit) {
  const std::vector<cudnn::KnownBad> list = {{"matmul", "eng12,k2=3", 90100, 90300, "wrong at edges"}};
  const Config bad{12, {{2, 3}, {5, 0}}};
  ASSERT_NE(find_known_bad(list, bad, {"pointwise", "matmul"}, 90200), nullptr);
  EXPECT_STREQ(find_known_bad(list, bad, {"matmul"}, 90200)->reason, "wrong at edges");
  EXPECT_EQ(find_known_bad(list, bad, {"matmul"}, 90300), nullptr);
  EXPECT_EQ(find_known_bad(list, bad, {"matmul"}, 90000), nullptr);
  EXPECT_EQ(find_known_bad(list, bad, {"conv_fprop"}, 90200), nullptr);
  EXPECT_EQ(find_known_bad(list, {13, {{2, 3}}}, {"matmul"}, 90200), nullptr);
  EXPECT_EQ(find_known_bad(list, {12, {{2, 4}}}, {"matmul"}, 90200), nullptr);
}

// --- the engine on the stand-in ---

TEST(CudnnEngine, ListsEachConfigurationOnceWithTheModesThatListIt) {
  RecordingCudnn recorder;
  recorder.listed[3] = {{41, {{2, 0}}}, {7, {}}, {41, {{2, 0}}}};
  recorder.listed[1] = {{7, {}}, {8, {}}};
  recorder.listed[2] = {{0, {}}};
  const IrBuilder b = matmul_bias_relu();
  const Verdict v = cudnn_engine().propose(b.graph, h200());
  ASSERT_TRUE(v.proposal);
  std::vector<std::string> configs, modes;
  double before = 0;
  for (const Candidate& c : v.proposal->candidates()) {
    configs.push_back(c.config);
    modes.emplace_back();
    for (HeurMode_t m : c.modes) modes.back() += to_string(m) + " ";
    EXPECT_GT(c.estimated_ms, before);  // cuDNN's order
    before = c.estimated_ms;
    EXPECT_EQ(c.workspace_bytes, 512);
    EXPECT_THAT(c.numerical_notes, ElementsAre(NumericalNote_t::TENSOR_CORE));
    EXPECT_THAT(c.behavior_notes, ElementsAre(BehaviorNote_t::SUPPORTS_CUDA_GRAPH_NATIVE_API));
    EXPECT_THAT(c.notes, IsEmpty());
  }
  EXPECT_THAT(configs, ElementsAre("eng41,k2=0", "eng7", "eng8", "eng0"));
  EXPECT_THAT(modes, ElementsAre("A ", "A B ", "B ", "FALLBACK "));
  EXPECT_THAT(v.proposal->explain(), HasSubstr("heuristics A list 3 configurations"));
}

TEST(CudnnEngine, AsksOnlyForTheModesThatAreWanted) {
  RecordingCudnn recorder;
  recorder.listed[1] = {{8, {}}};
  const IrBuilder b = matmul_bias_relu();
  const Verdict v = cudnn_engine().propose(b.graph, h200());
  ASSERT_TRUE(v.proposal);
  EXPECT_EQ(v.proposal->candidates_in({HeurMode_t::A}).size(), 1u);
  EXPECT_EQ(v.proposal->candidates_in({HeurMode_t::A}).size(), 1u);
  EXPECT_EQ(recorder.of_kind(Kind::ENGINEHEUR).size(), 1u);
  EXPECT_EQ(v.proposal->candidates().size(), 2u);
  EXPECT_EQ(recorder.of_kind(Kind::ENGINEHEUR).size(), 3u);
}

TEST(CudnnEngine, WorkspaceMayBeKnownWithThePlanOnly) {
  RecordingCudnn recorder;
  recorder.tells_workspace = false;
  const IrBuilder b = matmul_bias_relu();
  const Verdict v = cudnn_engine().propose(b.graph, h200());
  ASSERT_TRUE(v.proposal);
  EXPECT_EQ(v.proposal->candidates()[0].workspace_bytes, 0);
  PlanList plans;
  plans.filters.max_workspace_bytes = 100;
  ASSERT_TRUE(plans.create(std::make_shared<ir::Graph>(b.graph), h200(), {HeurMode_t::A}, nullptr).is_good());
  ASSERT_EQ(plans.at(0).name(), "cudnn.eng41[k2=0,k13=1]");
  EXPECT_TRUE(plans.check_support().is_good());
  EXPECT_THAT(plans.build_at(0).err_msg, HasSubstr("workspace of 512 bytes is over the limit of 100"));
  plans.filters.max_workspace_bytes = 512;
  EXPECT_TRUE(plans.build_at(0).is_good());
}

TEST(CudnnEngine, FloatOnTensorCoresIsNoted) {
  RecordingCudnn recorder;
  const IrBuilder b = batched_matmul(2, 8, 16, 4, DataType_t::FLOAT);
  const Verdict v = cudnn_engine().propose(b.graph, h200());
  ASSERT_TRUE(v.proposal);
  EXPECT_THAT(v.proposal->candidates()[0].notes, ElementsAre("tf32 inside"));
}

TEST(CudnnEngine, RunsWithThisExecutionsPointers) {
  RecordingCudnn recorder;
  {
    IrBuilder b;
    const auto x = b.input({2, 5, 7}), stored = b.scalar(2.5f, 3);
    const auto y = b.output(b.pw(PointwiseMode_t::MUL, {x, stored}));
    const Target target = h200();
    const Verdict v = cudnn_engine().propose(b.graph, target);
    ASSERT_TRUE(v.proposal);
    const auto artifact = v.proposal->compile(v.proposal->candidates()[0].config, nullptr);
    ASSERT_TRUE(artifact) << artifact.status().err_msg;
    const auto e = cudnn_engine().load(b.graph, *artifact, target, nullptr);
    ASSERT_TRUE(e) << e.status().err_msg;
    EXPECT_EQ((*e)->workspace_bytes(), 512);
    ASSERT_EQ((*e)->steps().size(), 1u);
    EXPECT_EQ((*e)->steps()[0].name, "mul [eng41[k2=0,k13=1]]");
    char memory[3];
    Bindings bindings(b.graph.tensors.size(), nullptr);
    bindings[size_t(x)] = &memory[0];
    bindings[size_t(y)] = &memory[1];
    EXPECT_EQ((*e)->run(bindings, &memory[2], {}).code, error_code_t::HANDLE_ERROR);
    const Queue queue{0, nullptr, &memory};
    for (int round = 0; round < 2; ++round) {
      ASSERT_TRUE((*e)->run(bindings, &memory[2], queue).is_good());
      const RecordedDescriptor& pack = recorder.packs.back();
      const auto& uids = pack.find(Attr::VARIANT_PACK_UNIQUE_IDS)->numbers;
      const auto& pointers = pack.find(Attr::VARIANT_PACK_DATA_POINTERS)->pointers;
      ASSERT_EQ(uids.size(), 3u);
      for (size_t i = 0; i < 3; ++i) {
        if (uids[i] == x + 1) EXPECT_EQ(pointers[i], bindings[size_t(x)]);
        else if (uids[i] == y + 1) EXPECT_EQ(pointers[i], bindings[size_t(y)]);
        else EXPECT_EQ(*static_cast<float*>(pointers[i]), 2.5f);
      }
      EXPECT_THAT(pack.find(Attr::VARIANT_PACK_WORKSPACE)->pointers, ElementsAre(&memory[2]));
      std::swap(bindings[size_t(x)], bindings[size_t(y)]);
    }
    const size_t packs = recorder.of_kind(Kind::VARIANT_PACK).size();
    EXPECT_TRUE((*e)->run(bindings, &memory[2], queue).is_good());
    EXPECT_EQ(recorder.of_kind(Kind::VARIANT_PACK).size(), packs + 1);
    EXPECT_TRUE((*e)->run(bindings, &memory[2], queue).is_good());  // with the same pointers nothing is made
    EXPECT_EQ(recorder.of_kind(Kind::VARIANT_PACK).size(), packs + 1);
    EXPECT_TRUE((*e)->populate_cuda_graph(&memory, bindings, &memory[2], queue).is_good());
    EXPECT_TRUE((*e)->update_cuda_graph(&memory, bindings, &memory[2], queue).is_good());
    EXPECT_EQ(recorder.packs.size(), 6u);
  }
  EXPECT_EQ(recorder.alive, 0);  // every descriptor was given back
}

TEST(CudnnEngine, WithoutNativeCudaGraphsAStreamIsNeededToCaptureOn) {
  RecordingCudnn recorder;
  recorder.calls.backend_populate_cuda_graph = nullptr;
  const IrBuilder b = batched_matmul(2, 8, 16, 4);
  const auto e = cudnn_engine().load(b.graph, {"cudnn", "eng41,k2=0,k13=1", {}, nullptr}, h200(), nullptr);
  ASSERT_TRUE(e) << e.status().err_msg;
  int some;
  const Status s = (*e)->populate_cuda_graph(&some, Bindings(b.graph.tensors.size()), nullptr, {0, nullptr, &some});
  EXPECT_EQ(s.code, error_code_t::GRAPH_NOT_SUPPORTED);
  EXPECT_THAT(s.err_msg, HasSubstr("default stream"));
}

TEST(CudnnEngine, SplitsWhatCudnnTakesInPartsOnly) {
  RecordingCudnn recorder;
  recorder.most_operations = 2;
  IrBuilder b = matmul_bias_relu();  // matmul+add, relu
  const Target target = h200();
  const Verdict v = cudnn_engine().propose(b.graph, target);
  ASSERT_TRUE(v.proposal);
  const std::vector<Candidate> list = v.proposal->candidates();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].config, "split");
  EXPECT_EQ(list[0].kernel_count, 2);
  EXPECT_THAT(list[0].notes, ElementsAre("2 cuDNN plans"));
  EXPECT_EQ(v.proposal->regions()[0].nodes, (std::vector<ir::NodeId>{0, 1}));
  EXPECT_EQ(v.proposal->regions()[1].name, "relu_fwd");

  const auto artifact = v.proposal->compile("split", nullptr);
  ASSERT_TRUE(artifact) << artifact.status().err_msg;
  const auto e = cudnn_engine().load(b.graph, *artifact, target, nullptr);
  ASSERT_TRUE(e);
  // The sum lies at the start of the workspace, which each plan's own follows.
  EXPECT_EQ((*e)->workspace_bytes(), 256 + 512);
  char memory[8];
  Bindings bindings(b.graph.tensors.size(), nullptr);
  for (ir::TensorId t : {0, 1, 2, 5}) bindings[size_t(t)] = &memory[t];
  char* const workspace = &memory[7];
  ASSERT_TRUE((*e)->run(bindings, workspace, {0, nullptr, &memory}).is_good());
  ASSERT_EQ(recorder.packs.size(), 2u);
  const auto pointer = [&](size_t pack, int64_t uid) -> void* {
    const auto& uids = recorder.packs[pack].find(Attr::VARIANT_PACK_UNIQUE_IDS)->numbers;
    const size_t i = size_t(std::find(uids.begin(), uids.end(), uid) - uids.begin());
    return i < uids.size() ? recorder.packs[pack].find(Attr::VARIANT_PACK_DATA_POINTERS)->pointers[i] : nullptr;
  };
  EXPECT_EQ(pointer(0, 5), workspace);
  EXPECT_EQ(pointer(1, 5), workspace);
  EXPECT_EQ(pointer(0, 6), nullptr);
  EXPECT_EQ(pointer(1, 6), &memory[5]);
  EXPECT_THAT(recorder.packs[1].find(Attr::VARIANT_PACK_WORKSPACE)->pointers, ElementsAre(workspace + 256));

  const auto bytes = (*e)->saved();
  ASSERT_TRUE(bytes) << bytes.status().err_msg;
  const auto again = cudnn_engine().load(b.graph, {"cudnn", "split", *bytes, nullptr}, target, nullptr);
  ASSERT_TRUE(again) << again.status().err_msg;
  EXPECT_EQ((*again)->workspace_bytes(), (*e)->workspace_bytes());
  EXPECT_EQ((*again)->steps()[1].name, (*e)->steps()[1].name);
}

TEST(CudnnEngine, ANodeThatIsRefusedIsDecomposed) {
  RecordingCudnn recorder;
  recorder.finalize_fails = Kind::OPERATION_NORM_FORWARD;
  IrBuilder b;
  const Dims channels = {1, 16, 1, 1};
  const auto x = b.input({4, 16, 2, 2}, DataType_t::FLOAT, channels_last_strides({4, 16, 2, 2}));
  const auto scale = b.input(channels), bias = b.input(channels), epsilon = b.scalar(1e-5f, 4);
  for (ir::TensorId y : b.node("batchnorm", {x, scale, bias, epsilon}))
    if (y != ir::kNone) b.output(y);
  const Target target = h200();
  const Verdict v = cudnn_engine().propose(b.graph, target);
  ASSERT_TRUE(v.proposal) << v.reasons[0].text;
  const Candidate c = v.proposal->candidates()[0];
  EXPECT_EQ(c.config, "eng41,k2=0,k13=1");  // pointwise and reductions, as one operation graph
  EXPECT_EQ(v.proposal->regions()[0].nodes, (std::vector<ir::NodeId>{0}));
  EXPECT_THAT(v.proposal->regions()[0].name, HasSubstr("reduction"));
  const auto artifact = v.proposal->compile(c.config, nullptr);
  ASSERT_TRUE(artifact) << artifact.status().err_msg;
  const auto e = cudnn_engine().load(b.graph, *artifact, target, nullptr);
  ASSERT_TRUE(e);
  const auto from_config = cudnn_engine().load(b.graph, {"cudnn", c.config, {}, nullptr}, target, nullptr);
  ASSERT_TRUE(from_config) << from_config.status().err_msg;
  EXPECT_EQ((*from_config)->steps()[0].name, (*e)->steps()[0].name);
  const auto bytes = (*e)->saved();
  ASSERT_TRUE(bytes) << bytes.status().err_msg;
  const auto from_file = cudnn_engine().load(b.graph, {"cudnn", c.config, *bytes, nullptr}, target, nullptr);
  ASSERT_TRUE(from_file) << from_file.status().err_msg;
  EXPECT_EQ((*from_file)->steps()[0].name, (*e)->steps()[0].name);
}

TEST(CudnnEngine, AnOutputOverAnOperandOfAContractionIsAHazard) {
  RecordingCudnn recorder;
  const IrBuilder b = matmul_bias_relu();
  const auto e = cudnn_engine().load(b.graph, {"cudnn", "eng41", {}, nullptr}, h200(), nullptr);
  ASSERT_TRUE(e);
  std::vector<ir::TensorId> read;
  for (const Hazard& h : (*e)->hazards()) {
    EXPECT_EQ(h.written, 5);
    read.push_back(h.read);
  }
  EXPECT_THAT(read, ElementsAre(0, 1));
}

TEST(CudnnEngine, SaysOfEachEngineWhyItTakesNothing) {
  RecordingCudnn recorder;
  recorder.listed.clear();
  recorder.pages =
      "{\"engineId\":3}\nWarning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: m < 8\n"
      "{\"engineId\":4}\nWarning: CUDNN_STATUS_NOT_SUPPORTED_LAYOUT; Reason: strides\n";
  const IrBuilder b = batched_matmul(2, 4, 16, 4);
  const Verdict v = cudnn_engine().propose(b.graph, h200());
  EXPECT_FALSE(v.proposal);
  std::vector<std::string> texts;
  std::vector<Why> whys;
  for (const Reason& r : v.reasons) texts.push_back(r.text), whys.push_back(r.why);
  EXPECT_THAT(whys, ElementsAre(Why::Shape, Why::Stride));
  EXPECT_THAT(texts, ElementsAre("engine 3: NOT_SUPPORTED_SHAPE: m < 8", "engine 4: NOT_SUPPORTED_LAYOUT: strides"));
}

TEST(CudnnEngine, FilesOfOtherVersionsAndOtherBytesAreRefused) {
  const IrBuilder b = batched_matmul(2, 8, 16, 4);
  const Target target = h200();
  std::vector<uint8_t> bytes;
  {
    RecordingCudnn recorder;
    const auto e = cudnn_engine().load(b.graph, {"cudnn", "eng41", {}, nullptr}, target, nullptr);
    ASSERT_TRUE(e);
    bytes = *(*e)->saved();
    EXPECT_EQ(cudnn_engine().version(), 91900);
  }
  RecordingCudnn recorder(92000);
  const auto load = [&](std::vector<uint8_t> file) {
    return cudnn_engine().load(b.graph, {"cudnn", "eng41", std::move(file), nullptr}, target, nullptr).status().err_msg;
  };
  EXPECT_THAT(load(bytes), HasSubstr("made by cuDNN 9.19.0, and this is 9.20.0"));
  EXPECT_THAT(load({1, 2, 3}), HasSubstr("no plan of cuDNN"));
  for (size_t cut = 0; cut < bytes.size(); cut += 7)
    EXPECT_NE(load(std::vector<uint8_t>(bytes.begin(), bytes.begin() + long(cut) + 1)), "") << cut;
}

TEST(CudnnEngine, IsThereForGpusWithTheLibraryOnly) {
  RecordingCudnn recorder(90700);
  const std::vector<Reason> cpu = cudnn_engine().unavailable(Target::this_machine());
  ASSERT_EQ(cpu.size(), 1u);
  EXPECT_EQ(cpu[0].why, Why::Arch);
  const std::vector<Reason> described = cudnn_engine().unavailable(h200());  // 9.8 plans without a device
  ASSERT_EQ(described.size(), 1u);
  EXPECT_THAT(described[0].text, HasSubstr("9.7.0"));
}

TEST(CudnnEngine, EnginesByNumber) {
  RecordingCudnn recorder;
  const IrBuilder b = batched_matmul(2, 8, 16, 4);
  const Verdict v = cudnn_engine().propose(b.graph, h200());
  ASSERT_TRUE(v.proposal);
  EXPECT_EQ(v.proposal->engine_count(), 50);
  const auto c = v.proposal->candidate(9, {{KnobType_t::STAGES, 4}, {KnobType_t::TILE_SIZE, 2}});
  ASSERT_TRUE(c) << c.status().err_msg;
  EXPECT_EQ(c->config, "eng9,k2=2,k14=4");
  EXPECT_THAT(v.proposal->candidate(50, {}).status().err_msg, HasSubstr("Invalid engine id"));
  EXPECT_THAT(v.proposal->candidate(-1, {}).status().err_msg, HasSubstr("Invalid engine id"));
}

}  // namespace
}  // namespace tilewright::testing
