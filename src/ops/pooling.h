// The geometry of pooling windows, one for resample and resample_backward. Window p of a dim covers the input positions
// p * stride - pre + [0, window); what lies outside the input is padding.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/op_def.h"

namespace tilewright::ops {

struct Pooling {
  ResampleMode_t mode = ResampleMode_t::NOT_SET;
  int64_t planes = 0;      // N * C
  Dims in, window, out;    // spatial sizes
  Dims pre, post, stride;  // one per spatial dim

  size_t rank() const { return in.size(); }
  bool max() const { return mode == ResampleMode_t::MAXPOOL; }
};

// Of a node that passed validation.
Pooling pooling_of(const ir::Graph&, const ir::Node&);

// The part of the schema that forward and backward share.
std::vector<ir::AttrSpec> pooling_attrs();
// Checks the attributes against X's dims and derives the size of Y.
Result<Pooling> plan_pooling(const ir::Node&, const char* x_name, const Dims& x_dim);

// The input positions of window p (row-major over `out`): body(position in the window, position in the input), both
// row-major, in that order, padding left out. Returns how many there are.
template <class Body>
int64_t for_each_in_window(const Pooling& pool, int64_t p, const Body& body) {
  int64_t at_p[3], at_w[3];
  unravel(p, pool.out, at_p);
  const int64_t size = volume(pool.window);
  int64_t count = 0;
  for (int64_t w = 0; w < size; ++w) {
    unravel(w, pool.window, at_w);
    int64_t position = 0;
    bool inside = true;
    for (size_t d = 0; d < pool.rank(); ++d) {
      const int64_t q = at_p[d] * pool.stride[d] - pool.pre[d] + at_w[d];
      inside = inside && q >= 0 && q < pool.in[d];
      position = position * pool.in[d] + q;
    }
    if (inside) ++count, body(w, position);
  }
  return count;
}

}  // namespace tilewright::ops
