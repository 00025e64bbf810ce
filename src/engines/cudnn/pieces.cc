// Operations that several ops are made of.
#include <algorithm>
#include <limits>

#include "engines/cudnn/lowering.h"

namespace tilewright::cudnn {
namespace {

bool is_backward(PointwiseMode_t m) {
  using P = PointwiseMode_t;
  for (P backward : {P::RELU_BWD, P::TANH_BWD, P::SIGMOID_BWD, P::ELU_BWD, P::GELU_BWD, P::SOFTPLUS_BWD, P::SWISH_BWD,
                     P::GELU_APPROX_TANH_BWD})
    if (m == backward) return true;
  return false;
}

void set_mode_attributes(Descriptor& d, PointwiseMode_t mode, DataType_t compute, const ir::Node& n) {
  using P = PointwiseMode_t;
  if (mode == P::RELU_FWD || mode == P::RELU_BWD) {
    const double most =
        compute == DataType_t::DOUBLE ? std::numeric_limits<double>::max() : double(std::numeric_limits<float>::max());
    d.value(Attr::POINTWISE_NAN_PROPAGATION, AttrType::NAN_PROPOGATION, 1)
        .real(Attr::POINTWISE_RELU_LOWER_CLIP, n.attr<double>("relu_lower_clip", 0.0))
        .real(Attr::POINTWISE_RELU_UPPER_CLIP, std::min(n.attr<double>("relu_upper_clip", most), most))
        .real(Attr::POINTWISE_RELU_LOWER_CLIP_SLOPE, n.attr<double>("relu_lower_clip_slope", 0.0));
  }
  if (mode == P::ELU_FWD || mode == P::ELU_BWD) d.real(Attr::POINTWISE_ELU_ALPHA, n.attr<double>("elu_alpha", 1.0));
  if (mode == P::SOFTPLUS_FWD || mode == P::SOFTPLUS_BWD)
    d.real(Attr::POINTWISE_SOFTPLUS_BETA, n.attr<double>("softplus_beta", 1.0));
  if (mode == P::SWISH_FWD || mode == P::SWISH_BWD)
    d.real(Attr::POINTWISE_SWISH_BETA, n.attr<double>("swish_beta", 1.0));
  if (mode == P::GEN_INDEX) d.integer(Attr::POINTWISE_AXIS, n.attr<int64_t>("axis", 0));
}

}  // namespace

void add_pointwise(Lowering& l, PointwiseMode_t mode, RawDescriptor x, RawDescriptor b, RawDescriptor y,
                   DataType_t compute, const ir::Node* node, RawDescriptor t) {
  Descriptor mode_descriptor(Kind::POINTWISE);
  mode_descriptor.value(Attr::POINTWISE_MODE, AttrType::POINTWISE_MODE, number(mode))
      .type(Attr::POINTWISE_MATH_PREC, compute);
  const ir::Node none;
  set_mode_attributes(mode_descriptor, mode, compute, node ? *node : none);
  Descriptor op(Kind::OPERATION_POINTWISE);
  op.descriptor(Attr::OPERATION_POINTWISE_PW_DESCRIPTOR, l.keep(std::move(mode_descriptor)));
  if (is_backward(mode)) {
    op.descriptor(Attr::OPERATION_POINTWISE_XDESC, b)
        .descriptor(Attr::OPERATION_POINTWISE_DYDESC, x)
        .descriptor(Attr::OPERATION_POINTWISE_DXDESC, y);
  } else {
    op.descriptor(Attr::OPERATION_POINTWISE_XDESC, x).descriptor(Attr::OPERATION_POINTWISE_YDESC, y);
    if (b) op.descriptor(Attr::OPERATION_POINTWISE_BDESC, b);
    if (t) op.descriptor(Attr::OPERATION_POINTWISE_TDESC, t);
  }
  l.operation(std::move(op));
}

void add_matmul(Lowering& l, RawDescriptor a, RawDescriptor b, RawDescriptor c, DataType_t compute, double padding) {
  Descriptor matmul(Kind::MATMUL);
  matmul.type(Attr::MATMUL_COMP_TYPE, compute);
  if (padding != 0) matmul.real(Attr::MATMUL_PADDING_VALUE, padding);
  Descriptor op(Kind::OPERATION_MATMUL);
  op.descriptor(Attr::OPERATION_MATMUL_ADESC, a)
      .descriptor(Attr::OPERATION_MATMUL_BDESC, b)
      .descriptor(Attr::OPERATION_MATMUL_CDESC, c)
      .descriptor(Attr::OPERATION_MATMUL_DESC, l.keep(std::move(matmul)));
  l.operation(std::move(op));
}

void add_reduction(Lowering& l, ReductionMode_t mode, RawDescriptor x, RawDescriptor y, DataType_t compute,
                   bool deterministic) {
  Descriptor reduction(Kind::REDUCTION);
  reduction.type(Attr::REDUCTION_COMP_TYPE, compute)
      .value(Attr::REDUCTION_OPERATOR, AttrType::REDUCTION_OPERATOR_TYPE, number(mode));
  if (deterministic) reduction.boolean(Attr::REDUCTION_IS_DETERMINISTIC, true);  // from 9.11 on
  Descriptor op(Kind::OPERATION_REDUCTION);
  op.descriptor(Attr::OPERATION_REDUCTION_XDESC, x)
      .descriptor(Attr::OPERATION_REDUCTION_YDESC, y)
      .descriptor(Attr::OPERATION_REDUCTION_DESC, l.keep(std::move(reduction)));
  l.operation(std::move(op));
}

}  // namespace tilewright::cudnn
