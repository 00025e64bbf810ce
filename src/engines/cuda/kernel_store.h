// Compiled kernels that plans share: in the user's KernelCache, and on a GPU while any plan there uses them.
#pragma once

#include <map>
#include <mutex>
#include <set>

#include "device/cuda/compiler.h"
#include "engines/cuda/launch.h"
#include "plan/kernel_cache.h"

namespace tilewright::cuda {

// A kernel in the memory of a GPU.
class LoadedKernel {
 public:
  LoadedKernel(std::shared_ptr<const CompiledKernel>, int ordinal);
  ~LoadedKernel();
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;
  CUfunction function() const { return function_; }
  const Status& status() const { return status_; }

 private:
  std::shared_ptr<const CompiledKernel> kernel_;  // kept, since it is what the kernel is known by
  int ordinal_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  Status status_;
};
// One for all who ask, as long as any of them keeps it.
Result<std::shared_ptr<const LoadedKernel>> load_kernel(std::shared_ptr<const CompiledKernel>, int ordinal);

// The engine's part of a KernelCache: kernels by what they were compiled from, so that other shapes of a class, here or
// in a program that reads the cache's text, need no compiler.
class KernelStore : public EngineCache {
 public:
  static std::shared_ptr<KernelStore> of(KernelCache*);  // null for null
  // Without the entries that are damaged; empty for what is no such text.
  static std::shared_ptr<KernelStore> from_text(const std::string&);
  std::string to_text() const override;

  std::shared_ptr<const CompiledKernel> find(const std::string& key) const;
  void add(const std::string& key, std::shared_ptr<const CompiledKernel>);
  void keep(std::shared_ptr<const LoadedKernel>);  // so that the next plan finds it on the GPU

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const CompiledKernel>> kernels_;
  std::set<std::shared_ptr<const LoadedKernel>> loaded_;
};

// Machine code into every launch, many kernels at a time.
Status compile_all(std::vector<Launch>& launches, const std::string& code, KernelStore* store);

}  // namespace tilewright::cuda
