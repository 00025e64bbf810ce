#include "frontend/verify.h"

#include "plan/harness.h"
#include "plan/judge.h"

namespace tilewright::graph {
namespace {

// Element by element, so that gaps of the caller's memory stay untouched.
void copy_elements(const ir::Tensor& t, const void* from, void* to) {
  const View view = t.view();
  for (int64_t i = 0; i < volume(t.dim); ++i) {
    const int64_t offset = offset_of_linear(i, view);
    store_element(to, t.storage_type(), offset, load_element(from, t.storage_type(), offset));
  }
}

// The caller's tensors on the host: as they are, or copied from a GPU.
class HostView {
 public:
  Status read(const ir::Graph& g, const Bindings& bindings, const Queue& queue) {
    host_ = bindings;
    if (queue.ordinal < 0) return {};
    TW_RETURN_IF_BAD(cuda::check(cuda::driver().stream_synchronize(static_cast<cuda::CUstream>(queue.stream)),
                                 "cuStreamSynchronize"));
    copies_.resize(g.tensors.size());
    for (size_t i = 0; i < g.tensors.size(); ++i) {
      const ir::Tensor& t = g.tensors[i];
      if (!t.bound_by_caller() || t.role == ir::Role::Scalar) continue;
      copies_[i].resize(size_t(t.storage_bytes()));
      host_[i] = copies_[i].data();
      TW_RETURN_IF_BAD(cuda::check(cuda::driver().memcpy_dtoh(host_[i], address(bindings[i]), copies_[i].size()),
                                   "copy from the GPU"));
    }
    return {};
  }
  // The output as it is now on the host, to where the caller has it.
  Status write(size_t tensor, void* to) {
    if (copies_.empty()) return {};
    return cuda::check(cuda::driver().memcpy_htod(address(to), copies_[tensor].data(), copies_[tensor].size()),
                       "copy to the GPU");
  }
  const Bindings& bindings() const { return host_; }

 private:
  static cuda::CUdeviceptr address(const void* p) { return reinterpret_cast<cuda::CUdeviceptr>(p); }
  Bindings host_;
  std::vector<std::vector<uint8_t>> copies_;  // by tensor
};

}  // namespace

Status run_verified(const ir::Graph& g, const Executable& executable, const std::vector<std::string>& notes,
                    const Bindings& bindings, const Queue& queue) {
  HostView caller;
  TW_RETURN_IF_BAD(caller.read(g, bindings, queue));
  Judges judges(g);
  Harness harness(judges.of(notes), {.fill = Fill::None});
  harness.copy_inputs(caller.bindings());
  if (Status s = harness.check_run(executable, queue); s.is_bad())
    return error(error_code_t::GRAPH_EXECUTION_FAILED, "verify: {}", s.err_msg);
  for (size_t i = 0; i < g.tensors.size(); ++i)
    if (g.tensors[i].role == ir::Role::Output) {
      copy_elements(g.tensors[i], harness.memory(ir::TensorId(i)), caller.bindings()[i]);
      TW_RETURN_IF_BAD(caller.write(i, bindings[i]));
    }
  return {};
}

}  // namespace tilewright::graph
