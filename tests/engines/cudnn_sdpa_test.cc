// Attention through cuDNN: the pattern, what the library's heuristics say to it, and on a GPU every plan's results.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "engines/cudnn/engine.h"
#include "engines/cudnn/operation_graph.h"
#include "frontend/builder.h"
#include "ops/attention_common.h"
#include "plan/device_copy.h"
#include "plan/judge.h"
#include "support/attention_case.h"
#include "support/cudnn_queue.h"
#include "support/cudnn_text.h"
#include "support/ir_builder.h"
#include "tilewright/score_modifiers.h"

namespace tilewright {
namespace {

using testing::AttentionCase;
using ::testing::HasSubstr;
using testing::RecordingCudnn;

constexpr int64_t kLength = 200;

struct Problem {
  std::string name;
  AttentionCase c;
  bool backward = false, heads_inside = false, deterministic = false, wide = false;
  int listed = 0, fallback = 0;  // configs of cuDNN 9.19 for an H200, as NVIDIA's front end gets them

  ir::Graph graph() const {
    ir::Graph g = backward ? c.backward() : c.forward();
    for (ir::Tensor& t : g.tensors) {
      const int64_t h = t.dim[1], s = t.dim[2], d = t.dim[3];
      if (heads_inside && d > 1 && d == (t.name == "V" || t.name == "O" || t.name == "dO" ? c.dv : c.dqk))
        t.stride = {h * s * d, d, h * d, 1};
      if (t.name == "dBias") t.type = c.type;
    }
    if (deterministic) g.nodes[0].attrs["is_deterministic_algorithm"] = true;
    return g;
  }
};
void PrintTo(const Problem& p, std::ostream* out) { *out << p.name << ": " << p.c.text(); }

AttentionCase plain_case(bool wide) {
  AttentionCase c;
  c.plain = true;
  c.type = wide ? DataType_t::BFLOAT16 : DataType_t::HALF;
  c.scale = 0.125;
  c.b = 2, c.hq = 4, c.hk = c.hv = wide ? 2 : 4;
  c.sq = wide ? 256 : 200, c.skv = wide ? 256 : 300;
  c.dqk = c.dv = wide ? 128 : 64;
  return c;
}

enum Direction { kForward = 1, kBackward = 2, kBoth = 3 };

class Table {
 public:
  // With heads of 64 and of 128.
  template <class Edit>
  void add(const std::string& name, int directions, Edit edit) {
    for (bool wide : {false, true})
      for (bool backward : {false, true})
        if (directions & (backward ? kBackward : kForward)) {
          Problem p{name + (wide ? "_d128" : "_d64") + (backward ? "_backward" : ""), plain_case(wide), backward};
          p.wide = wide;
          edit(p);
          if (p.listed == 0) expect_counts(p, wide);
          list.push_back(p);
        }
  }
  std::vector<Problem> list;

