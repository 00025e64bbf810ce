// What the tests of the normalisations share: layouts, brute-force formulas in long double, and numeric gradients.
#pragma once

#include <functional>
#include <map>
#include <random>

#include "ops/op_graph.h"

namespace tilewright::norm_test {

inline const AttrMap kTraining{{"forward_phase", std::string("TRAINING")}};
inline const AttrMap kInference{{"forward_phase", std::string("INFERENCE")}};

// A few ways to lay out a tensor: packed rows, channels last, gaps after each row.
enum class Layout { kRowMajor, kChannelsLast, kPadded };
constexpr Layout kLayouts[] = {Layout::kRowMajor, Layout::kChannelsLast, Layout::kPadded};
inline Dims strides(Layout layout, const Dims& dim) {
  if (layout == Layout::kRowMajor) return row_major_strides(dim);
  if (layout == Layout::kChannelsLast) return channels_last_strides(dim);
  Dims wider = dim;
  wider.back() += 3;
  Dims s = row_major_strides(wider);
  for (int64_t& v : s) v = v * 2;  // gaps between elements, too
  return s;
}

// The values of a tensor in memory, by index tuple.
class Reader {
 public:
  Reader(const Harness& harness, const OpGraph& g, ir::TensorId id) : tensor_(&g[id]), memory_(harness.memory(id)) {}
  long double operator()(Dims index) const {
    for (size_t d = 0; d < index.size(); ++d)
      if (tensor_->dim[d] == 1) index[d] = 0;
    return load_element(memory_, tensor_->type, offset_of(tensor_->stride, index.data()));
  }

