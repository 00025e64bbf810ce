// Shared by graphs of one topology and different shapes: what was compiled or decided for one is reused by the next.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tilewright/status.h"

#pragma GCC visibility push(default)
namespace tilewright {

class KernelCache {
 public:
  KernelCache();
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  // True once a graph was built with it.
  bool is_finalized() const;
  error_t status() const;
  error_t to_json(std::string& text) const;
  // INVALID_VALUE on a cache that is finalized already, or when the text is no cache of ours.
  error_t from_json(const std::string& text);
  // Builds that found their entry, and builds that made one.
  int64_t hits() const;
  int64_t misses() const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
#pragma GCC visibility pop
