// Ops that can be described but not run: graphs and JSON hold them, and validate() names the op and what to use
// instead.
#include <gmock/gmock.h>

#include "support/attention_graph.h"

namespace tilewright {
namespace {

using namespace testing;
using graph::Graph;
using ::testing::HasSubstr;

struct Later {
  const char* tag;
  const char* instead;
  std::vector<T> (*add)(Graph&);
};
void PrintTo(const Later& l, std::ostream* out) { *out << l.tag; }

T tensor(Graph& g, const char* name, const Dims& dim = {1, 2, 16, 32}, DataType_t type = DataType_t::FP8_E4M3) {
  return g.tensor(
      graph::Tensor_attributes().set_name(name).set_dim(dim).set_stride(row_major_strides(dim)).set_data_type(type));
}
template <size_t N>
std::vector<T> list(const std::array<T, N>& a) {
  return {a.begin(), a.end()};
}

const Later kLater[] = {
    {"SDPA_FP8_FWD", "use sdpa",
     [](Graph& g) {
       T q = tensor(g, "Q"), k = tensor(g, "K"), v = tensor(g, "V"), s = g.tensor(0.5f);
       return list(
           g.sdpa_fp8(q, k, v, s, s, s, s, s, s,
                      graph::SDPA_fp8_attributes().set_name("n").set_generate_stats(true).set_causal_mask(true)));
     }},
    {"SDPA_MXFP8_FWD", "use sdpa",
     [](Graph& g) {
       T q = tensor(g, "Q"), k = tensor(g, "K"), v = tensor(g, "V");
       T s = tensor(g, "scales", {1, 2, 128, 4}, DataType_t::FP8_E8M0);
       return list(g.sdpa_fp8(q, k, v, s, s, s, graph::SDPA_fp8_attributes().set_name("n").set_generate_stats(true)));
     }},
    {"SDPA_FP8_BWD", "sdpa_backward",
     [](Graph& g) {
       T q = tensor(g, "Q"), k = tensor(g, "K"), v = tensor(g, "V"), o = tensor(g, "O"), d_o = tensor(g, "dO");
       T stats = tensor(g, "Stats", {1, 2, 16, 1}, DataType_t::FLOAT), s = g.tensor(0.5f);
       return list(g.sdpa_fp8_backward(q, k, v, o, d_o, stats, s, s, s, s, s, s, s, s, s, s, s, s,
                                       graph::SDPA_fp8_backward_attributes().set_name("n").set_attn_scale(0.5f)));
     }},
    {"SDPA_MXFP8_BWD", "sdpa_backward",
     [](Graph& g) {
       T q = tensor(g, "Q"), k = tensor(g, "K"), v = tensor(g, "V"), d_o = tensor(g, "dO");
       T half = tensor(g, "O", {1, 2, 16, 32}, DataType_t::HALF),
         stats = tensor(g, "Stats", {1, 2, 16, 1}, DataType_t::FLOAT);
       T s = tensor(g, "scales", {1, 2, 128, 4}, DataType_t::FP8_E8M0);
       return list(g.sdpa_fp8_backward(q, q, k, k, v, half, half, d_o, d_o, stats, s, s, s, s, s, s, s,
                                       graph::SDPA_fp8_backward_attributes().set_name("n")));
     }},
    {"BLOCK_SCALE_QUANTIZE", "pointwise MUL",
     [](Graph& g) {
       return list(g.block_scale_quantize(
           tensor(g, "X", {1, 2, 16, 32}, DataType_t::FLOAT),
           graph::Block_scale_quantize_attributes().set_name("n").set_block_size(32).set_axis(3)));
     }},
    {"BLOCK_SCALE_DEQUANTIZE", "pointwise MUL",
     [](Graph& g) {
       return std::vector<T>{
           g.block_scale_dequantize(tensor(g, "X"), tensor(g, "scales", {1, 2, 16, 1}, DataType_t::FP8_E8M0),
                                    graph::Block_scale_dequantize_attributes().set_name("n").set_block_size(32))};
     }},
    {"MOE_GROUPED_MATMUL", "one matmul per expert",
     [](Graph& g) {
       return std::vector<T>{g.moe_grouped_matmul(
           tensor(g, "Token", {1, 8, 16}, DataType_t::HALF), tensor(g, "Weight", {4, 16, 32}, DataType_t::HALF),
           tensor(g, "Offsets", {4, 1, 1}, DataType_t::INT32), nullptr, nullptr,
           graph::Moe_grouped_matmul_attributes().set_name("n").set_mode(MoeGroupedMatmulMode_t::NONE))};
     }},
    {"MOE_GROUPED_MATMUL_BWD", "one matmul per expert",
     [](Graph& g) {
       return std::vector<T>{g.moe_grouped_matmul_bwd(tensor(g, "dOutput", {1, 8, 32}, DataType_t::HALF),
                                                      tensor(g, "Token", {1, 8, 16}, DataType_t::HALF),
                                                      tensor(g, "Offsets", {4, 1, 1}, DataType_t::INT32),
                                                      graph::Moe_grouped_matmul_bwd_attributes().set_name("n"))};
     }},
};

class LaterOps : public ::testing::TestWithParam<Later> {};

TEST_P(LaterOps, AreDescribedButNotRun) {
  Graph g;
  g.set_io_data_type(DataType_t::HALF)
      .set_intermediate_data_type(DataType_t::FLOAT)
      .set_compute_data_type(DataType_t::FLOAT);
  for (const T& t : GetParam().add(g)) {
    ASSERT_NE(t, nullptr);
    t->set_output(true);
  }
  const error_t e = g.validate();
  EXPECT_EQ(e.code, error_code_t::GRAPH_NOT_SUPPORTED);
  for (const char* text : {"\"n\"", GetParam().tag, GetParam().instead}) EXPECT_THAT(e.err_msg, HasSubstr(text));

  const Json json = g;
  EXPECT_EQ(json["nodes"][0]["tag"].get<std::string>(), GetParam().tag);
  Graph again;
  const error_t read = again.deserialize(json);
  ASSERT_TRUE(read.is_good()) << read;
  EXPECT_EQ(Json(again).dump(), json.dump());
  EXPECT_EQ(again.validate().code, error_code_t::GRAPH_NOT_SUPPORTED);
}

INSTANTIATE_TEST_SUITE_P(All, LaterOps, ::testing::ValuesIn(kLater),
                         [](const auto& info) { return std::string(info.param.tag); });

}  // namespace
}  // namespace tilewright
