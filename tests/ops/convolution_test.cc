// conv_fprop, conv_dgrad, conv_wgrad: the reference against direct sums, every plan against the reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/thread_pool.h"
#include "support/every_plan.h"
#include "support/random.h"

namespace tilewright {
namespace {

using graph::Conv_dgrad_attributes;
using graph::Conv_fprop_attributes;
using graph::Conv_wgrad_attributes;
using graph::Tensor_attributes;
using graph::TensorPtr;
using ::testing::AllOf;
using testing::check_numbers;
using testing::coded;
using testing::EveryPlan;
using ::testing::HasSubstr;
using testing::Random;

struct Shape {
  int64_t n = 1, c = 1, k = 1, groups = 1;
  Dims in, filter, out, pre, post, stride, dilation;
  bool flip = false;

  Dims x() const { return with({n, c}, in); }
  Dims w() const { return with({k, c / groups}, filter); }
  Dims y() const { return with({n, k}, out); }
  static Dims with(Dims head, const Dims& tail) {
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  }
  template <class Attributes>
  Attributes attributes() const {
    Attributes a;
    a.set_pre_padding(pre).set_post_padding(post).set_stride(stride).set_dilation(dilation);
    if (flip) a.set_convolution_mode(ConvolutionMode_t::CONVOLUTION);
    return a.set_name("conv");
  }
};

Shape random_shape(Random& random) {
  Shape s;
  const size_t rank = size_t(random.between(1, 3));
  s.groups = random.one_in(3) ? random.between(2, 4) : 1;
  s.n = random.between(1, 3);
  s.c = s.groups * random.between(1, 5);
  s.k = s.groups * (random.one_in(4) ? random.between(15, 19) : random.between(1, 5));
  s.flip = random.one_in(3);
  for (size_t d = 0; d < rank; ++d) {
    s.filter.push_back(random.between(1, 4));
    s.stride.push_back(random.between(1, 3));
    s.dilation.push_back(random.one_in(3) ? random.between(2, 3) : 1);
    s.pre.push_back(random.between(0, 3));
    s.post.push_back(random.between(0, 3));
    const int64_t reach = s.dilation[d] * (s.filter[d] - 1) + 1;
    s.in.push_back(std::max<int64_t>(1, reach - s.pre[d] - s.post[d]) + random.between(0, rank == 3 ? 4 : 9));
    s.out.push_back((s.in[d] + s.pre[d] + s.post[d] - reach) / s.stride[d] + 1);
  }
  return s;
}

// The definition, once for all three: calls body(x, w, y) for every product, with row-major indices.
template <class Body>
void for_each_product(const Shape& s, const Body& body) {
  const size_t rank = s.in.size();
  const int64_t c_group = s.c / s.groups, k_group = s.k / s.groups;
  Dims p(rank), r(rank);
  for (int64_t yi = 0; yi < volume(s.y()); ++yi) {
    int64_t rest = yi;
    for (size_t d = rank; d-- > 0; rest /= s.out[d]) p[d] = rest % s.out[d];
    const int64_t k = rest % s.k, n = rest / s.k;
    for (int64_t c = 0; c < c_group; ++c)
      for (int64_t ri = 0; ri < volume(s.filter); ++ri) {
        int64_t tail = ri, x = n * s.c + k / k_group * c_group + c, w = k * c_group + c;
        for (size_t d = rank; d-- > 0; tail /= s.filter[d]) r[d] = tail % s.filter[d];
        bool inside = true;
        for (size_t d = 0; d < rank; ++d) {
          const int64_t q = p[d] * s.stride[d] + r[d] * s.dilation[d] - s.pre[d];
          inside &= q >= 0 && q < s.in[d];
          x = x * s.in[d] + q;
          w = w * s.filter[d] + (s.flip ? s.filter[d] - 1 - r[d] : r[d]);
        }
        if (inside) body(x, w, yi);
      }
  }
}

struct Types {
  DataType_t in, out, compute;
};
const std::vector<Types> kTypes = {
    {DataType_t::FLOAT, DataType_t::FLOAT, DataType_t::FLOAT},
    {DataType_t::HALF, DataType_t::HALF, DataType_t::FLOAT},
    {DataType_t::BFLOAT16, DataType_t::BFLOAT16, DataType_t::FLOAT},
    {DataType_t::BFLOAT16, DataType_t::FLOAT, DataType_t::FLOAT},
    {DataType_t::DOUBLE, DataType_t::DOUBLE, DataType_t::DOUBLE},
    {DataType_t::FP8_E4M3, DataType_t::HALF, DataType_t::FLOAT},
    {DataType_t::FP8_E5M2, DataType_t::BFLOAT16, DataType_t::FLOAT},
    {DataType_t::INT8, DataType_t::INT32, DataType_t::INT32},
    {DataType_t::INT8, DataType_t::FLOAT, DataType_t::FLOAT},
};

// One of the three ops with inputs `a` and `b` and output `out`, in logical order of the op.
struct Built {
  graph::Graph graph;
  TensorPtr a, b, out;
};
enum class Op { Fprop, Dgrad, Wgrad };

Built build(const Shape& s, Op op, Types types, Random* random = nullptr) {
  Built t;
  t.graph.set_compute_data_type(types.compute);
  auto input = [&](const char* name, const Dims& dim) {
    return t.graph.tensor(Tensor_attributes().set_name(name).set_dim(dim).set_data_type(types.in).set_stride(
        random ? random->input_strides(dim) : row_major_strides(dim)));
  };
  const Dims x = s.x(), w = s.w(), y = s.y();
  if (op == Op::Fprop) {
    t.a = input("x", x), t.b = input("w", w);
    t.out = t.graph.conv_fprop(t.a, t.b, s.attributes<Conv_fprop_attributes>());
  } else if (op == Op::Dgrad) {
    t.a = input("dy", y), t.b = input("w", w);
    t.out = t.graph.conv_dgrad(t.a, t.b, s.attributes<Conv_dgrad_attributes>());
    t.out->set_dim(x);
  } else {
    t.a = input("dy", y), t.b = input("x", x);
    t.out = t.graph.conv_wgrad(t.a, t.b, s.attributes<Conv_wgrad_attributes>());
    t.out->set_dim(w);
  }
  t.out->set_output(true).set_data_type(types.out);
  if (random && random->one_in(2)) t.out->set_stride(random->strides(op == Op::Fprop ? y : op == Op::Dgrad ? x : w));
  return t;
}

std::vector<double> direct(const Shape& s, Op op, const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out(size_t(volume(op == Op::Fprop ? s.y() : op == Op::Dgrad ? s.x() : s.w())), 0);
  for_each_product(s, [&](int64_t xi, int64_t wi, int64_t yi) {
    const size_t x = size_t(xi), w = size_t(wi), y = size_t(yi);
    if (op == Op::Fprop) out[y] += a[x] * b[w];
    if (op == Op::Dgrad) out[x] += a[y] * b[w];
    if (op == Op::Wgrad) out[w] += a[y] * b[x];
  });
  return out;
}

TEST(Convolution, EqualsTheDirectSumsOnRandomShapesLayoutsAndTypes) {
  for (uint64_t seed : testing::seeds(1, 40)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const Shape shape = random_shape(random);
    for (Op op : {Op::Fprop, Op::Dgrad, Op::Wgrad}) {
      Built t = build(shape, op, random.of(kTypes), &random);
      EveryPlan plans(t.graph, {.seed = seed, .fill = Fill::Integers});
      ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
      // Small integers: the sums are exact in double precision.
      ASSERT_EQ(plans.expected(t.out), direct(shape, op, plans.read(t.a), plans.read(t.b)));
      ASSERT_TRUE(plans.run());
    }
  }
}

TEST(Convolution, RealNumbersStayWithinTheBoundInEveryPlan) {
  for (uint64_t seed : testing::seeds(100, 12)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const Shape shape = random_shape(random);
    for (Op op : {Op::Fprop, Op::Dgrad, Op::Wgrad}) {
      Built t = build(shape, op, random.of(kTypes), &random);
      EveryPlan plans(t.graph, {.seed = seed});
      ASSERT_TRUE(plans.run());
    }
  }
}

TEST(Convolution, GradientsAreAdjoint) {
  for (uint64_t seed : testing::seeds(200, 10)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const Shape shape = random_shape(random);
    const Types types = kTypes[4];
    Built fprop = build(shape, Op::Fprop, types), dgrad = build(shape, Op::Dgrad, types),
          wgrad = build(shape, Op::Wgrad, types);
    EveryPlan f(fprop.graph, {.seed = seed}), d(dgrad.graph, {.seed = seed + 1}), w(wgrad.graph, {.seed = seed + 2});
    // Integers up to 3: every inner product below is exact.
    auto small = [&](int64_t i) { return double((i * 7 + int64_t(seed)) % 7 - 3); };
    f.fill(fprop.a, small).fill(fprop.b, small);
    d.fill(dgrad.a, small).fill(dgrad.b, small);
    w.fill(wgrad.a, small).fill(wgrad.b, small);
    const std::vector<double> y = f.expected(fprop.out), dx = d.expected(dgrad.out), dw = w.expected(wgrad.out);
    auto inner = [](const std::vector<double>& a, const std::vector<double>& b) {
      EXPECT_EQ(a.size(), b.size());
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    const double forward = inner(y, d.read(dgrad.a));
    EXPECT_EQ(forward, inner(f.read(fprop.a), dx));
    EXPECT_EQ(forward, inner(f.read(fprop.b), dw));
  }
}

// --- check numbers ---------------------------------------------------------------------------------------------------

// Square spatial dims and one padding, stride for all, which is what the cases below need.
Shape plane(Dims x, Dims w, int64_t pre, int64_t post, int64_t stride) {
  Shape s;
  s.n = x[0], s.c = x[1], s.k = w[0], s.groups = x[1] / w[1];
  s.in.assign(x.begin() + 2, x.end()), s.filter.assign(w.begin() + 2, w.end());
  for (size_t d = 0; d < s.in.size(); ++d) {
    s.pre.push_back(pre), s.post.push_back(post), s.stride.push_back(stride), s.dilation.push_back(1);
    s.out.push_back((s.in[d] + pre + post - s.filter[d]) / stride + 1);
  }
  return s;
}

const Types kFloats = {DataType_t::FLOAT, DataType_t::FLOAT, DataType_t::FLOAT};

// Every plan gives exactly these numbers, with X or DY = coded(a), the second input = coded(b).
void expect_numbers(Built& t, int64_t a, int64_t b, const std::string& numbers) {
  EveryPlan plans(t.graph);
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  plans.fill(t.a, coded(a)).fill(t.b, coded(b));
  EXPECT_EQ(check_numbers(plans.expected(t.out)), numbers);
  EXPECT_TRUE(
      plans.run([&](const std::string& plan) { EXPECT_EQ(check_numbers(plans.read(t.out)), numbers) << plan; }));
}

TEST(Convolution, UnequalPaddingHeavierInFront) {
  Built t = build(plane({1, 3, 8, 8}, {4, 3, 3, 3}, 1, 0, 2), Op::Fprop, kFloats);
  expect_numbers(t, 5, 7, "-2.734375 / 140.640625 / -2.125 / 4.296875");
  EXPECT_EQ(t.out->get_dim(), (Dims{1, 4, 4, 4}));
  EXPECT_EQ(t.out->get_stride(), (Dims{64, 1, 16, 4})) << "channels last, whatever X is";
}

TEST(Convolution, EmptySpatialDim) {
  const Shape s = plane({2, 32, 0, 5}, {32, 32, 2, 2}, 1, 1, 1);
  Built fprop = build(s, Op::Fprop, kFloats), wgrad = build(s, Op::Wgrad, kFloats);
  {
    EveryPlan plans(fprop.graph);
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    EXPECT_EQ(fprop.out->get_dim(), (Dims{2, 32, 1, 6}));
    EXPECT_TRUE(
        plans.run([&](const std::string&) { EXPECT_EQ(plans.read(fprop.out), std::vector<double>(2 * 32 * 6, 0)); }));
    if (!testing::test_handle()) {
      // An empty tensor has no memory to point to.
      auto pack = plans.harness().variant_pack();
      pack[fprop.a->get_uid()] = nullptr;
      plans.harness().poison_outputs();
      EXPECT_TRUE(
          fprop.graph.execute(Handle{}, pack, plans.harness().workspace(fprop.graph.get_workspace_size())).is_good());
      EXPECT_TRUE(plans.harness().check().is_good());
    }
  }
  EveryPlan plans(wgrad.graph);
  EXPECT_TRUE(
      plans.run([&](const std::string&) { EXPECT_EQ(plans.read(wgrad.out), std::vector<double>(32 * 32 * 4, 0)); }));
}

TEST(Convolution, OneAfterTheOther) {
  graph::Graph g;
  g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  auto tensor = [&](const char* name, Dims dim) {
    return g.tensor(Tensor_attributes().set_name(name).set_dim(dim).set_stride(row_major_strides(dim)));
  };
  auto x = tensor("x", {1, 1, 8, 8}), w1 = tensor("w1", {1, 1, 3, 3}), w2 = tensor("w2", {1, 1, 3, 3});
  const Conv_fprop_attributes plain =
      Conv_fprop_attributes().set_padding({0, 0}).set_stride({1, 1}).set_dilation({1, 1});
  auto y1 = g.conv_fprop(x, w1, Conv_fprop_attributes(plain).set_name("first"));
  y1->set_name("y1");
  auto y2 = g.conv_fprop(y1, w2, Conv_fprop_attributes(plain).set_name("second"));
  y2->set_output(true);
  // The intermediate has no type, and neither the graph nor the op one to give it.
  g.set_compute_data_type(DataType_t::NOT_SET);
  const Status untyped = g.validate();
  EXPECT_EQ(untyped.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(untyped.err_msg, HasSubstr("\"y1\""));

  g.set_compute_data_type(DataType_t::FLOAT);
  EveryPlan plans(g);
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  plans.fill(x, coded(5)).fill(w1, coded(7)).fill(w2, coded(11));
  EXPECT_EQ(y1->get_data_type(), DataType_t::FLOAT) << "the type its op computes in";
  const std::vector<double> middle = plans.expected(y1);
  EXPECT_EQ(check_numbers(middle).substr(0, 18), "3.84375 / 39.65625");
  EXPECT_TRUE(plans.run([&](const std::string& plan) {
    EXPECT_EQ(check_numbers(plans.read(y2)), "1.7109375 / 3.765625 / 0.23046875 / 0.06640625") << plan;
  }));
}

TEST(Convolution, MoreThan65535Images) {
  Built t = build(plane({65540, 1, 1, 8}, {2, 1, 1, 3}, 0, 0, 1), Op::Fprop, kFloats);
  expect_numbers(t, 5, 7, "2.3125 / 430105.656 / -0.234375 / -0.265625");
  EveryPlan plans(t.graph);
  plans.fill(t.a, coded(5)).fill(t.b, coded(7));
  EXPECT_TRUE(plans.run([&](const std::string& plan) {
    const std::vector<double> y = plans.read(t.out);
    const std::vector<double> one(y.begin() + 65536 * 12, y.begin() + 65537 * 12);
    EXPECT_EQ(one, (std::vector<double>{0.859375, -0.53125, -0.0625, 1.203125, -0.1875, 0.28125, 0.921875, -0.59375,
                                        -0.25, 0.890625, -0.625, -0.28125}))
        << plan;
    int64_t other = 0;  // the fill has period 17 in images
    for (size_t i = 17 * 12; i < y.size(); ++i) other += y[i] != y[i - 17 * 12];
    EXPECT_EQ(other, 0) << plan;
  }));
}

TEST(Convolution, FloatComputeIsSinglePrecisionAndTheBatchDoesNotMatter) {
  auto sine = [](int64_t i) { return std::sin(0.7 * double(i)); };
  auto cosine = [](int64_t i) { return std::cos(0.3 * double(i)); };
  const Shape two = plane({2, 64, 4, 4}, {8, 64, 1, 1}, 0, 0, 1), one = plane({1, 64, 4, 4}, {8, 64, 1, 1}, 0, 0, 1);
  Built exact = build(two, Op::Fprop, {DataType_t::DOUBLE, DataType_t::DOUBLE, DataType_t::DOUBLE});
  EveryPlan doubles(exact.graph);
  ASSERT_TRUE(doubles.status.is_good()) << doubles.status.err_msg;
  doubles.fill(exact.a, sine).fill(exact.b, cosine);
  const std::vector<double> want = doubles.expected(exact.out);
  EXPECT_EQ(check_numbers(want), "7.22452852 / 67.0447822 / -0.384782624 / -0.391820903");
  EXPECT_TRUE(doubles.run());

  // Inputs rounded to ten bits, as faster but coarser units round them, would be off by 3e-3.
  for (const Shape& shape : {two, one}) {
    Built t = build(shape, Op::Fprop, kFloats);
    EveryPlan plans(t.graph);
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    plans.fill(t.a, sine).fill(t.b, cosine);
    EXPECT_TRUE(plans.run([&](const std::string& plan) {
      const std::vector<double> got = plans.read(t.out);
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 5e-5) << plan << " at " << i;
    }));
  }

  Built eight = build(plane({8, 64, 4, 4}, {8, 64, 1, 1}, 0, 0, 1), Op::Fprop, kFloats);
  expect_numbers(eight, 5, 7, "-28.015625 / 5109.10938 / -1.0625 / 11.53125");
}

TEST(Convolution, OneChannelInAnyStridesAndOffAnyAlignment) {
  const Shape s = plane({1, 1, 6, 6}, {4, 1, 3, 3}, 1, 1, 1);
  for (const Dims& x_stride : {Dims{36, 36, 6, 1}, Dims{36, 1, 6, 1}, Dims{999, 7, 6, 1}})
    for (const Dims& w_stride : {Dims{9, 9, 3, 1}, Dims{9, 1, 3, 1}})
      for (DataType_t type : {DataType_t::FLOAT, DataType_t::HALF, DataType_t::BFLOAT16}) {
        Built t = build(s, Op::Fprop, {type, DataType_t::FLOAT, DataType_t::FLOAT});
        t.a->set_stride(x_stride), t.b->set_stride(w_stride);
        // One element past every boundary: aligned to nothing but the element.
        for (const TensorPtr& tensor : {t.a, t.b, t.out})
          tensor->set_alignment(tensor == t.out ? 4 : element_bits(type) / 8);
        EveryPlan plans(t.graph, {.tight_alignment = true});
        ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
        plans.fill(t.a, coded(5)).fill(t.b, coded(7));
        EXPECT_TRUE(plans.run([&](const std::string& plan) {
          EXPECT_EQ(check_numbers(plans.read(t.out)), "-0.921875 / 96.046875 / -1.34375 / 0.21875") << plan;
        }));
      }
}

TEST(Convolution, GroupsSeeOnlyTheirOwnChannels) {
  Built t = build(plane({1, 4, 1, 1}, {16, 2, 1, 1}, 0, 0, 1), Op::Fprop, kFloats);
  EveryPlan plans(t.graph);
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  plans.fill(t.a, [](int64_t i) { return i == 3; }).fill(t.b, [](int64_t) { return 1; });
  std::vector<double> want(16, 0);
  std::fill(want.begin() + 8, want.end(), 1);
  EXPECT_TRUE(plans.run([&](const std::string& plan) { EXPECT_EQ(plans.read(t.out), want) << plan; }));
}

Shape strided(int64_t in) {
  Shape s = plane({1, 2, in, in}, {3, 2, 3, 3}, 1, 1, 2);
  return s;
}

TEST(ConvDgrad, NeedsTheSizeOfDx) {
  Built five = build(strided(5), Op::Dgrad, kFloats), six = build(strided(6), Op::Dgrad, kFloats);
  expect_numbers(five, 13, 7, "0.6875 / 30.59375 / 0.34375 / -0.453125");
  expect_numbers(six, 13, 7, "2.046875 / 41.890625 / 0.34375 / 0.953125");
  EXPECT_EQ(five.a->get_dim(), six.a->get_dim());

  Built unset = build(strided(5), Op::Dgrad, kFloats);
  unset.out->set_dim({}).set_name("dx");
  const Status missing = unset.graph.validate();
  EXPECT_EQ(missing.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(missing.err_msg, AllOf(HasSubstr("conv_dgrad \"conv\""), HasSubstr("\"dx\"")));

  Built seven = build(strided(5), Op::Dgrad, kFloats);
  seven.out->set_dim({1, 2, 7, 7});
  const Status other = seven.graph.validate();
  EXPECT_EQ(other.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(other.err_msg, AllOf(HasSubstr("\"dy\" has dims [1, 3, 3, 3]"), HasSubstr("give [1, 3, 4, 4]")));
}

TEST(ConvWgrad, NeedsTheSizeOfDw) {
  const Shape s = plane({3, 2, 8, 8}, {4, 2, 5, 5}, 0, 0, 1);
  Built t = build(s, Op::Wgrad, kFloats);
  expect_numbers(t, 13, 5, "7.140625 / 561.296875 / -2.96875 / 5");
  Built unset = build(s, Op::Wgrad, kFloats);
  unset.out->set_dim({}).set_name("dw");
  const Status missing = unset.graph.validate();
  EXPECT_EQ(missing.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(missing.err_msg, AllOf(HasSubstr("conv_wgrad \"conv\""), HasSubstr("\"dw\"")));
}

TEST(ConvWgrad, EveryPlanRepeatsItselfForAnyNumberOfThreads) {
  Built t = build(plane({3, 2, 8, 8}, {4, 2, 5, 5}, 0, 0, 1), Op::Wgrad, kFloats);
  EveryPlan plans(t.graph, {.seed = 9});
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  std::map<std::string, std::vector<double>> first;
  for (int threads : {1, 2, 8, 0, 0}) {
    set_thread_count(threads);
    EXPECT_TRUE(plans.run([&](const std::string& plan) {
      const std::vector<double> now = plans.read(t.out);
      const auto [before, fresh] = first.emplace(plan, now);
      EXPECT_TRUE(fresh || before->second == now) << plan << " with " << threads << " threads";
    }));
  }
  set_thread_count(0);
}

TEST(ConvWgrad, FourThreadsExecuteOnePlanAtOnce) {
  if (testing::test_handle()) GTEST_SKIP() << "executes on the host's memory";
  const Shape s = plane({3, 2, 8, 8}, {4, 2, 5, 5}, 0, 0, 1);
  Built t = build(s, Op::Wgrad, kFloats);
  EveryPlan plans(t.graph);
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  std::vector<Status> failed(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < failed.size(); ++i)
    threads.emplace_back([&, i] {
      Harness mine(plans.ir(), {.seed = i, .fill = Fill::Integers});
      auto pack = mine.variant_pack();
      const int64_t bytes = t.graph.get_workspace_size();
      for (int run = 0; run < 1000 && failed[i].is_good(); ++run) {
        const bool look = run % 100 == 0;  // the comparison takes longer than the run
        if (look) mine.poison_outputs();
        failed[i] = t.graph.execute(Handle{}, pack, mine.workspace(bytes));
        if (look && failed[i].is_good()) failed[i] = mine.check();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : failed) EXPECT_TRUE(status.is_good()) << status.err_msg;
}

TEST(Convolution, CostCountsTwoPerMultiplyAdd) {
  const Shape s = plane({2, 6, 8, 8}, {4, 3, 3, 3}, 1, 1, 2);
  for (Op op : {Op::Fprop, Op::Dgrad, Op::Wgrad}) {
    Built t = build(s, op, kFloats);
    ASSERT_TRUE(t.graph.validate().is_good());
    EXPECT_EQ(ir::cost(*t.graph.impl().frozen.graph).flops, 2.0 * (2 * 4 * 4 * 4) * (3 * 9));
  }
}

// --- rejections ------------------------------------------------------------------------------------------------------

struct Rejection {
  const char* what;
  void (*damage)(Built&, Conv_fprop_attributes&);
  error_code_t code;
  std::vector<const char*> says;
};

TEST(ConvFprop, SaysWhatIsWrong) {
  using C = error_code_t;
  using A = Conv_fprop_attributes;
  const std::vector<Rejection> rejections = {
      {"padding missing", [](Built&, A& a) { a.values.erase("pre_padding"); }, C::ATTRIBUTE_NOT_SET, {"pre_padding"}},
      {"stride missing", [](Built&, A& a) { a.values.erase("stride"); }, C::ATTRIBUTE_NOT_SET, {"stride"}},
      {"dilation missing", [](Built&, A& a) { a.values.erase("dilation"); }, C::ATTRIBUTE_NOT_SET, {"dilation"}},
      {"negative padding",
       [](Built&, A& a) {
         a.set_padding({-1, -1});
       },
       C::INVALID_VALUE,
       {"[-1, -1]", "at least 0"}},
      {"stride 0",
       [](Built&, A& a) {
         a.set_stride({1, 0});
       },
       C::INVALID_VALUE,
       {"stride [1, 0]", "at least 1"}},
      {"huge dilation",
       [](Built&, A& a) {
         a.set_dilation({1, int64_t(1) << 62});
       },
       C::INVALID_VALUE,
       {"dilation"}},
      {"one entry for two dims", [](Built&, A& a) { a.set_stride({1}); }, C::INVALID_VALUE, {"1 entries", "2 spatial"}},
      {"filter larger than the input",
       [](Built& t, A&) {
         t.b->set_dim({3, 2, 9, 3}).set_stride({54, 27, 3, 1});
       },
       C::SHAPE_DEDUCTION_FAILED,
       {"\"x\" is 8", "9", "\"w\""}},
      {"channels do not divide",
       [](Built& t, A&) {
         t.b->set_dim({3, 4, 3, 3}).set_stride({36, 9, 3, 1});
       },
       C::INVALID_VALUE,
       {"\"x\" has 6 channels", "4", "\"w\""}},
      {"outputs do not divide",
       [](Built& t, A&) {
         t.b->set_dim({4, 2, 3, 3}).set_stride({18, 9, 3, 1});
       },
       C::INVALID_VALUE,
       {"4 channels", "3 groups"}},
      {"no spatial dims",
       [](Built& t, A&) {
         t.a->set_dim({1, 6}).set_stride({6, 1});
       },
       C::INVALID_VALUE,
       {"[1, 6]"}},
      {"ranks differ",
       [](Built& t, A&) {
         t.b->set_dim({3, 2, 3}).set_stride({6, 3, 1});
       },
       C::INVALID_VALUE,
       {"ranks"}},
      {"empty filter",
       [](Built& t, A&) {
         t.b->set_dim({3, 2, 0, 3}).set_stride({6, 3, 3, 1});
       },
       C::INVALID_VALUE,
       {"\"w\" has dims [3, 2, 0, 3]"}},
  };
  for (const Rejection& r : rejections) {
    SCOPED_TRACE(r.what);
    Built t;
    t.graph.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
    t.a = t.graph.tensor(Tensor_attributes().set_name("x").set_dim({1, 6, 8, 8}).set_stride({384, 64, 8, 1}));
    t.b = t.graph.tensor(Tensor_attributes().set_name("w").set_dim({3, 2, 3, 3}).set_stride({18, 9, 3, 1}));
    A a = A().set_name("conv").set_padding({0, 0}).set_stride({1, 1}).set_dilation({1, 1});
    r.damage(t, a);
    t.graph.conv_fprop(t.a, t.b, a)->set_output(true);
    const Status status = t.graph.validate();
    EXPECT_EQ(status.code, r.code) << status.err_msg;
    EXPECT_THAT(status.err_msg, HasSubstr("conv_fprop \"conv\""));
    for (const char* text : r.says) EXPECT_THAT(status.err_msg, HasSubstr(text));
  }
}

TEST(ConvFprop, RejectsAnOutputOfAnotherSize) {
  Built t = build(plane({1, 3, 8, 8}, {4, 3, 3, 3}, 1, 1, 1), Op::Fprop, kFloats);
  t.out->set_dim({1, 4, 8, 9}).set_stride({288, 72, 9, 1});
  const Status status = t.graph.validate();
  EXPECT_EQ(status.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(status.err_msg, AllOf(HasSubstr("[1, 4, 8, 9]"), HasSubstr("[1, 4, 8, 8]")));
}

}  // namespace
}  // namespace tilewright
