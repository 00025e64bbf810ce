// A thread for each element of the result. Forward, it walks over its window. Backward it walks over the windows that
// have the element in them, so that no two threads add to the same: what a window gives to its largest element is found
// again by each who asks.
#include "engines/cuda/pooling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "engines/cuda/element.h"
#include "engines/cuda/emit.h"
#include "engines/cuda/side.h"
#include "layout/view.h"
#include "ops/pooling.h"

namespace tilewright::cuda {
namespace {

using fuse::Instr;
using fuse::PwOp;
using fuse::PwProgram;
using fuse::Region;

constexpr int kThreads = 256;

bool wide_type(DataType_t t) { return t == DataType_t::DOUBLE || t == DataType_t::INT32 || t == DataType_t::INT64; }

bool in_double(const fuse::FusedGraph& fused, const Region& region) {
  const ir::Node& node = fused.graph.nodes[size_t(region.heavy)];
  bool wide = wide_type(node.compute) || region.program.needs_double();
  for (const PwProgram& p : region.operand) wide |= p.needs_double();
  for (const auto* list : {&node.in, &node.out})
    for (ir::TensorId id : *list) wide |= id != ir::kNone && wide_type(fused.graph.tensor(id).type);
  return wide;
}

class PoolingKernel {
 public:
  PoolingKernel(const fuse::FusedGraph& fused, const Region& region)
      : fused_(fused),
        region_(region),
        node_(fused.graph.nodes[size_t(region.heavy)]),
        pool_(ops::pooling_of(fused.graph, node_)),
        forward_(std::string_view(node_.op->name) == "resample"),
        double_(in_double(fused, region)),
        domain_(region.program.domain),
        emit_{Emitter(region.operand[0], fused.graph, "x"), Emitter(region.operand[1], fused.graph, "w"),
              Emitter(region.program, fused.graph)} {
    const std::vector<ir::TensorId>& list = forward_ ? node_.out : node_.in;
    const size_t port = forward_ ? 1 : 2;
    if (port < list.size() && list[port] != ir::kNone && fused.place[size_t(list[port])].root != ir::kNone)
      index_ = list[port];
    order_dims();
    find_width();
  }

  Result<std::vector<Launch>> launches() {
    for (int p = 0; p < 3; ++p)
      for (const fuse::Access& a : program(p).access)
        if (a.tensor != ir::kNone && !any_element(a.type)) return check_type(a.type);
    if (index_ != ir::kNone && !any_element(index_type())) return check_type(index_type());
    TW_RETURN_IF_BAD(check_sides(region_));
    std::vector<Launch> list = {main_launch()};
    for (size_t s = 0; s < region_.side.size(); ++s) {
      std::vector<int64_t> extents, stride;
      for (size_t d : kept_dims(s)) extents.push_back(domain_[d]), stride.push_back(region_.side[s].out.stride[d]);
      list.push_back(side_launch(fused_, region_, s, double_, extents, stride, region_.scratch_offset));
    }
    return list;
  }

 private:
  // The operands' programs, then the result's. Each has names of its own.
  const PwProgram& program(int p) const { return p < 2 ? region_.operand[size_t(p)] : region_.program; }
  static const char* prefix(int p) { return p == 0 ? "x" : p == 1 ? "w" : ""; }
  std::string pointer(int p, int access) const { return fmt::format("{}p{}", prefix(p), access); }
  DataType_t index_type() const { return fused_.graph.tensor(index_).storage_type(); }
  size_t spatial() const { return pool_.rank(); }

  std::vector<size_t> kept_dims(size_t side) const {
    std::vector<size_t> dims;
    for (size_t d = 0; d < domain_.size(); ++d)
      if (!(region_.side[side].reduced >> d & 1)) dims.push_back(d);
    return dims;
  }

  // Neighbouring threads take neighbouring elements of what is stored.
  void order_dims() {
    order_.resize(domain_.size());
    std::iota(order_.begin(), order_.end(), size_t(0));
    for (const Instr& i : region_.program.code) {
      if (i.op != PwOp::Store) continue;
      const Dims& stride = region_.program.access[size_t(i.access)].stride;
      std::stable_sort(order_.begin(), order_.end(),
                       [&](size_t x, size_t y) { return std::abs(stride[x]) > std::abs(stride[y]); });
      return;
    }
  }

