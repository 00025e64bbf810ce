// A stand-in for cuDNN: remembers every descriptor with its attributes, and answers as it is told to. One at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engines/cudnn/config.h"
#include "engines/cudnn/loader.h"

namespace tilewright::testing {

struct RecordedAttribute {
  cudnn::Attr name;
  std::string text;              // "[2,3]", "t5" for the tensor of uid 5, "MATMUL", "1.5"
  std::vector<void*> pointers;   // of pointers and descriptors
  std::vector<int64_t> numbers;  // of whole numbers
};
struct RecordedDescriptor {
  cudnn::Kind kind;
  std::vector<RecordedAttribute> attributes;
  bool finalized = false, destroyed = false;

  const RecordedAttribute* find(cudnn::Attr) const;
  std::string text() const;  // "MATMUL MATMUL_COMP_TYPE=0"
};

class RecordingCudnn {
 public:
  explicit RecordingCudnn(int64_t version = 91900);
  ~RecordingCudnn();
  RecordingCudnn(const RecordingCudnn&) = delete;
  RecordingCudnn& operator=(const RecordingCudnn&) = delete;

  // --- answers ---
  std::map<int, std::vector<cudnn::Config>> listed;  // by heuristics mode, as cuDNN numbers them
  size_t most_operations = 100;                      // an operation graph of more is listed nothing
  std::string pages;                                 // the last error's text, where there is one
  int64_t plan_workspace = 512, engine_count = 50;
  int behavior_note = 3;        // of every engine: SUPPORTS_CUDA_GRAPH_NATIVE_API
  bool tells_workspace = true;  // of configurations, as 9.2 and later do
  std::optional<cudnn::Kind> finalize_fails;
  std::optional<cudnn::Attr> set_fails;

  // --- what was called ---
  std::vector<std::unique_ptr<RecordedDescriptor>> made;
  std::vector<RecordedDescriptor> packs;  // as of each execution, by the variant pack
  int alive = 0;
  std::vector<const RecordedDescriptor*> of_kind(cudnn::Kind) const;
  std::string operations() const;  // tensors and operations, one a line

  cudnn::Library calls;  // take members away before the first use to have them missing

 private:
  std::unique_ptr<cudnn::ScopedLibrary> scope_;
};

}  // namespace tilewright::testing
