// MATMUL: against a plain triple loop; layouts, batch broadcast, size overrides, exactness of integers.
#include <gmock/gmock.h>

#include "support/every_plan.h"
#include "support/random.h"

namespace tilewright {
namespace {

using graph::Graph;
using graph::Matmul_attributes;
using graph::Tensor_attributes;
using graph::TensorPtr;
using testing::EveryPlan;
using ::testing::HasSubstr;
using testing::Random;

struct Problem {
  Graph g;
  TensorPtr a, b, c;
};

Problem problem(Random& random, DataType_t io, DataType_t compute, const Dims& da, const Dims& db) {
  Problem p;
  p.g.set_io_data_type(io).set_intermediate_data_type(compute).set_compute_data_type(compute);
  p.a = p.g.tensor(Tensor_attributes().set_name("A").set_dim(da).set_stride(random.strides(da)));
  p.b = p.g.tensor(Tensor_attributes().set_name("B").set_dim(db).set_stride(random.strides(db)));
  p.c = p.g.matmul(p.a, p.b, Matmul_attributes().set_name("mm"));
  p.c->set_output(true);
  return p;
}

TEST(Matmul, AgainstATripleLoop) {
  for (uint64_t seed : testing::seeds(1, 30)) {
    Random random(seed);
    const int64_t m = random.between(1, 40), n = random.between(1, 40), k = random.between(1, 70);
    const int64_t batch = random.between(1, 3), heads = random.between(1, 3);
    const Dims da = {random.one_in(3) ? 1 : batch, heads, m, k}, db = {batch, random.one_in(3) ? 1 : heads, k, n};
    Problem p = problem(random, DataType_t::FLOAT, DataType_t::FLOAT, da, db);
    EveryPlan plans(p.g, {.seed = seed, .fill = Fill::Integers});
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    const auto a = plans.read(p.a), b = plans.read(p.b);
    EXPECT_TRUE(plans.run([&](const std::string& plan) {
      const auto c = plans.read(p.c);
      for (int64_t i = 0; i < int64_t(c.size()); ++i) {
        const int64_t col = i % n, row = i / n % m, h = i / (n * m) % heads, bi = i / (n * m * heads);
        double sum = 0;
        for (int64_t j = 0; j < k; ++j)
          sum += a[size_t((((da[0] == 1 ? 0 : bi) * heads + h) * m + row) * k + j)] *
                 b[size_t(((bi * db[1] + (db[1] == 1 ? 0 : h)) * k + j) * n + col)];
        ASSERT_EQ(c[size_t(i)], sum) << plan << " seed " << seed;
      }
    })) << "TILEWRIGHT_TEST_SEED="
        << seed;
  }
}

TEST(Matmul, EveryTypeInEveryPlan) {
  for (DataType_t type : {DataType_t::DOUBLE, DataType_t::FLOAT, DataType_t::HALF, DataType_t::BFLOAT16,
                          DataType_t::FP8_E4M3, DataType_t::FP8_E5M2, DataType_t::INT8})
    for (uint64_t seed : testing::seeds(100, 4)) {
      Random random(seed);
      const int64_t m = random.between(1, 70), n = random.between(1, 70), k = random.between(1, 200);
      const DataType_t compute = type == DataType_t::DOUBLE ? type
                                 : type == DataType_t::INT8 ? DataType_t::INT32
                                                            : DataType_t::FLOAT;
      Problem p = problem(random, type, compute, {m, k}, {k, n});
      if (type == DataType_t::INT8) p.c->set_data_type(DataType_t::INT32);
      EveryPlan plans(p.g, {.seed = seed});
      EXPECT_TRUE(plans.run()) << type << " TILEWRIGHT_TEST_SEED=" << seed;
    }
}

TEST(Matmul, LargeInt32SumsAreExact) {  // beyond 2^24, where a float accumulator would round
  Random random(1);
  Problem p = problem(random, DataType_t::INT8, DataType_t::INT32, {3, 3001}, {3001, 5});
  p.c->set_data_type(DataType_t::INT32);
  EveryPlan plans(p.g);
  plans.fill(p.a, [](int64_t i) { return double(127 - i % 3); });
  plans.fill(p.b, [](int64_t i) { return double(127 - i % 2); });
  EXPECT_TRUE(plans.run([&](const std::string& plan) {
    double want = 0;
    for (int64_t k = 0; k < 3001; ++k) want += double(127 - k % 3) * double(127 - (k * 5) % 2);
    EXPECT_EQ(plans.read(p.c)[0], want) << plan;
    EXPECT_GT(want, 1 << 24);
  }));
}

TEST(Matmul, SizeOverridesPad) {
  for (double pad : {0.0, 0.5}) {
    Graph g;
    g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
    auto a = g.tensor(Tensor_attributes().set_name("A").set_dim({2, 5, 6}).set_stride({30, 6, 1}));
    auto b = g.tensor(Tensor_attributes().set_name("B").set_dim({2, 6, 4}).set_stride({24, 4, 1}));
    auto size = [&](const char* name) {
      return g.tensor(
          Tensor_attributes().set_name(name).set_dim({2, 1, 1}).set_stride({1, 1, 1}).set_data_type(DataType_t::INT32));
    };
    auto m = size("M"), n = size("N"), k = size("K");
    auto c = g.matmul(a, b, Matmul_attributes().set_m_override(m).set_n_override(n).set_k_override(k).set_padding(pad));
    c->set_output(true);
    EveryPlan plans(g);
    ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
    const double ms[] = {5, 2}, ns[] = {3, 4}, ks[] = {4, 6};
    plans.fill(m, [&](int64_t i) { return ms[i]; }).fill(n, [&](int64_t i) { return ns[i]; });
    plans.fill(k, [&](int64_t i) { return ks[i]; }).fill(a, testing::coded(5)).fill(b, testing::coded(7));
    EXPECT_TRUE(plans.run([&](const std::string& plan) {
      const auto got = plans.read(c);
      for (int64_t i = 0; i < 40; ++i) {
        const int64_t bi = i / 20, row = i / 4 % 5, col = i % 4;
        double sum = 0;
        for (int64_t j = 0; j < 6; ++j)
          sum += (row < ms[bi] && j < ks[bi] ? testing::coded(5)((bi * 5 + row) * 6 + j) : pad) *
                 (col < ns[bi] && j < ks[bi] ? testing::coded(7)((bi * 6 + j) * 4 + col) : pad);
        EXPECT_EQ(got[size_t(i)], sum) << plan << " " << i;
      }
    }));
  }
}

TEST(Matmul, EmptyAndTinySizes) {
  for (const Dims& mnk : {Dims{0, 3, 4}, Dims{3, 0, 4}, Dims{3, 4, 0}, Dims{1, 1, 1}}) {
    Random random(1);
    Problem p = problem(random, DataType_t::FLOAT, DataType_t::FLOAT, {1, mnk[0], mnk[2]}, {1, mnk[2], mnk[1]});
    EveryPlan plans(p.g);
    EXPECT_TRUE(plans.run()) << to_text(mnk);
  }
}

TEST(Matmul, Rejections) {
  Random random(1);
  Problem rank = problem(random, DataType_t::FLOAT, DataType_t::FLOAT, {2, 3, 4}, {4, 5});
  EXPECT_EQ(rank.g.validate().code, error_code_t::INVALID_VALUE);
  Problem batch = problem(random, DataType_t::FLOAT, DataType_t::FLOAT, {2, 3, 4}, {3, 4, 5});
  EXPECT_EQ(batch.g.validate().code, error_code_t::SHAPE_DEDUCTION_FAILED);
  Problem result = problem(random, DataType_t::FLOAT, DataType_t::FLOAT, {2, 3, 4}, {2, 4, 5});
  result.c->set_dim({2, 3, 6});
  const error_t e = result.g.validate();
  EXPECT_EQ(e.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(e.err_msg, HasSubstr("[2, 3, 5]"));
}

}  // namespace
}  // namespace tilewright
