// A graph file on its way to results: loaded, validated, its plans listed for a device, one plan built, executed,
// timed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "chosen_device.h"
#include "ir/graph.h"
#include "plan/harness.h"
#include "plan/judge.h"
#include "tilewright/graph.h"

namespace tilewright::tool {

// Reads and validates a graph file ("-": standard input). Fails with the file's name and the library's message.
graph::Graph load_graph(const std::string& path);

struct Timing {
  double median_ms = 0, min_ms = 0, max_ms = 0;
  int runs = 0;
  double spread() const { return median_ms > 0 ? (max_ms - min_ms) / median_ms : 0; }
};

class Session {
 public:
  // Of a graph file, or of a plan file, which has one plan. The device must outlive the session.
  Session(const std::string& path, const ChosenDevice&);

  const std::string& path() const { return path_; }
  const ir::Graph& ir() const { return *ir_; }
  // The graph that judges a plan, allowing what its notes admit.
  const ir::Graph& judge(int64_t index);
  const ChosenDevice& device() const { return device_; }
  std::vector<PlanInfo> plans() const { return graph_.plans(); }
  PlanInfo info(int64_t index) const;
  const std::string& config(int64_t index) const;
  // What an engine's kernels are compiled from; empty where it generates no text.
  std::vector<KernelText> kernels(int64_t index) const;
  // The plan that was built last, as a plan file.
  std::vector<uint8_t> saved() const;
  // Right, but slow: for graphs that nothing else takes.
  bool last_resort(int64_t index) const;
  // The regions of an engine's best plan; empty for its other plans, and when the engine tells of none.
  std::vector<RegionInfo> regions(int64_t index) const;
  // The first plan in the ranking that builds and whose name contains `engine`. Fails with every reason when none does.
  int64_t build_best(const std::string& engine);
  // The same by index.
  Status build(int64_t index);
  int64_t workspace_bytes(int64_t index) const { return graph_.get_workspace_size_plan_at_index(index); }
  // One execution on the harness's memory, outputs poisoned before; on a GPU on a copy of it there.
  Status run_once(Harness& harness, int64_t index);
  // One warm-up, then `runs` timed ones; 0: as many as fit into `seconds`. On a GPU by device events, on memory that
  // rotates past the cache.
  Timing time(Harness& harness, int64_t index, int runs, double seconds);

 private:
  Timing time_on_gpu(const Harness& harness, int64_t index, int runs, double seconds);

  std::string path_;
  const ChosenDevice& device_;
  graph::Graph graph_;
  std::shared_ptr<const ir::Graph> ir_;
  std::unique_ptr<Judges> judges_;
};

// Plans whose name contains the fragment; all when it is empty. Rows that offer no plan are left out.
std::vector<PlanInfo> select_plans(const std::vector<PlanInfo>& plans, const std::string& fragment);

// The middle and the ends of times in milliseconds.
Timing summary(std::vector<double> ms);

std::string type_name(const ir::Tensor& tensor);
// Packed, the last dim fastest; the stride of a dim of size 1 does not matter.
bool row_major(const ir::Tensor& tensor);
// "[2, 128, 56, 56]", with the strides when they are not packed row-major.
std::string shape_text(const ir::Tensor& tensor);

}  // namespace tilewright::tool
