#include "frontend/gpu_execution.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace tilewright::graph {
namespace {

std::string name_of(int ordinal) { return ordinal < 0 ? "the CPU" : fmt::format("GPU {}", ordinal); }

// Whether kernels may read any memory of the process, as on machines where the CPU and the GPU share page tables.
bool reads_host_memory(int ordinal) {
  static std::array<std::atomic<int>, 64> known = {};  // 0: not asked yet; 1: no; 2: yes
  std::atomic<int>& answer = known[size_t(ordinal)];
  if (answer.load(std::memory_order_relaxed) == 0) {
    int yes = 0;
    cuda::CUdevice device = 0;
    if (cuda::driver().device_get(&device, ordinal) == cuda::kSuccess)
      cuda::driver().device_get_attribute(&yes, cuda::kPageableMemoryAccess, device);
    answer.store(yes ? 2 : 1, std::memory_order_relaxed);
  }
  return answer.load(std::memory_order_relaxed) == 2;
}

// Pointers that were right for a GPU, or right for a scalar, by a thread.
struct Seen {
  const void* pointer = nullptr;
  int ordinal = -2;  // -1: host memory
};
bool seen(const void* pointer, int ordinal, bool remember) {
  thread_local std::array<Seen, 256> table;
  Seen& entry = table[(reinterpret_cast<uintptr_t>(pointer) >> 4) * 0x9e3779b97f4a7c15u >> 56];
  if (remember) entry = {pointer, ordinal};
  return entry.pointer == pointer && entry.ordinal == ordinal;
}

Status check_device_pointer(const std::string& what, const void* pointer, int64_t alignment, int ordinal) {
  if (reinterpret_cast<uintptr_t>(pointer) % uintptr_t(std::max<int64_t>(alignment, 1)) != 0)
    return error(error_code_t::INVALID_VARIANT_PACK,
                 "{}: pointer {} is not aligned to {} bytes, as the plan was made for; see set_alignment", what,
                 pointer, alignment);
  if (seen(pointer, ordinal, false)) return {};
  const cuda::PointerInfo info = cuda::pointer_info(pointer);
  if (info.kind == cuda::MemoryKind::Unknown && !reads_host_memory(ordinal))
    return error(error_code_t::INVALID_VARIANT_PACK,
                 "{}: pointer {} is host memory, and the plan runs on GPU {}: give it memory of that GPU", what,
                 pointer, ordinal);
  if (info.kind == cuda::MemoryKind::Device && info.ordinal >= 0 && info.ordinal != ordinal)
    return error(error_code_t::INVALID_VARIANT_PACK, "{}: pointer {} is memory of GPU {}, and the plan runs on GPU {}",
                 what, pointer, info.ordinal, ordinal);
  seen(pointer, ordinal, true);
  return {};
}

Status check_scalar_pointer(const std::string& what, const void* pointer) {
  if (seen(pointer, -1, false)) return {};
  if (cuda::pointer_info(pointer).kind == cuda::MemoryKind::Device)
    return error(error_code_t::INVALID_VARIANT_PACK,
                 "{} is passed by value: pointer {} is device memory, and a pointer to the value in host memory is "
                 "expected",
                 what, pointer);
  seen(pointer, -1, true);
  return {};
}

}  // namespace

Status check_device(const Target& plan, const Queue& queue) {
  if (!plan.is_gpu() && queue.ordinal < 0) return {};
  if (plan.is_gpu() && plan.ordinal < 0)
    return error(error_code_t::INVALID_CUDA_DEVICE,
                 "the plan was made for {} without a device; serialize it, and deserialize it with a handle of the GPU",
                 plan.text());
  const int expected = plan.is_gpu() ? plan.ordinal : -1;
  if (expected == queue.ordinal) return {};
  return error(error_code_t::INVALID_CUDA_DEVICE,
               "the plan is bound to {}, and the handle is of {}: build the graph with the handle that executes it",
               name_of(expected), name_of(queue.ordinal));
}

