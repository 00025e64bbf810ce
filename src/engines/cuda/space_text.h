// The pieces of a kernel's text that follow from how a Rows region's program lies over its space: pointers, where an
// access is, one point's statements.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "engines/cuda/emit.h"
#include "engines/cuda/launch.h"
#include "engines/cuda/space.h"

namespace tilewright::cuda {

class SpaceText {
 protected:
  SpaceText(const fuse::FusedGraph& fused, const fuse::Region& region, Space space);
  ~SpaceText() = default;

  bool varies_inside(int access) const;       // along the inner dims
  bool instr_varies_inside(int instr) const;  // or is a store that does
  bool in_vector(int access) const { return width_ > 1 && varies_inside(access); }
  // Whether other rows have other elements of it.
  bool streams(int access) const;
  const char* index() const { return space_.wide ? "i64" : "int"; }
  std::string pointer(int access) const { return "p" + std::to_string(access); }
  std::string type_of(int access) const { return element_type(p_.access[size_t(access)].type); }
  std::string vector_type(int access) const;  // vec<bf16, 8>

  // Where a row of it begins, of o0, o1, ...; what is added inside the row, of e or i0, i1, ...
  std::string base(const std::string& name, const std::vector<int64_t>& stride) const;
  std::string inside(const std::string& name, const std::vector<int64_t>& stride) const;
  // Declares b0, b1, ...: where this row of the accesses begins that `of` says.
  std::string bases(const std::string& indent, const std::function<bool(int)>& of) const;
  std::string bases(const std::string& indent) const;
  std::string vector_address(int access) const;  // of vector c of the row

  // Elements are x3.e[k], x3[v].e[k] where `slot` says "[v]", and y3[k]; or in memory.
  PointText point() const;
  PointText point_of_row() const;  // of what does not vary inside it
  virtual std::string slot(int access) const = 0;
  std::string element_loop(const std::string& body, const std::string& in) const;
  std::string stores_before(const std::set<int>& accesses, const std::string& in) const;
  std::string stores_behind(const std::set<int>& accesses, const std::string& in) const;

  std::string header() const;
  void declare_pointers(Arguments&) const;
  void declare_scalars(Arguments&) const;
  void declare_places(Arguments&) const;
  // The page: title, types, arguments, functions, the kernel.
  std::string page(const Arguments&, const std::string& bounds, const std::string& body) const;

  const fuse::FusedGraph& fused_;
  const fuse::Region& region_;
  const fuse::PwProgram& p_;
  Space space_;
  int width_;
  Emitter emit_;
};

}  // namespace tilewright::cuda
