// Sums of products for the reference: y[j] = sum over t of a[t] * b[row[t] + j] for j in [0, width). A convolution and
// a matrix product are both of this form. Each value comes with the magnitude sum |a||b|, from which the bound on any
// order of summation follows, and the errors of the operands, carried on when there are any.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/bounded.h"
#include "ops/reference.h"

namespace tilewright {

// One side of the products: a scalar per term and where its row starts on the other side.
struct ContractionTerms {
  std::vector<double> a, a_error;  // a_error is empty when a is exact
  std::vector<int64_t> row;

  void clear() { a.clear(), a_error.clear(), row.clear(); }
  void add(const RefTensor::Dense& from, int64_t index, int64_t row_start) {
    a.push_back(from.values[size_t(index)]);
    if (!from.errors.empty()) a_error.push_back(from.errors[size_t(index)]);
    row.push_back(row_start);
  }
};

// The bound of a sum of `terms` products in the node's compute type: each product is rounded once, each addition once.
inline Bounded sum_of_products(double v, double magnitude, double propagated, int64_t terms) {
  const Rounding& r = t_rounding;
  const double flushed = magnitude > 0 ? double(terms) * r.eta : 0;
  BoundedSum sum;
  sum.v = v, sum.magnitude = magnitude, sum.terms = terms;
  sum.e = propagated + r.u * magnitude + flushed;
  return sum.total();
}

// Writes y[j] to out[j * out_stride]; `b` must be dense, with rows contiguous.
inline void contract(const ContractionTerms& terms, const RefTensor::Dense& b, int64_t width, Bounded* out,
                     int64_t out_stride) {
  constexpr int64_t kLanes = 16;  // accumulators that fit in registers
  const size_t count = terms.a.size();
  const bool exact = terms.a_error.empty() && b.errors.empty();
  for (int64_t j = 0; j < width; j += kLanes) {
    const int64_t lanes = std::min(kLanes, width - j);
    double v[kLanes] = {}, magnitude[kLanes] = {}, error[kLanes] = {};
    if (lanes == kLanes) {
      for (size_t t = 0; t < count; ++t) {
        const double a = terms.a[t];
        const double* row = b.values.data() + terms.row[t] + j;
        for (int64_t i = 0; i < kLanes; ++i) {
          const double p = a * row[i];
          v[i] += p, magnitude[i] += std::fabs(p);
        }
      }
    } else {
      for (size_t t = 0; t < count; ++t) {
        const double a = terms.a[t];
        const double* row = b.values.data() + terms.row[t] + j;
        for (int64_t i = 0; i < lanes; ++i) {
          const double p = a * row[i];
          v[i] += p, magnitude[i] += std::fabs(p);
        }
      }
    }
    if (!exact) {
      using bounded::product;
      for (size_t t = 0; t < count; ++t) {
        const double a = std::fabs(terms.a[t]), a_error = terms.a_error.empty() ? 0 : terms.a_error[t];
        for (int64_t i = 0; i < lanes; ++i) {
          const size_t at = size_t(terms.row[t] + j + i);
          const double b_error = b.errors.empty() ? 0 : b.errors[at];
          error[i] += product(a_error, std::fabs(b.values[at])) + product(b_error, a) + product(a_error, b_error);
        }
      }
    }
    for (int64_t i = 0; i < lanes; ++i)
      out[(j + i) * out_stride] = sum_of_products(v[i], magnitude[i], error[i], int64_t(count));
  }
}

// The same values in another order: element `index` of the result, whose dim i is dim order[i] of `dim`.
inline RefTensor::Dense permuted(const RefTensor::Dense& from, const Dims& dim, const std::vector<int64_t>& order) {
  const Dims stride = row_major_strides(dim);
  View view;
  for (int64_t d : order) view.dim.push_back(dim[size_t(d)]), view.stride.push_back(stride[size_t(d)]);
  RefTensor::Dense to;
  const int64_t n = volume(dim);
  to.values.resize(size_t(n));
  if (!from.errors.empty()) to.errors.resize(size_t(n));
  parallel_for((n + 4095) / 4096, [&](int64_t block) {
    for (int64_t i = block * 4096; i < std::min(n, (block + 1) * 4096); ++i) {
      const size_t at = size_t(offset_of_linear(i, view));
      to.values[size_t(i)] = from.values[at];
      if (!from.errors.empty()) to.errors[size_t(i)] = from.errors[at];
    }
  });
  return to;
}

}  // namespace tilewright
