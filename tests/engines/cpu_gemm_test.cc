// The micro-kernels and the transpose, for every instruction set that this processor has.
#include "engines/cpu/gemm.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/numeric_types.h"

namespace tilewright::cpu {
namespace {

template <class Body>
void for_each_instruction_set(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

std::mt19937 g_random(1);
int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(g_random); }
template <class T>
std::vector<T> small_integers(int64_t n) {
  std::vector<T> v(static_cast<size_t>(n));
  for (T& x : v) x = T(between(-4, 4));
  return v;
}

// Small integers: every order of summation gives the same sum.
template <class T>
void check(const MicroKernel<T>& kernel) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    const int64_t runs = between(1, 4), len = between(0, 40), step = repeat % 2 ? 1 : between(1, 9);
    const int64_t ldb = kernel.nr + between(0, 5), ldc = kernel.nr + between(0, 5);
    const bool accumulate = repeat % 3 == 0;
    const auto a = small_integers<T>(runs * kernel.mr * (len * step + 1)), b = small_integers<T>(runs * len * ldb + 1);
    std::vector<const T*> rows;
    for (int64_t i = 0; i < runs * kernel.mr; ++i) rows.push_back(a.data() + i * (len * step + 1));
    const auto before = small_integers<T>(kernel.mr * ldc);
    const auto added = small_integers<T>(kernel.nr);
    const Finish<T> finish = {repeat % 10 == 0 ? added.data() : nullptr, repeat % 15 != 0, T(-3)};
    auto c = before;
    // Every other time the rows are given by a start and the offsets of runs.
    std::vector<int64_t> offsets;
    for (int64_t r = 0; r < runs; ++r) offsets.push_back(rows[size_t(r * kernel.mr)] - rows[0]);
    const RowRuns<T> in = {rows.data(), repeat % 2 ? offsets.data() : nullptr, runs, len, step};
    kernel.run(in, b.data(), ldb, c.data(), ldc, accumulate, in.offset && repeat % 4 == 1 ? &in : nullptr,
               repeat % 5 == 0 ? &finish : nullptr);
    for (int64_t i = 0; i < kernel.mr; ++i)
      for (int64_t j = 0; j < ldc; ++j) {
        T want = before[size_t(i * ldc + j)];
        if (j < kernel.nr) {
          if (!accumulate) want = 0;
          for (int64_t r = 0; r < runs; ++r)
            for (int64_t k = 0; k < len; ++k)
              want += rows[size_t(r * kernel.mr + i)][k * step] * b[size_t((r * len + k) * ldb + j)];
          if (repeat % 5 == 0 && finish.add) want += added[size_t(j)];
          if (repeat % 5 == 0 && finish.clips) want = std::max(want, finish.lower);
        }
        ASSERT_EQ(c[size_t(i * ldc + j)], want) << kernel.mr << "x" << kernel.nr << " at " << i << ", " << j;
      }
  }
}

TEST(CpuGemm, MicroKernelsMultiply) {
  for_each_instruction_set([] {
    for (const auto& k : float_micro_kernels()) check(k);
    for (const auto& k : double_micro_kernels()) check(k);
  });
}

TEST(CpuGemm, MicroKernelsPassNaNAndInfinityOn) {
  for_each_instruction_set([] {
    for (const auto& kernel : float_micro_kernels()) {
      const std::vector<float> a = {NAN, INFINITY, 1, 2};
      std::vector<const float*> rows(static_cast<size_t>(kernel.mr), a.data() + 2);
      rows[0] = a.data();
      std::vector<float> b(size_t(2 * kernel.nr), 1), c(size_t(kernel.mr * kernel.nr));
      kernel.run({rows.data(), nullptr, 1, 2, 1}, b.data(), kernel.nr, c.data(), kernel.nr, false, nullptr, nullptr);
      for (int j = 0; j < kernel.nr; ++j) {
        EXPECT_TRUE(std::isnan(c[size_t(j)]));
        EXPECT_EQ(c[size_t(kernel.nr + j)], 3);
      }
    }
  });
}