  void find_width() {
    int64_t most = volume(domain_);
    const auto reach = [&](const Dims& dim, const Dims& stride, int64_t offset) {
      for (size_t d = 0; d < dim.size(); ++d) offset += std::abs(stride[d]) * std::max<int64_t>(0, dim[d] - 1);
      most = std::max(most, offset);
    };
    for (int p = 0; p < 3; ++p)
      for (const fuse::Access& a : program(p).access) reach(program(p).domain, a.stride, std::abs(a.offset));
    if (index_ != ir::kNone) {
      const ir::Tensor& t = fused_.graph.tensor(index_);
      reach(t.dim, t.stride, std::abs(fused_.place[size_t(index_)].offset));
    }
    for (size_t d = 0; d < spatial(); ++d) most = std::max(most, pool_.in[d] + pool_.pre[d] + pool_.post[d]);
    most = std::max({most, volume(pool_.window), *std::max_element(pool_.stride.begin(), pool_.stride.end())});
    wide_ = most > (int64_t{1} << 30);
  }

  // --- the text ------------------------------------------------------------------------------------------------------
  std::string place(int p, int access) const {
    const std::string name = pointer(p, access);
    std::string text = fmt::format("a.{}_at", name);
    const Dims& stride = program(p).access[size_t(access)].stride;
    for (size_t d = 0; d < stride.size(); ++d)
      if (stride[d] != 0) text += fmt::format(" + i{} * a.{}_stride[{}]", d, name, d);
    return text;
  }
  PointText point(int p) const {
    PointText t;
    const auto type = [this, p](const Instr& i) { return program(p).access[size_t(i.access)].type; };
    t.load = [this, p, type](const Instr& i) { return load_text(type(i), pointer(p, i.access), place(p, i.access)); };
    t.index = [this, p](const Instr& i) { return fmt::format("F({})", place(p, i.access)); };
    t.store = [this, p, type](const Instr& i, const std::string& value) {
      return store_text(type(i), pointer(p, i.access), place(p, i.access), value);
    };
    t.in = [](const Instr&) { return std::string("in"); };
    return t;
  }

  // "i0, i1, q0, q1": a point whose spatial coordinates are called so.
  std::string at(const char* name, const char* type = "") const {
    std::string text = fmt::format("{0}i0, {0}i1", type);
    for (size_t d = 0; d < spatial(); ++d) text += fmt::format(", {}{}{}", type, name, d);
    return text;
  }
  std::string coordinates(const char* type = "") const {
    std::string text;
    for (size_t d = 0; d < domain_.size(); ++d) text += fmt::format("{}{}i{}", d ? ", " : "", type, d);
    return text;
  }
  // An operand at a point, as a function.
  std::string operand(int p) const {
    const PwProgram& code = program(p);
    if (code.code.empty()) return "";
    const std::vector<bool> need = emit_[p].needed({code.result}, [](int) { return false; });
    return fmt::format("\nDEV F operand{}(const Args& a, {}) {{\n{}  return {};\n}}\n", p, coordinates("Index "),
                       emit_[p].statements(
                           point(p), [&](int k) { return need[size_t(k)]; }, [](int) { return false; }, "  "),
                       emit_[p].value(code.result));
  }

  // Loops over a window around `body`: w0, w1, ... in the window, q0, q1, ... in the input, `flat` for the window's
  // position as one number. `o`: how the window's coordinates are called.
  std::string window_loops(const char* o, const std::string& body, std::string indent) const {
    std::string text, close, flat = "w0";
    for (size_t d = 0; d < spatial(); ++d) {
      text += fmt::format(
          "{0}for (Index w{1} = 0; w{1} < a.window[{1}]; ++w{1}) {{\n"
          "{0}  const Index q{1} = {2}{1} * a.stride[{1}] - a.pre[{1}] + w{1};\n"
          "{0}  if (q{1} < 0 || q{1} >= a.in[{1}]) continue;\n",
          indent, d, o);
      close = indent + "}\n" + close;
      indent += "  ";
      if (d > 0) flat = fmt::format("({}) * a.window[{}] + w{}", flat, d, d);
    }
    return text + fmt::format("{}const Index flat = {};\n", indent, flat) + indented(body, indent) + close;
  }
  static std::string indented(const std::string& lines, const std::string& indent) {
    std::string text;
    for (size_t at = 0; at < lines.size();) {
      const size_t end = lines.find('\n', at) + 1;
      text += indent + lines.substr(at, end - at);
      at = end;
    }
    return text;
  }
  // The largest of a window and where it is: the first of equals, the first NaN.
  std::string find_largest(int p, const char* o, const std::string& indent) const {
    return fmt::format("{0}F best = -F(from_bits(0x7f800000u));\n{0}Index best_at = -1;\n", indent) +
           window_loops(o,
                        fmt::format("const F x = operand{}(a, {});\n"
                                    "if (best_at < 0 || x > best || (is_nan(x) && !is_nan(best))) best = x, best_at = "
                                    "flat;\n",
                                    p, at("q")),
                        indent);
  }
  // How many elements a window has, or is taken to have.
  std::string count(const char* o, const std::string& indent) const {
    if (pool_.mode == ResampleMode_t::AVGPOOL_INCLUDE_PADDING) {
      std::string text = "a.window[0]";
      for (size_t d = 1; d < spatial(); ++d) text += fmt::format(" * a.window[{}]", d);
      return fmt::format("{}const Index count = {};\n", indent, text);
    }
    std::string text = indent + "Index count = 1;\n";
    for (size_t d = 0; d < spatial(); ++d)
      text += fmt::format("{0}count *= inside({1}{2} * a.stride[{2}] - a.pre[{2}], a.window[{2}], a.in[{2}]);\n",
                          indent, o, d);
    return text;
  }