 private:
  static void expect_counts(Problem& p, bool wide) {
    const AttentionCase& c = p.c;
    if (p.backward) {
      p.listed = wide || p.deterministic || !c.dbias.empty() ? 2 : 3;
      return;
    }
    p.listed = wide ? 2 : 4;
    const bool one_operation =
        !c.left && !c.right && c.bias.empty() && c.dropout == 0 && !c.custom_dropout && !c.sink && !c.max && !c.sum_exp;
    p.fallback = one_operation ? 0 : !wide && (!c.bias.empty() || c.dropout > 0) ? 1 : 2;
  }
};

std::vector<Problem> problems() {
  Table t;
  t.add("full", kBoth, [](Problem&) {});
  t.add("no_scale", kBoth, [](Problem& p) { p.c.scale.reset(); });
  t.add("scale_tensor", kBoth, [](Problem& p) { p.c.scale_tensor = true; });
  t.add("stats", kForward, [](Problem& p) { p.c.stats = true; });
  t.add("causal", kBoth, [](Problem& p) { p.c.right = 0; });
  t.add("causal_stats", kForward, [](Problem& p) { p.c.right = 0, p.c.stats = true; });
  t.add("causal_bottom_right", kBoth, [](Problem& p) { p.c.right = 0, p.c.bottom_right = true; });
  t.add("window", kBoth, [](Problem& p) { p.c.right = 0, p.c.left = 64; });
  t.add("window_bottom_right", kBoth, [](Problem& p) { p.c.right = 0, p.c.left = 64, p.c.bottom_right = true; });
  t.add("left_bound", kBoth, [](Problem& p) { p.c.left = 64; });
  t.add("right_bound", kBoth, [](Problem& p) { p.c.right = 32; });
  t.add("band", kBoth, [](Problem& p) { p.c.right = 32, p.c.left = 48; });
  t.add("padding", kBoth, [](Problem& p) { p.c.padding = true; });
  t.add("padding_stats", kForward, [](Problem& p) { p.c.padding = p.c.stats = true; });
  t.add("padding_causal", kBoth, [](Problem& p) { p.c.padding = true, p.c.right = 0; });
  t.add("padding_causal_bottom_right", kBoth, [](Problem& p) { p.c.padding = p.c.bottom_right = true, p.c.right = 0; });
  t.add("padding_window_bottom_right", kBoth,
        [](Problem& p) { p.c.padding = p.c.bottom_right = true, p.c.right = 0, p.c.left = 64; });
  t.add("alibi", kBoth, [](Problem& p) { p.c.alibi = true, p.c.right = 0; });
  t.add("bias", kBoth, [](Problem& p) { p.c.bias = {1, p.c.hq, p.c.sq, p.c.skv}; });
  t.add("bias_per_batch_causal", kBoth, [](Problem& p) { p.c.bias = {p.c.b, 1, p.c.sq, p.c.skv}, p.c.right = 0; });
  t.add("dbias", kBackward, [](Problem& p) { p.c.bias = p.c.dbias = {1, p.c.hq, p.c.sq, p.c.skv}; });
  t.add("dbias_each", kBackward, [](Problem& p) { p.c.bias = p.c.dbias = {p.c.b, p.c.hq, p.c.sq, p.c.skv}; });
  t.add("dbias_no_scale_causal", kBackward, [](Problem& p) {
    p.c.bias = p.c.dbias = {1, p.c.hq, p.c.sq, p.c.skv}, p.c.scale.reset(), p.c.right = 0;
  });
  t.add("dbias_padding", kBackward, [](Problem& p) {
    p.c.bias = p.c.dbias = {1, p.c.hq, p.c.sq, p.c.skv}, p.c.padding = true;
  });
  t.add("deterministic_causal", kBackward, [](Problem& p) { p.deterministic = true, p.c.right = 0; });
  t.add("dropout_mask", kForward, [](Problem& p) { p.c.custom_dropout = true; });
  t.add("dropout_mask_causal", kForward, [](Problem& p) { p.c.custom_dropout = true, p.c.right = 0; });
  t.add("sink", kBoth, [](Problem& p) { p.c.sink = true; });
  t.add("sink_stats_causal", kBoth, [](Problem& p) { p.c.sink = p.c.stats = true, p.c.right = 0; });
  t.add("max_sum_exp", kForward, [](Problem& p) { p.c.max = p.c.sum_exp = true; });
  t.add("max_causal", kForward, [](Problem& p) { p.c.max = true, p.c.right = 0; });
  t.add("heads_inside", kBoth, [](Problem& p) { p.heads_inside = true; });
  t.add("heads_inside_causal", kBoth, [](Problem& p) { p.heads_inside = true, p.c.right = 0; });
  t.add("decode", kForward, [](Problem& p) { p.c.sq = 1, p.listed = p.wide ? 1 : 4; });
  t.add("decode_padding_stats", kForward,
        [](Problem& p) { p.c.sq = 1, p.c.padding = p.c.stats = true, p.listed = p.wide ? 1 : 4; });
  t.add("bias_padding_alibi_causal_stats", kForward, [](Problem& p) {
    p.c.bias = {1, p.c.hq, p.c.sq, p.c.skv}, p.c.padding = p.c.alibi = p.c.stats = true, p.c.right = 0;
  });
  return t.list;
}

std::vector<Problem> dropout_problems() {
  Table t;
  t.add("dropout", kBoth, [](Problem& p) { p.c.dropout = 0.1, p.c.dump = true; });
  t.add("dropout_causal_stats", kBoth,
        [](Problem& p) { p.c.dropout = 0.3, p.c.dump = p.c.stats = true, p.c.right = 0; });
  t.add("dropout_bias_padding_causal", kBoth, [](Problem& p) {
    p.c.dropout = 0.5, p.c.dump = p.c.padding = true, p.c.bias = {1, p.c.hq, p.c.sq, p.c.skv}, p.c.right = 0;
  });
  return t.list;
}

// On a GPU most kernels are compiled first, which takes long: of the wide problems a few.
std::vector<Problem> gpu_problems(std::vector<Problem> list) {
  const auto left_out = [](const Problem& p) {
    if (!p.wide) return false;
    for (const char* name : {"full_d", "causal_d", "decode_d", "window_bottom_right_d", "padding_causal_d", "dbias_d",
                             "deterministic_causal_d", "sink_stats_causal_d", "heads_inside_d", "dropout_d"})
      if (p.name.rfind(name, 0) == 0) return false;
    return true;
  };
  list.erase(std::remove_if(list.begin(), list.end(), left_out), list.end());
  return list;
}

std::string problem_name(const ::testing::TestParamInfo<Problem>& info) { return info.param.name; }

const Target& h200() {
  static const Target t = *Target::parse("h200");
  return t;
}

// --- the pattern -----------------------------------------------------------------------------------------------------

AttentionCase tiny() {
  AttentionCase c = plain_case(false);
  c.b = 1, c.hq = c.hk = c.hv = 2, c.sq = 3, c.skv = 5, c.dqk = c.dv = 8;
  return c;
}

std::string lowered_text(const ir::Graph& g, int64_t version = 91900) {
  const RecordingCudnn recorder(version);
  const cudnn::Lowered l = cudnn::Lowering(g, {0}, h200()).run();
  return l.reasons.empty() ? "\n" + testing::operations_text(l, g) : l.reasons[0].text;
}

TEST(CudnnSdpaPattern, PlainIsOneOperation) {
  AttentionCase c = tiny();
  c.stats = c.padding = true;
  EXPECT_EQ(lowered_text(c.forward()), R"(
O = sdpa Q K V scale=0.125 stats=Stats q=SEQ_LEN_Q kv=SEQ_LEN_KV
)");
}

TEST(CudnnSdpaPattern, Causal) {
  AttentionCase c = tiny();
  c.right = 0;
  EXPECT_EQ(lowered_text(c.forward()), R"(
%0[1, 2, 3, 5] = matmul Q K:[1, 2, 8, 5]
%1[1, 2, 3, 5] = MUL %0 0.125
%2:INT32[1, 2, 3, 5] = GEN_INDEX(2) %1
%3:INT32[1, 2, 3, 5] = GEN_INDEX(3) %1
%4:BOOLEAN[1, 2, 3, 5] = CMP_GE %2 %3
%5[1, 2, 3, 5] = BINARY_SELECT %1 -inf where %4
%6[1, 2, 3, 1] = reduce_MAX %5
%7[1, 2, 3, 5] = SUB %5 %6
%8[1, 2, 3, 5] = EXP %7
%9[1, 2, 3, 1] = reduce_ADD %8
%10[1, 2, 3, 1] = LOG %9
%11[1, 2, 3, 1] = ADD %6 %10
%12:HALF[1, 2, 3, 5] = DIV %8 %9
O = matmul %12 V
)");
}

TEST(CudnnSdpaPattern, OlderLibrariesHaveNoOneOperation) {
  EXPECT_THAT(lowered_text(tiny().forward(), 91300), HasSubstr("matmul Q K:[1, 2, 8, 5]"));
  EXPECT_THAT(lowered_text(tiny().forward(), 91301), HasSubstr("O = sdpa Q K V"));
}

TEST(CudnnSdpaPattern, EverythingAtOnce) {
  AttentionCase c = tiny();
  c.bias = {1, 2, 3, 5}, c.right = 2, c.left = 4;
  c.padding = c.sink = c.stats = c.custom_dropout = true;
  EXPECT_EQ(lowered_text(c.forward()), R"(
%0[1, 2, 3, 5] = matmul Q K:[1, 2, 8, 5] m=SEQ_LEN_Q n=SEQ_LEN_KV
%1[1, 2, 3, 5] = MUL %0 0.125
%2[1, 2, 3, 5] = ADD %1 Bias
%3:INT32[1, 2, 3, 5] = GEN_INDEX(2) %2
%4:INT32[1, 2, 3, 5] = GEN_INDEX(3) %2
%5:BOOLEAN[1, 2, 3, 5] = CMP_LT %3 SEQ_LEN_Q
%6:BOOLEAN[1, 2, 3, 5] = CMP_LT %4 SEQ_LEN_KV
%7:BOOLEAN[1, 2, 3, 5] = LOGICAL_AND %5 %6
%8[1, 2, 3, 5] = BINARY_SELECT %2 -inf where %7
%9:INT32[1, 2, 3, 5] = GEN_INDEX(2) %8
%10:INT32[1, 2, 3, 5] = GEN_INDEX(3) %8
%11:INT32[1, 2, 3, 5] = ADD %9 2:INT32
%12:BOOLEAN[1, 2, 3, 5] = CMP_GE %11 %10
%13[1, 2, 3, 5] = BINARY_SELECT %8 -inf where %12
%14:INT32[1, 2, 3, 5] = GEN_INDEX(2) %13
%15:INT32[1, 2, 3, 5] = GEN_INDEX(3) %13
%16[1, 2, 3, 5] = ADD %15 4
%17:BOOLEAN[1, 2, 3, 5] = CMP_GT %16 %14
%18[1, 2, 3, 5] = BINARY_SELECT %13 -inf where %17
%19[1, 2, 3, 1] = reduce_MAX %18
%20[1, 2, 3, 1] = MAX %19 SINK_TOKEN
%21[1, 2, 3, 5] = SUB %18 %20
%22[1, 2, 3, 5] = EXP %21
%23[1, 2, 3, 1] = SUB SINK_TOKEN %20
%24[1, 2, 3, 1] = EXP %23
%25[1, 2, 3, 1] = reduce_ADD %22
%26[1, 2, 3, 1] = ADD %25 %24
%27[1, 2, 3, 1] = LOG %26
Stats = ADD %20 %27
%28[1, 2, 3, 5] = DIV %22 %26
%29[1, 2, 3, 5] = MUL %28 1.25
%30:HALF[1, 2, 3, 5] = MUL %29 Dropout_mask
O = matmul %30 V m=SEQ_LEN_Q k=SEQ_LEN_KV
)");
}

TEST(CudnnSdpaPattern, AlibiSlopesAreInTheWorkspace) {
  AttentionCase c = tiny();
  c.alibi = c.max = true, c.right = 0;
  EXPECT_EQ(lowered_text(c.forward()), R"(
%0[1, 2, 3, 5] = matmul Q K:[1, 2, 8, 5]
%1[1, 2, 3, 5] = MUL %0 0.125
%2:INT32[1, 2, 3, 5] = GEN_INDEX(2) %1
%3:INT32[1, 2, 3, 5] = GEN_INDEX(3) %1
%4:INT32[1, 2, 3, 5] = SUB %3 %2
%5[1, 2, 3, 5] = MUL %4 ws0[1, 2, 1, 1]
%6[1, 2, 3, 5] = ADD %1 %5
%7:INT32[1, 2, 3, 5] = GEN_INDEX(2) %6
%8:INT32[1, 2, 3, 5] = GEN_INDEX(3) %6
%9:BOOLEAN[1, 2, 3, 5] = CMP_GE %7 %8
%10[1, 2, 3, 5] = BINARY_SELECT %6 -inf where %9
Max = reduce_MAX %10
%11[1, 2, 3, 5] = SUB %10 Max
%12[1, 2, 3, 5] = EXP %11
ws1[1, 2, 3, 1] = reduce_ADD %12
%13:HALF[1, 2, 3, 5] = DIV %12 ws1
O = matmul %13 V
)");
  const RecordingCudnn recorder;
  const cudnn::Lowered l = cudnn::Lowering(c.forward(), {0}, h200()).run();
  ASSERT_EQ(l.fills.size(), 1u);
  ASSERT_EQ(l.fills[0].data.size(), 8u);
  for (int64_t h = 0; h < 2; ++h)
    EXPECT_EQ(load_element(l.fills[0].data.data(), DataType_t::FLOAT, h), ops::alibi_slope(h, 2));
}

TEST(CudnnSdpaPattern, Backward) {
  AttentionCase c = tiny();
  c.hk = c.hv = 1;
  c.right = 0, c.bottom_right = true, c.padding = true;
  EXPECT_EQ(lowered_text(c.backward()), R"(
%0[1, 2, 3, 8]/[48, 24, 16, 1] = MUL dO O
%1[1, 2, 3, 1] = reduce_ADD %0
ws0[1, 2, 3, 1] = MUL %1 1
%2[1, 2, 3, 5] = matmul Q K:[1, 1, 8, 5] m=SEQ_LEN_Q n=SEQ_LEN_KV
%3[1, 2, 3, 5] = MUL %2 0.125
%4:INT32[1, 2, 3, 5] = GEN_INDEX(2) %3
%5:INT32[1, 2, 3, 5] = GEN_INDEX(3) %3
%6:BOOLEAN[1, 2, 3, 5] = CMP_LT %4 SEQ_LEN_Q
%7:BOOLEAN[1, 2, 3, 5] = CMP_LT %5 SEQ_LEN_KV
%8:BOOLEAN[1, 2, 3, 5] = LOGICAL_AND %6 %7
%9[1, 2, 3, 5] = BINARY_SELECT %3 -inf where %8
%10[1, 2, 3, 5] = SUB %9 Stats
%11:INT32[1, 2, 3, 5] = GEN_INDEX(2) %10
%12:INT32[1, 2, 3, 5] = GEN_INDEX(3) %10
%13:INT32[1, 2, 3, 5] = ADD %11 SEQ_LEN_KV
%14:INT32[1, 2, 3, 5] = SUB %13 SEQ_LEN_Q
%15:BOOLEAN[1, 2, 3, 5] = CMP_GE %14 %12
%16[1, 2, 3, 5] = BINARY_SELECT %10 -inf where %15
%17[1, 2, 3, 5] = EXP %16
%18:HALF[1, 2, 5, 3]/[30, 15, 1, 5] = reshape %17
%19:HALF[1, 2, 5, 8] = matmul %18 dO m=SEQ_LEN_KV k=SEQ_LEN_Q
dV = reduce_ADD %19
%20[1, 2, 3, 5] = matmul dO V:[1, 1, 8, 5] m=SEQ_LEN_Q n=SEQ_LEN_KV
%21[1, 2, 3, 5] = SUB %20 ws0
%22[1, 2, 3, 5] = MUL %21 %17
%23[1, 2, 3, 5] = MUL %22 0.125
%24:HALF[1, 2, 5, 3]/[30, 15, 1, 5] = reshape %23
%25:HALF[1, 2, 5, 8] = matmul %24 Q m=SEQ_LEN_KV k=SEQ_LEN_Q
dK = reduce_ADD %25
%26[1, 1, 5, 8] = reshape K:[1, 1, 8, 5]
ws1[1, 2, 3, 8] = matmul %23 %26 m=SEQ_LEN_Q k=SEQ_LEN_KV
dQ = IDENTITY ws1
)");
}

TEST(CudnnSdpaPattern, BackwardWithDropoutAndSink) {
  AttentionCase c = tiny();
  c.sink = true, c.dropout = 0.25, c.dbias = {1, 2, 3, 5};
  EXPECT_EQ(lowered_text(c.backward()), R"(
%0[1, 2, 3, 5] = bernoulli(0.75) 1234:INT64 5:INT64
%1[1, 2, 3, 8]/[48, 24, 16, 1] = MUL dO O
%2[1, 2, 3, 1] = reduce_ADD %1
%3[1, 2, 3, 1] = SUB SINK_TOKEN Stats
%4[1, 2, 3, 1] = EXP %3
%5[1, 2, 3, 1] = MUL %4 %2
DSINK_TOKEN = reduce_ADD %5
ws0[1, 2, 3, 1] = MUL %2 0.75
%6[1, 2, 3, 5] = matmul Q K:[1, 2, 8, 5]
%7[1, 2, 3, 5] = MUL %6 0.125
%8[1, 2, 3, 5] = SUB %7 Stats
%9[1, 2, 3, 5] = EXP %8
%10[1, 2, 3, 5] = MUL %9 %0
%11[1, 2, 3, 5] = MUL %10 1.3333333730697632
%12:HALF[1, 2, 5, 3]/[30, 15, 1, 5] = reshape %11
dV = matmul %12 dO
%13[1, 2, 3, 5] = matmul dO V:[1, 2, 8, 5]
%14[1, 2, 3, 5] = MUL %13 %0
%15[1, 2, 3, 5] = SUB %14 ws0
%16[1, 2, 3, 5] = MUL %15 %9
%17[1, 2, 3, 5] = MUL %16 1.3333333730697632
dBias = reduce_ADD %17
%18[1, 2, 3, 5] = MUL %17 0.125
%19:HALF[1, 2, 5, 3]/[30, 15, 1, 5] = reshape %18
dK = matmul %19 Q
%20[1, 2, 5, 8] = reshape K:[1, 2, 8, 5]
dQ = matmul %18 %20
)");
}

TEST(CudnnSdpaPattern, KeysBeyondTheLastTileGetLengthsUpTo9150) {
  const RecordingCudnn recorder(91500);
  const cudnn::Lowered l = cudnn::Lowering(tiny().backward(), {0}, h200()).run();
  ASSERT_TRUE(l.reasons.empty()) << l.reasons[0].text;
  ASSERT_EQ(l.fills.size(), 2u);
  EXPECT_EQ(load_element(l.fills[0].data.data(), DataType_t::INT32, 0), 3);
  EXPECT_EQ(load_element(l.fills[1].data.data(), DataType_t::INT32, 0), 5);
}

TEST(CudnnSdpaPattern, RefusalsNameTheNodeAndTheNumbers) {
  const auto refused = [](auto edit, bool backward = false) {
    AttentionCase c = tiny();
    edit(c);
    return lowered_text(backward ? c.backward() : c.forward());
  };
  using C = AttentionCase&;
  EXPECT_EQ(refused([](C c) { c.dqk = 12; }), "sdpa \"attention\": Q \"Q\" has head size 12; multiples of 8 serve");
  EXPECT_EQ(refused([](C c) { c.dqk = c.dv = 264; }, true),
            "sdpa_backward \"attention\": Q \"Q\" has head size 264; at most 256 serves on sm_90");
  EXPECT_EQ(refused([](C c) { c.type = DataType_t::FLOAT; }),
            "sdpa \"attention\": Q \"Q\" is FLOAT; HALF and BFLOAT16 serve");
  EXPECT_EQ(refused([](C c) { c.sq = 9, c.left = 2; }),
            "sdpa \"attention\": a left bound of 2 with more queries than keys (9 and 5) needs the padding mask");
  EXPECT_EQ(refused([](C c) { c.bottom_right = c.custom_dropout = true, c.right = 1; }),
            "sdpa \"attention\": a bottom-right aligned right bound of 1 is not served together with dropout");
  EXPECT_EQ(refused([](C c) { c.stats = c.max = true; }),
            "sdpa \"attention\": cuDNN 9.19.0 gives Stats, or Max and Sum_exp, but not both at once");
  EXPECT_EQ(refused([](C c) { c.sink = true, c.sq = 1; }),
            "sdpa \"attention\": a sink token is not served with one query");
  EXPECT_EQ(
      refused([](C c) { c.custom_dropout = true; }, true),
      "sdpa_backward \"attention\": cuDNN's gradient with a dropout mask is less exact than its types; dropout by "
      "probability is served");
  EXPECT_EQ(refused([](C c) { c.sq = c.skv = 1; }, true),
            "sdpa_backward \"attention\": the gradient for one query and one key is not served");
  EXPECT_EQ(lowered_text(tiny().forward(), 90500), "sdpa \"attention\": attention needs cuDNN 9.6 or newer, not 9.5.0");
  ir::Graph g = tiny().forward();
  g.nodes[0].attrs["implementation"] = std::string("UNIFIED");
  g.nodes[0].attrs["right_bound"] = int64_t(0);
  EXPECT_EQ(lowered_text(g), "sdpa \"attention\": as one operation, cuDNN 9.19.0 does not serve diagonal bounds");
}

// Attention written out, as a score_mod makes it.
struct Modified {
  const char* name;
  graph::Score_modifier modify;
};
std::vector<Modified> score_mods() {
  namespace sm = graph::attn::score_modifiers;
  using G = sm::GraphPtr;
  using T = graph::TensorPtr;
  return {{"none", [](G, T s) { return s; }},
          {"causal", [](G g, T s) { return sm::causal_mask(g, s); }},
          {"bottom_right", [](G g, T s) { return sm::causal_mask_bottom_right(g, s, kLength, kLength, {}, {}); }},
          {"softcap", [](G g, T s) { return sm::Softcap().forward(g, s, g->tensor(2.f)); }}};
}
ir::Graph modified(const Modified& m, bool stats) {
  graph::Graph g;
  g.set_io_data_type(DataType_t::HALF).set_intermediate_data_type(DataType_t::FLOAT);
  g.set_compute_data_type(DataType_t::FLOAT);
  const auto input = [&](const char* name) {
    return g.tensor(graph::Tensor_attributes()
                        .set_name(name)
                        .set_dim({2, 4, kLength, 64})
                        .set_stride({4 * kLength * 64, kLength * 64, 64, 1}));
  };
  const auto q = input("Q"), k = input("K"), v = input("V");
  auto attr = graph::SDPA_attributes().set_name("attention").set_generate_stats(stats);
  const auto out = g.sdpa(q, k, v, attr.set_attn_scale(0.125f).set_score_mod(m.modify));
  for (const auto& t : out)
    if (t) t->set_output(true);
  const Status s = g.validate();
  EXPECT_TRUE(s.is_good()) << s;
  return *g.impl().frozen.graph;
}

TEST(CudnnSdpaPattern, PlansSayWhoseNumbersDropoutDraws) {
  const RecordingCudnn recorder;
  AttentionCase c = tiny();
  for (double p : {0.0, 0.5}) {
    c.dropout = p;
    const Verdict v = cudnn_engine().propose(c.forward(), h200());
    ASSERT_TRUE(v.proposal) << v.reasons[0].text;
    const std::vector<std::string> notes = v.proposal->candidates()[0].notes;
    EXPECT_EQ(std::count(notes.begin(), notes.end(), "draws cuDNN's own random numbers"), p > 0);
  }
}

TEST(CudnnSdpaPattern, AScoreModIsWrittenOut) {
  const ir::Graph g = modified(score_mods()[3], true);
  const RecordingCudnn recorder;
  std::vector<ir::NodeId> nodes;
  for (size_t i = 0; i < g.nodes.size(); ++i) nodes.push_back(ir::NodeId(i));
  const cudnn::Lowered l = cudnn::Lowering(g, nodes, h200()).run();
  ASSERT_TRUE(l.reasons.empty()) << l.reasons[0].text;
  EXPECT_EQ("\n" + testing::operations_text(l, g), R"(
%0[2, 4, 200, 200] = matmul Q K:[2, 4, 64, 200]
%1[2, 4, 200, 200] = MUL %0 0.125
%2[2, 4, 200, 200] = DIV %1 2
%3[2, 4, 200, 200] = TANH_FWD %2
%4[2, 4, 200, 200] = MUL %3 2
%5[2, 4, 200, 1] = reduce_MAX %4
%6[2, 4, 200, 200] = SUB %4 %5
%7[2, 4, 200, 200] = EXP %6
%8[2, 4, 200, 1] = reduce_ADD %7
%9[2, 4, 200, 1] = LOG %8
attention::softmax::Stats = ADD %5 %9
%10:HALF[2, 4, 200, 200] = DIV %7 %8
attention::O::C = matmul %10 V
)");
}

// --- what the library says -------------------------------------------------------------------------------------------

std::shared_ptr<cudnn::OperationGraph> operation_graph(const ir::Graph& g, const Target& target) {
  auto lowered = std::make_shared<cudnn::Lowered>(cudnn::Lowering(g, {0}, target).run());
  EXPECT_TRUE(lowered->reasons.empty()) << lowered->reasons[0].text;
  if (!lowered->reasons.empty()) return nullptr;
  auto made = cudnn::OperationGraph::make(lowered, target, false);
  EXPECT_TRUE(made) << made.status();
  return made ? *made : nullptr;
}

class CudnnSdpaHeuristics : public ::testing::TestWithParam<Problem> {};

TEST_P(CudnnSdpaHeuristics, ListTheKernels) {
  if (!cudnn::lookup().calls) GTEST_SKIP() << cudnn::lookup().problem;
  const auto graph = operation_graph(GetParam().graph(), h200());
  ASSERT_TRUE(graph);
  if (!dlopen("libcuda.so.1", RTLD_LAZY))
    GTEST_SKIP() << "without libcuda.so.1 cuDNN lists no attention; the toolkit's stub of it would do";
  const auto& a = graph->heuristics(HeurMode_t::A);
  EXPECT_GT(a.count, 0) << (a.refusals.empty() ? "" : a.refusals[0]);
  if (cudnn::lookup().version != 91900) return;
  EXPECT_EQ(a.count, GetParam().listed);
  EXPECT_EQ(graph->heuristics(HeurMode_t::FALLBACK).count, GetParam().fallback);
}

TEST(CudnnSdpaScoreMods, TheKernelsAreListed) {
  if (!cudnn::lookup().calls) GTEST_SKIP() << cudnn::lookup().problem;
  if (!dlopen("libcuda.so.1", RTLD_LAZY)) GTEST_SKIP() << "without libcuda.so.1 cuDNN lists no attention";
  for (const Modified& m : score_mods())
    for (bool stats : {false, true}) {
      const Verdict v = cudnn_engine().propose(modified(m, stats), h200());
      ASSERT_TRUE(v.proposal) << m.name << ": " << v.reasons[0].text;
      for (const Candidate& c : v.proposal->candidates()) EXPECT_EQ(c.kernel_count, 1) << m.name;
      if (cudnn::lookup().version == 91900) {
        EXPECT_EQ(v.proposal->candidates().size(), 6u) << m.name;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Problems, CudnnSdpaHeuristics, ::testing::ValuesIn(problems()), problem_name);
INSTANTIATE_TEST_SUITE_P(Dropout, CudnnSdpaHeuristics, ::testing::ValuesIn(dropout_problems()), problem_name);

// A random problem in types and sizes that cuDNN may take.
Problem random_problem(testing::Random& r, bool backward) {
  Problem p{"random", testing::random_attention(r, 300, backward), backward};
  AttentionCase& c = p.c;
  c.plain = true, c.dropout = 0, c.compute = DataType_t::FLOAT;
  c.type = r.of({DataType_t::HALF, DataType_t::BFLOAT16});
  c.dqk = 8 * r.between(1, 16), c.dv = r.one_in(2) ? c.dqk : 8 * r.between(1, 16);
  const auto fit = [&](Dims& dims) {
    const Dims whole = {c.b, c.hq, c.sq, c.skv};
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = dims[d] == 1 ? 1 : whole[d];
  };
  fit(c.bias), fit(c.dbias);
  c.custom_dropout = c.custom_dropout && !backward;
  p.heads_inside = r.one_in(3);
  return p;
}

TEST(CudnnSdpaRandom, ProblemsAreTakenOrRefusedWithReasons) {
  if (!cudnn::lookup().calls) GTEST_SKIP() << cudnn::lookup().problem;
  if (!dlopen("libcuda.so.1", RTLD_LAZY)) GTEST_SKIP() << "without libcuda.so.1 cuDNN lists no attention";
  int taken = 0, refused = 0;
  for (uint64_t seed : testing::seeds(1, 100)) {
    testing::Random random(seed);
    const Problem p = random_problem(random, seed % 2 == 0);
    const Verdict v = cudnn_engine().propose(p.graph(), h200());
    ++(v.proposal ? taken : refused);
    if (v.proposal) continue;
    ASSERT_FALSE(v.reasons.empty()) << p.c.text();
    for (const Reason& r : v.reasons) EXPECT_EQ(r.text.find('\n'), std::string::npos) << r.text;
  }
  EXPECT_GT(taken, refused);
}

// --- results on a GPU ------------------------------------------------------------------------------------------------

class CudnnSdpaPlansGpu : public testing::CudnnGpu {
 protected:
  // Calls visit(executable, config) for every plan.
  // Visits with the plan, its configuration's name and its notes.
  template <class Visit>
  void for_each_plan(const ir::Graph& g, Visit visit) {
    const Verdict v = cudnn_engine().propose(g, target_);
    ASSERT_TRUE(v.proposal) << (v.reasons.empty() ? "" : v.reasons[0].text);
    int plans = 0;
    for (const Candidate& c : v.proposal->candidates()) {
      if (!c.reasons.empty()) continue;
      const auto artifact = v.proposal->compile(c.config, nullptr);
      if (!artifact) {  // as NVIDIA's front end passes over it
        std::printf("[ not built ] %s: %s\n", c.config.c_str(), artifact.status().err_msg.c_str());
        continue;
      }
      const auto plan = cudnn_engine().load(g, *artifact, target_, nullptr);
      ASSERT_TRUE(plan) << c.config << ": " << plan.status();
      if constexpr (std::is_invocable_v<Visit, const Executable&, const std::string&>) visit(**plan, c.config);
      else visit(**plan, c.config, c.notes);
      ++plans;
    }
    EXPECT_GT(plans, 0);
  }

  void check_every_plan(const ir::Graph& g) {
    Harness harness(g, {.seed = 1});
    for_each_plan(g, [&](const Executable& plan, const std::string& config) {
      const Status s = harness.check_run(plan, queue_);
      EXPECT_TRUE(s.is_good()) << config << ": " << s;
    });
  }

  // The plan's outputs, into the harness's memory.
  Status run(Harness& h, const ir::Graph& g, const Executable& plan) {
    h.poison_outputs();
    h.workspace(plan.workspace_bytes());
    TW_ASSIGN_OR_RETURN(DeviceCopy copy, DeviceCopy::make(g, h, 0));
    TW_RETURN_IF_BAD(copy.upload());
    TW_RETURN_IF_BAD(plan.run(copy.bindings(), copy.workspace(), queue_));
    TW_RETURN_IF_BAD(copy.download());
    return h.check_memory();
  }

  static std::string outputs(const Harness& h, const ir::Graph& g) {
    std::string bits;
    for (ir::TensorId t : g.nodes[0].out)
      if (t != ir::kNone) bits.append(static_cast<const char*>(h.memory(t)), size_t(h.buffer(t).bytes()));
    return bits;
  }
};

// A pointwise node in front of it, or behind it, is a plan of its own.
TEST_F(CudnnSdpaPlansGpu, NodesAround) {
  using P = PointwiseMode_t;
  for (bool causal : {false, true})
    for (P mode : {P::RELU_FWD, P::GELU_FWD, P::MUL, P::ADD})
      for (bool behind : {false, true}) {
        SCOPED_TRACE(
            fmt::format("{} {} it{}", to_string(mode), behind ? "behind" : "before", causal ? ", causal" : ""));
        testing::IrBuilder b;
        b.intermediate = DataType_t::HALF;
        const auto operand = [&] { return b.input({2, 4, 200, 64}, DataType_t::HALF); };
        const auto node = [&](ir::TensorId x) {
          return mode == P::MUL || mode == P::ADD ? b.pw(mode, {x, operand()}) : b.pw(mode, {x});
        };
        AttrMap attrs = {{"attn_scale_value", 0.125}};
        if (causal) attrs["right_bound"] = int64_t(0);
        const auto q = operand(), k = operand(), v = operand();
        const auto o = b.op("sdpa", {q, behind ? k : node(k), v}, attrs);
        b.output(behind ? node(o) : o, DataType_t::HALF);
        check_every_plan(b.graph);
      }
}

// Two plans in one graph, with the row statistics, and O, given by the caller or between the plans.
TEST_F(CudnnSdpaPlansGpu, ForwardAndBackward) {
  for (bool between : {false, true}) {
    SCOPED_TRACE(between ? "O and Stats virtual" : "O and Stats are outputs");
    testing::IrBuilder b;
    b.intermediate = DataType_t::HALF;
    const Dims dim = {2, 4, 256, 64};
    const auto operand = [&] { return b.input(dim, DataType_t::HALF); };
    const AttrMap causal = {{"attn_scale_value", 0.125}, {"right_bound", int64_t(0)}};
    AttrMap forward = causal;
    forward["generate_stats"] = true;
    const auto q = operand(), k = operand(), v = operand(), d_o = operand();
    const auto out = b.node("sdpa", {q, k, v}, forward);
    b.graph.tensors[size_t(out[1])].type = DataType_t::FLOAT;
    if (!between) b.output(out[0], DataType_t::HALF), b.output(out[1]);
    std::vector<ir::TensorId> in(ir::find_op("sdpa_backward")->inputs.size(), ir::kNone);
    in[ops::kQ] = q, in[ops::kK] = k, in[ops::kV] = v;
    in[ops::kO] = out[0], in[ops::kDO] = d_o, in[ops::kStatsIn] = out[1];
    const auto gradients = b.node("sdpa_backward", in, causal);
    for (size_t port : {size_t(ops::kOutDQ), size_t(ops::kOutDK), size_t(ops::kOutDV)})
      b.output(gradients[port], DataType_t::HALF);
    check_every_plan(b.graph);
  }
}

// What the workspace must hold is part of the CUDA graph.
TEST_F(CudnnSdpaPlansGpu, CudaGraphs) {
  AttentionCase c = plain_case(false);
  c.right = 0, c.alibi = true;
  for (bool backward : {false, true}) {
    const ir::Graph g = backward ? c.backward() : c.forward();
    for_each_plan(g, [&](const Executable& plan, const std::string& config) {
      SCOPED_TRACE(config);
      cuda::CUgraph graph = nullptr;
      ASSERT_EQ(cuda::driver().graph_create(&graph, 0), cuda::kSuccess);
      for (uint64_t round = 0; round < 2; ++round) {  // made, then given other memory
        Harness harness(g, {.seed = round});
        harness.poison_outputs();
        harness.workspace(plan.workspace_bytes());
        auto copy = DeviceCopy::make(g, harness, 0);
        ASSERT_TRUE(copy && copy->upload().is_good());
        const auto give = round == 0 ? &Executable::populate_cuda_graph : &Executable::update_cuda_graph;
        Status s = (plan.*give)(graph, copy->bindings(), copy->workspace(), queue_);
        ASSERT_TRUE(s.is_good()) << s;
        cuda::CUgraphExec exec = nullptr;
        ASSERT_EQ(cuda::driver().graph_instantiate(&exec, graph, 0), cuda::kSuccess);
        ASSERT_EQ(cuda::driver().graph_launch(exec, stream_), cuda::kSuccess);
        wait();
        ASSERT_TRUE(copy->download().is_good());
        s = harness.check();
        EXPECT_TRUE(s.is_good()) << "round " << round << ": " << s;
        cuda::driver().graph_exec_destroy(exec);
      }
      cuda::driver().graph_destroy(graph);
    });
  }
}

TEST_F(CudnnSdpaPlansGpu, ScoreMods) {
  for (const Modified& m : score_mods())
    for (bool stats : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", m.name, stats ? " with stats" : ""));
      check_every_plan(modified(m, stats));
    }
}

// What cuDNN takes it computes.
TEST_F(CudnnSdpaPlansGpu, RandomProblems) {
  int taken = 0;
  for (uint64_t seed : testing::seeds(1, 40)) {
    testing::Random random(seed);
    const Problem p = random_problem(random, seed % 2 == 0);
    SCOPED_TRACE(fmt::format("seed {}: {}{}", seed, p.c.text(), p.backward ? " backward" : ""));
    const ir::Graph g = p.graph();
    const Verdict v = cudnn_engine().propose(g, target_);
    if (!v.proposal) {
      ASSERT_FALSE(v.reasons.empty());
      continue;
    }
    const std::string config = v.proposal->candidates()[0].config;
    const auto artifact = v.proposal->compile(config, nullptr);
    if (!artifact) {
      std::printf("[ not built ] seed %d %s: %s\n", int(seed), config.c_str(), artifact.status().err_msg.c_str());
      continue;
    }
    const auto plan = cudnn_engine().load(g, *artifact, target_, nullptr);
    ASSERT_TRUE(plan) << plan.status();
    Harness harness(g, {.seed = seed});
    const Status s = harness.check_run(**plan, queue_);
    EXPECT_TRUE(s.is_good()) << config << ": " << s;
    ++taken;
  }
  std::printf("[   taken   ] %d\n", taken);
  EXPECT_GT(taken, 0);
}

class CudnnSdpaGpu : public CudnnSdpaPlansGpu, public ::testing::WithParamInterface<Problem> {};

TEST_P(CudnnSdpaGpu, EveryPlanIsRight) {
  const ir::Graph g = GetParam().graph();
  Judges judges(g);
  for_each_plan(g, [&](const Executable& plan, const std::string& config, const std::vector<std::string>& notes) {
    Harness harness(judges.of(notes), {.seed = 1});
    const Status s = harness.check_run(plan, queue_);
    EXPECT_TRUE(s.is_good()) << config << ": " << s;
    if (GetParam().deterministic) {
      const std::string bits = outputs(harness, g);
      EXPECT_TRUE(run(harness, g, plan).is_good() && outputs(harness, g) == bits) << config << " twice";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Problems, CudnnSdpaGpu, ::testing::ValuesIn(gpu_problems(problems())), problem_name);

// cuDNN draws numbers of its own, so each plan's mask is read back, and the reference given it as a dropout mask.
class CudnnSdpaDropoutGpu : public CudnnSdpaPlansGpu, public ::testing::WithParamInterface<Problem> {
 protected:
  static ir::TensorId find(const ir::Graph& g, const std::string& name) {
    for (size_t t = 0; t < g.tensors.size(); ++t)
      if (g.tensors[t].name == name) return ir::TensorId(t);
    return ir::kNone;
  }
  // The same with the mask as an input.
  static Problem with_mask(const Problem& from) {
    Problem p = from;
    p.c.dropout = 0, p.c.dump = false, p.c.custom_dropout = true;
    return p;
  }
};

TEST_P(CudnnSdpaDropoutGpu, EveryPlanIsRightForItsMask) {
  const Problem& problem = GetParam();
  const ir::Graph g = problem.graph();
  ir::Graph masked = with_mask(problem).graph();
  const double keep = 1 - problem.c.dropout;
  masked.tensors[size_t(find(masked, "Dropout_scale"))].value = float(1 / keep);
  Harness harness(g, {.seed = 1}), judge(masked, {.seed = 1});
  const ir::TensorId dump = find(g, "RNG_DUMP"), mask = find(masked, "Dropout_mask");
  for_each_plan(g, [&](const Executable& plan, const std::string& config) {
    Status s = run(harness, g, plan);
    ASSERT_TRUE(s.is_good()) << config << ": " << s;
    for (size_t t = 0; t < masked.tensors.size(); ++t)
      if (const ir::TensorId same = find(g, masked.tensors[t].name); same != ir::kNone && harness.memory(same))
        std::memcpy(judge.memory(ir::TensorId(t)), harness.memory(same), size_t(judge.buffer(ir::TensorId(t)).bytes()));
    ASSERT_EQ(judge.buffer(mask).bytes(), harness.buffer(dump).bytes());
    std::memcpy(judge.memory(mask), harness.memory(dump), size_t(judge.buffer(mask).bytes()));
    judge.inputs_changed();
    s = judge.check();
    EXPECT_TRUE(s.is_good()) << config << ": " << s;
    // Where a mask excludes whole tiles, nothing is drawn.
    const auto* kept = static_cast<const float*>(harness.memory(dump));
    double sum = 0, drawn = 0;
    for (int64_t i = 0; i < volume(g.tensor(dump).dim); ++i)
      if (!std::isnan(kept[i])) sum += kept[i], ++drawn;
    EXPECT_GT(drawn, 1000);
    EXPECT_NEAR(sum / drawn, keep, 6 * std::sqrt(keep * (1 - keep) / drawn)) << config;
  });
}

INSTANTIATE_TEST_SUITE_P(Dropout, CudnnSdpaDropoutGpu, ::testing::ValuesIn(gpu_problems(dropout_problems())),
                         problem_name);

}  // namespace
}  // namespace tilewright
