// sdpa: its numbers, masks, rules and layouts, on every plan.
#include <gmock/gmock.h>

#include <cstring>

#include "support/attention_graph.h"

namespace tilewright {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Sdpa, SlidingWindow) {
  struct Case {
    int left;
    Numbers o;
  };
  for (const Case& c : {Case{4, {-0.904220567, 17.3316449, -0.625, 0.507108134}}, Case{5, {-1.26238351, 15.4332069}},
                        Case{3, {-0.859523291, 22.3196617}}})
    for (bool heads_inside : {false, true}) {
      ForwardGraph f({1, 1, 8, 8}, {1, 1, 8, 8}, {.heads_inside = heads_inside});
      f.attr.set_attn_scale(0.25f).set_sliding_window_length(c.left).set_diagonal_band_right_bound(0);
      f.check(c.o);
      if (c.left == 4)
        expect_values(f.expected(f.stats),
                      {0.078125, 0.87557, 1.046715, 1.401287, 1.370697, 1.426063, 1.350202, 1.470889}, 1e-6);
    }
}

TEST(Sdpa, TopLeftAndBottomRight) {
  auto run = [](bool bottom_right, std::optional<int> left, const Numbers& want) {
    ForwardGraph f({1, 2, 3, 8}, {1, 2, 7, 8});
    f.attr.set_attn_scale(0.25f).set_causal_mask(!bottom_right).set_causal_mask_bottom_right(bottom_right);
    if (left) f.attr.set_diagonal_band_left_bound(*left);
    f.check(want);
  };
  run(true, {}, {-0.320183281, 5.51822667, 0.140486337, 0.104365642});
  run(false, {}, {-2.58246331, 19.8138277});
  run(true, 3, {0.66567874, 15.6643524, 0.514959338, 0.290375404});
}

TEST(Sdpa, RowsWithoutKeysAreZero) {
  ForwardGraph f({1, 1, 5, 8}, {1, 1, 2, 8});
  f.attr.set_attn_scale(0.25f).set_causal_mask_bottom_right(true);
  f.check({-0.621944534, 7.6681347});
  expect_values(f.expected(f.stats), {-kInfinity, -kInfinity, -kInfinity, -0.17578125, 0.858714217}, 1e-8);
  const auto o = f.expected(f.o);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(o[size_t(i)], 0);
}

TEST(Sdpa, NoKeysAtAll) {
  ForwardGraph f({1, 2, 3, 8}, {1, 2, 0, 8});
  f.check({0, 0});
  for (double x : f.expected(f.stats)) EXPECT_EQ(x, -kInfinity);
}

TEST(Sdpa, EmptySequencesInAPaddedBatch) {
  ForwardGraph f({4, 2, 8, 16}, {4, 2, 8, 16});
  f.attr.set_attn_scale(0.25f);
  f.set_lengths({8, 5, 0, 2}, {8, 0, 3, 3});
  f.check({0.216001343, 45.2989633});
  const auto o = f.expected(f.o), stats = f.expected(f.stats);
  auto batch = [&](size_t b) { return std::vector<double>(o.begin() + long(b) * 256, o.begin() + long(b + 1) * 256); };
  expect_numbers(batch(0), {-0.41666523, 33.0000152});
  expect_numbers(batch(1), {0, 0});
  expect_numbers(batch(2), {0, 0});
  expect_numbers(batch(3), {0.63266658, 12.2989481});
  expect_values({stats[48], stats[49]}, {1.33087, 1.03433}, 1e-5);
  for (size_t i : {16, 31, 32, 47, 50, 55, 58, 63}) EXPECT_EQ(stats[i], -kInfinity) << i;
}