  std::string forward_body() const {
    if (pool_.max()) {
      std::string text = find_largest(0, "o", "  ") + "  const F in = best;\n";
      if (index_ != ir::kNone)
        text += fmt::format("  {}\n",
                            store_text(index_type(), "index", index_place("o"), "F(best_at < 0 ? Index(0) : best_at)"));
      return text;
    }
    return "  F sum = F(0);\n" + window_loops("o", fmt::format("sum += operand0(a, {});\n", at("q")), "  ") +
           count("o", "  ") + "  const F in = sum / F(count);\n";
  }

  // Windows that have the element in them, first to last in each dim.
  std::string backward_body() const {
    std::string text = "  F sum = F(0);\n", close, indent = "  ", flat;
    for (size_t d = 0; d < spatial(); ++d) {
      text += fmt::format(
          "{0}for (Index o{1} = first_window(i{2} + a.pre[{1}], a.window[{1}], a.stride[{1}]);\n"
          "{0}     o{1} < a.out[{1}] && o{1} * a.stride[{1}] <= i{2} + a.pre[{1}]; ++o{1}) {{\n",
          indent, d, d + 2);
      close = indent + "}\n" + close;
      indent += "  ";
      const std::string in_window = fmt::format("i{0} + a.pre[{1}] - o{1} * a.stride[{1}]", d + 2, d);
      flat = d == 0 ? in_window : fmt::format("({}) * a.window[{}] + {}", flat, d, in_window);
    }
    const std::string gradient = fmt::format("operand0(a, {})", at("o"));
    if (!pool_.max()) {
      text += count("o", indent) + fmt::format("{}sum += {} / F(count);\n", indent, gradient);
    } else {
      text += fmt::format("{}const Index mine = {};\n", indent, flat);
      if (index_ != ir::kNone)
        text += fmt::format("{}if ({} == F(mine)) sum += {};\n", indent,
                            load_text(index_type(), "index", index_place("o")), gradient);
      else text += find_largest(1, "o", indent) + fmt::format("{}if (best_at == mine) sum += {};\n", indent, gradient);
    }
    return text + close + "  const F in = sum;\n";
  }
  std::string index_place(const char* o) const {
    const Dims& stride = fused_.graph.tensor(index_).stride;
    std::string text = "a.index_at";
    for (size_t d = 0; d < stride.size(); ++d) {
      const std::string coordinate = d < 2 ? fmt::format("i{}", d) : fmt::format("{}{}", o, d - 2);
      if (stride[d] != 0) text += fmt::format(" + {} * a.index_stride[{}]", coordinate, d);
    }
    return text;
  }

  // What is done with the value: all that is read before all that is written.
  std::string epilogue() const {
    const PwProgram& p = region_.program;
    const auto is_store = [&](int k) { return p.code[size_t(k)].op == PwOp::Store; };
    std::string text = emit_[2].statements(
        point(2), [&](int k) { return !is_store(k); }, [](int) { return false; }, "  ");
    text += emit_[2].statements(
        point(2), is_store, [&](int k) { return !is_store(k); }, "  ");
    for (size_t s = 0; s < region_.side.size(); ++s) {
      const fuse::SideReduction& side = region_.side[s];
      std::string where = "0";
      for (size_t d : kept_dims(s)) where = fmt::format("({}) * a.extent[{}] + i{}", where, d, d);
      text += fmt::format("  fold({}(), a.fold{} + ({}), {}::element({}));\n", fold_type(side.mode), s, where,
                          reduction_type(side.mode), emit_[2].value(side.value));
    }
    return text;
  }

