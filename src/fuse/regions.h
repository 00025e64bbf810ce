// The region builder: cuts a graph into regions that one launch computes each. Norms and the like are decomposed first;
// views become strides; then pointwise nodes and reductions join the region of what they read or of what reads them,
// as long as the regions stay acyclic and one loop nest can compute them. Every valid graph is cut: what has no better
// anchor is a region of its own. Nothing here knows an engine; each pass leaves a note of what it decided.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "fuse/program.h"
#include "ir/graph.h"

namespace tilewright::fuse {

enum class Anchor {
  Rows,         // pointwise nodes and reductions over one domain; those read again all fold the same dims. None: a map
  Contraction,  // matmul or a convolution, with programs on its operands and on its result
  Pooling,      // resample or its gradient, the same way
  Attention,    // sdpa, sdpa_backward
  Node,         // any other op, computed as it stands
};
const char* to_string(Anchor);

// A reduction that no other node of the region reads: of a value of a contraction's epilogue, or in a Rows region over
// other dims than the inner ones.
struct SideReduction {
  int value = -1;  // instruction of Region::program
  ReductionMode_t mode = ReductionMode_t::NOT_SET;
  DimMask reduced = 0;  // dims of the domain that are folded away
  int64_t count = 1;    // elements per result
  Access out;           // over the domain; stride 0 along the reduced dims
};

struct Region {
  Anchor anchor = Anchor::Rows;
  std::vector<ir::NodeId> nodes;  // of FusedGraph::graph, in topological order
  ir::NodeId heavy = -1;          // the contraction, the pooling, the attention or the single node
  // Rows: the whole region. Contraction, Pooling: the epilogue, over the dims of the result, `In` being its value.
  PwProgram program;
  // Contraction: over the dims of A (X, DY) and B (W, X). Pooling: of the first inputs, X or DY and X; without code
  // where there is none. Each has a result.
  std::array<PwProgram, 2> operand;
  std::vector<SideReduction> side;
  std::vector<ir::TensorId> reads, writes;        // roots (see Place) that the launch reads and writes
  int64_t scratch_bytes = 0, scratch_offset = 0;  // of the workspace, while the region runs
  std::string name;                               // "contraction conv_fprop+add+relu_fwd"
};

// Where a tensor's values are in memory, if they are: in the root tensor's memory, from `offset` elements on.
struct Place {
  ir::TensorId root = ir::kNone;  // itself, or the tensor that it is a view of; kNone: never in memory
  int64_t offset = 0;             // elements
  int64_t workspace = -1;         // byte offset of a materialised virtual tensor; -1: the caller's memory
};

struct FuseOptions {
  bool fuse = true;  // false: every node is its own region
};

struct FusedGraph {
  // The decomposed graph. Virtual tensors that are views have the strides of the view; others keep theirs.
  ir::Graph graph;
  std::vector<ir::NodeId> origin;  // per node: of the graph that was given
  std::vector<Region> regions;     // in launch order
  std::vector<Place> place;        // per tensor
  int64_t workspace_bytes = 0;
  std::vector<std::string> notes;  // which virtual tensors are in memory, and why

  std::string text() const;  // the regions with their programs
};

FusedGraph fuse(const ir::Graph&, const FuseOptions& options = {});
// Gives materialised tensors and the regions' scratch (as set by the engine) their places, by lifetime.
void place_intermediates(FusedGraph&);

// The role of each dim of a contraction's result: b (batch), m (from A) or n (from B).
std::string contraction_dims(const ir::Graph&, const ir::Node&);
bool is_contraction(const ir::Node&);
bool is_pooling(const ir::Node&);

}  // namespace tilewright::fuse
