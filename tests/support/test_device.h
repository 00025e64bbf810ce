// TILEWRIGHT_TEST_DEVICE=cuda runs the tests of ops on a GPU, through our own kernels there.
#pragma once

#include <cstdlib>

#include "tilewright/device.h"

namespace tilewright::testing {

// Null: the CPU.
inline Handle test_handle() {
  static const Handle handle = [] {
    Handle h;
    if (const char* device = std::getenv("TILEWRIGHT_TEST_DEVICE")) (void)create_handle(&h, device).is_good();
    return h;
  }();
  return handle;
}

}  // namespace tilewright::testing
