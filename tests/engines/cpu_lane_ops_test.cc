// The vector loops against the table's formulas in double, within the error bound that the reference would allow.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/numeric_types.h"
#include "engines/cpu/lane_ops.h"
#include "fuse/program.h"
#include "support/every_target.h"
#include "support/random.h"

namespace tilewright::cpu {
namespace {

using testing::Random;
using Formula = Bounded (*)(Bounded, Bounded, Bounded, const PwParams&);

struct Row {
  PointwiseMode_t mode;
  Formula formula;
};
const Row kRows[] = {
#define PW(MODE, ...) {PointwiseMode_t::MODE, pointwise_value<PointwiseMode_t::MODE, Bounded>},
#include "ops/pw_ops.def"
#undef PW
};

// Ordinary numbers, numbers of every magnitude, and the ends.
template <class T>
std::vector<T> values(Random& random, int64_t n) {
  const T infinity = std::numeric_limits<T>::infinity();
  std::vector<T> v = {0,
                      T(-0.0),
                      1,
                      -1,
                      infinity,
                      -infinity,
                      std::numeric_limits<T>::quiet_NaN(),
                      std::numeric_limits<T>::denorm_min(),
                      std::numeric_limits<T>::max(),
                      T(88.7),
                      T(-87.5),
                      T(-104.5)};
  while (int64_t(v.size()) < n) {
    const double unit = double(random.bits() >> 11) * 0x1p-53;
    const double sign = random.one_in(2) ? 1 : -1;
    v.push_back(T(sign * (random.one_in(3) ? std::exp2(unit * 80 - 50) : unit * random.of({2., 30., 1000., 40000.}))));
  }
  return v;
}

template <class T>
void check_mode(const Row& row, const Rounding& rounding) {
  t_rounding = rounding;
  Random random(uint64_t(row.mode) + 1);
  const int64_t n = 20001;
  const std::vector<T> x = values<T>(random, n);
  std::vector<T> y = values<T>(random, n), m = values<T>(random, n), out(static_cast<size_t>(n));
  std::rotate(y.begin(), y.begin() + 5, y.end());
  PwParams p;
  make_lane_ops<T>().pointwise[int(row.mode)](out.data(), x.data(), y.data(), m.data(), n, p);
  int wrong = 0;
  for (size_t i = 0; i < size_t(n) && wrong < 3; ++i) {
    const Bounded want = row.formula(double(x[i]), double(y[i]), double(m[i]), p);
    const double got = double(out[i]);
    if (!(want.e < kInfinity)) continue;
    const bool infinite = bounded::may_be_infinite(want) && got == std::copysign(kInfinity, want.v);
    const bool ok = std::isnan(want.v)
                        ? std::isnan(got)
                        : got == want.v || infinite ||
                              std::fabs(got - want.v) <= want.e + rounding.u * std::fabs(want.v) + rounding.eta;
    if (ok) continue;
    ++wrong;
    ADD_FAILURE() << to_string(row.mode) << "(" << x[i] << ", " << y[i] << ", " << m[i] << ") = " << got
                  << ", expected " << want.v << " +- " << want.e;
  }
  t_rounding = {};
}

TEST(CpuLaneOps, EveryModeInFloat) {
  testing::on_every_target([] {
    for (const Row& row : kRows) check_mode<float>(row, {});
  });
}
TEST(CpuLaneOps, EveryModeInDouble) {
  testing::on_every_target([] {
    for (const Row& row : kRows) check_mode<double>(row, {0x1p-53, 0x1p-1022, 0x1.fffffffffffffp1023});
  });
}

void check_folds() {
  const LaneOps<float> ops = make_lane_ops<float>();
  for (int64_t n : {0, 1, 31, 32, 33, 63, 64, 65, 100, 256})
    for (ReductionMode_t mode :
         {ReductionMode_t::ADD, ReductionMode_t::NORM1, ReductionMode_t::NORM2, ReductionMode_t::MAX,
          ReductionMode_t::MIN, ReductionMode_t::AMAX, ReductionMode_t::MUL_NO_ZEROS}) {
      std::vector<float> x;
      for (int64_t i = 0; i < n; ++i) x.push_back(float((i * 7 + 3) % 5 - 2));
      double want = fuse::reduction_start(mode);
      for (float v : x) want = fuse::reduction_join(mode, want, fuse::reduction_element(mode, v));
      EXPECT_EQ(ops.fold(mode, x.data(), n, fuse::reduction_start(mode)), want) << to_string(mode) << " of " << n;
      std::vector<double> total(static_cast<size_t>(n), 1.0);
      ops.fold_lanes(mode, x.data(), n, total.data());
      for (size_t i = 0; i < size_t(n); ++i)
        EXPECT_EQ(total[i], fuse::reduction_join(mode, 1.0, fuse::reduction_element(mode, x[i])));
    }
}

TEST(CpuLaneOps, PairsAndProducts) {
  testing::on_every_target([] {
    const LaneOps<float> ops = make_lane_ops<float>();
    const auto apply = [](int op, float x, float y) {
      return op == 0 ? x + y : op == 1 ? x - y : op == 2 ? x * y : y - x;
    };
    for (int64_t n : {0, 1, 15, 16, 17, 70, 200}) {
      std::vector<float> x, y, m, out(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) x.push_back(float(i % 7 - 3)), y.push_back(float(i % 5)), m.push_back(float(i));
      for (int first = 0; first < 3; ++first)
        for (int second = 0; second < 4; ++second) {
          ops.fused[first][second](out.data(), x.data(), y.data(), m.data(), n, {});
          for (size_t i = 0; i < size_t(n); ++i)
            ASSERT_EQ(out[i], apply(second, apply(first, x[i], y[i]), m[i])) << first << second << " of " << n;
        }
      double want = 3;
      for (size_t i = 0; i < size_t(n); ++i) want += double(x[i] * y[i]);
      EXPECT_EQ(ops.fold_products(x.data(), y.data(), n, 3), want);
      std::vector<double> total(static_cast<size_t>(n), 1.0);
      ops.fold_product_lanes(x.data(), y.data(), n, total.data());
      for (size_t i = 0; i < size_t(n); ++i) EXPECT_EQ(total[i], 1.0 + double(x[i] * y[i]));
    }
  });
}

TEST(CpuLaneOps, FoldsTakeEveryElementOnce) {
  testing::on_every_target([] { check_folds(); });
}

TEST(CpuLaneOps, Transposes) {
  testing::on_every_target([] {
    for (int64_t rows : {1, 3, 4, 9, 32})
      for (int64_t columns : {1, 2, 4, 7, 32}) {
        std::vector<float> from(static_cast<size_t>(rows * (columns + 1))),
            to(static_cast<size_t>(columns * (rows + 2)), -1.f);
        for (size_t i = 0; i < from.size(); ++i) from[i] = float(i);
        make_lane_ops<float>().transpose(from.data(), columns + 1, to.data(), rows + 2, rows, columns);
        for (int64_t c = 0; c < columns; ++c)
          for (int64_t r = 0; r < rows + 2; ++r)
            ASSERT_EQ(to[size_t(c * (rows + 2) + r)], r < rows ? from[size_t(r * (columns + 1) + c)] : -1.f);
      }
  });
}

TEST(CpuLaneOps, MaximaKeepNan) {
  testing::on_every_target([] {
    for (size_t at : {0, 41, 66, 69}) {
      std::vector<float> x(70, 1.f);
      x[at] = std::numeric_limits<float>::quiet_NaN();
      for (ReductionMode_t mode : {ReductionMode_t::MAX, ReductionMode_t::MIN, ReductionMode_t::AMAX})
        EXPECT_TRUE(std::isnan(make_lane_ops<float>().fold(mode, x.data(), 70, 0)));
    }
  });
}

TEST(CpuLaneOps, CastsAreThoseOfStorage) {
  const std::vector<float> x = {
      -300, -128.5f, -2.5f, -0.4f, 0, 0.5f, 1.5f, 127.6f, 254.5f, 1000, std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> out(x.size());
  for (DataType_t type : {DataType_t::INT8, DataType_t::UINT8, DataType_t::BOOLEAN, DataType_t::INT32}) {
    lane_ops<float>().cast(type, out.data(), x.data(), int64_t(x.size()));
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(out[i], round_to_type(type, x[i])) << to_string(type) << " " << x[i];
  }
}

}  // namespace
}  // namespace tilewright::cpu
