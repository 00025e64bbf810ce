// A plan in a caller's CUDA graph as one node: an execution is captured, and is the node's content.
#pragma once

#include "plan/engine.h"

namespace tilewright {

// Adds the node. The execution is captured on the queue's stream, which may not be the default one.
Status capture_into(void* cuda_graph, const Executable&, const Bindings&, void* workspace, const Queue&);
// Other memory for a graph that holds that node and no other.
Status capture_again(void* cuda_graph, const Executable&, const Bindings&, void* workspace, const Queue&);

}  // namespace tilewright
