// What this machine has, which engines that enables, and how to get the rest.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/thread_pool.h"
#include "device/cuda/gpu.h"
#include "libraries.h"
#include "plan/engine.h"
#include "plan/tuning_db.h"
#include "table.h"
#include "terminal.h"
#include "tilewright/device.h"
#include "verbs.h"

namespace tilewright::tool {

namespace {

using nlohmann::ordered_json;

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
  all.insert(all.end(), std::begin(kPlacesEnvironment), std::end(kPlacesEnvironment));
  all.push_back({"NO_COLOR", "set: no colours in this tool"});
  return all;
}

struct EngineLine {
  const Engine* engine;
  std::vector<std::string> targets;  // of this machine's, those that it serves
  std::vector<Reason> why_not;       // where it serves none
};

std::vector<EngineLine> engine_lines(const std::vector<Target>& targets) {
  std::vector<EngineLine> lines;
  for (const Engine* engine : all_engines()) {
    EngineLine line{engine, {}, {}};
    for (const Target& target : targets) {
      const std::vector<Reason> why_not = engine->unavailable(target);
      if (why_not.empty()) line.targets.push_back(target.is_gpu() ? fmt::format("cuda:{}", target.ordinal) : "cpu");
      else line.why_not = why_not;
    }
    if (!line.targets.empty()) line.why_not.clear();
    lines.push_back(std::move(line));
  }
  return lines;
}

// This machine's CPU and its GPUs.
std::vector<Target> targets_here() {
  std::vector<Target> targets = {Target::this_machine()};
  for (int i = 0; i < cuda::device_count(); ++i)
    if (auto gpu = Target::of_gpu(i)) targets.push_back(std::move(*gpu));
  return targets;
}

std::string joined(const std::vector<std::string>& words, const char* separator = ", ") {
  return fmt::format("{}", fmt::join(words, separator));
}

std::string compute_capability(const cuda::GpuProperties& gpu) {
  return fmt::format("{}.{}", gpu.arch / 10, gpu.arch % 10);
}
std::string cuda_version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

ordered_json machine_json(const std::vector<Target>& targets) {
  const CpuInfo cpu = cpu_info();
  ordered_json j;
  j["version"] = version_string();
  j["cpu"] = {{"model", cpu.model}, {"processors", cpu.processors}, {"features", cpu.features}};
  j["memory_bytes"] = int64_t(meminfo_bytes("MemTotal"));
  j["target"] = targets[0].text();
  j["gpus"] = ordered_json::array();
  for (const Target& target : targets)
    if (target.is_gpu())
      j["gpus"].push_back({{"device", fmt::format("cuda:{}", target.ordinal)},
                           {"name", target.gpu->name},
                           {"compute_capability", compute_capability(*target.gpu)},
                           {"memory_bytes", target.gpu->memory_bytes},
                           {"cuda_driver", cuda_version(target.gpu->driver)},
                           {"target", target.text()}});
  return j;
}

int print_json(const std::vector<Target>& targets) {
  ordered_json j = machine_json(targets);
  for (const EngineLine& line : engine_lines(targets)) {
    ordered_json reasons = ordered_json::array();
    for (const Reason& r : line.why_not) reasons.push_back({{"why", to_string(r.why)}, {"text", r.text}});
    j["engines"].push_back({{"name", line.engine->name()},
                            {"summary", line.engine->summary()},
                            {"version", line.engine->version()},
                            {"available", !line.targets.empty()},
                            {"devices", line.targets},
                            {"reasons", reasons}});
  }
  for (const LibraryReport& l : library_reports())
    j["libraries"].push_back({{"name", l.name},
                              {"purpose", l.purpose},
                              {"found", l.found},
                              {"path", l.path},
                              {"version", l.version},
                              {"problem", l.problem},
                              {"mend", l.mend},
                              {"tried", l.tried}});
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

void print_machine(const std::vector<Target>& targets) {
  const CpuInfo cpu = cpu_info();
  std::cout << bold(fmt::format("Tilewright {}", version_string())) << "\n\n" << bold("Machine") << '\n';
  Table machine;
  machine.column("").column("");
  machine.row({"CPU", cpu.model});
  machine.row({"processors", fmt::format("{}, of which {} used", cpu.processors, thread_count())});
  machine.row({"features", cpu.features.empty() ? "none of those that matter here" : joined(cpu.features, " ")});
  machine.row({"memory", fmt::format("{}, {} available", human_bytes(meminfo_bytes("MemTotal")),
                                     human_bytes(meminfo_bytes("MemAvailable")))});
  machine.row({"target", targets[0].text()});
  if (targets.size() == 1) machine.row({"GPUs", "none"});
  for (const Target& target : targets)
    if (target.is_gpu()) {
      const cuda::GpuProperties& gpu = *target.gpu;
      machine.row({fmt::format("GPU {}", target.ordinal),
                   fmt::format("{}, compute capability {}, {}, driver of CUDA {}", gpu.name, compute_capability(gpu),
                               human_bytes(double(gpu.memory_bytes)), cuda_version(gpu.driver))});
      machine.row({"target", target.text()});
    }
  std::cout << machine.text(2);
}

void print_engines(const std::vector<Target>& targets) {
  std::cout << '\n' << bold("Engines") << '\n';
  Table table;
  table.column("engine").column("here").column("what it is");
  for (const EngineLine& line : engine_lines(targets)) {
    const bool yes = !line.targets.empty();
    table.row({line.engine->name(), yes ? green("yes") : yellow("no"), line.engine->summary()});
    for (const Reason& r : line.why_not) table.row({"", "", fmt::format("{}: {}", to_string(r.why), r.text)});
  }
  std::cout << table.text(2);
}

// Where a library is missing, or always if asked for: every place looked at, and what mends it.
void print_libraries(bool verbose) {
  const std::vector<LibraryReport> libraries = library_reports();
  std::cout << '\n' << bold("Libraries (looked for when the program runs)") << '\n';
  Table table;
  table.column("library").column("here").column("where it is, or why it does not serve");
  for (const LibraryReport& l : libraries) {
    if (l.found) table.row({l.name, green("yes"), fmt::format("{}, version {}", l.path, l.version)});
    else table.row({l.name, yellow("no"), l.purpose});
    if (!l.problem.empty()) table.row({"", "", l.problem});
    if (!l.mend.empty()) table.row({"", "", "to mend it: " + l.mend});
  }
  std::cout << table.text(2);
  for (const LibraryReport& l : libraries) {
    if (l.tried.empty() || (l.found && !verbose)) continue;
    std::cout << fmt::format("  {} was looked for in:\n", l.name);
    for (const std::string& place : l.tried) std::cout << "    " << place << '\n';
  }
}

void print_environment() {
  std::cout << '\n' << bold("Environment") << '\n';
  Table environment;
  environment.column("variable").column("value").column("meaning");
  for (const EnvironmentVariable& row : variables()) {
    const char* value = row.value();
    environment.row({row.name, value ? value : "(not set)", row.meaning});
  }
  std::cout << environment.text(2);
}

void print_tuning() {
  const TuningDbInfo tuned = tuning_db_info();
  std::cout << '\n' << bold("Tuned plans (of `tilewright tune` and autotune)") << '\n';
  if (!tuned.path.empty())
    std::cout << fmt::format("  {}: {} measurement{}{}\n", tuned.path, tuned.records, tuned.records == 1 ? "" : "s",
                             tuned.skipped ? fmt::format(", {} lines not understood", tuned.skipped) : "");
  if (!tuned.problem.empty()) std::cout << "  nothing can be remembered: " << tuned.problem << '\n';
}

}  // namespace

int doctor(const DoctorOptions& options) {
  const std::vector<Target> targets = targets_here();
  if (options.json) return print_json(targets);
  print_machine(targets);
  print_engines(targets);
  print_libraries(options.verbose);
  print_environment();
  print_tuning();
  return 0;
}

}  // namespace tilewright::tool
