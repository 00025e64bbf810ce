#include "gpu_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace tilewright::bench {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr double kHeld = 0.98;  // of the peer's speed

std::string human_ms(double ms) {
  if (ms <= 0) return "-";
  if (ms < 1) return fmt::format("{:.2f} us", ms * 1e3);
  return fmt::format("{:.3f} ms", ms);
}
std::string human_ratio(double ratio) { return ratio > 0 ? fmt::format("{:.2f}", ratio) : "-"; }
std::string short_name(const std::string& name) { return name.substr(0, name.find(' ')); }

}  // namespace

Result<Peer> Peer::parse(const std::string& text) {
  const json j = json::parse(text, nullptr, false);
  if (!j.is_object() || !j.contains("name") || !j["name"].is_string() || !j.contains("rows") || !j["rows"].is_array())
    return invalid("expected {{\"name\": ..., \"rows\": [...]}}");
  Peer peer;
  peer.name = j["name"];
  if (j.contains("held") && j["held"].is_string()) peer.held = j["held"];
  for (const json& r : j["rows"]) {
    if (!r.is_object() || !r.contains("row") || !r["row"].is_string() || !r.contains("ms") || !r["ms"].is_number())
      return invalid("a row needs \"row\", a text, and \"ms\", a number; found {}", r.dump());
    const auto number = [&](const char* key) {
      return r.contains(key) && r[key].is_number() ? r[key].get<double>() : 0;
    };
    peer.rows[r["row"]] = {number("ms"), number("plan0_ms"), int(number("plans"))};
  }
  return peer;
}

Result<Peer> Peer::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return invalid("cannot read \"{}\"", path);
  std::ostringstream text;
  text << file.rdbuf();
  auto peer = parse(text.str());
  if (!peer) return invalid("\"{}\": {}", path, peer.status().err_msg);
  return peer;
}

bool GpuOutcome::ok() const {
  if (!error.empty()) return false;
  if (ratio_to_cudnn_best > 0 && ratio_to_cudnn_best < wanted_of_cudnn) return false;
  if (copy_ms > 0 && best_ms > 0 && copy_ms / best_ms < wanted_of_copy) return false;
  for (const Versus& v : peers)
    if (target > 0 && v.ratio > 0)
      return v.ratio >= target && (v.row.plan0_ms <= 0 || plan0_ms * target <= v.row.plan0_ms) &&
             plans - failed >= v.row.plans;
  return true;
}
double GpuOutcome::rate() const { return best_ms > 0 ? (flops > 0 ? flops : bytes) / best_ms * 1e3 : 0; }
const char* GpuOutcome::rate_unit() const { return flops > 0 ? "FLOP/s" : "B/s"; }

std::vector<GpuOutcome> outcomes_of(const GpuRow& row, const GpuContest& contest) {
  std::map<std::string, GpuOutcome> by_engine;
  for (const auto& [engine, why] : contest.refused) {
    GpuOutcome& o = by_engine[engine];
    o.row = row.name, o.engine = engine, o.note = "refused: " + why;
  }
  for (const GpuPlan& p : contest.plans) {
    GpuOutcome& o = by_engine[p.engine];
    o.row = row.name, o.engine = p.engine;
    o.flops = row.flops, o.bytes = contest.bytes, o.copy_ms = contest.copy_ms;
    if (p.engine == "cuda") o.wanted_of_cudnn = row.wanted_of_cudnn, o.wanted_of_copy = row.wanted_of_copy;
    ++o.plans, o.build_ms += p.build_ms;
    if (!p.problem.empty()) {
      if (!p.wrong) ++o.failed;
      else if (p.excused) ++o.excused;
      else ++o.wrong, o.error = o.error.empty() ? p.name + ": " + p.problem : o.error;
      if (o.note.empty()) o.note = p.name + ": " + p.problem;
      continue;
    }
    o.worst_error = std::max(o.worst_error, p.worst_error);
    if (o.plan0.empty()) o.plan0 = p.name, o.plan0_ms = p.ms;
    if (o.plan.empty() || (p.ms > 0 && p.ms < o.best_ms)) o.plan = p.name, o.best_ms = p.ms, o.timed = p.batch;
  }
  std::vector<GpuOutcome> list;
  for (auto& [engine, o] : by_engine) {
    if (o.plans > 0 && o.plan.empty() && o.error.empty()) o.error = "no plan ran: " + o.note;
    if (const auto cudnn = by_engine.find("cudnn"); cudnn != by_engine.end() && o.best_ms > 0)
      o.ratio_to_cudnn_best = cudnn->second.best_ms / o.best_ms;
    list.push_back(std::move(o));
  }
  return list;
}

void hold_against(GpuOutcome& o, const std::vector<Peer>& peers) {
  for (const Peer& peer : peers) {
    const auto found = peer.rows.find(o.row);
    if (found == peer.rows.end()) continue;
    const double ratio = o.best_ms > 0 ? found->second.ms / o.best_ms : 0;
    if (peer.held == o.engine && !o.engine.empty()) {
      o.target = kHeld;
      o.peers.insert(o.peers.begin(), {peer.name, found->second, ratio});  // judged by the first
    } else {
      o.peers.push_back({peer.name, found->second, ratio});
    }
  }
}

