#include "engines/cuda/executable.h"

#include <cstring>

#include "base/philox.h"
#include "plan/captured_node.h"

namespace tilewright::cuda {
namespace {

CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

class CudaExecutable : public Executable {
 public:
  CudaExecutable(const ir::Graph& graph, CompiledPlan plan, std::vector<std::shared_ptr<const LoadedKernel>> kernels)
      : plan_(std::move(plan)), kernels_(std::move(kernels)) {
    for (const Launch& l : plan_.launches) steps_.push_back({l.name, {}});
    for (const ir::Tensor& t : graph.tensors) scalar_type_.push_back(t.storage_type());
  }

  Status run(const Bindings& bindings, void* workspace, const Queue& queue) const override {
    if (kernels_.empty() && !plan_.launches.empty())
      return not_supported("engine cuda: a plan that was made for {} without a device runs where it is loaded on one",
                           plan_.code);
    const auto stream = static_cast<CUstream>(queue.stream);
    char* const base = static_cast<char*>(workspace);
    for (size_t k = 0; k < plan_.launches.size(); ++k) {
      const Launch& l = plan_.launches[k];
      if (l.zero_bytes > 0)
        TW_RETURN_IF_BAD(check(driver().memset_d8_async(address(base + l.zero_offset), 0, size_t(l.zero_bytes), stream),
                               "cuMemsetD8Async"));
      if (!kernels_[k]) continue;
      alignas(16) uint8_t arguments[kMostArguments];
      std::copy(l.arguments.begin(), l.arguments.end(), arguments);
      for (const Patch& p : l.patches) write(arguments + p.at, p, bindings, base);
      void* parameters[] = {arguments};
      const CUresult r = driver().launch_kernel(kernels_[k]->function(), unsigned(l.grid), 1, 1, unsigned(l.block), 1,
                                                1, 0, stream, parameters, nullptr);
      if (r != kSuccess) return check(r, fmt::format("launching {}", l.name));
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

  int64_t workspace_bytes() const override { return plan_.workspace_bytes; }
  const std::vector<Step>& steps() const override { return steps_; }
  const std::vector<Hazard>& hazards() const override { return plan_.hazards; }
  Result<std::vector<uint8_t>> saved() const override { return to_bytes(plan_); }

 private:
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

  CompiledPlan plan_;
  std::vector<Step> steps_;
  std::vector<DataType_t> scalar_type_;                       // by tensor
  std::vector<std::shared_ptr<const LoadedKernel>> kernels_;  // by launch; empty: no device
};

}  // namespace

Result<std::unique_ptr<Executable>> make_executable(const ir::Graph& graph, CompiledPlan plan, const Target& target,
                                                    KernelStore* store) {
  TW_RETURN_IF_BAD(check(plan, graph, target));
  std::vector<std::shared_ptr<const LoadedKernel>> kernels;
  if (target.ordinal >= 0)
    for (const Launch& l : plan.launches) {
      kernels.emplace_back();
      if (!l.kernel) continue;
      TW_ASSIGN_OR_RETURN(kernels.back(), load_kernel(l.kernel, target.ordinal));
      if (store) store->keep(kernels.back());
    }
  return std::unique_ptr<Executable>(std::make_unique<CudaExecutable>(graph, std::move(plan), std::move(kernels)));
}

}  // namespace tilewright::cuda
