#include "engines/cudnn/lower_ops.h"

namespace tilewright::cudnn {

void lower_matmul(Lowering& l, ir::NodeId id) {
  enum { kA, kB, kM, kN, kK };
  const ir::Node& n = l.node(id);
  Descriptor matmul(Kind::MATMUL);
  matmul.type(Attr::MATMUL_COMP_TYPE, n.compute);
  if (const double padding = n.attr<double>("padding_value"); padding != 0)
    matmul.real(Attr::MATMUL_PADDING_VALUE, padding);
  Descriptor op(Kind::OPERATION_MATMUL);
  op.descriptor(Attr::OPERATION_MATMUL_ADESC, l.in(id, kA))
      .descriptor(Attr::OPERATION_MATMUL_BDESC, l.in(id, kB))
      .descriptor(Attr::OPERATION_MATMUL_CDESC, l.out(id, 0))
      .descriptor(Attr::OPERATION_MATMUL_DESC, l.keep(std::move(matmul)));
  static constexpr struct {
    size_t port;
    Attr attribute;
  } kOverrides[] = {{kM, Attr::OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC},
                    {kN, Attr::OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC},
                    {kK, Attr::OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC}};
  for (const auto& o : kOverrides)
    if (const RawDescriptor size = l.in(id, o.port)) op.descriptor(o.attribute, size);
  l.operation(std::move(op));
}

}  // namespace tilewright::cudnn
