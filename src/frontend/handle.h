// Handles of ours behind the field's opaque pointer.
#pragma once

#include "base/result.h"
#include "tilewright/device.h"

namespace tilewright {
// Null is the CPU. HANDLE_ERROR for a pointer that create_handle did not make, or that was destroyed.
Status check_handle(Handle);
}  // namespace tilewright
