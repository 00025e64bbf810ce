// cuDNN's engines behind ours: one operation graph for the whole graph, or a few where cuDNN takes it only in parts.
#pragma once

#include "plan/engine.h"

namespace tilewright {

const Engine& cudnn_engine();

}  // namespace tilewright