TEST(Sdpa, NanInAMaskedKeyDoesNotLeak) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  auto poisoned = [&](const T& t) {
    return [t, nan](int64_t i) { return i / t->get_dim()[3] == 1 ? nan : coded(t->get_name() == "K" ? 7 : 11)(i); };
  };
  const std::vector<double> want = {-0.462976229, -0.006110931, 0.162023771, -0.587976229,
                                    -0.41924744,  -0.210178615, 0.20575256,  -0.54424744};
  {  // excluded by a bias of -inf
    ForwardGraph f({1, 1, 2, 4}, {1, 1, 3, 4});
    T bias = f.input("bias", {1, 1, 2, 3});
    f.attr.set_attn_scale(0.5f).set_bias(bias);
    f.build();
    f.plans->fill(bias, [](int64_t i) { return i % 3 == 1 ? -kInfinity : 0; });
    f.plans->fill(f.k, poisoned(f.k)).fill(f.v, poisoned(f.v));
    EXPECT_TRUE(f.plans->run());
    expect_values(f.expected(f.o), want, 1e-8);
    expect_values(f.expected(f.stats), {0.503245467, 0.451814242}, 1e-8);
  }
  {  // beyond the length
    ForwardGraph f({1, 1, 2, 4}, {1, 1, 3, 4});
    f.set_lengths({2}, {1});
    f.build();
    f.plans->fill(f.k, poisoned(f.k)).fill(f.v, poisoned(f.v));
    EXPECT_TRUE(f.plans->run());
    expect_values(f.expected(f.o), {-0.625, 0.75, 0, -0.75, -0.625, 0.75, 0, -0.75}, 1e-8);
  }
  {  // after the diagonal, in the tile of keys that other rows see
    ForwardGraph f({1, 1, 3, 4}, {1, 1, 3, 4});
    f.attr.set_causal_mask(true);
    f.build();
    f.plans->fill(f.k, poisoned(f.k)).fill(f.v, poisoned(f.v));
    EXPECT_TRUE(f.plans->run());
    const auto o = f.expected(f.o);
    EXPECT_FALSE(std::isnan(o[0]));
    EXPECT_TRUE(std::isnan(o[4]) && std::isnan(o[8]));
  }
}

TEST(Sdpa, OverlappingInputIsReadAsWritten) {
  for (bool meant : {false, true}) {
    ForwardGraph f({2, 2, 3, 8}, {2, 2, 4, 8});
    f.q->set_stride(meant ? Dims{48, 8, 16, 1} : Dims{16, 8, 16, 1});
    f.attr.set_attn_scale(0.25f);
    f.build();
    const View view{f.q->get_dim(), f.q->get_stride()};
    f.plans->fill(f.q, [&](int64_t i) { return coded(5)(offset_of_linear(i, view)); });
    EXPECT_TRUE(f.plans->run());
    if (meant) {
      expect_numbers(f.expected(f.o), {-0.270008822, 17.5639308, {}, -0.257553475});
    } else {
      expect_numbers(f.expected(f.o), {-0.507752867, 16.5662249, -0.0559146096, -0.391487954});
      EXPECT_THAT(f.graph.impl().frozen.warnings, ElementsAre(HasSubstr("\"Q\"")));
    }
  }
  ForwardGraph f({2, 2, 3, 8}, {2, 2, 4, 8});
  f.describe();
  f.o->set_dim({2, 2, 3, 8}).set_stride({16, 8, 16, 1});
  const error_t e = f.graph.validate();
  EXPECT_EQ(e.code, error_code_t::INVALID_VALUE);
  EXPECT_THAT(e.err_msg, HasSubstr("\"O\""));
}

TEST(Sdpa, BiasBroadcasts) {
  struct Case {
    Dims dim;
    Numbers o;
  };
  for (const Case& c : {Case{{1, 1, 1, 5}, {1.25039928, 53.8563979}}, Case{{2, 1, 1, 5}, {-1.3711771, 44.8789343}},
                        Case{{1, 3, 4, 5}, {1.77824273, 44.543444}}, Case{{2, 3, 4, 5}, {0.170645766, 43.6095112}}}) {
    ForwardGraph f({2, 3, 4, 8}, {2, 3, 5, 8});
    T bias = f.input("bias", c.dim);
    f.attr.set_attn_scale(0.25f).set_bias(bias);
    f.build();
    f.plans->fill(bias, quadratic);
    EXPECT_TRUE(f.plans->run());
    expect_numbers(f.expected(f.o), c.o);
  }
}

