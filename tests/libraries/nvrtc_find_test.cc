// How NVRTC is found, on made-up machines with stand-ins for it. Each search runs in a process of its own.
#include "device/cuda/nvrtc.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "made_up_machine.h"

namespace tilewright::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kSite = "home/.local/lib/python3.12/site-packages/nvidia/";
constexpr const char* kToolkit = "usr/local/cuda/lib64";

class NvrtcFind : public testing::Test {
 protected:
  std::string find(int driver = 0) const {
    return in_own_process([&] {
      NvrtcFound found;
      find_nvrtc(machine.surroundings(), driver, found);
      const NvrtcLookup& l = found.lookup;
      std::string text = l.nvrtc ? fmt::format("found {} {}\n", l.path, l.version) : l.error_text() + "\n";
      for (const std::string& place : l.tried) text += fmt::format("tried: {}\n", place);
      return machine.without_root(text);
    });
  }
  void put(const std::string& version, const std::string& folder) const {
    machine.put("nvrtc-" + version, folder);
    machine.file(folder + "/libnvrtc-builtins.so." + (version == "13" ? "13.0" : "12.8"));
  }

  MadeUpMachine machine;
};

TEST_F(NvrtcFind, InPackagesOfPipAndInToolkits) {
  put("12", kToolkit);
  EXPECT_THAT(find(), StartsWith("found usr/local/cuda/lib64/libnvrtc.so.12 12.8\n"));
  put("12", std::string(kSite) + "cuda_nvrtc/lib");
  EXPECT_THAT(find(), StartsWith(fmt::format("found {}cuda_nvrtc/lib/libnvrtc.so.12 12.8\n", kSite)));
  put("13", std::string(kSite) + "cu13/lib");
  EXPECT_THAT(find(), StartsWith(fmt::format("found {}cu13/lib/libnvrtc.so.13 13.0\n", kSite)));
  EXPECT_THAT(find(13000), StartsWith(fmt::format("found {}cu13/lib/libnvrtc.so.13 13.0\n", kSite)));
}

TEST_F(NvrtcFind, ADriverTakesNoCodeOfALaterCuda) {
  put("13", kToolkit);
  EXPECT_THAT(
      find(12080),
      AllOf(StartsWith("no usable NVRTC; the nearest: usr/local/cuda/lib64: has libnvrtc.so.13, but libnvrtc.so.12 "
                       "is needed\nto mend it: pip install nvidia-cuda-nvrtc-cu12\n")));
  put("12", kToolkit);
  EXPECT_THAT(find(12080), StartsWith("found usr/local/cuda/lib64/libnvrtc.so.12 12.8\n"));
  EXPECT_THAT(find(13000), StartsWith("found usr/local/cuda/lib64/libnvrtc.so.13 13.0\n"));
}

TEST_F(NvrtcFind, WithoutItsBuiltinsItIsIncomplete) {
  machine.put("nvrtc-13", kToolkit);
  EXPECT_THAT(
      find(),
      StartsWith("no usable NVRTC; the nearest: usr/local/cuda/lib64: incomplete: it lacks "
                 "libnvrtc-builtins.so.13.0\nto mend it: pip install --force-reinstall nvidia-cuda-nvrtc (where "));
}

TEST_F(NvrtcFind, AGivenPathIsTheOnlyPlaceAndOffIsNone) {
  put("13", kToolkit);
  put("12", "mine");
  machine.variables["TILEWRIGHT_NVRTC_PATH"] = machine.path("mine/libnvrtc.so.12");
  EXPECT_THAT(find(), StartsWith("found mine/libnvrtc.so.12 12.8\n"));
  machine.variables["TILEWRIGHT_NVRTC_PATH"] = machine.path("absent");
  EXPECT_THAT(find(),
              StartsWith("TILEWRIGHT_NVRTC_PATH leads to no usable NVRTC: absent: not there\n"
                         "to mend it: unset TILEWRIGHT_NVRTC_PATH, or let it name libnvrtc.so.13 or its folder\n"));
  machine.variables["TILEWRIGHT_NVRTC_PATH"] = "off";
  EXPECT_EQ(find(), "NVRTC is switched off by TILEWRIGHT_NVRTC_PATH=off\nto mend it: unset TILEWRIGHT_NVRTC_PATH\n");
}

}  // namespace
}  // namespace tilewright::cuda
