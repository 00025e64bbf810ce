#include "plan/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/thread_pool.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

TEST(Target, TextParsesBack) {
  for (const char* text :
       {"cpu:avx512,threads=2", "cpu:avx2,threads=64", "cpu:baseline,threads=1", "cuda:sm_90,sms=132,smem=227,l2=60",
        "cuda:sm_75,sms=40,smem=64,l2=4", "cuda:compute_75,sms=132,smem=64,l2=60"}) {
    const auto t = Target::parse(text);
    ASSERT_TRUE(t) << t.status();
    EXPECT_EQ(t->text(), text);
  }
  EXPECT_EQ(Target::parse("cpu:avx2")->text(), "cpu:avx2,threads=1");
}

TEST(Target, GpuByName) {
  const auto t = Target::parse("h200");
  ASSERT_TRUE(t) << t.status();
  EXPECT_TRUE(t->is_gpu());
  EXPECT_EQ(t->text(), "cuda:sm_90,sms=132,smem=227,l2=60");
  EXPECT_EQ(t->gpu->name, "NVIDIA H200");
  EXPECT_EQ(t->ordinal, -1) << "a name is no device of this machine";
  EXPECT_THAT(t->hardware(), HasSubstr("NVIDIA H200"));
  EXPECT_EQ(Target::parse("cuda:sm_75,sms=40,smem=64,l2=4")->gpu->name, "GPU") << "another part than the profile's";
}

TEST(Target, AGpuByItsArchitecture) {
  const auto code = [](const char* text) {
    const auto t = Target::parse(text);
    EXPECT_TRUE(t) << t.status();
    return t ? t->code() + " on " + t->arch : "";
  };
  EXPECT_EQ(code("sm_90a"), "sm_90a on sm_90");
  EXPECT_EQ(code("cuda:sm_90"), "sm_90a on sm_90") << "kernels may use all that the architecture has";
  EXPECT_EQ(code("sm_86,sms=84"), "sm_86 on sm_86");
  EXPECT_EQ(code("compute_75"), "compute_75 on compute_75");
  EXPECT_EQ(Target::parse("sm_75")->gpu->shared_bytes, 64 << 10);
  EXPECT_EQ(Target::parse("sm_86")->gpu->shared_bytes, 99 << 10);
}

TEST(Target, AGpuWithKernelsAsPtx) {
  const cuda::GpuProperties h200 = *Target::parse("h200")->gpu;
  const auto ptx = h200.as_ptx_of(75);
  ASSERT_TRUE(ptx) << ptx.status();
  const Target t = Target::of_gpu(*ptx, 0);
  EXPECT_EQ(t.text(), "cuda:compute_75,sms=132,smem=64,l2=60");
  EXPECT_EQ(t.gpu->name, "NVIDIA H200");
  const auto again = cuda::GpuProperties::from_json(ptx->json);
  EXPECT_TRUE(again && again->ptx && again->arch == 75) << "the text keeps it";
  EXPECT_THAT(h200.as_ptx_of(100).status().err_msg, HasSubstr("compute_75 to compute_90"));
}

TEST(Target, SaysWhatIsWrongWithAText) {
  const auto message = [](const char* text) {
    const auto t = Target::parse(text);
    EXPECT_FALSE(t) << text;
    EXPECT_EQ(t.status().code, error_code_t::INVALID_VALUE) << text;
    return t.status().err_msg;
  };
  EXPECT_THAT(message("tpu:v4"), HasSubstr("\"tpu\""));
  EXPECT_THAT(message("cpu:mmx"), HasSubstr("\"mmx\""));
  EXPECT_THAT(message("cpu:avx2,cores=3"), HasSubstr("\"cores=3\""));
  for (const char* text : {"",
                           "cpu",
                           "cpu:",
                           ":avx2",
                           "cpu:avx2,threads=",
                           "cpu:avx2,threads=0",
                           "cpu:avx2,threads=-1",
                           "cpu:avx2,threads=2x",
                           "cpu:avx2,threads=99999999999999",
                           "cpu:,threads=2",
                           "cuda:sm_20",
                           "cuda:sm_90,sms=0",
                           "cuda:sm_90,cores=3",
                           "h200,sms=3",
                           "sm_20",
                           "sm_90b",
                           "sm_86a",
                           "compute_90a",
                           "compute_75,sms",
                           "sm_"})
    message(text);
  for (const char* text : {"cuda:0,sm_75", "cuda:0,compute_75,sms=3", "cuda:0,fast"})
    EXPECT_THAT(message(text), HasSubstr("cuda:N,compute_NN"));
  EXPECT_FALSE(Target::parse("cuda:9999")) << "no machine has that GPU";
}

TEST(Target, ThisMachineIsATarget) {
  const Target t = Target::this_machine();
  const auto parsed = Target::parse(t.text());
  ASSERT_TRUE(parsed) << parsed.status();
  EXPECT_EQ(parsed->text(), t.text());
  EXPECT_EQ(t.threads, thread_count());
  set_thread_count(3);
  EXPECT_EQ(Target::this_machine().threads, 3);
  set_thread_count(0);
}

TEST(CpuInfo, DescribesThisMachine) {
  const CpuInfo info = cpu_info();
  EXPECT_GE(info.processors, 1);
  std::vector<std::string> features = info.features;
  std::sort(features.begin(), features.end());
  EXPECT_EQ(std::adjacent_find(features.begin(), features.end()), features.end()) << "a feature twice";
#if defined(__x86_64__)
  const auto has = [&](const char* name) { return std::binary_search(features.begin(), features.end(), name); };
  EXPECT_EQ(has("avx2"), bool(__builtin_cpu_supports("avx2")));
  EXPECT_EQ(has("fma"), bool(__builtin_cpu_supports("fma")));
  EXPECT_EQ(has("avx512f"), bool(__builtin_cpu_supports("avx512f")));
  EXPECT_EQ(has("avx512bw"), bool(__builtin_cpu_supports("avx512bw")));
#endif
}

}  // namespace
}  // namespace tilewright
