// The texts of a contraction's kernels: what the operands and the result are, for kernels/contraction.cuh.
#pragma once

#include "engines/cuda/contraction_route.h"
#include "engines/cuda/emit.h"

namespace tilewright::cuda {

class ContractionPage {
 public:
  // `scratch`: of side reductions, then of the slices of the sums, in the workspace.
  ContractionPage(const fuse::FusedGraph&, const fuse::Region&, const OrderedProblem&, const ContractionSpace&,
                  const ContractionRoute&, int64_t side_scratch, int64_t part_scratch);

  Launch multiply() const;    // with the epilogue, or to the slices
  Launch join_parts() const;  // the slices, with the epilogue

 private:
  enum class Fold { Whole, Columns, Points };  // a side reduction: by each thread, by each thread's columns, neither

  struct Operand {
    std::string name;  // "A"
    char group;        // of its rows: 'm', 'n'
    const fuse::PwProgram* program;
    bool along_sums = false;  // whether the elements that are loaded at once are of one row
    int width = 1;            // how many those are
  };
  int lane_width(const Operand&, size_t operand, char group, int most) const;
  void choose_widths();
  int result_width() const;
  Fold fold_of(size_t side, bool points) const;

  std::string digits(char group, const std::string& from, const std::string& indent) const;
  std::string terms(const std::string& name, const Line&, const std::string& groups) const;
  // Declarations of arguments, and expressions of them.
  std::string step_of(const std::string& name, const Line&, int dim) const;  // "0", or an argument
  void declare(Arguments&, const std::string& name, const Line&) const;
  void declare_sizes(Arguments&) const;
  void declare_operand(Arguments&, size_t operand) const;
  void declare_result(Arguments&) const;
  void declare_end(Arguments&, const std::string& name, ir::TensorId) const;

  std::string end_of(ir::TensorId, const std::string& name, const std::string& full) const;
  bool is_as_it_is(size_t operand) const;
  bool is_copied(size_t operand) const;
  std::string operand_text(size_t operand) const;
  std::string load_text(size_t operand) const;
  std::string result_text(bool points) const;
  std::string apply_text(bool points, int width) const;
  std::string finish_text(bool points) const;
  std::string parts_text() const;
  std::string page(const Arguments&, const std::string& structs, const std::string& call, int threads,
                   bool operands) const;

  const fuse::FusedGraph& fused_;
  const fuse::Region& region_;
  const OrderedProblem& ordered_;
  const ContractionSpace& space_;
  const ContractionRoute& route_;
  int64_t side_scratch_, part_scratch_;
  std::array<Operand, 2> operand_;
  std::array<Emitter, 2> emit_;
  Emitter result_emit_;
  int result_width_ = 1;
};

}  // namespace tilewright::cuda
