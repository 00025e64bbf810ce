// Convolutions of many kinds, for tests of engines.
#pragma once

#include "layout/view.h"

namespace tilewright::testing {

inline Dims layout(const Dims& dim, bool channels_last) {
  return channels_last ? channels_last_strides(dim) : row_major_strides(dim);
}

struct ConvCase {
  Dims x, w, pad, stride, dilation;
};
inline const ConvCase kConvCases[] = {
    {{2, 5, 9, 11}, {6, 5, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {{1, 8, 10, 7}, {4, 8, 1, 1}, {0, 0}, {1, 1}, {1, 1}},
    {{2, 6, 13, 12}, {9, 6, 3, 5}, {2, 0}, {2, 3}, {1, 2}},
    {{1, 12, 8, 8}, {18, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {{3, 6, 7, 7}, {6, 1, 3, 3}, {1, 1}, {2, 2}, {1, 1}},
    {{2, 3, 15}, {4, 3, 4}, {3}, {2}, {2}},
    {{1, 4, 5, 6, 7}, {5, 4, 2, 3, 2}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}},
    {{2, 40, 20, 21}, {72, 40, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {{1, 3, 40, 41}, {8, 3, 5, 5}, {2, 2}, {5, 5}, {1, 1}},
    {{2, 40, 20, 21}, {70, 40, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
};

inline Dims convolved(const ConvCase& c) {
  Dims y = {c.x[0], c.w[0]};
  for (size_t d = 0; d < c.pad.size(); ++d)
    y.push_back((c.x[d + 2] + 2 * c.pad[d] - c.dilation[d] * (c.w[d + 2] - 1) - 1) / c.stride[d] + 1);
  return y;
}

}  // namespace tilewright::testing
