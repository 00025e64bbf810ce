#include "engines/cpu/engine.h"

#include <algorithm>

#include "engines/cpu/kernel.h"
#include "fuse/regions.h"
#include "ir/op_def.h"
#include "plan/fused_plan.h"
#include "plan/rates.h"

namespace tilewright {
namespace {

using cpu::Kernel;
using fuse::Anchor;
using fuse::FusedGraph;
using fuse::Region;

// What a configuration's text says. "fuse=all": regions as large as they get. "fuse=anchors": every op alone, with its
// own launch; the unfused baseline.
struct Config {
  bool fuse = true;
};
constexpr const char* kConfigs[] = {"fuse=all", "fuse=anchors"};

Result<Config> parse_config(const std::string& text) {
  if (text == kConfigs[0]) return Config{true};
  if (text == kConfigs[1]) return Config{false};
  return invalid("cpu.fused: configuration \"{}\" is not one of {}, {}", text, kConfigs[0], kConfigs[1]);
}

// A graph cut into regions, each ready to run.
struct Program {
  FusedGraph fused;
  std::vector<std::unique_ptr<Kernel>> kernels;  // by region
};

std::unique_ptr<Kernel> make_kernel(const FusedGraph& fused, const Region& region) {
  switch (region.anchor) {
    case Anchor::Rows: return cpu::make_rows(region);
    case Anchor::Contraction:
      if (auto direct = cpu::make_direct(fused, region)) return direct;
      return cpu::make_contraction(fused, region);
    case Anchor::Pooling: return cpu::make_pool(fused, region);
    case Anchor::Attention:
      if (auto attention = cpu::make_attention(fused, region)) return attention;
      break;
    case Anchor::Node:
      if (auto rng = cpu::make_rng(fused, region)) return rng;
      break;
  }
  return cpu::make_node(fused, region);
}

std::shared_ptr<const Program> build(const ir::Graph& graph, const Config& config) {
  auto program = std::make_shared<Program>();
  program->fused = fuse::fuse(graph, {.fuse = config.fuse});
  for (Region& region : program->fused.regions) {
    program->kernels.push_back(make_kernel(program->fused, region));
    region.scratch_bytes = program->kernels.back()->scratch_bytes();
  }
  place_intermediates(program->fused);
  return program;
}

// Time by the roofline of a machine of the target's kind: rough, to rank plans before they are measured.
double estimate_ms(const Program& program, const Target& target) {
  const FusedGraph& fused = program.fused;
  const Rates peak = peak_rates(target);
  double ms = 0;
  for (size_t k = 0; k < fused.regions.size(); ++k) {
    const Region& region = fused.regions[k];
    double bytes = 0, flops = 0;
    for (const auto* list : {&region.reads, &region.writes})
      for (ir::TensorId t : *list) bytes += double(fused.graph.tensor(t).storage_bytes());
    for (ir::NodeId n : region.nodes) flops += ir::cost(fused.graph, fused.graph.nodes[size_t(n)]).flops;
    // A node without a fast loop runs as its reference does, about as fast as one evaluates the whole graph that way.
    if (program.kernels[k]->slow()) ms += 0.003 + flops / 2e6 + bytes / 1e6;
    else {
      const double arithmetic = flops / peak.flops_per_ms / program.kernels[k]->speed();
      ms += 0.003 + std::max(bytes / peak.bytes_per_ms / program.kernels[k]->memory_share(), arithmetic);
    }
  }
  return ms;
}

class FusedProposal : public Proposal {
 public:
  FusedProposal(const ir::Graph& graph, const Target& target) : target_(target) {
    for (const char* text : kConfigs) programs_.push_back(build(graph, *parse_config(text)));
  }

