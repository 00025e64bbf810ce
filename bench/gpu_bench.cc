// ./dev bench gpu: how fast each engine runs the rows of gpu_rows.cc on a GPU, in one process, on the same memory.
// gpu_contest.cc says how a row is measured and checked, gpu_report.cc what is told.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>

#include "device/cuda/driver.h"
#include "engines/cudnn/loader.h"
#include "gpu_report.h"
#include "plan/roofline.h"
#include "tilewright/device.h"

namespace tilewright::bench {
namespace {

constexpr const char* kHelp =
    R"(./dev bench gpu [options]: every engine's plans on an NVIDIA GPU, row by row, side by side.

  --filter REGEX   only rows whose name matches: --filter '^matmul', --filter attention
  --list           the names of the rows
  --json FILE      also write the results, a row each, with the machine's description
  --merge          rows of that file that are not measured now stay in it
  --quick          the first six plans of each engine only
  --plans          also every plan's time, below its row
  --check-only     run every plan once and check its results; time nothing
  --peer FILE      figures of another program for these rows, as a column: {"name": ..., "rows": [{"row": ..., "ms": ...}]}
                   (bench/torch_peer.py writes one, and the program in bench/frontend_peer); may be repeated
  --device NAME    cuda (default: the first GPU) or cuda:N
  --publish        every row, and docs/performance.md is written anew
  --help           this text

A row's plans are all built, checked on samples of their outputs against the exact reference, and timed by device events
after a warm-up, on sets of tensors that together are at least three times the L2. Brief runs are batched in a CUDA
graph, so that what launching costs the host does not count. Then the first plan and the best three of each engine, and
a copy of as many bytes, are measured again in turns, and the medians of that are told.

Columns: "plan 0" is the engine's first plan, "best" its fastest, "copy" the time of copying as many bytes over the best
time, "/cuDNN" the time of cuDNN's best plan over this engine's.
)";

struct Options {
  std::string filter = ".", json, device = "cuda:0";
  std::vector<std::string> peers;
  bool list = false, merge = false, plans = false;
  ContestOptions contest;
};

// On a terminal: what takes so long; the next line of the table replaces it. Elsewhere nothing.
void progress(const std::string& doing) {
  if (isatty(2)) fmt::print(stderr, "\r\033[K{:.110}", doing);
}

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const bool more = i + 1 < argc;
    if (a == "--filter" && more) o.filter = argv[++i];
    else if (a == "--json" && more) o.json = argv[++i];
    else if (a == "--peer" && more) o.peers.push_back(argv[++i]);
    else if (a == "--device" && more) o.device = argv[++i];
    else if (a == "--list") o.list = true;
    else if (a == "--merge") o.merge = true;
    else if (a == "--plans") o.plans = true;
    else if (a == "--quick") o.contest.quick = true;
    else if (a == "--check-only") o.contest.check_only = true;
    else {
      std::fputs(kHelp, a == "--help" || a == "-h" ? stdout : stderr);
      if (a == "--help" || a == "-h") std::exit(0);
      fmt::print(stderr, "\nerror: \"{}\" is not understood, or lacks its value{}\n", a,
                 a == "--publish" ? "; ./dev bench gpu --publish knows it" : "");
      return false;
    }
  }
  return true;
}

// --- what the host does ------------------------------------------------------------------------------------------

