// What this machine has, which engines that enables, and how to get the rest.
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/environment.h"
#include "base/thread_pool.h"
#include "engines/onednn/loader.h"
#include "plan/engine.h"
#include "plan/tuning_db.h"
#include "table.h"
#include "terminal.h"
#include "tilewright/device.h"
#include "verbs.h"

namespace tilewright::tool {

namespace {

using nlohmann::ordered_json;

// --- libraries that engines of other devices would use ---------------------------------------------------------------

std::string driver_version(void* library) {
  auto get = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  int v = 0;
  return get && get(&v) == 0 ? fmt::format("CUDA {}.{}", v / 1000, v % 1000 / 10) : "";
}
std::string nvrtc_version(void* library) {
  auto get = reinterpret_cast<int (*)(int*, int*)>(dlsym(library, "nvrtcVersion"));
  int major = 0, minor = 0;
  return get && get(&major, &minor) == 0 ? fmt::format("{}.{}", major, minor) : "";
}
std::string cudnn_version(void* library) {
  auto get = reinterpret_cast<size_t (*)()>(dlsym(library, "cudnnGetVersion"));
  if (!get) return "";
  const size_t v = get();
  return v >= 90000 ? fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100)
                    : fmt::format("{}.{}.{}", v / 1000, v / 100 % 10, v % 100);
}
struct LibraryRow {
  const char *name, *purpose;
  std::vector<const char*> files;  // the first that opens counts
  std::string (*version)(void*);
  const char* install;
};
const std::vector<LibraryRow>& libraries() {
  static const std::vector<LibraryRow> rows = {
      {"CUDA driver",
       "runs on NVIDIA GPUs",
       {"libcuda.so.1"},
       driver_version,
       "apt-get install nvidia-driver (Debian non-free), then reboot"},
      {"NVRTC",
       "compiles CUDA kernels",
       {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"},
       nvrtc_version,
       "pip install nvidia-cuda-nvrtc-cu12, and its folder on LD_LIBRARY_PATH"},
      {"cuDNN",
       "NVIDIA's kernels",
       {"libcudnn.so.9", "libcudnn.so"},
       cudnn_version,
       "pip install nvidia-cudnn-cu12, and its folder on LD_LIBRARY_PATH"},
  };
  return rows;
}

struct Found {
  bool found = false;
  std::string path, version;
};

Found find_library(const LibraryRow& row) {
  for (const char* file : row.files) {
    void* library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (!library) continue;
    Found found{true, file, row.version(library)};
    link_map* map = nullptr;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0]) found.path = map->l_name;
    return found;  // stays open: some of these libraries cannot be closed safely
  }
  return {};
}

// Names of the GPUs that the driver lists.
std::vector<std::string> gpus() {
  std::vector<std::string> names;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return names;
  auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(library, "cuDeviceGet"));
  auto name = reinterpret_cast<int (*)(char*, int, int)>(dlsym(library, "cuDeviceGetName"));
  int n = 0;
  if (!init || !count || !get || !name || init(0) != 0 || count(&n) != 0) return names;
  for (int i = 0; i < n; ++i) {
    int device = 0;
    char text[256] = "";
    if (get(&device, i) == 0 && name(text, sizeof text - 1, device) == 0) names.push_back(text);
  }
  return names;
}

// --- the machine -----------------------------------------------------------------------------------------------------

double meminfo_bytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key + ":", 0) == 0) return std::strtod(line.c_str() + key.size() + 1, nullptr) * 1024;
  return 0;
}

// Those of the library, and the tool's own.
std::vector<EnvironmentVariable> variables() {
  std::vector<EnvironmentVariable> all(std::begin(kEnvironment), std::end(kEnvironment));
  all.push_back({"NO_COLOR", "set: no colours in this tool"});
  return all;
}

struct EngineLine {
  const Engine* engine;
  std::vector<Reason> why_not;
};

std::string joined(const std::vector<std::string>& words, const char* separator = ", ") {
  return fmt::format("{}", fmt::join(words, separator));
}

}  // namespace

