#include "engines/cuda/plain_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "engines/cuda/element.h"
#include "engines/cuda/emit.h"
#include "engines/cuda/side.h"
#include "layout/view.h"

namespace tilewright::cuda {
namespace {

using fuse::Instr;
using fuse::PwOp;
using fuse::PwProgram;
using fuse::Region;
using fuse::SideReduction;

constexpr int kRowThreads = 128, kMapThreads = 256;

// A result beside is folded by a launch of its own, from the values of all points in the workspace.
int64_t value_bytes(const PwProgram& p) { return (volume(p.domain) * (p.needs_double() ? 8 : 4) + 255) / 256 * 256; }

class PlainRows {
 public:
  PlainRows(const fuse::FusedGraph& fused, const Region& region)
      : fused_(fused), region_(region), p_(region.program), emit_(region.program, fused.graph), known_(p_.code.size()) {
    for (size_t d = 0; d < p_.domain.size(); ++d) (p_.inner >> d & 1 ? inner_ : outer_).push_back(d);
  }

  Result<std::vector<Launch>> launches() {
    for (const fuse::Access& a : p_.access)
      if (a.tensor != ir::kNone && !any_element(a.type)) return check_type(a.type);
    for (const SideReduction& s : region_.side)
      if (!any_element(s.out.type)) return check_type(s.out.type);
    std::vector<Launch> list = {main_launch()};
    for (size_t s = 0; s < region_.side.size(); ++s) list.push_back(fold_launch(s));
    return list;
  }

 private:
  bool is_map() const { return p_.inner == 0; }
  bool varies_inside(int k) const {
    const Instr& i = p_.code[size_t(k)];
    if (i.op == PwOp::Reduce) return false;
    if (i.op == PwOp::Load || i.op == PwOp::Index || i.op == PwOp::Store)
      for (size_t d : inner_)
        if (p_.access[size_t(i.access)].stride[d] != 0) return true;
    return std::any_of(i.arg.begin(), i.arg.end(), [&](int a) { return a >= 0 && varies_inside(a); });
  }

  // --- the text ------------------------------------------------------------------------------------------------------
  static std::string pointer(int access) { return fmt::format("p{}", access); }
  std::string place(int access) const {
    std::string text = fmt::format("a.{}_at", pointer(access));
    const Dims& stride = p_.access[size_t(access)].stride;
    for (size_t d = 0; d < stride.size(); ++d)
      if (stride[d] != 0) text += fmt::format(" + i{} * a.{}_stride[{}]", d, pointer(access), d);
    return text;
  }
  PointText point() const {
    PointText t;
    const auto type = [this](const Instr& i) { return p_.access[size_t(i.access)].type; };
    t.load = [this, type](const Instr& i) { return load_text(type(i), pointer(i.access), place(i.access)); };
    t.index = [this](const Instr& i) { return fmt::format("F({})", place(i.access)); };
    t.store = [this, type](const Instr& i, const std::string& value) {
      return store_text(type(i), pointer(i.access), place(i.access), value);
    };
    return t;
  }
  // Declares the coordinates of dims from one number.
  static std::string coordinates(const char* prefix, const char* from, const char* extents,
                                 const std::vector<size_t>& dims, const std::string& indent) {
    std::string text = decompose(prefix, from, extents, dims.size(), indent);
    for (size_t k = 0; k < dims.size(); ++k)
      text += fmt::format("{}const Index i{} = {}{};\n", indent, dims[k], prefix, k);
    return text;
  }
  // Around what is done at each point of a row. A map has one point.
  std::string loop(const std::string& body) const {
    if (is_map()) return "  {\n" + body + "  }\n";
    return fmt::format("  for (Index e = threadIdx.x; e < a.inner_points; e += {}) {{\n", kRowThreads) +
           coordinates("e", "e", "inner", inner_, "    ") + body + "  }\n";
  }
  std::string statements(const std::vector<bool>& wanted, const char* indent) const {
    return emit_.statements(
        point(), [&](int k) { return wanted[size_t(k)]; }, [&](int k) { return bool(known_[size_t(k)]); }, indent);
  }
  std::vector<bool> needed(const std::vector<int>& roots) const {
    return emit_.needed(roots, [&](int k) { return bool(known_[size_t(k)]); });
  }