ordered_json to_json(const GpuHeader& h, const std::vector<GpuOutcome>& outcomes, const std::vector<Peer>& peers,
                     const ordered_json* before) {
  ordered_json j;
  j["gpu"] = h.gpu, j["target"] = h.target, j["driver"] = h.driver, j["cudnn"] = h.cudnn;
  j["clocks"] = {{"sm_mhz", h.sm_clock_mhz}, {"memory_mhz", h.memory_clock_mhz}};
  j["copy_bandwidth"] = h.copy_bandwidth, j["matmul_rate"] = h.matmul_rate;
  j["tilewright"] = h.tilewright, j["date"] = h.date, j["command"] = h.command;
  j["peers"] = ordered_json::array();
  for (const Peer& p : peers) j["peers"].push_back(p.name);
  j["rows"] = ordered_json::array();
  std::set<std::string> measured;
  for (const GpuOutcome& o : outcomes) {
    measured.insert(o.row);
    ordered_json r = {{"row", o.row},
                      {"engine", o.engine},
                      {"plan", o.plan},
                      {"plan0", o.plan0},
                      {"plan0_ms", o.plan0_ms},
                      {"best_ms", o.best_ms},
                      {"rate", o.rate()},
                      {"rate_unit", o.rate_unit()},
                      {"ratio_to_cudnn_best", o.ratio_to_cudnn_best},
                      {"copy_ms", o.copy_ms},
                      {"plans", o.plans},
                      {"failed", o.failed},
                      {"wrong", o.wrong},
                      {"less_exact", o.excused},
                      {"build_ms", o.build_ms},
                      {"timed", o.timed},
                      {"worst_error", o.worst_error},
                      {"error", o.error},
                      {"target", o.target},
                      {"wanted_of_cudnn", o.wanted_of_cudnn},
                      {"wanted_of_copy", o.wanted_of_copy},
                      {"ok", o.ok()}};
    if (!o.note.empty()) r["note"] = o.note;
    for (const GpuOutcome::Versus& v : o.peers) {
      r["peers"][v.peer] = {{"ms", v.row.ms}, {"ratio", v.ratio}};
      if (v.row.plan0_ms > 0) r["peers"][v.peer]["plan0_ms"] = v.row.plan0_ms;
      if (v.row.plans > 0) r["peers"][v.peer]["plans"] = v.row.plans;
    }
    j["rows"].push_back(std::move(r));
  }
  if (before && before->contains("rows"))
    for (const ordered_json& r : (*before)["rows"])
      if (!measured.count(r.value("row", ""))) j["rows"].push_back(r);
  return j;
}

std::string table_title(const std::vector<Peer>& peers) {
  std::string title = fmt::format("{:<50} {:<9} {:>10} {:>10} {:>12} {:>8} {:>6}", "row", "engine", "plan 0", "best",
                                  "rate", "copy", "/cuDNN");
  for (const Peer& p : peers) title += fmt::format(" {:>10} {:>5}", short_name(p.name).substr(0, 10), "ratio");
  return title + "  ";
}

std::string table_line(const GpuOutcome& o, const std::vector<Peer>& peers, bool check_only) {
  const double rate = o.rate() / 1e12;
  std::string line = fmt::format(
      "{:<50} {:<9} {:>10} {:>10} {:>12} {:>8} {:>6}", o.row, o.engine, human_ms(o.plan0_ms), human_ms(o.best_ms),
      rate > 0 ? fmt::format("{:.{}f} T{}", rate, rate < 10 ? 2 : 0, o.rate_unit()) : "-",
      o.best_ms > 0 && o.copy_ms > 0 ? fmt::format("{:.0f} %", 100 * o.copy_ms / o.best_ms) : "-",
      human_ratio(o.ratio_to_cudnn_best));
  for (const Peer& p : peers) {
    const auto v = std::find_if(o.peers.begin(), o.peers.end(), [&](const auto& x) { return x.peer == p.name; });
    line += v == o.peers.end() ? fmt::format(" {:>10} {:>5}", "-", "-")
                               : fmt::format(" {:>10} {:>5}", human_ms(v->row.ms), human_ratio(v->ratio));
  }
  line += "  ";
  if (!o.error.empty()) return line + (o.wrong > 0 ? "WRONG: " : "ERROR: ") + o.error;
  if (o.plan.empty()) return line + o.note;
  line += check_only ? "right" : !o.has_target() ? "info" : o.ok() ? "ok" : "SHORT";
  if (!check_only) line += ", " + o.plan + (o.plan == o.plan0 ? "" : fmt::format(" (first {})", o.plan0));
  line += fmt::format(", {} plans in {:.1f} s", o.plans, o.build_ms / 1e3);
  if (o.failed > 0) line += fmt::format(", {} did not run", o.failed);
  if (o.excused > 0) line += fmt::format(", {} less exact", o.excused);
  return line;
}

}  // namespace tilewright::bench
