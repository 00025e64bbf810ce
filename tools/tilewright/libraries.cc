#include "libraries.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "engines/cudnn/loader.h"
#include "engines/onednn/loader.h"

namespace tilewright::tool {
namespace {

// The driver's own number, as "580.82.07"; the CUDA version says only what it can do.
std::string driver_release() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line, word;
  std::getline(file, line);
  for (std::istringstream words(line); words >> word;)
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) return word;
  return {};
}

LibraryReport driver_report() {
  const cuda::DriverLookup& l = cuda::driver_lookup();
  LibraryReport r{"CUDA driver", "runs on NVIDIA GPUs", l.driver != nullptr, l.path, l.version, l.problem, "", l.tried};
  if (const std::string release = driver_release(); r.found && !release.empty())
    r.version = fmt::format("{} (release {})", r.version, release);
  if (!r.found) r.mend = cuda::kDriverInstall;
  return r;
}

LibraryReport nvrtc_report() {
  const cuda::NvrtcLookup& l = cuda::nvrtc_lookup();
  return {"NVRTC", "compiles CUDA kernels", l.nvrtc != nullptr, l.path, l.version, l.problem, l.mend, l.tried};
}

LibraryReport cudnn_report() {
  const cudnn::Lookup& l = cudnn::lookup();
  return {"cuDNN",
          "NVIDIA's kernels",
          l.calls != nullptr,
          l.path,
          cudnn::version_text(l.version),
          l.calls ? l.warning : l.problem,
          l.mend,
          l.tried};
}

LibraryReport onednn_report() {
  const onednn::Lookup& l = onednn::lookup();
  const bool found = l.problem.empty();
  return {"oneDNN", "kernels for CPUs", found, l.path, l.version, l.problem, found ? "" : onednn::kInstall, l.tried};
}

}  // namespace

std::vector<LibraryReport> library_reports() {
  return {onednn_report(), driver_report(), nvrtc_report(), cudnn_report()};
}

}  // namespace tilewright::tool
