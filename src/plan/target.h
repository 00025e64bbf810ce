// The machine that a plan is for, as a value with a text form: "cpu:avx512,threads=2",
// "cuda:sm_90,sms=132,smem=227,l2=60". A plan is decided and compiled from this alone; a real device merely produces
// one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/cuda/gpu.h"

namespace tilewright {

struct Target {
  std::string device = "cpu";
  std::string arch;  // "avx512", "avx2", "baseline"; "sm_90"; "compute_75": kernels are PTX
  int threads = 1;   // of a CPU
  std::shared_ptr<const cuda::GpuProperties> gpu;
  int ordinal = -1;  // of the GPU of this machine that it is; -1: of none, or a CPU. No part of the text.

  bool is_gpu() const { return device == "cuda"; }
  std::string text() const;
  // What a GPU's kernels are compiled for: "sm_90a", "compute_75".
  std::string code() const;
  // The text of a target; "cuda" and "cuda:1", a GPU of this machine, "cuda:1,compute_75", the same with kernels as
  // PTX; "h200", a GPU by its name; "sm_86", "compute_75", any GPU of an architecture.
  static Result<Target> parse(const std::string&);
  static Target this_machine();                            // its CPU
  static Result<Target> of_gpu(int ordinal, int ptx = 0);  // ptx: as Queue has it
  static Target of_gpu(cuda::GpuProperties, int ordinal = -1);
  // What a measurement holds for: the model of the CPU, or of the GPU with its driver.
  std::string hardware() const;
};

struct CpuInfo {
  std::string model;                  // as the system names it
  std::vector<std::string> features;  // of those that matter here: avx2, fma, avx512f, avx512_bf16, amx_bf16, ...
  int processors = 1;
};
CpuInfo cpu_info();

}  // namespace tilewright
