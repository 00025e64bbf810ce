#include "engines/host/engine.h"

#include <mutex>
#include <utility>

#include "device/cuda/gpu.h"
#include "ir/op_def.h"

namespace tilewright {
namespace {

const Engine& cpu_engine() { return *find_engine("cpu.fused"); }

// Host memory for one execution, page-locked so that copies run at the bus's speed.
class HostBuffers {
 public:
  static Result<std::unique_ptr<HostBuffers>> make(const std::vector<int64_t>& bytes) {
    auto buffers = std::make_unique<HostBuffers>();
    for (int64_t n : bytes) {
      buffers->memory_.push_back(nullptr);
      if (n > 0)
        TW_RETURN_IF_BAD(cuda::check(cuda::driver().mem_alloc_host(&buffers->memory_.back(), size_t(n)),
                                     fmt::format("cuMemAllocHost of {} bytes", n)));
    }
    return buffers;
  }
  ~HostBuffers() {
    for (void* p : memory_)
      if (p) cuda::driver().mem_free_host(p);
  }
  void* operator[](size_t i) const { return memory_[i]; }

 private:
  std::vector<void*> memory_;
};

class HostExecutable : public Executable {
 public:
  HostExecutable(const ir::Graph& graph, std::unique_ptr<Executable> plan) : plan_(std::move(plan)) {
    for (const ir::Tensor& t : graph.tensors) {
      const bool copied = t.bound_by_caller() && t.role != ir::Role::Scalar;
      bytes_.push_back(copied ? t.storage_bytes() : 0);
      output_.push_back(t.role == ir::Role::Output);
    }
    bytes_.push_back(plan_->workspace_bytes());
  }

  Status run(const Bindings& bindings, void*, const Queue& queue) const override {
    const auto stream = static_cast<cuda::CUstream>(queue.stream);
    cuda::CUstreamCaptureStatus capturing = cuda::kNotCapturing;
    TW_RETURN_IF_BAD(cuda::check(cuda::driver().stream_is_capturing(stream, &capturing), "cuStreamIsCapturing"));
    if (capturing != cuda::kNotCapturing)
      return not_supported("a plan of engine \"host\" waits for the GPU, so it cannot be captured; take another plan");
    TW_ASSIGN_OR_RETURN(std::unique_ptr<HostBuffers> buffers, take());
    const Status status = run_on(*buffers, bindings, stream);
    give(std::move(buffers));
    return status;
  }
  int64_t workspace_bytes() const override { return 0; }
  const std::vector<Step>& steps() const override { return plan_->steps(); }

 private:
  // Outputs are copied too, for the gaps between their elements.
  Status run_on(const HostBuffers& host, const Bindings& bindings, cuda::CUstream stream) const {
    Bindings here = bindings;
    for (size_t i = 0; i < bindings.size(); ++i) {
      if (bytes_[i] == 0) continue;
      here[i] = host[i];
      TW_RETURN_IF_BAD(cuda::check(
          cuda::driver().memcpy_dtoh_async(host[i], address(bindings[i]), size_t(bytes_[i]), stream), "copy to host"));
    }
    TW_RETURN_IF_BAD(cuda::check(cuda::driver().stream_synchronize(stream), "cuStreamSynchronize"));
    TW_RETURN_IF_BAD(plan_->run(here, host[bytes_.size() - 1], Queue{}));
    for (size_t i = 0; i < bindings.size(); ++i)
      if (bytes_[i] > 0 && output_[i])
        TW_RETURN_IF_BAD(cuda::check(
            cuda::driver().memcpy_htod_async(address(bindings[i]), host[i], size_t(bytes_[i]), stream), "copy to GPU"));
    return cuda::check(cuda::driver().stream_synchronize(stream), "cuStreamSynchronize");
  }
  static cuda::CUdeviceptr address(const void* p) { return reinterpret_cast<cuda::CUdeviceptr>(p); }

  Result<std::unique_ptr<HostBuffers>> take() const {
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto buffers = std::move(free_.back());
        free_.pop_back();
        return buffers;
      }
    }
    return HostBuffers::make(bytes_);
  }
  void give(std::unique_ptr<HostBuffers> buffers) const {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(buffers));
  }

  std::unique_ptr<Executable> plan_;
  std::vector<int64_t> bytes_;  // by tensor, 0: not copied; last, the CPU plan's workspace
  std::vector<bool> output_;    // by tensor
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<HostBuffers>> free_;
};

class HostProposal : public Proposal {
 public:
  HostProposal(const ir::Graph& graph, std::unique_ptr<const Proposal> cpu)
      : bytes_(ir::cost(graph).bytes), cpu_(std::move(cpu)) {}
  std::vector<Candidate> candidates() const override {
    constexpr double kBusBytesPerMs = 2e7;  // of PCI Express 4, about
    std::vector<Candidate> all = cpu_->candidates();
    Candidate c = std::move(all.front());
    c.workspace_bytes = 0;
    c.estimated_ms += bytes_ / kBusBytesPerMs;
    c.everything = c.last_resort = true;
    c.notes.insert(c.notes.begin(), "copies to the host and back, computes there, waits");
    return {std::move(c)};
  }
  Result<Artifact> compile(const std::string& config, KernelCache*) const override {
    return Artifact{"host", config, {}, nullptr};
  }
  std::string explain() const override {
    return "copies inputs to the host, runs this on its CPU, copies outputs back:\n" + cpu_->explain();
  }
  std::vector<RegionInfo> regions() const override { return cpu_->regions(); }

 private:
  double bytes_;
  std::unique_ptr<const Proposal> cpu_;
};

class HostEngine : public Engine {
 public:
  const char* name() const override { return "host"; }
  const char* summary() const override { return "on a GPU: the CPU's plan over copies; slow, takes any graph"; }
  int version() const override { return 1; }
  std::vector<Reason> unavailable(const Target& target) const override {
    if (target.is_gpu()) return {};
    return {{Why::Arch, -1, ir::kNone, fmt::format("serves GPUs, the target is {}", target.text())}};
  }
  Verdict propose(const ir::Graph& graph, const Target& target) const override {
    if (auto reasons = unavailable(target); !reasons.empty()) return {nullptr, reasons};
    Verdict cpu = cpu_engine().propose(graph, Target::this_machine());
    if (!cpu.proposal) return cpu;
    return {std::make_unique<HostProposal>(graph, std::move(cpu.proposal)), {}};
  }
  Result<std::unique_ptr<Executable>> load(const ir::Graph& graph, const Artifact& artifact, const Target& target,
                                           KernelCache*) const override {
    if (!target.is_gpu()) return not_supported("engine host: {}", unavailable(target)[0].text);
    TW_ASSIGN_OR_RETURN(auto plan, cpu_engine().load(graph, {"cpu.fused", artifact.config, {}, nullptr},
                                                     Target::this_machine(), nullptr));
    return std::unique_ptr<Executable>(std::make_unique<HostExecutable>(graph, std::move(plan)));
  }
};

}  // namespace

const Engine& host_engine() {
  static const HostEngine engine;
  return engine;
}

}  // namespace tilewright
