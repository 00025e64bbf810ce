// Ops that cuDNN's engines have inside attention and nowhere else.
#include "engines/cudnn/lower_ops.h"

namespace tilewright::cudnn {

void lower_softmax(Lowering& l, ir::NodeId id) {
  l.refuse(Why::Op, fmt::format("node \"{}\": cuDNN computes a softmax inside attention only; use sdpa, or leave it to "
                                "another engine",
                                l.node(id).name));
}

void lower_rng(Lowering& l, ir::NodeId id) {
  l.refuse(Why::Op, fmt::format("node \"{}\": cuDNN draws random numbers inside attention only, as its dropout",
                                l.node(id).name));
}

}  // namespace tilewright::cudnn
