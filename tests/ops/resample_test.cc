// resample and resample_backward: against padded arrays, in every plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/every_plan.h"
#include "support/random.h"

namespace tilewright {
namespace {

using graph::Resample_attributes;
using graph::Resample_backward_attributes;
using graph::Tensor_attributes;
using graph::TensorPtr;
using ::testing::AllOf;
using testing::EveryPlan;
using ::testing::HasSubstr;
using testing::Random;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Windows {
  ResampleMode_t mode = ResampleMode_t::MAXPOOL;
  int64_t n = 1, c = 1;
  Dims in, window, stride, pre, post, out;

  Dims x() const { return with(in); }
  Dims y() const { return with(out); }
  Dims with(const Dims& spatial) const {
    Dims d = {n, c};
    d.insert(d.end(), spatial.begin(), spatial.end());
    return d;
  }
  template <class Attributes>
  Attributes attributes() const {
    Attributes a;
    a.set_resampling_mode(mode).set_window(window).set_stride(stride).set_pre_padding(pre).set_post_padding(post);
    return a.set_name("pool");
  }
};

Windows random_windows(Random& random) {
  Windows w;
  w.mode = random.of(
      {ResampleMode_t::MAXPOOL, ResampleMode_t::AVGPOOL_EXCLUDE_PADDING, ResampleMode_t::AVGPOOL_INCLUDE_PADDING});
  w.n = random.between(1, 3), w.c = random.between(1, 9);
  const int64_t rank = random.between(1, 3);
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t window = random.between(1, 4), in = random.between(window, window + 6);
    w.window.push_back(window), w.in.push_back(in), w.stride.push_back(random.between(1, 4));
    // Less than a window on either side: every window sees something.
    w.pre.push_back(random.between(0, window - 1)), w.post.push_back(random.between(0, window - 1));
    w.out.push_back((in + w.pre.back() + w.post.back() - window) / w.stride.back() + 1);
  }
  return w;
}

// Calls body(y, position in the window, x or -1 for padding), all row-major.
template <class Body>
void for_each_place(const Windows& w, const Body& body) {
  const size_t rank = w.in.size();
  for (int64_t y = 0; y < volume(w.y()); ++y)
    for (int64_t at = 0; at < volume(w.window); ++at) {
      int64_t x = 0, scale = 1, rest_y = y, rest_w = at;
      bool inside = true;
      for (size_t d = rank; d-- > 0;) {
        const int64_t q = rest_y % w.out[d] * w.stride[d] + rest_w % w.window[d] - w.pre[d];
        inside &= q >= 0 && q < w.in[d];
        x += q * scale, scale *= w.in[d];
        rest_y /= w.out[d], rest_w /= w.window[d];
      }
      body(y, at, inside ? rest_y * scale + x : -1);
    }
}

struct Forward {
  std::vector<double> y, index;
};
Forward direct(const Windows& w, const std::vector<double>& x) {
  Forward f;
  f.y.assign(size_t(volume(w.y())), w.mode == ResampleMode_t::MAXPOOL ? -kInf : 0);
  f.index.assign(f.y.size(), 0);
  std::vector<double> count(f.y.size(), 0);
  for_each_place(w, [&](int64_t y, int64_t at, int64_t xi) {
    if (xi < 0) return;
    double& value = f.y[size_t(y)];
    count[size_t(y)] += 1;
    if (w.mode != ResampleMode_t::MAXPOOL) value += x[size_t(xi)];
    else if (x[size_t(xi)] > value) value = x[size_t(xi)], f.index[size_t(y)] = double(at);
  });
  if (w.mode != ResampleMode_t::MAXPOOL)
    for (size_t i = 0; i < f.y.size(); ++i)
      f.y[i] /= w.mode == ResampleMode_t::AVGPOOL_INCLUDE_PADDING ? double(volume(w.window)) : count[i];
  return f;
}

std::vector<double> direct_backward(const Windows& w, const std::vector<double>& dy, const std::vector<double>& index) {
  std::vector<double> dx(size_t(volume(w.x())), 0), count(dy.size(), 0);
  for_each_place(w, [&](int64_t y, int64_t, int64_t x) { count[size_t(y)] += x >= 0; });
  for_each_place(w, [&](int64_t y, int64_t at, int64_t x) {
    if (x < 0) return;
    double part = dy[size_t(y)];
    if (w.mode == ResampleMode_t::MAXPOOL) part *= double(at) == index[size_t(y)];
    else part /= w.mode == ResampleMode_t::AVGPOOL_INCLUDE_PADDING ? double(volume(w.window)) : count[size_t(y)];
    dx[size_t(x)] += part;
  });
  return dx;
}

TensorPtr input(graph::Graph& g, const char* name, const Dims& dim, DataType_t type, Random& random) {
  return g.tensor(
      Tensor_attributes().set_name(name).set_dim(dim).set_data_type(type).set_stride(random.input_strides(dim)));
}

const std::vector<DataType_t> kTypes = {DataType_t::FLOAT, DataType_t::HALF, DataType_t::BFLOAT16, DataType_t::DOUBLE};

TEST(Resample, EqualsPaddedArraysOnRandomWindows) {
  for (uint64_t seed : testing::seeds(1, 40)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const Windows w = random_windows(random);
    const DataType_t type = random.of(kTypes);
    graph::Graph g;
    g.set_compute_data_type(DataType_t::DOUBLE);
    auto x = input(g, "x", w.x(), type, random);
    auto [y, index] = g.resample(x, w.attributes<Resample_attributes>().set_generate_index(true));
    y->set_output(true).set_data_type(type);
    if (random.one_in(2)) y->set_stride(random.strides(w.y()));
    ASSERT_EQ(index != nullptr, w.mode == ResampleMode_t::MAXPOOL);
    if (index) index->set_output(true).set_data_type(DataType_t::INT8);
    // Small integers have equal maxima in most windows: the first must win.
    EveryPlan plans(g, {.seed = seed, .fill = random.one_in(2) ? Fill::Integers : Fill::Random});
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    const Forward want = direct(w, plans.read(x));
    const std::vector<double> got = plans.expected(y);
    ASSERT_EQ(got.size(), want.y.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.y[i], 1e-14 * (1 + std::fabs(want.y[i]))) << i;
    if (index) {
      ASSERT_EQ(plans.expected(index), want.index);
    }
    ASSERT_TRUE(plans.run([&](const std::string& plan) {
      if (index) {
        EXPECT_EQ(plans.read(index), want.index) << plan;
      }
    }));
  }
}

TEST(ResampleBackward, EqualsPaddedArraysOnRandomWindows) {
  for (uint64_t seed : testing::seeds(1, 40)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const Windows w = random_windows(random);
    const bool max = w.mode == ResampleMode_t::MAXPOOL, by_index = max && random.one_in(2);
    graph::Graph g;
    g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::DOUBLE);
    auto dy = input(g, "dy", w.y(), DataType_t::FLOAT, random);
    auto attributes = w.attributes<Resample_backward_attributes>();
    TensorPtr x, index;
    if (max && !by_index) attributes.set_x(x = input(g, "x", w.x(), DataType_t::HALF, random));
    if (by_index) attributes.set_index(index = input(g, "index", w.y(), DataType_t::INT8, random));
    auto dx = g.resample_backward(dy, attributes);
    dx->set_output(true);
    if (!x) dx->set_dim(w.x());
    EveryPlan plans(g, {.seed = seed, .fill = Fill::Integers});
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    EXPECT_EQ(dx->get_dim(), w.x());
    const std::vector<double> at = by_index ? plans.read(index) : x ? direct(w, plans.read(x)).index : plans.read(dy);
    const std::vector<double> want = direct_backward(w, plans.read(dy), at), got = plans.expected(dx);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-14 * (1 + std::fabs(want[i]))) << i;
    ASSERT_TRUE(plans.run());
  }
}

