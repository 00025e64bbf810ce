// 6. A built plan as bytes: saved, loaded without planning again, executed by uid.
#include "common.h"

using namespace example;

int serialize(Tour& tour) {
  const int64_t b = tour.quick ? 2 : 8, m = tour.quick ? 48 : 256, k = tour.quick ? 64 : 512, n = m;
  tour.begin(6, "Serialize, reload, execute by uid",
             "matmul (" + std::to_string(b) + ", " + std::to_string(m) + ", " + std::to_string(k) + ") x (" +
                 std::to_string(b) + ", " + std::to_string(k) + ", " + std::to_string(n) + "), BFLOAT16");
  enum Uid : int64_t { kA = 100, kB, kC };
  const auto since = [](std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };

  auto start = std::chrono::steady_clock::now();
  fe::Graph graph;
  graph.set_io_data_type(tw::DataType_t::BFLOAT16).set_compute_data_type(tw::DataType_t::FLOAT);
  auto A = graph.tensor(fe::Tensor_attributes().set_name("A").set_uid(kA).set_dim({b, m, k}).set_stride({m * k, k, 1}));
  auto B = graph.tensor(fe::Tensor_attributes().set_name("B").set_uid(kB).set_dim({b, k, n}).set_stride({k * n, n, 1}));
  auto C = graph.matmul(A, B, fe::Matmul_attributes().set_name("matmul"));
  C->set_name("C").set_uid(kC).set_output(true);
  EXAMPLE_OK(graph.build(tour.device, {tw::HeurMode_t::A}));
  const double cold = since(start);
  std::vector<uint8_t> bytes;
  EXAMPLE_OK(graph.serialize(bytes));

  // Another process would read the bytes from a file. It needs no tensors, only the uids.
  start = std::chrono::steady_clock::now();
  fe::Graph loaded;
  EXAMPLE_OK(loaded.deserialize(tour.device, bytes));
  const double warm = since(start);
  std::cout << "   file     " << bytes.size() << " bytes; planned in " << time_text(cold) << " (cold), loaded in "
            << time_text(warm) << " (warm)" << std::endl;

  auto a_data = random<tw::bfloat16>(b * m * k, 1), b_data = random<tw::bfloat16>(b * k * n, 2);
  auto c_data = unwritten<tw::bfloat16>(b * m * n);
  Data data(tour.device);
  data.bind(A, a_data), data.bind(B, b_data), data.bind(C, c_data);
  EXAMPLE_OK(data.upload());
  std::unordered_map<int64_t, void*> by_uid = {{kA, data.device[A]}, {kB, data.device[B]}, {kC, data.device[C]}};
  void* workspace = data.workspace(loaded.get_workspace_size());
  EXAMPLE_OK(loaded.execute(tour.device, by_uid, workspace));
  const Timing timing = time_runs(tour.device, [&] { (void)loaded.execute(tour.device, by_uid, workspace); });

  // The original graph describes the same tensors, so it judges the loaded one's result.
  return tour.finish(graph, data, timing, 2.0 * double(b * m * n) * double(k)) ? 0 : 1;
}

EXAMPLE_MAIN(serialize)
