// How cuDNN is found, on made-up machines with stand-ins for its libraries. Each search runs in a process of its own.
#include "engines/cudnn/find.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/shared_library.h"
#include "made_up_machine.h"
#include "tilewright/device.h"

namespace tilewright::cudnn {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kWheel = "home/.local/lib/python3.12/site-packages/nvidia/cudnn/lib";
constexpr const char* kToolkit = "usr/local/cuda/lib64";

std::string describe(const Found& found) {
  const Lookup& l = found.lookup;
  std::string text;
  if (l.calls)
    text += fmt::format("found {} {}\npopulate: {}\n", l.path, version_text(l.version),
                        found.calls.backend_populate_cuda_graph ? "yes" : "no");
  else text += fmt::format("error: {}\n", l.error_text());
  if (!l.warning.empty()) text += fmt::format("warning: {}\nto mend it: {}\n", l.warning, l.mend);
  for (const std::string& place : l.tried) text += fmt::format("tried: {}\n", place);
  for (const char* stem : {"libcudnn", "libnvrtc"})
    for (const std::string& path : loaded_libraries(stem)) text += fmt::format("loaded: {}\n", path);
  return text;
}

class CudnnFind : public testing::Test {
 protected:
  // What the search finds, one fact a line; paths without the machine's root.
  std::string find(const std::string& given = "", int driver = 0) const {
    return in_own_process([&] {
      if (!loaded_before.empty()) dlopen(loaded_before.c_str(), RTLD_NOW);
      Found found;
      cudnn::find(machine.surroundings(), given, driver, found);
      return machine.without_root(describe(found));
    });
  }
  MadeUpMachine machine;
  std::string loaded_before;
};

// With no other Python or toolkit than HOME's, so with what the loader finds. Printed, for the test that starts this
// one with variables of its own.
TEST(CudnnFindHere, ALibraryOrAReason) {
  const std::string text = in_own_process([] {
    Surroundings s = Surroundings::of_this_process();
    s.root = "/absent";
    s.variable = [](const char* name) { return std::string(name) == "HOME" ? std::getenv("HOME") : ""; };
    Found found;
    find(s, "", 0, found);
    return describe(found);
  });
  EXPECT_THAT(text, AllOf(AnyOf(StartsWith("found "), StartsWith("error: ")), HasSubstr("\ntried: ")));
  const std::string folder = text.substr(6, text.find("/libcudnn.so.9") - 6);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("loaded: ", 0) == 0 && line.find("/libcudnn") != std::string::npos) {
      EXPECT_EQ(line.substr(8, line.rfind('/') - 8), folder) << line;
    }
  fputs(text.c_str(), stdout);
}

std::string found_in(const std::string& folder) { return fmt::format("found {}/libcudnn.so.9 9.19.0\n", folder); }

TEST_F(CudnnFind, EveryLibraryComesFromTheFolderOfTheFirst) {
  machine.put("cudnn-9.19.0", kWheel);
  machine.put("cudnn-9.2.1", kToolkit);
  std::string loaded;
  for (const char* part :
       {"_graph", "_engines_runtime_compiled", "_ops", "_cnn", "_adv", "_heuristic", "_engines_precompiled", ""})
    loaded += fmt::format("loaded: {}/libcudnn{}.so.9\n", kWheel, part);
  EXPECT_EQ(find(),
            found_in(kWheel) + "populate: yes\n" +
                "warning: libnvrtc.so.13, libcublasLt.so.13 of CUDA 13 not found: cuDNN's engines that need it "
                "will refuse\nto mend it: pip install nvidia-cuda-nvrtc nvidia-cublas\n" +
                fmt::format("tried: {} (pip package of the user's Python): libcudnn.so.9, version 9.19.0\n", kWheel) +
                loaded);
}

TEST_F(CudnnFind, WithNoneThePlacesAndTheCommandAreTold) {
  machine.folder(kWheel);
  machine.folder(kToolkit);
  EXPECT_THAT(find(),
              AllOf(StartsWith("error: cuDNN 9 is not on this machine ("),
                    HasSubstr(" places looked at; `tilewright doctor` lists them)\n"
                              "to mend it: pip install nvidia-cudnn-cu13 (where the driver is of CUDA 12: "
                              "nvidia-cudnn-cu12)\n"),
                    HasSubstr(fmt::format("tried: {} (pip package of the user's Python): no libcudnn.so.9\n", kWheel)),
                    HasSubstr(fmt::format("tried: {} (toolkit): no libcudnn.so.9\n", kToolkit)),
                    HasSubstr("tried: usr/local/cuda/lib (toolkit): not there\n")));
  EXPECT_THAT(find("", 12080), HasSubstr("to mend it: pip install nvidia-cudnn-cu12\n"));
  EXPECT_THAT(find("", 13000), HasSubstr("to mend it: pip install nvidia-cudnn-cu13\n"));
}

