#include "plan/captured_node.h"

#include "device/cuda/driver.h"

namespace tilewright {

Status capture_into(void* cuda_graph, const Executable& plan, const Bindings& bindings, void* workspace,
                    const Queue& queue) {
  const auto stream = static_cast<cuda::CUstream>(queue.stream);
  if (!stream)
    return not_supported(
        "this plan is captured to make a CUDA graph, which the default stream does not allow; set another stream on "
        "the handle");
  const cuda::Driver& d = cuda::driver();
  TW_RETURN_IF_BAD(cuda::check(d.stream_begin_capture(stream, cuda::kCaptureThreadLocal), "cuStreamBeginCapture"));
  const Status ran = plan.run(bindings, workspace, queue);
  cuda::CUgraph captured = nullptr;
  const Status ended = cuda::check(d.stream_end_capture(stream, &captured), "cuStreamEndCapture");
  Status added = ran.is_bad() ? ran : ended;
  cuda::CUgraphNode node = nullptr;
  if (added.is_good())
    added =
        cuda::check(d.graph_add_child_graph_node(&node, static_cast<cuda::CUgraph>(cuda_graph), nullptr, 0, captured),
                    "cuGraphAddChildGraphNode");
  if (captured) d.graph_destroy(captured);
  return added;
}

Status capture_again(void* cuda_graph, const Executable& plan, const Bindings& bindings, void* workspace,
                     const Queue& queue) {
  cuda::CUgraphNode nodes[2] = {};
  size_t count = 2;
  TW_RETURN_IF_BAD(cuda::check(cuda::driver().graph_get_nodes(static_cast<cuda::CUgraph>(cuda_graph), nodes, &count),
                               "cuGraphGetNodes"));
  if (count != 1 || nodes[1])
    return invalid("the CUDA graph has other nodes than the one that populate_cuda_graph made of this plan");
  // First, so that a failure leaves the graph whole.
  TW_RETURN_IF_BAD(capture_into(cuda_graph, plan, bindings, workspace, queue));
  return cuda::check(cuda::driver().graph_destroy_node(nodes[0]), "cuGraphDestroyNode");
}

}  // namespace tilewright
