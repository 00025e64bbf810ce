// Memory of the device that a handle names, for programs without CUDA's own calls. A null handle means the CPU, whose
// memory this is then.
#pragma once

#include <cstdint>

#include "tilewright/device.h"

#pragma GCC visibility push(default)
namespace tilewright {

// Aligned to 256 bytes; 0 bytes give null. Free it with a handle of the same device.
error_t device_allocate(Handle, int64_t bytes, void** memory);
error_t device_free(Handle, void* memory);
// Either may be memory of the host or of the device. After all that was put on the handle's stream; done on return.
error_t device_copy(Handle, void* to, const void* from, int64_t bytes);
// Waits for all that was put on the handle's stream.
error_t device_synchronize(Handle);

}  // namespace tilewright
#pragma GCC visibility pop
