// Convolutions of many small groups on the CPU against the reference: every op, layout, type and edge, and the same
// bits for any number of threads.
#include <gtest/gtest.h>

#include <cstring>

#include "base/thread_pool.h"
#include "engines/cpu/engine.h"
#include "support/engine_check.h"
#include "support/every_target.h"
#include "support/ir_builder.h"
#include "support/random.h"

namespace tilewright::testing {
namespace {

using P = PointwiseMode_t;
using R = ReductionMode_t;
using D = DataType_t;

// One grouped convolution with what may surround it.
struct GroupedCase {
  explicit GroupedCase(Random& r) : random(r) {
    const size_t rank = size_t(r.of({1, 2, 2, 2, 3}));
    // Depthwise, groups of a power of two, a multiplier, or any.
    const int64_t kind = r.between(0, 3);
    const int64_t c = kind == 0 ? 1 : kind == 1 ? r.of({2, 4, 8, 16}) : kind == 2 ? 1 : r.between(1, 9);
    const int64_t k = kind == 0 || kind == 1 ? c : r.between(1, 9);
    const int64_t groups = r.between(2, r.one_in(5) ? 300 / std::max(c, k) : 40 / std::max(c, k) + 2);
    x = {r.between(1, 3), groups * c}, w = {groups * k, c}, y = {x[0], groups * k};
    for (size_t d = 0; d < rank; ++d) {
      if (rank > 1 && r.one_in(6)) {  // an axis of no consequence
        x.push_back(1), w.push_back(1), y.push_back(1);
        pre.push_back(0), post.push_back(0), stride.push_back(1), dilation.push_back(1);
        continue;
      }
      const int64_t filter = r.one_in(6) ? 7 : r.between(1, rank == 3 ? 3 : 5);
      pre.push_back(r.between(0, filter)), post.push_back(r.between(0, filter));
      stride.push_back(r.between(1, 3)), dilation.push_back(r.one_in(3) ? r.between(2, 3) : 1);
      const int64_t reach = dilation[d] * (filter - 1) + 1;
      // Sizes around a vector, a run of positions and a block of lanes; padding may leave no position without it.
      const int64_t longest = r.one_in(12) ? 300 : rank == 1 ? 70 : rank == 2 ? 20 : 6;
      const int64_t in = std::max<int64_t>(1, reach - pre[d] - post[d]) + r.between(0, longest / (d + 1));
      x.push_back(in), w.push_back(filter), y.push_back((in + pre[d] + post[d] - reach) / stride[d] + 1);
    }
    if (volume(y) * w[1] * volume(w) / w[0] > 2000000) x[0] = y[0] = 1;
    flip = r.one_in(3);
  }

  Random& random;
  Dims x, w, y, pre, post, stride, dilation;
  bool flip;

  // Layouts that matter: channels last, row-major, any.
  Dims strides(const Dims& dim) const {
    return random.one_in(2)   ? channels_last_strides(dim)
           : random.one_in(2) ? row_major_strides(dim)
                              : random.strides(dim);
  }

