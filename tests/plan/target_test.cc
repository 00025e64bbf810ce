#include "plan/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/thread_pool.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

TEST(Target, TextParsesBack) {
  for (const char* text : {"cpu:avx512,threads=2", "cpu:avx2,threads=64", "cpu:baseline,threads=1",
                           "cuda:sm_90,sms=132,smem=227,l2=60", "cuda:sm_75,sms=40,smem=64,l2=4"}) {
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
  for (const char* text : {"", "cpu", "cpu:", ":avx2", "cpu:avx2,threads=", "cpu:avx2,threads=0", "cpu:avx2,threads=-1",
                           "cpu:avx2,threads=2x", "cpu:avx2,threads=99999999999999", "cpu:,threads=2", "cuda:sm_20",
                           "cuda:sm_90,sms=0", "cuda:sm_90,cores=3", "h200,sms=3"})
    message(text);
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