graph::Graph pool_graph(Resample_attributes a, Dims x_dim, TensorPtr* x = nullptr, TensorPtr* y = nullptr) {
  graph::Graph g;
  g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  auto in = g.tensor(Tensor_attributes().set_name("x").set_dim(x_dim).set_stride(row_major_strides(x_dim)));
  auto out = g.resample(in, a.set_name("pool"))[0];
  out->set_output(true);
  if (x) *x = in;
  if (y) *y = out;
  return g;
}

Resample_attributes square(ResampleMode_t mode, int64_t window, int64_t stride, int64_t padding) {
  return Resample_attributes()
      .set_resampling_mode(mode)
      .set_window(Dims{window, window})
      .set_stride(Dims{stride, stride})
      .set_pre_padding(Dims{padding, padding})
      .set_post_padding(Dims{padding, padding})
      .set_generate_index(false);
}

TEST(Resample, PaddingIsNeverTheMaximum) {
  TensorPtr x, y;
  graph::Graph g = pool_graph(square(ResampleMode_t::MAXPOOL, 3, 2, 1), {1, 1, 5, 5}, &x, &y);
  EveryPlan plans(g);
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  plans.fill(x, [](int64_t i) { return -double(i + 1); });
  EXPECT_TRUE(plans.run([&](const std::string& plan) {
    EXPECT_EQ(plans.read(y), (std::vector<double>{-1, -2, -4, -6, -7, -9, -16, -17, -19})) << plan;
  }));
}

