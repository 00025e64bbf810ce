#pragma once

#include "tilewright/attributes/base.h"

namespace tilewright::graph {

// Shared by the three convolutions. One entry per spatial dimension; padding, stride and dilation have no default.
template <class Self>
class Convolution_attributes : public Attributes<Self> {
  using Ints = std::vector<int64_t>;

 public:
  Self& set_padding(Ints v) { return this->put("pre_padding", v), this->put("post_padding", std::move(v)); }
  Self& set_pre_padding(Ints v) { return this->put("pre_padding", std::move(v)); }
  Self& set_post_padding(Ints v) { return this->put("post_padding", std::move(v)); }
  Self& set_stride(Ints v) { return this->put("stride", std::move(v)); }
  Self& set_dilation(Ints v) { return this->put("dilation", std::move(v)); }
  Self& set_convolution_mode(ConvolutionMode_t v) { return this->put_enum("math_mode", v); }
  Ints get_pre_padding() const { return this->template value<Ints>("pre_padding"); }
  Ints get_post_padding() const { return this->template value<Ints>("post_padding"); }
  Ints get_stride() const { return this->template value<Ints>("stride"); }
  Ints get_dilation() const { return this->template value<Ints>("dilation"); }
  ConvolutionMode_t get_convolution_mode() const {
    return this->enum_value("math_mode", ConvolutionMode_t::CROSS_CORRELATION);
  }
};

// Y = conv(X[N,C,spatial], W[K,C/groups,filter]); the group count follows from W's second dim.
class Conv_fprop_attributes : public Convolution_attributes<Conv_fprop_attributes> {};
// DX, the adjoint of fprop with respect to X. The caller sets DX's dims.
class Conv_dgrad_attributes : public Convolution_attributes<Conv_dgrad_attributes> {};
// DW, the adjoint of fprop with respect to W. The caller sets DW's dims.
class Conv_wgrad_attributes : public Convolution_attributes<Conv_wgrad_attributes> {};

}  // namespace tilewright::graph
