// cuDNN as found at run time: one copy for the process, with all its sub-libraries from one folder, never unloaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engines/cudnn/api.h"

namespace tilewright::cudnn {

struct Library {
#define X(MEMBER, NAME, RESULT, ARGUMENTS) RESULT(*MEMBER) ARGUMENTS = nullptr;
  TW_CUDNN_FUNCTIONS(X)
  TW_CUDNN_LATER_FUNCTIONS(X)
#undef X
};

struct Lookup {
  const Library* calls = nullptr;  // null: `problem` says why
  std::string path;                // of the libcudnn.so.9 that serves
  std::string problem;             // one line
  std::string warning;             // one line: what some engines of the library will lack; mostly empty
  std::string mend;                // the one command that would mend the one or the other
  int64_t version = 0;             // 91900: 9.19.0
  std::vector<std::string> tried;  // every place looked at, in order, and what was there

  std::string error_text() const;  // two lines: the problem; how to mend it
};
std::string version_text(int64_t version);  // "9.19.0"; empty: 0
const Lookup& lookup();                     // searches at the first call
// Only where lookup().calls is not null.
const Library& library();

// libcudnn.so.9 or a folder that has it. Before the first lookup(); later calls change nothing and return false.
bool set_path(const std::string& path);

extern const char* const kInstall;

// In tests: `library` is what lookup() finds for the life of the object.
class ScopedLibrary {
 public:
  explicit ScopedLibrary(const Library& library, int64_t version = 91900);
  ~ScopedLibrary();
  ScopedLibrary(const ScopedLibrary&) = delete;
  ScopedLibrary& operator=(const ScopedLibrary&) = delete;

 private:
  Lookup lookup_;
  const Lookup* before_;
};

}  // namespace tilewright::cudnn
