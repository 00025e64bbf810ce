// Normalisations: one operation forward, one backward, told apart by mode and phase; and the parts of batchnorm that
// surround a convolution. Which dims are normalised follows from the dims of the scale and of the statistics.
#include "engines/cudnn/lower_ops.h"

namespace tilewright::cudnn {
namespace {

struct Row {
  const char* port;
  Attr attribute;
};
// The descriptors of the node's ports that have an attribute and are there.
template <size_t kIn, size_t kOut>
void set_ports(Lowering& l, ir::NodeId id, Descriptor& op, const Row (&in)[kIn], const Row (&out)[kOut]) {
  const ir::OpDef& def = *l.node(id).op;
  for (const Row& row : in)
    if (const int port = def.input_port(row.port); port >= 0)
      if (const RawDescriptor d = l.in(id, size_t(port))) op.descriptor(row.attribute, d);
  for (const Row& row : out)
    if (const int port = def.output_port(row.port); port >= 0)
      if (const RawDescriptor d = l.out(id, size_t(port))) op.descriptor(row.attribute, d);
}

bool has_node(const Lowering& l, std::string_view op) {
  for (ir::NodeId id : l.nodes())
    if (l.node(id).op->name == op) return true;
  return false;
}

void forward(Lowering& l, ir::NodeId id, NormMode_t mode, NormFwdPhase_t phase) {
  static constexpr Row kIn[] = {{"X", Attr::OPERATION_NORM_FWD_XDESC},
                                {"SCALE", Attr::OPERATION_NORM_FWD_SCALE_DESC},
                                {"BIAS", Attr::OPERATION_NORM_FWD_BIAS_DESC},
                                {"EPSILON", Attr::OPERATION_NORM_FWD_EPSILON_DESC},
                                // of batchnorm_inference:
                                {"MEAN", Attr::OPERATION_NORM_FWD_MEAN_DESC},
                                {"INV_VARIANCE", Attr::OPERATION_NORM_FWD_INV_VARIANCE_DESC},
                                // of batchnorm:
                                {"MOMENTUM", Attr::OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC},
                                {"PREV_RUNNING_MEAN", Attr::OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC},
                                {"PREV_RUNNING_VAR", Attr::OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC}};
  static constexpr Row kOut[] = {{"Y", Attr::OPERATION_NORM_FWD_YDESC},
                                 {"MEAN", Attr::OPERATION_NORM_FWD_MEAN_DESC},
                                 {"INV_VARIANCE", Attr::OPERATION_NORM_FWD_INV_VARIANCE_DESC},
                                 {"NEXT_RUNNING_MEAN", Attr::OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC},
                                 {"NEXT_RUNNING_VAR", Attr::OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC}};
  Descriptor op(Kind::OPERATION_NORM_FORWARD);
  op.value(Attr::OPERATION_NORM_FWD_MODE, AttrType::NORM_MODE, number(mode))
      .value(Attr::OPERATION_NORM_FWD_PHASE, AttrType::NORM_FWD_PHASE, number(phase));
  set_ports(l, id, op, kIn, kOut);
  l.operation(std::move(op));
}
void forward(Lowering& l, ir::NodeId id, NormMode_t mode) {
  forward(l, id, mode, l.node(id).attr_enum("forward_phase", NormFwdPhase_t::INFERENCE));
}

void backward(Lowering& l, ir::NodeId id, NormMode_t mode) {
  static constexpr Row kIn[] = {{"X", Attr::OPERATION_NORM_BWD_XDESC},
                                {"DY", Attr::OPERATION_NORM_BWD_DYDESC},
                                {"SCALE", Attr::OPERATION_NORM_BWD_SCALE_DESC},
                                {"MEAN", Attr::OPERATION_NORM_BWD_MEAN_DESC},
                                {"INV_VARIANCE", Attr::OPERATION_NORM_BWD_INV_VARIANCE_DESC}};
  static constexpr Row kOut[] = {{"DX", Attr::OPERATION_NORM_BWD_DXDESC},
                                 {"DSCALE", Attr::OPERATION_NORM_BWD_DSCALE_DESC},
                                 {"DBIAS", Attr::OPERATION_NORM_BWD_DBIAS_DESC}};
  Descriptor op(Kind::OPERATION_NORM_BACKWARD);
  op.value(Attr::OPERATION_NORM_BWD_MODE, AttrType::NORM_MODE, number(mode));
  set_ports(l, id, op, kIn, kOut);
  l.operation(std::move(op));
}

}  // namespace

void lower_layernorm(Lowering& l, ir::NodeId id) { forward(l, id, NormMode_t::LAYER_NORM); }
void lower_rmsnorm(Lowering& l, ir::NodeId id) { forward(l, id, NormMode_t::RMS_NORM); }
void lower_instancenorm(Lowering& l, ir::NodeId id) { forward(l, id, NormMode_t::INSTANCE_NORM); }
void lower_adalayernorm(Lowering& l, ir::NodeId id) { forward(l, id, NormMode_t::ADA_LAYER_NORM); }
void lower_batchnorm(Lowering& l, ir::NodeId id) { forward(l, id, NormMode_t::BATCH_NORM, NormFwdPhase_t::TRAINING); }
// cuDNN has engines for it in front of batchnorm_backward only; elsewhere it is pointwise operations.
void lower_batchnorm_inference(Lowering& l, ir::NodeId id) {
  using P = PointwiseMode_t;
  enum { kX, kMean, kInvVariance, kScale, kBias };
  if (has_node(l, "batchnorm_backward")) return forward(l, id, NormMode_t::BATCH_NORM, NormFwdPhase_t::INFERENCE);
  const ir::Node& n = l.node(id);
  const View v = l.view(n.in[kX]);
  RawDescriptor value = l.in(id, kX);
  const auto step = [&](P mode, size_t port, RawDescriptor to) {
    add_pointwise(l, mode, value, l.in(id, port), to, n.compute);
    value = to;
  };
  step(P::SUB, kMean, l.scratch(n.compute, v.dim, v.stride));
  step(P::MUL, kInvVariance, l.scratch(n.compute, v.dim, v.stride));
  step(P::MUL, kScale, l.scratch(n.compute, v.dim, v.stride));
  step(P::ADD, kBias, l.out(id, 0));
}

void lower_layernorm_backward(Lowering& l, ir::NodeId id) { backward(l, id, NormMode_t::LAYER_NORM); }
void lower_rmsnorm_backward(Lowering& l, ir::NodeId id) { backward(l, id, NormMode_t::RMS_NORM); }
void lower_instancenorm_backward(Lowering& l, ir::NodeId id) { backward(l, id, NormMode_t::INSTANCE_NORM); }
void lower_adalayernorm_backward(Lowering& l, ir::NodeId id) { backward(l, id, NormMode_t::ADA_LAYER_NORM); }
void lower_batchnorm_backward(Lowering& l, ir::NodeId id) {
  const ir::Node& n = l.node(id);
  if (!l.in(id, size_t(n.op->input_port("MEAN"))))
    return l.refuse(Why::Feature, fmt::format("node \"{}\": cuDNN wants the saved MEAN and INV_VARIANCE of the "
                                              "forward pass; it does not compute them again from X",
                                              n.name));
  backward(l, id, NormMode_t::BATCH_NORM);
}

// cuDNN has engines for it behind a convolution only; elsewhere it is two reductions.
void lower_genstats(Lowering& l, ir::NodeId id) {
  if (!has_node(l, "conv_fprop")) {
    const ir::Node& n = l.node(id);
    const View v = l.view(n.in[0]);
    const RawDescriptor x = l.in(id, 0), squares = l.scratch(n.compute, v.dim, v.stride);
    add_reduction(l, ReductionMode_t::ADD, x, l.out(id, 0), n.compute);
    add_pointwise(l, PointwiseMode_t::MUL, x, x, squares, n.compute);
    return add_reduction(l, ReductionMode_t::ADD, squares, l.out(id, 1), n.compute);
  }
  static constexpr Row kIn[] = {{"X", Attr::OPERATION_GENSTATS_XDESC}};
  static constexpr Row kOut[] = {{"SUM", Attr::OPERATION_GENSTATS_SUMDESC},
                                 {"SQ_SUM", Attr::OPERATION_GENSTATS_SQSUMDESC}};
  Descriptor op(Kind::OPERATION_GEN_STATS);
  op.value(Attr::OPERATION_GENSTATS_MODE, AttrType::GENSTATS_MODE, 0)  // sum and sum of squares, the only one
      .type(Attr::OPERATION_GENSTATS_MATH_PREC, l.node(id).compute);
  set_ports(l, id, op, kIn, kOut);
  l.operation(std::move(op));
}

void lower_bn_finalize(Lowering& l, ir::NodeId id) {
  static constexpr Row kIn[] = {{"SUM", Attr::OPERATION_BN_FINALIZE_Y_SUM_DESC},
                                {"SQ_SUM", Attr::OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC},
                                {"SCALE", Attr::OPERATION_BN_FINALIZE_SCALE_DESC},
                                {"BIAS", Attr::OPERATION_BN_FINALIZE_BIAS_DESC},
                                {"EPSILON", Attr::OPERATION_BN_FINALIZE_EPSILON_DESC},
                                {"ACCUM_COUNT", Attr::OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC},
                                {"PREV_RUNNING_MEAN", Attr::OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC},
                                {"PREV_RUNNING_VAR", Attr::OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC},
                                {"MOMENTUM", Attr::OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC}};
  static constexpr Row kOut[] = {{"EQ_SCALE", Attr::OPERATION_BN_FINALIZE_EQ_SCALE_DESC},
                                 {"EQ_BIAS", Attr::OPERATION_BN_FINALIZE_EQ_BIAS_DESC},
                                 {"MEAN", Attr::OPERATION_BN_FINALIZE_SAVED_MEAN_DESC},
                                 {"INV_VARIANCE", Attr::OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC},
                                 {"NEXT_RUNNING_MEAN", Attr::OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC},
                                 {"NEXT_RUNNING_VAR", Attr::OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC}};
  constexpr int kTraining = 0;
  Descriptor op(Kind::OPERATION_BN_FINALIZE_STATISTICS);
  op.value(Attr::OPERATION_BN_FINALIZE_STATS_MODE, AttrType::BN_FINALIZE_STATS_MODE, kTraining)
      .type(Attr::OPERATION_BN_FINALIZE_MATH_PREC, l.node(id).compute);
  set_ports(l, id, op, kIn, kOut);
  l.operation(std::move(op));
}

void lower_dbn_weight(Lowering& l, ir::NodeId id) {
  static constexpr Row kIn[] = {{"X", Attr::OPERATION_BN_BWD_WEIGHTS_X_DESC},
                                {"DY", Attr::OPERATION_BN_BWD_WEIGHTS_DY_DESC},
                                {"MEAN", Attr::OPERATION_BN_BWD_WEIGHTS_MEAN_DESC},
                                {"INV_VARIANCE", Attr::OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC},
                                {"SCALE", Attr::OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC}};
  static constexpr Row kOut[] = {{"DSCALE", Attr::OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC},
                                 {"DBIAS", Attr::OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC},
                                 {"EQ_SCALE_DY", Attr::OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC},
                                 {"EQ_SCALE_X", Attr::OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC},
                                 {"EQ_BIAS", Attr::OPERATION_BN_BWD_WEIGHTS_EQ_BIAS}};
  Descriptor op(Kind::OPERATION_BN_BWD_WEIGHTS);
  op.type(Attr::OPERATION_BN_BWD_WEIGHTS_MATH_PREC, l.node(id).compute);
  set_ports(l, id, op, kIn, kOut);
  l.operation(std::move(op));
}

}  // namespace tilewright::cudnn
