#include "engines/cuda/engine.h"

#include <algorithm>

#include "device/cuda/nvrtc.h"
#include "engines/cuda/executable.h"
#include "engines/cuda/region.h"
#include "ir/op_def.h"
#include "plan/fused_plan.h"
#include "plan/rates.h"

namespace tilewright {
namespace {

using cuda::CompiledPlan;
using cuda::Launch;
using fuse::FusedGraph;
using fuse::Region;

// "fuse=all"; "fuse=all,tensor_cores=off"; "fuse=all,shape=1": another of the shapes that kernels of rows may have.
struct Config {
  bool tensor_cores = true;
  int shape = 0;
  std::string text() const {
    if (!tensor_cores) return "fuse=all,tensor_cores=off";
    return shape > 0 ? fmt::format("fuse=all,shape={}", shape) : "fuse=all";
  }
};

constexpr int kMostShapes = 8;
Result<Config> find_config(const std::string& text) {
  if (const Config off{false, 0}; text == off.text()) return off;
  for (int shape = 0; shape < kMostShapes; ++shape)
    if (const Config c{true, shape}; text == c.text()) return c;
  return invalid("engine cuda: configuration \"{}\" is not one of {}, {}, fuse=all,shape=1 and the like", text,
                 Config{}.text(), Config{false, 0}.text());
}

// A graph cut into regions, each as launches.
struct Program {
  Config config;
  int shapes = 1;  // that its kernels may have
  FusedGraph fused;
  std::vector<Launch> launches;
  std::vector<Reason> reasons;  // not empty: a region has no kernel
  std::vector<int> region;      // by launch

  bool on_tensor_cores() const {
    return std::any_of(launches.begin(), launches.end(), [](const Launch& l) { return l.tensor_cores; });
  }
};

std::shared_ptr<const Program> build(const ir::Graph& graph, const Target& target, const Config& config) {
  auto program = std::make_shared<Program>();
  program->config = config;
  FusedGraph& fused = program->fused;
  fused = fuse::fuse(graph);
  const cuda::KernelOptions options{target.gpu->sms, target.gpu->arch, config.tensor_cores, config.shape};
  for (Region& r : fused.regions) r.scratch_bytes = cuda::region_scratch_bytes(fused, r, options);
  place_intermediates(fused);
  for (size_t k = 0; k < fused.regions.size(); ++k) {
    const Region& r = fused.regions[k];
    program->shapes = std::max(program->shapes, cuda::region_shapes(fused, r, options));
    Result<std::vector<Launch>> launches = cuda::region_launches(fused, r, options);
    if (!launches) {
      const ir::NodeId node = r.nodes.empty() ? -1 : fused.origin[size_t(r.nodes[0])];
      program->reasons.push_back(
          {Why::Op, node, ir::kNone, fmt::format("region {} ({}): {}", k, r.name, launches.status().err_msg)});
      continue;
    }
    for (Launch& l : *launches) {
      program->launches.push_back(std::move(l));
      program->region.push_back(int(k));
    }
  }
  return program;
}

// Of the memory's rate a region reaches what was measured on an H200: nearly all of it in one walk, about half of it
// where a walk over columns must end before the next begins.
double memory_share(const Program& program, int region) {
  const auto launches = std::count(program.region.begin(), program.region.end(), region);
  return program.fused.regions[size_t(region)].anchor == fuse::Anchor::Rows ? (launches > 2 ? 0.5 : 0.93) : 0.8;
}

// The memory's time or that of the arithmetic, longer where there are too few threads to keep the one or the other
// busy.
double estimate_ms(const Program& program, const Target& target) {
  const Rates peak = peak_rates(target);
  const double busy = double(target.gpu->sms) * 1024;  // threads that do
  double ms = 0;
  for (size_t k = 0; k < program.launches.size(); ++k) {
    const Launch& l = program.launches[k];
    const int region = program.region[k];
    const bool first = k == 0 || region != program.region[k - 1];
    double bytes = 0;
    const Region& r = program.fused.regions[size_t(region)];
    for (const auto* list : {&r.reads, &r.writes})
      for (ir::TensorId t : *list) bytes += double(program.fused.graph.tensor(t).storage_bytes());
    const double share = std::min(1.0, double(l.grid) * l.block / busy);
    const double arithmetic = l.flops / peak.flops_per_ms / l.flops_share;
    const double computing = std::min(1.0, double(l.grid) / target.gpu->sms);  // blocks that compute are large
    ms +=
        (l.flops > 0 ? 0.004 : 0.002) +
        std::max(first ? bytes / peak.bytes_per_ms / memory_share(program, region) / share : 0, arithmetic / computing);
  }
  return ms;
}

Result<CompiledPlan> compiled(const Program& program, const Target& target, KernelCache* cache) {
  CompiledPlan plan{target.code(), program.fused.workspace_bytes, hazards(program.fused), program.launches};
  TW_RETURN_IF_BAD(cuda::compile_all(plan.launches, plan.code, cuda::KernelStore::of(cache).get()));
  return plan;
}

class CudaProposal : public Proposal {
 public:
  // The programs by configuration, the usual one first.
  CudaProposal(std::vector<std::shared_ptr<const Program>> programs, const Target& target)
      : programs_(std::move(programs)), target_(target) {}

