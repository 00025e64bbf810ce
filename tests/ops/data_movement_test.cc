// reshape, slice, transpose, concatenate: element for element, in every plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/every_plan.h"
#include "support/random.h"

namespace tilewright {
namespace {

using graph::Concatenate_attributes;
using graph::Graph;
using graph::Reshape_attributes;
using graph::Slice_attributes;
using graph::Tensor_attributes;
using graph::TensorPtr;
using graph::Transpose_attributes;
using ::testing::AllOf;
using testing::EveryPlan;
using ::testing::HasSubstr;
using testing::Random;

const std::vector<DataType_t> kTypes = {DataType_t::FLOAT,    DataType_t::HALF,  DataType_t::DOUBLE,
                                        DataType_t::BFLOAT16, DataType_t::INT32, DataType_t::FP8_E4M3};

Dims random_dims(Random& random, int64_t rank, int64_t most = 5) {
  Dims d;
  for (int64_t i = 0; i < rank; ++i) d.push_back(random.between(1, most));
  return d;
}

TensorPtr input(Graph& g, const char* name, const Dims& dim, const Dims& stride,
                DataType_t type = DataType_t::NOT_SET) {
  return g.tensor(Tensor_attributes().set_name(name).set_dim(dim).set_stride(stride).set_data_type(type));
}

Graph typed_graph(DataType_t type = DataType_t::FLOAT) {
  Graph g;
  g.set_io_data_type(type).set_intermediate_data_type(type).set_compute_data_type(DataType_t::FLOAT);
  return g;
}

std::vector<double> counting(int64_t n, int64_t first = 0) {
  std::vector<double> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), double(first));
  return v;
}

// --- reshape ---------------------------------------------------------------------------------------------------------

TEST(Reshape, LogicalKeepsRowMajorOrderWhateverTheStrides) {
  for (uint64_t seed : testing::seeds(1, 15)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const Dims from = random.of({Dims{3, 4, 5}, Dims{60}, Dims{2, 30}, Dims{5, 2, 2, 3}}),
               to = random.of({Dims{6, 10}, Dims{60}, Dims{1, 60, 1}, Dims{4, 5, 3}});
    Graph g = typed_graph(random.of(kTypes));
    auto x = input(g, "x", from, random.input_strides(from));
    auto y = g.reshape(x, Reshape_attributes().set_dim(to).set_reshape_mode(ReshapeMode_t::LOGICAL));
    y->set_output(true);
    if (random.one_in(2)) y->set_stride(random.strides(to));
    EveryPlan plans(g, {.seed = seed, .fill = Fill::Integers});
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    EXPECT_EQ(y->get_dim(), to);
    const std::vector<double> want = plans.read(x);
    EXPECT_TRUE(plans.run([&](const std::string& plan) { EXPECT_EQ(plans.read(y), want) << plan; }));
  }
}

TEST(Reshape, ViewLaysDimsAndStridesOverTheMemory) {
  Graph g = typed_graph();
  auto x = input(g, "x", {2, 3, 4}, {12, 4, 1});
  auto y = g.reshape(x, Reshape_attributes().set_dim({4, 3, 2}).set_stride({1, 4, 12}));  // the transpose
  y->set_output(true);
  EveryPlan plans(g);
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  plans.fill(x, [](int64_t i) { return double(i); });
  std::vector<double> want;
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 3; ++b)
      for (int c = 0; c < 2; ++c) want.push_back(12 * c + 4 * b + a);
  EXPECT_EQ(plans.expected(y), want);
  EXPECT_TRUE(plans.run([&](const std::string& plan) { EXPECT_EQ(plans.read(y), want) << plan; }));
}

TEST(Reshape, ViewOfAnIntermediateSeesTheLayoutItIsDeclaredToHave) {
  Graph g = typed_graph();
  auto x = input(g, "x", {2, 6}, {6, 1});
  auto twice = g.pointwise(x, x, graph::Pointwise_attributes().set_mode(PointwiseMode_t::ADD));
  twice->set_dim({2, 6}).set_stride({1, 2});  // column-major
  auto y = g.reshape(twice, Reshape_attributes().set_dim({12}).set_stride({1}));
  y->set_output(true);
  EveryPlan plans(g);
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  plans.fill(x, [](int64_t i) { return double(i); });
  std::vector<double> want;
  for (int c = 0; c < 6; ++c)
    for (int r = 0; r < 2; ++r) want.push_back(2 * (6 * r + c));
  EXPECT_EQ(plans.expected(y), want);
  EXPECT_TRUE(plans.run([&](const std::string& plan) { EXPECT_EQ(plans.read(y), want) << plan; }));
}

