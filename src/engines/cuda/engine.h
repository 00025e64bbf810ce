// Engine "cuda": kernels of ours for NVIDIA GPUs, generated from the graph's regions.
#pragma once

#include "plan/engine.h"

namespace tilewright {
const Engine& cuda_engine();
}