TEST_F(CudnnFind, AFolderThatLacksALibraryIsPassedOver) {
  machine.put("cudnn-9.19.0", kWheel);
  machine.put("cudnn-9.19.0", kToolkit);
  machine.remove(std::string(kWheel) + "/libcudnn_ops.so.9");
  machine.remove(std::string(kWheel) + "/libcudnn_heuristic.so.9");
  EXPECT_THAT(find(), AllOf(StartsWith(found_in(kToolkit)),
                            HasSubstr("Python): incomplete: it lacks libcudnn_ops.so.9, libcudnn_heuristic.so.9\n"),
                            Not(HasSubstr(fmt::format("loaded: {}", kWheel)))));
}

TEST_F(CudnnFind, TheSmallPackageAndLaterLibraries) {
  const std::string jit = "home/.local/lib/python3.12/site-packages/nvidia/cudnn_jit/lib";
  for (const char* name : {"libcudnn.so.9", "libcudnn_graph.so.9", "libcudnn_engines_runtime_compiled.so.9"})
    machine.put("cudnn-9.19.0", jit, name);
  machine.put("cudnn-9.2.1", "cuda-12.5", "libcudnn_heuristic.so.9");
  EXPECT_THAT(find(), StartsWith(found_in(jit)));
  machine.put("cudnn-9.19.0", kToolkit);
  machine.put("nvrtc-13", kToolkit);
  machine.link(std::string(kToolkit) + "/libcudnn_more.so.9", "libnvrtc.so.13");
  machine.link(std::string(kToolkit) + "/libcudnn_other.so.9", machine.path("cuda-12.5/libcudnn_heuristic.so.9"));
  machine.variables["CUDNN_PATH"] = machine.path(kToolkit);
  EXPECT_THAT(find(),
              AllOf(StartsWith(found_in(kToolkit)), HasSubstr(fmt::format("loaded: {}/libcudnn_more.so.9\n", kToolkit)),
                    Not(HasSubstr("libcudnn_other.so.9"))));
}

TEST_F(CudnnFind, AVersionThatNeedsTheDriverSaysSo) {
  if (void* driver = dlopen("libcuda.so.1", RTLD_NOW)) {
    dlclose(driver);
    GTEST_SKIP() << "this machine has the CUDA driver";
  }
  machine.put("cudnn-9.19.0", kWheel);
  machine.put("cudnn-9.19.0-driver", kWheel);
  EXPECT_THAT(find(),
              AllOf(StartsWith(fmt::format("error: no usable cuDNN 9; the nearest: {}: this version needs the CUDA "
                                           "driver for libcudnn_engines_runtime_compiled.so.9 (libcuda.so.1: ",
                                           kWheel)),
                    HasSubstr("\nto mend it: apt-get install nvidia-driver")));
}

TEST_F(CudnnFind, AnotherMajorVersionIsReportedAndPassedOver) {
  machine.file(std::string(kWheel) + "/libcudnn.so.8");
  machine.file("usr/local/cuda/lib64/libcudnn.so.10.1.0");
  const std::string text = find();
  EXPECT_THAT(text, StartsWith(fmt::format("error: no usable cuDNN 9; the nearest: {}: has libcudnn.so.8, but "
                                           "libcudnn.so.9 is needed\nto mend it: pip install nvidia-cudnn-cu13",
                                           kWheel)));
  EXPECT_THAT(text, HasSubstr("(toolkit): has libcudnn.so.10.1.0, but libcudnn.so.9 is needed\n"));
  machine.put("cudnn-9.19.0", kToolkit);
  EXPECT_THAT(find(), StartsWith(found_in(kToolkit)));
}

TEST_F(CudnnFind, AVersionThatTheNameHidesIsReportedAndWhatCannotBeUnloadedKeepsOthersOut) {
  machine.put("cudnn-10.0.0", kWheel);
  machine.put("cudnn-9.19.0", kToolkit);
  EXPECT_THAT(
      find(),
      AllOf(StartsWith(fmt::format("error: no usable cuDNN 9; the nearest: {}: it says that it is version "
                                   "10.0.0; 9.x is needed\n",
                                   kWheel)),
            HasSubstr(fmt::format("tried: {} (toolkit): not opened: this process has cuDNN 9 loaded from {}, and "
                                  "two copies would mix\n",
                                  kToolkit, kWheel)),
            HasSubstr(fmt::format("loaded: {}/libcudnn_graph.so.9\n", kWheel)),
            Not(HasSubstr(fmt::format("loaded: {}", kToolkit)))));
}

