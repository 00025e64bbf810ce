// Which of cuDNN's engines, with which knobs: "eng41,k2=0,k13=1", the numbers being cuDNN's own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tilewright::cudnn {

struct Config {
  int64_t engine = -1;
  std::vector<std::pair<int, int64_t>> knobs;  // type, value; in cuDNN's order

  std::string text() const { return joined(",", ","); }  // "eng41,k2=0,k13=1"
  std::string tag() const { return joined("_", "_"); }   // "eng41_k2=0_k13=1": the field's own name for it
  std::string plan_name() const;                         // "eng41[k2=0,k13=1]"
  static Result<Config> parse(const std::string&);

 private:
  std::string joined(const char* first, const char* later) const;
};

// --- engines that are known to be wrong (known_bad.def) ---
struct KnownBad {
  const char* op;      // a node of this op must be in the graph; "": any graph
  const char* config;  // "eng12" or "eng12,k2=3": this engine, with at least these knobs
  int64_t from, to;    // cuDNN versions, 90100; from <= version < to
  const char* reason;
};
const std::vector<KnownBad>& known_bad();
// Null: nothing is known against it.
const KnownBad* find_known_bad(const std::vector<KnownBad>&, const Config&, const std::vector<std::string>& ops,
                               int64_t version);

}  // namespace tilewright::cudnn