double ms_of(const std::function<Status()>& work, Status& status) {
  const auto start = std::chrono::steady_clock::now();
  if (status.is_good()) status = work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

struct HostRow {
  const char* name;
  Result<double> (*measure)(const Gpu&, std::string& plan);  // milliseconds
};

// execute() of the smallest matmul, called a few hundred times between waits: what the call costs, not the kernel.
Result<double> execute_ms(const Gpu& gpu, std::string& plan) {
  constexpr int kCalls = 200, kBatches = 30;
  const GraphPtr graph = smallest_matmul();
  TW_RETURN_IF_BAD(graph->build(gpu.handle(), {HeurMode_t::A}));
  TW_RETURN_IF_BAD(graph->get_plan_name(plan));
  TW_ASSIGN_OR_RETURN(const std::shared_ptr<const ir::Graph> ir, frozen(smallest_matmul()));
  Tensors host(1, nullptr);
  host.add(*ir);
  GpuTensors tensors(gpu, 1);
  TW_RETURN_IF_BAD(tensors.add(*ir, host));
  std::unordered_map<int64_t, void*> pack;
  const Bindings bindings = tensors.bindings(*ir, 0);
  for (size_t id = 0; id < bindings.size(); ++id)
    if (bindings[id]) pack[ir->tensors[id].uid] = bindings[id];
  int64_t bytes = 0;
  TW_RETURN_IF_BAD(graph->get_workspace_size(bytes));
  TW_ASSIGN_OR_RETURN(const cuda::DeviceMemory workspace,
                      cuda::DeviceMemory::allocate(gpu.target().ordinal, std::max<int64_t>(bytes, 256)));
  std::vector<double> ms;
  Status status;
  for (int batch = 0; batch < kBatches; ++batch) {
    const double total = ms_of(
        [&] {
          for (int i = 0; i < kCalls; ++i) TW_RETURN_IF_BAD(graph->execute(gpu.handle(), pack, workspace.data()));
          return Status{};
        },
        status);
    TW_RETURN_IF_BAD(status);
    TW_RETURN_IF_BAD(gpu.wait());
    if (batch > 2) ms.push_back(total / kCalls);
  }
  return median(ms);
}

// From the described graph to its first plan, ready to execute: the first time in this process that this is done for a
// graph of its kind, and the median of later times.
Result<double> build_ms(const Gpu& gpu, std::string& plan) {
  const GraphPtr graph = smallest_matmul();
  Status status;
  const double ms = ms_of([&] { return graph->build(gpu.handle(), {HeurMode_t::A}); }, status);
  TW_RETURN_IF_BAD(status);
  TW_RETURN_IF_BAD(graph->get_plan_name(plan));
  return ms;
}
Result<double> build_again_ms(const Gpu& gpu, std::string& plan) {
  std::vector<double> ms;
  for (int i = 0; i < 8; ++i) {
    TW_ASSIGN_OR_RETURN(const double one, build_ms(gpu, plan));
    ms.push_back(one);
  }
  return median(std::vector<double>(ms.begin() + 1, ms.end()));
}

constexpr HostRow kHostRows[] = {{"host/build_first_plan/64x64x64", build_ms},
                                 {"host/build_first_plan_again/64x64x64", build_again_ms},
                                 {"host/execute/64x64x64", execute_ms}};

GpuOutcome host_outcome(const Gpu& gpu, const HostRow& row) {
  GpuOutcome o;
  o.row = row.name;
  const auto ms = row.measure(gpu, o.plan);
  if (!ms) o.error = ms.status().err_msg;
  else o.plan0_ms = o.best_ms = *ms;
  o.plan0 = o.plan, o.engine = o.plan.substr(0, o.plan.find_first_of(".["));
  o.plans = 1;
  return o;
}

// --- the run -----------------------------------------------------------------------------------------------------

GpuHeader header_of(const Gpu& gpu, const Roofline& roofline, int argc, char** argv) {
  GpuHeader h;
  const Target& target = gpu.target();
  const auto properties = nlohmann::json::parse(target.gpu->json, nullptr, false);
  h.gpu = target.gpu->name, h.target = target.text(), h.driver = cuda::driver_lookup().version;
  h.cudnn = cudnn::version_text(cudnn::lookup().version), h.tilewright = version_string();
  h.sm_clock_mhz = properties.value("smClockRateKHz", 0.0) / 1e3;
  h.memory_clock_mhz = properties.value("memClockRateKHz", 0.0) / 1e3;
  h.copy_bandwidth = roofline.bytes_per_s, h.matmul_rate = roofline.flops_per_s;
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  h.date = date, h.command = "./dev bench gpu";
  for (int i = 1; i < argc; ++i) h.command += fmt::format(" {}", argv[i]);
  return h;
}

std::vector<GpuOutcome> measure(const Gpu& gpu, const GpuRow& row, const Options& options) {
  const auto contest = hold_contest(gpu, row, options.contest);
  if (contest && options.plans)
    for (const GpuPlan& p : contest->plans)
      fmt::print("  {:<60} {}\n", p.name, p.problem.empty() ? fmt::format("{:.2f} us", p.ms * 1e3) : p.problem);
  if (contest) return outcomes_of(row, *contest);
  GpuOutcome o;
  o.row = row.name, o.error = contest.status().err_msg;
  return {o};
}

Status write_json(const Options& options, const GpuHeader& header, const std::vector<GpuOutcome>& outcomes,
                  const std::vector<Peer>& peers) {
  nlohmann::ordered_json before;
  if (options.merge) {
    std::ifstream in(options.json);
    if (in) before = nlohmann::ordered_json::parse(in, nullptr, false);
  }
  std::ofstream out(options.json);
  out << to_json(header, outcomes, peers, before.is_object() ? &before : nullptr).dump(1) << '\n';
  out.close();
  return out ? Status{} : invalid("cannot write \"{}\"", options.json);
}

int fail(const std::string& what) {
  fmt::print(stderr, "error: {}\n", what);
  return 2;
}

int run(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 2;
  setenv("TILEWRIGHT_TUNING_DB", "off", 1);  // plan 0 is what the ranking says
  options.contest.progress = progress;
  const std::regex filter(options.filter);
  std::vector<GpuRow> rows;
  for (GpuRow& row : gpu_rows())
    if (std::regex_search(row.name, filter)) rows.push_back(std::move(row));
  std::vector<HostRow> host_rows;
  for (const HostRow& row : kHostRows)
    if (std::regex_search(row.name, filter)) host_rows.push_back(row);
  if (options.list) {
    for (const GpuRow& row : rows) fmt::print("{}\n", row.name);
    for (const HostRow& row : host_rows) fmt::print("{}\n", row.name);
    return 0;
  }
  if (rows.empty() && host_rows.empty())
    return fail(fmt::format("no row matches \"{}\"; --list shows them", options.filter));
  std::vector<Peer> peers;
  for (const std::string& path : options.peers) {
    auto peer = Peer::read(path);
    if (!peer) return fail(peer.status().err_msg);
    peers.push_back(std::move(*peer));
  }
  auto gpu = Gpu::open(options.device);
  if (!gpu) return fail(gpu.status().err_msg);
  fmt::print(
      "{}, {}; driver {}; cuDNN {}\n", (*gpu)->target().gpu->name, (*gpu)->target().text(),
      cuda::driver_lookup().version,
      cudnn::lookup().calls ? cudnn::version_text(cudnn::lookup().version) : "not there: " + cudnn::lookup().problem);

  std::vector<GpuOutcome> outcomes;
  const auto tell = [&](GpuOutcome o) {
    hold_against(o, peers);
    progress("");
    fmt::print("{}\n", table_line(o, peers, options.contest.check_only));
    std::fflush(stdout);
    outcomes.push_back(std::move(o));
  };
  // The host's rows first: building a plan is only once the first time.
  std::vector<GpuOutcome> host;
  if (!options.contest.check_only)
    for (const HostRow& row : host_rows) progress(row.name), host.push_back(host_outcome(**gpu, row));
  Roofline limits;
  if (!options.contest.check_only) {
    progress("measuring copies and a large matmul");
    const auto measured = measure_roofline((*gpu)->target(), (*gpu)->queue());
    progress("");
    if (measured) limits = *measured;
    else fmt::print("no roofline: {}\n", measured.status().err_msg);
    fmt::print("copy {:.2f} TB/s, matmul {:.0f} TFLOP/s\n", limits.bytes_per_s / 1e12, limits.flops_per_s / 1e12);
  }
  const GpuHeader header = header_of(**gpu, limits, argc, argv);
  fmt::print("{}\n", table_title(peers));
  for (GpuOutcome& o : host) tell(std::move(o));
  for (const GpuRow& row : rows) {
    for (GpuOutcome& o : measure(**gpu, row, options)) tell(std::move(o));
    // After each row, so that a run that is cut short leaves what it has.
    if (!options.json.empty())
      if (const Status s = write_json(options, header, outcomes, peers); s.is_bad()) return fail(s.err_msg);
  }
  if (!options.json.empty())
    if (const Status s = write_json(options, header, outcomes, peers); s.is_bad()) return fail(s.err_msg);

  int wrong = 0, short_of = 0;
  for (const GpuOutcome& o : outcomes) wrong += !o.error.empty(), short_of += o.error.empty() && !o.ok();
  fmt::print("{} rows: {} wrong, {} short of their target\n", outcomes.size(), wrong, short_of);
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::run(argc, argv); }
