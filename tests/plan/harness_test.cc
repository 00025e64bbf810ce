#include "plan/harness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "frontend/builder.h"
#include "plan/harness_fill.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

// C = A B, with padded rows in A and C.
std::shared_ptr<const ir::Graph> padded_matmul(DataType_t type) {
  graph::Graph g;
  g.set_io_data_type(type).set_compute_data_type(DataType_t::FLOAT);
  auto a = g.tensor(graph::Tensor_attributes().set_name("A").set_dim({1, 3, 4}).set_stride({18, 6, 1}));
  auto b = g.tensor(graph::Tensor_attributes().set_name("B").set_dim({1, 4, 5}).set_stride({20, 5, 1}));
  auto c = g.matmul(a, b, graph::Matmul_attributes().set_name("mm"));
  c->set_name("C").set_output(true).set_dim({1, 3, 5}).set_stride({24, 8, 1});
  EXPECT_TRUE(g.validate().is_good());
  EXPECT_TRUE(g.build_operation_graph().is_good());
  return g.impl().frozen.graph;
}

ir::TensorId find(const ir::Graph& g, const std::string& name) {
  for (size_t i = 0; i < g.tensors.size(); ++i)
    if (g.tensors[i].name == name) return ir::TensorId(i);
  return ir::kNone;
}

// An engine that does right, and then something wrong.
class Tampered : public StepList {
 public:
  explicit Tampered(const ir::Graph& g, std::function<void(const Bindings&, void*)> then, int64_t workspace = 0)
      : StepList({{"right",
                   [&g](const Bindings& b, void*) {
                     Bindings inputs = b;
                     inputs[size_t(find(g, "C"))] = nullptr;
                     auto values = evaluate_reference(g, inputs);
                     store_reference((*values)[size_t(find(g, "C"))], b[size_t(find(g, "C"))]);
                   }},
                  {"wrong", then}},
                 workspace) {}
};

class HarnessCatches : public testing::Test {
 protected:
  std::string outcome(std::function<void(const Bindings&, void*)> then, Fill fill = Fill::Random) {
    Harness harness(*graph_, {1, fill});
    const Tampered tampered(*graph_, then, 32);
    const Status status = harness.check_run(tampered);
    return status.is_good() ? "right" : status.get_message();
  }
  std::shared_ptr<const ir::Graph> graph_ = padded_matmul(DataType_t::FLOAT);
  size_t a_ = size_t(find(*graph_, "A")), c_ = size_t(find(*graph_, "C"));
  float* c(const Bindings& b) const { return static_cast<float*>(b[c_]); }
};

TEST_F(HarnessCatches, NothingInARightEngine) {
  EXPECT_EQ(outcome([](const Bindings&, void*) {}), "right");
  EXPECT_EQ(outcome([](const Bindings&, void* w) { std::memset(w, 1, 32); }, Fill::Integers), "right");
}

TEST_F(HarnessCatches, AWrongElement) {
  EXPECT_THAT(outcome([&](const Bindings& b, void*) { c(b)[8] *= 1.01f; }), HasSubstr("\"C\": 1 of 15 elements"));
}

TEST_F(HarnessCatches, AnElementThatIsNotWritten) {
  EXPECT_THAT(outcome([&](const Bindings& b, void*) { std::memset(c(b) + 9, 0xff, 4); }), HasSubstr("1 of 15"));
}

TEST_F(HarnessCatches, WritesIntoGapsGuardsInputsAndBeyondTheWorkspace) {
  EXPECT_THAT(outcome([&](const Bindings& b, void*) { c(b)[6] = 0; }), HasSubstr("storage element 6, in a gap"));
  EXPECT_THAT(outcome([&](const Bindings& b, void*) { c(b)[21] = 0; }), HasSubstr("\"C\": byte 0 after the end"));
  EXPECT_THAT(outcome([&](const Bindings& b, void*) { c(b)[-1] = 0; }), HasSubstr("before the start"));
  EXPECT_THAT(outcome([&](const Bindings& b, void*) { static_cast<float*>(b[a_])[1] += 1; }),
              HasSubstr("\"A\" is an input and was written to"));
  EXPECT_THAT(outcome([&](const Bindings&, void* w) { static_cast<uint8_t*>(w)[32] = 0; }),
              HasSubstr("workspace of 32 bytes"));
}

TEST_F(HarnessCatches, AnInexactIntegerThatTheBoundWouldForgive) {
  const auto nudge = [&](const Bindings& b, void*) {
    for (int i : {0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 16, 17, 18, 19, 20}) c(b)[i] = std::nextafter(c(b)[i], 1e9f);
  };
  EXPECT_EQ(outcome(nudge, Fill::Random), "right");  // one step of the type is within any bound
  EXPECT_THAT(outcome(nudge, Fill::Integers), HasSubstr("inexact"));
}

TEST(Harness, FillsDependOnTheLogicalIndexAndTheSeedOnly) {
  const auto values = [](const ir::Graph& g, uint64_t seed) {
    Harness harness(g, {seed});
    const ir::TensorId a = find(g, "A");
    std::vector<double> v;
    for (int64_t i = 0; i < 12; ++i)
      v.push_back(load_element(harness.memory(a), g.tensor(a).type, offset_of_linear(i, g.tensor(a).view())));
    return v;
  };
  const auto graph = padded_matmul(DataType_t::DOUBLE);
  ir::Graph packed = *graph;
  packed.tensors[size_t(find(packed, "A"))].stride = {12, 4, 1};
  EXPECT_EQ(values(*graph, 5), values(*graph, 5));
  EXPECT_EQ(values(*graph, 5), values(packed, 5));
  EXPECT_NE(values(*graph, 5), values(*graph, 6));
}

