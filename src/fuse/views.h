// Slices, transposes and view-only reshapes as strides and offsets.
#pragma once

#include "fuse/regions.h"

namespace tilewright::fuse {

// Whether a node only looks at its input's memory in another way.
bool is_view(const ir::Node&);

// Logical reshapes become views of row-major memory, concatenations copies into parts of their result: a Place of such
// a part, written by a node, has the result as its root.
void lower_movement(FusedGraph&);

// Makes each view of something that is, or can be, in memory a Place with strides; the node then does no work. What
// must write a real tensor becomes a copy: an IDENTITY node that reads through the view.
void fold_views(FusedGraph&);

}  // namespace tilewright::fuse
