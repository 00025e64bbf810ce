// The inside of KernelCache. On a CPU nothing is compiled; what is worth keeping for a class of shapes is the choice
// (engine and configuration), so that a new shape of the class asks no engine and ranks nothing.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "ir/graph.h"
#include "plan/target.h"
#include "tilewright/kernel_cache.h"

namespace tilewright {

struct CachedChoice {
  std::string engine, config;
  int kernel_count = 0;
};

struct KernelCache::Impl {
  std::mutex mutex;
  std::map<std::string, CachedChoice> choices;  // by class of shapes and target
  bool finalized = false;
  int64_t hits = 0, misses = 0;
};

std::optional<CachedChoice> find_cached(KernelCache&, const ir::Graph&, const Target&);
void remember(KernelCache&, const ir::Graph&, const Target&, CachedChoice);

}  // namespace tilewright
