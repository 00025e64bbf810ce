// Slices, transposes and view-only reshapes as strides and offsets.
#pragma once

#include "fuse/regions.h"

namespace tilewright::fuse {

// Whether a node only looks at its input's memory in another way.
bool is_view(const ir::Node&);

// Logical reshapes become views of row-major memory, concatenations copies into parts of their result: a Place of such
// a part, written by a node, has the result as its root.
void lower_movement(FusedGraph&);

// Makes views strides; their nodes then do no work. A view of something in memory is a Place. Where a tensor that is
// viewed is not in memory, it need not be: what makes it is computed anew from operands seen through the view, or the
// pointwise nodes behind the view are computed as it lies before, and their results stored through the view turned
// around. Else it is put in memory. What must write a real tensor is an IDENTITY node. Without `rewrite`, nodes stay as
// they are and every tensor that is viewed is in memory.
void fold_views(FusedGraph&, bool rewrite);

// What passes over the nodes use: a copying node, a new tensor, whether loops over strides can read and write one.
ir::Node identity(const ir::Node& of, ir::TensorId from, ir::TensorId to);
ir::TensorId add_virtual(FusedGraph&, ir::Tensor like, const char* suffix, Place);
bool fits_loops(const ir::Tensor&);

}  // namespace tilewright::fuse
