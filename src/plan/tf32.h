// Plans whose tensor cores round FLOAT operands to TF32 say so in a note, and are judged by a graph that allows it.
#pragma once

#include "ir/graph.h"

namespace tilewright {

extern const char* const kTf32Note;

// The same graph, where each FLOAT operand of a product may or may not be rounded before it is multiplied: by way of a
// virtual HALF, which keeps as many bits as TF32. Tensors keep their ids; the new ones come after them.
ir::Graph with_tf32(const ir::Graph&);

}  // namespace tilewright
