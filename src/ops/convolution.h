// The geometry of a convolution, one for the three ops: fprop makes Y from X and W, dgrad X from Y and W, wgrad W from
// Y and X. Output position p meets input position p * stride + r * dilation - pre through tap r of the filter.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/op_def.h"

namespace tilewright::ops {

struct Convolution {
  int64_t n = 0, c = 0, k = 0;       // images, channels of X, channels of Y
  int64_t groups = 1;                // channels of X / dim 1 of W
  Dims in, filter, out;              // spatial sizes of X, W, Y
  Dims pre, post, stride, dilation;  // one per spatial dim
  bool flip = false;                 // CONVOLUTION: offset r takes tap filter - 1 - r

  size_t rank() const { return in.size(); }
  int64_t c_per_group() const { return c / groups; }
  int64_t k_per_group() const { return k / groups; }
  // Where offset r lies in W, both row-major over the filter.
  int64_t tap(int64_t r) const { return flip ? volume(filter) - 1 - r : r; }
  double flops() const {  // of each of the three ops
    return 2.0 * double(n) * double(k) * double(volume(out)) * double(c_per_group()) * double(volume(filter));
  }
};

// Of a node that passed validation: conv_fprop, conv_dgrad or conv_wgrad.
Convolution convolution_of(const ir::Graph&, const ir::Node&);

// The schema of the three ops.
std::vector<ir::AttrSpec> convolution_attrs();
// Checks the attributes and the dims of X and W against each other, and derives Y's size.
Result<Convolution> plan_convolution(const ir::Node&, const ir::Tensor& x, const ir::Tensor& w);
// Whether y has the dims that the convolution gives; says what would be right.
Status check_convolved(const ir::Node&, const Convolution&, const char* port, const ir::Tensor& y);
double convolution_flops(const ir::Graph&, const ir::Node&);

}  // namespace tilewright::ops
