// Which folders are looked into, and in which order, on machines made up for it.
#include "base/library_places.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "made_up_machine.h"

namespace tilewright {
namespace {

using testing::ElementsAre;

// "FOLDER <- who names it", with the machine's root left out.
std::vector<std::string> texts(const MadeUpMachine& machine, const std::vector<Place>& places) {
  std::vector<std::string> all;
  for (const Place& place : places) all.push_back(machine.without_root(place.folder + " <- " + place.named_by));
  return all;
}

std::vector<std::string> wheels(const MadeUpMachine& machine, const std::vector<std::string>& folders = {"cudnn/lib"}) {
  return texts(machine, wheel_places(machine.surroundings(), folders));
}

TEST(LibraryPlaces, NothingIsNamedWhereThereIsNoPython) { EXPECT_THAT(wheels(MadeUpMachine()), ElementsAre()); }

TEST(LibraryPlaces, AVirtualEnvironmentOnThePathAndThePythonBehindIt) {
  MadeUpMachine m;
  m.file("usr/bin/python3.11");
  m.folder("usr/lib/python3/dist-packages");
  m.folder("usr/lib/python3.9/site-packages");
  m.folder("usr/lib/python3.11/site-packages");
  m.link("venv/bin/python3", m.path("usr/bin/python3.11"));
  m.folder("venv/lib/python3.11/site-packages");
  m.variables["PATH"] = m.path("absent") + ":" + m.path("venv/bin") + ":" + m.path("usr/bin");
  EXPECT_THAT(wheels(m), ElementsAre("venv/lib/python3.11/site-packages/nvidia/cudnn/lib <- pip package of PATH's "
                                     "venv/bin/python3",
                                     "usr/lib/python3.11/site-packages/nvidia/cudnn/lib <- pip package of PATH's "
                                     "venv/bin/python3",
                                     "usr/lib/python3.9/site-packages/nvidia/cudnn/lib <- pip package of PATH's "
                                     "venv/bin/python3",
                                     "usr/lib/python3/dist-packages/nvidia/cudnn/lib <- pip package of PATH's "
                                     "venv/bin/python3"));
}

TEST(LibraryPlaces, DebiansOwnPackagesOfPip) {
  MadeUpMachine m;
  m.file("usr/bin/python3");
  m.folder("usr/local/lib/python3.11/dist-packages");
  m.variables["PATH"] = m.path("usr/bin");
  EXPECT_THAT(wheels(m), ElementsAre("usr/local/lib/python3.11/dist-packages/nvidia/cudnn/lib <- pip package of "
                                     "PATH's usr/bin/python3"));
}

TEST(LibraryPlaces, OfTheEnvironmentThatIsActiveAndOfTheUser) {
  MadeUpMachine m;
  for (const char* prefix : {"venv", "conda", "home/.local", "base"})
    m.folder(std::string(prefix) + "/lib/python3.12/site-packages");
  m.variables["VIRTUAL_ENV"] = m.path("venv");
  m.variables["CONDA_PREFIX"] = m.path("conda");
  m.variables["PYTHONPATH"] = m.path("mine") + ":" + m.path("yours");
  EXPECT_THAT(wheels(m), ElementsAre("mine/nvidia/cudnn/lib <- pip package of PYTHONPATH",
                                     "yours/nvidia/cudnn/lib <- pip package of PYTHONPATH",
                                     "venv/lib/python3.12/site-packages/nvidia/cudnn/lib <- pip package of VIRTUAL_ENV",
                                     "conda/lib/python3.12/site-packages/nvidia/cudnn/lib <- pip package of "
                                     "CONDA_PREFIX",
                                     "home/.local/lib/python3.12/site-packages/nvidia/cudnn/lib <- pip package of "
                                     "the user's Python"));
  m.variables = {{"PYTHONUSERBASE", m.path("base")}, {"HOME", m.path("home")}};
  EXPECT_THAT(wheels(m, {"cu13/lib", "cuda_nvrtc/lib"}),
              ElementsAre("base/lib/python3.12/site-packages/nvidia/cu13/lib <- pip package of the user's Python",
                          "base/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib <- pip package of the user's "
                          "Python"));
}

TEST(LibraryPlaces, ThePythonThatRunsThisProcessComesFirst) {
  MadeUpMachine m;
  for (const char* prefix : {"one", "two"}) {
    m.file(std::string(prefix) + "/bin/python3");
    m.folder(std::string(prefix) + "/lib/python3.12/site-packages");
  }
  m.variables["PATH"] = m.path("one/bin");
  m.program = m.path("two/bin/python3");
  EXPECT_THAT(
      wheels(m),
      ElementsAre("two/lib/python3.12/site-packages/nvidia/cudnn/lib <- pip package of this process's Python "
                  "two/bin/python3",
                  "one/lib/python3.12/site-packages/nvidia/cudnn/lib <- pip package of PATH's one/bin/python3"));
}

TEST(LibraryPlaces, PyenvStartsThePythonThatItsFileNames) {
  MadeUpMachine m;
  m.file("pyenv/shims/python3", "#!/bin/sh\n");
  m.file("pyenv/version", "3.12.1\n");
  m.folder("pyenv/versions/3.12.1/lib/python3.12/site-packages");
  m.folder("pyenv/versions/3.9.18/lib/python3.9/site-packages");
  m.variables["PATH"] = m.path("pyenv/shims");
  const char* by = "/nvidia/cudnn/lib <- pip package of PATH's pyenv/shims/python3";
  EXPECT_THAT(wheels(m), ElementsAre(std::string("pyenv/versions/3.12.1/lib/python3.12/site-packages") + by));
  m.variables["PYENV_VERSION"] = "3.9.18";
  EXPECT_THAT(wheels(m), ElementsAre(std::string("pyenv/versions/3.9.18/lib/python3.9/site-packages") + by));
}

TEST(LibraryPlaces, ToolkitsNewestFirstEachFolderOnce) {
  MadeUpMachine m;
  for (const char* toolkit : {"cuda-9.2", "cuda-12.8", "cuda-13.0"})
    m.folder(std::string("usr/local/") + toolkit + "/lib64");
  m.link("usr/local/cuda", "cuda-12.8");
  m.folder("mine/lib");
  m.link("mine/lib64", "lib");
  m.variables["CUDA_HOME"] = m.path("mine");
  std::vector<std::string> there;
  for (const Place& place : toolkit_places(m.surroundings()))
    if (std::filesystem::exists(place.folder)) there.push_back(texts(m, {place})[0]);
  EXPECT_THAT(there, ElementsAre("mine/lib64 <- CUDA_HOME", "usr/local/cuda/lib64 <- toolkit",
                                 "usr/local/cuda-13.0/lib64 <- toolkit", "usr/local/cuda-9.2/lib64 <- toolkit"));
}

TEST(LibraryPlaces, WhatAPersonGivesMayBeAFileOrAFolder) {
  MadeUpMachine m;
  m.file("a/lib/libx.so.1");
  const auto given = [&m](const char* path) { return texts(m, given_places(m.path(path), "X")); };
  EXPECT_THAT(given("a/lib/libx.so.1"), ElementsAre("a/lib <- X"));
  EXPECT_THAT(given("a/lib/absent.so.1"), ElementsAre("a/lib <- X"));
  EXPECT_THAT(given("a"), ElementsAre("a <- X", "a/lib <- X", "a/lib64 <- X"));
  EXPECT_THAT(given("absent"), ElementsAre("absent <- X", "absent/lib <- X", "absent/lib64 <- X"));
}

}  // namespace
}  // namespace tilewright