TEST(Sdpa, BiasWithAPaddedPitch) {
  struct Case {
    int64_t s;
    Numbers o;
  };
  for (const Case& c : {Case{8, {-0.0689091966, 22.9849649, -0.182042853, -0.079585292}},
                        Case{32, {1.48580941, 41.4732001, 0.111530776, 0.103235691}}}) {
    const int64_t s = c.s;
    ForwardGraph f({1, 2, s, 8}, {1, 2, s, 8});
    T bias = f.input("bias", {1, 1, s, s});
    bias->set_stride({s * (s + 1), s * (s + 1), s + 1, 1});
    f.attr.set_attn_scale(0.25f).set_bias(bias);
    f.build();
    f.plans->fill(bias, [s](int64_t i) { return quadratic(i / s * (s + 1) + i % s); });
    EXPECT_TRUE(f.plans->run());
    expect_numbers(f.expected(f.o), c.o);
  }
}

TEST(Sdpa, StatsAreFloatUnlessDeclared) {
  ForwardGraph f({1, 2, 4, 8}, {1, 2, 4, 8}, {.type = DataType_t::HALF});
  f.attr.set_attn_scale(0.25f);
  f.build();
  EXPECT_EQ(f.stats->get_data_type(), DataType_t::FLOAT);
  EXPECT_THAT(f.stats->get_dim(), ElementsAre(1, 2, 4, 1));
  EXPECT_TRUE(f.plans->run());

  ForwardGraph narrow({1, 2, 4, 8}, {1, 2, 4, 8}, {.type = DataType_t::HALF});
  narrow.describe();
  narrow.stats->set_data_type(DataType_t::HALF);
  narrow.build();
  EXPECT_TRUE(narrow.plans->run());  // converted, and inside its buffer
  EXPECT_EQ(narrow.stats->get_data_type(), DataType_t::HALF);
}

TEST(Sdpa, ScaleIsPartOfTheKey) {
  const double root = 1 / std::sqrt(8.0);
  struct Case {
    double scale;
    Numbers o;
  };
  std::vector<size_t> keys;
  for (const Case& c : {Case{1, {-0.560375915, 22.2499765}}, Case{root, {-0.117439524, 12.7713066}},
                        Case{3 * root, {-0.613797774, 23.1432324}}, Case{1, {-0.560375915, 22.2499765}}}) {
    ForwardGraph f({2, 2, 4, 8}, {2, 2, 6, 8});
    f.attr.set_attn_scale(float(c.scale));
    f.check(c.o);
    keys.push_back(f.graph.key());
    ForwardGraph by_tensor({2, 2, 4, 8}, {2, 2, 6, 8});
    by_tensor.attr.set_attn_scale(by_tensor.graph.tensor(float(c.scale)));
    by_tensor.check(c.o);
    ForwardGraph read_late({2, 2, 4, 8}, {2, 2, 6, 8});
    T scale = read_late.graph.tensor(graph::Tensor_attributes()
                                         .set_name("scale")
                                         .set_dim({1, 1, 1, 1})
                                         .set_stride({1, 1, 1, 1})
                                         .set_is_pass_by_value(true));
    read_late.attr.set_attn_scale(scale);
    read_late.build();
    read_late.plans->fill(scale, [&](int64_t) { return c.scale; });
    EXPECT_TRUE(read_late.plans->run());
    expect_numbers(read_late.expected(read_late.o), c.o);
  }
  EXPECT_EQ(keys[0], keys[3]);
  EXPECT_NE(keys[0], keys[1]);
  EXPECT_NE(keys[0], keys[2]);
  EXPECT_NE(keys[1], keys[2]);
}

