#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace tilewright {

void check_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: tilewright: internal check failed: %s\n", file, line, what);
  std::fflush(stderr);
  std::abort();
}

}  // namespace tilewright