  // What is the same all along a row, as far as it can be told by now.
  std::string uniform() {
    std::vector<bool> wanted(p_.code.size());
    for (size_t k = 0; k < p_.code.size(); ++k) {
      const Instr& i = p_.code[k];
      if (known_[k] || i.op == PwOp::Store || i.op == PwOp::Reduce || varies_inside(int(k))) continue;
      wanted[k] = std::all_of(i.arg.begin(), i.arg.end(),
                              [&](int a) { return a < 0 || known_[size_t(a)] || wanted[size_t(a)]; });
    }
    const std::string text = statements(wanted, "  ");
    for (size_t k = 0; k < wanted.size(); ++k) known_[k] = known_[k] || wanted[k];
    return text;
  }

  // One pass over the row for all reductions that wait for as many others.
  std::string reductions(int depth) {
    std::vector<int> list, values;
    for (size_t k = 0; k < p_.code.size(); ++k)
      if (p_.code[k].op == PwOp::Reduce && p_.code[k].depth == depth)
        list.push_back(int(k)), values.push_back(p_.code[k].arg[0]);
    if (list.empty()) return "";
    std::string text, body = statements(needed(values), "    ");
    for (int k : list) {
      const char* type = reduction_type(p_.code[size_t(k)].reduce);
      text += fmt::format("  F r{} = {}::start<F>();\n", k, type);
      body += fmt::format("    r{0} = {1}::join(r{0}, {1}::element({2}));\n", k, type,
                          emit_.value(p_.code[size_t(k)].arg[0]));
    }
    text += loop(body);
    for (int k : list) {
      const char* type = reduction_type(p_.code[size_t(k)].reduce);
      text += fmt::format("  const F {0} = {1}::finish(block_reduce<{1}>(r{2}, shared[{3}]), a.inner_points);\n",
                          emit_.value(k), type, k, folds_++);
      known_[size_t(k)] = true;
    }
    return text;
  }

  // Stores, and values that are folded beside: at each point all that is read before all that is written.
  std::string results() {
    std::vector<int> values;
    std::string once, each;
    for (size_t k = 0; k < p_.code.size(); ++k) {
      const Instr& i = p_.code[k];
      if (i.op != PwOp::Store) continue;
      values.push_back(i.arg[0]);
      (varies_inside(int(k)) ? each : once) += "    " + point().store(i, emit_.value(i.arg[0])) + "\n";
    }
    for (size_t s = 0; s < region_.side.size(); ++s) {
      values.push_back(region_.side[s].value);
      std::string at = "0";
      for (size_t d = 0; d < p_.domain.size(); ++d) at = fmt::format("({}) * a.extent[{}] + i{}", at, d, d);
      each += fmt::format("    a.fold{}[{}] = {};\n", s, at, emit_.value(region_.side[s].value));
    }
    std::string text;
    if (!each.empty()) text = loop(statements(needed(values), "    ") + each);
    if (!once.empty()) text += (is_map() ? "  {\n" : "  if (threadIdx.x == 0) {\n") + once + "  }\n";
    return text;
  }

  std::string body() {
    std::string text = is_map()
                           ? fmt::format("  const Index row = blockIdx.x * Index({}) + threadIdx.x;\n", kMapThreads)
                           : "  const Index row = blockIdx.x;\n";
    text += "  if (row >= a.rows) return;\n" + coordinates("o", "row", "outer", outer_, "  ") + uniform();
    for (int depth = 1; depth <= p_.depth(); ++depth) {
      text += reductions(depth);
      text += uniform();
    }
    return text + results();
  }

  Launch main_launch() {
    Launch launch;
    launch.name = region_.name;
    launch.block = is_map() ? kMapThreads : kRowThreads;
    Arguments args;
    declare_arguments(args);
    const std::string statements = body();
    launch.text = begin({&p_}, args);
    launch.text += emit_.functions();
    launch.text += fmt::format(
        "\nextern \"C\" __global__ void __launch_bounds__({}) tw_kernel(const __grid_constant__ Args a) {{\n",
        launch.block);
    if (folds_ > 0) launch.text += fmt::format("  __shared__ F shared[{}][{}];\n", folds_, kRowThreads / 32);
    launch.text += statements + "}\n}  // namespace tw\n";
    args.finish(launch);
    const int64_t rows = extent(outer_);
    launch.grid = std::max<int64_t>(1, is_map() ? (rows + kMapThreads - 1) / kMapThreads : rows);
    return launch;
  }
  std::string begin(const std::vector<const PwProgram*>& programs, const Arguments& args) const {
    return page_title(region_.name, programs, fused_.graph) +
           fmt::format(
               "#include \"tilewright/narrow.cuh\"\nnamespace tw {{\ntypedef {} F;      // values\n"
               "typedef i64 Index;  // of elements\n\nstruct Args {{\n{}}};\n\n",
               emit_.type(), args.declaration());
  }

