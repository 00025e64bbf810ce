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

namespace tilewright::bench {

// The tensors of a row by name, several times over, so that what runs next does not find its inputs in the cache.
// "K row-major" is another view of the memory of "K".
class Tensors {
 public:
  using Fill = std::function<void(const std::string& name, int64_t index, float& value)>;
  // How many sets of so many bytes it takes to get past the last-level cache, as memory allows.
  static int sets_for(double bytes);

  Tensors(int sets, Fill fill) : sets_(sets), fill_(std::move(fill)) {}
  // Memory for the tensors that are not there yet; inputs are filled, from a seed of their name.
  void add(const ir::Graph&);
  // The contents of the first set, in all.
  void spread();
  void poison(const ir::Graph&);  // outputs of the first set
  int sets() const { return sets_; }
  void* at(const std::string& name, int set) const;
  Bindings bindings(const ir::Graph&, int set) const;
  std::unordered_map<int64_t, void*> pack(const ir::Graph&, int set) const;  // by uid

 private:
  struct Buffer {
    std::vector<std::unique_ptr<char, void (*)(void*)>> set;
    size_t bytes = 0;
  };
  int sets_;
  Fill fill_;
  std::unordered_map<std::string, Buffer> buffers_;
};

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

double bytes_of(const ir::Graph&);
double last_level_cache_bytes();
int64_t peak_extra_bytes(Contestant&);  // of memory, while it runs for the first time
double median(std::vector<double> values);

}  // namespace tilewright::bench
