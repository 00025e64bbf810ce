// POINTWISE: IN_0, IN_1, IN_2 -> OUT_0, element by element, with NumPy's broadcasting. The modes are pw_ops.def.
#include "ops/pointwise.h"

#include "ops/reference.h"

namespace tilewright {

int pointwise_arity(PointwiseMode_t mode) {
  switch (mode) {
#define PW(MODE, ARITY, ...) \
  case PointwiseMode_t::MODE: \
    return ARITY;
#include "ops/pw_ops.def"
#undef PW
    case PointwiseMode_t::GEN_INDEX: return 1;
    default: return 0;
  }
}

PwDomain pointwise_domain(PointwiseMode_t mode) {
  switch (mode) {
#define PW(MODE, ARITY, DOMAIN_, ...) \
  case PointwiseMode_t::MODE: \
    return PwDomain::DOMAIN_;
#include "ops/pw_ops.def"
#undef PW
    default: return PwDomain::kAny;
  }
}

const char* pointwise_formula(PointwiseMode_t mode) {
  switch (mode) {
#define PW(MODE, ARITY, DOMAIN_, ...) \
  case PointwiseMode_t::MODE: \
    return #__VA_ARGS__;
#include "ops/pw_ops.def"
#undef PW
    case PointwiseMode_t::GEN_INDEX: return "index along axis";
    default: return "";
  }
}

PointwiseMode_t pointwise_mode(const ir::Node& n) { return n.attr_enum("mode", PointwiseMode_t::NOT_SET); }

PwParams pointwise_params(const ir::Node& n) {
  PwParams p;
  p.lower = n.attr("relu_lower_clip", p.lower);
  p.upper = n.attr("relu_upper_clip", p.upper);
  p.slope = n.attr("relu_lower_clip_slope", p.slope);
  p.swish_beta = n.attr("swish_beta", p.swish_beta);
  p.elu_alpha = n.attr("elu_alpha", p.elu_alpha);
  p.softplus_beta = n.attr("softplus_beta", p.softplus_beta);
  p.axis = n.attr<int64_t>("axis", -1);
  return p;
}

namespace ops {
namespace {

using namespace ir;

Status infer(InferContext& c) {
  std::vector<Dims> shapes;
  for (size_t i = 0; i < 3; ++i)
    if (c.has_in(i)) shapes.push_back(c.in(i).dim);
  auto dims = broadcast_dims(shapes);
  if (!dims)
    return error(error_code_t::SHAPE_DEDUCTION_FAILED, "pointwise \"{}\": {}", c.node.name, dims.status().err_msg);
  Tensor& out = c.out(0);
  c.set_dim(out, *dims);
  if (!out.stride.empty()) return {};
  for (size_t i = 0; i < 3; ++i)
    if (c.has_in(i) && c.in(i).dim == out.dim && !self_overlaps(c.in(i).view())) {
      out.stride = c.in(i).stride;
      return {};
    }
  // No operand has the result's shape: the layout of the largest one, or packed rows.
  size_t best = 0;
  for (size_t i = 1; i < 3; ++i)
    if (c.has_in(i) && volume(c.in(i).dim) > volume(c.in(best).dim)) best = i;
  out.stride =
      c.in(best).dim.size() == out.dim.size() ? strides_like(out.dim, c.in(best).stride) : row_major_strides(out.dim);
  return {};
}

Status verify(const Graph& g, const Node& n) {
  const PointwiseMode_t mode = pointwise_mode(n);
  const int arity = pointwise_arity(mode);
  if (arity == 0) return not_set("pointwise \"{}\": mode is not set", n.name);
  for (int i = 0; i < arity; ++i)
    if (size_t(i) >= n.in.size() || n.in[size_t(i)] == kNone)
      return not_set("pointwise \"{}\": {} takes {} operands, IN_{} is missing", n.name, to_string(mode), arity, i);
  const Tensor& out = g.tensor(n.out[0]);
  if (mode == PointwiseMode_t::GEN_INDEX) {
    const int64_t axis = n.attr<int64_t>("axis", -1);
    if (axis < 0 || axis >= int64_t(out.dim.size()))
      return invalid("pointwise \"{}\": GEN_INDEX axis {} is not a dim of \"{}\" {}", n.name, axis, out.name,
                     to_text(out.dim));
  }
  for (TensorId id : n.in) {
    if (id == kNone) continue;
    const Tensor& t = g.tensor(id);
    auto all = broadcast_dims({t.dim, out.dim});
    if (!all || *all != out.dim)
      return error(error_code_t::SHAPE_DEDUCTION_FAILED,
                   "pointwise \"{}\": operand \"{}\" {} does not broadcast to the result \"{}\" {}", n.name, t.name,
                   to_text(t.dim), out.name, to_text(out.dim));
    if (t.type == DataType_t::COMPLEX_FP32 || t.type == DataType_t::COMPLEX_FP64)
      return not_supported("pointwise \"{}\": \"{}\" is complex; complex arithmetic is not available in this version",
                           n.name, t.name);
  }
  return {};
}

template <PointwiseMode_t kMode>
void eval(RefContext& c, const std::vector<RefBroadcast>& in, const PwParams& p) {
  RefTensor& out = c.out(0);
  c.for_each(out.volume(), [&](int64_t i) {
    const Bounded x = in[0].at_linear(i);
    const Bounded y = in.size() > 1 ? in[1].at_linear(i) : Bounded(0);
    const Bounded m = in.size() > 2 ? in[2].at_linear(i) : Bounded(0);
    out.values[size_t(i)] = pointwise_value<kMode, Bounded>(x, y, m, p);
  });
}

void reference(RefContext& c) {
  const PointwiseMode_t mode = pointwise_mode(c.node);
  const PwParams p = pointwise_params(c.node);
  RefTensor& out = c.out(0);
  if (mode == PointwiseMode_t::GEN_INDEX) {
    int64_t inner = 1;
    for (size_t d = size_t(p.axis) + 1; d < out.dim().size(); ++d) inner *= out.dim()[d];
    const int64_t extent = out.dim()[size_t(p.axis)];
    c.for_each(out.volume(), [&](int64_t i) { out.values[size_t(i)] = double(i / inner % extent); });
    return;
  }
  std::vector<RefBroadcast> in;
  for (int i = 0; i < pointwise_arity(mode); ++i) in.emplace_back(c.in(size_t(i)), out.dim());
  switch (mode) {
#define PW(MODE, ...) \
  case PointwiseMode_t::MODE: \
    return eval<PointwiseMode_t::MODE>(c, in, p);
#include "ops/pw_ops.def"
#undef PW
    default: return;
  }
}

}  // namespace

extern const OpDef kPointwise;
const OpDef kPointwise = {
    .name = "pointwise",
    .tag = "POINTWISE",
    .inputs = {{"IN_0"}, {"IN_1", PortKind::Optional}, {"IN_2", PortKind::Optional}},
    .outputs = {{"OUT_0"}},
    .attrs = {{"mode", AttrKind::Enum, true, is_name_of<PointwiseMode_t>},
              {"axis", AttrKind::Int},
              {"relu_lower_clip", AttrKind::Float},
              {"relu_upper_clip", AttrKind::Float},
              {"relu_lower_clip_slope", AttrKind::Float},
              {"swish_beta", AttrKind::Float},
              {"elu_alpha", AttrKind::Float},
              {"softplus_beta", AttrKind::Float}},
    .infer = infer,
    .verify = verify,
    .reference = reference,
};

}  // namespace ops
}  // namespace tilewright