TEST(Sdpa, OutputLayoutIsTheCallers) {
  const float scale = float(1 / std::sqrt(8.0));
  for (const Dims& stride : {Dims{}, Dims{64, 8, 16, 1}, Dims{64, 32, 8, 1}}) {
    ForwardGraph f({2, 2, 4, 8}, {2, 2, 6, 8}, {.heads_inside = true});
    ASSERT_EQ(f.q->get_stride(), (Dims{64, 8, 16, 1}));
    ASSERT_EQ(f.k->get_stride(), (Dims{96, 8, 16, 1}));
    f.attr.set_attn_scale(scale);
    f.describe();
    if (!stride.empty()) f.o->set_dim({2, 2, 4, 8}).set_stride(stride);
    f.build();
    // Left open, O is packed in the order of Q's strides.
    EXPECT_EQ(f.o->get_stride(), stride.empty() ? (Dims{64, 8, 16, 1}) : stride);
    EXPECT_TRUE(f.plans->run([&](const std::string& plan) {
      if (stride == Dims{64, 32, 8, 1}) return;
      const auto* o = static_cast<const float*>(f.plans->harness().memory(f.plans->id(f.o)));
      EXPECT_NEAR(o[0], 0.0571764683, 1e-6) << plan;
      EXPECT_NEAR(o[1], -0.1483660661, 1e-6) << plan;
      EXPECT_NEAR(o[8], 0.0045041990, 1e-6) << plan;
      EXPECT_NEAR(o[9], 0.0055673093, 1e-6) << plan;
    }));
    expect_numbers(f.expected(f.o), {-0.117439524, 12.7713066});
  }
}

TEST(Sdpa, CustomDropoutMaskInEitherOrder) {
  auto mask_value = [](int64_t i) { return (i * i + 2 * i) % 7 == 1 || (i * i + 2 * i) % 7 == 3 ? 0.0 : 1.0; };
  for (bool swapped : {false, true}) {
    ForwardGraph f({1, 2, 4, 8}, {1, 2, 5, 8});
    T mask = f.input("mask", {1, 2, 4, 5}), scale = f.graph.tensor(1.25f);
    f.attr.set_attn_scale(0.25f).set_dropout(swapped ? scale : mask, swapped ? mask : scale);
    f.build();
    f.plans->fill(mask, mask_value);
    EXPECT_TRUE(f.plans->run());
    expect_numbers(f.expected(f.o), {-0.517040777, 11.5821913, -0.147748405, 0.0439622456});
    const auto stats = f.expected(f.stats);
    EXPECT_NEAR(sum_of(stats), 13.2379295, 1e-6);
    EXPECT_NEAR(stats[0], 1.74350934, 1e-8);
    // The same bits after saving and loading.
    std::vector<uint8_t> bytes;
    ASSERT_TRUE(f.graph.serialize(bytes).is_good());
    graph::Graph loaded;
    const error_t e = loaded.deserialize(Handle{}, bytes);
    ASSERT_TRUE(e.is_good()) << e;
    auto pack = f.plans->harness().variant_pack();
    auto execute = [&](graph::Graph& g) {
      f.plans->harness().poison_outputs();
      std::vector<char> workspace(size_t(g.get_workspace_size()) + 1);
      EXPECT_TRUE(g.execute(Handle{}, pack, workspace.data()).is_good());
      return f.plans->read(f.o);
    };
    EXPECT_EQ(execute(f.graph), execute(loaded));
  }
  ForwardGraph without({1, 2, 4, 8}, {1, 2, 5, 8});
  without.attr.set_attn_scale(0.25f);
  without.check({-1.32120342, 7.96752216});
}