TEST_F(CudnnFind, LibrariesOfDifferentVersionsAreTakenForMixed) {
  machine.put("cudnn-9.19.0", kWheel);
  machine.put("cudnn-9.2.1", kWheel, "libcudnn_ops.so.9");
  machine.put("cudnn-9.19.0", kToolkit);
  EXPECT_THAT(find(), AllOf(StartsWith(found_in(kToolkit)),
                            HasSubstr("mixed versions: libcudnn_ops.so.9 is not of version 9.19.0, as the others\n"),
                            Not(HasSubstr(fmt::format("loaded: {}", kWheel)))));
}

TEST_F(CudnnFind, ALibraryThatNeedsAnotherVersionsFunctionsIsTakenForMixed) {
  machine.put("cudnn-9.19.0", kWheel);
  machine.put("cudnn-9.2.1", kWheel, "libcudnn_heuristic.so.9");
  machine.put("cudnn-9.19.0", kToolkit);
  EXPECT_THAT(find(), AllOf(StartsWith(found_in(kToolkit)),
                            HasSubstr("mixed versions: libcudnn_heuristic.so.9 does not fit those before it ("),
                            HasSubstr("undefined symbol: "), Not(HasSubstr(fmt::format("loaded: {}", kWheel)))));
}

TEST_F(CudnnFind, NamesWithVersionsTellThatTheyAreMixedBeforeAnythingIsOpened) {
  machine.put("cudnn-9.19.0", "set");
  for (const auto& entry : std::filesystem::directory_iterator(machine.path("set"))) {
    const std::string name = entry.path().filename().string();
    const std::string full = name + (name == "libcudnn_adv.so.9" ? ".2.1" : ".19.0");
    std::filesystem::rename(machine.path("set/" + name), machine.folder(kToolkit) + "/" + full);
    machine.link(fmt::format("{}/{}", kToolkit, name), full);
  }
  EXPECT_THAT(find(),
              HasSubstr(": mixed versions: 9.19.0 (libcudnn_graph.so.9, libcudnn_engines_runtime_compiled.so.9, "
                        "libcudnn_ops.so.9, libcudnn_cnn.so.9, libcudnn_heuristic.so.9, "
                        "libcudnn_engines_precompiled.so.9, libcudnn.so.9) 9.2.1 (libcudnn_adv.so.9)\n"));
}

TEST_F(CudnnFind, ADamagedLibraryIsReportedBeforeAnythingIsOpened) {
  machine.put("cudnn-9.19.0", kToolkit);
  for (const uintmax_t bytes : {0, 30, 5000}) {
    machine.put("cudnn-9.19.0", kWheel);
    std::filesystem::resize_file(machine.path(std::string(kWheel) + "/libcudnn_cnn.so.9"), bytes);
    EXPECT_THAT(find(), AllOf(StartsWith(found_in(kToolkit)),
                              HasSubstr("damaged, cut short or no library: libcudnn_cnn.so.9\n"),
                              Not(HasSubstr(fmt::format("loaded: {}", kWheel)))));
  }
  machine.file(std::string(kWheel) + "/libcudnn_cnn.so.9", std::string(5000, 'x'));
  EXPECT_THAT(find(), HasSubstr("damaged, cut short or no library: libcudnn_cnn.so.9\n"));
}

