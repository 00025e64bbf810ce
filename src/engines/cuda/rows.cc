#include "engines/cuda/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engines/cuda/emit.h"
#include "engines/cuda/side.h"
#include "engines/cuda/space.h"
#include "engines/cuda/split_rows.h"
#include "layout/view.h"

namespace tilewright::cuda {
namespace {

using fuse::Instr;
using fuse::PwOp;
using fuse::PwProgram;
using fuse::Region;
using fuse::SideReduction;

// How a row is shared out: threads of a block, vectors of a row that each keeps in registers (0: none is kept, every
// pass reads the row again).
struct RowShape {
  int threads, kept;
};
// A row that waits for several reductions, one after the other, takes fewer threads, so that more rows are in flight.
RowShape row_shape(int64_t vectors, bool may_keep, int depth) {
  if (may_keep && depth > 1)
    for (const RowShape s : {RowShape{32, 1}, {32, 2}, {64, 2}, {64, 4}, {128, 4}})
      if (vectors <= int64_t(s.threads) * s.kept) return s;
  for (const RowShape s : {RowShape{32, 1}, {64, 1}, {128, 1}, {256, 1}, {256, 2}, {256, 4}, {256, 8}, {512, 8}})
    if (may_keep && vectors <= int64_t(s.threads) * s.kept) return s;
  int threads = 32;
  while (threads < 512 && threads < vectors) threads *= 2;
  return {threads, 0};
}

// How a side reduction is folded together.
enum class SideKind {
  Columns,  // over all outer dims and no inner one: each thread keeps its columns while its block walks over rows
  Whole,    // over everything: each thread folds all that it sees
  Points,   // anything else: each point by itself
};

// Vectors of a row that a block takes at once where rows are cut: those of results that all blocks fold.
constexpr int kChunk = 2048;

class RowsKernel {
 public:
  RowsKernel(const fuse::FusedGraph& fused, const Region& region, const KernelOptions& options, int64_t scratch)
      : fused_(fused),
        region_(region),
        p_(region.program),
        options_(options),
        scratch_(scratch),
        space_(make_space(region)),
        emit_(region.program, fused.graph) {
    is_map_ = p_.inner == 0 && region.side.empty();
    width_ = vector_width(space_, fused, region);
    const int64_t vectors = space_.row_size() / width_;
    const bool linear = space_.inner.size() <= 1;
    shape_ = is_map_ ? RowShape{256, 0} : row_shape(vectors, linear, p_.depth());
    for (const SideReduction& s : region.side) side_kind_.push_back(kind_of(s));
    const bool columns = std::count(side_kind_.begin(), side_kind_.end(), SideKind::Columns) > 0;
    chunked_ = !region.side.empty() && p_.depth() == 0 && !columns && linear && vectors > kChunk;
    if (chunked_) shape_ = {256, 0};
  }

  Result<std::vector<Launch>> launches() {
    TW_RETURN_IF_BAD(check_types(p_));
    TW_RETURN_IF_BAD(check_sides(region_));
    std::vector<Launch> list = {main_launch()};
    for (size_t s = 0; s < region_.side.size(); ++s) list.push_back(result_launch(s));
    return list;
  }

 private:
  // --- what is where -----------------------------------------------------------------------------------------------
  bool varies_inside(int access) const {
    const auto& s = space_.stride[size_t(access)];
    return std::any_of(s.begin() + long(space_.outer.size()), s.end(), [](int64_t x) { return x != 0; });
  }
  bool instr_varies_inside(int k) const {
    const Instr& i = p_.code[size_t(k)];
    if (i.op == PwOp::Reduce) return false;
    if (i.op == PwOp::Load || i.op == PwOp::Index) return varies_inside(i.access);
    if (i.op == PwOp::Store && varies_inside(i.access)) return true;
    return std::any_of(i.arg.begin(), i.arg.end(), [&](int a) { return a >= 0 && instr_varies_inside(a); });
  }
  SideKind kind_of(const SideReduction& s) const {
    bool outer = true, inner = true, any_inner = false;
    for (size_t d = 0; d < p_.domain.size(); ++d) {
      if (p_.domain[d] == 1) continue;
      const bool reduced = s.reduced >> d & 1;
      const bool inside = p_.inner >> d & 1;
      if (inside) inner = inner && reduced, any_inner = any_inner || reduced;
      else outer = outer && reduced;
    }
    if (p_.inner == 0) {  // its fastest dim serves as the inner one
      if (outer) return SideKind::Whole;
      return shape_.kept > 0 && folds_outer_dims(s) ? SideKind::Columns : SideKind::Points;
    }
    if (outer && inner) return SideKind::Whole;
    return outer && !any_inner && shape_.kept > 0 ? SideKind::Columns : SideKind::Points;
  }
  bool folds_outer_dims(const SideReduction& s) const {
    const auto& stride = space_.side[size_t(&s - region_.side.data())];
    const auto zero = [](int64_t x) { return x == 0; };
    return std::all_of(stride.begin(), stride.begin() + long(space_.outer.size()), zero) &&
           std::none_of(stride.begin() + long(space_.outer.size()), stride.end(), zero);
  }
  const char* index() const { return space_.wide ? "i64" : "int"; }
  std::string pointer(int access) const { return fmt::format("p{}", access); }