TEST(Sdpa, SeededDropout) {
  std::vector<std::vector<double>> dumps, outputs;
  for (DataType_t seed_type : {DataType_t::INT32, DataType_t::INT64}) {
    ForwardGraph f({2, 2, 16, 8}, {2, 2, 33, 8});
    T seed = f.input("seed", {1, 1, 1, 1}, seed_type), offset = f.input("offset", {1, 1, 1, 1}, seed_type);
    T dump = std::make_shared<graph::Tensor_attributes>();
    dump->set_name("dump").set_output(true);
    f.attr.set_attn_scale(0.25f).set_dropout(0.25f, seed, offset).set_rng_dump(dump);
    f.build();
    f.plans->fill(seed, [](int64_t) { return 1234567; }).fill(offset, [](int64_t) { return 3; });
    EXPECT_TRUE(f.plans->run());
    dumps.push_back(f.expected(dump));
    outputs.push_back(f.expected(f.o));
  }
  EXPECT_EQ(dumps[0], dumps[1]);
  EXPECT_EQ(outputs[0], outputs[1]);
  // 3/4 kept of 2112, within five standard deviations.
  EXPECT_NEAR(sum_of(dumps[0]) / 2112, 0.75, 5 * std::sqrt(0.75 * 0.25 / 2112));

  ForwardGraph none({2, 2, 16, 8}, {2, 2, 33, 8}), zero({2, 2, 16, 8}, {2, 2, 33, 8});
  none.attr.set_attn_scale(0.25f);
  zero.attr.set_attn_scale(0.25f).set_dropout(0.f, zero.graph.tensor(int64_t(1)), zero.graph.tensor(int64_t(2)));
  none.build(), zero.build();
  EXPECT_TRUE(zero.plans->run());
  EXPECT_EQ(none.expected(none.o), zero.expected(zero.o));
}

TEST(Sdpa, SinkTokenTakesItsShare) {
  // Two keys with scores 0 and a sink of log 2: weights 1/4, 1/4, and 1/2 that no value receives.
  ForwardGraph f({1, 1, 1, 1}, {1, 1, 2, 1});
  T sink = f.input("sink", {1, 1, 1, 1}), max = f.output("max"), sum = f.output("sum");
  f.attr.set_sink_token(sink).set_logit_max(max).set_score_sum_exp(sum);
  f.build();
  f.plans->fill(f.q, [](int64_t) { return 0; }).fill(f.v, [](int64_t) { return 8; });
  f.plans->fill(sink, [](int64_t) { return std::log(2.0); });
  EXPECT_TRUE(f.plans->run());
  EXPECT_NEAR(f.expected(f.o)[0], 4, 1e-6);
  EXPECT_NEAR(f.expected(f.stats)[0], std::log(4.0), 1e-6);
  EXPECT_NEAR(f.expected(max)[0], std::log(2.0), 1e-7);
  EXPECT_NEAR(f.expected(sum)[0], 2, 1e-6);
}

TEST(Sdpa, AlibiSlopes) {
  EXPECT_EQ(ops::alibi_slope(0, 8), 0.5);
  EXPECT_EQ(ops::alibi_slope(7, 8), 1.0 / 256);
  // Twelve heads: eight as above, then the odd powers of 2^-(1/2).
  EXPECT_EQ(ops::alibi_slope(8, 12), std::exp2(-0.5));
  EXPECT_EQ(ops::alibi_slope(11, 12), std::exp2(-3.5));
}

TEST(Sdpa, AlibiFavoursNearKeys) {
  // One head has slope 2^-8; scores are 0 but for it.
  ForwardGraph f({1, 1, 3, 1}, {1, 1, 3, 1});
  f.attr.set_alibi_mask(true).set_causal_mask(true);
  f.build();
  f.plans->fill(f.q, [](int64_t) { return 0; });
  EXPECT_TRUE(f.plans->run());
  const double step = std::exp2(-8.0);
  expect_values(f.expected(f.stats),
                {0, std::log(1 + std::exp(-step)), std::log(1 + std::exp(-step) + std::exp(-2 * step))}, 1e-9);
}