  std::vector<Candidate> candidates() const override {
    std::vector<Candidate> list;
    for (size_t k = 0; k < programs_.size(); ++k) {
      const FusedGraph& fused = programs_[k]->fused;
      Candidate c;
      c.config = kConfigs[k];
      c.workspace_bytes = fused.workspace_bytes;
      c.kernel_count = int(fused.regions.size());
      c.estimated_ms = estimate_ms(*programs_[k], target_);
      c.everything = true;
      c.notes.push_back(fmt::format("{} kernel{}", c.kernel_count, c.kernel_count == 1 ? "" : "s"));
      c.notes.push_back("deterministic");
      c.numerical_notes.push_back(NumericalNote_t::STRICT_NAN_PROP);
      const auto slow = std::count_if(programs_[k]->kernels.begin(), programs_[k]->kernels.end(),
                                      [](const auto& kernel) { return kernel->slow(); });
      if (slow > 0) c.notes.push_back(fmt::format("{} op{} without a fast loop", slow, slow == 1 ? "" : "s"));
      if (k > 0 && fused.text() == programs_[0]->fused.text())
        c.reasons.push_back(
            {Why::Policy, -1, ir::kNone, fmt::format("cuts this graph exactly as {} does", kConfigs[0])});
      list.push_back(std::move(c));
    }
    return list;
  }

  Result<Artifact> compile(const std::string& config, KernelCache*) const override {
    TW_ASSIGN_OR_RETURN(const Config parsed, parse_config(config));
    (void)parsed;
    return Artifact{"cpu.fused", config, {}, nullptr};
  }

  std::string explain() const override {
    const Program& p = *programs_[0];
    std::string text = p.fused.text();
    for (size_t k = 0; k < p.kernels.size(); ++k)
      text += fmt::format("region {} runs as {}\n", k, p.kernels[k]->describe());
    return text;
  }

  std::vector<RegionInfo> regions() const override { return region_infos(programs_[0]->fused); }

 private:
  Target target_;
  std::vector<std::shared_ptr<const Program>> programs_;
};

class FusedEngine : public Engine {
 public:
  const char* name() const override { return "cpu.fused"; }
  const char* summary() const override { return "fused loops over whole regions, on any CPU"; }
  int version() const override { return 1; }

  std::vector<Reason> unavailable(const Target& target) const override {
    if (target.device == "cpu") return {};
    return {{Why::Arch, -1, ir::kNone, fmt::format("runs on a CPU, not on \"{}\"", target.device)}};
  }

  Verdict propose(const ir::Graph& graph, const Target& target) const override {
    Verdict v;
    for (size_t t = 0; t < graph.tensors.size(); ++t) {
      const DataType_t type = graph.tensors[t].type;
      const bool single = is_float_type(type) || is_integer_type(type);
      if (!single || type == DataType_t::INT8x4 || type == DataType_t::UINT8x4 || type == DataType_t::INT8x32)
        v.reasons.push_back({Why::Dtype, -1, ir::TensorId(t),
                             fmt::format("tensor \"{}\" is {}: elements of that type have no single value",
                                         graph.tensors[t].name, to_string(type))});
    }
    if (v.reasons.empty()) v.proposal = std::make_unique<FusedProposal>(graph, target);
    return v;
  }

  Result<std::unique_ptr<Executable>> load(const ir::Graph& graph, const Artifact& artifact, const Target&,
                                           KernelCache*) const override {
    TW_ASSIGN_OR_RETURN(const Config config, parse_config(artifact.config));
    const std::shared_ptr<const Program> program = build(graph, config);
    std::vector<Step> steps;
    for (size_t k = 0; k < program->kernels.size(); ++k) {
      const Region& region = program->fused.regions[k];
      steps.push_back({region.name, [program, kernel = program->kernels[k].get(), offset = region.scratch_offset](
                                        const Bindings& bindings, void* workspace) {
                         kernel->run(cpu::Memory(program->fused, bindings, workspace),
                                     static_cast<char*>(workspace) + offset);
                       }});
    }
    return std::unique_ptr<Executable>(
        std::make_unique<StepList>(std::move(steps), program->fused.workspace_bytes, hazards(program->fused)));
  }
};

}  // namespace

const Engine& cpu_fused_engine() {
  static const FusedEngine engine;
  return engine;
}

}  // namespace tilewright
