// Pooling on the CPU with the pointwise nodes around it, against the reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engines/cpu/engine.h"
#include "fuse/regions.h"
#include "support/engine_check.h"
#include "support/ir_builder.h"
#include "support/random.h"

namespace tilewright::testing {
namespace {

using P = PointwiseMode_t;
using R = ReductionMode_t;
using D = DataType_t;
using ::testing::ElementsAre;

struct Window {
  ResampleMode_t mode = ResampleMode_t::MAXPOOL;
  Dims x = {2, 5, 12, 13}, window = {3, 3}, stride = {2, 2}, pre = {1, 1}, post = {1, 1};

  AttrMap attrs() const {
    return {{"resample_mode", to_string(mode)},
            {"window", window},
            {"stride", stride},
            {"pre_padding", pre},
            {"post_padding", post}};
  }
  Dims y() const {
    Dims dim = {x[0], x[1]};
    for (size_t d = 0; d < window.size(); ++d) dim.push_back((x[d + 2] + pre[d] + post[d] - window[d]) / stride[d] + 1);
    return dim;
  }
};

Window random_window(Random& random) {
  Window w;
  w.mode = random.of(
      {ResampleMode_t::MAXPOOL, ResampleMode_t::AVGPOOL_EXCLUDE_PADDING, ResampleMode_t::AVGPOOL_INCLUDE_PADDING});
  w.x = {random.between(1, 3), random.of({int64_t{1}, int64_t{5}, int64_t{17}, int64_t{300}})};
  w.window = {}, w.stride = {}, w.pre = {}, w.post = {};
  const int64_t rank = random.between(1, 3);
  for (int64_t d = 0; d < rank; ++d) {
    w.window.push_back(random.between(1, 4)), w.stride.push_back(random.between(1, 3));
    w.x.push_back(random.between(w.window.back(), w.window.back() + 7));
    w.pre.push_back(random.between(0, w.window.back() - 1)), w.post.push_back(random.between(0, w.window.back() - 1));
  }
  return w;
}

std::vector<std::string> region_names(const IrBuilder& b) {
  std::vector<std::string> list;
  for (const fuse::Region& r : fuse::fuse(b.graph).regions) list.push_back(r.name);
  return list;
}

TEST(CpuPool, TakesWhatIsAroundIt) {
  IrBuilder b;
  const Window w;
  auto x = b.input(w.x), scale = b.input({1, 5, 1, 1});
  AttrMap attrs = w.attrs();
  attrs["generate_index"] = false;
  auto y = b.op("resample", {b.pw(P::RELU_FWD, {b.pw(P::MUL, {x, scale})})}, attrs);
  auto z = b.pw(P::ADD, {y, b.input(w.y())});
  b.output(b.pw(P::TANH_FWD, {z}), D::HALF);
  EXPECT_THAT(region_names(b), ElementsAre("pooling mul+relu_fwd+resample+add+tanh_fwd"));
  EXPECT_EQ(fuse::fuse(b.graph).workspace_bytes, 0);
  check_engine(cpu_fused_engine(), b.graph);
}

TEST(CpuPool, ReductionsOfItsResultAndReadersOfItsIndexComeAfter) {
  IrBuilder b;
  const Window w;
  AttrMap attrs = w.attrs();
  attrs["generate_index"] = true;
  b.intermediate = D::FLOAT;
  auto out = b.node("resample", {b.pw(P::ABS, {b.input(w.x)})}, attrs);
  b.output(b.reduce(R::ADD, b.pw(P::NEG, {out[0]}), {1, 5, 1, 1}));
  b.output(b.pw(P::MUL, {out[0], out[1]}));
  EXPECT_EQ(fuse::fuse(b.graph).regions.size(), 3u) << fuse::fuse(b.graph).text();
  check_engine(cpu_fused_engine(), b.graph, {.fill = Fill::Integers});
}

TEST(CpuPool, RandomForward) {
  for (uint64_t seed : seeds(1, 80)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const Window w = random_window(random);
    const D type = random.of({D::FLOAT, D::HALF, D::BFLOAT16, D::DOUBLE});
    IrBuilder b;
    auto x = b.input(w.x, type, random.input_strides(w.x));
    Dims channel(w.x.size(), 1);
    channel[1] = w.x[1];
    if (random.one_in(2)) x = b.pw(P::MUL, {x, b.input(channel)});
    if (random.one_in(2)) x = b.pw(P::RELU_FWD, {x});
    AttrMap attrs = w.attrs();
    attrs["generate_index"] = w.mode == ResampleMode_t::MAXPOOL && random.one_in(2);
    auto out = b.node("resample", {x}, attrs);
    if (out[1] != ir::kNone) b.output(out[1], D::INT8, random.strides(w.y()));
    auto y = out[0];
    if (random.one_in(3)) b.output(y, type, random.strides(w.y()));
    if (random.one_in(2)) y = b.pw(P::ADD, {b.input(channel, type), y});
    if (random.one_in(2)) y = b.pw(P::SUB, {y, b.input(w.y(), type, random.input_strides(w.y()))});
    b.output(y, type, random.strides(w.y()));
    EXPECT_EQ(region_names(b).size(), 1u) << fuse::fuse(b.graph).text();
    check_engine(cpu_fused_engine(), b.graph, {.seed = seed, .fill = random.of({Fill::Random, Fill::Integers})});
  }
}

TEST(CpuPool, RandomBackward) {
  for (uint64_t seed : seeds(1, 80)) {
    SCOPED_TRACE(fmt::format("TILEWRIGHT_TEST_SEED={}", seed));
    Random random(seed);
    const Window w = random_window(random);
    const D type = random.of({D::FLOAT, D::HALF, D::BFLOAT16, D::DOUBLE});
    const bool by_index = w.mode == ResampleMode_t::MAXPOOL && random.one_in(2);
    IrBuilder b;
    auto dy = b.input(w.y(), type, random.input_strides(w.y())), x = ir::kNone, index = ir::kNone;
    if (random.one_in(2)) dy = b.pw(P::MUL, {dy, b.scalar(random.one_in(2) ? std::optional(0.5f) : std::nullopt)});
    if (by_index) index = b.input(w.y(), D::INT8);
    else x = b.input(w.x, type, random.input_strides(w.x));
    if (!by_index && random.one_in(2)) x = b.pw(P::ABS, {x});
    auto dx = b.op("resample_backward", {dy, x, index}, w.attrs(), w.x);
    if (random.one_in(2)) dx = b.pw(P::RELU_BWD, {dx, b.input(w.x, type, random.input_strides(w.x))});
    b.output(dx, type, random.strides(w.x));
    EXPECT_EQ(region_names(b).size(), 1u) << fuse::fuse(b.graph).text();
    check_engine(cpu_fused_engine(), b.graph, {.seed = seed, .fill = random.of({Fill::Random, Fill::Integers})});
  }
}

}  // namespace
}  // namespace tilewright::testing
