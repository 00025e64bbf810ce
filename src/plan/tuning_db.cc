#include "plan/tuning_db.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "plan/engine.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What a measurement is about: the graph's content, on this kind of machine.
std::string subject_of(const std::string& key, const std::string& target, const std::string& hardware) {
  return key + "|" + target + "|" + hardware;
}
std::string key_of(const ir::Graph& graph) { return fmt::format("{:016x}", ir::content_key(graph)); }

struct PlanKey {
  std::string engine, config;
  int version;
  auto operator<=>(const PlanKey&) const = default;
};

// The file as it was last read.
struct Contents {
  std::string path;
  struct stat state = {};
  std::map<std::string, std::map<PlanKey, double>> times;  // by subject; of each plan the last time
  int64_t records = 0, skipped = 0;

  bool is_of(const std::string& other_path, const struct stat& s) const {
    return path == other_path && state.st_ino == s.st_ino && state.st_size == s.st_size &&
           state.st_mtim.tv_sec == s.st_mtim.tv_sec && state.st_mtim.tv_nsec == s.st_mtim.tv_nsec;
  }
  bool take(const std::string& line) {
    const json j = json::parse(line, nullptr, false);
    if (!j.is_object()) return false;
    for (const char* text : {"key", "target", "hardware", "engine", "config"})
      if (!j.contains(text) || !j[text].is_string()) return false;
    if (!j.contains("version") || !j["version"].is_number_integer() || !j.contains("ms") || !j["ms"].is_number())
      return false;
    const double ms = j["ms"];
    if (!(ms > 0)) return false;
    times[subject_of(j["key"], j["target"], j["hardware"])][{j["engine"], j["config"], j["version"]}] = ms;
    return true;
  }
};

std::mutex g_mutex;

// Reads the file anew where it is another one than last time. Call with g_mutex held.
const Contents& contents(const std::string& path) {
  static Contents last;
  struct stat now = {};
  if (path.empty() || stat(path.c_str(), &now) != 0) now = {};
  if (last.is_of(path, now)) return last;
  last = {};
  last.path = path, last.state = now;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) ++(last.take(line) ? last.records : last.skipped);
  return last;
}

Status cannot(const std::string& path, const char* what) {
  return error(error_code_t::GRAPH_EXECUTION_FAILED, "nothing is remembered: {} {}: {}", what, path,
               std::strerror(errno));
}

}  // namespace

std::string tuning_db_path() {
  if (const char* given = kTuningDb.value()) return std::string_view(given) == "off" ? "" : given;
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && cache[0] == '/') return std::string(cache) + "/tilewright/tuning.jsonl";
  if (home && home[0] == '/') return std::string(home) + "/.cache/tilewright/tuning.jsonl";
  return "";
}

Status remember_tuned(const ir::Graph& graph, const Target& target, const std::vector<TunedPlan>& plans) {
  const std::string path = tuning_db_path();
  if (path.empty())
    return error(error_code_t::GRAPH_EXECUTION_FAILED, "nothing is remembered: there is no file for it");
  std::string lines;
  for (const TunedPlan& p : plans) {
    const Engine* engine = find_engine(p.engine);
    if (!engine || !(p.ms > 0)) continue;
    const json line = {{"key", key_of(graph)},
                       {"graph", graph.name},
                       {"target", target.text()},
                       {"hardware", target.hardware()},
                       {"threads", target.threads},
                       {"engine", p.engine},
                       {"config", p.config},
                       {"version", engine->version()},
                       {"ms", p.ms},
                       {"time", int64_t(std::time(nullptr))}};
    lines += line.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
  }
  std::error_code ignored;
  fs::create_directories(fs::path(path).parent_path(), ignored);
  const int file = open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return cannot(path, "cannot open");
  // A line that an earlier process could not finish must not swallow ours.
  char last = '\n';
  if (const off_t end = lseek(file, 0, SEEK_END); end > 0 && pread(file, &last, 1, end - 1) == 1 && last != '\n')
    lines.insert(lines.begin(), '\n');
  // One write to an appending file: what two processes write at once does not mix.
  const ssize_t written = write(file, lines.data(), lines.size());
  const Status status = written == ssize_t(lines.size()) ? Status{} : cannot(path, "cannot write");
  close(file);
  return status;
}

std::optional<TunedPlan> find_tuned(const ir::Graph& graph, const Target& target) {
  const std::string path = tuning_db_path();
  if (path.empty()) return std::nullopt;
  std::lock_guard lock(g_mutex);
  const auto& times = contents(path).times;
  const auto subject = times.find(subject_of(key_of(graph), target.text(), target.hardware()));
  if (subject == times.end()) return std::nullopt;
  std::optional<TunedPlan> best;
  for (const auto& [plan, ms] : subject->second) {
    const Engine* engine = find_engine(plan.engine);
    if (!engine || engine->version() != plan.version) continue;
    if (!best || ms < best->ms) best = TunedPlan{plan.engine, plan.config, ms};
  }
  return best;
}

TuningDbInfo tuning_db_info() {
  TuningDbInfo info;
  info.path = tuning_db_path();
  if (info.path.empty()) {
    info.problem = fmt::format("switched off by {}=off, or there is no home folder", kTuningDb.name);
    return info;
  }
  // The nearest folder that exists decides whether the file can be written.
  fs::path probe = info.path;
  std::error_code ignored;
  while (!fs::exists(probe, ignored) && probe.has_parent_path() && probe != probe.parent_path())
    probe = probe.parent_path();
  if (probe != info.path && !fs::is_directory(probe, ignored))
    info.problem = fmt::format("{} is no folder", probe.string());
  else if (access(probe.c_str(), W_OK) != 0) info.problem = fmt::format("{}: {}", probe.string(), std::strerror(errno));
  std::lock_guard lock(g_mutex);
  const Contents& c = contents(info.path);
  info.records = c.records, info.skipped = c.skipped;
  return info;
}

}  // namespace tilewright
