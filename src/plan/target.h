// The machine that a plan is for, as a value with a text form: "cpu:avx512,threads=2". A plan is decided and compiled
// from this alone; a real device merely produces one.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace tilewright {

struct Target {
  std::string device = "cpu";
  std::string arch;  // "avx512", "avx2", "baseline"
  int threads = 1;

  std::string text() const;
  static Result<Target> parse(const std::string&);
  static Target this_machine();
};

struct CpuInfo {
  std::string model;                  // as the system names it
  std::vector<std::string> features;  // of those that matter here: avx2, fma, avx512f, avx512_bf16, amx_bf16, ...
  int processors = 1;
};
CpuInfo cpu_info();

}  // namespace tilewright
