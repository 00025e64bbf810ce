// Matmul, convolution and pointwise.
#include "engines/cudnn/lower_ops.h"

namespace tilewright::cudnn {

using ir::NodeId;

void lower_matmul(Lowering& l, NodeId id) {
  const ir::Node& n = l.node(id);
  add_matmul(l, l.in(id, 0), l.in(id, 1), l.out(id, 0), n.compute, n.attr<double>("padding_value"));
}

void lower_conv_fprop(Lowering& l, NodeId id) {
  const ir::Node& n = l.node(id);
  const auto stride = n.attr<std::vector<int64_t>>("stride");
  Descriptor conv(Kind::CONVOLUTION);
  conv.type(Attr::CONVOLUTION_COMP_TYPE, n.compute)
      .value(Attr::CONVOLUTION_CONV_MODE, AttrType::CONVOLUTION_MODE,
             number(n.attr_enum("math_mode", ConvolutionMode_t::CROSS_CORRELATION)))
      .integer(Attr::CONVOLUTION_SPATIAL_DIMS, int64_t(stride.size()))
      .integers(Attr::CONVOLUTION_PRE_PADDINGS, n.attr<std::vector<int64_t>>("pre_padding"))
      .integers(Attr::CONVOLUTION_POST_PADDINGS, n.attr<std::vector<int64_t>>("post_padding"))
      .integers(Attr::CONVOLUTION_DILATIONS, n.attr<std::vector<int64_t>>("dilation"))
      .integers(Attr::CONVOLUTION_FILTER_STRIDES, stride);
  Descriptor op(Kind::OPERATION_CONVOLUTION_FORWARD);
  op.descriptor(Attr::OPERATION_CONVOLUTION_FORWARD_X, l.in(id, 0))
      .descriptor(Attr::OPERATION_CONVOLUTION_FORWARD_W, l.in(id, 1))
      .descriptor(Attr::OPERATION_CONVOLUTION_FORWARD_Y, l.out(id, 0))
      .descriptor(Attr::OPERATION_CONVOLUTION_FORWARD_CONV_DESC, l.keep(std::move(conv)))
      .real(Attr::OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f)
      .real(Attr::OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f);
  l.operation(std::move(op));
}

void lower_pointwise(Lowering& l, NodeId id) {
  const ir::Node& n = l.node(id);
  const auto mode = n.attr_enum("mode", PointwiseMode_t::NOT_SET);
  add_pointwise(l, mode, l.in(id, 0), l.in(id, 1), l.out(id, 0), n.compute, &n, l.in(id, 2));
}

}  // namespace tilewright::cudnn
