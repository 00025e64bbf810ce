// 5. Causal attention: O = softmax(Q K^T / sqrt(d), keys up to the query's position) V.
#include <cmath>

#include "common.h"

using namespace example;

int causal_attention(Tour& tour) {
  const int64_t b = 1, h = tour.quick ? 2 : 4, s = tour.quick ? 100 : 1024, d = tour.quick ? 32 : 64;
  tour.begin(5, "Causal attention",
             "b" + std::to_string(b) + " h" + std::to_string(h) + " s" + std::to_string(s) + " d" + std::to_string(d) +
                 ", HALF");

  fe::Graph graph;
  graph.set_io_data_type(tw::DataType_t::HALF)
      .set_intermediate_data_type(tw::DataType_t::FLOAT)
      .set_compute_data_type(tw::DataType_t::FLOAT);
  // Dims are batch, heads, sequence, head size. In memory the heads of one token lie together, as a projection leaves
  // them.
  const auto heads = fe::Tensor_attributes().set_dim({b, h, s, d}).set_stride({s * h * d, d, h * d, 1});
  auto Q = graph.tensor(fe::Tensor_attributes(heads).set_name("Q"));
  auto K = graph.tensor(fe::Tensor_attributes(heads).set_name("K"));
  auto V = graph.tensor(fe::Tensor_attributes(heads).set_name("V"));
  auto attributes = fe::SDPA_attributes().set_name("attention").set_generate_stats(true).set_causal_mask(true);
  attributes.set_attn_scale(1 / std::sqrt(float(d)));
  auto [O, stats] = graph.sdpa(Q, K, V, attributes);
  O->set_name("O").set_output(true).set_dim({b, h, s, d}).set_stride({s * h * d, d, h * d, 1});
  stats->set_name("stats").set_output(true).set_data_type(tw::DataType_t::FLOAT);  // log of the sum of exponentials
  EXAMPLE_OK(graph.build(tour.device, {tw::HeurMode_t::A}));

  const int64_t count = b * h * s * d;
  auto q = random<tw::half>(count, 1), k = random<tw::half>(count, 2), v = random<tw::half>(count, 3);
  auto o = unwritten<tw::half>(count);
  auto stats_data = unwritten<float>(b * h * s);
  Data data(tour.device);
  data.bind(Q, q), data.bind(K, k), data.bind(V, v), data.bind(O, o), data.bind(stats, stats_data);

  EXAMPLE_OK(data.upload());
  void* workspace = data.workspace(graph.get_workspace_size());
  EXAMPLE_OK(graph.execute(tour.device, data.device, workspace));
  const Timing timing = time_runs(tour.device, [&] { (void)graph.execute(tour.device, data.device, workspace); });
  // Two matmuls, of which the mask leaves half.
  return tour.finish(graph, data, timing, 2.0 * double(b * h * s) * double(s + 1) * double(d)) ? 0 : 1;
}

EXAMPLE_MAIN(causal_attention)
