// Each modifier applied to a tensor of scores, against the rule written as a loop.
#include "tilewright/score_modifiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace tilewright::graph {
namespace {

namespace sm = attn::score_modifiers;
constexpr int64_t kB = 2, kH = 3, kQ = 4, kK = 6;
constexpr float kInf = std::numeric_limits<float>::infinity();

class ScoreModifiers : public testing::Test {
 protected:
  ScoreModifiers() {
    graph->set_io_data_type(DataType_t::FLOAT)
        .set_intermediate_data_type(DataType_t::FLOAT)
        .set_compute_data_type(DataType_t::FLOAT);
    score = add_tensor("score", {kB, kH, kQ, kK});
    scores.resize(size_t(kB * kH * kQ * kK));
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = 0.25f * float(i % 37) - 4.f;
    pack[score] = scores.data();
  }

  TensorPtr add_tensor(const char* name, const std::vector<int64_t>& dim, DataType_t type = DataType_t::FLOAT) {
    std::vector<int64_t> stride(dim.size(), 1);
    for (size_t i = dim.size(); i-- > 1;) stride[i - 1] = stride[i] * dim[i];
    return graph->tensor(Tensor_attributes().set_name(name).set_dim(dim).set_stride(stride).set_data_type(type));
  }
  // INT32 [b,1,1,1]
  TensorPtr lengths(const char* name, std::vector<int32_t>& values) {
    TensorPtr t = add_tensor(name, {kB, 1, 1, 1}, DataType_t::INT32);
    pack[t] = values.data();
    return t;
  }

  // Executes the graph for `y` and compares it with rule(b, h, q, k, score); every value here is exact.
  template <class Rule>
  void expect(const TensorPtr& y, const Rule& rule) {
    y->set_output(true).set_data_type(DataType_t::FLOAT);
    std::vector<float> result(scores.size(), -99.f);
    pack[y] = result.data();
    const error_t built = graph->build({HeurMode_t::A, HeurMode_t::FALLBACK});
    ASSERT_TRUE(built.is_good()) << built.get_message();
    std::vector<char> workspace(size_t(graph->get_workspace_size()));
    const error_t done = graph->execute(nullptr, pack, workspace.data());
    ASSERT_TRUE(done.is_good()) << done.get_message();
    size_t i = 0;
    for (int64_t b = 0; b < kB; ++b) {
      for (int64_t h = 0; h < kH; ++h) {
        for (int64_t q = 0; q < kQ; ++q) {
          for (int64_t k = 0; k < kK; ++k, ++i) {
            EXPECT_EQ(result[i], rule(b, h, q, k, scores[i])) << b << " " << h << " " << q << " " << k;
          }
        }
      }
    }
  }

  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  TensorPtr score;
  std::vector<float> scores;
  std::unordered_map<TensorPtr, void*> pack;
};

TEST_F(ScoreModifiers, CausalKeepsKeysUpToTheRow) {
  expect(sm::causal_mask(graph, score),
         [](int64_t, int64_t, int64_t q, int64_t k, float s) { return k <= q ? s : -kInf; });
}

TEST_F(ScoreModifiers, CausalBottomRightEndsInTheLastKey) {
  expect(sm::causal_mask_bottom_right(graph, score, kQ, kK, nullptr, nullptr),
         [](int64_t, int64_t, int64_t q, int64_t k, float s) { return k <= q + kK - kQ ? s : -kInf; });
}

TEST_F(ScoreModifiers, BottomRightFollowsTheLengths) {
  std::vector<int32_t> len_q = {4, 2}, len_kv = {6, 5};
  expect(sm::causal_mask_bottom_right(graph, score, kQ, kK, lengths("len_q", len_q), lengths("len_kv", len_kv)),
         [&](int64_t b, int64_t, int64_t q, int64_t k, float s) {
           return k <= q + len_kv[size_t(b)] - len_q[size_t(b)] ? s : -kInf;
         });
}

TEST_F(ScoreModifiers, WindowHasBothBounds) {
  expect(sm::sliding_window_mask(graph, score, DiagonalAlignment_t::TOP_LEFT, 2, 1, kQ, kK, nullptr, nullptr),
         [](int64_t, int64_t, int64_t q, int64_t k, float s) { return k <= q + 1 && k > q - 2 ? s : -kInf; });
}

TEST_F(ScoreModifiers, WindowWithoutBoundsIsTheScore) {
  EXPECT_EQ(sm::sliding_window_mask(graph, score, DiagonalAlignment_t::TOP_LEFT, {}, {}, kQ, kK, nullptr, nullptr),
            score);
}

TEST_F(ScoreModifiers, PaddingKeepsRowsAndKeysWithinTheLengths) {
  std::vector<int32_t> len_q = {3, 4}, len_kv = {6, 1};
  expect(sm::padding_mask(graph, score, lengths("len_kv", len_kv), lengths("len_q", len_q)),
         [&](int64_t b, int64_t, int64_t q, int64_t k, float s) {
           return q < len_q[size_t(b)] && k < len_kv[size_t(b)] ? s : -kInf;
         });
}

TEST_F(ScoreModifiers, AlibiAddsSlopeTimesDistance) {
  TensorPtr slopes;
  int64_t bytes = 0;
  const TensorPtr y = sm::alibi_mask(graph, score, slopes, kH, bytes);
  EXPECT_EQ(bytes, kH * 4);
  std::vector<float> values = {0.5f, 0.25f, 0.125f};
  pack[slopes] = values.data();
  // Powers of two and quarters: exact.
  expect(y, [&](int64_t, int64_t h, int64_t q, int64_t k, float s) { return s + values[size_t(h)] * float(k - q); });
}

TEST_F(ScoreModifiers, BiasIsAdded) {
  const TensorPtr bias = add_tensor("bias", {1, kH, kQ, kK});
  std::vector<float> values(size_t(kH * kQ * kK));
  std::iota(values.begin(), values.end(), -20.f);
  pack[bias] = values.data();
  expect(sm::bias(graph, score, bias),
         [&](int64_t, int64_t h, int64_t q, int64_t k, float s) { return s + values[size_t((h * kQ + q) * kK + k)]; });
}

// Scores at 0 and far out, where tanh is 0 and 1 exactly: what is tested is the composition, not tanh.
TEST_F(ScoreModifiers, SoftcapIsCapTimesTanh) {
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = 400.f * float(int(i % 3) - 1);
  sm::Softcap softcap;
  expect(softcap.forward(graph, score, graph->tensor(2.f)),
         [](int64_t, int64_t, int64_t, int64_t, float s) { return s / 200.f; });
}

TEST_F(ScoreModifiers, SoftcapBackwardIsTheDerivative) {
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = 400.f * float(int(i % 3) - 1);
  sm::Softcap softcap;
  const TensorPtr cap = graph->tensor(2.f);
  softcap.forward(graph, score, cap);
  const TensorPtr dscore = add_tensor("dscore", {kB, kH, kQ, kK});
  std::vector<float> gradient(scores.size(), 0.75f);
  pack[dscore] = gradient.data();
  expect(softcap.backward(graph, dscore, cap),
         [](int64_t, int64_t, int64_t, int64_t, float s) { return s == 0 ? 0.75f : 0.f; });
}

}  // namespace
}  // namespace tilewright::graph
