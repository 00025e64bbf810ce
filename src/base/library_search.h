// The search for one of NVIDIA's libraries: which places count, in which order, and what is said of each.
#pragma once

#include "base/environment.h"
#include "base/library_places.h"

namespace tilewright {

struct LibraryOpening {
  std::string problem;  // why the file does not serve; empty: it does
  std::string mend;     // where something else than a new copy mends that
  std::string version;  // of one that serves, "9.19.0"
};

// Places, in order: the path that the program or `variable` gives, and then no other; what `toolkit_variable` says; a
// copy that the process has loaded already; pip packages; toolkits and the system's folders; the loader's own search.
struct LibrarySearch {
  std::string title;                       // "cuDNN 9"
  EnvironmentVariable variable;            // a file, a folder, or "off"
  const char* other_variable = nullptr;    // the field's own, "CUDNN_PATH"
  std::string given_path;                  // by the program; empty: none
  std::string stem;                        // "libcudnn": of all of the product's libraries
  std::vector<std::string> names;          // that serve, best first: "libcudnn.so.9"
  std::vector<std::string> wheel_folders;  // below a Python's nvidia/: "cudnn/lib"
  std::string install;                     // the command that installs it, with pip
  bool one_copy = false;                   // a second copy in the process would mix with the first
  std::function<LibraryOpening(const std::string& path)> open;
};

struct LibrarySearchResult {
  bool found = false;
  std::string path, version;       // of the file that serves
  std::string problem;             // one line; empty: found
  std::string mend;                // the one command that would mend it
  std::vector<std::string> tried;  // "FOLDER (who names it): what is there"
};

LibrarySearchResult search_library(const Surroundings&, const LibrarySearch&);

bool is_file(const std::string& path);

}  // namespace tilewright