Status check_gpu_pointers(const PlanBinding& binding, const Bindings& bindings, void* workspace, const Queue& queue) {
  for (const PlanBinding::Slot& s : binding.slots) {
    const void* pointer = bindings[size_t(s.tensor)];
    const ir::Tensor& t = binding.graph->tensor(s.tensor);
    const int expected = t.role == ir::Role::Scalar ? -1 : queue.ordinal;
    const bool aligned = expected < 0 || reinterpret_cast<uintptr_t>(pointer) % uintptr_t(t.alignment) == 0;
    if (!s.needs_memory || (aligned && seen(pointer, expected, false))) continue;
    const std::string what = fmt::format("tensor \"{}\" (uid {})", t.name, s.uid);
    TW_RETURN_IF_BAD(expected < 0 ? check_scalar_pointer(what, pointer)
                                  : check_device_pointer(what, pointer, t.alignment, queue.ordinal));
  }
  if (workspace && !seen(workspace, queue.ordinal, false))
    return check_device_pointer("the workspace", workspace, 1, queue.ordinal);
  return {};
}

Result<std::unique_ptr<GpuTimer>> GpuTimer::make(const Target& target, const Queue& queue) {
  auto timer = std::make_unique<GpuTimer>();
  timer->queue_ = queue;
  const cuda::ScopedDevice device(queue.ordinal);
  TW_RETURN_IF_BAD(device.status());
  TW_ASSIGN_OR_RETURN(timer->flush_, cuda::DeviceMemory::allocate(queue.ordinal, 2 * target.gpu->l2_bytes));
  TW_ASSIGN_OR_RETURN(timer->watch_, cuda::Stopwatch::make());
  return timer;
}

Result<double> GpuTimer::median_ms(const std::function<Status()>& run) {
  const cuda::ScopedDevice device(queue_.ordinal);
  TW_RETURN_IF_BAD(device.status());
  TW_RETURN_IF_BAD(run());
  std::vector<double> ms;
  double total = 0;
  while (ms.size() < 5 || (ms.size() < 50 && total < 50)) {
    TW_RETURN_IF_BAD(
        cuda::check(cuda::driver().memset_d8_async(reinterpret_cast<cuda::CUdeviceptr>(flush_.data()), 0,
                                                   size_t(flush_.bytes()), static_cast<cuda::CUstream>(queue_.stream)),
                    "cuMemsetD8Async"));
    TW_RETURN_IF_BAD(watch_->start(queue_.stream));
    TW_RETURN_IF_BAD(run());
    TW_RETURN_IF_BAD(watch_->stop(queue_.stream));
    TW_ASSIGN_OR_RETURN(const double one, watch_->elapsed_ms());
    ms.push_back(one), total += one;
  }
  std::nth_element(ms.begin(), ms.begin() + long(ms.size() / 2), ms.end());
  return ms[ms.size() / 2];
}

Result<std::unique_ptr<GpuGraph>> GpuGraph::make(const Executable& plan, const Bindings& bindings, void* workspace,
                                                 const Queue& queue) {
  const cuda::ScopedDevice device(queue.ordinal);
  TW_RETURN_IF_BAD(device.status());
  std::unique_ptr<GpuGraph> graph(new GpuGraph);
  graph->queue_ = queue;
  TW_RETURN_IF_BAD(cuda::check(cuda::driver().graph_create(&graph->graph_, 0), "cuGraphCreate"));
  TW_RETURN_IF_BAD(plan.populate_cuda_graph(graph->graph_, bindings, workspace, queue));
  TW_RETURN_IF_BAD(
      cuda::check(cuda::driver().graph_instantiate(&graph->exec_, graph->graph_, 0), "cuGraphInstantiateWithFlags"));
  return graph;
}

GpuGraph::~GpuGraph() {
  const cuda::ScopedDevice device(queue_.ordinal);
  if (exec_) cuda::driver().graph_exec_destroy(exec_);
  if (graph_) cuda::driver().graph_destroy(graph_);
}

Status GpuGraph::launch() const {
  const cuda::ScopedDevice device(queue_.ordinal);
  TW_RETURN_IF_BAD(device.status());
  return cuda::check(cuda::driver().graph_launch(exec_, static_cast<cuda::CUstream>(queue_.stream)), "cuGraphLaunch");
}

}  // namespace tilewright::graph
