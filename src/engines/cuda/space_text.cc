#include "engines/cuda/space_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright::cuda {

using fuse::Instr;
using fuse::PwOp;

SpaceText::SpaceText(const fuse::FusedGraph& fused, const fuse::Region& region, Space space)
    : fused_(fused),
      region_(region),
      p_(region.program),
      space_(std::move(space)),
      width_(vector_width(space_, fused, region)),
      emit_(region.program, fused.graph) {}

bool SpaceText::varies_inside(int access) const {
  const auto& s = space_.stride[size_t(access)];
  return std::any_of(s.begin() + long(space_.outer.size()), s.end(), [](int64_t x) { return x != 0; });
}

bool SpaceText::instr_varies_inside(int k) const {
  const Instr& i = p_.code[size_t(k)];
  if (i.op == PwOp::Reduce) return false;
  if (i.op == PwOp::Load || i.op == PwOp::Index) return varies_inside(i.access);
  if (i.op == PwOp::Store && varies_inside(i.access)) return true;
  return std::any_of(i.arg.begin(), i.arg.end(), [&](int a) { return a >= 0 && instr_varies_inside(a); });
}

bool SpaceText::streams(int access) const {
  const auto& s = space_.stride[size_t(access)];
  return space_.outer.empty() ||
         std::any_of(s.begin(), s.begin() + long(space_.outer.size()), [](int64_t x) { return x != 0; });
}

std::string SpaceText::vector_type(int access) const { return fmt::format("vec<{}, {}>", type_of(access), width_); }

std::string SpaceText::base(const std::string& name, const std::vector<int64_t>& stride) const {
  std::string text = fmt::format("a.{}_at", name);
  for (size_t d = 0; d < space_.outer.size(); ++d)
    if (stride[d] != 0) text += fmt::format(" + o{} * a.{}_stride[{}]", d, name, d);
  return text;
}

std::string SpaceText::inside(const std::string& name, const std::vector<int64_t>& stride) const {
  const size_t outer = space_.outer.size();
  if (space_.inner.size() == 1) {
    const int64_t s = stride[outer];
    if (s == 0) return "";
    return s == 1 ? " + e" : fmt::format(" + e * a.{}_stride[{}]", name, outer);
  }
  std::string text;
  for (size_t d = 0; d < space_.inner.size(); ++d)
    if (stride[outer + d] != 0) text += fmt::format(" + i{} * a.{}_stride[{}]", d, name, outer + d);
  return text;
}

std::string SpaceText::bases(const std::string& indent, const std::function<bool(int)>& of) const {
  std::string text;
  for (size_t k = 0; k < p_.access.size(); ++k)
    if (of(int(k)))
      text += fmt::format("{}const Index b{} = {};\n", indent, k, base(pointer(int(k)), space_.stride[k]));
  return text;
}
std::string SpaceText::bases(const std::string& indent) const {
  return bases(indent, [](int) { return true; });
}

std::string SpaceText::vector_address(int access) const {
  return fmt::format("a.{} + b{} + c * {}", pointer(access), access, width_);
}

PointText SpaceText::point() const {
  PointText t;
  const auto place = [this](const Instr& i) {
    return fmt::format("b{}{}", i.access, inside(pointer(i.access), space_.stride[size_t(i.access)]));
  };
  t.load = [this, place](const Instr& i) {
    if (in_vector(i.access)) return fmt::format("F({}::get(x{}{}.e[k]))", type_of(i.access), i.access, slot(i.access));
    return fmt::format("F({}::get(a.{}[{}]))", type_of(i.access), pointer(i.access), place(i));
  };
  t.index = [place](const Instr& i) { return fmt::format("F({})", place(i)); };
  t.store = [this, place](const Instr& i, const std::string& value) {
    if (in_vector(i.access)) return fmt::format("y{}[k] = {};", i.access, value);
    return fmt::format("a.{}[{}] = {}::set({});", pointer(i.access), place(i), type_of(i.access), value);
  };
  return t;
}

PointText SpaceText::point_of_row() const {
  PointText t = point();
  t.load = [this](const Instr& i) {
    return fmt::format("F({}::get(a.{}[b{}]))", type_of(i.access), pointer(i.access), i.access);
  };
  t.index = [](const Instr& i) { return fmt::format("F(b{})", i.access); };
  return t;
}

std::string SpaceText::element_loop(const std::string& body, const std::string& in) const {
  std::string text;
  if (width_ > 1) text += fmt::format("#pragma unroll\n{}for (int k = 0; k < {}; ++k) {{\n", in, width_);
  else text += in + "{\n";
  if (space_.inner.size() == 1)
    text += fmt::format("{}  const Index e = c * {}{};\n", in, width_, width_ > 1 ? " + k" : "");
  else text += decompose("i", "c", "inner", space_.inner.size(), in + "  ");
  return text + body + in + "}\n";
}

std::string SpaceText::stores_before(const std::set<int>& accesses, const std::string& in) const {
  std::string text;
  for (int a : accesses) text += fmt::format("{}F y{}[{}];\n", in, a, width_);
  return text;
}
std::string SpaceText::stores_behind(const std::set<int>& accesses, const std::string& in) const {
  std::string text;
  for (int a : accesses) text += fmt::format("{}store({}, y{});\n", in, vector_address(a), a);
  return text;
}

std::string SpaceText::header() const {
  return page_title(region_.name, {&p_}, fused_.graph) +
         fmt::format(
             "#include \"tilewright/prelude.cuh\"\nnamespace tw {{\ntypedef {} F;      // values\n"
             "typedef {} Index;  // of elements\n\n",
             emit_.type(), index());
}

void SpaceText::declare_pointers(Arguments& args) const {
  for (size_t k = 0; k < p_.access.size(); ++k) {
    const fuse::Access& a = p_.access[k];
    if (a.tensor != ir::kNone) args.pointer(element_type(a.type), pointer(int(k)), fused_, a.tensor);
  }
}
void SpaceText::declare_scalars(Arguments& args) const {
  for (int k : emit_.scalars()) args.scalar(emit_.scalar(k), fused_.graph, p_.code[size_t(k)].tensor, emit_.wide());
}
void SpaceText::declare_places(Arguments& args) const {
  args.integer("rows", space_.rows(), space_.wide);
  args.integer("vectors", space_.row_size() / width_, space_.wide);
  args.integers("outer", space_.outer, space_.wide);
  args.integers("inner", space_.inner, space_.wide);
  for (size_t k = 0; k < p_.access.size(); ++k) {
    args.integer(pointer(int(k)) + "_at", p_.access[k].offset, space_.wide);
    args.integers(pointer(int(k)) + "_stride", space_.stride[k], space_.wide);
  }
}

std::string SpaceText::page(const Arguments& args, const std::string& bounds, const std::string& body) const {
  return header() + fmt::format("struct Args {{\n{}}};\n\n", args.declaration()) + emit_.functions() +
         fmt::format(
             "\nextern \"C\" __global__ void __launch_bounds__({}) tw_kernel(const __grid_constant__ Args a) {{\n{}"
             "}}\n}}  // namespace tw\n",
             bounds, body);
}

}  // namespace tilewright::cuda
