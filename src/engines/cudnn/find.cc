#include "engines/cudnn/find.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/library_search.h"
#include "base/shared_library.h"
#include "device/cuda/driver.h"

namespace tilewright::cudnn {
namespace {

constexpr const char* kMain = "libcudnn.so.9";
// In an order in which each finds what it needs among those before it. The package cuDNN-JIT has the first two only; a
// folder with any of the others is to have them all. Later versions have more.
constexpr const char* kParts[] = {
    "libcudnn_graph.so.9",
    "libcudnn_engines_runtime_compiled.so.9",
    "libcudnn_ops.so.9",
    "libcudnn_cnn.so.9",
    "libcudnn_adv.so.9",
    "libcudnn_heuristic.so.9",
    "libcudnn_engines_precompiled.so.9",
};
constexpr size_t kPartsOfJit = 2;

// Libraries opened together; closed again unless kept.
class Opened {
 public:
  ~Opened() {
    for (auto it = all_.rbegin(); it != all_.rend(); ++it) dlclose(*it);
  }
  void* open(const std::string& name, std::string& problem) {
    void* library = open_library(name, problem);
    if (library) all_.push_back(library);
    return library;
  }
  void keep() { all_.clear(); }

 private:
  std::vector<void*> all_;
};

// "9.19.0" where a link leads to libcudnn_ops.so.9.19.0, as packages of Linux distributions have it; else empty.
std::string version_in_name(const std::string& path) {
  const std::string name = name_of(real_path(path));
  const size_t at = name.find(".so.");
  const std::string version = at == std::string::npos ? "" : name.substr(at + 4);
  return version.find('.') == std::string::npos ? "" : version;
}

// Whether the file is a library up to its end, where ELF files have the table of their sections.
bool is_whole(const std::string& path) {
  Elf64_Ehdr header = {};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return false;
  file.seekg(0, std::ios::end);
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_shoff + size_t(header.e_shnum) * header.e_shentsize <= size_t(file.tellg());
}

bool is_known(const std::string& part) {
  return std::find(std::begin(kParts), std::end(kParts), part) != std::end(kParts);
}

// The parts that a folder has: those that are known, and after them others.
std::vector<std::string> parts_in(const std::string& folder) {
  std::vector<std::string> parts, others;
  for (const char* part : kParts)
    if (is_file(folder + "/" + part)) parts.push_back(part);
  std::error_code none;
  for (std::filesystem::directory_iterator it(folder, none), end; !none && it != end; it.increment(none)) {
    const std::string name = it->path().filename().string();
    const bool part = name.rfind("libcudnn_", 0) == 0 && name.size() > 5 && name.substr(name.size() - 5) == ".so.9";
    if (part && !is_known(name)) others.push_back(name);
  }
  std::sort(others.begin(), others.end());
  parts.insert(parts.end(), others.begin(), others.end());
  return parts;
}

// Empty, or what is wrong with the folder's files. Told before anything is opened, because cuDNN's graph library cannot
// be unloaded.
std::string check_files(const std::string& folder) {
  std::vector<std::string> missing, damaged;
  std::map<std::string, std::vector<std::string>> by_version;
  const auto there = [&folder](const char* part) { return is_file(folder + "/" + part); };
  const bool jit = std::none_of(kParts + kPartsOfJit, std::end(kParts), there);
  std::vector<std::string> names(kParts, jit ? kParts + kPartsOfJit : std::end(kParts));
  names.push_back(kMain);
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    if (!is_file(path)) missing.push_back(name);
    else if (!is_whole(path)) damaged.push_back(name);
    if (const std::string v = version_in_name(path); !v.empty()) by_version[v].push_back(name);
  }
  if (!missing.empty()) return fmt::format("incomplete: it lacks {}", fmt::join(missing, ", "));
  if (!damaged.empty()) return fmt::format("damaged, cut short or no library: {}", fmt::join(damaged, ", "));
  if (by_version.size() < 2) return {};
  std::string text = "mixed versions:";
  for (const auto& [version, names] : by_version) text += fmt::format(" {} ({})", version, fmt::join(names, ", "));
  return text;
}

// Takes the functions; says what stands in the way.
std::string take(void* handle, int driver, Library& lib) {
#define X(MEMBER, NAME, RESULT, ARGUMENTS) \
  if (!find_symbol(handle, #NAME, lib.MEMBER)) return "it has no " #NAME;
  TW_CUDNN_FUNCTIONS(X)
#undef X
#define X(MEMBER, NAME, RESULT, ARGUMENTS) find_symbol(handle, #NAME, lib.MEMBER);
  TW_CUDNN_LATER_FUNCTIONS(X)
#undef X
  const int cuda = int(lib.get_cudart_version());
  if (driver && cuda / 1000 > driver / 1000)
    return fmt::format("it is made for CUDA {}, and the driver of this machine is of CUDA {}", cuda / 1000,
                       driver / 1000);
  return {};
}

// The path of a library of another copy that has got in, or that cuDNN would open: it asks for its parts by their full
// version first ("libcudnn_ops.so.9.19.0"), a name that the loader's own search may find elsewhere although the part is
// open already. Empty: none.
std::string foreign_part(const std::string& folder, const std::string& version) {
  const auto is_foreign = [here = real_path(folder)](const std::string& path) {
    return real_path(folder_of(path)) != here && folder_of(real_path(path)) != here;
  };
  for (const std::string& path : loaded_libraries("libcudnn"))
    if (path.find(".so.9") != std::string::npos && is_foreign(path)) return path;
  for (const std::string& part : parts_in(folder))
    for (const std::string& tail : {version, version.substr(0, version.rfind('.'))}) {
      Opened opened;
      std::string none;
      void* library = opened.open(part.substr(0, part.size() - 1) + tail, none);
      if (library && is_foreign(path_of_library(library))) return path_of_library(library);
    }
  return {};
}

// Takes the version from the graph library, and asks the others whether theirs is the same.
std::string check_versions(const std::vector<void*>& parts, int64_t& version) {
  size_t (*get_version)() = nullptr;
  if (!find_symbol(parts[0], "cudnnGetVersion", get_version))
    return fmt::format("{} has no cudnnGetVersion", kParts[0]);
  version = int64_t(get_version());
  if (version / 10000 != 9) return fmt::format("it says that it is version {}; 9.x is needed", version_text(version));
  for (void* part : parts)
    for (const char* name :
         {"cudnnGraphVersionCheck", "cudnnOpsVersionCheck", "cudnnCnnVersionCheck", "cudnnAdvVersionCheck"}) {
      StatusCode (*check)() = nullptr;
      if (find_symbol(part, name, check) && check() != kSuccess)
        return fmt::format("mixed versions: {} is not of version {}, as the others", name_of(path_of_library(part)),
                           version_text(version));
    }
  return {};
}

// Opens the cuDNN of a folder, whole.
LibraryOpening open_with_parts(const std::string& folder, int driver, Found& found) {
  if (std::string problem = check_files(folder); !problem.empty()) return {problem, "", ""};
  Opened opened;
  LibraryOpening opening;
  std::string& problem = opening.problem;
  std::vector<void*> parts;
  for (const std::string& part : parts_in(folder)) {
    void* library = opened.open(folder + "/" + part, problem);
    if (library) parts.push_back(library);
    if (library || !is_known(part)) continue;
    if (problem.find("undefined symbol") != std::string::npos)
      problem = fmt::format("mixed versions: {} does not fit those before it ({})", part, problem);
    if (problem.find("libcuda.so") != std::string::npos) {
      problem = fmt::format("this version needs the CUDA driver for {} ({})", part, problem);
      opening.mend = cuda::kDriverInstall;
    }
    return opening;
  }
  int64_t version = 0;
  problem = check_versions(parts, version);
  void* main = problem.empty() ? opened.open(folder + "/" + kMain, problem) : nullptr;
  if (main) problem = take(main, driver, found.calls);
  if (!problem.empty()) return opening;
  opening.version = version_text(version);
  if (const std::string foreign = foreign_part(folder, opening.version); !foreign.empty()) {
    problem = fmt::format("mixed: the system's loader brings {} among its libraries", foreign);
    opening.mend = fmt::format("export {}={}", kCudnnPath.name, folder_of(foreign));
    return opening;
  }
  found.lookup.version = version;
  opened.keep();
  return opening;
}

// Of the libraries that cuDNN opens itself, when an engine needs them: opens what it would not find. Empty, or what is
// nowhere.
std::string open_companions(const Surroundings& s, const std::string& folder, int cuda_major) {
  std::vector<Place> places;
  for (std::string beside : {std::string(), std::string("/../../cublas/lib"), std::string("/../../cuda_nvrtc/lib"),
                             fmt::format("/../../cu{}/lib", cuda_major)})
    places.push_back({folder + beside, ""});
  const size_t found_by_cudnn = places.size();
  const std::string wheel = fmt::format("cu{}/lib", cuda_major);
  for (const auto& more : {wheel_places(s, {wheel, "cuda_nvrtc/lib", "cublas/lib"}), toolkit_places(s)})
    places.insert(places.end(), more.begin(), more.end());
  std::vector<std::string> missing;
  for (const char* stem : {"libnvrtc.so", "libcublasLt.so"}) {
    const std::string name = fmt::format("{}.{}", stem, cuda_major);
    const auto at = std::find_if(places.begin(), places.end(), [&](auto& p) { return is_file(p.folder + "/" + name); });
    std::string problem;
    if (!loaded_libraries(name).empty() || size_t(at - places.begin()) < found_by_cudnn) continue;
    if (s.has_loader && open_library(name, problem)) continue;
    if (at == places.end() || !open_library(at->folder + "/" + name, problem)) missing.push_back(name);
  }
  return missing.empty() ? "" : fmt::format("{}", fmt::join(missing, ", "));
}

}  // namespace

void find(const Surroundings& s, const std::string& path, int driver, Found& found) {
  LibrarySearch wanted;
  wanted.title = "cuDNN 9";
  wanted.variable = kCudnnPath;
  wanted.other_variable = "CUDNN_PATH";
  wanted.given_path = path;
  wanted.stem = "libcudnn";
  wanted.names = {kMain};
  wanted.wheel_folders = {"cudnn/lib", "cudnn_jit/lib"};
  wanted.install = driver ? fmt::format("pip install nvidia-cudnn-cu{}", std::min(driver / 1000, 13)) : kInstall;
  wanted.one_copy = true;
  wanted.open = [&](const std::string& file) { return open_with_parts(folder_of(file), driver, found); };
  LibrarySearchResult result = search_library(s, wanted);
  Lookup& lookup = found.lookup;
  lookup.path = result.path, lookup.problem = result.problem, lookup.mend = result.mend;
  lookup.tried = std::move(result.tried);
  if (!result.found) return;
  lookup.calls = &found.calls;
  const int cuda_major = int(found.calls.get_cudart_version() / 1000);
  if (const auto missing = open_companions(s, folder_of(lookup.path), cuda_major); !missing.empty()) {
    lookup.warning =
        fmt::format("{} of CUDA {} not found: cuDNN's engines that need it will refuse", missing, cuda_major);
    lookup.mend = cuda_major >= 13 ? "pip install nvidia-cuda-nvrtc nvidia-cublas"
                                   : fmt::format("pip install nvidia-cuda-nvrtc-cu{0} nvidia-cublas-cu{0}", cuda_major);
  }
}

}  // namespace tilewright::cudnn
