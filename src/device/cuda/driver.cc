#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <link.h>

namespace tilewright::cuda {

const char* const kDriverInstall =
    "apt-get install nvidia-driver (Debian non-free) and reboot, or start the container with its GPUs";

namespace {

struct Loaded {
  Driver driver;
  DriverLookup lookup;
};

std::string path_of(void* library, const char* name) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0] ? map->l_name : name;
}

// Empty, or what is wrong with the library.
std::string take(void* library, Driver& d) {
#define TW_CUDA(member, symbol, arguments) \
  d.member = reinterpret_cast<decltype(d.member)>(dlsym(library, #symbol)); \
  if (!d.member) return "it lacks " #symbol ": the driver is older than CUDA 11.4";
#include "device/cuda/driver.def"
#undef TW_CUDA
  return {};
}

std::string start(const Driver& d, DriverLookup& found) {
  const CUresult r = d.init(0);
  const char* text = nullptr;
  if (r != kSuccess)
    return fmt::format("it cannot start: {} ({})",
                       d.get_error_string(r, &text) == kSuccess && text ? text : "unknown error", r);
  int version = 0;
  if (d.driver_get_version(&version) == kSuccess)
    found.version = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  if (d.device_get_count(&found.devices) != kSuccess || found.devices == 0) return "it lists no GPU";
  return {};
}

Loaded load() {
  Loaded loaded;
  DriverLookup& found = loaded.lookup;
  for (const char* name : {"libcuda.so.1", "libcuda.so"}) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);  // never closed: its threads live on
    if (!library) {
      const char* why = dlerror();
      found.tried.push_back(why ? why : fmt::format("{}: not found", name));
      continue;
    }
    found.path = path_of(library, name);
    std::string problem = take(library, loaded.driver);
    if (problem.empty()) problem = start(loaded.driver, found);
    if (problem.empty()) return loaded;
    found.problem = fmt::format("{}: {}", found.path, problem);
    found.tried.push_back(found.problem);
  }
  if (found.problem.empty()) found.problem = "the CUDA driver (libcuda.so.1) is not there: no NVIDIA GPU to run on";
  return loaded;
}

}  // namespace

const DriverLookup& driver_lookup() {
  static Loaded* once = [] {
    auto* l = new Loaded(load());  // outlives every static object that may still free device memory
    if (l->lookup.problem.empty()) l->lookup.driver = &l->driver;
    return l;
  }();
  return once->lookup;
}

const Driver& driver() {
  TW_CHECK(driver_lookup().driver);
  return *driver_lookup().driver;
}

Status check(CUresult r, const std::string& what) {
  if (r == kSuccess) return {};
  const char* text = nullptr;
  if (driver().get_error_string(r, &text) != kSuccess || !text) text = "unknown error";
  return error(error_code_t::CUDA_API_FAILED, "{}: {} ({})", what, text, r);
}

}  // namespace tilewright::cuda
