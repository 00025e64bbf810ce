#include "plan/fused_plan.h"

#include <set>

namespace tilewright {

std::vector<Hazard> hazards(const fuse::FusedGraph& fused) {
  std::vector<Hazard> list;
  for (size_t first = 0; first < fused.regions.size(); ++first)
    for (ir::TensorId w : fused.regions[first].writes) {
      if (fused.graph.tensor(w).role != ir::Role::Output) continue;
      std::set<ir::TensorId> read;
      for (size_t later = first + 1; later < fused.regions.size(); ++later)
        for (ir::TensorId r : fused.regions[later].reads)
          if (fused.graph.tensor(r).role == ir::Role::Input && read.insert(r).second) list.push_back({w, r});
    }
  return list;
}

std::vector<RegionInfo> region_infos(const fuse::FusedGraph& fused) {
  std::vector<RegionInfo> list;
  for (const fuse::Region& r : fused.regions) {
    std::set<ir::NodeId> nodes;
    for (ir::NodeId n : r.nodes)
      if (fused.origin[size_t(n)] >= 0) nodes.insert(fused.origin[size_t(n)]);
    list.push_back({r.name, {nodes.begin(), nodes.end()}});
  }
  return list;
}

}  // namespace tilewright
