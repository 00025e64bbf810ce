#include "plan/engine.h"

namespace tilewright {

Status Executable::populate_cuda_graph(void*, const Bindings&, void*, const Queue&) const {
  return not_supported("this plan cannot make a CUDA graph; capture its execution on a stream instead");
}

Status Executable::update_cuda_graph(void*, const Bindings&, void*, const Queue&) const {
  return not_supported("this plan cannot update a CUDA graph; capture its execution on a stream instead");
}

Result<std::vector<Knob>> Proposal::knobs(int64_t) const { return std::vector<Knob>{}; }

Result<Candidate> Proposal::candidate(int64_t engine, const std::unordered_map<KnobType_t, int64_t>&) const {
  return invalid("there is no engine {} within this engine", engine);
}

std::vector<std::string> Engine::plan_names(const std::string& config) const {
  return {config.empty() ? name() : fmt::format("{}[{}]", name(), config)};
}

}  // namespace tilewright
