// The headers in kernels/, as texts in the library: what generated kernels include.
#pragma once

#include "device/cuda/compiler.h"

namespace tilewright::cuda {
const KernelHeader* kernel_headers();
size_t kernel_header_count();
}  // namespace tilewright::cuda
