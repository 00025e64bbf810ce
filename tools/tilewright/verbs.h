// The verbs of the tool: what main() reads from the command line, and what does the work. Each returns an exit code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilewright::tool {

struct DoctorOptions {
  bool json = false, verbose = false;
};
int doctor(const DoctorOptions&);

struct RunOptions {
  std::string device = "auto";
  std::string graph;
  std::vector<std::string> inputs, outputs;  // NAME=FILE.npy
  std::string engine;                        // part of an engine's or a plan's name
  int64_t plan = -1;
  bool check = false, integers = false;
  int repeat = 0;  // 0: as many as fit in a third of a second
  uint64_t seed = 0;
};
int run(const RunOptions&);

struct TuneOptions {
  std::string device = "auto";
  std::string graph, engine, json;
  double seconds = 0.5;  // per plan
  bool check = true;
  uint64_t seed = 0;
};
int tune(const TuneOptions&);

struct ExplainOptions {
  std::string device = "auto";
  std::string graph;
  bool json = false;
  bool source = false;  // of explain: the kernels' texts instead
  int64_t plan = -1;    // whose
};
int explain(const ExplainOptions&);
int plans(const ExplainOptions&);

struct CompileOptions {
  std::string target = "native";
  std::vector<std::string> graphs;
  std::string output, engine;
};
int compile(const CompileOptions&);

struct ShowOptions {
  std::string device = "auto";
  std::string graph, output, engine;
};
int show(const ShowOptions&);

struct CheckOptions {
  std::string device = "auto";
  std::vector<std::string> graphs;
  std::string engine, fill = "both";
  int64_t plan = -1;
  int seeds = 3;
  uint64_t seed = 0;
  bool quiet = false;
};
int check(const CheckOptions&);

struct ImportOptions {
  std::string log, output = "-";
  int64_t index = -1;  // -1: the last
  bool all = false;
};
int import_log(const ImportOptions&);

struct OpsOptions {
  std::string op;
};
int ops(const OpsOptions&);

struct TourOptions {
  std::string device = "auto";
  bool quick = false;
  std::vector<int> sections;  // empty: all
};
int tour(const TourOptions&);

}  // namespace tilewright::tool
