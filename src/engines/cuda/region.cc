#include "engines/cuda/region.h"

#include "engines/cuda/attention.h"
#include "engines/cuda/contraction.h"
#include "engines/cuda/node.h"
#include "engines/cuda/plain_rows.h"
#include "engines/cuda/pooling.h"
#include "engines/cuda/rows.h"

namespace tilewright::cuda {

using fuse::Anchor;

int64_t region_scratch_bytes(const fuse::FusedGraph& fused, const fuse::Region& region, const KernelOptions& options) {
  switch (region.anchor) {
    case Anchor::Attention: return attention_scratch_bytes(fused, region);
    case Anchor::Pooling: return pooling_scratch_bytes(fused, region);
    case Anchor::Contraction: return contraction_scratch_bytes(fused, region, options);
    case Anchor::Rows:
      return wants_plain(region) ? plain_rows_scratch_bytes(region) : rows_scratch_bytes(region, options);
    default: return 0;
  }
}

namespace {

Result<std::vector<Launch>> launches_of(const fuse::FusedGraph& fused, const fuse::Region& region,
                                        const KernelOptions& options) {
  switch (region.anchor) {
    case Anchor::Attention: return attention_launches(fused, region, options, region.scratch_offset);
    case Anchor::Node: return node_launches(fused, region);
    case Anchor::Pooling: return pooling_launches(fused, region);
    case Anchor::Contraction: return contraction_launches(fused, region, options);
    case Anchor::Rows:
      if (wants_plain(region)) return plain_rows_launches(fused, region);
      return rows_launches(fused, region, options, region.scratch_offset);
  }
  return not_supported("no kernel of ours computes it");
}

}  // namespace

Result<std::vector<Launch>> region_launches(const fuse::FusedGraph& fused, const fuse::Region& region,
                                            const KernelOptions& options) {
  TW_ASSIGN_OR_RETURN(std::vector<Launch> launches, launches_of(fused, region, options));
  for (const Launch& l : launches)
    if (l.arguments.size() > kMostArguments)
      return not_supported("a kernel of {} tensors is more than one launch takes",
                           region.reads.size() + region.writes.size());
  return launches;
}

int region_shapes(const fuse::FusedGraph& fused, const fuse::Region& region, const KernelOptions& options) {
  return region.anchor == Anchor::Rows && !wants_plain(region) ? rows_shapes(fused, region, options) : 1;
}

}  // namespace tilewright::cuda
