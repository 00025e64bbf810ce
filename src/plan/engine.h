// What an engine is: it is asked about a graph, answers with candidates or with every reason why not, compiles a
// candidate to an artifact (plain bytes, no device needed), and loads an artifact into something that runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "plan/target.h"

namespace tilewright {

class KernelCache;

enum class Why { Dtype, Shape, Stride, Alignment, Arch, Op, Fusion, Feature, Library, Limit, Policy };
const char* to_string(Why);

// "This engine does not take this graph": an answer, not an error.
struct Reason {
  Why why;
  ir::NodeId node = -1;  // -1: about the whole graph
  ir::TensorId tensor = ir::kNone;
  std::string text;  // names the node and the numbers
};

// The caller's memory, by tensor id: null for what has none. Host pointers for scalars.
using Bindings = std::vector<void*>;

// Where an execution is put. On a CPU: the caller's thread, and all is null.
struct Queue {
  int ordinal = -1;        // of the GPU; -1: the CPU
  void* stream = nullptr;  // a CUstream of that GPU; null: its default stream
  void* cudnn = nullptr;   // a cudnnHandle_t on that GPU and stream, where there is cuDNN
  int ptx = 0;             // not 0: our kernels are PTX of this architecture (75), which the GPU's driver compiles
};

// One launch: what a profiler would show as a kernel.
struct Step {
  std::string name;                                           // "contraction conv+bias+relu"
  std::function<void(const Bindings&, void* workspace)> run;  // of a CPU engine; empty elsewhere
};

// An output that is written before a later launch reads an input: the two must not share memory. (Within one launch
// they may: it reads an element before it writes it.)
struct Hazard {
  ir::TensorId written, read;
};

// A plan that can run. const, re-entrant, no allocation after the first run, no lock. On a GPU a run only enqueues work
// on the queue's stream, and may be captured.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual Status run(const Bindings&, void* workspace, const Queue&) const = 0;
  virtual int64_t workspace_bytes() const = 0;
  virtual const std::vector<Step>& steps() const = 0;
  virtual const std::vector<Hazard>& hazards() const {
    static const std::vector<Hazard> none;
    return none;
  }
  // What a plan file keeps of a plan whose artifact has no bytes of its own.
  virtual Result<std::vector<uint8_t>> saved() const { return std::vector<uint8_t>{}; }
  // The launches as nodes of an empty cudaGraph_t of the caller's, with these pointers; and other pointers for a graph
  // that was made so.
  virtual Status populate_cuda_graph(void* graph, const Bindings&, void* workspace, const Queue&) const;
  virtual Status update_cuda_graph(void* graph, const Bindings&, void* workspace, const Queue&) const;
};

// The usual Executable of a CPU engine: steps in order, intermediates at fixed offsets of the workspace.
class StepList : public Executable {
 public:
  StepList(std::vector<Step> steps, int64_t workspace_bytes, std::vector<Hazard> hazards = {})
      : steps_(std::move(steps)), hazards_(std::move(hazards)), workspace_bytes_(workspace_bytes) {}
  Status run(const Bindings& bindings, void* workspace, const Queue&) const override {
    for (const Step& step : steps_) step.run(bindings, workspace);
    return {};
  }
  int64_t workspace_bytes() const override { return workspace_bytes_; }
  const std::vector<Step>& steps() const override { return steps_; }
  const std::vector<Hazard>& hazards() const override { return hazards_; }

 private:
  std::vector<Step> steps_;
  std::vector<Hazard> hazards_;
  int64_t workspace_bytes_;
};

// What compile() makes and a plan file keeps.
struct Artifact {
  std::string engine, config;  // config: "tile=64,threads=rows", readable, the same text everywhere
  std::vector<uint8_t> bytes;  // what the engine needs beyond graph and config (a cubin); may be empty
  std::shared_ptr<void> made;  // what compiling made besides, so that loading need not make it again; not kept in files
};

struct Candidate {
  std::string config;
  int64_t workspace_bytes = 0;
  int kernel_count = 0;
  double estimated_ms = 0;
  bool everything = false;        // of the kind that takes any graph: what mode FALLBACK lists
  bool last_resort = false;       // right, but slow: modes A and B leave it out
  std::vector<HeurMode_t> modes;  // not empty: the modes that list it, whatever the two above say
  std::vector<BehaviorNote_t> behavior_notes;
  std::vector<NumericalNote_t> numerical_notes;
  std::vector<std::string> notes;  // for people: "2 kernels", "deterministic"
  std::vector<Reason> reasons;     // not empty: this configuration cannot serve, and why
};

// Nodes that one launch computes together, for pictures and listings. A node that was split may be in several regions.
struct RegionInfo {
  std::string name;               // as the launch is called: "contraction conv+bias+relu"
  std::vector<ir::NodeId> nodes;  // of the graph that was proposed
};

// A kernel as it was generated: a page for people, and what the compiler gets.
struct KernelText {
  std::string name, text;
};

// The analysis of one graph by one engine, done once and shared by all its candidates.
class Proposal {
 public:
  virtual ~Proposal() = default;
  virtual std::vector<Candidate> candidates() const = 0;  // best first
  // The same for a caller who lists these modes only: others may be left out, where they cost a search.
  virtual std::vector<Candidate> candidates_in(const std::vector<HeurMode_t>&) const { return candidates(); }
  // `cache` (null: none) may keep what other shapes of the graph's class can use again.
  virtual Result<Artifact> compile(const std::string& config, KernelCache* cache) const = 0;
  virtual std::string explain() const = 0;                        // regions and why this shape of launch
  virtual std::vector<RegionInfo> regions() const { return {}; }  // in launch order; empty: no fusion to tell of
  // In launch order; empty for engines that generate no text.
  virtual std::vector<KernelText> kernels(const std::string& /*config*/) const { return {}; }
  // Engines within the engine that a caller may name by number, with knobs (create_execution_plan).
  virtual int64_t engine_count() const { return 0; }
  virtual Result<std::vector<Knob>> knobs(int64_t engine) const;
  virtual Result<Candidate> candidate(int64_t engine, const std::unordered_map<KnobType_t, int64_t>& knobs) const;
};

struct Verdict {
  std::unique_ptr<const Proposal> proposal;  // null: the engine does not take the graph, and `reasons` says why
  std::vector<Reason> reasons;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual const char* name() const = 0;     // "cpu.fused"
  virtual const char* summary() const = 0;  // one line for people
  virtual int version() const = 0;          // raised when artifacts change meaning
  // Empty when the engine can work on this machine and target; else why not.
  virtual std::vector<Reason> unavailable(const Target&) const = 0;
  // The same of plans from files, for engines that need less to run a plan than to make one.
  virtual std::vector<Reason> cannot_load(const Target& target) const { return unavailable(target); }
  virtual Verdict propose(const ir::Graph&, const Target&) const = 0;
  // An artifact without bytes is compiled from its config, with `cache` as in compile().
  virtual Result<std::unique_ptr<Executable>> load(const ir::Graph&, const Artifact&, const Target&,
                                                   KernelCache* cache) const = 0;
  // What a plan of this configuration is called, and other names by which filters know it.
  virtual std::vector<std::string> plan_names(const std::string& config) const;
};

// All engines, in the order in which they are asked (engines/builtin.cc).
const std::vector<const Engine*>& all_engines();
const Engine* find_engine(std::string_view name);

}  // namespace tilewright