 private:
  const ir::Tensor* tensor_;
  const void* memory_;
};

inline void each_index(const Dims& dim, const std::function<void(const Dims&)>& body) {
  Dims index(dim.size());
  for (int64_t i = 0; i < volume(dim); ++i) {
    unravel(i, dim, index.data());
    body(index);
  }
}

// The index of the statistic, or parameter, that an element uses.
inline Dims masked(Dims index, const Dims& dim) {
  for (size_t d = 0; d < index.size(); ++d)
    if (dim[d] == 1) index[d] = 0;
  return index;
}

using ByIndex = std::map<Dims, long double>;
inline ByIndex sums(const Dims& dim, const Dims& keep, const std::function<long double(const Dims&)>& value) {
  ByIndex s;
  each_index(dim, [&](const Dims& i) { s[masked(i, keep)] += value(i); });
  return s;
}

// A tensor holds `value` of its index, within the reference's bound. The bound is of the node's compute type, so
// DOUBLE graphs are compared to some 1e-15.
inline void expect_values(const OpGraph& g, const Harness& harness, ir::TensorId id,
                          const std::function<long double(const Dims&)>& value) {
  auto reference = evaluate_reference(g.graph, harness.bindings());
  ASSERT_TRUE(reference) << reference.status().err_msg;
  const ir::Tensor& t = g[id];
  std::vector<uint8_t> memory(size_t(t.storage_bytes()));
  each_index(t.dim, [&](const Dims& i) {
    store_element(memory.data(), t.type, offset_of(t.stride, i.data()), double(value(i)));
  });
  const Comparison c = compare((*reference)[size_t(id)], memory.data());
  EXPECT_TRUE(c.ok()) << t.name << ": " << c.text() << "\n" << ir::describe(g.graph);
}

// Mean and 1 / sqrt(variance + epsilon) of the elements that share a statistic.
struct Statistics {
  Dims dim;
  ByIndex mean, variance, inv;
  long double n = 0;
};
inline Statistics statistics(const Dims& x_dim, const Dims& stat_dim, const Reader& x, long double epsilon,
                             bool centred = true) {
  Statistics s;
  s.dim = stat_dim;
  s.n = (long double)volume(x_dim) / (long double)volume(stat_dim);
  s.mean = sums(x_dim, stat_dim, x);
  for (auto& [key, v] : s.mean) v = centred ? v / s.n : 0;
  s.variance = sums(x_dim, stat_dim, [&](const Dims& i) {
    const long double d = x(i) - s.mean[masked(i, stat_dim)];
    return d * d;
  });
  for (auto& [key, v] : s.variance) v /= s.n;
  for (auto& [key, v] : s.variance) s.inv[key] = 1 / std::sqrt(v + epsilon);
  return s;
}

// The gradients of a node DY, X, SCALE, ... -> DX, DSCALE, DBIAS, given the statistics that it uses.
inline void expect_gradients(OpGraph& g, const Harness& harness, Statistics s) {
  const Reader x(harness, g, g.in("X")), dy(harness, g, g.in("DY")), scale(harness, g, g.in("SCALE"));
  const Dims &x_dim = g[g.in("X")].dim, &p_dim = g[g.in("SCALE")].dim;
  const auto xhat = [&](const Dims& i) {
    const Dims k = masked(i, s.dim);
    return (x(i) - (s.mean.empty() ? 0 : s.mean[k])) * s.inv[k];
  };
  ByIndex dscale = sums(x_dim, p_dim, [&](const Dims& i) { return dy(i) * xhat(i); });
  ByIndex dbias = sums(x_dim, p_dim, dy);
  ByIndex g_sum = sums(x_dim, s.dim, [&](const Dims& i) { return dy(i) * scale(i); });
  ByIndex slope = sums(x_dim, s.dim, [&](const Dims& i) { return dy(i) * scale(i) * xhat(i); });
  expect_values(g, harness, g.out("DX"), [&](const Dims& i) {
    const Dims k = masked(i, s.dim);
    const long double mean_g = s.mean.empty() ? 0 : g_sum[k] / s.n;
    return s.inv[k] * (dy(i) * scale(i) - mean_g - xhat(i) * slope[k] / s.n);
  });
  expect_values(g, harness, g.out("DSCALE"), [&](const Dims& i) { return dscale[i]; });
  if (g.out("DBIAS") != ir::kNone) expect_values(g, harness, g.out("DBIAS"), [&](const Dims& i) { return dbias[i]; });
}

// The statistics that a backward node reads from MEAN and INV_VARIANCE.
inline Statistics saved(const OpGraph& g, const Harness& harness, bool centred = true) {
  Statistics s;
  s.dim = g[g.in("INV_VARIANCE")].dim;
  s.n = (long double)volume(g[g.in("X")].dim) / (long double)volume(s.dim);
  const Reader inv(harness, g, g.in("INV_VARIANCE"));
  each_index(s.dim, [&](const Dims& i) { s.inv[i] = inv(i); });
  if (!centred) return s;
  const Reader mean(harness, g, g.in("MEAN"));
  each_index(s.dim, [&](const Dims& i) { s.mean[i] = mean(i); });
  return s;
}

// d(sum dy * y) / d(input) of a forward op by central differences in double precision. `forward` is the value of
// sum dy * y with the op's inputs in memory as they are.
inline double numeric_gradient(void* memory, int64_t element, const std::function<double()>& forward) {
  constexpr double kStep = 1e-4;
  const double at = load_element(memory, DataType_t::DOUBLE, element);
  store_element(memory, DataType_t::DOUBLE, element, at + kStep);
  const double above = forward();
  store_element(memory, DataType_t::DOUBLE, element, at - kStep);
  const double below = forward();
  store_element(memory, DataType_t::DOUBLE, element, at);
  return (above - below) / (2 * kStep);
}
// The step's cube times a third derivative of order one, over it: what a central difference leaves out.
constexpr double kNumericTolerance = 1e-6;

// The gradient op's outputs against numeric derivatives of the forward op: all inputs packed row-major DOUBLE.
inline void expect_numeric_gradients(const char* forward_op, const char* backward_op, const Dims& x, const Dims& scale,
                                     bool with_bias, double epsilon) {
  OpGraph f(DataType_t::DOUBLE, DataType_t::DOUBLE);
  OpGraph::Ports in = {{"X", f.input("X", x)}, {"SCALE", f.input("SCALE", scale)}};
  if (with_bias) in.emplace_back("BIAS", f.input("BIAS", scale));
  in.emplace_back("EPSILON", f.scalar("EPSILON", epsilon));
  const bool phased = std::string(forward_op) != "batchnorm";
  ASSERT_TRUE(f.add(forward_op, in, phased ? kTraining : AttrMap{}).is_good());
  Harness forward(f.graph, {.seed = 5});

  OpGraph b(DataType_t::DOUBLE, DataType_t::DOUBLE);
  const bool centred = f.graph.nodes[0].op->output_port("MEAN") >= 0;
  in = {{"DY", b.input("DY", x)}, {"X", b.input("X", x)}, {"SCALE", b.input("SCALE", scale)}};
  const Dims statistics = f[f.out("INV_VARIANCE")].dim;
  if (centred) in.emplace_back("MEAN", b.input("MEAN", statistics));
  in.emplace_back("INV_VARIANCE", b.input("INV_VARIANCE", statistics));
  ASSERT_TRUE(b.add(backward_op, in, centred ? AttrMap{} : AttrMap{{"has_dbias", true}}).is_good());
  Harness backward(b.graph, {.seed = 6});
  const auto copy = [&](const char* port, const double* from) {
    std::copy(from, from + volume(b[b.in(port)].dim), static_cast<double*>(backward.memory(b.in(port))));
  };
  copy("X", static_cast<const double*>(forward.memory(f.in("X"))));
  copy("SCALE", static_cast<const double*>(forward.memory(f.in("SCALE"))));
  const auto values = [](const std::vector<RefTensor>& tensors, ir::TensorId id) {
    return tensors[size_t(id)].dense().values;
  };
  const auto saved_values = *evaluate_reference(f.graph, forward.bindings());
  if (centred) copy("MEAN", values(saved_values, f.out("MEAN")).data());
  copy("INV_VARIANCE", values(saved_values, f.out("INV_VARIANCE")).data());
  const auto gradients = *evaluate_reference(b.graph, backward.bindings());

  const double* dy = static_cast<const double*>(backward.memory(b.in("DY")));
  const auto loss = [&] {
    const std::vector<double> y = values(*evaluate_reference(f.graph, forward.bindings()), f.out("Y"));
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  const std::pair<const char*, const char*> pairs[] = {{"X", "DX"}, {"SCALE", "DSCALE"}, {"BIAS", "DBIAS"}};
  for (const auto& [input, gradient] : pairs) {
    if (f.in(input) == ir::kNone) continue;
    const std::vector<double> got = values(gradients, b.out(gradient));
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(numeric_gradient(forward.memory(f.in(input)), int64_t(i), loss), got[i], kNumericTolerance)
          << backward_op << " " << gradient << "[" << i << "]";
  }
}

}  // namespace tilewright::norm_test
