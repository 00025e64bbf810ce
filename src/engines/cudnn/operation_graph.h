// A finalized operation graph, and what cuDNN says of it: its engines, what its heuristics list, its plans.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "engines/cudnn/config.h"
#include "engines/cudnn/lowering.h"

namespace tilewright::cudnn {

// What cuDNN plans for: a GPU of this machine by a handle that is the engine's own, or one that is only described.
struct Planner {
  Handle handle = nullptr;
  Descriptor properties;  // where there is no handle
  int ordinal = -1;
};
Result<std::shared_ptr<const Planner>> planner(const Target&);

struct Listed {
  Config config;
  int64_t workspace_bytes = 0;  // 0 too where only the plan tells: before 9.2
  std::vector<BehaviorNote_t> behavior_notes;
  std::vector<NumericalNote_t> numerical_notes;
};
// An answer of the heuristics.
struct Listing {
  std::vector<Listed> configs;  // best first, each once
  int64_t count = 0;            // as many as cuDNN gives
  // "engine 4: NOT_SUPPORTED_SHAPE: ...", one per engine that was offered and then refused; or why there is no answer.
  std::vector<std::string> refusals;
};
// The refusals in the pages of cudnnGetLastErrorString.
std::vector<std::string> refusals_in(const std::string& pages);
Why why_of(const std::string& refusal);  // by the status in it: Shape of "engine 4: NOT_SUPPORTED_SHAPE: ..."

class OperationGraph {
 public:
  static Result<std::shared_ptr<OperationGraph>> make(std::shared_ptr<const Lowered>, const Target&,
                                                      bool dynamic_shapes);

  const std::shared_ptr<const Lowered>& lowered() const { return lowered_; }
  RawDescriptor raw() const { return graph_.raw(); }
  const Planner& where() const { return *planner_; }

  const Listing& heuristics(HeurMode_t) const;  // asked at the first call
  // Whether any engine takes it.
  bool supported() const;
  Result<int64_t> engine_count() const { return graph_.get_integer(Attr::OPERATIONGRAPH_ENGINE_GLOBAL_COUNT); }
  Result<std::vector<Knob>> knobs(int64_t engine) const;
  Result<Listed> listed(const Config&) const;
  // A finalized plan; `kernel_cache`: null, or a descriptor that is to keep its kernels.
  Result<Descriptor> plan(const Config&, RawDescriptor kernel_cache) const;
  // From cuDNN's own JSON.
  static Result<Descriptor> plan_from_json(const std::string&, const Target&);

 private:
  OperationGraph(std::shared_ptr<const Lowered> lowered, std::shared_ptr<const Planner> where)
      : lowered_(std::move(lowered)), planner_(std::move(where)), graph_(Kind::OPERATIONGRAPH) {}
  std::vector<Descriptor> results(HeurMode_t, std::vector<std::string>& refusals) const;
  Listing ask(HeurMode_t) const;
  Result<Descriptor> engine(int64_t index) const;
  Result<Descriptor> engine_config(const Config&) const;

  std::shared_ptr<const Lowered> lowered_;
  std::shared_ptr<const Planner> planner_;
  Descriptor graph_;
  // Engine configurations as the heuristics gave them, so that plans of them need not make them again.
  mutable std::mutex mutex_;
  mutable std::map<std::string, Descriptor> known_;
  mutable std::once_flag asked_[3];  // by heuristics mode
  mutable Listing listings_[3];
};

}  // namespace tilewright::cudnn
