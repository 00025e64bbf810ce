// cpu.fused: fused loops over whole regions, on any CPU.
#pragma once

#include "plan/engine.h"

namespace tilewright {
const Engine& cpu_fused_engine();
}  // namespace tilewright
