// A pointwise program as CUDA C++: one function per instruction that computes, and the statements of a point.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "base/result.h"
#include "fuse/program.h"

namespace tilewright::cuda {

// How the prelude calls an element type in memory; empty: kernels do not take it.
std::string element_type(DataType_t storage);
const char* reduction_type(ReductionMode_t);  // "Sum"
std::string number(double, bool wide);        // a literal
// Why kernels do not take elements of a type; those of all accesses of a program.
Status check_type(DataType_t storage);
Status check_types(const fuse::PwProgram&);
// The comment that a kernel's text begins with: what it computes, for a class of shapes.
std::string page_title(const std::string& name, const std::vector<const fuse::PwProgram*>&, const ir::Graph&);
// Declares prefix0, prefix1, ... of the linear index `from` over the dims whose sizes are the arguments' `extents`.
std::string decompose(const char* prefix, const char* from, const char* extents, size_t rank,
                      const std::string& indent);

struct PointText {
  // Expressions for what depends on where: an element of an access, the index along one, a store's statement.
  std::function<std::string(const fuse::Instr&)> load, index;
  std::function<std::string(const fuse::Instr&, const std::string& value)> store;
  std::function<std::string(const fuse::Instr&)> in;
};

class Emitter {
 public:
  Emitter(const fuse::PwProgram&, const ir::Graph&, const std::string& prefix = "");
  Emitter(const fuse::PwProgram&, const ir::Graph&, const std::string& prefix, bool wide);  // values of that width

  bool wide() const { return wide_; }
  const char* type() const { return wide_ ? "double" : "float"; }
  // One function per pointwise instruction, named after its node.
  std::string functions() const;
  // The statements that compute what `wanted` says, given the values that `known` says are there already.
  std::string statements(const PointText&, const std::function<bool(int)>& wanted,
                         const std::function<bool(int)>& known, const std::string& indent) const;
  // All that `roots` need and that is not known.
  std::vector<bool> needed(const std::vector<int>& roots, const std::function<bool(int)>& known) const;
  std::string value(int instr) const;   // its variable
  std::string scalar(int instr) const;  // the member of the arguments, for Scalar
  std::vector<int> scalars() const;     // Scalar instructions
  // Values by which much is divided: quotients are written with the variable divisor(value), a Divisor.
  void divide_by(const std::set<int>& values) { divisors_ = values; }
  std::string divisor(int instr) const { return prefix_ + "d" + std::to_string(instr); }

 private:
  std::string expression(int instr, const PointText&) const;
  std::string function_name(int instr) const;

  const fuse::PwProgram& program_;
  const ir::Graph& graph_;
  std::string prefix_;
  std::set<int> divisors_;
  bool wide_;
};

}  // namespace tilewright::cuda
