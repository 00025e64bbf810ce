// ./dev bench cpu: how fast the CPU engines are, row by row, against what they are held (rows.cc), in one process, with
// the same threads and the same data. Contestants take turns, and each row tells medians. Every result is checked
// first: a wrong one fails the run.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "base/thread_pool.h"
#include "contest.h"
#include "engines/onednn/loader.h"
#include "frontend/builder.h"
#include "pinned.h"
#include "plan/target.h"
#include "tilewright/device.h"

namespace tilewright::bench {
namespace {

constexpr const char* kHelp =
    R"(./dev bench cpu [options]: the CPU engines against oneDNN, copy bandwidth and their own FLOAT.

  --filter REGEX   only rows whose name matches: --filter '^matmul/float', --filter attention
  --list           the names of the rows, and what each is held to
  --publish        every row, and docs/performance.md is written anew
  --json FILE      also write the results, a row each, with the machine's description
  --seconds S      of timed runs per row (default 0.7): longer is steadier
  --check-only     run everything once and check the results; time nothing
  --help           this text

Columns: "ours" is the best-ranked plan of cpu.fused, "plan 0" the plan that a program gets by default, "best" the
fastest plan of the list, "ratio" the peer's time over ours. A row is right when the ratio reaches its target and plan 0
is within 10 % of the best. TILEWRIGHT_NUM_THREADS sets the threads of all contestants.
)";

struct Options {
  std::string filter = ".", json;
  double seconds = 0.7;
  bool list = false, check_only = false;
} g_options;

struct Outcome {
  std::string row, plan, plan0, best, peer, error;
  double ours_ms = 0, plan0_ms = 0, best_ms = 0, peer_ms = 0, ratio = 0, target = 0;
  int64_t extra_bytes = 0, extra_limit = 0;
  std::vector<std::pair<std::string, double>> also;  // other peers, for information
  bool target_met() const { return error.empty() && (target == 0 || ratio >= target) && memory_ok(); }
  bool memory_ok() const { return extra_limit == 0 || extra_bytes <= extra_limit; }
  bool choice_ok() const { return best_ms == 0 || plan0_ms <= 1.1 * best_ms; }
};
std::vector<Outcome> g_outcomes;

double time_ms(const std::function<Status()>& run) {
  const auto start = std::chrono::steady_clock::now();
  const Status status = run();
  TW_CHECK(status.is_good());
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// On a terminal: what takes so long. The next line of the table replaces it.
void progress(const std::string& doing) {
  if (isatty(2)) fmt::print(stderr, "\r\033[K{}", doing);
}

void fail(benchmark::State& state, Outcome& out, const std::string& why) {
  out.error = why;
  g_outcomes.push_back(out);
  state.SkipWithError(why.c_str());
}

std::string short_name(const std::string& name) { return name.substr(0, name.find(' ')); }

// The row that is being measured; the benchmark's function is entered several times for it.
struct Current {
  std::string row;
  Result<Contest> contest = Status{error_code_t::INVALID_VALUE, "no row"};
  int64_t extra_bytes = 0;
};

// Builds and checks everything, once.
Status prepare(const Row& row, Current& current) {
  current = {};  // gives the memory back first
  current.row = row.name;
  progress("building and checking " + row.name);
  current.contest = make_contest(row);
  if (!current.contest) return current.contest.status();
  Contest& contest = *current.contest;
  if (row.extra_bytes_limit > 0) current.extra_bytes = peak_extra_bytes(contest.ours[0]);
  Status status;
  for (auto* list : {&contest.ours, &contest.peers})
    for (Contestant& c : *list)
      if (status.is_good() && c.run) status = check(row, c);
  if (status.is_bad()) current.contest = status;
  return status;
}

// The best-ranked plan of our own loops.
Contestant& ours_of(Contest& contest) {
  for (Contestant& c : contest.ours)
    if (c.engine == "cpu.fused") return c;
  return contest.ours[0];
}

// A turn of every contestant; the seconds that were timed.
double take_turns(Contest& contest, int& turn) {
  const Contestant& ours = ours_of(contest);
  const double limit = ours.ms.size() >= 4 ? 3 * median(ours.ms) : 0;
  double total = 0;
  for (auto* list : {&contest.ours, &contest.peers})
    for (Contestant& c : *list) {
      // Of our plans, one that is three times slower than the best-ranked need not run each time.
      const bool slow = limit > 0 && c.rank >= 0 && c.ms.size() >= 4 && median(c.ms) > limit;
      if (!c.run || slow) continue;
      const auto run = [&] { return c.run(turn++ % (c.tensors ? c.tensors->sets() : 2)); };
      // OpenMP's threads spin for milliseconds after their work and would take processors from who comes next.
      std::this_thread::sleep_for(std::chrono::milliseconds(8));
      const bool brief = time_ms(run) < 20;  // the first one also wakes the threads up: brief ones run again
      for (int k = 0; k < (brief ? 3 : 1); ++k) c.ms.push_back(time_ms(run)), total += c.ms.back();
    }
  return total / 1e3;
}

void judge(const Row& row, Current& current, Outcome& out) {
  Contest& contest = *current.contest;
  const Contestant &ours = ours_of(contest), &first = contest.ours[0];
  const Contestant* best = &first;
  for (const Contestant& c : contest.ours)
    if (median(c.ms) < median(best->ms)) best = &c;
  out.plan = ours.name, out.plan0 = first.name, out.best = best->name;
  out.ours_ms = median(ours.ms), out.plan0_ms = median(first.ms), out.best_ms = median(best->ms);
  const Contestant& peer = contest.peers[0];
  out.peer = peer.run ? peer.name : "not there: " + contest.missing;
  out.peer_ms = median(peer.ms);
  for (const Contestant& c : contest.peers)
    if (&c != &peer && c.run) out.also.push_back({c.name, median(c.ms)});
  if (out.peer_ms > 0) out.ratio = out.peer_ms / out.ours_ms, out.target = row.target;
}

void run_row(benchmark::State& state, const Row& row) {
  static Current current;
  if (!g_outcomes.empty() && g_outcomes.back().row == row.name) g_outcomes.pop_back();  // entered again, for longer
  Outcome out;
  out.row = row.name, out.extra_limit = int64_t(row.extra_bytes_limit);
  const Status ready = current.row == row.name ? current.contest.status() : prepare(row, current);
  if (ready.is_bad()) return fail(state, out, ready.err_msg);
  out.extra_bytes = current.extra_bytes;
  for (auto* list : {&current.contest->ours, &current.contest->peers})
    for (Contestant& c : *list) c.ms.clear();

  progress("measuring " + row.name);
  int turn = 0;
  const Pinned pinned;  // the checks have started every pool's threads
  for (auto _ : state) state.SetIterationTime(g_options.check_only ? 1 : take_turns(*current.contest, turn));
  for (int k = 0; k < 3 && !g_options.check_only; ++k) take_turns(*current.contest, turn);
  judge(row, current, out);
  g_outcomes.push_back(std::move(out));
}

// --- what execute() costs beside its work ------------------------------------------------------------------------

enum class Pack { Uids, Tensors, Pointers };
constexpr double kCallNs = 1000;  // what a call may cost

struct Smallest {
  GraphPtr graph = smallest_graph();
  float a = 1, b = 2, y = 0;
  std::unordered_map<int64_t, void*> by_uid;
  std::unordered_map<graph::TensorPtr, void*> by_tensor;
  std::vector<void*> by_order;
  Status status = graph->build({HeurMode_t::A});
  Smallest() {
    if (status.is_bad()) return;
    const auto& frozen = graph->impl().frozen;
    for (size_t id = 0; id < frozen.tensors.size(); ++id) {
      const ir::Tensor& t = frozen.graph->tensors[id];
      void* memory = t.name == "A" ? &a : t.name == "B" ? &b : &y;
      by_uid[t.uid] = memory;
      by_tensor[frozen.tensors[id]] = memory;
    }
    for (int64_t uid : graph->get_variant_pack_uids_sorted()) by_order.push_back(by_uid.at(uid));
  }
};

void report_call(const char* name, const std::string& plan, double ns, const std::string& error) {
  if (!g_outcomes.empty() && g_outcomes.back().row == name) g_outcomes.pop_back();
  Outcome out;
  out.row = name, out.plan = out.plan0 = out.best = plan, out.error = error;
  out.ours_ms = out.plan0_ms = out.best_ms = ns / 1e6;
  out.peer = "1 us", out.peer_ms = kCallNs / 1e6, out.target = 1, out.ratio = ns > 0 ? kCallNs / ns : 0;
  if (g_options.check_only) out.target = 0;
  g_outcomes.push_back(std::move(out));
}

void time_call(benchmark::State& state, const char* name, Pack form) {
  Smallest s;
  const auto call = [&] {
    return form == Pack::Uids      ? s.graph->execute(Handle{}, s.by_uid, nullptr)
           : form == Pack::Tensors ? s.graph->execute(Handle{}, s.by_tensor, nullptr)
                                   : s.graph->execute(Handle{}, s.by_order.data(), int(s.by_order.size()), nullptr);
  };
  constexpr int kCalls = 1000;
  std::vector<double> ns;
  for (auto _ : state) {
    const double ms = time_ms([&] {
      Status status;
      for (int i = 0; i < kCalls && status.is_good(); ++i) status = call();
      return status;
    });
    state.SetIterationTime(ms / 1e3);
    ns.push_back(ms * 1e6 / kCalls);
  }
  report_call(name, s.graph->plans()[0].name, median(ns), s.y == 3 ? "" : "1 + 2 is not 3");
}

// Eight threads of the caller's, one plan, each with its own data.
void time_callers(benchmark::State& state, const char* name) {
  constexpr int kCallers = 8, kCalls = 2000;
  Smallest s;
  std::vector<double> ns;
  std::atomic<int> wrong = 0;
  for (auto _ : state) {
    std::vector<double> each(kCallers);
    std::vector<std::thread> threads;
    for (int t = 0; t < kCallers; ++t)
      threads.emplace_back([&, t] {
        float a = float(t), b = 0, y = 0;
        auto pack = s.by_uid;
        for (auto& [uid, memory] : pack) memory = memory == &s.a ? &a : memory == &s.b ? &b : &y;
        each[size_t(t)] = time_ms([&] {
          for (int i = 0; i < kCalls; ++i) {
            b = float(i);
            if (s.graph->execute(Handle{}, pack, nullptr).is_bad() || y != a + b) ++wrong;
          }
          return Status{};
        });
      });
    for (std::thread& t : threads) t.join();
    // More callers than processors share them: what counts is the processors' time per call.
    const double ms = *std::max_element(each.begin(), each.end());
    state.SetIterationTime(ms / 1e3);
    ns.push_back(ms * 1e6 / kCalls * std::min(kCallers, thread_count()) / kCallers);
  }
  report_call(name, s.graph->plans()[0].name, median(ns),
              wrong == 0 ? "" : fmt::format("{} wrong results", wrong.load()));
}

// --- telling -----------------------------------------------------------------------------------------------------

std::string human_ms(double ms) {
  if (ms == 0) return "-";
  if (ms < 1e-3) return fmt::format("{:.0f} ns", ms * 1e6);
  if (ms < 1) return fmt::format("{:.1f} us", ms * 1e3);
  return fmt::format("{:.2f} ms", ms);
}

void print_title() {
  fmt::print("{:<52} {:>10} {:>10} {:>10} {:>10} {:>7} {:>7}  {}\n", "row", "ours", "plan 0", "best", "peer", "ratio",
             "target", "");
}

std::string verdict(const Outcome& o) {
  if (!o.error.empty()) return "WRONG: " + o.error;
  if (g_options.check_only) return "right";
  std::string s = o.target_met() ? "ok" : "SHORT";
  if (o.target == 0) s = "info";
  if (!o.choice_ok()) s += fmt::format(", plan 0 is {} and not {}", o.plan0, o.best);
  if (o.extra_limit > 0)
    s += fmt::format(", {} {:.1f} MB beyond the tensors, {:.1f} allowed", o.memory_ok() ? "takes" : "TAKES",
                     double(o.extra_bytes) / 1e6, double(o.extra_limit) / 1e6);
  s += "  vs " + (o.peer_ms > 0 ? short_name(o.peer) : o.peer);
  for (const auto& [name, ms] : o.also) s += fmt::format(", {} {}", short_name(name), human_ms(ms));
  return s;
}

void print_outcome(const Outcome& o) {
  progress("");
  fmt::print("{:<52} {:>10} {:>10} {:>10} {:>10} {:>7} {:>7}  {}\n", o.row, human_ms(o.ours_ms), human_ms(o.plan0_ms),
             human_ms(o.best_ms), human_ms(o.peer_ms), o.ratio > 0 ? fmt::format("{:.2f}", o.ratio) : "-",
             o.target > 0 ? fmt::format("{:.2f}", o.target) : "-", verdict(o));
  std::fflush(stdout);
}

class TableReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override {
    print_title();
    return true;
  }
  void ReportRuns(const std::vector<Run>&) override {
    if (!g_outcomes.empty() && printed_ != g_outcomes.size()) print_outcome(g_outcomes.back());
    printed_ = g_outcomes.size();
  }

 private:
  size_t printed_ = 0;
};

// The convolutions in FLOAT together: at least 1.1 times oneDNN.
void add_geomean() {
  double log = 0;
  int count = 0;
  for (const Outcome& o : g_outcomes)
    if (o.row.rfind("conv+bias+relu/float/", 0) == 0 && o.ratio > 0) log += std::log(o.ratio), ++count;
  if (count == 0) return;
  Outcome out;
  out.row = fmt::format("conv+bias+relu/float: geometric mean of {}", count);
  out.ratio = std::exp(log / count), out.target = 1.1, out.peer = "onednn";
  print_outcome(out);
  g_outcomes.push_back(out);
}

nlohmann::ordered_json to_json() {
  nlohmann::ordered_json j;
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  j["machine"] = {{"cpu", cpu_info().model},
                  {"target", Target::this_machine().text()},
                  {"threads", thread_count()},
                  {"last_level_cache_bytes", int64_t(last_level_cache_bytes())},
                  {"tilewright", version_string()},
                  {"onednn", onednn::lookup().version},
                  {"date", date}};
  j["rows"] = nlohmann::ordered_json::array();
  for (const Outcome& o : g_outcomes) {
    nlohmann::ordered_json r = {{"row", o.row},
                                {"ours_ms", o.ours_ms},
                                {"plan", o.plan},
                                {"plan0", o.plan0},
                                {"plan0_ms", o.plan0_ms},
                                {"best", o.best},
                                {"best_ms", o.best_ms},
                                {"peer", o.peer},
                                {"peer_ms", o.peer_ms},
                                {"ratio", o.ratio},
                                {"target", o.target},
                                {"ok", o.target_met()},
                                {"plan0_ok", o.choice_ok()}};
    for (const auto& [name, ms] : o.also) r["also"][name] = ms;
    if (o.extra_limit > 0) r["extra_bytes"] = o.extra_bytes, r["extra_bytes_limit"] = o.extra_limit;
    if (!o.error.empty()) r["error"] = o.error;
    j["rows"].push_back(std::move(r));
  }
  return j;
}

bool parse(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const bool more = i + 1 < argc;
    if (a == "--filter" && more) g_options.filter = argv[++i];
    else if (a == "--json" && more) g_options.json = argv[++i];
    else if (a == "--seconds" && more) g_options.seconds = std::atof(argv[++i]);
    else if (a == "--list") g_options.list = true;
    else if (a == "--check-only") g_options.check_only = true;
    else {
      std::fputs(kHelp, a == "--help" || a == "-h" ? stdout : stderr);
      if (a == "--help" || a == "-h") std::exit(0);
      fmt::print(stderr, "\nerror: \"{}\" is not understood, or lacks its value{}\n", a,
                 a == "--publish" ? "; ./dev bench cpu --publish knows it" : "");
      return false;
    }
  }
  return true;
}

