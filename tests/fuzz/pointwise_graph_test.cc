// Random graphs of pointwise nodes, reductions, views and matrix products through every configuration of cpu.fused.
#include <gtest/gtest.h>

#include "engines/cpu/engine.h"
#include "support/engine_check.h"
#include "support/pointwise_graph.h"

namespace tilewright::testing {
namespace {

TEST(PointwiseGraphFuzz, EveryConfigurationIsRight) {
  for (uint64_t seed : seeds(1, 400)) {
    Random random(seed);
    const ir::Graph graph = PointwiseGraphMaker(random).make();
    const Fill fill = random.one_in(2) ? Fill::Integers : Fill::Random;
    check_engine(cpu_fused_engine(), graph, {.seed = seed, .fill = fill, .tight_alignment = random.one_in(4)});
    ASSERT_FALSE(HasFailure()) << "TILEWRIGHT_TEST_SEED=" << seed
                               << " build/bin/tilewright_tests --gtest_filter=PointwiseGraphFuzz.*";
  }
}

}  // namespace
}  // namespace tilewright::testing
