// The inside of KernelCache. What is kept for a class of shapes is the choice (engine and configuration), so that a new
// shape of the class asks no engine and ranks nothing; and what an engine compiled, in a form of its own.
#pragma once

#include <functional>
#include <map>
#include <memory>
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

// What one engine keeps.
class EngineCache {
 public:
  virtual ~EngineCache() = default;
  virtual std::string to_text() const = 0;
};

struct KernelCache::Impl {
  std::mutex mutex;
  std::map<std::string, CachedChoice> choices;                  // by class of shapes and target
  std::map<std::string, std::shared_ptr<EngineCache>> engines;  // by engine
  std::map<std::string, std::string> loaded;                    // by engine: what a file brought, until it is asked for
  bool finalized = false;
  int64_t hits = 0, misses = 0;
};

std::optional<CachedChoice> find_cached(KernelCache&, const ir::Graph&, const Target&);
void remember(KernelCache&, const ir::Graph&, const Target&, CachedChoice);
// The engine's part of the cache; made at the first call, from the text that a file brought, else from an empty one.
// Null where `make` gives null.
std::shared_ptr<EngineCache> engine_cache(
    KernelCache&, const std::string& engine,
    const std::function<std::shared_ptr<EngineCache>(const std::string& text)>& make);

}  // namespace tilewright
