// A kernel and how it is launched, as plain data: made without a GPU, kept in plan files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "device/cuda/compiler.h"
#include "fuse/regions.h"

namespace tilewright::cuda {

// What is written into the arguments when the kernel is launched.
struct Patch {
  enum Kind : int { Memory, Workspace, Float, Double, Integer } kind = Memory;
  uint32_t at = 0;                  // byte of the arguments
  ir::TensorId tensor = ir::kNone;  // Memory: whose; Float, Double, Integer: the scalar whose value it is
  int64_t offset = 0;               // bytes from the tensor's memory, or of the workspace
};

constexpr size_t kMostArguments = 4096;  // bytes that a kernel takes

struct Launch {
  std::string name;  // "rows layernorm"
  std::string text;  // CUDA C++; empty: no kernel, only the zeros
  std::shared_ptr<const CompiledKernel> kernel;
  int64_t grid = 1;                // blocks
  int block = 1;                   // threads of one
  std::vector<uint8_t> arguments;  // the one struct that the kernel takes
  std::vector<Patch> patches;
  int64_t zero_offset = 0, zero_bytes = 0;  // of the workspace, set to 0 before
  // Known while plans are ranked; 0: bound by memory.
  double flops = 0, flops_share = 0.02;  // of the tensor cores' peak that it reaches
  bool tensor_cores = false;             // are used
};

// What kernels are made for.
struct KernelOptions {
  int sms = 132;             // multiprocessors
  int arch = 75;             // 10 * major + minor
  bool tensor_cores = true;  // may be used where they round nothing that the graph does not
  int shape = 0;             // which of the shapes that kernels of rows may have, the likely best first
};

// A name as part of a comment in the kernel's text.
std::string printable(const std::string& name);

// Builds the arguments and their declaration side by side, so that they agree.
class Arguments {
 public:
  // A pointer named `name` to elements of `type` (the kernel's spelling), patched at launch: `offset` bytes from the
  // memory of a root.
  void pointer(const std::string& type, const std::string& name, const fuse::FusedGraph&, ir::TensorId root,
               int64_t offset = 0);
  void workspace(const std::string& type, const std::string& name, int64_t offset);
  // A tensor of four dims: its pointer and its strides, the kernels' Tensor<type>.
  void tensor(const std::string& type, const std::string& name, const fuse::FusedGraph&, ir::TensorId root,
              int64_t offset, const std::array<int64_t, 4>& stride);
  void scalar(const std::string& name, const ir::Graph&, ir::TensorId, bool wide);
  // A seed or an offset of random numbers, with all its bits.
  void key(const std::string& name, const ir::Graph&, ir::TensorId);
  void bits(const std::string& name, uint64_t value);
  void integer(const std::string& name, int64_t value, bool wide);
  void number(const std::string& name, double value, bool wide);
  void integers(const std::string& name, const std::vector<int64_t>& values, bool wide);

  // Divisors of indices of which they take digits; narrow ones as `Divider`s of contraction.cuh.
  void dividers(const std::string& name, const std::vector<int64_t>& divisors, bool wide);

  const std::string& declaration() const { return declaration_; }  // the members of the struct
  void finish(Launch&) const;

 private:
  uint32_t reserve(size_t bytes);
  void store(uint32_t at, double value, bool wide);
  std::string declaration_;
  std::vector<uint8_t> bytes_;
  std::vector<Patch> patches_;
};

}  // namespace tilewright::cuda
