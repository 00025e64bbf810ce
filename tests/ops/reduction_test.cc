// REDUCTION: every mode against a plain fold, over every choice of reduced dims.
#include <gmock/gmock.h>

#include "support/every_plan.h"
#include "support/random.h"

namespace tilewright {
namespace {

using graph::Graph;
using graph::Reduction_attributes;
using graph::Tensor_attributes;
using testing::EveryPlan;
using ::testing::HasSubstr;
using testing::Random;
using Mode = ReductionMode_t;

Graph float_graph() {
  Graph g;
  return g.set_io_data_type(DataType_t::FLOAT)
      .set_intermediate_data_type(DataType_t::FLOAT)
      .set_compute_data_type(DataType_t::FLOAT);
}

double fold(Mode mode, const std::vector<double>& v) {
  double sum = 0, product = 1, least = kInfinity, most = -kInfinity, largest = 0, magnitude = 0, squares = 0,
         nonzero = 1;
  for (double x : v) {
    sum += x, product *= x, least = std::min(least, x), most = std::max(most, x);
    largest = std::max(largest, std::fabs(x)), magnitude += std::fabs(x), squares += x * x;
    if (x != 0) nonzero *= x;
  }
  switch (mode) {
    case Mode::ADD: return sum;
    case Mode::MUL: return product;
    case Mode::MIN: return least;
    case Mode::MAX: return most;
    case Mode::AMAX: return largest;
    case Mode::AVG: return sum / double(v.size());
    case Mode::NORM1: return magnitude;
    case Mode::NORM2: return std::sqrt(squares);
    default: return nonzero;
  }
}

TEST(Reduction, EveryModeOverEveryChoiceOfDims) {
  for (Mode mode : {Mode::ADD, Mode::MUL, Mode::MIN, Mode::MAX, Mode::AMAX, Mode::AVG, Mode::NORM1, Mode::NORM2,
                    Mode::MUL_NO_ZEROS})
    for (int which = 0; which < 8; ++which) {
      Random random(uint64_t(mode) * 8 + uint64_t(which));
      Dims dim = {random.between(1, 4), random.between(1, 6), random.between(1, 5)}, kept = dim;
      for (size_t d = 0; d < 3; ++d)
        if (which >> d & 1) kept[d] = 1;
      Graph g = float_graph();
      auto x = g.tensor(Tensor_attributes().set_name("x").set_dim(dim).set_stride(random.strides(dim)));
      auto y = g.reduction(x, Reduction_attributes().set_mode(mode));
      y->set_output(true).set_dim(kept);
      EveryPlan plans(g);
      ASSERT_TRUE(plans.status.is_good()) << plans.status.err_msg;
      auto value = [&](int64_t i) { return double((i * 5 + which) % 9 - 4) / 4; };
      plans.fill(x, value);
      std::vector<std::vector<double>> groups(size_t(volume(kept)));
      for (int64_t i = 0; i < volume(dim); ++i) {
        int64_t index[3];
        unravel(i, dim, index);
        for (size_t d = 0; d < 3; ++d) index[d] = kept[d] == 1 ? 0 : index[d];
        groups[size_t(offset_of(row_major_strides(kept), index))].push_back(value(i));
      }
      EXPECT_TRUE(plans.run([&](const std::string& plan) {
        const auto got = plans.read(y);
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_NEAR(got[i], fold(mode, groups[i]), 1e-5 * (1 + std::fabs(got[i]))) << mode << " " << plan;
      })) << mode
          << " " << which;
    }
}

TEST(Reduction, LongRowsAndWholeTensors) {
  for (Mode mode : {Mode::ADD, Mode::AMAX, Mode::NORM2, Mode::AVG})
    for (const Dims& kept : {Dims{1, 1}, Dims{3, 1}, Dims{1, 20011}}) {
      Graph g = float_graph();
      auto x = g.tensor(Tensor_attributes().set_name("x").set_dim({3, 20011}).set_stride({20011, 1}));
      g.reduction(x, Reduction_attributes().set_mode(mode))->set_output(true).set_dim(kept);
      EveryPlan plans(g, {.seed = 5});
      EXPECT_TRUE(plans.run()) << mode << to_text(kept);
    }
}

TEST(Reduction, NanAndInfinityShow) {
  for (Mode mode : {Mode::ADD, Mode::MAX, Mode::MIN, Mode::AMAX, Mode::NORM2}) {
    for (double special : {double(NAN), kInfinity, -kInfinity}) {
      Graph g = float_graph();
      auto x = g.tensor(Tensor_attributes().set_name("x").set_dim({4, 300}).set_stride({300, 1}));
      g.reduction(x, Reduction_attributes().set_mode(mode))->set_output(true).set_dim({4, 1});
      EveryPlan plans(g);
      plans.fill(x, [&](int64_t i) { return i == 431 ? special : double(i % 5); });
      EXPECT_TRUE(plans.run()) << mode << " " << special;
    }
  }
}

TEST(Reduction, EmptyRowsGiveTheIdentity) {
  for (Mode mode : {Mode::ADD, Mode::MUL, Mode::AMAX, Mode::MAX}) {
    Graph g = float_graph();
    auto x = g.tensor(Tensor_attributes().set_name("x").set_dim({3, 0}).set_stride({1, 1}));
    g.reduction(x, Reduction_attributes().set_mode(mode))->set_output(true).set_dim({3, 1});
    EveryPlan plans(g);
    EXPECT_TRUE(plans.run()) << mode;
  }
}

TEST(Reduction, RejectsDimsThatDoNotReduce) {
  Graph g = float_graph();
  auto x = g.tensor(Tensor_attributes().set_name("source").set_dim({4, 6}).set_stride({6, 1}));
  g.reduction(x, Reduction_attributes().set_name("fold").set_mode(Mode::ADD))->set_output(true).set_dim({4, 3});
  const error_t e = g.validate();
  EXPECT_EQ(e.code, error_code_t::INVALID_VALUE);
  for (const char* part : {"\"fold\"", "\"source\"", "[4, 3]"}) EXPECT_THAT(e.err_msg, HasSubstr(part));
}

}  // namespace
}  // namespace tilewright
