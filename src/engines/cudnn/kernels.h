// cuDNN's own cache of compiled kernels, for graphs of dynamic shapes.
#pragma once

#include <map>
#include <mutex>

#include "engines/cudnn/operation_graph.h"
#include "plan/kernel_cache.h"

namespace tilewright::cudnn {

// One descriptor for each class of shapes; as text, what cuDNN writes of each, by class.
class Kernels : public EngineCache {
 public:
  static std::shared_ptr<Kernels> from_text(const std::string&);  // empty for what is no such text
  // The descriptor for graphs like this one, finalized with it at the first call; null where cuDNN has none.
  RawDescriptor of(const std::string& key, const OperationGraph&);
  std::string to_text() const override;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Descriptor> made_;
  std::map<std::string, std::string> loaded_;  // what a file brought and nobody asked for yet
};

}  // namespace tilewright::cudnn