TEST_F(CudnnFind, AGivenPathIsTheOnlyPlace) {
  machine.put("cudnn-9.19.0", kWheel);
  machine.put("cudnn-9.2.1", "mine/lib");
  for (const char* given : {"mine", "mine/lib", "mine/lib/libcudnn.so.9"}) {
    EXPECT_THAT(find(machine.path(given)), StartsWith("found mine/lib/libcudnn.so.9 9.2.1\npopulate: no\n")) << given;
    machine.variables["TILEWRIGHT_CUDNN_PATH"] = machine.path(given);
    EXPECT_THAT(find(), StartsWith("found mine/lib/libcudnn.so.9 9.2.1\n")) << given;
    machine.variables.erase("TILEWRIGHT_CUDNN_PATH");
    machine.variables["CUDNN_PATH"] = machine.path(given);
    EXPECT_THAT(find(), StartsWith("found mine/lib/libcudnn.so.9 9.2.1\n")) << given;
    machine.variables.erase("CUDNN_PATH");
  }
  EXPECT_THAT(find(machine.path("absent")),
              StartsWith("error: the path that the program gives leads to no usable cuDNN 9: absent: not there\n"
                         "to mend it: give libcudnn.so.9 or its folder\n"));
  machine.variables["TILEWRIGHT_CUDNN_PATH"] = machine.path("mine");
  machine.remove("mine/lib/libcudnn_graph.so.9");
  EXPECT_EQ(find(),
            "error: TILEWRIGHT_CUDNN_PATH leads to no usable cuDNN 9: mine/lib: incomplete: it lacks "
            "libcudnn_graph.so.9\n"
            "to mend it: unset TILEWRIGHT_CUDNN_PATH, or let it name another copy\n"
            "tried: mine (TILEWRIGHT_CUDNN_PATH): no libcudnn.so.9\n"
            "tried: mine/lib (TILEWRIGHT_CUDNN_PATH): incomplete: it lacks libcudnn_graph.so.9\n"
            "tried: mine/lib64 (TILEWRIGHT_CUDNN_PATH): not there\n");
  // The field's own variable is a hint.
  machine.variables = {{"HOME", machine.path("home")}, {"CUDNN_PATH", machine.path("mine")}};
  EXPECT_THAT(find(), StartsWith(found_in(kWheel)));
}

TEST_F(CudnnFind, ItCanBeSwitchedOff) {
  machine.put("cudnn-9.19.0", kWheel);
  machine.variables["TILEWRIGHT_CUDNN_PATH"] = "off";
  EXPECT_EQ(find(),
            "error: cuDNN 9 is switched off by TILEWRIGHT_CUDNN_PATH=off\n"
            "to mend it: unset TILEWRIGHT_CUDNN_PATH\n");
}

TEST_F(CudnnFind, ACopyThatTheProcessHasIsTheOneToUse) {
  machine.put("cudnn-9.2.1", kWheel);
  loaded_before = machine.put("cudnn-9.19.0", "torch/lib") + "/libcudnn.so.9";
  EXPECT_THAT(find(), AllOf(StartsWith(found_in("torch/lib")),
                            HasSubstr("torch/lib (loaded in this process already): libcudnn.so.9, version 9.19.0\n"),
                            Not(HasSubstr(fmt::format("loaded: {}", kWheel)))));
  // A copy elsewhere is not mixed with it, whoever asks for it.
  EXPECT_THAT(
      find(machine.path(kWheel)),
      StartsWith(fmt::format("error: the path that the program gives leads to no usable cuDNN 9: {}: not opened: "
                             "this process has cuDNN 9 loaded from torch/lib, and two copies would mix\n",
                             kWheel)));
  machine.remove("torch/lib/libcudnn_adv.so.9");
  EXPECT_THAT(find(), AllOf(StartsWith("error: no usable cuDNN 9; the nearest: torch/lib: incomplete: it lacks "
                                       "libcudnn_adv.so.9\n"),
                            HasSubstr("not opened: this process has cuDNN 9 loaded from torch/lib")));
}

TEST_F(CudnnFind, AnOldCudnnInTheProcessDoesNotMatter) {
  machine.put("cudnn-9.19.0", kWheel);
  machine.put("nvrtc-12", "old");
  machine.link("old/libcudnn_ops_infer.so.8", "libnvrtc.so.12");
  loaded_before = machine.path("old/libcudnn_ops_infer.so.8");
  EXPECT_THAT(find(), AllOf(StartsWith(found_in(kWheel)), HasSubstr("loaded: old/libcudnn_ops_infer.so.8\n")));
}

TEST_F(CudnnFind, ALibraryOfALaterCudaThanTheDriversIsReported) {
  machine.put("cudnn-9.19.0", kWheel);
  EXPECT_THAT(find("", 12080),
              StartsWith(fmt::format("error: no usable cuDNN 9; the nearest: {}: it is made for CUDA 13, "
                                     "and the driver of this machine is of CUDA 12\n"
                                     "to mend it: pip install --force-reinstall nvidia-cudnn-cu12\n",
                                     kWheel)));
  EXPECT_THAT(find("", 13000), StartsWith(found_in(kWheel)));
}