TEST(Resample, NanIsTheMaximumAndTheIndexIsTheFirst) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  graph::Graph g;
  g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  auto x = g.tensor(Tensor_attributes().set_name("x").set_dim({1, 1, 2, 4}).set_stride({8, 8, 4, 1}));
  auto [y, index] = g.resample(x, square(ResampleMode_t::MAXPOOL, 2, 2, 0).set_generate_index(true));
  y->set_output(true);
  index->set_output(true).set_data_type(DataType_t::INT8);
  EveryPlan plans(g);
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  const double values[] = {5, 5, 9, nan, 1, 5, nan, 3};
  plans.fill(x, [&](int64_t i) { return values[i]; });
  const std::vector<double> maxima = plans.expected(y);
  EXPECT_EQ(maxima[0], 5);
  EXPECT_TRUE(std::isnan(maxima[1]));
  EXPECT_EQ(plans.expected(index), (std::vector<double>{0, 1}));
}

TEST(Resample, WindowOfPaddingAloneNeedsAPaddingModeThatGivesItAValue) {
  using M = ResampleMode_t;
  auto status = [](Resample_attributes a) { return pool_graph(a, {1, 1, 6, 6}).validate(); };
  for (M mode : {M::MAXPOOL, M::AVGPOOL_INCLUDE_PADDING, M::AVGPOOL_EXCLUDE_PADDING}) {
    const Status refused = status(square(mode, 3, 1, 3));
    EXPECT_EQ(refused.code, error_code_t::INVALID_VALUE);
    EXPECT_THAT(refused.err_msg,
                AllOf(HasSubstr("resample \"pool\""), HasSubstr("sees only padding"), HasSubstr("\"x\"")));
    // Behind the input alone, and only where the stride leads there.
    EXPECT_EQ(status(square(mode, 3, 1, 0).set_post_padding(Dims{3, 0})).code, error_code_t::INVALID_VALUE);
    EXPECT_TRUE(status(square(mode, 3, 4, 0).set_post_padding(Dims{3, 0})).is_good());
  }
  EXPECT_EQ(status(square(M::AVGPOOL_EXCLUDE_PADDING, 3, 1, 3).set_padding_mode(PaddingMode_t::ZERO_PAD)).code,
            error_code_t::INVALID_VALUE);

  for (M mode : {M::MAXPOOL, M::AVGPOOL_INCLUDE_PADDING}) {
    TensorPtr x, y;
    graph::Graph g =
        pool_graph(square(mode, 2, 2, 2)
                       .set_padding_mode(mode == M::MAXPOOL ? PaddingMode_t::NEG_INF_PAD : PaddingMode_t::ZERO_PAD),
                   {1, 1, 2, 2}, &x, &y);
    EveryPlan plans(g);
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    plans.fill(x, [](int64_t i) { return double(i + 1); });
    std::vector<double> want(9, mode == M::MAXPOOL ? -kInf : 0);
    want[4] = mode == M::MAXPOOL ? 4 : 2.5;
    EXPECT_EQ(plans.expected(y), want);
    EXPECT_TRUE(plans.run());
  }
}

