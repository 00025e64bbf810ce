// The table: which function lowers which op.
#include "engines/cudnn/lower_ops.h"

namespace tilewright::cudnn {

LowerOp find_lower_op(std::string_view op) {
  static constexpr struct {
    std::string_view op;
    LowerOp lower;
  } kTable[] = {
#define TW_ROW(OP) {#OP, lower_##OP},
      TW_CUDNN_LOWERED_OPS(TW_ROW)
#undef TW_ROW
  };
  for (const auto& row : kTable)
    if (row.op == op) return row.lower;
  return nullptr;
}

}  // namespace tilewright::cudnn
