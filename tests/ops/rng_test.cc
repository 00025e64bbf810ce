#include "ops/rng.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/every_plan.h"

namespace tilewright {
namespace {

using graph::Graph;
using graph::Rng_attributes;
using graph::Tensor_attributes;
using graph::TensorPtr;
using ::testing::AllOf;
using testing::EveryPlan;
using ::testing::HasSubstr;

struct Draw {
  Dims dim = {2, 3, 8, 5};
  Dims stride;
  RngDistribution_t distribution = RngDistribution_t::BERNOULLI;
  DataType_t key_type = DataType_t::INT64, type = DataType_t::FLOAT;
  double p = 0.5;
  int64_t seed = 77, offset = 3;
};

// The numbers of the reference, after every plan gave the same.
std::vector<double> numbers(const Draw& d) {
  Graph g;
  g.set_io_data_type(d.type).set_compute_data_type(DataType_t::FLOAT);
  auto key = [&](const char* name) {
    return g.tensor(
        Tensor_attributes().set_name(name).set_dim({1, 1, 1, 1}).set_stride({1, 1, 1, 1}).set_data_type(d.key_type));
  };
  auto seed = key("seed"), offset = key("offset");
  auto y = g.rng(seed, offset,
                 Rng_attributes().set_distribution(d.distribution).set_bernoulli_probability(d.p).set_dim(d.dim));
  y->set_output(true);
  if (!d.stride.empty()) y->set_stride(d.stride);
  EveryPlan plans(g);
  EXPECT_TRUE(plans.status.is_good()) << plans.status.err_msg;
  if (plans.status.is_bad()) return {};
  auto store = [&](const TensorPtr& t, int64_t v) {
    void* memory = plans.harness().memory(plans.id(t));
    if (d.key_type == DataType_t::INT64) *static_cast<int64_t*>(memory) = v;
    else *static_cast<int32_t*>(memory) = int32_t(v);
  };
  store(seed, d.seed), store(offset, d.offset);
  plans.harness().inputs_changed();
  const std::vector<double> values = plans.expected(y);
  EXPECT_TRUE(plans.run());
  return values;
}

TEST(Rng, BernoulliIsTheGeneratorElementByElement) {
  Draw d;
  d.p = 0.3;
  const std::vector<double> y = numbers(d);
  const Philox philox(d.seed, d.offset);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], philox.keep(i, 0.3) ? 1 : 0);
}

TEST(Rng, DependsOnKeysAloneNeitherOnTheirTypeNorOnTheLayout) {
  Draw d;
  const std::vector<double> y = numbers(d);
  Draw narrow = d;
  narrow.key_type = DataType_t::INT32;
  EXPECT_EQ(numbers(narrow), y);
  Draw turned = d;
  turned.stride = channels_last_strides(d.dim);
  EXPECT_EQ(numbers(turned), y);
  Draw typed = d;
  typed.type = DataType_t::BOOLEAN;
  EXPECT_EQ(numbers(typed), y);
  Draw flat = d;
  flat.dim = {240};
  EXPECT_EQ(numbers(flat), y);
  Draw seed = d, offset = d;
  ++seed.seed, ++offset.offset;
  EXPECT_NE(numbers(seed), y);
  EXPECT_NE(numbers(offset), y);
}

TEST(Rng, NegativeKeysAgreeInBothTypesAndWideKeysKeepAllBits) {
  Draw wide, narrow;
  wide.seed = narrow.seed = -5, wide.offset = narrow.offset = -1;
  narrow.key_type = DataType_t::INT32;
  EXPECT_EQ(numbers(wide), numbers(narrow));
  // Beyond 2^53 a double would lose the difference.
  Draw large, next;
  large.seed = (int64_t(1) << 60) + 1, next.seed = int64_t(1) << 60;
  EXPECT_NE(numbers(large), numbers(next));
}

TEST(Rng, UniformAndNormalInEveryPlan) {
  Draw d;
  d.distribution = RngDistribution_t::UNIFORM;
  const std::vector<double> uniform = numbers(d);
  d.distribution = RngDistribution_t::NORMAL;
  const std::vector<double> normal = numbers(d);
  const Philox philox(d.seed, d.offset);
  for (size_t i = 0; i < uniform.size(); ++i) {
    EXPECT_EQ(uniform[i], philox.uniform(i));
    EXPECT_EQ(normal[i], philox.normal(i));
  }
}

