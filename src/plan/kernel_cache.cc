#include "plan/kernel_cache.h"

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "plan/engine.h"

namespace tilewright {
namespace {

std::string class_key(const ir::Graph& g, const Target& target) {
  return fmt::format("{:016x}@{}", ir::content_key(g, false), target.text());
}

}  // namespace

KernelCache::KernelCache() : impl_(std::make_unique<Impl>()) {}
KernelCache::~KernelCache() = default;

bool KernelCache::is_finalized() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->finalized;
}
error_t KernelCache::status() const { return {}; }
int64_t KernelCache::hits() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->hits;
}
int64_t KernelCache::misses() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->misses;
}

error_t KernelCache::to_json(std::string& text) const {
  std::lock_guard lock(impl_->mutex);
  nlohmann::json entries = nlohmann::json::object();
  for (const auto& [key, c] : impl_->choices)
    entries[key] = {{"engine", c.engine}, {"config", c.config}, {"kernels", c.kernel_count}};
  nlohmann::json engines = impl_->loaded;
  for (const auto& [name, part] : impl_->engines) engines[name] = part->to_text();
  text = nlohmann::json{{"tilewright_kernel_cache", 1}, {"entries", entries}, {"engines", engines}}.dump();
  return {};
}

error_t KernelCache::from_json(const std::string& text) {
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object() || j.value("tilewright_kernel_cache", 0) != 1 || !j.contains("entries") ||
      !j["entries"].is_object())
    return invalid("kernel cache: the text is no kernel cache of this library (format 1)");
  std::map<std::string, CachedChoice> choices;
  for (const auto& [key, e] : j["entries"].items()) {
    if (!e.is_object() || !e.contains("engine") || !e["engine"].is_string() || !e.contains("config") ||
        !e["config"].is_string())
      return invalid("kernel cache: entry {} lacks engine and config", key);
    choices[key] = {e["engine"], e["config"],
                    e.contains("kernels") && e["kernels"].is_number() ? int(e["kernels"]) : 0};
  }
  std::map<std::string, std::string> parts;
  if (j.contains("engines") && j["engines"].is_object())
    for (const auto& [name, part] : j["engines"].items()) {
      if (!part.is_string()) return invalid("kernel cache: the part of engine {} is no text", name);
      parts[name] = part;
    }
  std::lock_guard lock(impl_->mutex);
  if (impl_->finalized) return invalid("kernel cache: it is finalized already; fill a new one");
  impl_->choices = std::move(choices);
  impl_->loaded = std::move(parts);
  impl_->finalized = true;
  return {};
}

std::optional<CachedChoice> find_cached(KernelCache& cache, const ir::Graph& g, const Target& target) {
  KernelCache::Impl& impl = cache.impl();
  const std::string key = class_key(g, target);
  std::lock_guard lock(impl.mutex);
  auto it = impl.choices.find(key);
  if (it == impl.choices.end()) return std::nullopt;
  ++impl.hits;
  return it->second;
}

void remember(KernelCache& cache, const ir::Graph& g, const Target& target, CachedChoice choice) {
  KernelCache::Impl& impl = cache.impl();
  const std::string key = class_key(g, target);
  std::lock_guard lock(impl.mutex);
  impl.finalized = true;
  if (impl.choices.emplace(key, std::move(choice)).second) ++impl.misses;
}

std::shared_ptr<EngineCache> engine_cache(
    KernelCache& cache, const std::string& engine,
    const std::function<std::shared_ptr<EngineCache>(const std::string& text)>& make) {
  KernelCache::Impl& impl = cache.impl();
  std::lock_guard lock(impl.mutex);
  if (auto it = impl.engines.find(engine); it != impl.engines.end()) return it->second;
  auto loaded = impl.loaded.extract(engine);
  auto part = make(loaded.empty() ? std::string{} : loaded.mapped());
  if (part) impl.engines[engine] = part;
  return part;
}

}  // namespace tilewright
