// Counts this process's calls of operator new.
#pragma once

#include <cstdint>

namespace tilewright::testing {
int64_t allocations();
}