TEST(Resample, SaysWhatIsWrong) {
  using C = error_code_t;
  const Resample_attributes right = square(ResampleMode_t::MAXPOOL, 2, 2, 0);
  auto without = [&](const char* key) {
    Resample_attributes a = right;
    a.values.erase(key);
    return a;
  };
  struct Row {
    Resample_attributes attributes;
    C code;
    const char* says;
  };
  const std::vector<Row> rows = {
      {without("generate_index"), C::ATTRIBUTE_NOT_SET, "generate_index"},
      {without("resample_mode"), C::ATTRIBUTE_NOT_SET, "resample_mode"},
      {without("window"), C::ATTRIBUTE_NOT_SET, "window"},
      {without("stride"), C::ATTRIBUTE_NOT_SET, "stride"},
      {without("post_padding"), C::ATTRIBUTE_NOT_SET, "post_padding"},
      {square(ResampleMode_t::MAXPOOL, 0, 1, 0), C::INVALID_VALUE, "window [0, 0]"},
      {square(ResampleMode_t::MAXPOOL, 2, 0, 0), C::INVALID_VALUE, "stride [0, 0]"},
      {square(ResampleMode_t::MAXPOOL, 2, 1, -1), C::INVALID_VALUE, "pre_padding [-1, -1]"},
      {square(ResampleMode_t::MAXPOOL, 9, 1, 0), C::SHAPE_DEDUCTION_FAILED, "window [9, 9]"},
      {square(ResampleMode_t::BILINEAR, 2, 1, 0), C::GRAPH_NOT_SUPPORTED, "BILINEAR"},
      {square(ResampleMode_t::NEAREST, 2, 1, 0), C::GRAPH_NOT_SUPPORTED, "NEAREST"},
      {Resample_attributes(right).set_padding_mode(PaddingMode_t::ZERO_PAD), C::GRAPH_NOT_SUPPORTED, "NEG_INF_PAD"},
      {Resample_attributes(right).set_window(Dims{2, 2, 2}), C::INVALID_VALUE, "3 entries"},
  };
  for (const Row& row : rows) {
    const Status status = pool_graph(row.attributes, {1, 1, 6, 6}).validate();
    EXPECT_EQ(status.code, row.code) << row.says << ": " << status.err_msg;
    EXPECT_THAT(status.err_msg, AllOf(HasSubstr("resample \"pool\""), HasSubstr(row.says)));
  }
}

TEST(Resample, IndexMustHoldEveryPositionOfTheWindow) {
  graph::Graph g;
  g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  auto x = g.tensor(Tensor_attributes().set_name("x").set_dim({1, 1, 20, 20}).set_stride({400, 400, 20, 1}));
  auto [y, index] = g.resample(x, square(ResampleMode_t::MAXPOOL, 12, 1, 0).set_generate_index(true).set_name("pool"));
  y->set_output(true);
  index->set_output(true).set_data_type(DataType_t::INT8).set_name("where");
  const Status status = g.validate();
  EXPECT_EQ(status.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(status.err_msg, AllOf(HasSubstr("\"where\""), HasSubstr("143")));
  index->set_data_type(DataType_t::INT32);
  EXPECT_TRUE(g.validate().is_good());
}

TEST(ResampleBackward, SaysWhatIsMissing) {
  auto make = [](ResampleMode_t mode, bool dims, Dims dx_dim) {
    graph::Graph g;
    g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
    auto dy = g.tensor(Tensor_attributes().set_name("dy").set_dim({1, 1, 3, 3}).set_stride({9, 9, 3, 1}));
    auto dx = g.resample_backward(dy, Resample_backward_attributes()
                                          .set_name("back")
                                          .set_resampling_mode(mode)
                                          .set_window(Dims{2, 2})
                                          .set_stride(Dims{2, 2})
                                          .set_pre_padding(Dims{0, 0})
                                          .set_post_padding(Dims{0, 0}));
    dx->set_output(true).set_name("dx");
    if (dims) dx->set_dim(dx_dim);
    return g.validate();
  };
  const Status no_dims = make(ResampleMode_t::AVGPOOL_INCLUDE_PADDING, false, {});
  EXPECT_EQ(no_dims.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(no_dims.err_msg, AllOf(HasSubstr("\"back\""), HasSubstr("\"dx\"")));
  const Status no_index = make(ResampleMode_t::MAXPOOL, true, {1, 1, 6, 6});
  EXPECT_EQ(no_index.code, error_code_t::ATTRIBUTE_NOT_SET);
  EXPECT_THAT(no_index.err_msg, HasSubstr("Index"));
  const Status other = make(ResampleMode_t::AVGPOOL_INCLUDE_PADDING, true, {1, 1, 8, 6});
  EXPECT_EQ(other.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(other.err_msg, AllOf(HasSubstr("\"dy\""), HasSubstr("[1, 1, 4, 3]")));
  EXPECT_TRUE(make(ResampleMode_t::AVGPOOL_INCLUDE_PADDING, true, {1, 1, 7, 6}).is_good());
}

}  // namespace
}  // namespace tilewright
