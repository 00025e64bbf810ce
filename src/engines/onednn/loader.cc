#include "engines/onednn/loader.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

#include "base/environment.h"

namespace tilewright::onednn {
namespace {

struct Loaded {
  Lookup lookup;
  Library calls;
};

template <class F>
bool find(void* handle, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(handle, name));
  return function;
}

// Takes the functions; says what stands in the way.
std::string take(void* handle, Loaded& loaded) {
  Library& lib = loaded.calls;
  if (!find(handle, "dnnl_version", lib.version)) return "it has no dnnl_version";
  const Version& v = *lib.version();
  loaded.lookup.version = fmt::format("{}.{}.{}", v.major, v.minor, v.patch);
  if (v.major != 2)
    return fmt::format("it is version {}, whose interface differs; versions 2.6 and later 2.x serve",
                       loaded.lookup.version);
#define X(NAME, RESULT, ARGUMENTS) \
  if (!find(handle, "dnnl_" #NAME, lib.NAME)) \
    return fmt::format("version {} has no dnnl_" #NAME "; versions 2.6 and later 2.x serve", loaded.lookup.version);
  TW_ONEDNN_FUNCTIONS(X)
#undef X
  find(handle, "omp_set_num_threads", lib.omp_set_num_threads);
  find(handle, "omp_get_max_threads", lib.omp_get_max_threads);
  if (lib.engine_create(&lib.engine, kCpu, 0) != kSuccess) return "it has no engine for this CPU";
  return {};
}

std::string path_of(void* function) {
  Dl_info info;
  return dladdr(function, &info) && info.dli_fname ? info.dli_fname : "";
}

Loaded load() {
  Loaded loaded;
  std::vector<std::string> names = {"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"};
  if (const char* given = kOnednnPath.value()) names = {given};
  Lookup& found = loaded.lookup;
  if (names[0] == "off") {
    found.problem = fmt::format("switched off by {}=off", kOnednnPath.name);
    return loaded;
  }
  for (const std::string& name : names) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* why = dlerror();
      found.tried.push_back(why ? why : name + ": not found");
      continue;
    }
    const std::string problem = take(handle, loaded);
    found.path = loaded.calls.version ? path_of(reinterpret_cast<void*>(loaded.calls.version)) : name;
    if (problem.empty()) {
      found.problem.clear();
      return loaded;  // the handle stays open: threads of the library's runtime live on
    }
    found.problem = fmt::format("{}: {}", found.path, problem);
    found.tried.push_back(found.problem);
    dlclose(handle);
  }
  if (found.problem.empty()) found.problem = fmt::format("libdnnl is not there; to have it: {}", kInstall);
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

const Lookup& lookup() { return loaded().lookup; }
const Library& library() { return loaded().calls; }

Threads::Threads(int count) {
  const Library& lib = library();
  if (!lib.omp_set_num_threads || !lib.omp_get_max_threads) return;
  before_ = lib.omp_get_max_threads();
  lib.omp_set_num_threads(count);
}
Threads::~Threads() {
  if (before_ > 0) library().omp_set_num_threads(before_);
}

}  // namespace tilewright::onednn
