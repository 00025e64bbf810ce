// Handles of ours behind the field's opaque pointer.
#pragma once

#include "base/result.h"
#include "plan/engine.h"
#include "tilewright/device.h"

namespace tilewright {
// What a handle stands for; null is the CPU. HANDLE_ERROR for a pointer that create_handle did not make, or that was
// destroyed.
Result<Queue> queue_of(Handle);
}  // namespace tilewright
