#include "device/cuda/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/library_search.h"
#include "base/result.h"
#include "base/shared_library.h"
#include "device/cuda/driver.h"

namespace tilewright::cuda {

const char* const kNvrtcInstall =
    "pip install nvidia-cuda-nvrtc (where the driver is of CUDA 12: nvidia-cuda-nvrtc-cu12)";

namespace {

// Empty, or what is wrong with the library.
std::string take(void* library, Nvrtc& n, std::string& version) {
#define TW_NVRTC(member, symbol, result, arguments) \
  if (!find_symbol(library, #symbol, n.member)) return "it has no " #symbol;
#define TW_NVRTC_LATER(member, symbol, result, arguments) find_symbol(library, #symbol, n.member);
#include "device/cuda/nvrtc.def"
#undef TW_NVRTC_LATER
#undef TW_NVRTC
  int major = 0, minor = 0;
  if (n.version(&major, &minor) != 0) return "nvrtcVersion fails";
  version = fmt::format("{}.{}", major, minor);
  return {};
}

LibraryOpening open(const std::string& path, Nvrtc& nvrtc) {
  LibraryOpening opening;
  void* library = open_library(path, opening.problem);
  if (!library) return opening;
  opening.problem = take(library, nvrtc, opening.version);
  const std::string builtins = folder_of(path) + "/libnvrtc-builtins.so." + opening.version;
  if (opening.problem.empty() && !is_file(builtins))
    opening.problem = fmt::format("incomplete: it lacks {}", name_of(builtins));
  if (!opening.problem.empty()) dlclose(library);
  return opening;
}

}  // namespace

void find_nvrtc(const Surroundings& s, int driver, NvrtcFound& found) {
  LibrarySearch wanted;
  wanted.title = "NVRTC";
  wanted.variable = kNvrtcPath;
  wanted.stem = "libnvrtc";
  wanted.names = {"libnvrtc.so.13", "libnvrtc.so.12"};
  // A driver takes no code of a later CUDA's compiler.
  if (driver > 0 && driver < 13000) wanted.names = {"libnvrtc.so.12"};
  wanted.wheel_folders = {"cu13/lib", "cuda_nvrtc/lib"};
  wanted.install = driver == 0      ? kNvrtcInstall
                   : driver < 13000 ? "pip install nvidia-cuda-nvrtc-cu12"
                                    : "pip install nvidia-cuda-nvrtc";
  wanted.open = [&found](const std::string& path) { return open(path, found.nvrtc); };
  LibrarySearchResult result = search_library(s, wanted);
  NvrtcLookup& lookup = found.lookup;
  lookup.path = result.path, lookup.version = result.version;
  lookup.problem = result.problem, lookup.mend = result.mend;
  lookup.tried = std::move(result.tried);
  if (result.found) lookup.nvrtc = &found.nvrtc;
}

int driver_version() {
  int version = 0;
  if (const Driver* driver = driver_lookup().driver) driver->driver_get_version(&version);
  return version;
}

const NvrtcLookup& nvrtc_lookup() {
  // Never destroyed: objects that compile may be the last to go.
  static const NvrtcFound* once = [] {
    auto* found = new NvrtcFound;
    find_nvrtc(Surroundings::of_this_process(), driver_version(), *found);
    return found;
  }();
  return once->lookup;
}

const Nvrtc& nvrtc() {
  TW_CHECK(nvrtc_lookup().nvrtc);
  return *nvrtc_lookup().nvrtc;
}

std::string NvrtcLookup::error_text() const { return fmt::format("{}\nto mend it: {}", problem, mend); }

}  // namespace tilewright::cuda
