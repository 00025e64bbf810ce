#include "engines/cuda/compiled_plan.h"

#include <map>
#include <nlohmann/json.hpp>

namespace tilewright::cuda {

using nlohmann::json;

std::vector<uint8_t> to_bytes(const CompiledPlan& plan) {
  json images = json::array(), launches = json::array(), hazards = json::array();
  std::map<const CompiledKernel*, int> image;  // launches of one text share it
  for (const Launch& l : plan.launches) {
    int at = -1;
    if (l.kernel) {
      const auto [it, fresh] = image.try_emplace(l.kernel.get(), int(images.size()));
      if (fresh) images.push_back(json::binary(l.kernel->image));
      at = it->second;
    }
    json patches = json::array();
    for (const Patch& p : l.patches) patches.push_back({int(p.kind), p.at, p.tensor, p.offset});
    launches.push_back({{"name", l.name},
                        {"image", at},
                        {"grid", l.grid},
                        {"block", l.block},
                        {"arguments", json::binary(l.arguments)},
                        {"patches", patches},
                        {"zero", {l.zero_offset, l.zero_bytes}}});
  }
  for (const Hazard& h : plan.hazards) hazards.push_back({h.written, h.read});
  return json::to_cbor({{"code", plan.code},
                        {"workspace", plan.workspace_bytes},
                        {"hazards", hazards},
                        {"images", images},
                        {"launches", launches}});
}

Result<CompiledPlan> from_bytes(const std::vector<uint8_t>& bytes) {
  const json j = json::from_cbor(bytes, true, false);
  CompiledPlan plan;
  try {
    std::vector<std::shared_ptr<const CompiledKernel>> images;
    for (const json& image : j.at("images")) {
      auto kernel = std::make_shared<CompiledKernel>();
      kernel->image = image.get_binary();
      images.push_back(std::move(kernel));
    }
    plan.code = j.at("code"), plan.workspace_bytes = j.at("workspace");
    for (const json& h : j.at("hazards")) plan.hazards.push_back({h.at(0), h.at(1)});
    for (const json& l : j.at("launches")) {
      Launch launch;
      launch.name = l.at("name");
      if (const int at = l.at("image"); at >= 0) launch.kernel = images.at(size_t(at));
      launch.grid = l.at("grid"), launch.block = l.at("block");
      launch.arguments = l.at("arguments").get_binary();
      for (const json& p : l.at("patches"))
        launch.patches.push_back({Patch::Kind(p.at(0).get<int>()), p.at(1), p.at(2), p.at(3)});
      launch.zero_offset = l.at("zero").at(0), launch.zero_bytes = l.at("zero").at(1);
      plan.launches.push_back(std::move(launch));
    }
  } catch (const std::exception& e) {
    return invalid("engine cuda: the plan's bytes are damaged: {}", e.what());
  }
  return plan;
}

namespace {

bool patch_fits(const Patch& p, const Launch& l, const ir::Graph& graph) {
  const size_t bytes = p.kind == Patch::Float ? 4 : 8;
  if (p.kind < Patch::Memory || p.kind > Patch::Integer || p.at + bytes > l.arguments.size()) return false;
  if (p.kind == Patch::Workspace) return true;
  return p.tensor >= 0 && size_t(p.tensor) < graph.tensors.size() && graph.tensor(p.tensor).bound_by_caller();
}

}  // namespace

Status check(const CompiledPlan& plan, const ir::Graph& graph, const Target& target) {
  if (!code_runs_on(plan.code, target.gpu->arch))
    return not_supported(
        "engine cuda: the plan's kernels are for {}, which {} with compute capability {}.{} does not run; compile the "
        "graph for {}, or for compute_75, which newer GPUs run too",
        plan.code, target.gpu->name, target.gpu->arch / 10, target.gpu->arch % 10, native_arch(target.gpu->arch));
  for (const Hazard& h : plan.hazards)
    for (ir::TensorId t : {h.written, h.read})
      if (t < 0 || size_t(t) >= graph.tensors.size()) return invalid("engine cuda: the plan does not fit the graph");
  for (const Launch& l : plan.launches) {
    if (l.grid < 1 || l.grid > INT32_MAX || l.block < 1 || l.block > 1024 || l.arguments.size() > kMostArguments ||
        l.zero_offset < 0 || l.zero_bytes < 0 || l.zero_offset + l.zero_bytes > plan.workspace_bytes)
      return invalid("engine cuda: launch \"{}\" of the plan cannot be", l.name);
    for (const Patch& p : l.patches)
      if (!patch_fits(p, l, graph))
        return invalid("engine cuda: launch \"{}\" of the plan does not fit the graph", l.name);
  }
  return {};
}

}  // namespace tilewright::cuda
