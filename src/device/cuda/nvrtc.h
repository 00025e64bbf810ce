// NVRTC, the compiler of CUDA kernels, as found at run time. The declarations are our own; a test compares them with
// the toolkit's where that is installed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/library_places.h"

struct _nvrtcProgram;

namespace tilewright::cuda {

using NvrtcResult = int;  // 0: success
using NvrtcProgram = _nvrtcProgram*;

struct Nvrtc {
#define TW_NVRTC(member, symbol, result, arguments) result(*member) arguments = nullptr;
#define TW_NVRTC_LATER TW_NVRTC
#include "device/cuda/nvrtc.def"
#undef TW_NVRTC_LATER
#undef TW_NVRTC
};

struct NvrtcLookup {
  const Nvrtc* nvrtc = nullptr;    // null: `problem` says why
  std::string path, version;       // "13.0"
  std::string problem, mend;       // one line; the one command that would mend it
  std::vector<std::string> tried;  // every place looked at, and what was there

  std::string error_text() const;  // two lines: the problem; how to mend it
};
const NvrtcLookup& nvrtc_lookup();  // searches at the first call
const Nvrtc& nvrtc();               // only where nvrtc_lookup().nvrtc is not null
extern const char* const kNvrtcInstall;

// The CUDA version that this machine's driver is of, as 13000; 0: there is no usable driver.
int driver_version();

// The search as a function of what surrounds the process; `driver` is as driver_version() has it.
struct NvrtcFound {
  NvrtcFound() = default;
  NvrtcFound(const NvrtcFound&) = delete;  // `lookup` points into it
  NvrtcLookup lookup;
  Nvrtc nvrtc;
};
void find_nvrtc(const Surroundings&, int driver, NvrtcFound&);

}  // namespace tilewright::cuda
