// Plans of cuDNN on a GPU: every one computes what the reference computes; files, CUDA graphs, kernel caches.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdio>
#include <set>

#include <nlohmann/json.hpp>

#include "engines/cudnn/engine.h"
#include "engines/cudnn/program.h"
#include "ops/reference.h"
#include "plan/device_copy.h"
#include "plan/harness.h"
#include "plan/kernel_cache.h"
#include "support/cudnn_graphs.h"
#include "support/cudnn_queue.h"

namespace tilewright::testing {
namespace {

using ::testing::HasSubstr;

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class CudnnGpuPlans : public CudnnGpu {
 protected:
  std::unique_ptr<Executable> load(const ir::Graph& g, const Artifact& artifact, KernelCache* cache = nullptr) {
    auto e = cudnn_engine().load(g, artifact, target_, cache);
    EXPECT_TRUE(e) << artifact.config << ": " << e.status().err_msg;
    return e ? std::move(*e) : nullptr;
  }
  // The first configuration, built.
  std::unique_ptr<Executable> first(const ir::Graph& g, Artifact* artifact = nullptr) {
    const Verdict v = cudnn_engine().propose(g, target_);
    EXPECT_TRUE(v.proposal) << (v.reasons.empty() ? "" : v.reasons[0].text);
    if (!v.proposal) return nullptr;
    auto a = v.proposal->compile(v.proposal->candidates_in({HeurMode_t::A})[0].config, nullptr);
    EXPECT_TRUE(a) << a.status().err_msg;
    if (!a) return nullptr;
    if (artifact) *artifact = *a;
    return load(g, *a);
  }
  void check_every_plan(const ir::Graph& g) {
    const Verdict v = cudnn_engine().propose(g, target_);
    ASSERT_TRUE(v.proposal) << (v.reasons.empty() ? "" : v.reasons[0].text) << "\n" << describe(g);
    Harness harness(g);
    int ran = 0, inexact = 0;
    const std::vector<Candidate> list = v.proposal->candidates();
    for (const Candidate& c : list) {
      if (!exact_enough(c)) {
        ++inexact;
        continue;
      }
      auto artifact = v.proposal->compile(c.config, nullptr);
      if (!artifact) {
        std::printf("[ built not ] %s: %s\n", c.config.c_str(), artifact.status().err_msg.c_str());
        EXPECT_EQ(artifact.status().err_msg.find('\n'), std::string::npos);
        continue;
      }
      const auto e = load(g, *artifact);
      ASSERT_TRUE(e);
      EXPECT_EQ(int(e->steps().size()), c.kernel_count);
      const Status s = harness.check_run(*e, queue_);
      EXPECT_TRUE(s.is_good()) << c.config << ": " << s.err_msg << "\n" << describe(g);
      ++ran;
    }
    std::printf("[   plans   ] %zu listed, %d run, %d of lower precision\n%s", list.size(), ran, inexact,
                v.proposal->explain().c_str());
    EXPECT_GT(ran + inexact, 0);
  }
};

TEST_F(CudnnGpuPlans, Convolution) { check_every_plan(conv_bias_relu({2, 16, 12, 12}, {32, 16, 3, 3}).graph); }
TEST_F(CudnnGpuPlans, Matmul) { check_every_plan(batched_matmul(2, 64, 128, 96).graph); }
TEST_F(CudnnGpuPlans, MatmulOfMatrices) {
  IrBuilder b;
  auto x = b.input({64, 128}, DataType_t::HALF), w = b.input({128, 32}, DataType_t::HALF);
  b.output(b.op("matmul", {x, w}), DataType_t::HALF);
  check_every_plan(b.graph);
}
TEST_F(CudnnGpuPlans, MatmulBiasGelu) { check_every_plan(matmul_scale_bias_gelu(2, 64, 128, 96).graph); }
TEST_F(CudnnGpuPlans, Pointwise) { check_every_plan(add_relu({8, 32, 64}, DataType_t::FLOAT).graph); }
TEST_F(CudnnGpuPlans, PointwiseOfMatrices) { check_every_plan(add_relu({33, 64}, DataType_t::HALF).graph); }
TEST_F(CudnnGpuPlans, ScalarThroughAHostPointer) {
  IrBuilder b;
  auto x = b.input({4, 32, 64}), s = b.scalar(std::nullopt, 3);
  b.output(b.pw(PointwiseMode_t::MUL, {x, s}));
  check_every_plan(b.graph);
  const auto e = first(b.graph);
  ASSERT_TRUE(e);
  Harness harness(b.graph);
  for (float value : {3.0f, -0.5f}) {  // read at each execution
    *static_cast<float*>(harness.memory(s)) = value;
    harness.inputs_changed();
    const Status status = harness.check_run(*e, queue_);
    EXPECT_TRUE(status.is_good()) << value << ": " << status.err_msg;
  }
}
TEST_F(CudnnGpuPlans, ScalarThatTheGraphStores) {
  IrBuilder b;
  auto x = b.input({4, 32, 64}), s = b.scalar(0.25f, 3);
  b.output(b.pw(PointwiseMode_t::MUL, {x, s}));
  check_every_plan(b.graph);
}
TEST_F(CudnnGpuPlans, SplitWhereCudnnTakesNoWhole) {
  const IrBuilder b = two_convolutions();
  const Verdict v = cudnn_engine().propose(b.graph, target_);
  ASSERT_TRUE(v.proposal);
  EXPECT_EQ(v.proposal->candidates()[0].config, "split");
  check_every_plan(b.graph);
}

TEST_F(CudnnGpuPlans, AsManyConfigurationsAsTheFieldsFrontEndCounts) {
  const auto count = [&](const ir::Graph& g, const char* what) {
    const double t0 = now_ms();
    const Verdict v = cudnn_engine().propose(g, target_);
    if (!v.proposal) return std::string("none");
    v.proposal->candidates_in({HeurMode_t::A});
    const double t1 = now_ms();
    const auto artifact = v.proposal->compile(v.proposal->candidates_in({HeurMode_t::A})[0].config, nullptr);
    std::printf("[   times   ] %s: proposed in %.2f ms, plan 0 built in %.2f ms\n", what, t1 - t0, now_ms() - t1);
    EXPECT_TRUE(artifact) << artifact.status().err_msg;
    return v.proposal->explain();
  };
  EXPECT_THAT(count(conv_bias_relu({32, 128, 56, 56}, {256, 128, 3, 3}, DataType_t::BFLOAT16).graph, "conv"),
              HasSubstr("A list 30 "));
  std::printf("%s", count(batched_matmul(8, 256, 512, 256, DataType_t::BFLOAT16).graph, "matmul").c_str());
  std::printf("%s", count(batched_matmul(1, 4096, 4096, 4096, DataType_t::BFLOAT16).graph, "4096^3").c_str());
  std::printf("%s", count(matmul_scale_bias_gelu(16, 512, 1024, 512, DataType_t::BFLOAT16).graph, "gelu").c_str());
  std::printf("%s", count(batched_matmul(1, 64, 64, 64).graph, "64^3").c_str());
}

TEST_F(CudnnGpuPlans, APlanFileBringsThePlanBack) {
  for (const IrBuilder& b :
       {conv_bias_relu({2, 16, 12, 12}, {32, 16, 3, 3}), batched_matmul(2, 64, 128, 96), two_convolutions()}) {
    Artifact artifact;
    const auto e = first(b.graph, &artifact);
    ASSERT_TRUE(e);
    const auto bytes = e->saved();
    ASSERT_TRUE(bytes) << bytes.status().err_msg;
    const double t0 = now_ms();
    const auto again = load(b.graph, {"cudnn", artifact.config, *bytes, nullptr});
    ASSERT_TRUE(again);
    std::printf("[   times   ] loaded %zu bytes in %.2f ms\n", bytes->size(), now_ms() - t0);
    EXPECT_EQ(again->workspace_bytes(), e->workspace_bytes());
    Harness harness(b.graph);
    const Status s = harness.check_run(*again, queue_);
    EXPECT_TRUE(s.is_good()) << s.err_msg;
    const auto from_config = load(b.graph, {"cudnn", artifact.config, {}, nullptr});
    ASSERT_TRUE(from_config);
    EXPECT_TRUE(harness.check_run(*from_config, queue_).is_good());
  }
}

TEST_F(CudnnGpuPlans, AnEngineByNumberWithItsKnobs) {
  const IrBuilder b = conv_bias_relu({2, 16, 12, 12}, {32, 16, 3, 3});
  const Verdict v = cudnn_engine().propose(b.graph, target_);
  ASSERT_TRUE(v.proposal);
  const int64_t count = v.proposal->engine_count();
  ASSERT_GT(count, 0);
  EXPECT_THAT(v.proposal->candidate(count, {}).status().err_msg, HasSubstr("Invalid engine id"));
  // What the heuristics do not list runs, but may round more often than the types say.
  std::set<std::string> listed;
  for (const Candidate& c : v.proposal->candidates()) listed.insert(c.config.substr(0, c.config.find(',')));
  int built = 0;
  for (int64_t engine = 0; engine < count; ++engine) {
    const auto c = v.proposal->candidate(engine, {});
    if (!c || !exact_enough(*c)) continue;
    EXPECT_TRUE(v.proposal->knobs(engine));
    const auto artifact = v.proposal->compile(c->config, nullptr);
    if (!artifact) continue;
    const auto e = load(b.graph, *artifact);
    ASSERT_TRUE(e);
    Harness harness(b.graph);
    const Status s = harness.check_run(*e, queue_);
    EXPECT_TRUE(s.is_good() || !listed.count(c->config)) << c->config << ": " << s.err_msg;
    ++built;
  }
  std::printf("[   plans   ] %d of %ld engines by number\n", built, long(count));
  EXPECT_GT(built, 0);
}

TEST_F(CudnnGpuPlans, CapturedExecutionReplays) {
  for (const IrBuilder& b : {batched_matmul(2, 64, 128, 96), two_convolutions()}) {
    const auto e = first(b.graph);
    ASSERT_TRUE(e);
    Harness harness(b.graph);
    harness.poison_outputs();
    harness.workspace(e->workspace_bytes());
    auto copy = DeviceCopy::make(b.graph, harness, 0);
    ASSERT_TRUE(copy);
    ASSERT_TRUE(copy->upload().is_good());
    wait();
    const cuda::Driver& d = cuda::driver();
    cuda::CUgraph graph = nullptr;
    cuda::CUgraphExec exec = nullptr;
    ASSERT_EQ(d.stream_begin_capture(stream_, cuda::kCaptureThreadLocal), cuda::kSuccess);
    const Status s = e->run(copy->bindings(), copy->workspace(), queue_);
    ASSERT_EQ(d.stream_end_capture(stream_, &graph), cuda::kSuccess);
    ASSERT_TRUE(s.is_good()) << s.err_msg;
    ASSERT_EQ(d.graph_instantiate(&exec, graph, 0), cuda::kSuccess);
    ASSERT_EQ(d.graph_launch(exec, stream_), cuda::kSuccess);
    wait();
    ASSERT_TRUE(copy->download().is_good());
    EXPECT_TRUE(harness.check().is_good());
    d.graph_exec_destroy(exec);
    d.graph_destroy(graph);
  }
}

TEST_F(CudnnGpuPlans, ACudaGraphIsMadeReplayedAndUpdated) {
  const cuda::Driver& d = cuda::driver();
  int native = 0, captured = 0;
  for (const IrBuilder& b : {conv_bias_relu({2, 16, 12, 12}, {32, 16, 3, 3}), two_convolutions()}) {
    const Verdict v = cudnn_engine().propose(b.graph, target_);
    ASSERT_TRUE(v.proposal);
    for (const Candidate& c : v.proposal->candidates()) {
      const auto& notes = c.behavior_notes;
      const bool by_cudnn =
          std::find(notes.begin(), notes.end(), BehaviorNote_t::SUPPORTS_CUDA_GRAPH_NATIVE_API) != notes.end();
      if (!by_cudnn && captured > 3 && c.config != "split") continue;
      const auto artifact = v.proposal->compile(c.config, nullptr);
      if (!artifact) continue;
      const auto e = load(b.graph, *artifact);
      ASSERT_TRUE(e);
      cuda::CUgraph graph = nullptr;
      ASSERT_EQ(d.graph_create(&graph, 0), cuda::kSuccess);
      for (int round = 0; round < 3; ++round) {  // made, then updated to other memory
        HarnessOptions options;
        options.seed = uint64_t(round);
        Harness harness(b.graph, options);
        harness.poison_outputs();
        harness.workspace(e->workspace_bytes());
        auto copy = DeviceCopy::make(b.graph, harness, 0);
        ASSERT_TRUE(copy);
        ASSERT_TRUE(copy->upload().is_good());
        const Status s = round == 0 ? e->populate_cuda_graph(graph, copy->bindings(), copy->workspace(), queue_)
                                    : e->update_cuda_graph(graph, copy->bindings(), copy->workspace(), queue_);
        ASSERT_TRUE(s.is_good()) << c.config << ": " << s.err_msg;
        cuda::CUgraphExec exec = nullptr;
        ASSERT_EQ(d.graph_instantiate(&exec, graph, 0), cuda::kSuccess);
        ASSERT_EQ(d.graph_launch(exec, stream_), cuda::kSuccess);
        wait();
        ASSERT_TRUE(copy->download().is_good());
        const Status checked = harness.check();
        EXPECT_TRUE(checked.is_good()) << c.config << ", round " << round << ": " << checked.err_msg;
        d.graph_exec_destroy(exec);
      }
      d.graph_destroy(graph);
      ++(by_cudnn ? native : captured);
    }
  }
  std::printf("[   plans   ] %d with a native CUDA graph, %d captured\n", native, captured);
  EXPECT_GT(captured, 0);
}

TEST_F(CudnnGpuPlans, AKernelCacheServesOtherShapes) {
  KernelCache cache;
  std::string config, text;
  double first_ms = 0;
  for (int64_t rows : {64, 128, 192}) {
    IrBuilder b = batched_matmul(2, rows, 128, 96);
    b.graph.dynamic_shapes = true;
    const Verdict v = cudnn_engine().propose(b.graph, target_);
    ASSERT_TRUE(v.proposal) << (v.reasons.empty() ? "" : v.reasons[0].text);
    if (config.empty()) config = v.proposal->candidates_in({HeurMode_t::A})[0].config;
    const double t0 = now_ms();
    const auto artifact = v.proposal->compile(config, &cache);
    ASSERT_TRUE(artifact) << artifact.status().err_msg;
    std::printf("[   times   ] %ld rows: built in %.2f ms\n", long(rows), now_ms() - t0);
    if (first_ms == 0) first_ms = now_ms() - t0;
    const auto e = load(b.graph, *artifact, &cache);
    ASSERT_TRUE(e);
    Harness harness(b.graph);
    const Status s = harness.check_run(*e, queue_);
    EXPECT_TRUE(s.is_good()) << s.err_msg;
  }
  ASSERT_TRUE(cache.to_json(text).is_good());
  EXPECT_THAT(text, HasSubstr("\"cudnn\""));
  // What cuDNN wrote of its cache it takes back, kernels and all.
  const auto parts = nlohmann::json::parse(nlohmann::json::parse(text)["engines"]["cudnn"].get<std::string>());
  ASSERT_EQ(parts.size(), 1u);
  {
    IrBuilder b = batched_matmul(2, 320, 128, 96);
    b.graph.dynamic_shapes = true;
    std::vector<Reason> reasons;
    const auto segment = cudnn::make_segment(b.graph, {0}, target_, reasons);
    ASSERT_TRUE(segment);
    cudnn::Descriptor loaded(cudnn::Kind::KERNEL_CACHE);
    loaded.text(cudnn::Attr::KERNEL_CACHE_JSON_REPRESENTATION, parts.begin().value().get<std::string>())
        .descriptor(cudnn::Attr::KERNEL_CACHE_OPERATION_GRAPH, segment->operations->raw());
    const Status taken = loaded.finalize();
    EXPECT_TRUE(taken.is_good()) << taken.err_msg;
    const double t0 = now_ms();
    EXPECT_TRUE(segment->operations->plan(*cudnn::Config::parse(config), loaded.raw()));
    std::printf("[   times   ] built with a cache from a file in %.2f ms\n", now_ms() - t0);
  }
  KernelCache second;
  ASSERT_TRUE(second.from_json(text).is_good());
  IrBuilder b = batched_matmul(2, 256, 128, 96);
  b.graph.dynamic_shapes = true;
  const double t0 = now_ms();
  const auto e = load(b.graph, {"cudnn", config, {}, nullptr}, &second);
  ASSERT_TRUE(e);
  std::printf("[   times   ] from a file: %.2f ms (%zu bytes)\n", now_ms() - t0, text.size());
  Harness harness(b.graph);
  const Status s = harness.check_run(*e, queue_);
  EXPECT_TRUE(s.is_good()) << s.err_msg;
}

// The least host time of a call, in microseconds; few calls at a time, so that the queue does not fill.
template <class Call>
double host_us(cuda::CUstream stream, Call&& call) {
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    cuda::driver().stream_synchronize(stream);
    constexpr int kCalls = 100;
    const double t0 = now_ms();
    for (int i = 0; i < kCalls; ++i) call();
    best = std::min(best, (now_ms() - t0) * 1e3 / kCalls);
  }
  cuda::driver().stream_synchronize(stream);
  return best;
}

TEST_F(CudnnGpuPlans, HostTimeOfAnExecution) {
  for (const IrBuilder& b : {batched_matmul(1, 64, 64, 64), conv_bias_relu({32, 64, 56, 56}, {64, 64, 3, 3})}) {
    const auto e = first(b.graph);
    ASSERT_TRUE(e);
    Harness harness(b.graph);
    harness.workspace(e->workspace_bytes());
    auto copy = DeviceCopy::make(b.graph, harness, 0);
    ASSERT_TRUE(copy);
    ASSERT_TRUE(copy->upload().is_good());
    const double whole =
        host_us(stream_, [&] { EXPECT_TRUE(e->run(copy->bindings(), copy->workspace(), queue_).is_good()); });
    std::printf("[   times   ] %s: %.2f us of host time an execution\n", e->steps()[0].name.c_str(), whole);
    EXPECT_LT(whole, 50);

    // What of that is cuDNN's, by what the plan was made with and what it runs on.
    Target described = target_;
    described.ordinal = -1;
    const auto own = cudnn::planner(target_);
    ASSERT_TRUE(own);
    for (const Target* planned : std::initializer_list<const Target*>{&target_, &described}) {
      std::vector<Reason> reasons;
      const auto segment = cudnn::make_segment(b.graph, cudnn::all_nodes(b.graph), *planned, reasons);
      ASSERT_TRUE(segment);
      const auto plan =
          segment->operations->plan(segment->operations->heuristics(HeurMode_t::A).configs[0].config, nullptr);
      ASSERT_TRUE(plan) << plan.status().err_msg;
      std::vector<void*> pointers;
      std::vector<int64_t> uids;
      for (const cudnn::Bound& bound : segment->lowered->bound) {
        uids.push_back(bound.uid);
        pointers.push_back(copy->bindings()[size_t(bound.place.tensor)]);
      }
      const auto make_pack = [&] {
        cudnn::Descriptor pack(cudnn::Kind::VARIANT_PACK);
        pack.pointer(cudnn::Attr::VARIANT_PACK_WORKSPACE, copy->workspace())
            .pointers(cudnn::Attr::VARIANT_PACK_DATA_POINTERS, pointers.data(), int64_t(pointers.size()))
            .integers(cudnn::Attr::VARIANT_PACK_UNIQUE_IDS, uids);
        EXPECT_TRUE(pack.finalize().is_good());
        return pack;
      };
      const cudnn::Descriptor pack = make_pack();
      const auto on = [&](cudnn::Handle handle) {
        return host_us(stream_, [&] {
          EXPECT_EQ(cudnn::library().backend_execute(handle, plan->raw(), pack.raw()), cudnn::kSuccess);
        });
      };
      cudnn::library().set_stream((*own)->handle, stream_);
      const double packs = host_us(stream_, make_pack), users = on(handle_), engines = on((*own)->handle);
      cudnn::library().set_stream((*own)->handle, nullptr);
      std::printf(
          "[   times   ]   planned with %s: pack %.2f us, execute %.2f us on another handle, %.2f us on the "
          "planner's\n",
          planned == &target_ ? "a handle" : "properties", packs, users, engines);
    }
  }
}

TEST_F(CudnnGpuPlans, TimeOfAsking) {
  const auto ask = [&](const char* what, const ir::Graph& g) {
    const double t0 = now_ms();
    const Verdict v = cudnn_engine().propose(g, target_);
    ASSERT_TRUE(v.proposal);
    const double t1 = now_ms();
    v.proposal->candidates_in({HeurMode_t::B});
    const double t2 = now_ms();
    v.proposal->candidates_in({HeurMode_t::FALLBACK});
    const double t3 = now_ms();
    const size_t count = v.proposal->candidates().size();
    std::printf("[   times   ] %s proposed (A) in %.2f ms, B in %.2f ms, FALLBACK in %.2f ms, %zu in %.2f ms\n", what,
                t1 - t0, t2 - t1, t3 - t2, count, now_ms() - t3);
  };
  for (int64_t size : {64, 64, 80, 80}) {
    ask("conv", conv_bias_relu({32, size, 56, 56}, {64, size, 3, 3}, DataType_t::BFLOAT16).graph);
    ask("matmul", batched_matmul(8, 4 * size, 512, 256, DataType_t::BFLOAT16).graph);
  }
  // And what of it is for what.
  using cudnn::Attr;
  using cudnn::Kind;
  for (int64_t rows : {256, 320}) {
    const IrBuilder b = batched_matmul(4, rows, 512, 256, DataType_t::BFLOAT16);
    std::vector<Reason> reasons;
    const double t0 = now_ms();
    const auto segment = cudnn::make_segment(b.graph, {0}, target_, reasons);
    ASSERT_TRUE(segment);
    const double t1 = now_ms();
    cudnn::Descriptor heuristics(Kind::ENGINEHEUR);
    heuristics.descriptor(Attr::ENGINEHEUR_OPERATION_GRAPH, segment->operations->raw())
        .value(Attr::ENGINEHEUR_MODE, cudnn::AttrType::HEUR_MODE, 3);
    ASSERT_TRUE(heuristics.finalize().is_good());
    const double t2 = now_ms();
    const auto count = heuristics.count(Attr::ENGINEHEUR_RESULTS, cudnn::AttrType::BACKEND_DESCRIPTOR);
    const auto configs = heuristics.get_descriptors(Attr::ENGINEHEUR_RESULTS, Kind::ENGINECFG, *count);
    ASSERT_TRUE(configs);
    const double t3 = now_ms();
    for (const auto& c : *configs) EXPECT_TRUE(c.get_integer(Attr::ENGINECFG_WORKSPACE_SIZE));
    const double t4 = now_ms();
    for (const auto& c : *configs) EXPECT_TRUE(c.get_descriptors(Attr::ENGINECFG_ENGINE, Kind::ENGINE, 1));
    const double t5 = now_ms();
    for (const auto& c : *configs) EXPECT_TRUE(c.get_descriptors(Attr::ENGINECFG_KNOB_CHOICES, Kind::KNOB_CHOICE, 64));
    std::printf(
        "[   times   ] lowered in %.2f ms, heuristics %.2f, %zu results %.2f, workspaces %.2f, engines %.2f, "
        "knobs %.2f\n",
        t1 - t0, t2 - t1, configs->size(), t3 - t2, t4 - t3, t5 - t4, now_ms() - t5);
  }
}

}  // namespace
}  // namespace tilewright::testing
