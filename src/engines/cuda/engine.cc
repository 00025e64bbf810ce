#include "engines/cuda/engine.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "device/cuda/nvrtc.h"
#include "engines/cuda/kernel_headers.h"
#include "engines/cuda/launch.h"
#include "engines/cuda/region.h"
#include "ir/op_def.h"
#include "plan/captured_node.h"
#include "plan/fused_plan.h"
#include "plan/rates.h"

namespace tilewright {
namespace {

using cuda::Launch;
using cuda::Patch;
using fuse::FusedGraph;
using fuse::Region;

// A graph cut into regions, each as launches.
struct Program {
  FusedGraph fused;
  std::vector<Launch> launches;
  std::vector<Reason> reasons;  // not empty: a region has no kernel
  std::vector<int> region;      // by launch
};

std::shared_ptr<Program> build(const ir::Graph& graph, const Target& target) {
  auto program = std::make_shared<Program>();
  FusedGraph& fused = program->fused;
  fused = fuse::fuse(graph);
  const cuda::KernelOptions options{target.gpu->sms, target.gpu->arch};
  for (Region& r : fused.regions) r.scratch_bytes = cuda::region_scratch_bytes(fused, r, options);
  place_intermediates(fused);
  for (size_t k = 0; k < fused.regions.size(); ++k) {
    const Region& r = fused.regions[k];
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

// Machine code into every launch.
Status compile_all(std::vector<Launch>& launches, const std::string& arch) {
  for (Launch& l : launches) {
    TW_ASSIGN_OR_RETURN(auto kernel,
                        cuda::compile({l.text, cuda::kernel_headers(), cuda::kernel_header_count()}, arch));
    l.image = kernel->image;
  }
  return {};
}

// --- as bytes, for plan files
// ------------------------------------------------------------------------------------------

std::vector<uint8_t> to_bytes(const std::vector<Launch>& launches) {
  nlohmann::json list = nlohmann::json::array();
  for (const Launch& l : launches) {
    nlohmann::json patches = nlohmann::json::array();
    for (const Patch& p : l.patches) patches.push_back({int(p.kind), p.at, p.tensor, p.offset});
    list.push_back({{"name", l.name},
                    {"image", nlohmann::json::binary(l.image)},
                    {"grid", l.grid},
                    {"block", l.block},
                    {"arguments", nlohmann::json::binary(l.arguments)},
                    {"patches", patches},
                    {"zero", {l.zero_offset, l.zero_bytes}}});
  }
  return nlohmann::json::to_cbor(list);
}

Result<std::vector<Launch>> from_bytes(const std::vector<uint8_t>& bytes) {
  const auto list = nlohmann::json::from_cbor(bytes, true, false);
  if (!list.is_array()) return invalid("engine cuda: the plan's bytes are damaged");
  std::vector<Launch> launches;
  try {
    for (const auto& j : list) {
      Launch l;
      l.name = j.at("name");
      l.image = j.at("image").get_binary();
      l.grid = j.at("grid"), l.block = j.at("block");
      l.arguments = j.at("arguments").get_binary();
      for (const auto& p : j.at("patches"))
        l.patches.push_back({Patch::Kind(p.at(0).get<int>()), p.at(1), p.at(2), p.at(3)});
      l.zero_offset = j.at("zero").at(0), l.zero_bytes = j.at("zero").at(1);
      launches.push_back(std::move(l));
    }
  } catch (const nlohmann::json::exception& e) {
    return invalid("engine cuda: the plan's bytes are damaged: {}", e.what());
  }
  return launches;
}

// What fits the graph: the patches lie in the arguments and name its tensors.
Status check(const std::vector<Launch>& launches, const ir::Graph& graph, int64_t workspace) {
  for (const Launch& l : launches) {
    if (l.grid < 1 || l.grid > INT32_MAX || l.block < 1 || l.block > 1024 || l.arguments.size() > 4096 ||
        l.zero_offset < 0 || l.zero_bytes < 0 || l.zero_offset + l.zero_bytes > workspace)
      return invalid("engine cuda: launch \"{}\" of the plan cannot be", l.name);
    for (const Patch& p : l.patches)
      if (p.at + 8 > l.arguments.size() + (p.kind == Patch::Float ? 4 : 0) ||
          (p.kind != Patch::Workspace && (p.tensor < 0 || size_t(p.tensor) >= graph.tensors.size())))
        return invalid("engine cuda: launch \"{}\" of the plan does not fit the graph", l.name);
  }
  return {};
}

// --- running
// -----------------------------------------------------------------------------------------------------------

class CudaExecutable : public Executable {
 public:
  static Result<std::unique_ptr<Executable>> make(const ir::Graph& graph, std::vector<Launch> launches,
                                                  int64_t workspace, std::vector<Hazard> hazards, int ordinal) {
    TW_RETURN_IF_BAD(check(launches, graph, workspace));
    std::unique_ptr<CudaExecutable> e(new CudaExecutable(std::move(launches), workspace, std::move(hazards), ordinal));
    for (const ir::Tensor& t : graph.tensors) e->scalar_type_.push_back(t.storage_type());
    const cuda::ScopedDevice device(ordinal);
    TW_RETURN_IF_BAD(device.status());
    for (const Launch& l : e->launches_) {
      cuda::CUmodule module = nullptr;
      cuda::CUfunction function = nullptr;
      TW_RETURN_IF_BAD(cuda::check(cuda::driver().module_load_data(&module, l.image.data()), "cuModuleLoadData"));
      e->modules_.push_back(module);
      TW_RETURN_IF_BAD(
          cuda::check(cuda::driver().module_get_function(&function, module, "tw_kernel"), "cuModuleGetFunction"));
      e->functions_.push_back(function);
    }
    return std::unique_ptr<Executable>(std::move(e));
  }
  ~CudaExecutable() override {
    const cuda::ScopedDevice device(ordinal_);
    for (cuda::CUmodule m : modules_) cuda::driver().module_unload(m);
  }

  Status run(const Bindings& bindings, void* workspace, const Queue& queue) const override {
    const auto stream = static_cast<cuda::CUstream>(queue.stream);
    char* const base = static_cast<char*>(workspace);
    for (size_t k = 0; k < launches_.size(); ++k) {
      const Launch& l = launches_[k];
      if (l.zero_bytes > 0)
        TW_RETURN_IF_BAD(
            cuda::check(cuda::driver().memset_d8_async(address(base + l.zero_offset), 0, size_t(l.zero_bytes), stream),
                        "cuMemsetD8Async"));
      alignas(16) uint8_t arguments[4096];
      std::copy(l.arguments.begin(), l.arguments.end(), arguments);
      for (const Patch& p : l.patches) write(arguments + p.at, p, bindings, base);
      void* parameters[] = {arguments};
      const cuda::CUresult r = cuda::driver().launch_kernel(functions_[k], unsigned(l.grid), 1, 1, unsigned(l.block), 1,
                                                            1, 0, stream, parameters, nullptr);
      if (r != cuda::kSuccess) return cuda::check(r, fmt::format("launching {}", l.name));
    }
    return {};
  }

  Status populate_cuda_graph(void* graph, const Bindings& bindings, void* workspace,
                             const Queue& queue) const override {
    return capture_into(graph, *this, bindings, workspace, queue);
  }
  Status update_cuda_graph(void* graph, const Bindings& bindings, void* workspace, const Queue& queue) const override {
    return capture_again(graph, *this, bindings, workspace, queue);
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }
  const std::vector<Step>& steps() const override { return steps_; }
  const std::vector<Hazard>& hazards() const override { return hazards_; }
  Result<std::vector<uint8_t>> saved() const override { return to_bytes(launches_); }

 private:
  CudaExecutable(std::vector<Launch> launches, int64_t workspace, std::vector<Hazard> hazards, int ordinal)
      : launches_(std::move(launches)), hazards_(std::move(hazards)), workspace_bytes_(workspace), ordinal_(ordinal) {
    for (const Launch& l : launches_) steps_.push_back({l.name, {}});
  }
  static cuda::CUdeviceptr address(const void* p) { return reinterpret_cast<cuda::CUdeviceptr>(p); }
  void write(uint8_t* at, const Patch& p, const Bindings& bindings, char* workspace) const {
    const auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
    switch (p.kind) {
      case Patch::Memory: return put(static_cast<char*>(bindings[size_t(p.tensor)]) + p.offset);
      case Patch::Workspace: return put(workspace + p.offset);
      case Patch::Integer: return put(integer_key(bindings[size_t(p.tensor)], scalar_type_[size_t(p.tensor)]));
      default: break;
    }
    const double value = load_element(bindings[size_t(p.tensor)], scalar_type_[size_t(p.tensor)], 0);
    if (p.kind == Patch::Double) put(value);
    else put(float(value));
  }

  std::vector<Launch> launches_;
  std::vector<Step> steps_;
  std::vector<Hazard> hazards_;
  std::vector<DataType_t> scalar_type_;  // by tensor
  std::vector<cuda::CUmodule> modules_;
  std::vector<cuda::CUfunction> functions_;
  int64_t workspace_bytes_;
  int ordinal_;
};

// The memory's time or the arithmetic's, longer where there are too few threads to keep the GPU busy.
double estimate_ms(const Program& program, const Target& target) {
  const Rates peak = peak_rates(target);
  const double busy = double(target.gpu->sms) * 1024;  // threads that do
  double ms = 0;
  for (size_t k = 0; k < program.launches.size(); ++k) {
    const Launch& l = program.launches[k];
    const bool first = k == 0 || program.region[k] != program.region[k - 1];
    double bytes = 0;
    const Region& r = program.fused.regions[size_t(program.region[k])];
    for (const auto* list : {&r.reads, &r.writes})
      for (ir::TensorId t : *list) bytes += double(program.fused.graph.tensor(t).storage_bytes());
    const double share = std::min(1.0, double(l.grid) * l.block / busy);
    const double arithmetic = l.flops / peak.flops_per_ms / l.flops_share;
    ms += 0.002 + std::max(first ? bytes / peak.bytes_per_ms / 0.8 : 0, arithmetic) / share;
  }
  return ms;
}

class CudaProposal : public Proposal {
 public:
  CudaProposal(std::shared_ptr<const Program> program, const Target& target)
      : program_(std::move(program)), target_(target) {}

  std::vector<Candidate> candidates() const override {
    Candidate c;
    c.config = "fuse=all";
    c.workspace_bytes = program_->fused.workspace_bytes;
    c.kernel_count = int(program_->launches.size());
    c.estimated_ms = estimate_ms(*program_, target_);
    c.everything = true;
    c.notes.push_back(fmt::format("{} kernel{}", c.kernel_count, c.kernel_count == 1 ? "" : "s"));
    c.behavior_notes.push_back(BehaviorNote_t::RUNTIME_COMPILATION);
    c.numerical_notes.push_back(NumericalNote_t::STRICT_NAN_PROP);
    return {c};
  }
  Result<Artifact> compile(const std::string& config, KernelCache*) const override {
    std::vector<Launch> launches = program_->launches;
    TW_RETURN_IF_BAD(compile_all(launches, target_.code()));
    return Artifact{"cuda", config, to_bytes(launches), nullptr};
  }
  std::string explain() const override {
    std::string text = program_->fused.text();
    for (const Launch& l : program_->launches)
      text += fmt::format("launch {}: {} blocks of {} threads\n", l.name, l.grid, l.block);
    return text;
  }
  std::vector<RegionInfo> regions() const override { return region_infos(program_->fused); }
  std::vector<KernelText> kernels(const std::string&) const override {
    std::vector<KernelText> list;
    for (const Launch& l : program_->launches)
      list.push_back({fmt::format("{}, {} blocks of {} threads", l.name, l.grid, l.block), l.text});
    return list;
  }

 private:
  std::shared_ptr<const Program> program_;
  Target target_;
};

class CudaEngine : public Engine {
 public:
  const char* name() const override { return "cuda"; }
  const char* summary() const override { return "our kernels for NVIDIA GPUs, generated from the graph"; }
  int version() const override { return 1; }
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
    auto program = build(graph, target);
    if (!program->reasons.empty()) return {nullptr, program->reasons};
    return {std::make_unique<CudaProposal>(std::move(program), target), {}};
  }
  Result<std::unique_ptr<Executable>> load(const ir::Graph& graph, const Artifact& artifact, const Target& target,
                                           KernelCache*) const override {
    if (target.ordinal < 0)
      return not_supported("engine cuda: a plan is loaded on a GPU of this machine, not for {}", target.text());
    const auto program = build(graph, target);
    std::vector<Launch> launches;
    if (artifact.bytes.empty()) {
      if (!program->reasons.empty()) return not_supported("engine cuda: {}", program->reasons[0].text);
      launches = program->launches;
      TW_RETURN_IF_BAD(compile_all(launches, target.code()));
    } else {
      TW_ASSIGN_OR_RETURN(launches, from_bytes(artifact.bytes));
    }
    return CudaExecutable::make(program->fused.graph, std::move(launches), program->fused.workspace_bytes,
                                hazards(program->fused), target.ordinal);
  }
};

}  // namespace

const Engine& cuda_engine() {
  static const CudaEngine engine;
  return engine;
}

}  // namespace tilewright