// The bits of small integers, pairs side by side.
TEST(CpuGemm, Bfloat16MicroKernelsMultiply) {
  if (micro_kernels<Bfloat16Bits>().empty()) GTEST_SKIP() << "this processor multiplies no bfloat16";
  for (const MicroKernel<Bfloat16Bits>& kernel : micro_kernels<Bfloat16Bits>())
    for (const auto run : {kernel.run, kernel.careful})
      for (int repeat = 0; repeat < 20; ++repeat) {
        const int64_t runs = between(1, 4), len = 2 * between(0, 20), ldc = kernel.nr + between(0, 5);
        const auto bits = [](int64_t n) {
          std::vector<Bfloat16Bits> v;
          for (float x : small_integers<float>(n)) v.push_back(float_to_bfloat16(x));
          return v;
        };
        const auto a = bits(runs * kernel.mr * (len + 1)), b = bits(runs * len * kernel.nr + 1);
        std::vector<const Bfloat16Bits*> rows;
        for (int64_t i = 0; i < runs * kernel.mr; ++i) rows.push_back(a.data() + i * (len + 1));
        const auto added = small_integers<float>(kernel.nr), before = small_integers<float>(kernel.mr * ldc);
        const Finish<float> finish = {added.data(), true, -3};
        auto c = before;
        run({rows.data(), nullptr, runs, len, 1}, b.data(), kernel.nr, c.data(), ldc, repeat % 3 == 0, nullptr,
            repeat % 2 ? &finish : nullptr);
        for (int64_t i = 0; i < kernel.mr; ++i)
          for (int64_t j = 0; j < kernel.nr; ++j) {
            float want = repeat % 3 == 0 ? before[size_t(i * ldc + j)] : 0;
            for (int64_t r = 0; r < runs; ++r)
              for (int64_t k = 0; k < len; ++k)
                want += bfloat16_to_float(rows[size_t(r * kernel.mr + i)][k]) *
                        bfloat16_to_float(b[size_t((r * len + k / 2 * 2) * kernel.nr + 2 * j + k % 2)]);
            if (repeat % 2) want = std::max(want + added[size_t(j)], -3.f);
            ASSERT_EQ(c[size_t(i * ldc + j)], want) << kernel.mr << "x" << kernel.nr << " at " << i << ", " << j;
          }
      }
}

TEST(CpuGemm, TinyElementsAreFound) {
  if (micro_kernels<Bfloat16Bits>().empty()) GTEST_SKIP() << "this processor multiplies no bfloat16";
  for (int64_t n : {1, 31, 32, 33, 100}) {
    std::vector<Bfloat16Bits> x(static_cast<size_t>(n), float_to_bfloat16(-0x1p-50f));
    x[size_t(n / 2)] = 0x8000;  // -0
    EXPECT_FALSE(has_tiny(x.data(), n));
    for (int64_t at : {int64_t{0}, n - 1})
      for (Bfloat16Bits tiny : {Bfloat16Bits(1), Bfloat16Bits(0x8001), float_to_bfloat16(0x1.fep-51f)}) {
        auto y = x;
        y[size_t(at)] = tiny;
        EXPECT_TRUE(has_tiny(y.data(), n)) << n << ", " << at;
      }
  }
  EXPECT_FALSE(has_tiny(nullptr, 0));
}

TEST(CpuGemm, Transposes) {
  for_each_instruction_set([] {
    for (int repeat = 0; repeat < 30; ++repeat) {
      const int64_t count = between(1, 67), length = between(0, 150), pitch = count + between(0, 4);
      const auto in = small_integers<float>(count * length + 1);
      std::vector<const float*> rows;
      for (int64_t i = 0; i < count; ++i) rows.push_back(in.data() + i * length);
      std::vector<float> out(size_t(length * pitch + 1), 99);
      transpose(rows.data(), count, length, out.data(), pitch);
      for (int64_t k = 0; k < length; ++k)
        for (int64_t i = 0; i < pitch; ++i)
          ASSERT_EQ(out[size_t(k * pitch + i)], i < count ? in[size_t(i * length + k)] : 99) << k << ", " << i;
    }
  });
}

}  // namespace
}  // namespace tilewright::cpu
