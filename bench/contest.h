// One row's contestants on the same memory: our plans, and what they are held against.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "plan/engine.h"
#include "rows.h"
#include "tensors.h"

namespace tilewright::bench {

struct Contestant {
  std::string name;
  std::string engine;  // of our plans
  int64_t rank = -1;   // of our plans: the place in the list
  int64_t workspace_bytes = 0;
  std::function<Status(int set)> run;
  std::function<void()> poison;  // of the outputs that it is about to write
  std::shared_ptr<const ir::Graph> graph;
  std::shared_ptr<Tensors> tensors;
  bool exact_bounds = true;  // judged by the derived bounds; else by what its type can tell
  std::vector<double> ms = {};
};

// Everything that a row runs, built. An error says what did not build.
struct Contest {
  std::vector<Contestant> ours;   // by rank
  std::vector<Contestant> peers;  // in the order of row.peers; one that is not there has no run
  std::string missing;            // why a peer is not there
};
Result<Contest> make_contest(const Row&);

// Runs a contestant once and compares samples of what it wrote with the exact reference.
Status check(const Row&, Contestant&);

int64_t peak_extra_bytes(Contestant&);  // of memory, while it runs for the first time

}  // namespace tilewright::bench
