// sdpa_backward: its numbers, its rules, and its meaning by numeric differentiation of the forward.
#include <gmock/gmock.h>

#include "support/attention_case.h"
#include "support/attention_graph.h"

namespace tilewright {
namespace {

using namespace testing;
using ::testing::HasSubstr;

bool all_zero(const std::vector<double>& v, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    if (v[size_t(i)] != 0) return false;
  return true;
}

// Logits near -120, so that Stats is far below 0: exp(S - Stats) must be formed as a difference.
struct FarBelowZero {
  int64_t s;
  bool causal;
  double o, d_q, d_k, d_v;  // sums of magnitudes; 0: the formula alone judges
};
void PrintTo(const FarBelowZero& c, std::ostream* out) { *out << c.s << (c.causal ? " causal" : ""); }

class SdpaBackwardFarBelowZero : public ::testing::TestWithParam<std::tuple<FarBelowZero, DataType_t>> {};

TEST_P(SdpaBackwardFarBelowZero, IsFiniteAndRight) {
  const auto& [c, type] = GetParam();
  const int64_t s = c.s;
  TrainingGraph t({1, 1, s, 64}, {1, 1, s, 64}, {.type = type});
  T bias = t.input("bias", {1, 1, s, s});
  t.forward.set_attn_scale(0.125f).set_bias(bias);
  t.backward.set_attn_scale(0.125f).set_bias(bias);
  t.build();
  auto with_first = [](int64_t a, double first) {
    return [a, first](int64_t i) { return i % 64 == 0 ? first : coded(a)(i) / 16; };
  };
  t.plans->fill(t.q, with_first(5, 1)).fill(t.k, with_first(7, -960));
  t.plans->fill(bias, [&](int64_t i) { return c.causal && i % s > i / s ? -kInfinity : 0; });
  EXPECT_TRUE(t.plans->run());
  for (const auto& [tensor, magnitude] : {std::pair{t.o, c.o}, {t.dq, c.d_q}, {t.dk, c.d_k}, {t.dv, c.d_v}}) {
    const auto values = t.expected(tensor);
    for (double v : values) ASSERT_TRUE(std::isfinite(v)) << tensor->get_name();
    if (magnitude > 0) {
      EXPECT_NEAR(sum_of_magnitudes(values), magnitude, 2e-8 * magnitude) << tensor->get_name();
    }
  }
  if (s == 64) {
    const auto stats = t.expected(t.stats), o = t.expected(t.o);
    EXPECT_NEAR(*std::min_element(stats.begin(), stats.end()), -119.9986, 1e-4);
    EXPECT_NEAR(*std::max_element(stats.begin(), stats.end()), -115.8410, 1e-4);
    EXPECT_NEAR(sum_of(o), -3.02296691, 1e-8);
    EXPECT_NEAR(o.back(), 0.00798069088, 1e-10);
    EXPECT_NEAR(sum_of(t.expected(t.dq)), -0.00644404463, 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, SdpaBackwardFarBelowZero,
    ::testing::Combine(::testing::Values(FarBelowZero{64, true, 173.599367, 12.2849515, 21.6115011, 326.443403},
                                         FarBelowZero{128, true, 198.516502, 22.9794515, 41.2088311, 377.76049},
                                         FarBelowZero{192, true, 213.205849, 33.6368899, 60.5408455, 407.144505},
                                         FarBelowZero{192, false, 34.1952547, 32.0074528, 58.5155233, 122.795327},
                                         FarBelowZero{704, true, 0, 0, 0, 0}),
                       ::testing::Values(DataType_t::FLOAT, DataType_t::HALF, DataType_t::BFLOAT16)));

TEST(SdpaBackward, EmptySequencesHaveNoGradient) {
  TrainingGraph t({4, 2, 8, 16}, {4, 2, 8, 16});
  T lq = t.input("lq", {4, 1, 1, 1}, DataType_t::INT32), lkv = t.input("lkv", {4, 1, 1, 1}, DataType_t::INT32);
  t.forward.set_attn_scale(0.25f).set_padding_mask(true).set_seq_len_q(lq).set_seq_len_kv(lkv);
  t.backward.set_attn_scale(0.25f).set_padding_mask(true).set_seq_len_q(lq).set_seq_len_kv(lkv);
  t.build();
  t.plans->fill(lq, [](int64_t i) { return std::array{8, 5, 0, 2}[size_t(i)]; });
  t.plans->fill(lkv, [](int64_t i) { return std::array{8, 0, 3, 3}[size_t(i)]; });
  EXPECT_TRUE(t.plans->run());
  for (const T& g : {t.dq, t.dk, t.dv}) {
    const auto v = t.expected(g);
    for (double x : v) ASSERT_TRUE(std::isfinite(x));
    EXPECT_TRUE(all_zero(v, 256, 768)) << g->get_name();  // batches 1 and 2
    EXPECT_FALSE(all_zero(v, 768, 1024)) << g->get_name();
  }
  // Batch 3: rows from the length on are 0 in each head.
  EXPECT_TRUE(all_zero(t.expected(t.dq), 768 + 2 * 16, 768 + 128));
  EXPECT_TRUE(all_zero(t.expected(t.dk), 768 + 3 * 16, 768 + 128));
}

TEST(SdpaBackward, NanInPaddingDoesNotLeak) {
  TrainingGraph t({1, 1, 5, 8}, {1, 1, 6, 8});
  T lq = t.input("lq", {1, 1, 1, 1}, DataType_t::INT32), lkv = t.input("lkv", {1, 1, 1, 1}, DataType_t::INT32);
  t.forward.set_padding_mask(true).set_seq_len_q(lq).set_seq_len_kv(lkv).set_causal_mask(true);
  t.backward.set_padding_mask(true).set_seq_len_q(lq).set_seq_len_kv(lkv).set_causal_mask(true);
  t.build();
  t.plans->fill(lq, [](int64_t) { return 3; }).fill(lkv, [](int64_t) { return 4; });
  const double nan = std::numeric_limits<double>::quiet_NaN();
  auto until = [nan](int64_t rows, int64_t a) { return [=](int64_t i) { return i / 8 < rows ? coded(a)(i) : nan; }; };
  // Key 3 is within the length but after every diagonal.
  t.plans->fill(t.q, until(3, 5)).fill(t.d_o, until(3, 13)).fill(t.k, until(3, 7)).fill(t.v, until(3, 11));
  EXPECT_TRUE(t.plans->run());
  for (const T& g : {t.dq, t.dk, t.dv}) {
    for (double x : t.expected(g)) EXPECT_TRUE(std::isfinite(x)) << g->get_name();
    EXPECT_TRUE(all_zero(t.expected(g), 3 * 8, 5 * 8)) << g->get_name();
  }
}

TEST(SdpaBackward, BiasGradientSumsOverBroadcastDims) {
  struct Case {
    Dims dim;
    double magnitude;
    std::vector<double> first;
  };
  for (const Case& c : {Case{{1, 1, 1, 5}, 1.10964427, {-0.1789225, -0.123812, -0.2520876, 0.0275855, 0.5272366}},
                        Case{{2, 1, 1, 5}, 6.52038745, {0.117815, 1.3755083, -1.9052712, 0.0670708, 0.3448771}},
                        Case{{1, 3, 4, 5}, 9.19712431, {0.083332, -0.1304674, 0.0959194, -0.0115991, -0.0371849}},
                        Case{{2, 3, 4, 5}, 14.4368321, {}}}) {
    TrainingGraph t({2, 3, 4, 8}, {2, 3, 5, 8});
    T bias = t.input("bias", c.dim), d_bias = t.output("dBias", c.dim);
    t.forward.set_attn_scale(0.25f).set_bias(bias);
    t.backward.set_attn_scale(0.25f).set_bias(bias).set_dbias(d_bias);
    t.build();
    t.plans->fill(bias, quadratic);
    EXPECT_TRUE(t.plans->run());
    const auto values = t.expected(d_bias);
    EXPECT_NEAR(sum_of_magnitudes(values), c.magnitude, 1e-7);
    EXPECT_NEAR(sum_of(values), 0, 1e-9);
    for (size_t i = 0; i < c.first.size(); ++i) EXPECT_NEAR(values[i], c.first[i], 1e-7);
  }
}

TEST(SdpaBackward, BiasWithoutItsGradient) {
  TrainingGraph t({2, 1, 13, 16}, {2, 1, 37, 16});
  T bias = t.input("bias", {2, 1, 13, 37});
  t.forward.set_bias(bias);
  t.backward.set_bias(bias);
  t.build();
  t.plans->fill(bias, quadratic);
  EXPECT_TRUE(t.plans->run());
}

TEST(SdpaBackward, GradientOfOneElementSeenEverywhere) {
  // dO has all strides 0; Q, K and V are one matrix for all batches and heads. The gradients are packed.
  std::vector<std::vector<double>> results;
  for (bool broadcast : {true, false}) {
    TrainingGraph t({2, 3, 4, 8}, {2, 3, 6, 8});
    for (const T& x : {t.q, t.k, t.v}) x->set_stride({0, 0, 8, 1});
    if (broadcast) t.d_o->set_stride({0, 0, 0, 0});
    t.forward.set_attn_scale(0.25f);
    t.backward.set_attn_scale(0.25f);
    t.describe();
    for (const auto& [g, s] : {std::pair{t.dq, 4}, {t.dk, 6}, {t.dv, 6}})
      g->set_dim({2, 3, s, 8}).set_stride(row_major_strides({2, 3, s, 8}));
    t.build();
    t.plans->fill(t.q, [](int64_t i) { return coded(5)(i % 32); });
    t.plans->fill(t.k, [](int64_t i) { return coded(7)(i % 48); });
    t.plans->fill(t.v, [](int64_t i) { return coded(11)(i % 48); });
    t.plans->fill(t.d_o, [](int64_t) { return 1; });
    std::vector<double> bits;
    EXPECT_TRUE(t.plans->run([&](const std::string&) {
      for (const T& g : {t.dq, t.dk, t.dv})
        for (double x : t.plans->read(g)) bits.push_back(x);
    }));
    results.push_back(bits);
    expect_numbers(t.expected(t.dv), {192, sum_of_magnitudes(t.expected(t.dv)), 0.639479809, 0.633082718});
    expect_numbers(t.expected(t.dq), {0.656757228, 7.99162296});
    expect_numbers(t.expected(t.dk), {0, 2.98041887});
  }
  EXPECT_EQ(results[0], results[1]);
}

// --- the gradient of sum O dO, by central differences
// ------------------------------------------------------------------

using Values = std::map<std::string, std::vector<double>>;

// The reference's outputs for inputs given by port name (row-major in memory); ports not given keep what `values` has.
std::map<std::string, std::vector<double>> evaluate(const ir::Graph& g, const Values& inputs) {
  std::vector<std::vector<uint8_t>> memory(g.tensors.size());
  std::vector<void*> pointers(g.tensors.size());
  for (size_t i = 0; i < g.tensors.size(); ++i) {
    const ir::Tensor& t = g.tensors[i];
    if (t.role != ir::Role::Input) continue;
    memory[i].resize(size_t(t.storage_bytes()));
    const auto& values = inputs.at(t.name);
    for (size_t e = 0; e < values.size(); ++e) store_element(memory[i].data(), t.type, int64_t(e), values[e]);
    pointers[i] = memory[i].data();
  }
  auto result = evaluate_reference(g, pointers);
  EXPECT_TRUE(result) << result.status().err_msg;
  std::map<std::string, std::vector<double>> out;
  for (const RefTensor& t : *result)
    if (t.tensor->role == ir::Role::Output)
      for (const Bounded& b : t.values) out[t.tensor->name].push_back(b.v);
  return out;
}

double loss(const ir::Graph& forward, const Values& inputs) {
  const auto o = evaluate(forward, inputs).at("O");
  double sum = 0;
  for (size_t i = 0; i < o.size(); ++i) sum += o[i] * inputs.at("dO")[i];
  return sum;
}

TEST(SdpaBackward, IsTheDerivativeOfTheForward) {
  for (uint64_t seed : seeds(1, 25)) {
    Random random(seed);
    AttentionCase c = random_attention(random, 5, true);
    c.type = c.compute = DataType_t::DOUBLE;
    c.plain = c.stats = true, c.dump = false;
    c.b = std::min<int64_t>(c.b, 2), c.dqk = random.between(1, 3), c.dv = random.between(1, 3);
    if (!c.bias.empty()) c.bias[0] = c.bias[0] == 1 ? 1 : c.b;
    c.dbias = c.bias;
    const ir::Graph forward = c.forward(), backward = c.backward();
    Values inputs;
    for (const ir::Graph* g : {&forward, &backward})
      for (const ir::Tensor& t : g->tensors) {
        if (t.role != ir::Role::Input || inputs.count(t.name)) continue;
        auto& values = inputs[t.name];
        for (int64_t i = 0; i < volume(t.dim); ++i) {
          const double unit = double(random.bits() >> 11) * 0x1p-53;
          values.push_back(t.type == DataType_t::INT32 ? double(random.between(0, 5)) : 2 * unit - 1);
        }
      }
    const auto o = evaluate(forward, inputs);
    inputs["O"] = o.at("O"), inputs["Stats"] = o.at("Stats");
    const auto gradients = evaluate(backward, inputs);
    const std::map<std::string, std::string> of = {
        {"Q", "dQ"}, {"K", "dK"}, {"V", "dV"}, {"Bias", "dBias"}, {"SINK_TOKEN", "DSINK_TOKEN"}};
    for (const auto& [input, gradient] : of) {
      if (!gradients.count(gradient)) continue;
      for (size_t i = 0; i < inputs[input].size(); ++i) {
        // The error of the difference is h^2 times a third derivative of order 1, and 1e-16 / h.
        const double h = 1e-5, x = inputs[input][i];
        inputs[input][i] = x + h;
        const double above = loss(forward, inputs);
        inputs[input][i] = x - h;
        const double below = loss(forward, inputs);
        inputs[input][i] = x;
        EXPECT_NEAR(gradients.at(gradient)[i], (above - below) / (2 * h), 1e-7)
            << gradient << "[" << i << "], seed " << seed << ": " << c.text();
      }
    }
  }
}

// --- rules -----------------------------------------------------------------------------------------------------------

TEST(SdpaBackward, SaysWhatIsWrong) {
  struct Refusal {
    const char* what;
    void (*change)(TrainingGraph&);
    error_code_t code;
    std::vector<const char*> names;
  };
  using C = error_code_t;
  const std::vector<Refusal> refusals = {
      {"gradient of a sink that is not there",
       [](TrainingGraph& t) { t.backward.set_dsink_token(t.output("dsink")); },
       C::ATTRIBUTE_NOT_SET,
       {"DSINK_TOKEN", "SINK_TOKEN"}},
      {"window of no size",
       [](TrainingGraph& t) { t.backward.set_sliding_window_length(0); },
       C::INVALID_VALUE,
       {"left_bound"}},
      {"bound before the diagonal",
       [](TrainingGraph& t) { t.backward.set_diagonal_band_right_bound(-2); },
       C::INVALID_VALUE,
       {"right_bound", "-2"}},
      {"dBias of the wrong size",
       [](TrainingGraph& t) {
         T bias = t.input("bias", {1, 1, 4, 5});
         t.backward.set_bias(bias).set_dbias(t.output("dBias", {1, 1, 4, 4}));
       },
       C::INVALID_VALUE,
       {"dBias", "[1, 1, 4, 4]"}},
      {"padding without lengths",
       [](TrainingGraph& t) { t.backward.set_padding_mask(true); },
       C::ATTRIBUTE_NOT_SET,
       {"SEQ_LEN_Q"}},
      {"size of packed sequences",
       [](TrainingGraph& t) { t.backward.set_max_total_seq_len_q(64); },
       C::GRAPH_NOT_SUPPORTED,
       {"max_total_seq_len_q"}},
      {"dO of the wrong size",
       [](TrainingGraph& t) {
         t.d_o->set_dim({1, 2, 4, 7}).set_stride({56, 28, 7, 1});
       },
       C::INVALID_VALUE,
       {"dO", "[1, 2, 4, 7]", "[1, 2, 4, 8]"}},
      {"dQ of the wrong size",
       [](TrainingGraph& t) {
         t.describe();
         t.dq->set_dim({1, 2, 5, 8}).set_stride({80, 40, 8, 1});
       },
       C::INVALID_VALUE,
       {"dQ", "[1, 2, 5, 8]", "[1, 2, 4, 8]"}},
      {"a modified score",
       [](TrainingGraph& t) { t.backward.set_score_mod([](std::shared_ptr<graph::Graph>, T s) { return s; }); },
       C::GRAPH_NOT_SUPPORTED,
       {"score_mod"}},
  };
  for (const Refusal& r : refusals) {
    TrainingGraph t({1, 2, 4, 8}, {1, 2, 5, 8});
    r.change(t);
    t.describe();
    const error_t e = t.graph.validate();
    EXPECT_EQ(e.code, r.code) << r.what << ": " << e;
    EXPECT_THAT(e.err_msg, HasSubstr("sdpa_backward \"gradients\"")) << r.what;
    for (const char* name : r.names) EXPECT_THAT(e.err_msg, HasSubstr(name)) << r.what;
  }
}

TEST(SdpaBackward, GradientsFollowTheirInputsLayout) {
  TrainingGraph t({2, 4, 3, 8}, {2, 2, 5, 8}, {.heads_inside = true, .v_dim = {2, 2, 5, 6}});
  t.build();
  EXPECT_EQ(t.dq->get_stride(), t.q->get_stride());
  EXPECT_EQ(t.dk->get_stride(), t.k->get_stride());
  EXPECT_EQ(t.dv->get_stride(), t.v->get_stride());
  EXPECT_TRUE(t.plans->run());
}

TEST(SdpaBackward, DropsWhatTheForwardDropped) {
  TrainingGraph t({2, 2, 6, 8}, {2, 2, 9, 8});
  T seed = t.graph.tensor(int64_t(99)), offset = t.graph.tensor(int64_t(7));
  T dump = t.output("dump"), dump_backward = t.output("dump_backward");
  t.forward.set_dropout(0.3f, seed, offset).set_rng_dump(dump);
  t.backward.set_dropout(0.3f, seed, offset).set_rng_dump(dump_backward);
  t.build();
  EXPECT_TRUE(t.plans->run());
  EXPECT_EQ(t.expected(dump), t.expected(dump_backward));
}

}  // namespace
}  // namespace tilewright
