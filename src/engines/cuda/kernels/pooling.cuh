// The geometry of pooling windows along one dim.
#pragma once

#include "tilewright/prelude.cuh"

namespace tw {

// How many of the positions [start, start + window) lie in [0, size).
template <class Index>
DEV Index inside(Index start, Index window, Index size) {
  const Index first = start < 0 ? Index(0) : start, end = start + window < size ? start + window : size;
  return end > first ? end - first : Index(0);
}

// The first window that covers padded position `at`: windows begin `stride` apart.
template <class Index>
DEV Index first_window(Index at, Index window, Index stride) {
  return at < window ? Index(0) : (at - window) / stride + 1;
}

}  // namespace tw