TEST(Sdpa, KeyAndValueHeadsMayDiffer) {
  ForwardGraph f({2, 6, 5, 8}, {2, 3, 7, 8}, {.v_dim = {2, 2, 7, 4}});
  f.attr.set_attn_scale(0.25f);
  f.build();
  EXPECT_TRUE(f.plans->run());
  // Written out: every query head with a copy of the head it reads.
  ForwardGraph wide({2, 6, 5, 8}, {2, 6, 7, 8}, {.v_dim = {2, 6, 7, 4}});
  wide.attr.set_attn_scale(0.25f);
  wide.build();
  wide.plans->fill(wide.k, [](int64_t i) {
    const int64_t row = i % 56, h = i / 56 % 6, b = i / 56 / 6;
    return coded(7)((b * 3 + h / 2) * 56 + row);
  });
  wide.plans->fill(wide.v, [](int64_t i) {
    const int64_t row = i % 28, h = i / 28 % 6, b = i / 28 / 6;
    return coded(11)((b * 2 + h / 3) * 28 + row);
  });
  EXPECT_EQ(f.expected(f.o), wide.expected(wide.o));
}

// --- rules -----------------------------------------------------------------------------------------------------------

struct Refusal {
  const char* what;
  void (*change)(ForwardGraph&);
  error_code_t code;
  std::vector<const char*> names;
};

