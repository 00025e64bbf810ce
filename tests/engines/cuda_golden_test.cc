// The texts of generated kernels, byte for byte, for a few graphs: so that a change of the generator shows what it
// changes.
// `./dev golden` writes them anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engines/cuda/region.h"
#include "frontend/builder.h"
#include "plan/target.h"

namespace tilewright::testing {
namespace {

namespace fs = std::filesystem;
const fs::path kSource = TILEWRIGHT_SOURCE;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// All kernels of the graph for an H200, one page each.
std::string pages(const ir::Graph& graph) {
  const Target target = *Target::parse("h200");
  auto fused = fuse::fuse(graph);
  const cuda::KernelOptions options{target.gpu->sms, target.gpu->arch};
  for (fuse::Region& r : fused.regions) r.scratch_bytes = cuda::region_scratch_bytes(fused, r, options);
  place_intermediates(fused);
  std::string text;
  for (const fuse::Region& r : fused.regions) {
    const auto launches = cuda::region_launches(fused, r, options);
    EXPECT_TRUE(launches) << launches.status();
    if (launches)
      for (const cuda::Launch& l : *launches)
        text += fmt::format("{}// ===== {}, {} blocks of {} threads\n{}", text.empty() ? "" : "\n", l.name, l.grid,
                            l.block, l.text);
  }
  return text;
}

std::string first_difference(const std::string& golden, const std::string& now) {
  std::istringstream a(golden), b(now);
  std::string x, y;
  for (int line = 1;; ++line) {
    const bool more = bool(std::getline(a, x)), too = bool(std::getline(b, y));
    if (!more && !too) return "the end of the last line";
    if (more && too && x == y) continue;
    return fmt::format("line {}\n  golden: {}\n  now:    {}", line, more ? x : "(the end)", too ? y : "(the end)");
  }
}

class CudaGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaGolden, TextIsAsItWas) {
  const fs::path file = kSource / "examples/graphs" / (std::string(GetParam()) + ".json");
  if (!fs::exists(file)) GTEST_SKIP() << "the sources are not here: " << file;
  bool ok = false;
  const Json json = Json::parse(read(file), &ok);
  graph::Graph g;
  ASSERT_TRUE(ok && g.deserialize(json).is_good() && g.validate().is_good()) << file;
  const std::string now = pages(*g.impl().frozen.graph);
  const fs::path golden = kSource / "tests/golden" / (std::string(GetParam()) + ".cu");
  const char* write = std::getenv("TILEWRIGHT_GOLDEN");
  if (write && write == std::string_view("write")) {
    fs::create_directories(golden.parent_path());
    std::ofstream(golden, std::ios::binary) << now;
  }
  const std::string before = read(golden);
  EXPECT_TRUE(before == now) << golden.string() << " differs in " << first_difference(before, now)
                             << "\n`./dev golden` writes it anew; commit it with what changed it";
}

INSTANTIATE_TEST_SUITE_P(Graphs, CudaGolden,
                         ::testing::Values("causal_attention", "conv_bias_relu", "layernorm", "matmul_gelu", "maxpool",
                                           "softmax_from_primitives", "swiglu"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tilewright::testing
