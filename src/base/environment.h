// Every environment variable that the library reads. They are for debugging; each has another way to be said.
#pragma once

#include <cstdlib>

namespace tilewright {

struct EnvironmentVariable {
  const char *name, *meaning;

  const char* value() const { return std::getenv(name); }  // null: not set
  bool is_one() const {
    const char* v = value();
    return v && v[0] == '1' && v[1] == 0;
  }
};

inline constexpr EnvironmentVariable kNumThreads = {"TILEWRIGHT_NUM_THREADS", "threads of the CPU engines"};
inline constexpr EnvironmentVariable kVerify = {"TILEWRIGHT_VERIFY",
                                                "1: every execute is compared with the exact reference"};
inline constexpr EnvironmentVariable kStrictPlans = {
    "TILEWRIGHT_STRICT_PLANS", "1: a saved plan that does not fit this library is an error, not planned again"};

inline constexpr EnvironmentVariable kOnednnPath = {
    "TILEWRIGHT_ONEDNN_PATH", "the oneDNN library (libdnnl.so.2) to load instead of the system's; off: none"};

inline constexpr EnvironmentVariable kCudnnPath = {
    "TILEWRIGHT_CUDNN_PATH", "the cuDNN 9 (libcudnn.so.9 or a folder that has it) to use and no other; off: none"};
inline constexpr EnvironmentVariable kNvrtcPath = {
    "TILEWRIGHT_NVRTC_PATH", "the NVRTC (libnvrtc.so.13 or a folder that has it) to use and no other; off: none"};

inline constexpr EnvironmentVariable kTuningDb = {
    "TILEWRIGHT_TUNING_DB", "the file of tuned plans instead of the one in the user's cache folder; off: none"};

inline constexpr EnvironmentVariable kDevice = {"TILEWRIGHT_DEVICE",
                                                "what --device of the shell tool is when it is not given: cpu, cuda:1"};

inline constexpr EnvironmentVariable kKernels = {
    "TILEWRIGHT_KERNELS",
    "the folder of compiled GPU kernels instead of the one in the user's cache folder; off: none"};

inline constexpr EnvironmentVariable kDump = {
    "TILEWRIGHT_DUMP", "a folder that is given the text, the compiler's log and the machine code of every GPU kernel"};

inline constexpr EnvironmentVariable kEnvironment[] = {kNumThreads, kVerify,   kStrictPlans, kOnednnPath, kCudnnPath,
                                                       kNvrtcPath,  kTuningDb, kDevice,      kKernels,    kDump};

// What others set, and the search for NVIDIA's libraries goes by.
inline constexpr EnvironmentVariable kPlacesEnvironment[] = {
    {"CUDNN_PATH", "a folder of cuDNN to try before others"},
    {"PYTHONPATH", "folders of Python packages"},
    {"VIRTUAL_ENV", "the Python environment whose packages count"},
    {"CONDA_PREFIX", "the conda environment whose packages and libraries count"},
    {"CUDA_HOME", "a CUDA toolkit to try before others"},
    {"CUDA_PATH", "the same"},
    {"LD_LIBRARY_PATH", "folders that the system's loader searches"},
};

}  // namespace tilewright