TEST(Sdpa, SaysWhatIsWrong) {
  using C = error_code_t;
  const std::vector<Refusal> refusals = {
      {"scale twice",
       [](ForwardGraph& f) { f.attr.set_attn_scale(0.5f).set_attn_scale(f.graph.tensor(0.5f)); },
       C::ATTRIBUTE_NOT_SET,
       {"scale", "twice"}},
      {"padding without lengths",
       [](ForwardGraph& f) { f.attr.set_padding_mask(true); },
       C::ATTRIBUTE_NOT_SET,
       {"SEQ_LEN_Q"}},
      {"one length only",
       [](ForwardGraph& f) {
         f.attr.set_padding_mask(true).set_seq_len_q(f.input("lq", {2, 1, 1, 1}, DataType_t::INT32));
       },
       C::ATTRIBUTE_NOT_SET,
       {"SEQ_LEN_KV"}},
      {"lengths without padding",
       [](ForwardGraph& f) {
         f.attr.set_seq_len_q(f.input("lq", {2, 1, 1, 1}, DataType_t::INT32));
       },
       C::ATTRIBUTE_NOT_SET,
       {"lq", "padding mask"}},
      {"lengths of the wrong size",
       [](ForwardGraph& f) {
         f.set_lengths({1, 2, 3}, {1, 2, 3});
       },
       C::INVALID_VALUE,
       {"SEQ_LEN_Q", "[3, 1, 1, 1]", "[2, 1, 1, 1]"}},
      {"boolean bias",
       [](ForwardGraph& f) {
         f.attr.set_bias(f.input("bias", {1, 1, 4, 5}, DataType_t::BOOLEAN));
       },
       C::GRAPH_NOT_SUPPORTED,
       {"bias", "BOOLEAN", "-inf"}},
      {"bias that does not broadcast",
       [](ForwardGraph& f) {
         f.attr.set_bias(f.input("bias", {1, 2, 4, 5}));
       },
       C::INVALID_VALUE,
       {"bias", "[1, 2, 4, 5]", "[2, 4, 4, 5]"}},
      {"window of no size",
       [](ForwardGraph& f) { f.attr.set_diagonal_band_left_bound(0); },
       C::INVALID_VALUE,
       {"left_bound", "0"}},
      {"bound before the diagonal",
       [](ForwardGraph& f) { f.attr.set_diagonal_band_right_bound(-1); },
       C::INVALID_VALUE,
       {"right_bound", "-1"}},
      {"alibi both ways", [](ForwardGraph& f) { f.attr.set_alibi_mask(true); }, C::GRAPH_NOT_SUPPORTED, {"alibi_mask"}},
      {"everything dropped",
       [](ForwardGraph& f) { f.attr.set_dropout(1.f, f.graph.tensor(int64_t(1)), f.graph.tensor(int64_t(1))); },
       C::ATTRIBUTE_NOT_SET,
       {"dropout_probability"}},
      {"a probability above 1",
       [](ForwardGraph& f) { f.attr.set_dropout(1.5f, f.graph.tensor(int64_t(1)), f.graph.tensor(int64_t(1))); },
       C::INVALID_VALUE,
       {"dropout_probability", "1.5"}},
      {"two kinds of dropout",
       [](ForwardGraph& f) {
         f.attr.set_dropout(0.5f, f.graph.tensor(int64_t(1)), f.graph.tensor(int64_t(1)));
         f.attr.set_dropout(f.input("mask", {2, 4, 4, 5}), f.graph.tensor(2.f));
       },
       C::ATTRIBUTE_NOT_SET,
       {"dropout"}},
      {"dump without dropout",
       [](ForwardGraph& f) { f.attr.set_rng_dump(f.output("dump")); },
       C::ATTRIBUTE_NOT_SET,
       {"RNG_DUMP"}},
      {"sink of the wrong size",
       [](ForwardGraph& f) {
         f.attr.set_sink_token(f.input("sink", {1, 1, 1, 1}));
       },
       C::INVALID_VALUE,
       {"SINK_TOKEN", "[1, 4, 1, 1]"}},
      {"heads that do not divide",
       [](ForwardGraph& f) {
         f.k->set_dim({2, 3, 5, 8}).set_stride({120, 40, 8, 1});
       },
       C::GRAPH_NOT_SUPPORTED,
       {"K", "4 heads", "3 heads"}},
      {"head sizes that differ",
       [](ForwardGraph& f) {
         f.k->set_dim({2, 2, 5, 7}).set_stride({70, 35, 7, 1});
       },
       C::INVALID_VALUE,
       {"[2, 2, 5, 7]", "head size"}},
      {"lengths of K and V that differ",
       [](ForwardGraph& f) {
         f.v->set_dim({2, 2, 6, 8}).set_stride({96, 48, 8, 1});
       },
       C::INVALID_VALUE,
       {"[2, 2, 6, 8]", "sequence"}},
      {"three dims",
       [](ForwardGraph& f) {
         f.q->set_dim({2, 4, 8}).set_stride({32, 8, 1});
       },
       C::ATTRIBUTE_NOT_SET,
       {"\"Q\"", "four dims"}},
      {"paged keys",
       [](ForwardGraph& f) {
         f.attr.set_paged_attention_k_table(f.input("table", {2, 1, 1, 1}, DataType_t::INT32));
       },
       C::GRAPH_NOT_SUPPORTED,
       {"Page_table_K", "not available"}},
      {"block mask",
       [](ForwardGraph& f) {
         f.attr.set_block_mask(f.input("mask", {2, 4, 1, 1}, DataType_t::UINT8));
       },
       C::GRAPH_NOT_SUPPORTED,
       {"Block_mask", "not available"}},
      {"packed sequences",
       [](ForwardGraph& f) {
         f.set_lengths({1, 2}, {1, 2});
         f.q->set_ragged_offset(f.input("offsets", {3, 1, 1, 1}, DataType_t::INT32));
       },
       C::GRAPH_NOT_SUPPORTED,
       {"\"Q\"", "ragged offset"}},
      {"output of the wrong size",
       [](ForwardGraph& f) {
         f.describe();
         f.o->set_dim({2, 4, 4, 9}).set_stride({144, 36, 9, 1});
       },
       C::INVALID_VALUE,
       {"\"O\"", "[2, 4, 4, 9]", "[2, 4, 4, 8]"}},
  };
  for (const Refusal& r : refusals) {
    ForwardGraph f({2, 4, 4, 8}, {2, 2, 5, 8});
    r.change(f);
    f.describe();
    const error_t e = f.graph.validate();
    EXPECT_EQ(e.code, r.code) << r.what << ": " << e;
    EXPECT_THAT(e.err_msg, HasSubstr("sdpa \"attention\"")) << r.what;
    for (const char* name : r.names) EXPECT_THAT(e.err_msg, HasSubstr(name)) << r.what;
  }
}

