#include "engines/cuda/contraction_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/numeric_types.h"
#include "engines/cuda/element.h"
#include "engines/cuda/side.h"

namespace tilewright::cuda {

using fuse::Instr;
using fuse::PwOp;
using fuse::PwProgram;

namespace {

int element_bytes(DataType_t type) { return std::max(1, element_bits(type) / 8); }

// Whether `width` elements can be moved at once along `dim`, where the line has stride 1.
bool fits(const fuse::FusedGraph& fused, const fuse::Access& access, const Line& line, size_t dim, int width) {
  if (element_type(access.type).empty()) return width == 1;
  const int bytes = std::min(16, width * element_bytes(access.type));
  const bool ours = fused.place[size_t(access.tensor)].workspace >= 0;
  if ((ours ? 16 : fused.graph.tensor(access.tensor).alignment) % bytes != 0 || line.start % width != 0) return false;
  for (size_t d = 0; d < line.step.size(); ++d)
    if (d != dim && line.step[d] % width != 0) return false;
  return true;
}

}  // namespace

ContractionPage::ContractionPage(const fuse::FusedGraph& fused, const fuse::Region& region,
                                 const OrderedProblem& ordered, const ContractionSpace& space,
                                 const ContractionRoute& route, int64_t side_scratch, int64_t part_scratch)
    : fused_(fused),
      region_(region),
      ordered_(ordered),
      space_(space),
      route_(route),
      side_scratch_(side_scratch),
      part_scratch_(part_scratch),
      operand_{Operand{"A", 'm', &region.operand[ordered.exchanged ? 1 : 0]},
               Operand{"B", 'n', &region.operand[ordered.exchanged ? 0 : 1]}},
      emit_{Emitter(*operand_[0].program, fused.graph, "A", route.wide),
            Emitter(*operand_[1].program, fused.graph, "B", route.wide)},
      result_emit_(region.program, fused.graph, "R", route.wide) {
  choose_widths();
  result_width_ = result_width();
}

// --- how many elements at once ---------------------------------------------------------------------------------------

// Along the fastest dim of a group: the elements that every access that moves along it can load at once.
int ContractionPage::lane_width(const Operand& o, size_t operand, char group, int most) const {
  const int dim = space_.last(group);
  if (dim < 0) return 1;
  for (const Window& w : space_.window[operand])
    if (w.at.step[size_t(dim)] != 0 || w.divisor != 1) return 1;
  int width = most;
  while (space_.dims[size_t(dim)].extent % width != 0) width /= 2;
  for (const Instr& i : o.program->code) {
    if (i.op != PwOp::Load) continue;
    const Line& line = space_.operand[operand][size_t(i.access)];
    if (line.step[size_t(dim)] == 0) continue;
    if (line.step[size_t(dim)] != 1) return 1;
    while (!fits(fused_, o.program->access[size_t(i.access)], line, size_t(dim), width)) width /= 2;
    for (const Window& w : space_.window[operand])
      while (w.along[size_t(i.access)] % width != 0) width /= 2;
  }
  return width;
}

void ContractionPage::choose_widths() {
  const bool ends =
      ordered_.problem.m_end != ir::kNone || ordered_.problem.n_end != ir::kNone || ordered_.problem.k_end != ir::kNone;
  for (size_t k = 0; k < 2; ++k) {
    Operand& o = operand_[k];
    const std::string& e = route_.element[k];
    const int bytes = e == "f64" ? 8 : e == "f32" ? 4 : e == "f16" || e == "bf16" ? 2 : 1;
    const int most = ends || route_.kind == ContractionRoute::Points ? 1 : 16 / bytes;
    const int sums = lane_width(o, k, 'k', most), rows = lane_width(o, k, o.group, most);
    o.width = std::max(sums, rows), o.along_sums = sums > rows;
    if (sums != rows || space_.last('k') < 0) continue;
    // Neither is better: along the dim that moves least through memory.
    int64_t step[2] = {INT64_MAX, INT64_MAX};
    for (const Line& line : space_.operand[k])
      for (int g = 0; g < 2; ++g)
        if (const int d = space_.last(g ? 'k' : o.group); d >= 0 && line.step[size_t(d)] != 0)
          step[g] = std::min(step[g], std::abs(line.step[size_t(d)]));
    o.along_sums = step[1] <= step[0];
  }
}

int ContractionPage::result_width() const {
  const int dim = space_.last('n');
  if (dim < 0) return 1;
  int width = 8;
  while (space_.dims[size_t(dim)].extent % width != 0) width /= 2;
  for (const Instr& i : region_.program.code) {
    if (i.op != PwOp::Load && i.op != PwOp::Store) continue;
    const Line& line = space_.result[size_t(i.access)];
    if (line.step[size_t(dim)] == 0 && i.op == PwOp::Load) continue;
    if (line.step[size_t(dim)] != 1) return 1;
    while (!fits(fused_, region_.program.access[size_t(i.access)], line, size_t(dim), width)) width /= 2;
  }
  return width;
}

ContractionPage::Fold ContractionPage::fold_of(size_t side, bool points) const {
  const Line& line = space_.side[side];
  const auto zero = [](int64_t s) { return s == 0; };
  if (std::all_of(line.step.begin(), line.step.end(), zero)) return Fold::Whole;
  bool rows = true;
  for (int d : space_.dims_of('m')) rows = rows && line.step[size_t(d)] == 0;
  return rows && !points ? Fold::Columns : Fold::Points;
}

// --- indices ---------------------------------------------------------------------------------------------------------
namespace {

const char* group_name(char group) {
  return group == 'b' ? "batch" : group == 'm' ? "row" : group == 'n' ? "column" : "sum";
}

}  // namespace

// Declares m0, m1, ... of a linear index of the group.
std::string ContractionPage::digits(char group, const std::string& from, const std::string& indent) const {
  const size_t rank = space_.dims_of(group).size();
  if (rank == 0) return "";
  if (rank == 1) return fmt::format("{}const Index {}0 = {};\n", indent, group, from);
  std::string text = fmt::format("{}Index {}_rest = {};\n", indent, group, from);
  for (size_t d = rank; d-- > 1;)
    text += fmt::format("{0}const Index {1}{2} = split({1}_rest, a.{3}_by[{4}]);\n", indent, group, d,
                        group_name(group), d - 1);
  return text + fmt::format("{0}const Index {1}0 = {1}_rest;\n", indent, group);
}

// What the dims of the groups add to a line.
std::string ContractionPage::terms(const std::string& name, const Line& line, const std::string& groups) const {
  std::string text;
  int at = 0;
  std::array<int, 128> digit = {};
  for (size_t d = 0; d < space_.dims.size(); ++d) {
    const char group = space_.dims[d].group;
    const int k = digit[size_t(group)]++;
    if (line.step[d] == 0) continue;
    if (groups.find(group) != groups.npos)
      text += fmt::format("{}{}{} * a.{}_step[{}]", text.empty() ? "" : " + ", group, k, name, at);
    ++at;
  }
  return text.empty() ? "0" : text;
}

std::string ContractionPage::step_of(const std::string& name, const Line& line, int dim) const {
  if (dim < 0 || line.step[size_t(dim)] == 0) return "0";
  const auto nonzero = std::count_if(line.step.begin(), line.step.begin() + dim, [](int64_t s) { return s != 0; });
  return fmt::format("a.{}_step[{}]", name, nonzero);
}

void ContractionPage::declare(Arguments& args, const std::string& name, const Line& line) const {
  std::vector<int64_t> steps;
  for (int64_t s : line.step)
    if (s != 0) steps.push_back(s);
  args.integer(name + "_at", line.start, space_.wide);
  args.integers(name + "_step", steps, space_.wide);
}

void ContractionPage::declare_sizes(Arguments& args) const {
  args.integer("batches", space_.size('b'), space_.wide);
  args.integer("rows", space_.size('m'), space_.wide);
  args.integer("columns", space_.size('n'), space_.wide);
  args.integer("sums", space_.size('k'), space_.wide);
  args.integer("parts", route_.parts, space_.wide);
  args.integer("part_sums", route_.part_sums, space_.wide);
  for (const char group : {'b', 'm', 'n', 'k'}) {
    std::vector<int64_t> by;
    for (int d : space_.dims_of(group)) by.push_back(std::max<int64_t>(1, space_.dims[size_t(d)].extent));
    if (by.size() < 2) continue;
    by.erase(by.begin());
    args.dividers(fmt::format("{}_by", group_name(group)), by, space_.wide);
  }
}

// --- operands --------------------------------------------------------------------------------------------------------
void ContractionPage::declare_end(Arguments& args, const std::string& name, ir::TensorId id) const {
  if (id == ir::kNone) return;
  const ir::Tensor& t = fused_.graph.tensor(id);
  if (t.role == ir::Role::Scalar) return args.scalar(name, fused_.graph, id, true);
  const fuse::Place& place = fused_.place[size_t(id)];
  args.pointer("const " + element_type(t.storage_type()), name, fused_, place.root, 0);
  args.integer(name + "_at", place.offset, true);
  args.integers(name + "_extent", t.dim, true);
  args.integers(name + "_stride", t.stride, true);
}

// A size that a tensor gives for each batch.
std::string ContractionPage::end_of(ir::TensorId id, const std::string& name, const std::string& full) const {
  const ir::Tensor& t = fused_.graph.tensor(id);
  if (t.role == ir::Role::Scalar) return fmt::format("size_within(a.{}, a.{})", name, full);
  std::string at = fmt::format("a.{}_at", name), by = "i64(batch)";
  for (size_t d = t.dim.size(); d-- > 0;) {
    at += fmt::format(" + {1} % a.{0}_extent[{2}] * a.{0}_stride[{2}]", name, by, d);
    by = fmt::format("({} / a.{}_extent[{}])", by, name, d);
  }
  return fmt::format("size_within({}::get(a.{}[{}]), a.{})", element_type(t.storage_type()), name, at, full);
}

void ContractionPage::declare_operand(Arguments& args, size_t k) const {
  const Operand& o = operand_[k];
  for (size_t i = 0; i < o.program->access.size(); ++i) {
    const fuse::Access& access = o.program->access[i];
    const std::string name = fmt::format("{}{}", o.name, i);
    if (access.tensor != ir::kNone) args.pointer("const " + memory_type(access.type), name, fused_, access.tensor);
    declare(args, name, space_.operand[k][i]);
  }
  for (size_t i = 0; i < space_.window[k].size(); ++i) {
    const Window& w = space_.window[k][i];
    const std::string name = fmt::format("{}w{}", o.name, i);
    declare(args, name, w.at);
    args.integer(name + "_extent", w.extent, space_.wide);
    if (w.divisor == 1) continue;
    args.integer(name + "_divisor", w.divisor, space_.wide);
    args.integers(name + "_along", w.along, space_.wide);
  }
  for (int i : emit_[k].scalars())
    args.scalar(emit_[k].scalar(i), fused_.graph, o.program->code[size_t(i)].tensor, emit_[k].wide());
  const auto& p = ordered_.problem;
  declare_end(args, o.name + "_end", k == 0 ? p.m_end : p.n_end);
  declare_end(args, o.name + "_sum_end", p.k_end);
}

std::string ContractionPage::operand_text(size_t k) const {
  const Operand& o = operand_[k];
  const auto& p = ordered_.problem;
  const ir::TensorId row_end = k == 0 ? p.m_end : p.n_end;
  const bool padded = row_end != ir::kNone || p.k_end != ir::kNone;
  std::string members, row, sum;
  const std::string groups = std::string("b") + o.group;
  const auto line = [&](const std::string& member, const std::string& name, const Line& l) {
    members += fmt::format("{}{}", members.empty() ? "" : ", ", member);
    row += fmt::format("    t.{} = a.{}_at + {};\n", member, name, terms(name, l, groups));
    sum += fmt::format("    t.{} = {};\n", member, terms(name, l, "k"));
  };
  for (size_t i = 0; i < space_.operand[k].size(); ++i)
    line(fmt::format("p{}", i), fmt::format("{}{}", o.name, i), space_.operand[k][i]);
  for (size_t i = 0; i < space_.window[k].size(); ++i)
    line(fmt::format("w{}", i), fmt::format("{}w{}", o.name, i), space_.window[k][i].at);
  if (padded) {
    const std::string full = k == 0 ? "rows" : "columns";
    row += fmt::format("    t.padded = {};\n",
                       row_end == ir::kNone ? "false" : "i >= " + end_of(row_end, o.name + "_end", full));
    sum += fmt::format("    t.padded = {};\n",
                       p.k_end == ir::kNone ? "false" : "i >= " + end_of(p.k_end, o.name + "_sum_end", "sums"));
  }
  return fmt::format(
      "struct {} {{\n  typedef {} Element;\n  static constexpr int kWidth = {};\n"
      "  static constexpr bool kAlongSums = {}, kCopied = {};\n  struct At {{\n{}    bool in{};\n  }};\n"
      "  DEV At row(const Args& a, Index batch, Index i) {{\n{}{}    At t;\n{}    t.in = i < a.{};\n    return t;\n  "
      "}}\n"
      "  DEV At sum(const Args& a, Index batch, Index i) {{\n{}    At t;\n{}    t.in = i < a.sums;\n    return t;\n  "
      "}}\n"
      "{}}};\n\n",
      o.name, route_.element[k], o.width, o.along_sums, is_copied(k),
      members.empty() ? "" : "    Index " + members + ";\n", padded ? ", padded" : "", digits('b', "batch", "    "),
      digits(o.group, "i", "    "), row, k == 0 ? "rows" : "columns", digits('k', "i", "    "), sum, load_text(k));
}

// Memory has the elements that are multiplied.
bool ContractionPage::is_as_it_is(size_t k) const {
  const PwProgram& p = *operand_[k].program;
  const Instr& result = p.code[size_t(p.result)];
  return result.op == PwOp::Load && element_type(p.access[size_t(result.access)].type) == route_.element[k];
}

// And so that they go to shared memory 16 bytes at a time without passing through registers.
bool ContractionPage::is_copied(size_t k) const {
  const Operand& o = operand_[k];
  if (!route_.copies || route_.kind != ContractionRoute::TensorCores || !is_as_it_is(k)) return false;
  const int bytes = route_.element[k].find("16") != std::string::npos ? 2 : 1;
  const int lane = space_.last(o.along_sums ? 'k' : o.group);
  const int access = o.program->code[size_t(o.program->result)].access;
  return o.width * bytes == 16 && (o.along_sums || bytes == 2) &&
         space_.operand[k][size_t(access)].step[size_t(lane)] == 1;
}

// Elements where a row and a sum meet.
std::string ContractionPage::load_text(size_t k) const {
  const Operand& o = operand_[k];
  const PwProgram& p = *o.program;
  const int lane = space_.last(o.along_sums ? 'k' : o.group);
  const auto step = [&](int access) { return lane < 0 ? 0 : space_.operand[k][size_t(access)].step[size_t(lane)]; };
  const auto in_vector = [&](int access) { return o.width > 1 && step(access) != 0; };
  std::string text = "    bool in = r.in && s.in;\n";
  for (size_t i = 0; i < p.access.size(); ++i) text += fmt::format("    Index b{0} = r.p{0} + s.p{0};\n", i);
  for (size_t i = 0; i < space_.window[k].size(); ++i) {
    const Window& w = space_.window[k][i];
    text += fmt::format("    const Index w{0} = r.w{0} + s.w{0};\n", i);
    if (w.divisor == 1) {
      text += fmt::format("    in = in && w{0} >= 0 && w{0} < a.{1}w{0}_extent;\n", i, o.name);
      continue;
    }
    text += fmt::format(
        "    const Index q{0} = w{0} / a.{1}w{0}_divisor;\n"
        "    in = in && w{0} >= 0 && q{0} * a.{1}w{0}_divisor == w{0} && q{0} < a.{1}w{0}_extent;\n",
        i, o.name);
    for (size_t access = 0; access < p.access.size(); ++access)
      text += fmt::format("    b{} += q{} * a.{}w{}_along[{}];\n", access, i, o.name, i, access);
  }
  const Instr& result = p.code[size_t(p.result)];
  if (is_copied(k))
    return "  DEV bool find(const Args& a, const At& r, const At& s, const Element*& at) {\n" + text +
           fmt::format("    at = in ? a.{0}{1} + b{1} : a.{0}{1};\n    return in;\n  }}\n", o.name, result.access);
  text = "  DEV void load(const Args& a, const At& r, const At& s, Element* to) {\n" + text;
  const std::string loop = o.width > 1 ? fmt::format("#pragma unroll\n    for (int v = 0; v < {}; ++v) {{\n", o.width)
                                       : "    {\n      const int v = 0;\n";
  text += fmt::format(
      "    if (!in) {{\n#pragma unroll\n      for (int v = 0; v < {}; ++v) to[v] = Element{{}};\n      return;\n    "
      "}}\n",
      o.width);
  const auto& problem = ordered_.problem;
  if ((k == 0 ? problem.m_end : problem.n_end) != ir::kNone || problem.k_end != ir::kNone)
    text += fmt::format("    if (r.padded || s.padded) {{\n      to[0] = Element::set(F({}));\n      return;\n    }}\n",
                        number(problem.padding, true));
  std::set<int> vectors;
  for (const Instr& i : p.code)
    if (i.op == PwOp::Load && in_vector(i.access)) vectors.insert(i.access);
  for (int i : vectors)
    text += fmt::format("    const vec<{0}, {1}> x{2} = *reinterpret_cast<const vec<{0}, {1}>*>(a.{3}{2} + b{2});\n",
                        element_type(p.access[size_t(i)].type), o.width, i, o.name);
  const auto element = [&](int access) {
    return in_vector(access) ? fmt::format("x{}.e[v]", access) : fmt::format("a.{0}{1}[b{1}]", o.name, access);
  };
  PointText point;
  point.load = [&](const Instr& i) {
    const DataType_t type = p.access[size_t(i.access)].type;
    if (in_vector(i.access)) return fmt::format("F({}::get({}))", element_type(type), element(i.access));
    return cuda::load_text(type, fmt::format("{}{}", o.name, i.access), fmt::format("b{}", i.access));
  };
  point.index = [&](const Instr& i) {
    return fmt::format("F(b{} + v * {})", i.access,
                       step_of(fmt::format("{}{}", o.name, i.access), space_.operand[k][size_t(i.access)], lane));
  };
  text += loop;
  if (is_as_it_is(k)) {
    text += fmt::format("      to[v] = {};\n", element(result.access));
  } else {
    text += emit_[k].statements(
        point, [](int) { return true; }, [](int) { return false; }, "      ");
    text += fmt::format("      to[v] = Element::set({});\n", emit_[k].value(p.result));
  }
  return text + "    }\n  }\n";
}

// --- the result ------------------------------------------------------------------------------------------------------
void ContractionPage::declare_result(Arguments& args) const {
  const PwProgram& p = region_.program;
  for (size_t i = 0; i < p.access.size(); ++i) {
    const std::string name = fmt::format("R{}", i);
    if (p.access[i].tensor != ir::kNone) args.pointer(memory_type(p.access[i].type), name, fused_, p.access[i].tensor);
    declare(args, name, space_.result[i]);
  }
  for (size_t s = 0; s < region_.side.size(); ++s) {
    const std::string name = fmt::format("fold{}", s);
    args.workspace("F", name, side_scratch_ + side_offset(region_, s, route_.wide));
    declare(args, name, space_.side[s]);
  }
  for (int i : result_emit_.scalars())
    args.scalar(result_emit_.scalar(i), fused_.graph, p.code[size_t(i)].tensor, result_emit_.wide());
}

std::string ContractionPage::result_text(bool points) const {
  const int width = points && route_.parts == 1 ? 1 : result_width_;
  std::string members, row, column, folds, start;
  int kept = 0;
  const auto line = [&](const std::string& member, const std::string& name, const Line& l) {
    members += fmt::format("{}{}", members.empty() ? "" : ", ", member);
    row += fmt::format("    t.{} = a.{}_at + {};\n", member, name, terms(name, l, "bm"));
    column += fmt::format("    t.{} = {};\n", member, terms(name, l, "n"));
  };
  for (size_t i = 0; i < space_.result.size(); ++i)
    line(fmt::format("p{}", i), fmt::format("R{}", i), space_.result[i]);
  for (size_t s = 0; s < space_.side.size(); ++s) {
    line(fmt::format("f{}", s), fmt::format("fold{}", s), space_.side[s]);
    const Fold fold = fold_of(s, points);
    const char* r = reduction_type(region_.side[s].mode);
    if (fold == Fold::Points) continue;
    ++kept;
    if (fold == Fold::Whole) {
      folds += fmt::format("    F w{};\n", s);
      start += fmt::format("    w.w{} = {}::start<F>();\n", s, r);
    } else {
      folds += fmt::format("    F w{}[{}];\n", s, width);
      start +=
          fmt::format("#pragma unroll\n    for (int v = 0; v < {}; ++v) w.w{}[v] = {}::start<F>();\n", width, s, r);
    }
  }
  return fmt::format(
      "struct R {{\n  typedef F Value;\n  static constexpr int kWidth = {}, kFolds = {};\n"
      "  struct At {{\n    Index {};\n  }};\n  struct Folds {{\n{}  }};\n"
      "  DEV At row(const Args& a, Index batch, Index i) {{\n{}{}    At t;\n{}    return t;\n  }}\n"
      "  DEV At column(const Args& a, Index i) {{\n{}    At t;\n{}    return t;\n  }}\n"
      "  DEV void start(Folds& w) {{\n{}  }}\n{}{}}};\n\n",
      width, kept, members, folds, digits('b', "batch", "    "), digits('m', "i", "    "), row,
      digits('n', "i", "    "), column, start, apply_text(points, width), finish_text(points));
}

std::string ContractionPage::apply_text(bool points, int width) const {
  const PwProgram& p = region_.program;
  const int lane = space_.last('n');
  const auto step = [&](const Line& l) { return lane < 0 ? 0 : l.step[size_t(lane)]; };
  const auto in_vector = [&](int access) { return width > 1 && step(space_.result[size_t(access)]) != 0; };
  const auto type = [&](int access) { return element_type(p.access[size_t(access)].type); };
  std::string before, after, body;
  for (size_t i = 0; i < p.access.size(); ++i) before += fmt::format("    const Index b{0} = r.p{0} + c.p{0};\n", i);
  std::set<int> loads, stores;
  for (const Instr& i : p.code)
    if ((i.op == PwOp::Load || i.op == PwOp::Store) && in_vector(i.access))
      (i.op == PwOp::Load ? loads : stores).insert(i.access);
  for (int i : loads)
    before += fmt::format("    const vec<{0}, {1}> x{2} = *reinterpret_cast<const vec<{0}, {1}>*>(a.R{2} + b{2});\n",
                          type(i), width, i);
  for (int i : stores) before += fmt::format("    vec<{}, {}> y{};\n", type(i), width, i);
  for (int i : stores)
    after += fmt::format("    *reinterpret_cast<vec<{0}, {1}>*>(a.R{2} + b{2}) = y{2};\n", type(i), width, i);
  PointText point;
  point.load = [&](const Instr& i) {
    if (in_vector(i.access)) return fmt::format("F({}::get(x{}.e[v]))", type(i.access), i.access);
    return cuda::load_text(p.access[size_t(i.access)].type, fmt::format("R{}", i.access), fmt::format("b{}", i.access));
  };
  point.index = [&](const Instr& i) {
    return fmt::format("F(b{} + v * {})", i.access,
                       step_of(fmt::format("R{}", i.access), space_.result[size_t(i.access)], lane));
  };
  point.in = [](const Instr&) { return "x[v]"; };
  point.store = [&](const Instr& i, const std::string& value) {
    if (in_vector(i.access)) return fmt::format("y{}.e[v] = {}::set({});", i.access, type(i.access), value);
    return store_text(p.access[size_t(i.access)].type, fmt::format("R{}", i.access), fmt::format("b{}", i.access),
                      value);
  };
  body = result_emit_.statements(
      point, [](int) { return true; }, [](int) { return false; }, "      ");
  for (size_t s = 0; s < region_.side.size(); ++s) {
    const char* r = reduction_type(region_.side[s].mode);
    const std::string element = fmt::format("{}::element({})", r, result_emit_.value(region_.side[s].value));
    const Fold fold = fold_of(s, points);
    const std::string kept = fmt::format("w.w{}{}", s, fold == Fold::Columns ? "[v]" : "");
    if (fold != Fold::Points) {
      body += fmt::format("      {0} = {1}::join({0}, {2});\n", kept, r, element);
    } else if (step(space_.side[s]) != 0 || width == 1) {
      body += fmt::format("      fold({0}(), a.fold{1} + (r.f{1} + c.f{1} + v * {2}), {3});\n",
                          fold_type(region_.side[s].mode), s, step_of(fmt::format("fold{}", s), space_.side[s], lane),
                          element);
    } else {
      before += fmt::format("    F z{} = {}::start<F>();\n", s, r);
      body += fmt::format("      z{0} = {1}::join(z{0}, {2});\n", s, r, element);
      after += fmt::format("    fold({}(), a.fold{} + (r.f{} + c.f{}), z{});\n", fold_type(region_.side[s].mode), s, s,
                           s, s);
    }
  }
  const std::string loop = width > 1 ? fmt::format("#pragma unroll\n    for (int v = 0; v < {}; ++v) {{\n", width)
                                     : "    {\n      const int v = 0;\n";
  return "  DEV void apply(const Args& a, const At& r, const At& c, const F* x, Folds& w) {\n" + before + loop + body +
         "    }\n" + after + "  }\n";
}

// What threads keep, joined by the block and folded by all.
std::string ContractionPage::finish_text(bool points) const {
  std::string whole, columns;
  for (size_t s = 0; s < region_.side.size(); ++s) {
    const char* r = reduction_type(region_.side[s].mode);
    const char* f = fold_type(region_.side[s].mode);
    const Fold fold = fold_of(s, points);
    if (fold == Fold::Whole)
      whole += fmt::format(
          "    w.w{0} = join_all<{1}>(w.w{0}, shared);\n    if (threadIdx.x == 0) fold({2}(), a.fold{0}, w.w{0});\n", s,
          r, f);
    if (fold == Fold::Columns)
      columns += fmt::format(
          "    const F j{0} = join_columns<{1}, kColumns>(w.w{0}, shared);\n"
          "    if (threadIdx.x < kColumns && n0 + Index(threadIdx.x) < a.columns)\n"
          "      fold({2}(), a.fold{0} + (row(a, batch, m0).f{0} + column(a, n0 + Index(threadIdx.x)).f{0}), j{0});\n",
          s, r, f);
  }
  if (points) return "  DEV void finish_points(const Args& a, Folds& w, F* shared) {\n" + whole + "  }\n";
  return "  template <int kColumns>\n  DEV void finish(const Args& a, Folds& w, Index batch, Index m0, Index n0, F* "
         "shared) {\n" +
         whole + columns + "  }\n";
}

// The result of a slice of the sums, as it is.
std::string ContractionPage::parts_text() const {
  const bool points = route_.kind == ContractionRoute::Points;
  const int width = !points && space_.size('n') % 4 == 0 ? 4 : 1;
  return fmt::format(
      "struct R {{\n  typedef {0} Value;\n  static constexpr int kWidth = {1}, kFolds = 0;\n  struct At {{\n    Index "
      "p;\n"
      "  }};\n  struct Folds {{}};\n"
      "  DEV At row(const Args& a, Index batch, Index i) {{ return {{(batch * a.rows + i) * a.columns}}; }}\n"
      "  DEV At column(const Args&, Index i) {{ return {{i}}; }}\n  DEV void start(Folds&) {{}}\n"
      "  DEV void apply(const Args& a, const At& r, const At& c, const {0}* x, Folds&) {{\n"
      "    vec<{0}, {1}> y;\n#pragma unroll\n    for (int v = 0; v < {1}; ++v) y.e[v] = x[v];\n"
      "    *reinterpret_cast<vec<{0}, {1}>*>(a.part + r.p + c.p) = y;\n  }}\n"
      "  template <int kColumns>\n  DEV void finish(const Args&, Folds&, Index, Index, Index, {0}*) {{}}\n"
      "  DEV void finish_points(const Args&, Folds&, {0}*) {{}}\n}};\n\n",
      route_.sum, width);
}

// --- kernels ---------------------------------------------------------------------------------------------------------
std::string ContractionPage::page(const Arguments& args, const std::string& structs, const std::string& call,
                                  int threads, bool operands) const {
  std::vector<const PwProgram*> programs;
  std::string functions;
  if (operands)
    for (size_t k = 0; k < 2; ++k) programs.push_back(operand_[k].program), functions += emit_[k].functions();
  if (!operands || route_.parts == 1) programs.push_back(&region_.program), functions += result_emit_.functions();
  const bool narrow = structs.find("_packed<") != structs.npos || structs.find("e8m0") != structs.npos;
  return page_title(region_.name, programs, fused_.graph) +
         fmt::format(
             "#include \"tilewright/contraction.cuh\"\n{}namespace tw {{\ntypedef {} "
             "F;      // values\n"
             "typedef {} Index;  // of elements\n\nstruct Args {{\n{}}};\n\n{}\n{}"
             "extern \"C\" __global__ void __launch_bounds__({}) tw_kernel(const __grid_constant__ Args a) {{\n"
             "  {}(a, Index());\n}}\n}}  // namespace tw\n",
             narrow ? "#include \"tilewright/narrow.cuh\"\n" : "", route_.wide ? "double" : "float",
             space_.wide ? "i64" : "int", args.declaration(), functions, structs, threads, call);
}

Launch ContractionPage::multiply() const {
  const ContractionRoute& r = route_;
  const bool points = r.kind == ContractionRoute::Points, split = r.parts > 1;
  Launch launch;
  launch.name = region_.name;
  launch.block = r.threads();
  Arguments args;
  declare_operand(args, 0), declare_operand(args, 1);
  if (split) args.workspace(r.sum, "part", part_scratch_);
  else declare_result(args);
  declare_sizes(args);
  args.finish(launch);
  const std::string structs = operand_text(0) + operand_text(1) + (split ? parts_text() : result_text(points));
  const int64_t b = space_.size('b'), m = space_.size('m'), n = space_.size('n');
  std::string call;
  if (points) {
    call = fmt::format("contract_points<A, B, R, {}, {}>", r.sum, r.batch_fastest);
    launch.grid = (b * m * n * r.parts + 255) / 256;
  } else {
    call = fmt::format("contract_tiles<{}<A, B, {}, {}, {}, {}, {}>, A, B, R>",
                       r.kind == ContractionRoute::TensorCores ? "TensorCores" : "Cores", r.sum, r.rows, r.columns,
                       r.across_m, r.across_n);
    launch.grid = (m + r.rows - 1) / r.rows * ((n + r.columns - 1) / r.columns) * b * r.parts;
  }
  launch.grid = std::max<int64_t>(1, launch.grid);
  launch.text = page(args, structs, call, launch.block, true);
  launch.flops = 2.0 * double(b) * double(m) * double(n) * double(space_.size('k'));
  launch.flops_share = r.flops_share;
  launch.tensor_cores = r.kind == ContractionRoute::TensorCores;
  return launch;
}

Launch ContractionPage::join_parts() const {
  Launch launch;
  launch.name = "sum of parts of " + region_.name;
  launch.block = 256;
  Arguments args;
  args.workspace("const " + route_.sum, "part", part_scratch_);
  declare_result(args);
  declare_sizes(args);
  args.finish(launch);
  launch.text = page(args, result_text(true), fmt::format("join_parts<R, {}>", route_.sum), launch.block, false);
  const int64_t points = space_.size('b') * space_.size('m') * space_.size('n');
  launch.grid = std::max<int64_t>(1, (points / result_width_ + 255) / 256);
  return launch;
}

}  // namespace tilewright::cuda
