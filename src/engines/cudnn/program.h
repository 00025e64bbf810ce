// What runs: one plan of cuDNN for the whole graph, or several in order, with tensors between them in the workspace.
#pragma once

#include "engines/cudnn/operation_graph.h"

namespace tilewright::cudnn {

// A part of the graph that one plan computes.
struct Segment {
  std::vector<ir::NodeId> nodes;
  std::shared_ptr<const Lowered> lowered;
  std::shared_ptr<const OperationGraph> operations;  // null where the plan came from a file
};

// A graph as it is given to cuDNN: what cuDNN has no operation for is decomposed. Tensor ids of the given graph hold.
struct Prepared {
  ir::Graph graph;
  std::vector<ir::NodeId> origin;      // by node: of the given graph
  std::vector<ir::NodeId> decomposed;  // by decompose_node, in order; as numbered at that time
};
Prepared prepare(const ir::Graph&);
// Replaces a node by its decomposition, all the way to what cuDNN has operations for. False: it has none.
bool decompose_node(Prepared&, ir::NodeId);

// The nodes as one segment; `reasons` where it cannot be, about nodes of the graph that is handed in.
Result<Segment> make_segment(const ir::Graph&, const std::vector<ir::NodeId>&, const Target&, std::vector<Reason>&);
std::vector<ir::NodeId> all_nodes(const ir::Graph&);
// By tensor: virtual ones that nodes in and outside of the list share, which therefore lie in memory.
std::vector<bool> crossing(const ir::Graph&, const std::vector<ir::NodeId>&);

// Few segments that together compute the graph, each of which some engine takes. Where a node is refused even alone, it
// is decomposed; `reasons`, with nodes of the given graph, where nothing helps.
struct Split {
  Prepared prepared;
  std::vector<Segment> segments;
  std::vector<Reason> reasons;
};
Split split(Prepared, const Target&);

class Kernels;

struct PlannedSegment {
  Segment segment;
  std::shared_ptr<Kernels> kernels;  // of its own: cuDNN wants a cache for dynamic shapes, and the caller gave none
  Descriptor plan;
  Config config;
  int64_t workspace_bytes = 0;  // of the plan
};
struct Program {
  Prepared prepared;
  std::vector<PlannedSegment> segments;
  std::vector<int64_t> intermediate;  // by tensor: offset in the workspace of those between segments; -1
  int64_t scratch = 0;                // where those end, and what each plan needs for itself starts
  int64_t workspace_bytes = 0;

  const ir::Graph& graph() const { return prepared.graph; }
};
// Plans each segment: with `config`, or its first configuration that makes a plan where that is null.
Result<std::shared_ptr<const Program>> make_program(Prepared, std::vector<Segment>, const Config* config, KernelCache*);
std::string segment_name(const ir::Graph&, const std::vector<ir::NodeId>&);  // "matmul+add+relu_fwd"

// The plans in cuDNN's own form, and back.
Result<std::vector<uint8_t>> to_bytes(const Program&);
Result<std::shared_ptr<const Program>> from_bytes(const ir::Graph&, const std::vector<uint8_t>&, const Target&);

std::unique_ptr<Executable> make_executable(std::shared_ptr<const Program>);

}  // namespace tilewright::cudnn
