// The driver's functions that cuda.cc does not have: they are there and say that they are not supported.
#include "device/cuda/driver.h"

namespace tilewright::cuda {
extern "C" {
#define TW_CUDA(member, symbol, arguments) \
  __attribute__((weak)) CUresult symbol arguments { return 801; }
#include "device/cuda/driver.def"
#undef TW_CUDA
}
}  // namespace tilewright::cuda