TEST(Reshape, MissingStridesAreChannelsLast) {
  Graph g = typed_graph();
  auto x = input(g, "x", {60}, {1});
  auto y = g.reshape(x, Reshape_attributes().set_dim({1, 3, 4, 5}).set_reshape_mode(ReshapeMode_t::LOGICAL));
  y->set_output(true);
  ASSERT_TRUE(g.validate().is_good());
  EXPECT_EQ(y->get_stride(), (Dims{60, 1, 15, 3}));
}

TEST(Reshape, SaysWhatIsWrong) {
  auto status = [](Reshape_attributes a, Dims y_dim = {}) {
    Graph g = typed_graph();
    auto y = g.reshape(input(g, "x", {3, 4}, {4, 1}), a.set_name("view"));
    y->set_output(true).set_name("y");
    if (!y_dim.empty()) y->set_dim(y_dim);
    return g.validate();
  };
  const Status none = status(Reshape_attributes());
  EXPECT_EQ(none.code, error_code_t::SHAPE_DEDUCTION_FAILED);
  EXPECT_THAT(none.err_msg, AllOf(HasSubstr("reshape \"view\""), HasSubstr("\"y\"")));
  const Status count = status(Reshape_attributes().set_dim({13}).set_reshape_mode(ReshapeMode_t::LOGICAL));
  EXPECT_EQ(count.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(count.err_msg, AllOf(HasSubstr("12"), HasSubstr("13")));
  const Status reach = status(Reshape_attributes().set_dim({4, 3}).set_stride({1, 5}));
  EXPECT_EQ(reach.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(reach.err_msg, AllOf(HasSubstr("reaches 14"), HasSubstr("12")));
  const Status clash = status(Reshape_attributes().set_dim({12}), {2, 6});
  EXPECT_EQ(clash.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(clash.err_msg, AllOf(HasSubstr("[12]"), HasSubstr("[2, 6]")));
}

// --- slice -----------------------------------------------------------------------------------------------------------

TEST(Slice, TakesEveryStepOfEveryRange) {
  for (uint64_t seed : testing::seeds(1, 20)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const Dims dim = random_dims(random, random.between(1, 4), 9);
    std::vector<std::pair<int64_t, int64_t>> ranges;
    Dims step, want_dim;
    for (int64_t d : dim) {
      const int64_t start = random.between(0, d - 1), limit = random.between(start + 1, d);
      ranges.push_back({start, limit}), step.push_back(random.between(1, 3));
      want_dim.push_back((limit - start + step.back() - 1) / step.back());
    }
    Graph g = typed_graph(random.of(kTypes));
    auto x = input(g, "x", dim, random.strides(dim));
    auto y = g.slice(x, Slice_attributes().set_slices(ranges).set_strides(step));
    y->set_output(true);
    if (random.one_in(2)) y->set_stride(random.strides(want_dim));
    EveryPlan plans(g, {.seed = seed});
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    ASSERT_EQ(y->get_dim(), want_dim);
    const std::vector<double> in = plans.read(x);
    std::vector<double> want;
    for (int64_t i = 0; i < volume(want_dim); ++i) {
      int64_t rest = i, at = 0, scale = 1;
      for (size_t d = dim.size(); d-- > 0; rest /= want_dim[d]) {
        at += (ranges[d].first + rest % want_dim[d] * step[d]) * scale;
        scale *= dim[d];
      }
      want.push_back(in[size_t(at)]);
    }
    EXPECT_EQ(plans.expected(y), want);
    EXPECT_TRUE(plans.run([&](const std::string& plan) { EXPECT_EQ(plans.read(y), want) << plan; }));
  }
}

TEST(Slice, OfAnInputFeedsAMatmul) {
  Graph g = typed_graph(DataType_t::HALF);
  auto a = input(g, "a", {5, 9, 8}, {72, 8, 1}), b = input(g, "b", {2, 8, 6}, {48, 6, 1});
  auto part = g.slice(a, Slice_attributes().set_slices({{1, 3}, {3, 7}, {0, 8}}));
  auto c = g.matmul(part, b, graph::Matmul_attributes());
  c->set_output(true);
  EveryPlan plans(g, {.fill = Fill::Integers});
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  EXPECT_EQ(part->get_dim(), (Dims{2, 4, 8}));
  EXPECT_EQ(part->get_stride(), (Dims{72, 8, 1}));
  const std::vector<double> av = plans.read(a), bv = plans.read(b);
  std::vector<double> want(2 * 4 * 6, 0);
  for (size_t n = 0; n < 2; ++n)
    for (size_t i = 0; i < 4; ++i)
      for (size_t j = 0; j < 6; ++j)
        for (size_t k = 0; k < 8; ++k)
          want[(n * 4 + i) * 6 + j] += av[((n + 1) * 9 + i + 3) * 8 + k] * bv[(n * 8 + k) * 6 + j];
  EXPECT_TRUE(plans.run([&](const std::string& plan) { EXPECT_EQ(plans.read(c), want) << plan; }));
}

TEST(Slice, SaysWhatIsWrong) {
  auto status = [](Slice_attributes a) {
    Graph g = typed_graph();
    g.slice(input(g, "x", {3, 4}, {4, 1}), a.set_name("cut"))->set_output(true);
    return g.validate();
  };
  struct Row {
    Slice_attributes attributes;
    error_code_t code;
    const char* says;
  };
  const std::vector<Row> rows = {
      {Slice_attributes(), error_code_t::ATTRIBUTE_NOT_SET, "slices"},
      {Slice_attributes().set_slices({{0, 3}}), error_code_t::INVALID_VALUE, "1 pairs"},
      {Slice_attributes().set_slices({{0, 3}, {0, 5}}), error_code_t::INVALID_VALUE, "[0, 5)"},
      {Slice_attributes().set_slices({{-1, 3}, {0, 4}}), error_code_t::INVALID_VALUE, "[-1, 3)"},
      {Slice_attributes().set_slices({{2, 1}, {0, 4}}), error_code_t::INVALID_VALUE, "[2, 1)"},
      {Slice_attributes().set_slices({{0, 3}, {0, 4}}).set_strides({1, 0}), error_code_t::INVALID_VALUE, "[1, 0]"},
      {Slice_attributes().set_slices({{0, 3}, {0, 4}}).set_strides({1}), error_code_t::INVALID_VALUE, "1 entries"},
  };
  for (const Row& row : rows) {
    const Status s = status(row.attributes);
    EXPECT_EQ(s.code, row.code) << s.err_msg;
    EXPECT_THAT(s.err_msg, AllOf(HasSubstr("slice \"cut\""), HasSubstr(row.says)));
  }
}

// --- transpose -------------------------------------------------------------------------------------------------------

TEST(Transpose, PermutesDims) {
  for (uint64_t seed : testing::seeds(1, 15)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const Dims dim = random_dims(random, random.between(2, 4), 6);
    std::vector<int64_t> order(dim.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[size_t(random.between(0, int64_t(i) - 1))]);
    Graph g = typed_graph(random.of(kTypes));
    auto x = input(g, "x", dim, random.input_strides(dim));
    auto y = g.transpose(x, Transpose_attributes().set_permutation(order));
    Dims to, stride;
    for (int64_t d : order) to.push_back(dim[size_t(d)]), stride.push_back(x->get_stride()[size_t(d)]);
    y->set_output(true);
    const bool broadcast = std::count(stride.begin(), stride.end(), 0) > 0;  // such strides are not for an output
    if (broadcast || random.one_in(2)) y->set_stride(random.strides(to));
    EveryPlan plans(g, {.seed = seed});
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    EXPECT_EQ(y->get_dim(), to);
    const std::vector<double> in = plans.read(x);
    const Dims packed = row_major_strides(dim);
    std::vector<double> want;
    for (int64_t i = 0; i < volume(to); ++i) {
      int64_t rest = i, at = 0;
      for (size_t d = to.size(); d-- > 0; rest /= to[d]) at += rest % to[d] * packed[size_t(order[d])];
      want.push_back(in[size_t(at)]);
    }
    EXPECT_EQ(plans.expected(y), want);
    EXPECT_TRUE(plans.run([&](const std::string& plan) { EXPECT_EQ(plans.read(y), want) << plan; }));
  }
}

TEST(Transpose, StridesFollowTheDims) {
  Graph g = typed_graph();
  auto y = g.transpose(input(g, "x", {2, 3, 4}, {12, 4, 1}), Transpose_attributes().set_permutation({2, 0, 1}));
  y->set_output(true);
  ASSERT_TRUE(g.validate().is_good());
  EXPECT_EQ(y->get_dim(), (Dims{4, 2, 3}));
  EXPECT_EQ(y->get_stride(), (Dims{1, 12, 4}));
}

TEST(Transpose, WantsAPermutation) {
  for (const Dims& order : {Dims{0}, Dims{0, 0}, Dims{0, 2}, Dims{-1, 0}, Dims{0, 1, 2}}) {
    Graph g = typed_graph();
    g.transpose(input(g, "x", {3, 4}, {4, 1}), Transpose_attributes().set_name("turn").set_permutation(order))
        ->set_output(true);
    const Status s = g.validate();
    EXPECT_EQ(s.code, error_code_t::INVALID_VALUE) << to_text(order);
    EXPECT_THAT(s.err_msg, AllOf(HasSubstr("transpose \"turn\""), HasSubstr(to_text(order))));
  }
  Graph g = typed_graph();
  g.transpose(input(g, "x", {3, 4}, {4, 1}), Transpose_attributes())->set_output(true);
  EXPECT_EQ(g.validate().code, error_code_t::ATTRIBUTE_NOT_SET);
}

// --- concatenate -----------------------------------------------------------------------------------------------------

TEST(Concatenate, PutsInputsOneAfterTheOther) {
  for (uint64_t seed : testing::seeds(1, 15)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const int64_t rank = random.between(1, 4), count = random.between(1, 4), axis = random.between(0, rank - 1);
    Dims dim = random_dims(random, rank);
    Graph g = typed_graph(random.of(kTypes));
    std::vector<TensorPtr> parts;
    int64_t total = 0;
    for (int64_t i = 0; i < count; ++i) {
      dim[size_t(axis)] = random.between(1, 4);
      total += dim[size_t(axis)];
      parts.push_back(input(g, fmt::format("x{}", i).c_str(), dim, random.strides(dim)));
    }
    auto y = g.concatenate(parts, Concatenate_attributes().set_axis(axis));
    y->set_output(true);
    dim[size_t(axis)] = total;
    if (random.one_in(2)) y->set_stride(random.strides(dim));
    EveryPlan plans(g, {.seed = seed});
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    EXPECT_EQ(y->get_dim(), dim);
    std::vector<std::vector<double>> in;
    for (const TensorPtr& p : parts) in.push_back(plans.read(p));
    int64_t inner = 1;
    for (size_t d = size_t(axis) + 1; d < dim.size(); ++d) inner *= dim[d];
    std::vector<double> want;
    for (int64_t outer = 0; outer < volume(dim) / inner / total; ++outer)
      for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t run = parts[i]->get_dim()[size_t(axis)] * inner;
        want.insert(want.end(), in[i].begin() + outer * run, in[i].begin() + (outer + 1) * run);
      }
    EXPECT_EQ(plans.expected(y), want);
    EXPECT_TRUE(plans.run([&](const std::string& plan) { EXPECT_EQ(plans.read(y), want) << plan; }));
  }
}

TEST(Concatenate, InPlaceInputMayLieInItsPartOfTheOutput) {
  Graph g = typed_graph();
  auto a = input(g, "a", {2, 3}, {3, 1}), b = input(g, "b", {4, 3}, {3, 1});
  auto y = g.concatenate({a, b}, Concatenate_attributes().set_axis(0).set_in_place_index(1));
  y->set_output(true);
  EveryPlan plans(g);
  ASSERT_TRUE(plans.run());
  if (testing::test_handle())
    GTEST_SKIP() << "on a GPU the plans above are all; its memory is not the test's to lay out";
  for (int64_t i = 0; i < g.get_execution_plan_count(); ++i) {
    std::vector<float> first = {0, 1, 2, 3, 4, 5}, whole(18, -1);
    std::iota(whole.begin() + 6, whole.end(), 6.f);
    std::vector<uint8_t> workspace(size_t(g.get_workspace_size_plan_at_index(i)));
    std::unordered_map<TensorPtr, void*> pack = {{a, first.data()}, {b, whole.data() + 6}, {y, whole.data()}};
    ASSERT_TRUE(g.execute_plan_at_index(Handle{}, pack, workspace.data(), i).is_good());
    EXPECT_EQ(std::vector<double>(whole.begin(), whole.end()), counting(18)) << g.plans()[size_t(i)].name;
  }
}

TEST(Concatenate, SaysWhatIsWrong) {
  auto status = [](Concatenate_attributes a, Dims second = {2, 4}, int count = 2) {
    Graph g = typed_graph();
    std::vector<TensorPtr> parts;
    if (count > 0) parts.push_back(input(g, "x0", {3, 4}, {4, 1}));
    if (count > 1) parts.push_back(input(g, "x1", second, row_major_strides(second)));
    if (count > 2) parts.push_back(nullptr), parts.push_back(parts[0]);
    g.concatenate(parts, a.set_name("join"))->set_output(true);
    return g.validate();
  };
  struct Row {
    Status status;
    error_code_t code;
    const char* says;
  };
  const std::vector<Row> rows = {
      {status(Concatenate_attributes()), error_code_t::ATTRIBUTE_NOT_SET, "axis"},
      {status(Concatenate_attributes().set_axis(2)), error_code_t::INVALID_VALUE, "axis 2"},
      {status(Concatenate_attributes().set_axis(-1)), error_code_t::INVALID_VALUE, "axis -1"},
      {status(Concatenate_attributes().set_axis(1)), error_code_t::INVALID_VALUE, "\"x1\" has dims [2, 4]"},
      {status(Concatenate_attributes().set_axis(0), {2, 4, 1}), error_code_t::INVALID_VALUE, "[2, 4, 1]"},
      {status(Concatenate_attributes().set_axis(0).set_in_place_index(2)), error_code_t::INVALID_VALUE,
       "in_place_index 2"},
      {status(Concatenate_attributes().set_axis(0), {2, 4}, 0), error_code_t::ATTRIBUTE_NOT_SET, "input 0"},
      {status(Concatenate_attributes().set_axis(0), {2, 4}, 3), error_code_t::ATTRIBUTE_NOT_SET, "input 2"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(row.status.code, row.code) << row.status.err_msg;
    EXPECT_THAT(row.status.err_msg, AllOf(HasSubstr("concatenate \"join\""), HasSubstr(row.says)));
  }
}

// Values are converted where an op's result has another type than its source.
TEST(DataMovement, ConvertsToTheTypeOfTheResult) {
  Graph g = typed_graph();
  auto x = input(g, "x", {2, 3}, {3, 1}, DataType_t::DOUBLE);
  auto turned = g.transpose(x, Transpose_attributes().set_permutation({1, 0}));
  turned->set_output(true).set_data_type(DataType_t::INT8);
  auto cut = g.slice(x, Slice_attributes().set_slices({{0, 2}, {1, 3}}));
  cut->set_output(true).set_data_type(DataType_t::HALF);
  EveryPlan plans(g);
  ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  const double values[] = {1, -2, 300, 2048, 2049, -300};
  plans.fill(x, [&](int64_t i) { return values[i]; });
  EXPECT_TRUE(plans.run([&](const std::string& plan) {
    EXPECT_EQ(plans.read(turned), (std::vector<double>{1, 127, -2, 127, 127, -128})) << plan;
    EXPECT_EQ(plans.read(cut), (std::vector<double>{-2, 300, 2048, -300})) << plan;
  }));
}

}  // namespace
}  // namespace tilewright
