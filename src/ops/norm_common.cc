#include "ops/norm_common.h"

namespace tilewright::ops::norm {

using ir::InferContext;
using ir::Tensor;
using ir::TensorId;

// --- dims --------------------------------------------------------------------------------------------------------

Dims channel_dims(const Dims& x) {
  Dims d(x.size(), 1);
  if (x.size() > 1) d[1] = x[1];
  return d;
}

Dims instance_dims(const Dims& x) {
  Dims d = channel_dims(x);
  if (!x.empty()) d[0] = x[0];
  return d;
}

Dims sample_dims(const Dims& x) {
  Dims d = x;
  if (!d.empty()) d[0] = 1;
  return d;
}

Dims statistic_dims(const Dims& x, const Dims& scale, size_t first) {
  Dims d = x;
  for (size_t i = first; i < x.size() && i < scale.size(); ++i)
    if (scale[i] != 1) d[i] = 1;
  return d;
}

int64_t group_size(const Dims& x, const Dims& statistics) {
  int64_t n = 1;
  for (size_t i = 0; i < x.size(); ++i)
    if (statistics[i] != x[i]) n *= x[i];
  return n;
}

// --- inference ---------------------------------------------------------------------------------------------------

Status need_rank_two(const InferContext& c, size_t x_port) {
  const Dims& x = c.in(x_port).dim;
  if (x.size() >= 2) return {};
  return error(error_code_t::SHAPE_DEDUCTION_FAILED, "{} \"{}\": X \"{}\" has dims {}, at least 2 are needed",
               c.node.op->name, c.node.name, c.in(x_port).name, to_text(x));
}

void fill(InferContext& c, Tensor& t, const Dims& dim, Dims (*strides)(const Dims&)) {
  c.set_dim(t, dim);
  c.set_stride(t, strides(t.dim));
}

void fill_like(InferContext& c, Tensor& t, const Dims& dim, const Tensor& x) {
  c.set_dim(t, dim);
  c.set_stride(t, strides_like(t.dim, x.stride));
}

void fill_same(InferContext& c, Tensor& t, const Tensor& x) {
  c.set_dim(t, x.dim);
  // A broadcast X has no strides that a result could be written with.
  const bool usable = x.stride.size() == t.dim.size() && !self_overlaps({t.dim, x.stride});
  c.set_stride(t, usable ? x.stride : strides_like(t.dim, x.stride));
}

void fill_scalar(InferContext& c, size_t in_port) {
  if (!c.has_in(in_port)) return;
  Tensor& t = c.mutable_in(in_port);
  c.set_dim(t, {1});
  c.set_stride(t, Dims(t.dim.size(), 1));
}

bool in_training(const AttrMap& attrs, const std::vector<std::string>&) {
  auto it = attrs.find("forward_phase");
  if (it == attrs.end()) return false;
  const std::string* phase = std::get_if<std::string>(&it->second);
  return phase && *phase == to_string(NormFwdPhase_t::TRAINING);
}

// --- rules -------------------------------------------------------------------------------------------------------

const Tensor* Rules::in(size_t port) const {
  return port < node_.in.size() && node_.in[port] != ir::kNone ? &graph_.tensor(node_.in[port]) : nullptr;
}

std::string Rules::label(const char* port, const Tensor& t) const {
  return fmt::format("{} \"{}\": {} \"{}\"", node_.op->name, node_.name, port, t.name);
}

Rules& Rules::phase_is_set() {
  if (status_.is_good() && node_.attr_enum("forward_phase", NormFwdPhase_t::NOT_SET) == NormFwdPhase_t::NOT_SET)
    status_ =
        not_set("{} \"{}\": forward_phase is not set; INFERENCE or TRAINING is needed", node_.op->name, node_.name);
  return *this;
}

Rules& Rules::scalar(size_t port, const Dims& x) {
  const Tensor* t = in(port);
  if (status_.is_bad() || !t) return *this;
  if (volume(t->dim) != 1 || t->dim.size() > x.size())
    status_ = invalid("{} is {}; one element is needed, with at most X's {} dims",
                      label(node_.op->inputs[port].name, *t), to_text(t->dim), x.size());
  return *this;
}

Rules& Rules::broadcasts(size_t port, const Dims& x) {
  const Tensor* t = in(port);
  if (status_.is_bad() || !t) return *this;
  bool ok = t->dim.size() == x.size();
  for (size_t i = 0; ok && i < x.size(); ++i) ok = t->dim[i] == 1 || t->dim[i] == x[i];
  if (!ok)
    status_ = invalid("{} is {} and does not broadcast to X, which is {}: each dim must be 1 or X's",
                      label(node_.op->inputs[port].name, *t), to_text(t->dim), to_text(x));
  return *this;
}

Rules& Rules::in_is(size_t port, const Dims& dim) {
  const Tensor* t = in(port);
  if (status_.is_good() && t && t->dim != dim)
    status_ = invalid("{} is {}, {} is needed", label(node_.op->inputs[port].name, *t), to_text(t->dim), to_text(dim));
  return *this;
}

Rules& Rules::out_is(size_t port, const Dims& dim) {
  if (status_.is_bad() || port >= node_.out.size() || node_.out[port] == ir::kNone) return *this;
  const Tensor& t = graph_.tensor(node_.out[port]);
  if (t.dim != dim)
    status_ = invalid("{} is {}, {} is needed", label(node_.op->outputs[port].name, t), to_text(t.dim), to_text(dim));
  return *this;
}

Rules& Rules::all_or_none(std::initializer_list<size_t> ports) {
  const char *given = nullptr, *missing = nullptr;
  for (size_t p : ports) (in(p) ? given : missing) = node_.op->inputs[p].name;
  if (status_.is_good() && given && missing)
    status_ = not_set("{} \"{}\": {} is not set, though {} is; they come together", node_.op->name, node_.name, missing,
                      given);
  return *this;
}

// --- decomposition -------------------------------------------------------------------------------------------------

MomentIds emit_moments(Rewriter& r, TensorId x, const Dims& statistics, TensorId epsilon, bool centred) {
  MomentIds m;
  m.centred = x;
  if (centred) {
    m.mean = r.reduce(ReductionMode_t::AVG, x, statistics);
    m.centred = r.minus(x, m.mean);
  }
  m.variance = r.reduce(ReductionMode_t::AVG, r.mul(m.centred, m.centred), statistics);
  const TensorId shifted = epsilon == ir::kNone ? m.variance : r.plus(m.variance, epsilon);
  m.inv = r.pointwise(PointwiseMode_t::RSQRT, {shifted});
  return m;
}

void emit_copy(Rewriter& r, TensorId value, size_t out_port) {
  if (r.has_out(out_port)) r.copy(value, r.out(out_port));
}

void emit_normalize(Rewriter& r, const MomentIds& m, TensorId scale, TensorId bias, size_t y_port) {
  const TensorId xhat = r.mul(m.centred, m.inv);
  if (bias == ir::kNone) r.mul(xhat, scale, r.out(y_port));
  else r.plus(r.mul(xhat, scale), bias, r.out(y_port));
}

void decompose_forward(Rewriter& r, const Dims& statistics) {
  const MomentIds m = emit_moments(r, r.in(0), statistics, r.in(3), true);
  emit_normalize(r, m, r.in(1), r.in(2), 0);
  emit_copy(r, m.mean, 1);
  emit_copy(r, m.inv, 2);
}

void emit_gradients(Rewriter& r, const GradientPorts& p, const Dims& statistics, const MomentIds& m) {
  const bool centred = p.mean >= 0;
  const TensorId dy = r.in(p.dy), scale = r.in(p.scale);
  const Dims parameters = r.dim(scale);
  const TensorId xhat = r.mul(m.centred, m.inv);
  const TensorId dy_xhat = r.mul(dy, xhat);
  if (parameters == statistics) {
    const TensorId n = r.constant(double(group_size(r.dim(r.in(p.x)), statistics)));
    const TensorId dscale = r.reduce(ReductionMode_t::ADD, dy_xhat, parameters);
    const TensorId dbias = centred || r.has_out(2) ? r.reduce(ReductionMode_t::ADD, dy, parameters) : ir::kNone;
    TensorId t = dy;
    if (centred) t = r.minus(t, r.pointwise(PointwiseMode_t::DIV, {dbias, n}));
    t = r.minus(t, r.mul(xhat, r.pointwise(PointwiseMode_t::DIV, {dscale, n})));
    r.mul(r.mul(scale, m.inv), t, r.out(0));
    emit_copy(r, dscale, 1);
    emit_copy(r, dbias, 2);
    return;
  }
  const TensorId g = r.mul(dy, scale);
  const TensorId slope = r.reduce(ReductionMode_t::AVG, r.mul(dy_xhat, scale), statistics);
  TensorId t = centred ? r.minus(g, r.reduce(ReductionMode_t::AVG, g, statistics)) : g;
  t = r.minus(t, r.mul(xhat, slope));
  r.mul(m.inv, t, r.out(0));
  r.reduce(ReductionMode_t::ADD, dy_xhat, parameters, r.out(1));
  if (r.has_out(2)) r.reduce(ReductionMode_t::ADD, dy, parameters, r.out(2));
}

void decompose_backward(Rewriter& r, const GradientPorts& p, const Dims& statistics) {
  MomentIds m;
  m.centred = r.in(p.x);
  m.inv = r.in(p.inv);
  if (p.mean >= 0) {
    m.mean = r.in(size_t(p.mean));
    m.centred = r.minus(m.centred, m.mean);
  }
  emit_gradients(r, p, statistics, m);
}

// --- running statistics ----------------------------------------------------------------------------------------------

void infer_running(InferContext& c, const RunningPorts& p, const Dims& statistics) {
  for (size_t port : {p.mean, p.variance})
    if (c.has_in(port)) fill(c, c.mutable_in(port), statistics, channels_last_strides);
  for (size_t port : {p.next_mean, p.next_variance})
    if (c.has_out(port)) fill(c, c.out(port), statistics, channels_last_strides);
  fill_scalar(c, p.momentum);
}

bool has_running(const AttrMap&, const std::vector<std::string>& given_ports) {
  for (const std::string& port : given_ports)
    if (port == "PREV_RUNNING_MEAN" || port == "PREV_RUNNING_VAR" || port == "MOMENTUM") return true;
  return false;
}

void emit_running(Rewriter& r, const RunningPorts& p, const MomentIds& m, TensorId n) {
  if (!r.has_in(p.momentum)) return;
  const TensorId momentum = r.in(p.momentum), one = r.constant(1);
  const TensorId keep = r.minus(one, momentum);
  const auto next = [&](size_t previous, TensorId batch, size_t out) {
    if (r.has_out(out)) r.plus(r.mul(keep, r.in(previous)), r.mul(momentum, batch), r.out(out));
  };
  const TensorId divisor = r.pointwise(PointwiseMode_t::MAX, {r.minus(n, one), one});
  const TensorId unbiased = r.mul(m.variance, r.pointwise(PointwiseMode_t::DIV, {n, divisor}));
  next(p.mean, m.mean, p.next_mean);
  next(p.variance, unbiased, p.next_variance);
}

// --- whole ops -----------------------------------------------------------------------------------------------------

Status verify_forward(const ir::Graph& g, const ir::Node& n, const Dims& statistics) {
  const Dims& x = g.tensor(n.in[0]).dim;
  return Rules(g, n)
      .phase_is_set()
      .broadcasts(1, x)
      .broadcasts(2, x)
      .scalar(3, x)
      .out_is(0, x)
      .out_is(1, statistics)
      .out_is(2, statistics)
      .status();
}

Status infer_backward(InferContext& c, const GradientPorts& p, const Dims& default_scale,
                      Dims (*strides)(const Dims&)) {
  TW_RETURN_IF_BAD(need_rank_two(c, p.x));
  const Dims x = c.in(p.x).dim;
  fill(c, c.mutable_in(p.dy), x, strides);
  fill(c, c.mutable_in(p.scale), default_scale, strides);
  const Dims scale = c.in(p.scale).dim;
  if (c.has_out(0)) fill(c, c.out(0), x, strides);
  for (size_t port : {1, 2})
    if (c.has_out(port)) fill(c, c.out(port), scale, strides);
  return {};
}

Status verify_backward(const ir::Graph& g, const ir::Node& n, const GradientPorts& p, const Dims& statistics) {
  const Dims& x = g.tensor(n.in[p.x]).dim;
  const Dims& scale = g.tensor(n.in[p.scale]).dim;
  Rules rules(g, n);
  rules.in_is(p.dy, x).broadcasts(p.scale, x);
  if (p.mean >= 0) rules.in_is(size_t(p.mean), statistics);
  return rules.in_is(p.inv, statistics).out_is(0, x).out_is(1, scale).out_is(2, scale).status();
}

double forward_flops(const ir::Graph& g, const ir::Node& n) {
  // sum, subtract, square and add, multiply twice, add
  return 7.0 * double(volume(g.tensor(n.out[0]).dim));
}

double backward_flops(const ir::Graph& g, const ir::Node& n) {
  // xhat 2, sums 5 (dy, dy xhat, scaled both), dx 5
  return 12.0 * double(volume(g.tensor(n.out[0]).dim));
}

}  // namespace tilewright::ops::norm
