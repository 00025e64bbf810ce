// The memory of a benchmark's tensors on the host, by name, and how it is filled.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "plan/engine.h"

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

// The name of the memory that a tensor is in: "K row-major" is in "K".
std::string memory_name(const ir::Tensor&);
std::unique_ptr<char, void (*)(void*)> allocate_pages(size_t bytes);
double bytes_of(const ir::Graph&);  // of all that the caller binds
double last_level_cache_bytes();
double median(std::vector<double> values);

}  // namespace tilewright::bench