  ir::Graph graph() const {
    IrBuilder b;
    const D type = random.of({D::FLOAT, D::FLOAT, D::FLOAT, D::HALF, D::BFLOAT16, D::DOUBLE, D::INT8});
    if (type == D::INT8) b.compute = b.intermediate = D::INT32;
    if (type == D::DOUBLE) b.compute = b.intermediate = D::DOUBLE;
    const D stored = type == D::INT8 ? D::INT32 : type;
    const char* op = random.of({"conv_fprop", "conv_dgrad", "conv_wgrad"});
    const bool fprop = !std::strcmp(op, "conv_fprop"), dgrad = !std::strcmp(op, "conv_dgrad");
    const auto operand = [&](const Dims& dim) {
      const ir::TensorId t = b.input(dim, type, strides(dim));
      return type != D::INT8 && random.one_in(5) ? b.pw(P::RELU_FWD, {t}) : t;
    };
    const ir::TensorId first = operand(fprop ? x : y), second = operand(fprop || dgrad ? w : x);
    const Dims out = fprop ? y : dgrad ? x : w;
    ir::TensorId result =
        b.op(op, {first, second},
             {{"pre_padding", pre},
              {"post_padding", post},
              {"stride", stride},
              {"dilation", dilation},
              {"math_mode", to_string(flip ? ConvolutionMode_t::CONVOLUTION : ConvolutionMode_t::CROSS_CORRELATION)}},
             out);
    if (type != D::INT8 && random.one_in(2)) {
      Dims channel(out.size(), 1);
      channel[1] = out[1];
      result = b.pw(P::ADD, {result, b.input(channel)});
      if (random.one_in(2)) result = b.pw(P::RELU_FWD, {result});
      if (random.one_in(3)) result = b.pw(P::ADD, {result, b.input(out, type, strides(out))});
    }
    if (type != D::INT8 && random.one_in(4)) {
      Dims kept = out;
      for (int64_t& extent : kept)
        if (random.one_in(2)) extent = 1;
      b.output(b.reduce(random.of({R::ADD, R::MAX, R::AMAX}), result, kept), type == D::DOUBLE ? D::DOUBLE : D::FLOAT);
    }
    b.output(result, stored, strides(out));
    return b.graph;
  }
};

TEST(CpuDirect, RandomGroupedConvolutions) {
  for (uint64_t seed : seeds(1, 400)) {
    Random random(seed);
    const ir::Graph graph = GroupedCase(random).graph();
    check_engine(
        cpu_fused_engine(), graph,
        {.seed = seed, .fill = random.one_in(2) ? Fill::Integers : Fill::Random, .tight_alignment = random.one_in(4)});
    if (HasFailure()) FAIL() << "TILEWRIGHT_TEST_SEED=" << seed;
  }
}

TEST(CpuDirect, EveryInstructionSet) {
  on_every_target([] {
    for (uint64_t seed : seeds(1001, 60)) {
      Random random(seed);
      check_engine(cpu_fused_engine(), GroupedCase(random).graph(), {.seed = seed});
      if (HasFailure()) FAIL() << "TILEWRIGHT_TEST_SEED=" << seed;
    }
  });
}

IrBuilder depthwise(const char* op, const Dims& x, const Dims& filter, D type = D::FLOAT) {
  IrBuilder b;
  Dims w = {x[1], 1}, y = {x[0], x[1]}, pad, one;
  for (size_t d = 0; d < filter.size(); ++d)
    w.push_back(filter[d]), pad.push_back(filter[d] / 2), one.push_back(1), y.push_back(x[d + 2]);
  const bool fprop = !std::strcmp(op, "conv_fprop"), dgrad = !std::strcmp(op, "conv_dgrad");
  const auto in = [&](const Dims& dim) { return b.input(dim, type, channels_last_strides(dim)); };
  b.output(b.conv(op, in(fprop ? x : y), in(fprop || dgrad ? w : x), pad, one, one,
                  fprop   ? y
                  : dgrad ? x
                          : w),
           type,
           channels_last_strides(fprop   ? y
                                 : dgrad ? x
                                         : w));
  return b;
}

TEST(CpuDirect, IsChosenForDepthwise) {
  for (const char* op : {"conv_fprop", "conv_dgrad", "conv_wgrad"}) {
    const IrBuilder b = depthwise(op, {2, 33, 12, 11}, {3, 3});
    const Verdict v = cpu_fused_engine().propose(b.graph, test_target());
    ASSERT_TRUE(v.proposal);
    EXPECT_NE(v.proposal->explain().find("directly, lanes along channels"), std::string::npos) << v.proposal->explain();
  }
}

TEST(CpuDirect, NotANumberReachesWhatItMeetsAndNothingElse) {
  for (const char* op : {"conv_fprop", "conv_dgrad"}) {
    const IrBuilder b = depthwise(op, {1, 20, 9, 9}, {3, 3});
    Harness harness(b.graph, {.fill = Fill::Integers});
    float* x = static_cast<float*>(harness.memory(b.graph.nodes[0].in[0]));
    x[(4 * 9 + 4) * 20 + 7] = std::numeric_limits<float>::quiet_NaN();
    x[(0 * 9 + 8) * 20 + 19] = std::numeric_limits<float>::infinity();
    harness.inputs_changed();
    const Status s = harness.check_run(*load_plan(cpu_fused_engine(), b.graph, "fuse=all"));
    EXPECT_TRUE(s.is_good()) << s.err_msg;
  }
}

TEST(CpuDirect, SameBitsForAnyNumberOfThreads) {
  for (const char* op : {"conv_fprop", "conv_dgrad", "conv_wgrad"}) {
    const IrBuilder b = depthwise(op, {3, 70, 40, 37}, {3, 5}, D::BFLOAT16);
    Harness harness(b.graph);
    const auto plan = load_plan(cpu_fused_engine(), b.graph, "fuse=all");
    const ir::TensorId out = b.graph.nodes[0].out[0];
    std::vector<char> one;
    for (int threads : {1, 2, 3}) {
      set_thread_count(threads);
      harness.poison_outputs();
      ASSERT_TRUE(plan->run(harness.bindings(), harness.workspace(plan->workspace_bytes()), {}).is_good());
      const char* bytes = static_cast<const char*>(harness.memory(out));
      const std::vector<char> now(bytes, bytes + b.graph.tensor(out).storage_bytes());
      if (threads == 1) one = now;
      EXPECT_TRUE(now == one) << op << ", " << threads << " threads";
    }
    set_thread_count(0);
  }
}

}  // namespace
}  // namespace tilewright::testing
