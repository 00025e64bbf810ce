#include "device/cuda/nvrtc.h"

#include <gmock/gmock.h>

#include <vector>

namespace tilewright::cuda {
namespace {

using testing::HasSubstr;

// The real one, where this machine has it: it compiles for a GPU that need not be there.
TEST(Nvrtc, CompilesWithoutAGpu) {
  if (!nvrtc_lookup().nvrtc) GTEST_SKIP() << nvrtc_lookup().error_text();
  const Nvrtc& n = nvrtc();
  const auto compile = [&n](const char* text, std::string& log) {
    NvrtcProgram program = nullptr;
    EXPECT_EQ(n.create_program(&program, text, "test.cu", 0, nullptr, nullptr), 0);
    const char* options[] = {"--gpu-architecture=sm_90"};
    const NvrtcResult result = n.compile_program(program, 1, options);
    size_t bytes = 0;
    n.get_program_log_size(program, &bytes);
    log.resize(bytes);
    n.get_program_log(program, log.data());
    std::vector<char> code;
    if (result == 0 && n.get_cubin_size(program, &bytes) == 0) {
      code.resize(bytes);
      EXPECT_EQ(n.get_cubin(program, code.data()), 0);
    }
    n.destroy_program(&program);
    return code;
  };
  std::string log;
  const std::vector<char> code = compile("extern \"C\" __global__ void f(float* x) { x[threadIdx.x] = 1; }", log);
  ASSERT_GT(code.size(), 4u) << log;
  EXPECT_EQ(std::string(code.data() + 1, 3), "ELF");
  EXPECT_TRUE(compile("this is no program", log).empty());
  EXPECT_THAT(log, HasSubstr("error"));
}

}  // namespace
}  // namespace tilewright::cuda
