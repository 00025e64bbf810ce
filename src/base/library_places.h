// Where the libraries of NVIDIA's packages may lie on a machine: folders, best first.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tilewright {

// What the search depends on, so that a test can make it up.
struct Surroundings {
  std::function<std::string(const char*)> variable;  // an environment variable; empty: not set
  std::string program;                               // as this process was called
  std::string root;                                  // before the system's absolute paths
  bool has_loader = true;                            // the system's loader may be asked for a name

  static Surroundings of_this_process();
};

struct Place {
  std::string folder, named_by;  // "/usr/local/cuda/lib64", "CUDA_HOME"
};

// Folders below `nvidia/` of each Python that this process, PATH, VIRTUAL_ENV or CONDA_PREFIX names: for cuDNN
// {"cudnn/lib"}. No Python is run.
std::vector<Place> wheel_places(const Surroundings&, const std::vector<std::string>& folders);
// CUDA toolkits, newest first, the libraries of CONDA_PREFIX and of the system.
std::vector<Place> toolkit_places(const Surroundings&);
// What a path given by a person means: a folder stands for itself, its lib and its lib64; a file for its folder.
std::vector<Place> given_places(const std::string& path, const std::string& named_by);
// Each folder once, under whatever name it comes first.
std::vector<Place> without_repetitions(std::vector<Place>);

// The path with links resolved; as it is where there is nothing.
std::string real_path(const std::string&);
// "/a/b" of "/a/b/c", "." of "c".
std::string folder_of(const std::string& path);
std::string name_of(const std::string& path);  // "c" of "/a/b/c"

}  // namespace tilewright