TEST_F(CudnnFind, TheCompilerThatItOpensIsOpenedWhereItWouldNotFindIt) {
  machine.put("cudnn-9.19.0", "mine/cudnn/lib");
  machine.variables["CUDNN_PATH"] = machine.path("mine/cudnn");
  machine.put("nvrtc-12", kToolkit);  // of another CUDA
  machine.file("mine/cu13/lib/libcublasLt.so.13", "where cuDNN finds it, and opens it when it needs it");
  EXPECT_THAT(find(), AllOf(HasSubstr("warning: libnvrtc.so.13 of CUDA 13 not found: cuDNN's engines that need it will "
                                      "refuse\nto mend it: pip install nvidia-cuda-nvrtc nvidia-cublas\n"),
                            Not(HasSubstr("libnvrtc.so.12"))));
  machine.put("nvrtc-13", kToolkit);
  EXPECT_THAT(find(),
              AllOf(Not(HasSubstr("warning")), HasSubstr(fmt::format("loaded: {}/libnvrtc.so.13\n", kToolkit))));
  machine.put("cudnn-9.2.1", "mine/cudnn/lib");
  EXPECT_THAT(find(), AllOf(HasSubstr("warning: libcublasLt.so.12 of CUDA 12 not found"),
                            HasSubstr("to mend it: pip install nvidia-cuda-nvrtc-cu12 nvidia-cublas-cu12\n"),
                            HasSubstr(fmt::format("loaded: {}/libnvrtc.so.12\n", kToolkit))));
}

// In a process that is started with LD_LIBRARY_PATH, which the loader prefers to the folder of whoever asks.
TEST_F(CudnnFind, OtherVersionsInLdLibraryPathDoNotGetIn) {
  machine.put("cudnn-9.19.0", kWheel);
  const std::string other = machine.put("cudnn-9.2.1", "other");
  const auto find_with = [&](const std::string& path) {
    const std::string command = fmt::format("LD_LIBRARY_PATH={} HOME={} /proc/{}/exe --gtest_filter=CudnnFindHere.*",
                                            path, machine.path("home"), getpid());
    FILE* out = popen(command.c_str(), "r");
    std::string text;
    for (char part[4096]; out && fgets(part, sizeof part, out);) text += part;
    return out && pclose(out) == 0 ? machine.without_root(text) : "it did not run: " + command;
  };
  EXPECT_THAT(find_with(other), AllOf(HasSubstr(found_in(kWheel)), Not(HasSubstr("loaded: other"))));
  // A file with the full version in its name is what cuDNN opens first, and nothing can put another before it.
  machine.link("other/libcudnn_ops.so.9.19.0", "libcudnn_ops.so.9");
  const std::string mixed = ": mixed: the system's loader brings other/libcudnn_ops.so.9.19.0 among its libraries\n";
  EXPECT_THAT(find_with(other), AllOf(HasSubstr("found other/libcudnn.so.9 9.2.1\n"), HasSubstr(mixed)));
  machine.remove("other/libcudnn_adv.so.9");
  EXPECT_THAT(find_with(other), HasSubstr(mixed + "to mend it: export TILEWRIGHT_CUDNN_PATH=other\n"));
  // With no other copy, the loader's is what is found.
  std::filesystem::remove_all(machine.path(kWheel));
  machine.put("cudnn-9.2.1", "other");
  EXPECT_THAT(find_with(other), AllOf(HasSubstr("found other/libcudnn.so.9 9.2.1\n"),
                                      HasSubstr("tried: other (the system's loader): libcudnn.so.9, version 9.2.1\n")));
}

TEST(CudnnLoader, AScopedLibraryIsWhatIsFound) {
  const Library fake{};
  {
    const ScopedLibrary outer(fake, 90500);
    EXPECT_EQ(&library(), &fake);
    EXPECT_EQ(lookup().version, 90500);
    const Library other{};
    {
      const ScopedLibrary inner(other);
      EXPECT_EQ(&library(), &other);
    }
    EXPECT_EQ(&library(), &fake);
  }
}

TEST(CudnnLoader, ThePathIsTakenUntilTheFirstLookup) {
  const std::string text = in_own_process([] {
    unsetenv("TILEWRIGHT_CUDNN_PATH");
    const std::string before = set_cudnn_path("/absent/libcudnn.so.9").get_message();
    const std::string error = lookup().error_text();
    return fmt::format("{}{}\n{}", before, error, set_cudnn_path("/elsewhere").get_message());
  });
  EXPECT_EQ(text,
            "the path that the program gives leads to no usable cuDNN 9: /absent: not there\n"
            "to mend it: give libcudnn.so.9 or its folder\n"
            "set_cudnn_path: this process has looked for cuDNN already; give its path before a GPU is first used");
}

}  // namespace
}  // namespace tilewright::cudnn
