#include "plan/target.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/thread_pool.h"

namespace tilewright {

CpuInfo cpu_info() {
  CpuInfo info;
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  int processors = 0;
  while (std::getline(in, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("processor", 0) == 0) ++processors;
    if (colon == line.npos) continue;
    if (info.model.empty() && line.rfind("model name", 0) == 0) info.model = line.substr(colon + 2);
    if (info.features.empty() && (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0)) {
      std::istringstream words(line.substr(colon + 2));
      static const char* const kInteresting[] = {"sse4_2",      "avx",      "f16c",     "fma",         "avx2",
                                                 "avx512f",     "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
                                                 "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",    "asimd",
                                                 "asimdhp",     "bf16",     "sve"};
      for (std::string word; words >> word;)
        if (std::find(std::begin(kInteresting), std::end(kInteresting), word) != std::end(kInteresting))
          info.features.push_back(word);
    }
  }
  info.processors = std::max(processors, 1);
  return info;
}

std::string Target::text() const { return fmt::format("{}:{},threads={}", device, arch, threads); }

Result<Target> Target::parse(const std::string& text) {
  Target t;
  const size_t colon = text.find(':');
  t.device = text.substr(0, colon);
  if (t.device != "cpu")
    return invalid("target \"{}\": device \"{}\" is not known to this version; expected cpu:ARCH[,threads=N]", text,
                   t.device);
  if (colon == text.npos) return invalid("target \"{}\": expected cpu:ARCH[,threads=N]", text);
  std::istringstream parts(text.substr(colon + 1));
  bool first = true;
  for (std::string part; std::getline(parts, part, ','); first = false) {
    if (first) {
      if (part != "avx512" && part != "avx2" && part != "baseline")
        return invalid("target \"{}\": \"{}\" is no CPU architecture; expected avx512, avx2 or baseline", text, part);
      t.arch = part;
    } else if (part.rfind("threads=", 0) == 0 && part.size() > 8 && part.size() < 13 &&
               part.find_first_not_of("0123456789", 8) == part.npos && std::stoi(part.substr(8)) > 0) {
      t.threads = std::stoi(part.substr(8));
    } else {
      return invalid("target \"{}\": \"{}\" is not understood; expected threads=N", text, part);
    }
  }
  if (t.arch.empty()) return invalid("target \"{}\": the CPU architecture is missing", text);
  return t;
}

Target Target::this_machine() {
  static const std::string arch = [] {
    const std::vector<std::string> f = cpu_info().features;
    auto has = [&](const char* name) { return std::find(f.begin(), f.end(), name) != f.end(); };
    return has("avx512f") && has("avx512bw") && has("avx512vl") ? "avx512"
           : has("avx2") && has("fma")                          ? "avx2"
                                                                : "baseline";
  }();
  Target t;
  t.arch = arch;
  t.threads = thread_count();
  return t;
}

}  // namespace tilewright