template <class F>
void add(const std::string& name, F run) {
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->UseManualTime()
      ->MinTime(g_options.check_only ? 1e-3 : g_options.seconds);
}

int run(int argc, char** argv) {
  if (!parse(argc, argv)) return 2;
  setenv("TILEWRIGHT_TUNING_DB", "off", 1);  // plan 0 is what the ranking says
  const std::regex filter(g_options.filter);
  const auto wanted = [&](const std::string& name) { return std::regex_search(name, filter); };
  for (const Row& row : rows())
    if (wanted(row.name)) {
      if (g_options.list) fmt::print("{:<52} {}\n", row.name, row.target > 0 ? fmt::format("{:.2f}", row.target) : "-");
      else add(row.name, [&row](benchmark::State& s) { run_row(s, row); });
    }
  struct Call {
    const char* name;
    void (*run)(benchmark::State&, const char*);
  };
  const Call calls[] = {
      {"execute/by_uid", [](benchmark::State& s, const char* n) { time_call(s, n, Pack::Uids); }},
      {"execute/by_tensor", [](benchmark::State& s, const char* n) { time_call(s, n, Pack::Tensors); }},
      {"execute/by_order", [](benchmark::State& s, const char* n) { time_call(s, n, Pack::Pointers); }},
      {"execute/8_callers", time_callers},
  };
  for (const Call& c : calls)
    if (wanted(c.name)) {
      if (g_options.list) fmt::print("{:<52} 1.00\n", c.name);
      else add(c.name, [c](benchmark::State& s) { c.run(s, c.name); });
    }
  if (g_options.list) return 0;

  fmt::print("{}, {}; oneDNN {}\n", cpu_info().model, Target::this_machine().text(),
             onednn::lookup().problem.empty() ? onednn::lookup().version : "not there: " + onednn::lookup().problem);
  int count = 1;
  benchmark::Initialize(&count, argv);
  TableReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
  if (!g_options.check_only) add_geomean();
  if (!g_options.json.empty()) std::ofstream(g_options.json) << to_json().dump(1) << '\n';

  int wrong = 0, short_of = 0, choice = 0;
  for (const Outcome& o : g_outcomes) wrong += !o.error.empty(), short_of += !o.target_met(), choice += !o.choice_ok();
  if (g_outcomes.empty()) {
    fmt::print(stderr, "error: no row matches \"{}\"; --list shows them\n", g_options.filter);
    return 2;
  }
  if (g_options.check_only) fmt::print("{} rows, {} wrong\n", g_outcomes.size(), wrong);
  else
    fmt::print("{} rows: {} wrong, {} short of their target, {} whose plan 0 is not within 10 % of the best\n",
               g_outcomes.size(), wrong, short_of, choice);
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::run(argc, argv); }
