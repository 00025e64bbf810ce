#include "frontend/verify.h"

#include "plan/harness.h"

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

}  // namespace

Status run_verified(const ir::Graph& g, const Executable& executable, const Bindings& bindings, const Queue& queue) {
  Harness harness(g, {.fill = Fill::None});
  harness.copy_inputs(bindings);
  if (Status s = harness.check_run(executable, queue); s.is_bad())
    return error(error_code_t::GRAPH_EXECUTION_FAILED, "verify: {}", s.err_msg);
  for (size_t i = 0; i < g.tensors.size(); ++i)
    if (g.tensors[i].role == ir::Role::Output)
      copy_elements(g.tensors[i], harness.memory(ir::TensorId(i)), bindings[i]);
  return {};
}

}  // namespace tilewright::graph
