// The libraries that are found at run time, each told in the same way.
#pragma once

#include <string>
#include <vector>

namespace tilewright::tool {

struct LibraryReport {
  std::string name, purpose;
  bool found = false;
  std::string path, version;
  std::string problem;             // why it does not serve, or what of it does not
  std::string mend;                // the one command that would mend that
  std::vector<std::string> tried;  // every place looked at, and what was there
};

std::vector<LibraryReport> library_reports();

}  // namespace tilewright::tool
