// The mutable graph that a program describes, and its freezing into the immutable ir::Graph that engines see.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/op_def.h"
#include "plan/plan_list.h"
#include "tilewright/graph.h"

namespace tilewright::graph {

struct BuilderNode {
  const ir::OpDef* op = nullptr;
  std::string name;
  DataType_t compute = DataType_t::NOT_SET;
  AttrMap attrs;
  std::vector<TensorPtr> in, out;  // by port; null where absent
};

// What inference wrote into a tensor of the caller's: taken back (where it still stands) before the next inference.
struct Inferred {
  std::vector<int64_t> dim, stride;
  DataType_t type = DataType_t::NOT_SET;
};

struct Frozen {
  std::shared_ptr<const ir::Graph> graph;
  std::vector<TensorPtr> tensors;  // by tensor id
  std::vector<std::string> warnings;
};

// All that a program said. Copying it shares the tensors; clone() does not.
struct Description {
  std::string name;
  DataType_t io = DataType_t::NOT_SET, intermediate = DataType_t::NOT_SET, compute = DataType_t::NOT_SET;
  bool dynamic_shapes = false, override_shapes = false;
  int32_t sm_count = -1, sm_version = -1;
  std::shared_ptr<KernelCache> cache;
  std::shared_ptr<const DeviceProperties> device_properties;
  bool verify = false;

  std::vector<TensorPtr> tensors;     // made by Graph::tensor, in order
  std::vector<TensorPtr> peer_stats;  // named by the caller, read by nobody
  std::vector<BuilderNode> nodes;
  std::unordered_map<const Tensor_attributes*, Inferred> inferred;
  Status deferred;  // the first thing wrong with an op call; validate() reports it
};

// Inference and all checks. Reads the description only.
Result<Frozen> freeze(const Description&);
// Writes what freeze inferred into the caller's tensors.
void write_back(Description&, const Frozen&);
// Uids for the tensors that have none: 1, 2, ... skipping the caller's. In the tensors and in the frozen graph.
void assign_uids(Frozen&);
// A copy with tensors of its own, and what inference wrote taken back.
Description clone(const Description&);

// A frozen graph with one plan, for shapes that execute() was given instead of the described ones.
struct Override {
  std::shared_ptr<const ir::Graph> graph;
  std::shared_ptr<const PlanBinding> binding;
  std::shared_ptr<const Executable> executable;
};

struct Graph::Impl {
  Description description;
  Frozen frozen;         // after validate / build_operation_graph
  bool lowered = false;  // build_operation_graph done
  Queue queue;           // that build_operation_graph was told to build for; ordinal -1: none
  PlanList plans;
  std::string loaded_note;  // what deserialize had to say
  std::string tuned_note;   // what autotune remembered, or why it could not

  mutable std::mutex overrides_mutex;
  mutable std::map<std::string, std::shared_ptr<const Override>> overrides;

  Status lower(Handle);
};

// The options under which a serialized plan is read back.
enum class Loading {
  Lenient,  // a plan that does not fit this library is built again from the graph in the file
  Strict,   // it is an error
};
Status load_plan_file(Graph::Impl&, const std::vector<uint8_t>&, Loading, const Queue&);
Status save_plan_file(const Graph::Impl&, std::vector<uint8_t>&);

}  // namespace tilewright::graph
