// The functions of the table, by op.
#pragma once

#include "engines/cudnn/lowering.h"

namespace tilewright::cudnn {

void lower_conv_fprop(Lowering&, ir::NodeId);
void lower_matmul(Lowering&, ir::NodeId);
void lower_pointwise(Lowering&, ir::NodeId);
void lower_sdpa(Lowering&, ir::NodeId);
void lower_sdpa_backward(Lowering&, ir::NodeId);

}  // namespace tilewright::cudnn