  std::vector<Candidate> candidates() const override {
    std::vector<Candidate> list;
    for (const auto& program : programs_) list.push_back(candidate_of(*program));
    return list;
  }
  Result<Artifact> compile(const std::string& config, KernelCache* cache) const override {
    TW_RETURN_IF_BAD(find_config(config).status());
    const Program* program = find(config);
    if (!program) return invalid("engine cuda: \"{}\" is not among this graph's configurations", config);
    TW_ASSIGN_OR_RETURN(CompiledPlan plan, compiled(*program, target_, cache));
    return Artifact{"cuda", config, {}, std::make_shared<CompiledPlan>(std::move(plan))};
  }
  std::string explain() const override {
    std::string text = programs_[0]->fused.text();
    for (const Launch& l : programs_[0]->launches)
      text += fmt::format("launch {}: {} blocks of {} threads\n", l.name, l.grid, l.block);
    return text;
  }
  std::vector<RegionInfo> regions() const override { return region_infos(programs_[0]->fused); }
  std::vector<KernelText> kernels(const std::string& config) const override {
    const Program* program = find(config);
    std::vector<KernelText> list;
    for (const Launch& l : (program ? program : programs_[0].get())->launches)
      list.push_back({fmt::format("{}, {} blocks of {} threads", l.name, l.grid, l.block), l.text});
    return list;
  }

 private:
  const Program* find(const std::string& config) const {
    for (const auto& program : programs_)
      if (program->config.text() == config) return program.get();
    return nullptr;
  }
  Candidate candidate_of(const Program& program) const {
    Candidate c;
    c.config = program.config.text();
    c.workspace_bytes = program.fused.workspace_bytes;
    c.kernel_count = int(program.launches.size());
    // Shapes are listed with the likely best first, whatever their numbers of threads.
    const int shape = program.config.shape;
    c.estimated_ms = estimate_ms(shape > 0 ? *programs_[0] : program, target_) * (1 + 0.01 * shape);
    c.everything = true;
    c.notes.push_back(fmt::format("{} kernel{}", c.kernel_count, c.kernel_count == 1 ? "" : "s"));
    c.behavior_notes.push_back(BehaviorNote_t::RUNTIME_COMPILATION);
    c.numerical_notes.push_back(NumericalNote_t::STRICT_NAN_PROP);
    if (program.on_tensor_cores()) c.numerical_notes.push_back(NumericalNote_t::TENSOR_CORE);
    // Memory that starts as zeros is what atomics fold into.
    const bool atomics =
        std::any_of(program.launches.begin(), program.launches.end(), [](const Launch& l) { return l.zero_bytes > 0; });
    if (atomics) c.numerical_notes.push_back(NumericalNote_t::NONDETERMINISTIC);
    else c.notes.push_back("deterministic");
    return c;
  }

  std::vector<std::shared_ptr<const Program>> programs_;
  Target target_;
};

class CudaEngine : public Engine {
 public:
  const char* name() const override { return "cuda"; }
  const char* summary() const override { return "our kernels for NVIDIA GPUs, generated from the graph"; }
  int version() const override { return 2; }
  // A plan from a file has its machine code, and needs no compiler.
  std::vector<Reason> cannot_load(const Target& target) const override {
    if (target.is_gpu()) return {};
    return {{Why::Arch, -1, ir::kNone, fmt::format("serves GPUs, the target is {}", target.text())}};
  }
  std::vector<Reason> unavailable(const Target& target) const override {
    if (auto reasons = cannot_load(target); !reasons.empty()) return reasons;
    if (!cuda::nvrtc_lookup().nvrtc) return {{Why::Library, -1, ir::kNone, cuda::nvrtc_lookup().problem}};
    return {};
  }
  Verdict propose(const ir::Graph& graph, const Target& target) const override {
    if (auto reasons = unavailable(target); !reasons.empty()) return {nullptr, reasons};
    std::vector<std::shared_ptr<const Program>> programs = {build(graph, target, {})};
    if (!programs[0]->reasons.empty()) return {nullptr, programs[0]->reasons};
    if (programs[0]->on_tensor_cores()) programs.push_back(build(graph, target, {false, 0}));
    for (int shape = 1; shape < std::min(programs[0]->shapes, kMostShapes); ++shape)
      programs.push_back(build(graph, target, {true, shape}));
    return {std::make_unique<CudaProposal>(std::move(programs), target), {}};
  }
  Result<std::unique_ptr<Executable>> load(const ir::Graph& graph, const Artifact& artifact, const Target& target,
                                           KernelCache* cache) const override {
    if (auto reasons = cannot_load(target); !reasons.empty()) return not_supported("cuda: {}", reasons[0].text);
    CompiledPlan plan;
    if (artifact.made) {
      plan = *std::static_pointer_cast<const CompiledPlan>(artifact.made);
    } else if (!artifact.bytes.empty()) {
      TW_ASSIGN_OR_RETURN(plan, cuda::from_bytes(artifact.bytes));
    } else {
      TW_ASSIGN_OR_RETURN(const Config config, find_config(artifact.config));
      const auto program = build(graph, target, config);
      if (!program->reasons.empty()) return not_supported("engine cuda: {}", program->reasons[0].text);
      TW_ASSIGN_OR_RETURN(plan, compiled(*program, target, cache));
    }
    return cuda::make_executable(graph, std::move(plan), target, cuda::KernelStore::of(cache).get());
  }
};

}  // namespace

const Engine& cuda_engine() {
  static const CudaEngine engine;
  return engine;
}

}  // namespace tilewright
