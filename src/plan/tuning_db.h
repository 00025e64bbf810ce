// What plans took when they were measured, kept between processes: a file of JSON lines, one per plan and measurement,
// which any number of processes append to. A line that does not parse is skipped; one of other hardware, another number
// of threads or another version of the engine is not of interest. Where the file cannot be written, nothing is
// remembered.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "plan/target.h"

namespace tilewright {

struct TunedPlan {
  std::string engine, config;
  double ms = 0;
};

// TILEWRIGHT_TUNING_DB, else tilewright/tuning.jsonl in the user's cache folder; empty: there is none.
std::string tuning_db_path();

// Appends what a tuning measured, in one write. The error says which file and why.
Status remember_tuned(const ir::Graph&, const Target&, const std::vector<TunedPlan>&);
// The fastest plan that is remembered: of each plan its last measurement counts.
std::optional<TunedPlan> find_tuned(const ir::Graph&, const Target&);

struct TuningDbInfo {
  std::string path;
  int64_t records = 0, skipped = 0;  // lines that parse, and that do not
  std::string problem;               // why nothing could be remembered now; empty: it could
};
TuningDbInfo tuning_db_info();

}  // namespace tilewright