TEST(Rng, SeedMayBeAnAttributeOrAStoredScalar) {
  auto values = [](bool attribute) {
    Graph g;
    g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
    Rng_attributes a = Rng_attributes().set_distribution(RngDistribution_t::BERNOULLI).set_bernoulli_probability(0.5);
    if (attribute) a.set_seed(77);
    auto y = g.rng(attribute ? nullptr : g.tensor(int64_t(77)), attribute ? nullptr : g.tensor(int64_t(0)),
                   a.set_dim({64}).set_stride({1}));
    y->set_output(true);
    EveryPlan plans(g);
    EXPECT_TRUE(plans.run());
    return plans.status.is_good() ? plans.expected(y) : std::vector<double>{};
  };
  const std::vector<double> y = values(true);
  const Philox philox(77, 0);
  ASSERT_EQ(y.size(), 64u);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], philox.keep(i, 0.5) ? 1 : 0);
  EXPECT_EQ(values(false), y);
}

// Dropout inside attention keeps what an rng node with the same keys draws, in the order of [b, h, s_q, s_kv].
TEST(Rng, AttentionDropsWithTheSameNumbers) {
  for (bool stored : {false, true})
    for (int64_t seed_value : {int64_t(77), (int64_t(1) << 60) + 1}) {
      Graph g;
      g.set_io_data_type(DataType_t::FLOAT).set_intermediate_data_type(DataType_t::FLOAT);
      g.set_compute_data_type(DataType_t::FLOAT);
      auto tensor = [&](const char* name, const Dims& dim, DataType_t type) {
        return g.tensor(
            Tensor_attributes().set_name(name).set_dim(dim).set_data_type(type).set_stride(row_major_strides(dim)));
      };
      auto key = [&](const char* name, int64_t value) {
        return stored ? g.tensor(value) : tensor(name, {1, 1, 1, 1}, DataType_t::INT64);
      };
      auto seed = key("seed", seed_value), offset = key("offset", 3);
      auto q = tensor("q", {1, 2, 6, 8}, DataType_t::FLOAT), k = tensor("k", {1, 2, 7, 8}, DataType_t::FLOAT),
           v = tensor("v", {1, 2, 7, 8}, DataType_t::FLOAT);
      auto dump = std::make_shared<Tensor_attributes>();
      dump->set_name("dump").set_output(true);
      auto o = g.sdpa(
          q, k, v,
          graph::SDPA_attributes().set_generate_stats(false).set_dropout(0.25f, seed, offset).set_rng_dump(dump))[0];
      o->set_output(true);
      EveryPlan plans(g, {.seed = 4});
      ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
      if (!stored) {
        *static_cast<int64_t*>(plans.harness().memory(plans.id(seed))) = seed_value;
        *static_cast<int64_t*>(plans.harness().memory(plans.id(offset))) = 3;
        plans.harness().inputs_changed();
      }
      const Philox philox(seed_value, 3);
      std::vector<double> kept(2 * 6 * 7);
      for (size_t i = 0; i < kept.size(); ++i) kept[i] = philox.keep(i, 0.75);
      EXPECT_TRUE(plans.run([&](const std::string& plan) { EXPECT_EQ(plans.read(dump), kept) << plan; }));
    }
}

TEST(Rng, SaysWhatIsWrong) {
  using C = error_code_t;
  auto status = [](Rng_attributes a, bool keys = true, DataType_t type = DataType_t::INT64) {
    Graph g;
    g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
    auto key = [&](const char* name) {
      return keys ? g.tensor(Tensor_attributes().set_name(name).set_dim({1}).set_stride({1}).set_data_type(type))
                  : nullptr;
    };
    g.rng(key("seed"), key("offset"), a.set_name("dice"))->set_output(true).set_name("y");
    return g.validate();
  };
  const Rng_attributes right = Rng_attributes()
                                   .set_distribution(RngDistribution_t::BERNOULLI)
                                   .set_bernoulli_probability(0.5)
                                   .set_dim({4})
                                   .set_stride({1});
  EXPECT_TRUE(status(right).is_good());
  struct Row {
    Status status;
    C code;
    const char* says;
  };
  const std::vector<Row> rows = {
      {status(Rng_attributes(right).set_dim({})), C::ATTRIBUTE_NOT_SET, "\"y\""},
      {status(Rng_attributes(right).set_distribution(RngDistribution_t::NOT_SET)), C::ATTRIBUTE_NOT_SET,
       "distribution"},
      {status(Rng_attributes(right).set_bernoulli_probability(std::nullopt)), C::ATTRIBUTE_NOT_SET,
       "bernoulli_probability"},
      {status(Rng_attributes(right).set_bernoulli_probability(1.5)), C::INVALID_VALUE, "1.5"},
      {status(right, false), C::ATTRIBUTE_NOT_SET, "seed"},
      {status(right, true, DataType_t::FLOAT), C::INVALID_VALUE, "\"seed\" is FLOAT"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(row.status.code, row.code) << row.status.err_msg;
    EXPECT_THAT(row.status.err_msg, AllOf(HasSubstr("rng \"dice\""), HasSubstr(row.says)));
  }
}

}  // namespace
}  // namespace tilewright
