#include "base/library_places.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace tilewright {
namespace fs = std::filesystem;
namespace {

#ifdef __aarch64__
constexpr const char *kToolkitTarget = "targets/sbsa-linux/lib", *kSystemFolder = "/usr/lib/aarch64-linux-gnu";
#else
constexpr const char *kToolkitTarget = "targets/x86_64-linux/lib", *kSystemFolder = "/usr/lib/x86_64-linux-gnu";
#endif

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(separator, from), text.size());
    if (to > from) parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

// Entries of a folder whose names begin so; the highest version first ("cuda-13.0" before "cuda-12.8", "python3.11"
// before "python3.9").
std::vector<std::string> entries(const std::string& folder, const std::string& stem) {
  std::vector<std::string> found;
  std::error_code none;
  for (fs::directory_iterator it(folder, none), end; !none && it != end; it.increment(none))
    if (it->path().filename().string().rfind(stem, 0) == 0) found.push_back(it->path().string());
  const auto longer_first = [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a > b;
  };
  std::sort(found.begin(), found.end(), longer_first);
  return found;
}

bool exists(const std::string& path) {
  std::error_code none;
  return fs::exists(path, none);
}

// The folders of packages of a Python installed at `prefix`, as Linux distributions, virtual environments and conda
// lay them out.
void add_sites(const std::string& prefix, std::vector<std::string>& sites) {
  for (const char* lib : {"lib", "lib64", "local/lib"})
    for (const std::string& python : entries(prefix + "/" + lib, "python3"))
      for (const char* packages : {"site-packages", "dist-packages"})
        if (const std::string site = python + "/" + packages; exists(site)) sites.push_back(site);
}

struct Python {
  std::string named_by;
  std::vector<std::string> sites;
};

// By its executable. A link leads to a second prefix: a virtual environment's to the Python that it was made of. The
// executables of pyenv are scripts, and a file says which Python they start.
Python python_at(const Surroundings& s, const std::string& executable, const std::string& named_by) {
  Python python{named_by + " " + executable, {}};
  const std::string prefix = folder_of(folder_of(executable)), real = folder_of(folder_of(real_path(executable)));
  add_sites(prefix, python.sites);
  if (real != prefix) add_sites(real, python.sites);
  std::string pyenv = s.variable("PYENV_VERSION");
  if (std::ifstream file(prefix + "/version"); pyenv.empty() && file) std::getline(file, pyenv);
  if (!pyenv.empty()) add_sites(prefix + "/versions/" + pyenv, python.sites);
  return python;
}

std::string on_path(const Surroundings& s, const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  for (const std::string& folder : split(s.variable("PATH"), ':'))
    if (exists(folder + "/" + name)) return folder + "/" + name;
  return {};
}

std::vector<Python> pythons(const Surroundings& s) {
  std::vector<Python> all;
  if (name_of(s.program).rfind("python", 0) == 0)
    if (const std::string path = on_path(s, s.program); !path.empty())
      all.push_back(python_at(s, path, "this process's Python"));
  if (const auto folders = split(s.variable("PYTHONPATH"), ':'); !folders.empty())
    all.push_back({"PYTHONPATH", folders});
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string prefix = s.variable(name); !prefix.empty()) {
      all.push_back({name, {}});
      add_sites(prefix, all.back().sites);
    }
  for (const char* name : {"python3", "python"})
    if (const std::string path = on_path(s, name); !path.empty()) all.push_back(python_at(s, path, "PATH's"));
  std::string user = s.variable("PYTHONUSERBASE");
  if (user.empty() && !s.variable("HOME").empty()) user = s.variable("HOME") + "/.local";
  all.push_back({"the user's Python", {}});
  add_sites(user, all.back().sites);
  return all;
}

}  // namespace

Surroundings Surroundings::of_this_process() {
  Surroundings s;
  s.variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  std::ifstream arguments("/proc/self/cmdline");
  std::getline(arguments, s.program, '\0');
  return s;
}

std::vector<Place> wheel_places(const Surroundings& s, const std::vector<std::string>& folders) {
  std::vector<Place> places;
  for (const Python& python : pythons(s))
    for (const std::string& site : python.sites)
      for (const std::string& folder : folders)
        places.push_back({site + "/nvidia/" + folder, "pip package of " + python.named_by});
  return without_repetitions(places);
}

std::vector<Place> toolkit_places(const Surroundings& s) {
  std::vector<Place> places;
  const auto add = [&places](const std::string& toolkit, const std::string& named_by) {
    for (const char* lib : {"lib64", "lib", kToolkitTarget}) places.push_back({toolkit + "/" + lib, named_by});
  };
  if (const std::string conda = s.variable("CONDA_PREFIX"); !conda.empty()) add(conda, "CONDA_PREFIX");
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string toolkit = s.variable(name); !toolkit.empty()) add(toolkit, name);
  add(s.root + "/usr/local/cuda", "toolkit");
  for (const std::string& toolkit : entries(s.root + "/usr/local", "cuda-")) add(toolkit, "toolkit");
  places.push_back({s.root + kSystemFolder, "system"});
  places.push_back({s.root + "/usr/lib64", "system"});
  return without_repetitions(places);
}

std::vector<Place> given_places(const std::string& path, const std::string& named_by) {
  std::error_code none;
  const bool file = fs::exists(path, none) ? !fs::is_directory(path, none) : path.find(".so") != std::string::npos;
  if (file) return {{folder_of(path), named_by}};
  return without_repetitions({{path, named_by}, {path + "/lib", named_by}, {path + "/lib64", named_by}});
}

std::vector<Place> without_repetitions(std::vector<Place> places) {
  std::set<std::string> seen;
  std::vector<Place> once;
  for (Place& place : places)
    if (seen.insert(real_path(place.folder)).second) once.push_back(std::move(place));
  return once;
}

std::string real_path(const std::string& path) {
  std::error_code none;
  const fs::path real = fs::canonical(path, none);
  return none ? path : real.string();
}
std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
}
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace tilewright
