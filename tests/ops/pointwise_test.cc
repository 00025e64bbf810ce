// POINTWISE: every mode against formulas written anew here, gradients against differences, edge values, broadcasting.
#include "ops/pointwise.h"

#include <gmock/gmock.h>

#include "support/every_plan.h"
#include "support/random.h"

namespace tilewright {
namespace {

using graph::Graph;
using graph::Pointwise_attributes;
using graph::Tensor_attributes;
using graph::TensorPtr;
using testing::EveryPlan;
using ::testing::HasSubstr;
using testing::Random;
using Mode = PointwiseMode_t;

std::vector<Mode> all_modes() {
  std::vector<Mode> modes;
#define PW(MODE, ...) modes.push_back(Mode::MODE);
#include "ops/pw_ops.def"
#undef PW
  return modes;
}

double value_of(Mode mode, double x, double y = 0, double m = 0, const PwParams& p = {}) {
  switch (mode) {
#define PW(MODE, ...) \
  case Mode::MODE: \
    return pointwise_value<Mode::MODE, double>(x, y, m, p);
#include "ops/pw_ops.def"
#undef PW
    default: return NAN;
  }
}

// The field's definitions, in plain mathematics.
double definition(Mode mode, double x, double y, double m) {
  const double e = std::exp(1.0);
  auto logistic = [](double t) { return 1 / (1 + std::exp(-t)); };
  switch (mode) {
    case Mode::ADD: return x + y;
    case Mode::SUB: return x - y;
    case Mode::MUL: return x * y;
    case Mode::DIV: return x / y;
    case Mode::ADD_SQUARE: return x + y * y;
    case Mode::MAX: return x > y ? x : y;
    case Mode::MIN: return x < y ? x : y;
    case Mode::MOD: return x - y * std::trunc(x / y);
    case Mode::POW: return std::exp(y * std::log(x));
    case Mode::ABS: return x < 0 ? -x : x;
    case Mode::CEIL: return -std::floor(-x);
    case Mode::FLOOR: return -std::ceil(-x);
    case Mode::COS: return std::sin(x + std::acos(0.0));
    case Mode::SIN: return std::cos(x - std::acos(0.0));
    case Mode::TAN: return std::sin(x) / std::cos(x);
    case Mode::EXP: return std::pow(e, x);
    case Mode::LOG: return std::log2(x) / std::log2(e);
    case Mode::NEG: return 0 - x;
    case Mode::SQRT: return std::pow(x, 0.5);
    case Mode::RSQRT: return std::pow(x, -0.5);
    case Mode::RECIPROCAL: return std::pow(x, -1);
    case Mode::ERF: return 1 - std::erfc(x);
    case Mode::IDENTITY: return x;
    case Mode::LOGICAL_NOT: return x == 0;
    case Mode::LOGICAL_AND: return x != 0 && y != 0;
    case Mode::LOGICAL_OR: return x != 0 || y != 0;
    case Mode::CMP_EQ: return x == y;
    case Mode::CMP_NEQ: return x != y;
    case Mode::CMP_GT: return x > y;
    case Mode::CMP_GE: return x >= y;
    case Mode::CMP_LT: return x < y;
    case Mode::CMP_LE: return x <= y;
    case Mode::BINARY_SELECT: return m != 0 ? x : y;
    case Mode::RELU_FWD: return x > 0 ? x : 0;
    case Mode::TANH_FWD: return (std::exp(x) - std::exp(-x)) / (std::exp(x) + std::exp(-x));
    case Mode::SIGMOID_FWD: return logistic(x);
    case Mode::ELU_FWD: return x > 0 ? x : std::exp(x) - 1;
    case Mode::GELU_FWD: return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Mode::GELU_APPROX_TANH_FWD:
      return x * logistic(2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * std::pow(x, 3)));
    case Mode::SOFTPLUS_FWD: return std::log(1 + std::exp(x));
    case Mode::SWISH_FWD: return x * logistic(x);
    default: return NAN;  // gradients: see below
  }
}

// The forward mode whose gradient a *_BWD mode is.
Mode forward_of(Mode mode) {
  switch (mode) {
    case Mode::RELU_BWD: return Mode::RELU_FWD;
    case Mode::TANH_BWD: return Mode::TANH_FWD;
    case Mode::SIGMOID_BWD: return Mode::SIGMOID_FWD;
    case Mode::ELU_BWD: return Mode::ELU_FWD;
    case Mode::GELU_BWD: return Mode::GELU_FWD;
    case Mode::GELU_APPROX_TANH_BWD: return Mode::GELU_APPROX_TANH_FWD;
    case Mode::SOFTPLUS_BWD: return Mode::SOFTPLUS_FWD;
    case Mode::SWISH_BWD: return Mode::SWISH_FWD;
    default: return Mode::NOT_SET;
  }
}

TEST(PointwiseModes, FollowTheirDefinitions) {
  Random random(1);
  for (Mode mode : all_modes()) {
    if (forward_of(mode) != Mode::NOT_SET) continue;
    for (int i = 0; i < 50; ++i) {
      double x = double(random.between(-40, 40)) / 16, y = double(random.between(-40, 40)) / 16;
      const double m = double(random.between(0, 1));
      if (pointwise_domain(mode) == PwDomain::kPositive) x = std::fabs(x) + 0.1;
      if (pointwise_domain(mode) == PwDomain::kNonZero) x = x == 0 ? 1 : x, y = y == 0 ? 1 : y;
      const double want = definition(mode, x, y, m);
      EXPECT_NEAR(value_of(mode, x, y, m), want, 1e-12 * (1 + std::fabs(want))) << mode << "(" << x << ", " << y << ")";
    }
  }
}

TEST(PointwiseModes, GradientsAreThoseOfTheForwardModes) {
  PwParams p;
  p.lower = -0.5, p.upper = 1.5, p.slope = 0.25, p.swish_beta = 1.25, p.elu_alpha = 0.75, p.softplus_beta = 2;
  int checked = 0;
  for (Mode mode : all_modes()) {
    const Mode forward = forward_of(mode);
    if (forward == Mode::NOT_SET) continue;
    ++checked;
    for (double y = -3.04; y < 3; y += 0.11) {  // beside the kinks
      const double h = 1e-5;
      const double slope = (value_of(forward, y + h, 0, 0, p) - value_of(forward, y - h, 0, 0, p)) / (2 * h);
      EXPECT_NEAR(value_of(mode, 3, y, 0, p), 3 * slope, 1e-7) << mode << " at " << y;
    }
  }
  EXPECT_EQ(checked, 8);
}

TEST(PointwiseModes, EdgeValues) {
  const double inf = kInfinity;
  for (Mode mode : {Mode::RELU_FWD, Mode::TANH_FWD, Mode::SIGMOID_FWD, Mode::ELU_FWD, Mode::GELU_FWD, Mode::ABS,
                    Mode::SOFTPLUS_FWD, Mode::SWISH_FWD, Mode::EXP, Mode::SQRT, Mode::MAX, Mode::MIN, Mode::ADD}) {
    EXPECT_TRUE(std::isnan(value_of(mode, NAN, 1))) << mode;
    if (pointwise_arity(mode) == 2) {
      EXPECT_TRUE(std::isnan(value_of(mode, 1, NAN))) << mode;
    }
  }
  EXPECT_EQ(value_of(Mode::RELU_FWD, -inf), 0);
  EXPECT_EQ(value_of(Mode::RELU_FWD, inf), inf);
  EXPECT_EQ(value_of(Mode::SIGMOID_FWD, -inf), 0);
  EXPECT_EQ(value_of(Mode::SIGMOID_FWD, inf), 1);
  EXPECT_EQ(value_of(Mode::SOFTPLUS_FWD, -inf), 0);
  EXPECT_EQ(value_of(Mode::SOFTPLUS_FWD, inf), inf);
  EXPECT_EQ(value_of(Mode::TANH_FWD, inf), 1);
  EXPECT_EQ(value_of(Mode::ELU_BWD, 2, 800), 2);  // exp(800) overflows and must not matter
  EXPECT_EQ(value_of(Mode::GELU_APPROX_TANH_BWD, 2, 1e30), 2);
  EXPECT_FALSE(std::isnan(value_of(Mode::GELU_BWD, 1, 60)));
  EXPECT_EQ(value_of(Mode::CMP_EQ, NAN, NAN), 0);
  EXPECT_EQ(value_of(Mode::CMP_NEQ, NAN, NAN), 1);
}

// A float evaluation of the same formulas stays within the bounds, and the bounds say something.
TEST(PointwiseModes, FloatsStayWithinTheBounds) {
  Random random(2);
  t_rounding = rounding_of(DataType_t::FLOAT);
  for (Mode mode : all_modes())
    for (int i = 0; i < 400; ++i) {
      float x = float(random.between(-4000, 4000)) / 512, y = float(random.between(-4000, 4000)) / 512;
      if (pointwise_domain(mode) == PwDomain::kPositive) x = std::fabs(x) + 0.01f;
      if (pointwise_domain(mode) == PwDomain::kNonZero) x += 10, y += 10;
      if (pointwise_domain(mode) == PwDomain::kSmall) x /= 8;
      Bounded want;
      float got = 0;
      switch (mode) {
#define PW(MODE, ...) \
  case Mode::MODE: \
    want = pointwise_value<Mode::MODE, Bounded>(double(x), double(y), 1, {}); \
    got = pointwise_value<Mode::MODE, float>(x, y, 1, {}); \
    break;
#include "ops/pw_ops.def"
#undef PW
        default: break;
      }
      EXPECT_LE(std::fabs(double(got) - want.v), want.e + 1e-300) << mode << "(" << x << ", " << y << ")";
      EXPECT_LE(want.e, 1e-4 * (std::fabs(want.v) + std::fabs(x) + std::fabs(y) + 1)) << mode;
    }
}

Graph graph_of(DataType_t io) {
  Graph g;
  g.set_io_data_type(io).set_intermediate_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  return g;
}

TEST(Pointwise, EveryModeInEveryPlan) {
  for (Mode mode : all_modes())
    for (DataType_t type : {DataType_t::FLOAT, DataType_t::BFLOAT16}) {
      Random random(uint64_t(mode) * 2 + (type == DataType_t::FLOAT));
      Graph g = graph_of(type);
      const Dims dim = {random.between(1, 5), random.between(1, 40), random.between(1, 9)};
      auto x = g.tensor(Tensor_attributes().set_name("x").set_dim(dim).set_stride(random.strides(dim)));
      auto attr = Pointwise_attributes().set_name("op").set_mode(mode);
      TensorPtr out, y, m;
      if (pointwise_arity(mode) >= 2) {
        const Dims other = {1, dim[1], random.one_in(2) ? dim[2] : 1};
        y = g.tensor(Tensor_attributes().set_name("y").set_dim(other).set_stride(random.strides(other)));
      }
      if (pointwise_arity(mode) == 3) {
        m = g.tensor(Tensor_attributes().set_name("m").set_dim(dim).set_stride(random.strides(dim)));
        m->set_data_type(DataType_t::BOOLEAN);
      }
      out = m ? g.pointwise(x, y, m, attr) : y ? g.pointwise(x, y, attr) : g.pointwise(x, attr);
      out->set_output(true);
      EveryPlan plans(g, {.seed = uint64_t(mode)});
      ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
      auto small = [&](int64_t salt) {
        return [=](int64_t i) {
          const double v = double((i * 7 + salt) % 33 - 16) / 8;
          switch (pointwise_domain(mode)) {
            case PwDomain::kPositive: return std::fabs(v) + 0.125;
            case PwDomain::kNonZero: return v == 0 ? 1.5 : v;
            case PwDomain::kLogical: return double((i + salt) % 2);
            case PwDomain::kSmall: return v / 2;
            default: return v;
          }
        };
      };
      plans.fill(x, small(3));
      if (y) plans.fill(y, small(11));
      EXPECT_TRUE(plans.run()) << mode << " " << type;
    }
}

TEST(Pointwise, SpecialValuesInEveryPlan) {
  const double specials[] = {NAN, kInfinity, -kInfinity, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 1.0, -1.0};
  for (Mode mode : {Mode::ADD, Mode::MUL, Mode::MAX, Mode::MIN, Mode::RELU_FWD, Mode::SIGMOID_FWD, Mode::TANH_FWD,
                    Mode::GELU_FWD, Mode::ELU_FWD, Mode::SOFTPLUS_FWD, Mode::CMP_GT, Mode::CMP_EQ, Mode::BINARY_SELECT,
                    Mode::LOGICAL_AND, Mode::ABS, Mode::NEG, Mode::RELU_BWD}) {
    Graph g = graph_of(DataType_t::FLOAT);
    auto x = g.tensor(Tensor_attributes().set_name("x").set_dim({11, 11}).set_stride({11, 1}));
    auto y = g.tensor(Tensor_attributes().set_name("y").set_dim({11, 11}).set_stride({11, 1}));
    auto attr = Pointwise_attributes().set_mode(mode);
    const int arity = pointwise_arity(mode);
    auto out = arity == 3 ? g.pointwise(x, y, x, attr) : arity == 2 ? g.pointwise(x, y, attr) : g.pointwise(x, attr);
    out->set_output(true);
    EveryPlan plans(g);
    plans.fill(x, [&](int64_t i) { return specials[i % 11]; });
    if (arity > 1) plans.fill(y, [&](int64_t i) { return specials[i / 11]; });
    EXPECT_TRUE(plans.run()) << mode;
  }
}

TEST(Pointwise, SigmoidOfTheCodedFill) {  // check numbers of a public report
  Graph g = graph_of(DataType_t::FLOAT);
  auto x = g.tensor(Tensor_attributes().set_name("x").set_dim({2, 3, 2, 2}).set_stride({12, 4, 2, 1}));
  auto y = g.pointwise(x, Pointwise_attributes().set_mode(Mode::SIGMOID_FWD));
  y->set_output(true);
  EveryPlan plans(g);
  plans.fill(x, testing::coded(5));
  EXPECT_TRUE(plans.run([&](const std::string& plan) {
    const auto got = plans.read(y);
    double sum = 0;
    for (double v : got) sum += v;
    EXPECT_NEAR(sum, 12.0557636, 1e-5) << plan;
    EXPECT_NEAR(got.front(), 0.348645135, 1e-6) << plan;
    EXPECT_NEAR(got.back(), 0.731058579, 1e-6) << plan;
  }));
}

TEST(Pointwise, GenIndexYieldsTheIndex) {
  for (int64_t axis : {0, 1, 2}) {
    Graph g = graph_of(DataType_t::FLOAT);
    auto x = g.tensor(Tensor_attributes().set_name("x").set_dim({3, 4, 5}).set_stride({1, 3, 12}));
    auto y = g.pointwise(x, Pointwise_attributes().set_mode(Mode::GEN_INDEX).set_axis(axis));
    y->set_output(true).set_data_type(DataType_t::INT32);
    EveryPlan plans(g);
    EXPECT_TRUE(plans.run([&](const std::string& plan) {
      const auto got = plans.read(y);
      for (int64_t i = 0; i < 60; ++i) {
        const int64_t index[] = {i / 20, i / 5 % 4, i % 5};
        EXPECT_EQ(got[size_t(i)], double(index[axis])) << plan;
      }
    }));
  }
}

TEST(Pointwise, InPlaceRotation) {  // both outputs overwrite the inputs that both read, as rotary embeddings do
  Graph g = graph_of(DataType_t::FLOAT);
  const Dims dim = {2, 3, 64}, stride = {600, 200, 1};
  auto x1 = g.tensor(Tensor_attributes().set_name("x1").set_dim(dim).set_stride(stride).set_uid(1));
  auto x2 = g.tensor(Tensor_attributes().set_name("x2").set_dim(dim).set_stride(stride).set_uid(2));
  auto c = g.tensor(Tensor_attributes().set_name("cos").set_dim({1, 3, 64}).set_stride({192, 64, 1}).set_uid(3));
  auto s = g.tensor(Tensor_attributes().set_name("sin").set_dim({1, 3, 64}).set_stride({192, 64, 1}).set_uid(4));
  auto mul = Pointwise_attributes().set_mode(Mode::MUL);
  auto y1 = g.pointwise(g.pointwise(x1, c, mul), g.pointwise(x2, s, mul), Pointwise_attributes().set_mode(Mode::SUB));
  auto y2 = g.pointwise(g.pointwise(x1, s, mul), g.pointwise(x2, c, mul), Pointwise_attributes().set_mode(Mode::ADD));
  y1->set_output(true).set_uid(5);
  y2->set_output(true).set_uid(6);
  ASSERT_TRUE(g.build({HeurMode_t::A, HeurMode_t::FALLBACK}, BuildPlanPolicy_t::ALL).is_good());
  EXPECT_EQ(y1->get_stride(), stride);
  std::vector<float> in1(1200), in2(1200), cosine(192), sine(192);
  for (size_t i = 0; i < 1200; ++i) in1[i] = float(i % 37) - 18, in2[i] = float(i % 29) - 14;
  for (size_t i = 0; i < 192; ++i) cosine[i] = float(i % 5), sine[i] = float(i % 7);
  for (int64_t plan = 0; plan < g.get_execution_plan_count(); ++plan) {
    std::vector<float> a = in1, b = in2;
    std::vector<char> workspace(size_t(g.get_workspace_size_plan_at_index(plan)) + 64);
    std::unordered_map<int64_t, void*> pack = {{1, a.data()},    {2, b.data()}, {3, cosine.data()},
                                               {4, sine.data()}, {5, a.data()}, {6, b.data()}};
    const error_t e = g.execute_plan_at_index(nullptr, pack, workspace.data(), plan);
    if (plan > 0 && g.plans()[size_t(plan)].kernel_count > 1) {  // several launches cannot: they say so
      EXPECT_EQ(e.code, error_code_t::GRAPH_EXECUTION_FAILED);
      EXPECT_THAT(e.err_msg, HasSubstr("shares memory"));
      continue;
    }
    ASSERT_TRUE(e.is_good()) << e.err_msg;
    for (size_t i = 0; i < 2; ++i)
      for (size_t j = 0; j < 3; ++j)
        for (size_t k = 0; k < 64; ++k) {
          const size_t at = i * 600 + j * 200 + k, cs = j * 64 + k;
          ASSERT_EQ(a[at], in1[at] * cosine[cs] - in2[at] * sine[cs]) << "plan " << plan;
          ASSERT_EQ(b[at], in1[at] * sine[cs] + in2[at] * cosine[cs]) << "plan " << plan;
        }
  }
}

TEST(Pointwise, Rejections) {
  auto message = [](auto&& describe, error_code_t code) {
    Graph g = graph_of(DataType_t::FLOAT);
    describe(g);
    const error_t e = g.validate();
    EXPECT_EQ(e.code, code) << e.err_msg;
    return e.err_msg;
  };
  auto tensor = [](Graph& g, const char* name, Dims dim) {
    return g.tensor(Tensor_attributes().set_name(name).set_dim(dim).set_stride(row_major_strides(dim)));
  };
  std::string text = message(
      [&](Graph& g) {
        g.pointwise(tensor(g, "left", {2, 3}), tensor(g, "right", {2, 4}),
                    Pointwise_attributes().set_name("sum").set_mode(Mode::ADD))
            ->set_output(true);
      },
      error_code_t::SHAPE_DEDUCTION_FAILED);
  EXPECT_THAT(text, HasSubstr("\"sum\""));
  text = message(
      [&](Graph& g) {
        g.pointwise(tensor(g, "x", {2}), Pointwise_attributes().set_name("nameless"))->set_output(true);
      },
      error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(text, HasSubstr("mode"));
  text = message(
      [&](Graph& g) {
        g.pointwise(tensor(g, "x", {2}), Pointwise_attributes().set_name("half").set_mode(Mode::MUL))->set_output(true);
      },
      error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(text, HasSubstr("IN_1"));
  text = message(
      [&](Graph& g) {
        g.pointwise(tensor(g, "x", {2}), Pointwise_attributes().set_mode(Mode::GEN_INDEX).set_axis(1))
            ->set_output(true);
      },
      error_code_t::INVALID_VALUE);
  EXPECT_THAT(text, HasSubstr("axis 1"));
}

}  // namespace
}  // namespace tilewright