  Launch main_launch() {
    Launch launch;
    launch.name = region_.name;
    launch.block = kThreads;
    Arguments args;
    declare_arguments(args);
    std::string text =
        page_title(region_.name, {&region_.operand[0], &region_.operand[1], &region_.program}, fused_.graph);
    text += fmt::format(
        "#include \"tilewright/narrow.cuh\"\n#include \"tilewright/pooling.cuh\"\nnamespace tw {{\n"
        "typedef {} F;      // values\ntypedef {} Index;  // of elements\n\nstruct Args {{\n{}}};\n\n",
        double_ ? "double" : "float", wide_ ? "i64" : "int", args.declaration());
    for (const Emitter& e : emit_) text += e.functions();
    text += operand(0) + operand(1);
    text += fmt::format(
        "\nextern \"C\" __global__ void __launch_bounds__({0}) tw_kernel(const __grid_constant__ Args a) {{\n"
        "  const Index point = blockIdx.x * Index({0}) + threadIdx.x;\n  if (point >= a.points) return;\n",
        kThreads);
    text += decompose("n", "point", "ordered", domain_.size(), "  ");
    for (size_t k = 0; k < order_.size(); ++k) text += fmt::format("  const Index i{} = n{};\n", order_[k], k);
    if (forward_)
      for (size_t d = 0; d < spatial(); ++d) text += fmt::format("  const Index o{} = i{};\n", d, d + 2);
    text += (forward_ ? forward_body() : backward_body()) + epilogue() + "}\n}  // namespace tw\n";
    launch.text = std::move(text);
    args.finish(launch);
    launch.grid = std::max<int64_t>(1, (volume(domain_) + kThreads - 1) / kThreads);
    launch.zero_offset = region_.scratch_offset, launch.zero_bytes = side_scratch_bytes(region_, double_);
    return launch;
  }

  void declare_arguments(Arguments& args) const {
    for (int p = 0; p < 3; ++p) {
      const PwProgram& code = program(p);
      for (size_t k = 0; k < code.access.size(); ++k) {
        const fuse::Access& a = code.access[k];
        if (a.tensor != ir::kNone) args.pointer(memory_type(a.type), pointer(p, int(k)), fused_, a.tensor);
      }
      for (int k : emit_[p].scalars())
        args.scalar(emit_[p].scalar(k), fused_.graph, code.code[size_t(k)].tensor, emit_[p].wide());
    }
    for (size_t s = 0; s < region_.side.size(); ++s)
      args.workspace("F", fmt::format("fold{}", s), region_.scratch_offset + side_offset(region_, s, double_));
    args.integer("points", volume(domain_), wide_);
    std::vector<int64_t> ordered;
    for (size_t d : order_) ordered.push_back(domain_[d]);
    args.integers("ordered", ordered, wide_);
    args.integers("extent", domain_, wide_);
    const std::pair<const char*, const Dims*> geometry[] = {{"window", &pool_.window},
                                                            {"stride", &pool_.stride},
                                                            {"pre", &pool_.pre},
                                                            {"in", &pool_.in},
                                                            {"out", &pool_.out}};
    for (const auto& [name, dims] : geometry) args.integers(name, *dims, wide_);
    for (int p = 0; p < 3; ++p)
      for (size_t k = 0; k < program(p).access.size(); ++k) {
        args.integer(pointer(p, int(k)) + "_at", program(p).access[k].offset, wide_);
        args.integers(pointer(p, int(k)) + "_stride", program(p).access[k].stride, wide_);
      }
    if (index_ == ir::kNone) return;
    const ir::Tensor& index = fused_.graph.tensor(index_);
    const fuse::Place& place = fused_.place[size_t(index_)];
    args.pointer(memory_type(index_type()), "index", fused_, place.root);
    args.integer("index_at", place.offset, wide_);
    args.integers("index_stride", index.stride, wide_);
  }

  const fuse::FusedGraph& fused_;
  const Region& region_;
  const ir::Node& node_;
  const ops::Pooling pool_;
  const bool forward_, double_;
  const Dims& domain_;  // of the result
  const Emitter emit_[3];
  ir::TensorId index_ = ir::kNone;
  std::vector<size_t> order_;  // of dims, the slowest first
  bool wide_ = false;          // offsets need 64 bits
};

}  // namespace

int64_t pooling_scratch_bytes(const fuse::FusedGraph& fused, const Region& region) {
  return side_scratch_bytes(region, in_double(fused, region));
}

Result<std::vector<Launch>> pooling_launches(const fuse::FusedGraph& fused, const Region& region) {
  return PoolingKernel(fused, region).launches();
}

}  // namespace tilewright::cuda
