#include "engines/cudnn/loader.h"

#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "base/result.h"
#include "device/cuda/nvrtc.h"
#include "engines/cudnn/find.h"

namespace tilewright::cudnn {

const char* const kInstall = "pip install nvidia-cudnn-cu13 (where the driver is of CUDA 12: nvidia-cudnn-cu12)";

namespace {

std::mutex g_mutex;
std::string g_path;  // of set_path
bool g_searched = false;
std::atomic<const Lookup*> g_scoped = nullptr;

const Lookup& found() {
  // Never destroyed: objects that hold descriptors may be the last to go.
  static const Found* once = [] {
    std::lock_guard lock(g_mutex);
    g_searched = true;
    auto* f = new Found;
    find(Surroundings::of_this_process(), g_path, cuda::driver_version(), *f);
    return f;
  }();
  return once->lookup;
}

}  // namespace

const Lookup& lookup() {
  const Lookup* scoped = g_scoped;
  return scoped ? *scoped : found();
}

const Library& library() {
  const Library* l = lookup().calls;
  TW_CHECK(l);
  return *l;
}

bool set_path(const std::string& path) {
  std::lock_guard lock(g_mutex);
  if (g_searched) return false;
  g_path = path;
  return true;
}

std::string version_text(int64_t version) {
  return version ? fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100) : "";
}
std::string Lookup::error_text() const { return fmt::format("{}\nto mend it: {}", problem, mend); }

ScopedLibrary::ScopedLibrary(const Library& library, int64_t version) : before_(g_scoped) {
  lookup_.calls = &library;
  lookup_.version = version;
  lookup_.path = "a test's";
  g_scoped = &lookup_;
}
ScopedLibrary::~ScopedLibrary() { g_scoped = before_; }

}  // namespace tilewright::cudnn
