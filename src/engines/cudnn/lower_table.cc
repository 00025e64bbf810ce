// The table: which function lowers which op.
#include "engines/cudnn/lower_ops.h"

namespace tilewright::cudnn {

LowerOp find_lower_op(std::string_view op) {
  static constexpr struct {
    std::string_view op;
    LowerOp lower;
  } kTable[] = {
      {"conv_fprop", lower_conv_fprop},       {"matmul", lower_matmul},
      {"pointwise", lower_pointwise},         {"sdpa", lower_sdpa},
      {"sdpa_backward", lower_sdpa_backward},
  };
  for (const auto& row : kTable)
    if (row.op == op) return row.lower;
  return nullptr;
}

}  // namespace tilewright::cudnn
