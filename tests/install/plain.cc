// relu(A B + bias) with the installed library, checked by hand.
#include <tilewright/tilewright.h>

#include <cstdio>
#include <unordered_map>
#include <vector>

namespace tw = tilewright;

int main() {
  tw::graph::Graph graph;
  graph.set_io_data_type(tw::DataType_t::FLOAT)
      .set_intermediate_data_type(tw::DataType_t::FLOAT)
      .set_compute_data_type(tw::DataType_t::FLOAT);
  auto a = graph.tensor(tw::graph::Tensor_attributes().set_name("A").set_dim({1, 2, 3}).set_stride({6, 3, 1}));
  auto b = graph.tensor(tw::graph::Tensor_attributes().set_name("B").set_dim({1, 3, 2}).set_stride({6, 2, 1}));
  auto bias = graph.tensor(tw::graph::Tensor_attributes().set_name("bias").set_dim({1, 1, 2}).set_stride({2, 2, 1}));
  auto c = graph.matmul(a, b, tw::graph::Matmul_attributes());
  auto sum = graph.pointwise(c, bias, tw::graph::Pointwise_attributes().set_mode(tw::PointwiseMode_t::ADD));
  auto y = graph.pointwise(sum, tw::graph::Pointwise_attributes().set_mode(tw::PointwiseMode_t::RELU_FWD));
  y->set_output(true);

  if (auto status = graph.build({tw::HeurMode_t::A}); status.is_bad()) {
    std::printf("build: %s\n", status.get_message().c_str());
    return 1;
  }
  std::vector<float> a_data = {1, 2, 3, 4, 5, 6}, b_data = {1, 0, 0, 1, 1, -1}, bias_data = {-5, 0.5f}, y_data(4, -1.f);
  std::vector<char> workspace(size_t(graph.get_workspace_size()));
  std::unordered_map<std::shared_ptr<tw::graph::Tensor_attributes>, void*> pack = {
      {a, a_data.data()}, {b, b_data.data()}, {bias, bias_data.data()}, {y, y_data.data()}};
  if (auto status = graph.execute(nullptr, pack, workspace.data()); status.is_bad()) {
    std::printf("execute: %s\n", status.get_message().c_str());
    return 1;
  }
  // A B = [[4, -1], [10, -1]]
  const std::vector<float> expected = {0, 0, 5, 0};
  for (size_t i = 0; i < 4; ++i) {
    if (y_data[i] != expected[i]) {
      std::printf("y[%zu] = %g, expected %g\n", i, y_data[i], expected[i]);
      return 1;
    }
  }
  std::printf("tilewright %s: relu(A B + bias) is right\n", tw::version_string());
  return 0;
}
