#include "engines/cudnn/lower_ops.h"

namespace tilewright::cudnn {

void lower_matmul(Lowering& l, ir::NodeId id) {
  enum { kA, kB, kM, kN, kK };
  const ir::Node& n = l.node(id);
  for (size_t port : {kM, kN, kK})  // its engines take them inside attention, and leave them unread elsewhere
    if (port < n.in.size() && n.in[port] != ir::kNone)
      return l.refuse(Why::Feature, fmt::format("node \"{}\": cuDNN does not heed {} \"{}\" outside attention", n.name,
                                                n.op->inputs[port].name, l.graph().tensor(n.in[port]).name));
  Descriptor matmul(Kind::MATMUL);
  matmul.type(Attr::MATMUL_COMP_TYPE, n.compute);
  if (const double padding = n.attr<double>("padding_value"); padding != 0)
    matmul.real(Attr::MATMUL_PADDING_VALUE, padding);
  Descriptor op(Kind::OPERATION_MATMUL);
  op.descriptor(Attr::OPERATION_MATMUL_ADESC, l.in(id, kA))
      .descriptor(Attr::OPERATION_MATMUL_BDESC, l.in(id, kB))
      .descriptor(Attr::OPERATION_MATMUL_CDESC, l.out(id, 0))
      .descriptor(Attr::OPERATION_MATMUL_DESC, l.keep(std::move(matmul)));
  l.operation(std::move(op));
}

}  // namespace tilewright::cudnn
