#include "engines/onednn/engine.h"

#include <algorithm>

#include "engines/onednn/lower.h"
#include "plan/rates.h"

namespace tilewright {
namespace {

using onednn::LowerOptions;
using onednn::Program;

struct Config {
  const char* text;
  bool post_ops, any_weights;
};
// The first is the usual one. "weights=any" pays for a reorder of the weights to have them as the library likes best.
constexpr Config kConfigs[] = {
    {"fuse=post_ops", true, false},
    {"fuse=post_ops,weights=any", true, true},
    {"fuse=none", false, false},
};

Result<Config> parse_config(const std::string& text) {
  for (const Config& c : kConfigs)
    if (text == c.text) return c;
  return invalid("onednn: configuration \"{}\" is not known", text);
}

Program lower(const ir::Graph& graph, const Config& config, const Target& target) {
  return onednn::lower(graph, {config.post_ops, config.any_weights, false, target.threads});
}

// By the roofline: contractions and normalisations run near the machine's peak, in bfloat16 at twice that where the CPU
// multiplies it.
double estimate_ms(const Program& program, const Target& target) {
  const Rates peak = peak_rates(target);
  double ms = 0;
  for (const onednn::Launch& launch : program.launches) {
    if (launch.makes_kept) continue;  // once, at the first execute
    const bool contraction = launch.flops > 4 * launch.bytes || launch.name.rfind("conv", 0) == 0;
    const bool normalisation = launch.name.rfind("layernorm", 0) == 0;
    const double share = contraction || normalisation ? 0.9 : 0.45;
    const double rate = launch.implementation.find("bf16") != std::string::npos ? 2 : 1;
    ms += 0.004 + std::max(launch.bytes / peak.bytes_per_ms, launch.flops / peak.flops_per_ms / rate) / share;
  }
  return ms;
}

std::string text(const Program& program) {
  std::string s;
  for (const onednn::Launch& launch : program.launches)
    s += fmt::format("{} runs as {}\n", launch.name, launch.implementation);
  return s;
}

class OnednnProposal : public Proposal {
 public:
  OnednnProposal(std::vector<Program> programs, const Target& target)
      : programs_(std::move(programs)), target_(target) {}

  std::vector<Candidate> candidates() const override {
    std::vector<Candidate> list;
    for (size_t k = 0; k < programs_.size(); ++k) {
      const Program& p = programs_[k];
      Candidate c;
      c.config = kConfigs[k].text;
      c.workspace_bytes = p.workspace_bytes;
      c.kernel_count = int(p.launches.size());
      c.estimated_ms = estimate_ms(p, target_);
      c.notes.push_back(fmt::format("{} primitive{}", p.launches.size(), p.launches.size() == 1 ? "" : "s"));
      if (p.keeps_nan) c.numerical_notes.push_back(NumericalNote_t::STRICT_NAN_PROP);
      else c.notes.push_back("NaN may become a number");
      c.reasons = p.reasons;
      if (k > 0 && p.reasons.empty() && text(p) == text(programs_[0]))
        c.reasons.push_back({Why::Policy, -1, ir::kNone, fmt::format("runs exactly as {} does", kConfigs[0].text)});
      list.push_back(std::move(c));
    }
    return list;
  }

  Result<Artifact> compile(const std::string& config, KernelCache*) const override {
    TW_ASSIGN_OR_RETURN(const Config parsed, parse_config(config));
    return Artifact{"onednn", parsed.text, {}, nullptr};
  }

  std::string explain() const override { return text(programs_[0]); }

  std::vector<RegionInfo> regions() const override {
    std::vector<RegionInfo> list;
    for (const onednn::Launch& launch : programs_[0].launches) list.push_back({launch.name, launch.nodes});
    return list;
  }

 private:
  std::vector<Program> programs_;  // by configuration
  Target target_;
};

class OnednnEngine : public Engine {
 public:
  const char* name() const override { return "onednn"; }
  const char* summary() const override { return "primitives of oneDNN 2.x, where that library is installed"; }
  int version() const override { return 1; }

  std::vector<Reason> unavailable(const Target& target) const override {
    if (target.device != "cpu")
      return {{Why::Arch, -1, ir::kNone, fmt::format("runs on a CPU, not on \"{}\"", target.device)}};
    if (!onednn::lookup().problem.empty()) return {{Why::Library, -1, ir::kNone, onednn::lookup().problem}};
    return {};
  }

  Verdict propose(const ir::Graph& graph, const Target& target) const override {
    if (auto reasons = unavailable(target); !reasons.empty()) return {nullptr, reasons};
    std::vector<Program> programs;
    for (const Config& config : kConfigs) {
      programs.push_back(lower(graph, config, target));
      if (programs.size() == 1 && !programs[0].reasons.empty()) return {nullptr, programs[0].reasons};
    }
    return {std::make_unique<OnednnProposal>(std::move(programs), target), {}};
  }

  Result<std::unique_ptr<Executable>> load(const ir::Graph& graph, const Artifact& artifact, const Target& target,
                                           KernelCache*) const override {
    TW_ASSIGN_OR_RETURN(const Config config, parse_config(artifact.config));
    if (auto reasons = unavailable(target); !reasons.empty()) return not_supported("onednn: {}", reasons[0].text);
    Program program = lower(graph, config, target);
    if (!program.reasons.empty()) return not_supported("onednn: {}", program.reasons[0].text);
    auto executable = onednn::make_executable(graph, std::move(program), target.threads);
    if (!executable)
      return error(error_code_t::GRAPH_EXECUTION_PLAN_CREATION_FAILED, "oneDNN could not make a primitive");
    return executable;
  }
};

}  // namespace

const Engine& onednn_engine() {
  static const OnednnEngine engine;
  return engine;
}

}  // namespace tilewright