  int64_t extent(const std::vector<size_t>& dims) const {
    int64_t n = 1;
    for (size_t d : dims) n *= p_.domain[d];
    return n;
  }
  std::vector<int64_t> extents(const std::vector<size_t>& dims) const {
    std::vector<int64_t> list;
    for (size_t d : dims) list.push_back(p_.domain[d]);
    return list;
  }
  void declare_arguments(Arguments& args) const {
    for (size_t k = 0; k < p_.access.size(); ++k)
      if (const fuse::Access& a = p_.access[k]; a.tensor != ir::kNone)
        args.pointer(memory_type(a.type), pointer(int(k)), fused_, a.tensor);
    for (size_t s = 0; s < region_.side.size(); ++s)
      args.workspace("F", fmt::format("fold{}", s), region_.scratch_offset + int64_t(s) * value_bytes(p_));
    for (int k : emit_.scalars()) args.scalar(emit_.scalar(k), fused_.graph, p_.code[size_t(k)].tensor, emit_.wide());
    args.integer("rows", extent(outer_), true);
    args.integer("inner_points", extent(inner_), true);
    args.integers("outer", extents(outer_), true);
    args.integers("inner", extents(inner_), true);
    args.integers("extent", p_.domain, true);
    for (size_t k = 0; k < p_.access.size(); ++k) {
      args.integer(pointer(int(k)) + "_at", p_.access[k].offset, true);
      args.integers(pointer(int(k)) + "_stride", p_.access[k].stride, true);
    }
  }

  // A block for each element of a result beside.
  Launch fold_launch(size_t s) const {
    const SideReduction& side = region_.side[s];
    std::vector<size_t> kept, folded;
    for (size_t d = 0; d < p_.domain.size(); ++d) (side.reduced >> d & 1 ? folded : kept).push_back(d);
    Arguments args;
    args.workspace("const F", "fold", region_.scratch_offset + int64_t(s) * value_bytes(p_));
    args.pointer(memory_type(side.out.type), "y", fused_, side.out.tensor);
    args.integer("points", extent(folded), true);
    args.integers("outer", extents(kept), true);
    args.integers("inner", extents(folded), true);
    args.integers("extent", p_.domain, true);
    args.integer("y_at", side.out.offset, true);
    args.integers("y_stride", side.out.stride, true);
    std::string from = "0", to = "a.y_at";
    for (size_t d = 0; d < p_.domain.size(); ++d) from = fmt::format("({}) * a.extent[{}] + i{}", from, d, d);
    for (size_t d : kept) to += fmt::format(" + i{} * a.y_stride[{}]", d, d);
    const char* type = reduction_type(side.mode);
    Launch launch;
    launch.name = fmt::format("result of {}", region_.name);
    launch.block = kRowThreads;
    launch.grid = std::max<int64_t>(1, extent(kept));
    launch.text =
        begin({}, args) +
        fmt::format(
            "extern \"C\" __global__ void __launch_bounds__({0}) tw_kernel(const __grid_constant__ Args a) {{\n"
            "  __shared__ F shared[{1}];\n  const Index row = blockIdx.x;\n{2}  F r = {3}::start<F>();\n"
            "  for (Index e = threadIdx.x; e < a.points; e += {0}) {{\n{4}"
            "    r = {3}::join(r, {3}::element(a.fold[{5}]));\n  }}\n"
            "  r = {3}::finish(block_reduce<{3}>(r, shared), a.points);\n  if (threadIdx.x == 0) {6}\n}}\n"
            "}}  // namespace tw\n",
            kRowThreads, kRowThreads / 32, coordinates("o", "row", "outer", kept, "  "), type,
            coordinates("e", "e", "inner", folded, "    "), from, store_text(side.out.type, "y", to, "r"));
    args.finish(launch);
    return launch;
  }

  const fuse::FusedGraph& fused_;
  const Region& region_;
  const PwProgram& p_;
  const Emitter emit_;
  std::vector<char> known_;            // instructions that the text has computed
  std::vector<size_t> outer_, inner_;  // dims
  int folds_ = 0;                      // over the block so far
};

}  // namespace

bool wants_plain(const Region& region) { return check_types(region.program).is_bad() || check_sides(region).is_bad(); }

int64_t plain_rows_scratch_bytes(const Region& region) {
  return int64_t(region.side.size()) * value_bytes(region.program);
}

Result<std::vector<Launch>> plain_rows_launches(const fuse::FusedGraph& fused, const Region& region) {
  return PlainRows(fused, region).launches();
}

}  // namespace tilewright::cuda
