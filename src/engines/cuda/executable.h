// A compiled plan on a GPU, or in the hands of who made it where its GPU is not.
#pragma once

#include "engines/cuda/compiled_plan.h"
#include "engines/cuda/kernel_store.h"

namespace tilewright::cuda {

// For a target without a device it runs nothing, and gives its bytes. `store` (null: none) keeps the loaded kernels.
Result<std::unique_ptr<Executable>> make_executable(const ir::Graph&, CompiledPlan, const Target&, KernelStore* store);

}  // namespace tilewright::cuda
