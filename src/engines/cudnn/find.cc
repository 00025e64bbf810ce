#include "engines/cudnn/find.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/environment.h"
#include "base/shared_library.h"

namespace tilewright::cudnn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMain = "libcudnn.so.9";
// In an order in which each finds what it needs among those before it.
constexpr const char* kParts[] = {
    "libcudnn_graph.so.9",
    "libcudnn_ops.so.9",
    "libcudnn_cnn.so.9",
    "libcudnn_adv.so.9",
    "libcudnn_heuristic.so.9",
    "libcudnn_engines_runtime_compiled.so.9",
    "libcudnn_engines_precompiled.so.9",
};

bool is_file(const std::string& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

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

// Why a folder without libcudnn.so.9 does not serve.
std::string what_instead(const std::string& folder) {
  std::error_code none;
  if (!fs::is_directory(folder, none)) return "not there";
  std::vector<std::string> others;
  for (fs::directory_iterator it(folder, none), end; !none && it != end; it.increment(none))
    if (const std::string name = it->path().filename().string(); name.rfind("libcudnn.so", 0) == 0)
      others.push_back(name);
  if (others.empty()) return fmt::format("no {}", kMain);
  std::sort(others.begin(), others.end());
  return fmt::format("has {}, but major version 9 is needed ({})", fmt::join(others, ", "), kMain);
}

// "9.19.0" where a link leads to libcudnn_ops.so.9.19.0, as packages of Linux distributions have it; else empty.
std::string version_in_name(const std::string& path) {
  const std::string name = name_of(real_path(path));
  const size_t at = name.find(".so.");
  const std::string version = at == std::string::npos ? "" : name.substr(at + 4);
  return version.find('.') == std::string::npos ? "" : version;
}

// Empty, or what of the folder's files is missing or of another version.
std::string check_files(const std::string& folder) {
  std::vector<std::string> missing;
  std::map<std::string, std::vector<std::string>> by_version;
  for (const char* part : kParts)
    if (!is_file(folder + "/" + part)) missing.push_back(part);
    else if (auto v = version_in_name(folder + "/" + part); !v.empty()) by_version[v].push_back(part);
  if (!missing.empty()) return fmt::format("incomplete: it lacks {}", fmt::join(missing, ", "));
  if (auto v = version_in_name(folder + "/" + kMain); !v.empty()) by_version[v].push_back(kMain);
  if (by_version.size() < 2) return {};
  std::string text = "mixed versions:";
  for (const auto& [version, names] : by_version) text += fmt::format(" {} ({})", version, fmt::join(names, ", "));
  return text;
}

// Takes the functions; says what stands in the way.
std::string take(void* handle, Library& lib, int64_t& version) {
  if (!find_symbol(handle, "cudnnGetVersion", lib.get_version)) return "it has no cudnnGetVersion";
  version = int64_t(lib.get_version());
  const int64_t major = version >= 90000 ? version / 10000 : version / 1000;
  if (major != 9) return fmt::format("it is version {} ({}); major version 9 is needed", major, version);
#define X(MEMBER, NAME, RESULT, ARGUMENTS) \
  if (!find_symbol(handle, #NAME, lib.MEMBER)) return "it has no " #NAME;
  TW_CUDNN_FUNCTIONS(X)
#undef X
#define X(MEMBER, NAME, RESULT, ARGUMENTS) find_symbol(handle, #NAME, lib.MEMBER);
  TW_CUDNN_LATER_FUNCTIONS(X)
#undef X
  return {};
}

// cuDNN opens its parts by their full version first ("libcudnn_ops.so.9.19.0"), a name that the loader's own search may
// find elsewhere although the part is open already.
std::string check_full_names(const std::string& folder, const std::string& version) {
  const std::string here = real_path(folder);
  for (const char* part : kParts) {
    const std::string stem(part, std::string(part).rfind('.') + 1);
    for (const std::string& tail : {version, version.substr(0, version.rfind('.'))}) {
      Opened opened;
      std::string none;
      void* library = opened.open(stem + tail, none);
      if (!library) continue;
      const std::string path = path_of_library(library);
      if (folder_of(real_path(path)) != here && real_path(path) != real_path(folder + "/" + part))
        return fmt::format("mixed: the system's loader puts {} before its {}; LD_LIBRARY_PATH may say so", path, part);
    }
  }
  return {};
}

// Each of cuDNN's libraries tells whether it is of the same version as the graph library.
std::string check_versions(const std::vector<void*>& parts) {
  for (void* part : parts)
    for (const char* name :
         {"cudnnGraphVersionCheck", "cudnnOpsVersionCheck", "cudnnCnnVersionCheck", "cudnnAdvVersionCheck"}) {
      StatusCode (*check)() = nullptr;
      if (find_symbol(part, name, check) && check() != kSuccess)
        return fmt::format("mixed versions: {} is of another version than the others", name_of(path_of_library(part)));
    }
  return {};
}

std::string check_loaded(const std::string& folder) {
  for (const char* stem : {"libcudnn.so.9", "libcudnn_"})
    for (const std::string& path : loaded_libraries(stem))
      if (real_path(folder_of(path)) != real_path(folder))
        return fmt::format("mixed: with it this process loaded {}", path);
  return {};
}

// Empty, or why the folder's cuDNN does not serve. Then nothing of it stays open.
std::string open_folder(const std::string& folder, Found& found) {
  if (!is_file(folder + "/" + kMain)) return what_instead(folder);
  if (std::string problem = check_files(folder); !problem.empty()) return problem;
  Opened opened;
  std::string problem;
  std::vector<void*> parts;
  for (const char* part : kParts) {
    parts.push_back(opened.open(folder + "/" + part, problem));
    if (!parts.back()) return problem;
  }
  void* main = opened.open(folder + "/" + kMain, problem);
  if (!main) return problem;
  int64_t version = 0;
  problem = take(main, found.library, version);
  if (problem.empty()) problem = check_versions(parts);
  if (problem.empty()) problem = check_loaded(folder);
  if (problem.empty()) problem = check_full_names(folder, version_text(version));
  if (!problem.empty()) return problem;
  found.lookup.version = version;
  opened.keep();
  found.lookup.path = folder + "/" + kMain;
  found.lookup.library = &found.library;
  return {};
}

class Search {
 public:
  Search(const Surroundings& s, Found& found) : surroundings_(s), found_(found), lookup_(found.lookup) {}

  void run(const std::string& api_path) {
    note_loaded();
    if (!api_path.empty()) return only(api_path, "the path that the program gave");
    if (const std::string path = surroundings_.variable(kCudnnPath.name); !path.empty()) {
      if (path != "off") return only(path, kCudnnPath.name);
      lookup_.problem = fmt::format("cuDNN is switched off by {}=off", kCudnnPath.name);
      lookup_.mend = fmt::format("unset {}", kCudnnPath.name);
      return;
    }
    if (const std::string path = surroundings_.variable("CUDNN_PATH"); !path.empty())
      if (any(given_places(path, "CUDNN_PATH"))) return;
    if (!loaded_.empty() && any({{loaded_, "loaded by this process before"}})) return;
    if (any(wheel_places(surroundings_, {"cudnn/lib"})) || any(toolkit_places(surroundings_)) || by_name()) return;
    none();
  }

 private:
  void note_loaded() {
    for (const std::string& path : loaded_libraries("libcudnn"))
      if (path.rfind(".so.9") != std::string::npos) loaded_ = folder_of(path);
  }

  bool any(const std::vector<Place>& places) {
    return std::any_of(places.begin(), places.end(), [this](const Place& p) { return at(p); });
  }

  // Whether the place serves; notes what is there.
  bool at(const Place& place) {
    std::string problem;
    if (!loaded_.empty() && real_path(loaded_) != real_path(place.folder))
      problem = is_file(place.folder + "/" + kMain)
                    ? fmt::format("not opened: this process has loaded cuDNN from {}, and copies must not mix", loaded_)
                    : what_instead(place.folder);
    else problem = open_folder(place.folder, found_);
    if (!problem.empty()) note_loaded();  // parts of cuDNN cannot be unloaded, so that no other copy may follow
    const std::string text = problem.empty() ? fmt::format("cuDNN {}", version_text(lookup_.version)) : problem;
    lookup_.tried.push_back(fmt::format("{} ({}): {}", place.folder, place.named_by, text));
    // The nearest to what is wanted: a copy that cannot serve, not a folder without any.
    if (!problem.empty() && is_file(place.folder + "/" + kMain) && nearest_.empty()) nearest_ = lookup_.tried.back();
    if (!problem.empty() && problem.rfind("has libcudnn", 0) == 0 && other_.empty()) other_ = lookup_.tried.back();
    return problem.empty();
  }

  // What a person asked for: that or nothing.
  void only(const std::string& path, const std::string& named_by) {
    if (any(given_places(path, named_by))) return;
    lookup_.problem = fmt::format("no usable cuDNN 9 where {} says: {}", named_by,
                                  nearest_.empty() ? other_.empty() ? lookup_.tried[0] : other_ : nearest_);
    lookup_.mend = fmt::format(
        "{} should name libcudnn.so.9 or its folder, with the libraries of one cuDNN 9; "
        "or leave it out, and {}",
        named_by, kInstall);
  }

  // What the system's loader finds, in LD_LIBRARY_PATH or its cache.
  bool by_name() {
    std::string problem;
    Opened opened;
    void* library = loaded_.empty() ? opened.open(kMain, problem) : nullptr;
    if (library) return at({folder_of(path_of_library(library)), "the system's loader"});
    if (!problem.empty()) lookup_.tried.push_back(fmt::format("the system's loader: {}", problem));
    return false;
  }

  void none() {
    const std::string& best = nearest_.empty() ? other_ : nearest_;
    lookup_.problem = best.empty() ? fmt::format(
                                         "cuDNN 9 is not on this machine ({} places looked at; `tilewright "
                                         "doctor` lists them)",
                                         lookup_.tried.size())
                                   : fmt::format("no usable cuDNN 9; the nearest: {}", best);
    lookup_.mend = kInstall;
  }

  const Surroundings& surroundings_;
  Found& found_;
  Lookup& lookup_;
  std::string loaded_;           // folder of a cuDNN 9 that this process has loaded already
  std::string nearest_, other_;  // entries of `tried`: with the right name, with another version
};

}  // namespace

void find(const Surroundings& s, const std::string& path, Found& found) { Search(s, found).run(path); }

}  // namespace tilewright::cudnn