TEST(Harness, GapsOfInputsAreNan) {
  const auto graph = padded_matmul(DataType_t::BFLOAT16);
  Harness harness(*graph);
  const ir::TensorId a = find(*graph, "A");
  EXPECT_TRUE(std::isnan(load_element(harness.memory(a), DataType_t::BFLOAT16, 4)));
  EXPECT_FALSE(std::isnan(load_element(harness.memory(a), DataType_t::BFLOAT16, 6)));
}

TEST(Harness, TightBuffersHaveTheDeclaredAlignmentAndNoMore) {
  const auto graph = padded_matmul(DataType_t::FLOAT);
  Harness harness(*graph, {0, Fill::Random, true});
  for (const char* name : {"A", "B", "C"}) {
    const auto address = reinterpret_cast<uintptr_t>(harness.memory(find(*graph, name)));
    EXPECT_EQ(address % 16, 0u);
    EXPECT_NE(address % 32, 0u);
  }
}

TEST(Harness, GivesTheBackwardPassOfAttentionAForwardThatFits) {
  graph::Graph g;
  g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  const auto heads = graph::Tensor_attributes().set_dim({1, 2, 6, 8}).set_stride({96, 48, 8, 1});
  const auto make = [&](const char* name) { return g.tensor(graph::Tensor_attributes(heads).set_name(name)); };
  auto q = make("Q"), k = make("K"), v = make("V"), o = make("O"), d_o = make("dO");
  auto stats = g.tensor(graph::Tensor_attributes().set_name("Stats").set_dim({1, 2, 6, 1}).set_stride({12, 6, 1, 1}));
  auto gradients =
      g.sdpa_backward(q, k, v, o, d_o, stats, graph::SDPA_backward_attributes().set_name("bwd").set_attn_scale(0.5f));
  for (auto& t : gradients) t->set_output(true);
  ASSERT_TRUE(g.validate().is_good());
  ASSERT_TRUE(g.build_operation_graph().is_good());
  const ir::Graph& ir = *g.impl().frozen.graph;
  Harness harness(ir, {3});
  // Row 0 by hand.
  const auto at = [&](const char* name, int64_t i) {
    return double(static_cast<float*>(harness.memory(find(ir, name)))[i]);
  };
  double sum = 0, out = 0;
  for (int j = 0; j < 6; ++j) {
    double s = 0;
    for (int i = 0; i < 8; ++i) s += 0.5 * at("Q", i) * at("K", j * 8 + i);
    sum += std::exp(s);
    out += std::exp(s) * at("V", j * 8);
  }
  EXPECT_NEAR(at("Stats", 0), std::log(sum), 1e-4);
  EXPECT_NEAR(at("O", 0), out / sum, 1e-4);
}

TEST(HarnessFill, PortsGetWhatTheyNeed) {
  graph::Graph g;
  g.set_io_data_type(DataType_t::FLOAT).set_compute_data_type(DataType_t::FLOAT);
  auto x = g.tensor(graph::Tensor_attributes().set_name("X").set_dim({2, 3, 4}).set_stride({12, 4, 1}));
  auto m = g.tensor(graph::Tensor_attributes()
                        .set_name("mask")
                        .set_data_type(DataType_t::BOOLEAN)
                        .set_dim({2, 3, 4})
                        .set_stride({12, 4, 1}));
  auto root = g.pointwise(x, graph::Pointwise_attributes().set_name("root").set_mode(PointwiseMode_t::SQRT));
  auto picked =
      g.pointwise(root, x, m, graph::Pointwise_attributes().set_name("pick").set_mode(PointwiseMode_t::BINARY_SELECT));
  root->set_data_type(DataType_t::FLOAT);
  picked->set_name("Y").set_output(true);
  ASSERT_TRUE(g.validate().is_good()) << g.validate().get_message();
  ASSERT_TRUE(g.build_operation_graph().is_good());
  const ir::Graph& ir = *g.impl().frozen.graph;
  const FillRange of_x = fill_range(ir, find(ir, "X")), of_mask = fill_range(ir, find(ir, "mask"));
  EXPECT_GT(of_x.a, 0);
  EXPECT_EQ(of_mask.kind, FillRange::Integer);
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_GT(fill_value(of_x, 1, i), 0);
    const double bit = fill_value(of_mask, 1, i);
    EXPECT_TRUE(bit == 0 || bit == 1);
    EXPECT_EQ(std::fmod(fill_value(integer_range({}), 1, i), 1), 0);
  }
}

TEST(HarnessFill, NormalNumbersHaveMeanAndDeviation) {
  double sum = 0, squares = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double x = fill_value({FillRange::Normal, 2, 3}, 9, uint64_t(i));
    sum += x, squares += (x - 2) * (x - 2);
  }
  EXPECT_NEAR(sum / kCount, 2, 0.1);
  EXPECT_NEAR(std::sqrt(squares / kCount), 3, 0.1);
}

}  // namespace
}  // namespace tilewright