  // Where a row (or a map's point) of an access begins: a sum over the outer dims.
  std::string base(const std::string& name, const std::vector<int64_t>& stride) const {
    std::string text = fmt::format("a.{}_at", name);
    for (size_t d = 0; d < space_.outer.size(); ++d)
      if (stride[d] != 0) text += fmt::format(" + o{} * a.{}_stride[{}]", d, name, d);
    return text;
  }
  // What is added to it inside the row. In a space of one inner dim: the element.
  std::string inside(const std::string& name, const std::vector<int64_t>& stride) const {
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

  // --- the pieces of the text --------------------------------------------------------------------------------------
  PointText point() const {
    PointText t;
    t.load = [this](const Instr& i) {
      const std::string type = element_type(p_.access[size_t(i.access)].type);
      if (in_vector(i.access)) return fmt::format("F({}::get({}))", type, element(i.access));
      return fmt::format("F({}::get(a.{}[b{}{}]))", type, pointer(i.access), i.access,
                         inside(pointer(i.access), space_.stride[size_t(i.access)]));
    };
    t.index = [this](const Instr& i) {
      return fmt::format("F(b{}{})", i.access, inside(pointer(i.access), space_.stride[size_t(i.access)]));
    };
    t.store = [this](const Instr& i, const std::string& value) {
      const std::string type = element_type(p_.access[size_t(i.access)].type);
      if (in_vector(i.access)) return fmt::format("y{}.e[k] = {}::set({});", i.access, type, value);
      return fmt::format("a.{}[b{}{}] = {}::set({});", pointer(i.access), i.access,
                         inside(pointer(i.access), space_.stride[size_t(i.access)]), type, value);
    };
    return t;
  }
  bool in_vector(int access) const { return width_ > 1 && varies_inside(access); }
  bool is_kept(int access) const { return shape_.kept > 0 && kept_.count(access); }
  std::string element(int access) const {
    return is_kept(access) ? fmt::format("x{}[v].e[k]", access) : fmt::format("x{}.e[k]", access);
  }
  std::string vector_type(int access) const {
    return fmt::format("vec<{}, {}>", element_type(p_.access[size_t(access)].type), width_);
  }
  std::string vector_at(int access) const {
    return fmt::format("*reinterpret_cast<{}{}*>(a.{} + b{} + c * {})", "", vector_type(access), pointer(access),
                       access, width_);
  }

  // The loop over a row's vectors around `body`, which is said for one element k of vector c. `need`: the instructions
  // that it computes; loads and stores of vectors are put before and behind.
  std::string row_loop(const std::vector<bool>& need, const std::string& body, const std::string& indent) const {
    std::string before, after;
    std::set<int> loads, stores;
    for (size_t k = 0; k < need.size(); ++k) {
      if (!need[k]) continue;
      const Instr& i = p_.code[k];
      if (i.op == PwOp::Load && in_vector(i.access) && !is_kept(i.access)) loads.insert(i.access);
      if (i.op == PwOp::Store && in_vector(i.access)) stores.insert(i.access);
    }
    const std::string in = indent + "  ";
    for (int a : loads) before += fmt::format("{}const {} x{} = {};\n", in, vector_type(a), a, vector_at(a));
    for (int a : stores) before += fmt::format("{}{} y{};\n", in, vector_type(a), a);
    for (int a : stores) after += fmt::format("{}{} = y{};\n", in, vector_at(a), a);
    std::string text;
    if (shape_.kept > 0)
      text = fmt::format(
          "#pragma unroll\n{0}for (int v = 0; v < {1}; ++v) {{\n{0}  const Index c = threadIdx.x + v * {2};\n"
          "{0}  if (c >= a.vectors) break;\n",
          indent, shape_.kept, shape_.threads);
    else if (chunked_)
      text = fmt::format("{}for (Index c = first + threadIdx.x; c < first + {} && c < a.vectors; c += {}) {{\n", indent,
                         kChunk, shape_.threads);
    else text = fmt::format("{}for (Index c = threadIdx.x; c < a.vectors; c += {}) {{\n", indent, shape_.threads);
    return text + before + element_loop(body, in) + after + indent + "}\n";
  }
  std::string element_loop(const std::string& body, const std::string& in) const {
    std::string text;
    if (width_ > 1) text += fmt::format("#pragma unroll\n{}for (int k = 0; k < {}; ++k) {{\n", in, width_);
    else text += in + "{\n";
    if (space_.inner.size() == 1)
      text += fmt::format("{}  const Index e = c * {}{};\n", in, width_, width_ > 1 ? " + k" : "");
    else text += decompose("i", "c", "inner", space_.inner.size(), in + "  ");
    return text + body + in + "}\n";
  }

  // --- the main kernel ---------------------------------------------------------------------------------------------
  Launch main_launch() {
    Launch launch;
    launch.name = region_.name;
    launch.block = shape_.threads;
    Arguments args;
    declare_arguments(args);
    const std::string body = is_map_ ? map_body() : rows_body();
    launch.text = header() + fmt::format("struct Args {{\n{}}};\n\n", args.declaration()) + emit_.functions() +
                  fmt::format(
                      "\nextern \"C\" __global__ void __launch_bounds__({}) tw_kernel(const __grid_constant__ "
                      "Args a) {{\n",
                      shape_.threads) +
                  body + "}\n}  // namespace tw\n";
    args.finish(launch);
    const int64_t vectors = space_.row_size() / width_;
    if (is_map_) launch.grid = (space_.rows() * vectors + shape_.threads - 1) / shape_.threads;
    else if (chunked_) launch.grid = std::min(space_.rows() * chunks(), int64_t(options_.sms) * 8);
    else if (!region_.side.empty())
      launch.grid =
          std::min<int64_t>(space_.rows(), std::max(int64_t(options_.sms) * 1024 / shape_.threads, int64_t(1)));
    else launch.grid = space_.rows();
    launch.grid = std::max<int64_t>(1, std::min<int64_t>(launch.grid, INT32_MAX));
    launch.zero_offset = scratch_, launch.zero_bytes = side_scratch_bytes(region_, emit_.wide());
    return launch;
  }

  std::string header() const {
    return page_title(region_.name, {&p_}, fused_.graph) +
           fmt::format(
               "#include \"tilewright/prelude.cuh\"\nnamespace tw {{\ntypedef {} F;      // values\n"
               "typedef {} Index;  // of elements\n\n",
               emit_.type(), index());
  }

  void declare_arguments(Arguments& args) const {
    for (size_t k = 0; k < p_.access.size(); ++k) {
      const fuse::Access& a = p_.access[k];
      if (a.tensor != ir::kNone) args.pointer(element_type(a.type), pointer(int(k)), fused_, a.tensor);
    }
    for (size_t s = 0; s < region_.side.size(); ++s)
      args.workspace("F", fmt::format("fold{}", s), scratch_ + side_offset(region_, s, emit_.wide()));
    for (int k : emit_.scalars()) args.scalar(emit_.scalar(k), fused_.graph, p_.code[size_t(k)].tensor, emit_.wide());
    args.integer("rows", space_.rows(), space_.wide);
    args.integer("vectors", space_.row_size() / width_, space_.wide);
    if (chunked_) args.integer("chunks", chunks(), space_.wide);
    args.integers("outer", space_.outer, space_.wide);
    args.integers("inner", space_.inner, space_.wide);
    for (size_t k = 0; k < p_.access.size(); ++k) {
      args.integer(pointer(int(k)) + "_at", p_.access[k].offset, space_.wide);
      args.integers(pointer(int(k)) + "_stride", space_.stride[k], space_.wide);
    }
    for (size_t s = 0; s < region_.side.size(); ++s) {
      args.integers(fmt::format("fold{}_stride", s), side_strides(s), space_.wide);
      args.integer(fmt::format("fold{}_at", s), 0, space_.wide);
    }
  }

  std::string bases(const std::string& indent) const {
    std::string text;
    for (size_t k = 0; k < p_.access.size(); ++k)
      text += fmt::format("{}const Index b{} = {};\n", indent, k, base(pointer(int(k)), space_.stride[k]));
    return text;
  }

  // A thread for each vector.
  std::string map_body() const {
    std::string text = "  const Index at = blockIdx.x * Index(blockDim.x) + threadIdx.x;\n";
    text += "  if (at >= a.rows * a.vectors) return;\n";
    if (space_.outer.empty()) text += "  const Index c = at;\n";
    else text += "  const Index row = at / a.vectors, c = at - row * a.vectors;\n";
    text += decompose("o", "row", "outer", space_.outer.size(), "  ") + bases("  ");
    std::vector<bool> all(p_.code.size(), true);
    const auto wanted = [&](int) { return true; };
    const auto known = [](int) { return false; };
    std::string before, after;
    std::set<int> loads, stores;
    for (const Instr& i : p_.code) {
      if (i.op == PwOp::Load && in_vector(i.access)) loads.insert(i.access);
      if (i.op == PwOp::Store && in_vector(i.access)) stores.insert(i.access);
    }
    for (int a : loads) before += fmt::format("  const {} x{} = {};\n", vector_type(a), a, vector_at(a));
    for (int a : stores) before += fmt::format("  {} y{};\n", vector_type(a), a);
    for (int a : stores) after += fmt::format("  {} = y{};\n", vector_at(a), a);
    return text + before + element_loop(emit_.statements(point(), wanted, known, "    "), "  ") + after;
  }

  // A block for each row: a pass for each depth of reductions, and one that stores.
  std::string rows_body() {
    for (size_t k = 0; k < p_.code.size(); ++k)
      if (p_.code[k].op == PwOp::Load && in_vector(p_.code[k].access) && shape_.kept > 0 && streams(p_.code[k].access))
        kept_.insert(p_.code[k].access);
    std::string text = "  __shared__ F shared[2][32];\n  int turn = 0;\n";
    for (size_t s = 0; s < region_.side.size(); ++s) text += side_start(s);
    if (chunked_)
      text += fmt::format(
          "  for (Index part = blockIdx.x; part < a.rows * a.chunks; part += gridDim.x) {{\n"
          "    const Index row = part / a.chunks, first = (part - row * a.chunks) * {};\n",
          kChunk);
    else text += "  for (Index row = blockIdx.x; row < a.rows; row += gridDim.x) {\n";
    text += decompose("o", "row", "outer", space_.outer.size(), "    ") + bases("    ");
    for (int a : kept_) text += fmt::format("    {} x{}[{}];\n", vector_type(a), a, shape_.kept);
    if (!kept_.empty()) {
      text += fmt::format(
          "#pragma unroll\n    for (int v = 0; v < {}; ++v) {{\n      const Index c = threadIdx.x + v * {};\n"
          "      if (c >= a.vectors) break;\n",
          shape_.kept, shape_.threads);
      for (int a : kept_) text += fmt::format("      x{}[v] = {};\n", a, vector_at(a));
      text += "    }\n";
    }
    std::vector<bool> known(p_.code.size(), false);
    const auto is_known = [&](int k) { return known[size_t(k)]; };
    // Values of the whole row, as soon as what they need is there.
    const auto row_values = [&](int depth) {
      std::vector<bool> now(p_.code.size(), false);
      for (size_t k = 0; k < p_.code.size(); ++k) {
        const Instr& i = p_.code[k];
        now[k] = !known[k] && i.op != PwOp::Reduce && i.op != PwOp::Store && i.depth <= depth &&
                 !instr_varies_inside(int(k));
      }
      text += emit_.statements(
          point_of_row(), [&](int k) { return now[size_t(k)]; }, is_known, "    ");
      for (size_t k = 0; k < now.size(); ++k) known[k] = known[k] || now[k];
    };
    row_values(0);
    for (int depth = 1; depth <= p_.depth(); ++depth) {
      std::vector<int> reduces, roots;
      for (size_t k = 0; k < p_.code.size(); ++k)
        if (p_.code[k].op == PwOp::Reduce && p_.code[k].depth == depth) {
          reduces.push_back(int(k));
          roots.push_back(p_.code[k].arg[0]);
        }
      const std::vector<bool> need = emit_.needed(roots, is_known);
      std::string body = emit_.statements(
          point(), [&](int k) { return need[size_t(k)]; }, is_known, "        ");
      for (int k : reduces) {
        const char* r = reduction_type(p_.code[size_t(k)].reduce);
        text += fmt::format("    F r{} = {}::start<F>();\n", k, r);
        body += fmt::format("        r{0} = {1}::join(r{0}, {1}::element({2}));\n", k, r,
                            emit_.value(p_.code[size_t(k)].arg[0]));
      }
      text += row_loop(need, body, "    ");
      for (int k : reduces) {
        const char* r = reduction_type(p_.code[size_t(k)].reduce);
        text += fmt::format(
            "    const F {} = {}::finish(block_reduce<{}>(r{}, shared[turn ^= 1]), double(a.vectors) * "
            "{});\n",
            emit_.value(k), r, r, k, width_);
        known[size_t(k)] = true;
      }
      row_values(depth);
    }
    text += last_pass(is_known);
    text += "  }\n";
    for (size_t s = 0; s < region_.side.size(); ++s) text += side_end(s);
    return text;
  }

  // Loads of the whole row: nothing is added inside it.
  PointText point_of_row() const {
    PointText t = point();
    t.load = [this](const Instr& i) {
      return fmt::format("F({}::get(a.{}[b{}]))", element_type(p_.access[size_t(i.access)].type), pointer(i.access),
                         i.access);
    };
    t.index = [](const Instr& i) { return fmt::format("F(b{})", i.access); };
    return t;
  }

  bool streams(int access) const {
    const auto& s = space_.stride[size_t(access)];
    return std::any_of(s.begin(), s.begin() + long(space_.outer.size()), [](int64_t x) { return x != 0; }) ||
           space_.outer.empty();
  }

  std::string last_pass(const std::function<bool(int)>& is_known) {
    std::vector<int> inside, once;
    for (size_t k = 0; k < p_.code.size(); ++k)
      if (p_.code[k].op == PwOp::Store) (instr_varies_inside(int(k)) ? inside : once).push_back(int(k));
    for (const SideReduction& s : region_.side) inside.push_back(s.value);
    std::string text;
    if (!inside.empty()) {
      const std::vector<bool> need = emit_.needed(inside, is_known);
      std::string body = emit_.statements(
          point(), [&](int k) { return need[size_t(k)]; }, is_known, "        ");
      for (size_t s = 0; s < region_.side.size(); ++s) body += side_point(s);
      text += row_loop(need, body, "    ");
    }
    if (!once.empty()) {
      std::string stores;
      for (int k : once) {
        const Instr& i = p_.code[size_t(k)];
        stores += fmt::format("      a.{}[b{}] = {}::set({});\n", pointer(i.access), i.access,
                              element_type(p_.access[size_t(i.access)].type), emit_.value(i.arg[0]));
      }
      text += "    if (threadIdx.x == 0) {\n" + stores + "    }\n";
    }
    return text;
  }

  // --- side reductions: folded in the workspace, in F, and stored by a launch of their own
  // -----------------------------
  // Row-major strides over the kept dims of the region's domain, as the space has them.
  std::vector<int64_t> side_strides(size_t s) const {
    const std::vector<int64_t>& like = space_.side[s];  // 0 along the reduced dims
    std::vector<int64_t> extents = space_.outer;
    extents.insert(extents.end(), space_.inner.begin(), space_.inner.end());
    std::vector<int64_t> stride(like.size(), 0);
    int64_t step = 1;
    for (size_t d = like.size(); d-- > 0;)
      if (!reduced_in_space(s, d)) stride[d] = step, step *= extents[d];
    return stride;
  }
  // A dim of the space is reduced where the result has one element for all of it.
  bool reduced_in_space(size_t s, size_t d) const { return space_.side[s][d] == 0; }
  std::string side_start(size_t s) const {
    const std::string r = reduction_type(region_.side[s].mode);
    if (side_kind_[s] == SideKind::Whole) return fmt::format("  F w{} = {}::start<F>();\n", s, r);
    if (side_kind_[s] != SideKind::Columns) return "";
    return fmt::format(
        "  F w{0}[{1}][{2}];\n#pragma unroll\n  for (int v = 0; v < {1}; ++v)\n#pragma unroll\n"
        "    for (int k = 0; k < {2}; ++k) w{0}[v][k] = {3}::start<F>();\n",
        s, shape_.kept, width_, r);
  }
  std::string side_point(size_t s) const {
    const std::string r = reduction_type(region_.side[s].mode), value = emit_.value(region_.side[s].value);
    const std::string element = fmt::format("{}::element({})", r, value);
    const std::string name = fmt::format("fold{}", s);
    switch (side_kind_[s]) {
      case SideKind::Whole: return fmt::format("        w{0} = {1}::join(w{0}, {2});\n", s, r, element);
      case SideKind::Columns: {
        const std::string at = fmt::format("w{}[v][{}]", s, width_ > 1 ? "k" : "0");
        return fmt::format("        {0} = {1}::join({0}, {2});\n", at, r, element);
      }
      default:
        return fmt::format("        fold({}(), a.{} + ({}{}), {});\n", fold_type(region_.side[s].mode), name,
                           base(name, side_strides(s)), inside(name, side_strides(s)), element);
    }
  }
  std::string side_end(size_t s) const {
    const std::string r = reduction_type(region_.side[s].mode);
    if (side_kind_[s] == SideKind::Whole)
      return fmt::format(
          "  w{0} = block_reduce<{1}>(w{0}, shared[turn ^= 1]);\n  if (threadIdx.x == 0) fold({2}(), a.fold{0}, "
          "w{0});\n",
          s, r, fold_type(region_.side[s].mode));
    if (side_kind_[s] != SideKind::Columns) return "";
    return fmt::format(
        "#pragma unroll\n  for (int v = 0; v < {1}; ++v) {{\n    const Index c = threadIdx.x + v * {3};\n"
        "    if (c >= a.vectors) break;\n#pragma unroll\n    for (int k = 0; k < {2}; ++k)\n"
        "      fold({4}(), a.fold{0} + c * {2} + k, w{0}[v][k]);\n  }}\n",
        s, shape_.kept, width_, shape_.threads, fold_type(region_.side[s].mode));
  }

  // Along the dims that a side reduction keeps.
  Launch result_launch(size_t s) const {
    std::vector<int64_t> extents, stride, all = space_.outer;
    all.insert(all.end(), space_.inner.begin(), space_.inner.end());
    for (size_t d = 0; d < all.size(); ++d)
      if (!reduced_in_space(s, d)) extents.push_back(all[d]), stride.push_back(space_.side[s][d]);
    return side_launch(fused_, region_, s, emit_.wide(), extents, stride, scratch_);
  }

  int64_t chunks() const { return (space_.row_size() / width_ + kChunk - 1) / kChunk; }

  const fuse::FusedGraph& fused_;
  const Region& region_;
  const PwProgram& p_;
  KernelOptions options_;
  int64_t scratch_;
  Space space_;
  Emitter emit_;
  bool is_map_ = false, chunked_ = false;
  int width_ = 1;
  RowShape shape_{256, 0};
  std::vector<SideKind> side_kind_;
  std::set<int> kept_;
};

}  // namespace

Result<std::vector<Launch>> rows_launches(const fuse::FusedGraph& fused, const Region& region,
                                          const KernelOptions& options, int64_t scratch_offset) {
  if (!wants_split(region, options)) return RowsKernel(fused, region, options, scratch_offset).launches();
  fuse::FusedGraph split = fused;
  std::vector<Launch> all;
  int64_t at = scratch_offset + split_scratch_bytes(region);
  for (const Region& part : split_rows(split, region, scratch_offset)) {
    TW_ASSIGN_OR_RETURN(std::vector<Launch> list, RowsKernel(split, part, options, at).launches());
    at += side_scratch_bytes(part, part.program.needs_double());
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

int64_t rows_scratch_bytes(const Region& region, const KernelOptions& options) {
  if (!wants_split(region, options)) return side_scratch_bytes(region, region.program.needs_double());
  fuse::FusedGraph unused;
  int64_t bytes = split_scratch_bytes(region);
  for (const Region& part : split_rows(unused, region, 0))
    bytes += side_scratch_bytes(part, part.program.needs_double());
  return bytes;
}

}  // namespace tilewright::cuda