TEST(Sdpa, NarrowVariantsSayThatTheyAreNotThere) {
  ForwardGraph f({1, 1, 1, 16}, {1, 1, 2, 16}, {.type = DataType_t::FP8_E4M3});
  T one = f.graph.tensor(1.f);
  auto out = f.graph.sdpa_fp8(f.q, f.k, f.v, one, one, one, one, one, one, f.attr.set_name("narrow"));
  for (const T& t : out) ASSERT_NE(t, nullptr);
  const error_t e = f.graph.validate();
  EXPECT_EQ(e.code, error_code_t::GRAPH_NOT_SUPPORTED);
  EXPECT_THAT(e.err_msg, HasSubstr("\"narrow\""));
  EXPECT_THAT(e.err_msg, HasSubstr("SDPA_FP8_FWD"));
  EXPECT_THAT(e.err_msg, HasSubstr("use sdpa"));
}

TEST(Sdpa, DescriptionSurvivesJson) {
  ForwardGraph f({2, 4, 4, 8}, {2, 2, 5, 8});
  f.set_lengths({1, 2}, {1, 2});
  f.attr.set_attn_scale(0.123f).set_bias(f.input("bias", {1, 1, 4, 5})).set_alibi_mask(true).set_causal_mask(true);
  f.attr.set_dropout(0.1f, f.graph.tensor(int64_t(1)), f.graph.tensor(int64_t(2)));
  f.describe();
  const Json json = f.graph;
  graph::Graph again;
  ASSERT_TRUE(again.deserialize(json).is_good());
  EXPECT_EQ(Json(again).dump(), json.dump());
  const error_t e = again.validate();
  EXPECT_TRUE(e.is_good()) << e;
}

// --- score_mod -------------------------------------------------------------------------------------------------------

TEST(Sdpa, ScoreModIsTheCallersProgram) {
  // cap tanh(s / cap) against the same numbers written as a bias: with one key per query the shape of the cap shows in
  // Stats directly.
  for (int64_t kv_heads : {4, 2}) {
    ForwardGraph f({2, 4, 3, 8}, {2, kv_heads, 5, 8});
    f.attr.set_attn_scale(2.f).set_score_mod([](std::shared_ptr<graph::Graph> g, T s) {
      auto by = [&](T x, float factor) {
        return g->pointwise(x, g->tensor(factor), graph::Pointwise_attributes().set_mode(PointwiseMode_t::MUL));
      };
      T squeezed = g->pointwise(by(s, 0.5f), graph::Pointwise_attributes().set_mode(PointwiseMode_t::TANH_FWD));
      return by(squeezed, 2.f);
    });
    f.build();
    EXPECT_TRUE(f.plans->run());
    ForwardGraph plain({2, 4, 3, 8}, {2, kv_heads, 5, 8});
    plain.attr.set_attn_scale(2.f);
    plain.build();
    const auto q = plain.expected_input(plain.q), k = plain.expected_input(plain.k);
    std::vector<double> stats;
    for (int64_t row = 0; row < 2 * 4 * 3; ++row) {
      const int64_t b = row / 12, kh = row / 3 % 4 / (4 / kv_heads);
      double sum = 0;
      for (int64_t j = 0; j < 5; ++j) {
        double s = 0;
        for (int64_t d = 0; d < 8; ++d) s += q[size_t(row * 8 + d)] * k[size_t(((b * kv_heads + kh) * 5 + j) * 8 + d)];
        sum += std::exp(2 * std::tanh(s * 2 / 2));
      }
      stats.push_back(std::log(sum));
    }
    expect_values(f.expected(f.stats), stats, 1e-9);
  }
}

TEST(Sdpa, ScoreModRefusesWhatItWouldHide) {
  ForwardGraph f({2, 4, 3, 8}, {2, 4, 5, 8});
  f.attr.set_causal_mask(true).set_score_mod([](std::shared_ptr<graph::Graph>, T s) { return s; });
  f.describe();
  const error_t e = f.graph.validate();
  EXPECT_EQ(e.code, error_code_t::GRAPH_NOT_SUPPORTED);
  EXPECT_THAT(e.err_msg, HasSubstr("right_bound"));
}

}  // namespace
}  // namespace tilewright
