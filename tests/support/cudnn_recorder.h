// A backend that keeps what it is told, for tests of how graphs are lowered: no library and no GPU is needed.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engines/cudnn/lowering.h"

namespace tilewright::testing {

// Only one at a time; what cudnn::library() is for its life.
class CudnnRecorder {
 public:
  explicit CudnnRecorder(int64_t version = 91900);
  ~CudnnRecorder();

  struct Value {
    cudnn::AttrType type;
    int64_t count = 0;
    std::vector<uint8_t> bytes;

    template <class T>
    T at(size_t i = 0) const {
      T v{};
      if ((i + 1) * sizeof v <= bytes.size()) std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
      return v;
    }
    std::vector<int64_t> integers() const;
  };
  struct Record {
    cudnn::Kind kind;
    std::map<cudnn::Attr, Value> values;
    bool finalized = false;
    const Value* find(cudnn::Attr a) const {
      auto it = values.find(a);
      return it == values.end() ? nullptr : &it->second;
    }
  };
  static const Record& of(cudnn::RawDescriptor raw) { return *static_cast<const Record*>(raw); }

  // One line per operation, `y = MODE a b`: tensors of the graph by name, "T" and its dims where they are seen in
  // another way; numbers as such; virtual ones %0, %1 ... with a type that is not FLOAT; "ws" for the workspace.
  std::string text(const cudnn::Lowered&, const ir::Graph&) const;

 private:
  cudnn::ScopedLibrary scope_;
};

}  // namespace tilewright::testing
