// Runs every plan of a graph over guarded, poisoned memory and judges each by the exact reference, so that a test of an
// op is a test of every engine.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/nvrtc.h"
#include "engines/cuda/engine.h"
#include "frontend/builder.h"
#include "plan/device_copy.h"
#include "plan/harness.h"
#include "support/test_device.h"
#include "tilewright/graph.h"

namespace tilewright::testing {

// No valid graph is refused on a GPU, whichever it is: kernels of ours compute it. TILEWRIGHT_TEST_COMPILE=1 compiles
// them too, which takes minutes.
inline void expect_kernels(const ir::Graph& graph) {
  if (!cuda::nvrtc_lookup().nvrtc) return;
  static const bool compile = std::getenv("TILEWRIGHT_TEST_COMPILE") != nullptr;
  for (const char* device : {"h200", "compute_75"}) {
    const Verdict v = cuda_engine().propose(graph, *Target::parse(device));
    for (const Reason& r : v.reasons) ADD_FAILURE() << "engine cuda for " << device << ": " << r.text;
    if (!v.proposal || !compile) continue;
    for (const Candidate& c : v.proposal->candidates()) {
      const auto artifact = v.proposal->compile(c.config, nullptr);
      EXPECT_TRUE(artifact) << device << ", " << c.config << ": " << artifact.status();
    }
  }
}

class EveryPlan {
 public:
  // Builds all plans. Inputs are filled as the options say; fill() replaces them.
  explicit EveryPlan(graph::Graph& graph, HarnessOptions options = {}) : graph_(graph), handle_(test_handle()) {
    const std::vector<HeurMode_t> modes = {HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK};
    status = handle_ ? build_ours(modes) : graph.build(modes, BuildPlanPolicy_t::ALL);
    if (status.is_bad()) return;
    ir_ = graph.impl().frozen.graph;
    expect_kernels(*ir_);
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
      if (handle_ && graph_.plans()[size_t(i)].state != PlanState::Built) continue;
      if (graph_.get_workspace_size_plan_at_index(i, bytes).is_bad())
        return ::testing::AssertionFailure() << "plan " << name << " did not build";
      harness_->poison_outputs();
      const Status ok = execute(i, bytes);
      if (ok.is_bad()) return ::testing::AssertionFailure() << name << ": " << ok.err_msg;
      const Status right = harness_->check();
      if (right.is_bad()) return ::testing::AssertionFailure() << name << ": " << right.err_msg;
      ++ran;
      after(name);
    }
    if (ran == 0 && !handle_) return ::testing::AssertionFailure() << "there is no plan";
    return ::testing::AssertionSuccess();
  }
  ::testing::AssertionResult run() {
    return run([](const std::string&) {});
  }

 private:
  // On a GPU the plans of our own kernels are tested; vendors' have tests of their own.
  Status build_ours(const std::vector<HeurMode_t>& modes) {
    TW_RETURN_IF_BAD(graph_.validate());
    TW_RETURN_IF_BAD(graph_.build_operation_graph(handle_));
    TW_RETURN_IF_BAD(graph_.create_execution_plans(modes));
    for (const PlanInfo& p : graph_.plans())
      if (p.index >= 0 && p.engine == "cuda") TW_RETURN_IF_BAD(graph_.build_plan_at_index(p.index));
    return {};
  }
  Status execute(int64_t index, int64_t workspace_bytes) {
    void* const memory = harness_->workspace(workspace_bytes);
    auto pack = harness_->variant_pack();
    if (!handle_) return graph_.execute_plan_at_index(Handle{}, pack, memory, index);
    auto copy = DeviceCopy::make(*ir_, *harness_, 0);
    if (!copy) return copy.status();
    TW_RETURN_IF_BAD(copy->upload());
    for (size_t t = 0; t < ir_->tensors.size(); ++t)
      if (copy->bindings()[t]) pack[ir_->tensors[t].uid] = copy->bindings()[t];
    TW_RETURN_IF_BAD(graph_.execute_plan_at_index(handle_, pack, copy->workspace(), index));
    return copy->download();
  }

  graph::Graph& graph_;
  Handle handle_;
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
