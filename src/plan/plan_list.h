// The list of ways to run a graph. Rows never move and never vanish: filters and failures mark them, with the reason.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/engine.h"
#include "tilewright/kernel_cache.h"
#include "tilewright/plan.h"

namespace tilewright {

// Which tensors the caller binds, by ascending uid: made once, looked up at each execute.
struct PlanBinding {
  struct Slot {
    int64_t uid;
    ir::TensorId tensor;
    bool needs_memory;  // false for an empty tensor, whose pointer may be null
  };
  std::vector<Slot> slots;
  std::vector<int64_t> bytes;  // by tensor, of those that the caller binds
  size_t tensor_count = 0;
  std::shared_ptr<const ir::Graph> graph;

  const Slot* find(int64_t uid) const;
};
PlanBinding make_binding(std::shared_ptr<const ir::Graph>);

struct PlanRow {
  const Engine* engine = nullptr;
  std::shared_ptr<const Proposal> proposal;  // null for rejected engines and for plans from a file or a cache
  Candidate candidate;
  PlanState state = PlanState::Listed;
  std::vector<Reason> reasons;
  Artifact artifact;
  std::shared_ptr<const Executable> executable;
  std::optional<double> measured_ms;

  std::string name() const;
};

struct PlanFilters {
  std::optional<int64_t> max_workspace_bytes, max_shared_memory_bytes;
  std::vector<std::string> barred_names;
  std::vector<BehaviorNote_t> required_behavior, barred_behavior;
  std::vector<NumericalNote_t> required_numerical, barred_numerical;
};

class PlanList {
 public:
  PlanFilters filters;

  // Asks every engine and appends rows in the order of the modes, best first; before them what was tuned to be fastest.
  // A mode that yields nothing is not an error as long as some engine takes the graph: the engines that take everything
  // are appended then.
  Status create(std::shared_ptr<const ir::Graph>, const Target&, const std::vector<HeurMode_t>&, KernelCache*);
  // Engines by number: those within the engine that has numbered ones for this graph (a vendor's library), then those
  // of all_engines(). One plan of one of them, and the knobs that it has.
  int64_t engine_count(std::shared_ptr<const ir::Graph>, const Target&);
  Result<std::vector<Knob>> knobs(std::shared_ptr<const ir::Graph>, const Target&, int64_t engine_id);
  Status create_one(std::shared_ptr<const ir::Graph>, const Target&, int64_t engine_id,
                    const std::unordered_map<KnobType_t, int64_t>& knobs);
  // A plan that needs no choice: from a file.
  Status adopt(std::shared_ptr<const ir::Graph>, const Target&, Artifact, Candidate);

  Status check_support();
  Status build(BuildPlanPolicy_t);
  Status build_at(int64_t index);

  bool empty() const { return plans_.empty(); }
  int64_t count() const { return int64_t(plans_.size()); }
  // Plans in order of rank; index as in the public API.
  const PlanRow& at(int64_t index) const { return plans_[size_t(index)]; }
  PlanRow& at(int64_t index) { return plans_[size_t(index)]; }
  const std::vector<PlanRow>& rejected() const { return rejected_; }
  std::optional<int64_t> chosen() const { return chosen_; }
  void choose(int64_t index) { chosen_ = index; }
  const std::shared_ptr<const ir::Graph>& graph() const { return graph_; }
  const std::shared_ptr<const PlanBinding>& binding() const { return binding_; }
  const Target& target() const { return target_; }

  std::vector<PlanInfo> infos() const;
  // Every reason why nothing serves, most specific first, for the error of a list with no plan left.
  std::string why_none() const;

 private:
  void start(std::shared_ptr<const ir::Graph>, const Target&);
  void apply_filters();
  void put_tuned_first();
  const PlanRow* numbered();

  std::shared_ptr<const ir::Graph> graph_;
  std::shared_ptr<const PlanBinding> binding_;
  Target target_;
  std::vector<PlanRow> plans_, rejected_;
  std::optional<int64_t> chosen_;
  std::optional<PlanRow> numbered_;  // the engine with numbered engines within; without a proposal: there is none
  KernelCache* cache_ = nullptr;
};

std::string describe(const ir::Graph&, const Reason&);

}  // namespace tilewright
