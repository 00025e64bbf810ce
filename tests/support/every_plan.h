// Runs every plan of a graph over guarded, poisoned memory and judges each by the exact reference, so that a test of an
// op is a test of every engine.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "frontend/builder.h"
#include "plan/harness.h"
#include "tilewright/graph.h"

namespace tilewright::testing {

class EveryPlan {
 public:
  // Builds all plans. Inputs are filled as the options say; fill() replaces them.
  explicit EveryPlan(graph::Graph& graph, HarnessOptions options = {}) : graph_(graph) {
    status = graph.build({HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK}, BuildPlanPolicy_t::ALL);
    if (status.is_bad()) return;
    ir_ = graph.impl().frozen.graph;
    harness_ = std::make_unique<Harness>(*ir_, options);
  }
  Status status;

  const ir::Graph& ir() const { return *ir_; }
  Harness& harness() { return *harness_; }
  ir::TensorId id(const graph::TensorPtr& t) const {
    for (size_t i = 0; i < ir_->tensors.size(); ++i)
      if (ir_->tensors[i].uid == t->get_uid()) return ir::TensorId(i);
    ADD_FAILURE() << "no tensor " << t->get_name();
    return ir::kNone;
  }

  // Element i, row-major, becomes value(i).
  template <class F>
  EveryPlan& fill(const graph::TensorPtr& t, const F& value) {
    const ir::Tensor& tensor = ir_->tensor(id(t));
    for (int64_t i = 0; i < volume(tensor.dim); ++i) {
      special_ |= !std::isfinite(double(value(i)));
      store_element(harness_->memory(id(t)), tensor.storage_type(), offset_of_linear(i, tensor.view()), value(i));
    }
    harness_->inputs_changed();
    return *this;
  }
  // What the memory holds now, row-major.
  std::vector<double> read(const graph::TensorPtr& t) {
    const ir::Tensor& tensor = ir_->tensor(id(t));
    std::vector<double> values(size_t(volume(tensor.dim)));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] =
          load_element(harness_->memory(id(t)), tensor.storage_type(), offset_of_linear(int64_t(i), tensor.view()));
    return values;
  }
  // The reference's values, row-major: of an output, also of a virtual tensor.
  std::vector<double> expected(const graph::TensorPtr& t) {
    auto all = harness_->reference();
    std::vector<double> values;
    if (!all) {
      ADD_FAILURE() << all.status().err_msg;
      return values;
    }
    for (const Bounded& b : (**all)[size_t(id(t))].values) values.push_back(b.v);
    return values;
  }

  // Every plan: runs, stays inside its memory, and is right. `after` sees the outputs of each. Inputs with NaN or
  // infinities are left to the plans that say STRICT_NAN_PROP.
  template <class After>
  ::testing::AssertionResult run(const After& after) {
    if (status.is_bad()) return ::testing::AssertionFailure() << status.err_msg;
    const int64_t count = graph_.get_execution_plan_count();
    int64_t ran = 0;
    for (int64_t i = 0; i < count; ++i) {
      int64_t bytes = 0;
      const std::string name = graph_.plans()[size_t(i)].name;
      const auto& notes = graph_.impl().plans.at(i).candidate.numerical_notes;
      if (special_ && std::find(notes.begin(), notes.end(), NumericalNote_t::STRICT_NAN_PROP) == notes.end()) continue;
      if (graph_.get_workspace_size_plan_at_index(i, bytes).is_bad())
        return ::testing::AssertionFailure() << "plan " << name << " did not build";
      harness_->poison_outputs();
      auto pack = harness_->variant_pack();
      const Status ok = graph_.execute_plan_at_index(Handle{}, pack, harness_->workspace(bytes), i);
      if (ok.is_bad()) return ::testing::AssertionFailure() << name << ": " << ok.err_msg;
      const Status right = harness_->check();
      if (right.is_bad()) return ::testing::AssertionFailure() << name << ": " << right.err_msg;
      ++ran;
      after(name);
    }
    if (ran == 0) return ::testing::AssertionFailure() << "there is no plan";
    return ::testing::AssertionSuccess();
  }
  ::testing::AssertionResult run() {
    return run([](const std::string&) {});
  }

 private:
  graph::Graph& graph_;
  std::shared_ptr<const ir::Graph> ir_;
  std::unique_ptr<Harness> harness_;
  bool special_ = false;  // some input was filled with NaN or an infinity
};

// "sum / sum of absolute values / first / last", nine significant digits each: a tensor's check numbers.
inline std::string check_numbers(const std::vector<double>& v) {
  double sum = 0, magnitude = 0;
  for (double x : v) sum += x, magnitude += std::fabs(x);
  return fmt::format("{:.9g} / {:.9g} / {:.9g} / {:.9g}", sum, magnitude, v.front(), v.back());
}

// The position-coded fill of the check numbers: multiples of 1/8 in [-1, 1], so that sums of products are exact.
inline auto coded(int64_t a) {
  return [a](int64_t i) { return double((a * i + 3) % 17 - 8) / 8; };
}

}  // namespace tilewright::testing
