// Ops that cuDNN's engines have inside attention and nowhere else.
#include "engines/cudnn/lower_ops.h"

namespace tilewright::cudnn {

void lower_rng(Lowering& l, ir::NodeId id) {
  l.refuse(Why::Op, fmt::format("node \"{}\": cuDNN draws random numbers inside attention only, as its dropout",
                                l.node(id).name));
}

}  // namespace tilewright::cudnn
