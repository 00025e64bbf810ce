// What `./dev bench gpu` tells: a line per row and engine, as a table and as JSON.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gpu_contest.h"

namespace tilewright::bench {

// The figures of another program for the same rows, from its file:
//   {"name": "PyTorch 2.11", "rows": [{"row": "matmul/...", "ms": 1.5, "plan0_ms": 1.6, "plans": 23}]}
// "plan0_ms" and "plans" may be missing. With "held": "cudnn", that engine of ours is held to it: as many plans, its
// best time within 2 %, its first plan no slower.
struct Peer {
  struct Row {
    double ms = 0, plan0_ms = 0;
    int plans = 0;
  };
  std::string name, held;
  std::map<std::string, Row> rows;
  static Result<Peer> read(const std::string& path);
  static Result<Peer> parse(const std::string& text);
};

// An engine's part in a row. Without an engine: the row could not be run, and `error` says why.
struct GpuOutcome {
  std::string row, engine, plan, plan0, error, note;
  double plan0_ms = 0, best_ms = 0, copy_ms = 0, build_ms = 0;
  double flops = 0, bytes = 0;     // the rate is that of flops, where there are any
  double ratio_to_cudnn_best = 0;  // cuDNN's best time over this engine's; 0: cuDNN does not run the row
  double target = 0;               // of the time of the peer that it is held to over ours; 0: none
  double wanted_of_cudnn = 0, wanted_of_copy = 0;  // what the row aims at, of engine "cuda"; 0: nothing
  int plans = 0, wrong = 0, excused = 0, failed = 0;
  double worst_error = 0;
  std::string timed;  // how: "graph of 40"
  struct Versus {
    std::string peer;
    Peer::Row row;
    double ratio = 0;  // its time over ours
  };
  std::vector<Versus> peers;
  bool ok() const;
  bool has_target() const { return target > 0 || wanted_of_cudnn > 0 || wanted_of_copy > 0; }
  double rate() const;            // per second
  const char* rate_unit() const;  // "FLOP/s" or "B/s"
};

// Of a row's contest: one per engine that took the row or refused it.
std::vector<GpuOutcome> outcomes_of(const GpuRow&, const GpuContest&);
void hold_against(GpuOutcome&, const std::vector<Peer>&);

struct GpuHeader {
  std::string gpu, target, driver, cudnn, tilewright, date, command;
  double sm_clock_mhz = 0, memory_clock_mhz = 0, copy_bandwidth = 0, matmul_rate = 0;
};
// With `before`, the rows of an earlier file that were not measured now keep their place.
nlohmann::ordered_json to_json(const GpuHeader&, const std::vector<GpuOutcome>&, const std::vector<Peer>&,
                               const nlohmann::ordered_json* before);

std::string table_title(const std::vector<Peer>&);
std::string table_line(const GpuOutcome&, const std::vector<Peer>&, bool check_only);

}  // namespace tilewright::bench
