// Many graphs made and destroyed: nothing of them stays in memory, and no cache grows without bound.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>

#include "tilewright/tilewright.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TILEWRIGHT_SANITIZED 1
#else
#define TILEWRIGHT_SANITIZED 0
#endif

namespace tilewright {
namespace {

using graph::Graph;
using graph::Tensor_attributes;

int64_t resident_bytes() {
  malloc_trim(0);
  long total = 0, resident = 0;
  if (FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%ld %ld", &total, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return int64_t(resident) * sysconf(_SC_PAGESIZE);
}

error_t build_and_run(int64_t length) {
  Graph g;
  g.set_io_data_type(DataType_t::FLOAT)
      .set_intermediate_data_type(DataType_t::FLOAT)
      .set_compute_data_type(DataType_t::FLOAT);
  auto input = [&](const char* name, int64_t rows, int64_t uid) {
    return g.tensor(Tensor_attributes()
                        .set_name(name)
                        .set_dim({1, 2, rows, 16})
                        .set_stride({rows * 32, rows * 16, 16, 1})
                        .set_uid(uid));
  };
  auto attributes = graph::SDPA_attributes().set_name("attention").set_attn_scale(0.25f).set_generate_stats(false);
  auto o = g.sdpa(input("Q", length, 1), input("K", 8, 2), input("V", 8, 3), attributes)[0];
  o->set_output(true).set_uid(4);
  if (error_t e = g.build({HeurMode_t::A}); e.is_bad()) return e;
  std::vector<float> q(size_t(length) * 32, 0.5f), kv(256, 0.25f), out(q.size());
  std::vector<char> workspace(size_t(g.get_workspace_size()) + 64);
  std::unordered_map<int64_t, void*> pack = {{1, q.data()}, {2, kv.data()}, {3, kv.data()}, {4, out.data()}};
  if (error_t e = g.execute(nullptr, pack, workspace.data()); e.is_bad()) return e;
  // Every value row is 0.25, and so is every mean of them.
  for (float v : out)
    if (std::abs(v - 0.25f) > 1e-6f) return {error_code_t::GRAPH_EXECUTION_FAILED, "wrong result"};
  return {};
}

TEST(Lifetime, AThousandShapesLeaveNothingBehind) {
  for (int64_t s = 1; s <= 20; ++s) ASSERT_TRUE(build_and_run(s * 50).is_good());  // pools and scratch exist now
  const int64_t before = resident_bytes();
  for (int64_t s = 1; s <= 1000; ++s) {
    const error_t e = build_and_run(s);
    ASSERT_TRUE(e.is_good()) << s << ": " << e.err_msg;
  }
  if (!TILEWRIGHT_SANITIZED) {  // a sanitizer keeps freed memory on purpose
    EXPECT_LT(resident_bytes() - before, 10 << 20);
  }
}

}  // namespace
}  // namespace tilewright