int doctor(const DoctorOptions& options) {
  const CpuInfo cpu = cpu_info();
  const Target target = Target::this_machine();
  const double memory = meminfo_bytes("MemTotal"), available = meminfo_bytes("MemAvailable");
  std::vector<EngineLine> engines;
  for (const Engine* e : all_engines()) engines.push_back({e, e->unavailable(target)});
  const std::vector<std::string> gpu_names = gpus();

  if (options.json) {
    ordered_json j;
    j["version"] = version_string();
    j["cpu"] = {{"model", cpu.model}, {"processors", cpu.processors}, {"features", cpu.features}};
    j["memory_bytes"] = int64_t(memory);
    j["target"] = target.text();
    j["gpus"] = gpu_names;
    for (const EngineLine& line : engines) {
      ordered_json reasons = ordered_json::array();
      for (const Reason& r : line.why_not) reasons.push_back({{"why", to_string(r.why)}, {"text", r.text}});
      j["engines"].push_back({{"name", line.engine->name()},
                              {"summary", line.engine->summary()},
                              {"version", line.engine->version()},
                              {"available", line.why_not.empty()},
                              {"reasons", reasons}});
    }
    const onednn::Lookup& onednn = onednn::lookup();
    j["libraries"].push_back({{"name", "oneDNN"},
                              {"found", onednn.problem.empty()},
                              {"path", onednn.path},
                              {"version", onednn.version},
                              {"used", true},
                              {"install", onednn::kInstall},
                              {"tried", onednn.tried}});
    for (const LibraryRow& row : libraries()) {
      const Found found = find_library(row);
      j["libraries"].push_back({{"name", row.name},
                                {"found", found.found},
                                {"path", found.path},
                                {"version", found.version},
                                {"used", false},
                                {"install", row.install}});
    }
    const TuningDbInfo tuned = tuning_db_info();
    j["tuning"] = {
        {"path", tuned.path}, {"records", tuned.records}, {"skipped", tuned.skipped}, {"problem", tuned.problem}};
    for (const EnvironmentVariable& row : variables()) {
      const char* value = row.value();
      j["environment"][row.name] = value ? ordered_json(value) : ordered_json();
    }
    std::cout << j.dump(2) << '\n';
    return 0;
  }

  std::cout << bold(fmt::format("Tilewright {}", version_string())) << "\n\n" << bold("Machine") << '\n';
  Table machine;
  machine.column("").column("");
  machine.row({"CPU", cpu.model});
  machine.row({"processors", fmt::format("{}, of which {} used", cpu.processors, thread_count())});
  machine.row({"features", cpu.features.empty() ? "none of those that matter here" : joined(cpu.features, " ")});
  machine.row({"memory", fmt::format("{}, {} available", human_bytes(memory), human_bytes(available))});
  machine.row({"GPUs", gpu_names.empty() ? "none" : joined(gpu_names)});
  machine.row({"target", target.text()});
  std::cout << machine.text(2);

  std::cout << '\n' << bold("Engines") << '\n';
  Table table;
  table.column("engine").column("here").column("what it is");
  for (const EngineLine& line : engines) {
    const bool yes = line.why_not.empty();
    table.row({line.engine->name(), yes ? green("yes") : yellow("no"), line.engine->summary()});
    for (const Reason& r : line.why_not) table.row({"", "", fmt::format("{}: {}", to_string(r.why), r.text)});
  }
  table.row({"cuda, cudnn", yellow("no"), "GPU engines: not in this version"});
  std::cout << table.text(2);

  const onednn::Lookup& found_onednn = onednn::lookup();
  if (found_onednn.problem.empty())
    std::cout << fmt::format("  oneDNN {}: {}\n", found_onednn.version, found_onednn.path);
  for (const std::string& place : found_onednn.tried) std::cout << "  looked for oneDNN: " << place << '\n';

  std::cout << '\n'
            << bold("Libraries of other devices and vendors (looked for; this version does not use them)") << '\n';
  Table libs;
  libs.column("library").column("here").column("where, or how to get it");
  for (const LibraryRow& row : libraries()) {
    const Found found = find_library(row);
    if (found.found)
      libs.row({row.name, green("yes"), found.path + (found.version.empty() ? "" : ", version " + found.version)});
    else libs.row({row.name, "no", row.install});
  }
  std::cout << libs.text(2);

  std::cout << '\n' << bold("Environment") << '\n';
  Table environment;
  environment.column("variable").column("value").column("meaning");
  for (const EnvironmentVariable& row : variables()) {
    const char* value = row.value();
    environment.row({row.name, value ? value : "(not set)", row.meaning});
  }
  std::cout << environment.text(2);

  const TuningDbInfo tuned = tuning_db_info();
  std::cout << '\n' << bold("Tuned plans (of `tilewright tune` and autotune)") << '\n';
  if (!tuned.path.empty())
    std::cout << fmt::format("  {}: {} measurement{}{}\n", tuned.path, tuned.records, tuned.records == 1 ? "" : "s",
                             tuned.skipped ? fmt::format(", {} lines not understood", tuned.skipped) : "");
  if (!tuned.problem.empty()) std::cout << "  nothing can be remembered: " << tuned.problem << '\n';
  return 0;
}

}  // namespace tilewright::tool
