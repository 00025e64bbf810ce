// tilewright compile: graph files to plan files, for a target that need not be this machine.
#include <chrono>
#include <filesystem>
#include <iostream>
#include <set>

#include "session.h"
#include "table.h"
#include "terminal.h"
#include "verbs.h"

namespace tilewright::tool {

namespace {

namespace fs = std::filesystem;

// Where each graph's plan goes.
std::vector<std::string> outputs_of(const CompileOptions& options) {
  const bool folder = options.graphs.size() > 1 || fs::is_directory(options.output) || options.output.back() == '/';
  if (!folder) return {options.output};
  std::error_code e;
  fs::create_directories(options.output, e);
  if (e) fail("cannot make the folder \"{}\": {}", options.output, e.message());
  std::vector<std::string> paths;
  std::set<std::string> taken;
  for (const std::string& graph : options.graphs) {
    paths.push_back((fs::path(options.output) / fs::path(graph).stem()).string() + ".tw");
    if (!taken.insert(paths.back()).second)
      fail("\"{}\": the plan of another graph goes to \"{}\" too; compile them one by one", graph, paths.back());
  }
  return paths;
}

}  // namespace

int compile(const CompileOptions& options) {
  if (options.output.empty()) throw Failure{"--output is empty: expected a file or a folder", 2};
  const ChosenDevice device(options.target == "native" ? "auto" : options.target, "--target");
  const std::string engine = !options.engine.empty() || !device.target().is_gpu() ? options.engine : "cuda";
  const std::vector<std::string> outputs = outputs_of(options);
  Table table;
  table.column("file").column("plan").column("kernels", Table::Right).column("workspace", Table::Right);
  table.column("size", Table::Right).column("time", Table::Right);
  for (size_t i = 0; i < options.graphs.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    Session session(options.graphs[i], device);
    const PlanInfo plan = session.info(session.build_best(engine));
    const std::vector<uint8_t> bytes = session.saved();
    write_text(outputs[i], std::string(bytes.begin(), bytes.end()));
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
    table.row({outputs[i], plan.name, std::to_string(plan.kernel_count), human_bytes(double(plan.workspace_bytes)),
               human_bytes(double(bytes.size())), human_time(ms.count())});
  }
  (options.output == "-" ? std::cerr : std::cout)
      << table.text() << "for " << device.text() << (device.target().is_gpu() ? ", as " + device.target().code() : "")
      << '\n';
  return 0;
}

}  // namespace tilewright::tool
