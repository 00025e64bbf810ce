#pragma once

#include "plan/engine.h"

namespace tilewright {

const Engine& onednn_engine();

}  // namespace tilewright
