// What the plan list asks of a graph that was cut into regions, for every engine that runs regions one after another.
#pragma once

#include "fuse/regions.h"
#include "plan/engine.h"

namespace tilewright {

// Which outputs are written by a region before a later one reads which inputs.
std::vector<Hazard> hazards(const fuse::FusedGraph&);
// The regions by nodes of the graph that was given.
std::vector<RegionInfo> region_infos(const fuse::FusedGraph&);

}  // namespace tilewright
