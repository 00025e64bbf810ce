// The picture of a graph.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "plan/engine.h"

namespace tilewright::tool {

// An SVG document. `plan` names whose regions these are.
std::string svg_of(const ir::Graph& graph, const std::vector<RegionInfo>& regions, const std::string& plan);

}  // namespace tilewright::tool
