// Which nodes share a region: the merging pass of the region builder.
#pragma once

#include <array>
#include <vector>

#include "fuse/regions.h"

namespace tilewright::fuse {

struct Cluster {
  Anchor anchor = Anchor::Rows;
  std::vector<ir::NodeId> nodes;  // in topological order
  ir::NodeId heavy = -1;
  std::array<std::vector<ir::NodeId>, 2> prologue;  // Contraction, Pooling: nodes that make the operands
  Dims domain;                                      // Rows
  DimMask inner = 0;                                // a reduction of other dims is a side reduction

  bool in_prologue(ir::NodeId id) const;
};

// The dims of a region's domain of `rank` dims that a reduction folds; none for another node.
DimMask reduced_dims(const ir::Graph&, ir::NodeId, size_t rank);

// The clusters, in an order in which they can run.
std::vector<Cluster> cluster_nodes(const FusedGraph&, const FuseOptions&);
// Decides which virtual tensors are in memory: those that cross from one cluster to another.
void materialise(FusedGraph&, const std::vector<Cluster>&);

}  // namespace tilewright::fuse
