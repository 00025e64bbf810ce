// A region made ready to run on the CPU: what a step of a plan executes.
#pragma once

#include <memory>
#include <string>

#include "engines/cpu/block.h"

namespace tilewright::cpu {

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int64_t scratch_bytes() const { return 0; }  // of the workspace, while it runs
  virtual void run(const Memory&, char* scratch) const = 0;
  // Its arithmetic, as a share of the machine's peak in FLOAT: as measured, to rank plans.
  virtual double speed() const { return 0.5; }
  // The share of the memory's rate that it reaches, the same way.
  virtual double memory_share() const { return 0.5; }
  virtual std::string describe() const = 0;    // how it runs, in a line
  virtual bool slow() const { return false; }  // has no fast loop
};

std::unique_ptr<Kernel> make_rows(const fuse::Region&);
// Null where a matrix product does better: for convolutions of few, or large, groups.
std::unique_ptr<Kernel> make_direct(const fuse::FusedGraph&, const fuse::Region&);
std::unique_ptr<Kernel> make_contraction(const fuse::FusedGraph&, const fuse::Region&);
std::unique_ptr<Kernel> make_pool(const fuse::FusedGraph&, const fuse::Region&);
// Null for other ops. `fused` must outlive the kernel.
std::unique_ptr<Kernel> make_rng(const fuse::FusedGraph& fused, const fuse::Region&);
// Null when the attention step does not take the node. `fused` must outlive the kernel.
std::unique_ptr<Kernel> make_attention(const fuse::FusedGraph& fused, const fuse::Region&);
// The node by its op's exact meaning, in double: slow, and takes anything. `fused` must outlive the kernel.
std::unique_ptr<Kernel> make_node(const fuse::FusedGraph& fused, const fuse::Region&);

}  // namespace tilewright::cpu
