// CUDA C++ text to machine code by NVRTC, with what was compiled before kept in memory and on disk. No GPU is needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace tilewright::cuda {

struct KernelHeader {
  const char *name, *text;  // what `#include "name"` stands for
};

struct KernelSource {
  std::string text;
  const KernelHeader* headers = nullptr;
  size_t header_count = 0;
};

// Machine code for one architecture, or PTX.
struct CompiledKernel {
  std::vector<uint8_t> image;
  std::string log;  // of the assembler: registers, spills
  int registers = 0;
  int64_t spill_bytes = 0, stack_bytes = 0, shared_bytes = 0;
};

// "sm_90a" gives machine code, "compute_75" PTX, which the driver of any newer GPU compiles when it loads it.
// NVRTC_COMPILATION_FAILED with the compiler's first errors.
Result<std::shared_ptr<const CompiledKernel>> compile(const KernelSource&, const std::string& arch);

// The architecture to compile for, of a compute capability of 10 * major + minor: 90 gives "sm_90a".
std::string native_arch(int capability);
// Does a GPU of that compute capability run what was compiled for an architecture? Machine code of "sm_80" runs on 8.0
// and 8.6, of "sm_90a" on 9.0 alone; PTX of "compute_75" on all from 7.5 on.
bool code_runs_on(const std::string& arch, int capability);

// TILEWRIGHT_KERNELS, else tilewright/kernels in the user's cache folder; empty: none. A damaged file is compiled anew;
// beyond 256 MiB the files that were not used for longest are deleted.
std::string kernel_folder();

struct CompilerCounts {
  int64_t compiled = 0, from_memory = 0, from_disk = 0;
};
CompilerCounts compiler_counts();
void forget_compiled();  // in memory, for tests

}  // namespace tilewright::cuda
