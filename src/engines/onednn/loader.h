// oneDNN as found at run time: one library for the process, never unloaded.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engines/onednn/api.h"

namespace tilewright::onednn {

struct Library {
#define X(NAME, RESULT, ARGUMENTS) RESULT(*NAME) ARGUMENTS = nullptr;
  TW_ONEDNN_FUNCTIONS(X)
#undef X
  // Of the OpenMP runtime that the library brings; null where it has another runtime.
  void (*omp_set_num_threads)(int) = nullptr;
  int (*omp_get_max_threads)() = nullptr;
  Handle engine = nullptr;
};

// What was found, and where.
struct Lookup {
  std::vector<std::string> tried;  // "libdnnl.so.2: not found"
  std::string path, version;       // of the library that serves, or of the last one that did not
  std::string problem;             // empty: it serves
};
const Lookup& lookup();
// Only when lookup().problem is empty.
const Library& library();

// The shell command that would install the library.
constexpr const char* kInstall = "apt-get install libdnnl2 (Debian), or set TILEWRIGHT_ONEDNN_PATH to libdnnl.so.2";

// Owns a handle; `destroy` is one of the library's functions.
template <Status (*Library::*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& from) noexcept : handle_(std::exchange(from.handle_, nullptr)) {}
  Owned& operator=(Owned&& from) noexcept {
    std::swap(handle_, from.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_) (library().*kDestroy)(handle_);
  }
  Handle get() const { return handle_; }
  Handle* put() { return &handle_; }
  explicit operator bool() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Stream = Owned<&Library::stream_destroy>;
using Memory = Owned<&Library::memory_destroy>;
using Attributes = Owned<&Library::primitive_attr_destroy>;
using PostOps = Owned<&Library::post_ops_destroy>;
using PrimitiveDesc = Owned<&Library::primitive_desc_destroy>;
using Primitive = Owned<&Library::primitive_destroy>;

// Sets the calling thread's number of OpenMP threads for a scope.
class Threads {
 public:
  explicit Threads(int count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_ = 0;
};

}  // namespace tilewright::onednn
