// 7. One kernel cache for many shapes: the first batch size decides and compiles, the others reuse it.
#include "common.h"

using namespace example;

int kernel_cache(Tour& tour) {
  const int64_t c = tour.quick ? 8 : 64, size = tour.quick ? 8 : 32;
  const std::vector<int64_t> batches = {8, 16, 24, 32};
  tour.begin(7, "One kernel cache, four batch sizes",
             "conv " + std::to_string(c) + " to " + std::to_string(c) + " channels, " + std::to_string(size) + "x" +
                 std::to_string(size) + ", 3x3, batches 8, 16, 24, 32; HALF");

  auto cache = std::make_shared<tw::KernelCache>();
  auto w = random<tw::half>(c * c * 9, 1, 0.05f);
  bool all_right = true;
  for (int64_t n : batches) {
    fe::Graph graph;
    graph.set_io_data_type(tw::DataType_t::HALF).set_compute_data_type(tw::DataType_t::FLOAT);
    graph.set_dynamic_shape_enabled(true).set_kernel_cache(cache);
    auto X = graph.tensor(fe::Tensor_attributes()
                              .set_name("X")
                              .set_dim({n, c, size, size})
                              .set_stride({c * size * size, 1, c * size, c}));
    auto W = graph.tensor(fe::Tensor_attributes().set_name("W").set_dim({c, c, 3, 3}).set_stride({c * 9, 1, c * 3, c}));
    auto Y = graph.conv_fprop(
        X, W, fe::Conv_fprop_attributes().set_name("conv").set_padding({1, 1}).set_stride({1, 1}).set_dilation({1, 1}));
    Y->set_name("Y").set_output(true);

    const int64_t hits = cache->hits();
    const auto start = std::chrono::steady_clock::now();
    EXAMPLE_OK(graph.build(tour.device, {tw::HeurMode_t::A}));
    const double build = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

    auto x = random<tw::half>(n * c * size * size, unsigned(n)), y = unwritten<tw::half>(n * c * size * size);
    Data data(tour.device);
    data.bind(X, x), data.bind(W, w), data.bind(Y, y);
    EXAMPLE_OK(data.upload());
    void* workspace = data.workspace(graph.get_workspace_size());
    EXAMPLE_OK(graph.execute(tour.device, data.device, workspace));
    const Timing timing = time_runs(tour.device, [&] { (void)graph.execute(tour.device, data.device, workspace); });
    std::cout << "   batch " << n << ": built in " << time_text(build) << ", "
              << (cache->hits() > hits ? "from the cache" : "anew") << std::endl;
    const double error = tour.rows.back().error, of_bound = tour.rows.back().of_bound;
    all_right = tour.finish(graph, data, timing, 2.0 * double(n * c * size * size) * double(c * 9)) && all_right;
    tour.rows.back().error = std::max(tour.rows.back().error, error);
    tour.rows.back().of_bound = std::max(tour.rows.back().of_bound, of_bound);
  }
  std::cout << "   cache    " << cache->hits() << " hits, " << cache->misses() << " misses" << std::endl;
  tour.rows.back().ok = all_right;
  return all_right ? 0 : 1;
}

EXAMPLE_MAIN(kernel_cache)
