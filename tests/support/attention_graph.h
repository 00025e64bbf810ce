// Attention graphs through the public API, with coded fills, for tests that know the numbers.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/attention_common.h"
#include "support/every_plan.h"

namespace tilewright::testing {

using T = graph::TensorPtr;

// Check numbers of a tensor, of nine digits: sum, sum of magnitudes, first, last.
struct Numbers {
  double sum = 0, magnitude = 0;
  std::optional<double> first = {}, last = {};
};
void expect_numbers(const std::vector<double>& values, const Numbers&);
void expect_values(const std::vector<double>& values, const std::vector<double>& want, double tolerance);
double sum_of(const std::vector<double>&);
double sum_of_magnitudes(const std::vector<double>&);

inline double quadratic(int64_t i) { return double((3 * i * i + 5 * i + 1) % 13 - 6) / 4; }

struct AttentionTraits {
  DataType_t type = DataType_t::FLOAT;
  bool heads_inside = false;  // memory order b, s, h, d instead of b, h, s, d
  Dims v_dim = {};            // empty: K's
};

// One sdpa node, "attention", with O and Stats as outputs. Q, K, V hold coded(5), coded(7), coded(11).
class ForwardGraph {
 public:
  ForwardGraph(const Dims& q_dim, const Dims& k_dim, AttentionTraits = {});

  graph::Graph graph;
  graph::SDPA_attributes attr;
  T q, k, v, o, stats;
  std::unique_ptr<EveryPlan> plans;

  T input(const std::string& name, const Dims& dim, DataType_t type = DataType_t::NOT_SET);
  T output(const std::string& name);
  void set_lengths(const std::vector<int>& q, const std::vector<int>& kv);
  void describe();                  // adds the node, once
  void build();                     // describes, builds every plan, fills the inputs
  void check(const Numbers& of_o);  // builds, runs every plan, compares the reference's O with known numbers
  std::vector<double> expected(const T& t) { return plans->expected(t); }
  std::vector<double> expected_input(const T& t) { return plans->read(t); }

 private:
  AttentionTraits traits_;
  T len_q_, len_kv_;
  std::vector<int> lengths_q_, lengths_kv_;
};

// sdpa and sdpa_backward in one graph; the gradients, O and Stats are outputs. dO holds coded(13).
class TrainingGraph {
 public:
  TrainingGraph(const Dims& q_dim, const Dims& k_dim, AttentionTraits = {});

  graph::Graph graph;
  graph::SDPA_attributes forward;
  graph::SDPA_backward_attributes backward;
  T q, k, v, d_o, o, stats, dq, dk, dv;
  std::unique_ptr<EveryPlan> plans;

  T input(const std::string& name, const Dims& dim, DataType_t type = DataType_t::NOT_SET);
  T output(const std::string& name, const Dims& dim = {});
  void describe();
  void build();
  std::vector<double> expected(const T& t) { return plans->expected(t); }

 private:
  AttentionTraits traits_;
};

}  // namespace tilewright::testing
