#pragma once

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

// Pooling and interpolation windows over the spatial dims. Anything with `numerator` and `denominator` members
// (the field's cudnnFraction_t) is taken too.
template <class Self>
class Resample_base : public Attributes<Self> {
  using Ints = std::vector<int64_t>;
  template <class Fraction>
  static Ints whole(const std::vector<Fraction>& v) {
    Ints r;
    for (const Fraction& f : v) r.push_back(f.numerator / (f.denominator ? f.denominator : 1));
    return r;
  }

 public:
  Self& set_resampling_mode(ResampleMode_t v) { return this->put_enum("resample_mode", v); }
  Self& set_padding_mode(PaddingMode_t v) { return this->put_enum("padding_mode", v); }
  Self& set_window(const Ints& v) { return this->put("window", v); }
  Self& set_stride(const Ints& v) { return this->put("stride", v); }
  Self& set_pre_padding(const Ints& v) { return this->put("pre_padding", v); }
  Self& set_post_padding(const Ints& v) { return this->put("post_padding", v); }
  template <class F>
  Self& set_window(const std::vector<F>& v) {
    return set_window(whole(v));
  }
  template <class F>
  Self& set_stride(const std::vector<F>& v) {
    return set_stride(whole(v));
  }
  template <class F>
  Self& set_pre_padding(const std::vector<F>& v) {
    return set_pre_padding(whole(v));
  }
  template <class F>
  Self& set_post_padding(const std::vector<F>& v) {
    return set_post_padding(whole(v));
  }
};

class Resample_attributes : public Resample_base<Resample_attributes> {
 public:
  // Required. Only MAXPOOL yields an index: the window-relative position of the maximum.
  Resample_attributes& set_generate_index(bool v) { return put("generate_index", v); }
  Resample_attributes& set_is_inference(bool v) { return set_generate_index(!v); }
};

// Gradient of resample with respect to X. MAXPOOL takes the forward's Index, or X to find the maximum again.
// DX takes X's dims, or the caller sets them.
class Resample_backward_attributes : public Resample_base<Resample_backward_attributes> {
 public:
  Resample_backward_attributes& set_index(TensorPtr v) { return port("Index", std::move(v)); }
  Resample_backward_attributes& set_x(TensorPtr v) { return port("X", std::move(v)); }
};

}  // namespace tilewright::graph
