// What was lowered, read from a RecordingCudnn, for people.
#pragma once

#include <string>

#include "engines/cudnn/lowering.h"
#include "support/recording_cudnn.h"

namespace tilewright::testing {

// One line per operation, `y = MODE a b`: tensors of the graph by name, with dims where they are seen in another way;
// numbers as such; virtual ones %0, %1 ... with a type that is not FLOAT, dims, and strides that are not row-major;
// "ws" for the workspace.
std::string operations_text(const cudnn::Lowered&, const ir::Graph&);

}  // namespace tilewright::testing
