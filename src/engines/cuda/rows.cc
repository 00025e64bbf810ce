#include "engines/cuda/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/numeric_types.h"
#include "engines/cuda/columns.h"
#include "engines/cuda/map.h"
#include "engines/cuda/partials.h"
#include "engines/cuda/side.h"
#include "engines/cuda/space_text.h"
#include "engines/cuda/split_rows.h"

namespace tilewright::cuda {
namespace {

using fuse::Instr;
using fuse::PwOp;
using fuse::PwProgram;
using fuse::Region;
using fuse::SideReduction;

// How rows are shared out: threads of each, vectors that each thread keeps in registers (0: none is kept, every pass
// reads the row again), rows of a block. A block has several rows only where a row has no more than 32 threads.
struct RowShape {
  int lanes, kept, rows;
  bool early = false;  // parameters of the columns are asked for before the row's reductions, not where they are used
  int registers = 0;   // about, of a thread
  int threads() const { return lanes * rows; }
};

// What rows are to be held in registers.
struct RowNeeds {
  int64_t vectors;           // of a row
  int depth;                 // reductions that wait for each other
  int bytes;                 // of registers for each vector
  bool columns, parameters;  // whether threads keep folded columns; whether rows share values
};

// Shapes that hold such rows, the likely best first.
std::vector<RowShape> row_shapes(const RowNeeds& n) {
  std::vector<RowShape> list;
  const auto add = [&](RowShape s) {
    s.registers = s.kept * n.bytes / 4 + 32;
    const bool fits = s.registers <= std::min(255, 65536 / std::max(s.threads(), 256));
    if (n.vectors <= int64_t(s.lanes) * s.kept && fits && list.size() < 4) list.push_back(s);
  };
  const auto early = [&](RowShape s) {
    s.early = true;
    if (n.parameters && !n.columns) add(s);
  };
  const int64_t vectors = n.vectors;
  if (vectors <= 32) {
    int lanes = 1;
    while (lanes < vectors) lanes *= 2;
    add({lanes, 1, 256 / lanes});
  } else if (vectors <= 64) {
    add({32, 2, 8}), add({32, 2, 4}), add({64, 1, 1});
  } else if (vectors <= 128) {
    add({32, 4, 4}), add({64, 2, 1}), add({128, 1, 1});
  } else if (vectors <= 256) {
    add({64, 4, 1}), add({32, 8, 4}), add({128, 2, 1}), early({64, 4, 1});
  } else if (vectors <= 512) {
    if (n.columns) add({256, 2, 1}), add({128, 4, 1});
    else if (n.depth > 1) add({128, 4, 1}), add({256, 2, 1}), early({256, 2, 1}), early({128, 4, 1});
    else early({256, 2, 1}), add({256, 2, 1}), add({128, 4, 1}), early({128, 4, 1});
    add({64, 8, 1}), add({512, 1, 1});
  } else if (vectors <= 1024) {
    add({256, 4, 1}), add({128, 8, 1}), early({256, 4, 1}), add({512, 2, 1}), add({1024, 1, 1});
  } else if (vectors <= 2048) {
    add({512, 3, 1}), add({512, 4, 1}), add({256, 8, 1}), early({512, 4, 1}), add({256, 6, 1}), add({1024, 2, 1});
  } else {
    add({512, 8, 1}), add({1024, 4, 1}), add({1024, 8, 1});
  }
  return list;
}

// Rows that no registers hold.
RowShape unkept(int64_t vectors) {
  int threads = 32;
  while (threads < 512 && threads < vectors) threads *= 2;
  return {threads, 0, 1};
}

// How a side reduction is folded together.
enum class SideKind {
  Columns,  // over all outer dims and no inner one: each thread keeps its columns while its block walks over rows
  Whole,    // over everything: each block folds all that it sees
  Chunks,   // over the inner dim of rows that are cut: each block folds its part of a row
  Points,   // anything else: each point by itself, by atomics
};

// Vectors of a row that a block takes at once where rows are cut: those of results that all blocks fold.
constexpr int kChunk = 2048;

// Blocks of a multiprocessor where each thread keeps columns: at most, and of a shape.
int blocks_with_columns(const Space& space) { return space.row_size() > 8192 ? 1 : 4; }
int blocks_with_columns(const Space& space, const RowShape& s) {
  return std::clamp(65536 / (s.threads() * s.registers), 1, blocks_with_columns(space));
}

// What a value costs to compute again, where it could be kept: more than its register.
bool is_dear(const Instr& i) {
  using P = PointwiseMode_t;
  if (i.op != PwOp::Pointwise) return false;
  switch (i.mode) {
    case P::ADD:
    case P::SUB:
    case P::MUL:
    case P::MAX:
    case P::MIN:
    case P::NEG:
    case P::ABS:
    case P::IDENTITY:
    case P::RELU_FWD: return false;
    default: return true;
  }
}

class RowsKernel : SpaceText {
 public:
  RowsKernel(const fuse::FusedGraph& fused, const Region& region, const KernelOptions& options, int64_t scratch)
      : SpaceText(fused, region, make_space(region)), options_(options), scratch_(scratch) {
    const int64_t vectors = space_.row_size() / width_;
    const bool linear = space_.inner.size() <= 1;
    int bytes = 0, columns = 0;
    for (size_t s = 0; s < region.side.size(); ++s) columns += keeps_columns(space_, s);
    for (const Instr& i : p_.code)
      if (i.op == PwOp::Load && varies_inside(i.access) && (streams(i.access) || columns > 0))
        bytes += width_ * std::max(1, element_bits(p_.access[size_t(i.access)].type) / 8);
    bytes += columns * width_ * (emit_.wide() ? 8 : 4);
    const bool parameters = std::any_of(p_.code.begin(), p_.code.end(), [&](const Instr& i) {
      return i.op == PwOp::Load && in_vector(i.access) && !streams(i.access);
    });
    std::vector<RowShape> shapes;
    if (linear) shapes = row_shapes({vectors, p_.depth(), bytes, columns > 0, parameters});
    if (shapes.empty()) shapes.push_back(unkept(vectors));
    shape_ = shapes[size_t(options.shape) % shapes.size()];
    shape_count_ = int(shapes.size());
    for (size_t s = 0; s < region.side.size(); ++s) side_kind_.push_back(kind_of(s));
    columns_ = std::count(side_kind_.begin(), side_kind_.end(), SideKind::Columns) > 0;
    chunked_ = !columns_ && may_chunk();
    if (chunked_) shape_ = {256, 0, 1};
    for (const Instr& i : p_.code)
      if (i.op == PwOp::Load && in_vector(i.access) && shape_.kept > 0)
        (streams(i.access) ? kept_ : parameters_).insert(i.access);
    if (!columns_ && !shape_.early) parameters_.clear();
    prefetched_ = columns_ && p_.depth() > 0 && can_prefetch();
    for (size_t k = 0; columns_ && k < p_.code.size(); ++k)
      if (const Instr& i = p_.code[k]; i.op == PwOp::Load && !varies_inside(i.access) && streams(i.access))
        asked_.insert(int(k));
    find_divisors();
  }

  std::vector<Launch> launches() {
    std::vector<Launch> list = {main_launch()};
    for (const SideKind kind : {SideKind::Columns, SideKind::Whole, SideKind::Chunks}) {
      std::vector<size_t> sides;
      for (size_t s = 0; s < region_.side.size(); ++s)
        if (side_kind_[s] == kind) sides.push_back(s);
      if (!sides.empty()) list.push_back(joined_result(kind, sides));
    }
    for (size_t s = 0; s < region_.side.size(); ++s)
      if (side_kind_[s] == SideKind::Points) list.push_back(result_launch(s));
    return list;
  }
  int shape_count() const { return shape_count_; }
  // At most, whatever is known of the tensors' memory by then.
  static int64_t scratch_bytes(const Region& region, const KernelOptions& options) {
    const Space space = make_space(region);
    int64_t bytes = side_scratch_bytes(region, region.program.needs_double());
    for (size_t s = 0; s < region.side.size(); ++s) bytes += partial_bytes(region, space, options, s);
    return bytes;
  }

 private:
  // --- what is where -----------------------------------------------------------------------------------------------
  static bool all_zero(const std::vector<int64_t>& v, size_t first, size_t last) {
    return std::all_of(v.begin() + long(first), v.begin() + long(last), [](int64_t x) { return x == 0; });
  }
  static bool none_zero(const std::vector<int64_t>& v, size_t first, size_t last) {
    return std::none_of(v.begin() + long(first), v.begin() + long(last), [](int64_t x) { return x == 0; });
  }
  static bool keeps_columns(const Space& space, size_t s) {
    const auto& side = space.side[s];
    return all_zero(side, 0, space.outer.size()) && !space.inner.empty() &&
           none_zero(side, space.outer.size(), side.size());
  }
  static bool folds_rows(const Region& region, const Space& space, size_t s) {
    const auto& side = space.side[s];
    return region.program.inner == 0 && space.inner.size() == 1 && none_zero(side, 0, space.outer.size()) &&
           side.back() == 0;
  }
  static int64_t most_blocks(const Space& space, const KernelOptions& options) {
    return std::min<int64_t>(space.rows(), int64_t(options.sms) * blocks_with_columns(space));
  }
  // What the parts of a side reduction take that are joined in order.
  static int64_t partial_bytes(const Region& region, const Space& space, const KernelOptions& options, size_t s) {
    int64_t values = 0;
    if (all_zero(space.side[s], 0, space.side[s].size())) values = int64_t(options.sms) * 32;
    else if (keeps_columns(space, s)) values = most_blocks(space, options) * space.row_size();
    else if (folds_rows(region, space, s)) values = (space.row_size() + kChunk - 1) / kChunk * space.rows();
    return (values * (region.program.needs_double() ? 8 : 4) + 255) / 256 * 256;
  }
  SideKind kind_of(size_t s) const {
    if (all_zero(space_.side[s], 0, space_.side[s].size())) return SideKind::Whole;
    if (shape_.kept > 0 && keeps_columns(space_, s)) return SideKind::Columns;
    return may_chunk() && folds_rows(region_, space_, s) ? SideKind::Chunks : SideKind::Points;
  }
  bool may_chunk() const {
    return !region_.side.empty() && p_.depth() == 0 && space_.inner.size() <= 1 && space_.row_size() / width_ > kChunk;
  }
  int64_t fold_at(size_t s) const {
    if (side_kind_[s] == SideKind::Points) return scratch_ + side_offset(region_, s, emit_.wide());
    int64_t at = scratch_ + side_scratch_bytes(region_, emit_.wide());
    for (size_t i = 0; i < s; ++i) at += partial_bytes(region_, space_, options_, i);
    return at;
  }
  std::string slot(int access) const override { return kept_.count(access) || parameters_.count(access) ? "[v]" : ""; }
  bool several_rows() const { return shape_.rows > 1; }
  const char* vectors() const { return several_rows() ? "vectors" : "a.vectors"; }
  std::string lane() const { return several_rows() ? "lane" : "threadIdx.x"; }

  // Copies past the registers take 4, 8 or 16 bytes; what does not fit into shared memory twice stays.
  bool can_prefetch() const {
    int64_t bytes = 0;
    for (int a : kept_) {
      const int each = width_ * std::max(1, element_bits(p_.access[size_t(a)].type) / 8);
      if (each != 4 && each != 8 && each != 16) return false;
      bytes += each;
    }
    return options_.arch >= 80 && bytes > 0 && 2 * bytes * shape_.kept * shape_.threads() <= 40 << 10;
  }
  // Divisions inside a row by what is the same along it.
  void find_divisors() {
    for (size_t k = 0; k < p_.code.size(); ++k) {
      const Instr& i = p_.code[k];
      if (i.op == PwOp::Pointwise && i.mode == PointwiseMode_t::DIV && instr_varies_inside(int(k)) &&
          !instr_varies_inside(i.arg[1]))
        divisors_.insert(i.arg[1]);
    }
    emit_.divide_by(divisors_);
  }

  // --- the pieces of the text --------------------------------------------------------------------------------------
  std::string vector_loop(const std::string& body, const std::string& indent) const {
    const std::string head =
        shape_.kept > 0
            ? fmt::format(
                  "#pragma unroll\n{0}for (int v = 0; v < {1}; ++v) {{\n{0}  const Index c = {2} + v * {3};\n"
                  "{0}  if (c >= {4}) break;\n",
                  indent, shape_.kept, lane(), shape_.lanes, vectors())
        : chunked_ ? fmt::format("{}for (Index c = first + threadIdx.x; c < first + {} && c < a.vectors; c += {}) {{\n",
                                 indent, kChunk, shape_.lanes)
                   : fmt::format("{}for (Index c = threadIdx.x; c < a.vectors; c += {}) {{\n", indent, shape_.lanes);
    return head + body + indent + "}\n";
  }
  // The loop over a row's vectors around `body`, which is said for one element k of vector c. `need`: the instructions
  // that it computes; loads and stores of vectors are put before and behind.
  std::string row_loop(const std::vector<bool>& need, const std::string& body, const std::string& indent) const {
    const std::string in = indent + "  ";
    std::string before;
    std::set<int> loads, stores;
    for (size_t k = 0; k < need.size(); ++k) {
      if (!need[k]) continue;
      const Instr& i = p_.code[k];
      if (i.op == PwOp::Load && in_vector(i.access) && slot(i.access).empty()) loads.insert(i.access);
      if (i.op == PwOp::Store && in_vector(i.access)) stores.insert(i.access);
    }
    for (int a : loads)
      before += fmt::format("{}const {} x{} = load<{}, {}>({});\n", in, vector_type(a), a, type_of(a), width_,
                            vector_address(a));
    return vector_loop(before + stores_before(stores, in) + element_loop(body, in) + stores_behind(stores, in), indent);
  }

  // --- the main kernel ---------------------------------------------------------------------------------------------
  int64_t grid() const {
    if (chunked_) return std::min(space_.rows() * chunks(), int64_t(options_.sms) * 8);
    const int64_t blocks = (space_.rows() + shape_.rows - 1) / shape_.rows;
    if (columns_) return std::min(blocks, int64_t(options_.sms) * blocks_with_columns(space_, shape_));
    if (!region_.side.empty()) return std::min<int64_t>(blocks, int64_t(options_.sms) * 1024 / shape_.threads());
    return std::min<int64_t>(blocks, INT32_MAX);
  }

  Launch main_launch() {
    Launch launch;
    launch.name = region_.name;
    launch.block = shape_.threads();
    launch.grid = std::max<int64_t>(1, grid());
    Arguments args;
    declare_pointers(args);
    for (size_t s = 0; s < region_.side.size(); ++s) args.workspace("F", fmt::format("fold{}", s), fold_at(s));
    declare_scalars(args), declare_places(args);
    if (chunked_) args.integer("chunks", chunks(), space_.wide);
    for (size_t s = 0; s < region_.side.size(); ++s) {
      args.integers(fmt::format("fold{}_stride", s), side_strides(s), space_.wide);
      args.integer(fmt::format("fold{}_at", s), 0, space_.wide);
    }
    std::string bounds = std::to_string(shape_.threads());
    if (columns_) bounds += fmt::format(", {}", blocks_with_columns(space_, shape_));
    launch.text = page(args, bounds, body());
    args.finish(launch);
    if (std::count(side_kind_.begin(), side_kind_.end(), SideKind::Points) > 0)
      launch.zero_offset = scratch_, launch.zero_bytes = side_scratch_bytes(region_, emit_.wide());
    return launch;
  }

  // A pass for each depth of reductions, and one that stores.
  std::string body() {
    std::string text = start();
    if (chunked_)
      text += fmt::format(
          "  for (Index part = blockIdx.x; part < a.rows * a.chunks; part += gridDim.x) {{\n"
          "    const Index row = part / a.chunks, first = (part - row * a.chunks) * {};\n",
          kChunk);
    else if (several_rows())
      text += fmt::format(
          "  for (Index first = blockIdx.x * Index({0}); first < a.rows; first += gridDim.x * Index({0})) {{\n"
          "    const bool live = first + threadIdx.x / {1} < a.rows;\n"
          "    const Index row = live ? first + threadIdx.x / {1} : 0, vectors = live ? a.vectors : 0;\n",
          shape_.rows, shape_.lanes);
    else text += "  for (Index row = blockIdx.x; row < a.rows; row += gridDim.x) {\n";
    text += decompose("o", "row", "outer", space_.outer.size(), "    ") + bases("    ") + load_row();
    for (size_t s = 0; s < region_.side.size(); ++s)
      if (side_kind_[s] == SideKind::Chunks) text += "  " + side_variable(s);
    known_.assign(p_.code.size(), false), at_hand_.assign(p_.code.size(), false);
    text += row_values(0);
    if (!asked_.empty()) text += fmt::format("    ask({});\n", next_row());
    for (int depth = 1; depth <= p_.depth(); ++depth) {
      text += reduction_pass(depth);
      text += row_values(depth);  // which goes by what the pass has made known
    }
    text += last_pass();
    for (size_t s = 0; s < region_.side.size(); ++s)
      if (side_kind_[s] == SideKind::Chunks)
        text += side_of_block(s, fmt::format("first / {} * a.rows + row", kChunk), "    ");
    text += "  }\n";
    for (size_t s = 0; s < region_.side.size(); ++s) text += side_end(s);
    return text;
  }

  // Before the first row.
  std::string start() const {
    std::string text;
    const int warps = std::max(1, shape_.threads() / 32);
    size_t beside = 1;
    for (int depth = 1; depth <= p_.depth(); ++depth) beside = std::max(beside, reduces(depth).size());
    text += fmt::format("  __shared__ F shared[2][{}][{}];\n  int turn = 0;\n", beside, warps);
    if (several_rows()) text += fmt::format("  const int lane = threadIdx.x % {};\n", shape_.lanes);
    for (size_t s = 0; s < region_.side.size(); ++s) text += side_start(s);
    if (!parameters_.empty()) {
      text += bases("  ", [&](int a) { return parameters_.count(a) > 0; });
      std::string loads;
      for (int a : parameters_) {
        text += fmt::format("  {} x{}[{}];\n", vector_type(a), a, shape_.kept);
        loads += fmt::format("    x{}[v] = load<{}, {}>({});\n", a, type_of(a), width_, vector_address(a));
      }
      text += fmt::format(
          "#pragma unroll\n  for (int v = 0; v < {}; ++v) {{\n    const Index c = {} + v * {};\n"
          "    if (c >= a.vectors) break;\n{}  }}\n",
          shape_.kept, lane(), shape_.lanes, loads);
    }
    if (prefetched_) text += prefetch();
    if (!asked_.empty()) text += ask();
    return text;
  }

  // Values of the next row that are the same along it are loaded while one is computed.
  std::string ask() const {
    std::string text, loads;
    std::set<int> accesses;
    for (int k : asked_) {
      const int access = p_.code[size_t(k)].access;
      accesses.insert(access);
      text += fmt::format("  F n{} = F(0);\n", k);
      loads += fmt::format("      n{} = F({}::get(a.{}[b{}]));\n", k, type_of(access), pointer(access), access);
    }
    text += fmt::format(
        "  const auto ask = [&](Index first) {{\n    const Index row = first{};\n    if (row < a.rows) {{\n",
        several_rows() ? fmt::format(" + threadIdx.x / {}", shape_.lanes) : "");
    text += decompose("o", "row", "outer", space_.outer.size(), "      ") +
            bases("      ", [&](int a) { return accesses.count(a) > 0; }) + loads + "    }\n  };\n";
    return text + fmt::format("  ask(blockIdx.x * Index({}));\n", shape_.rows);
  }
  std::string next_row() const {
    return fmt::format("{} + gridDim.x * Index({})", several_rows() ? "first" : "row", shape_.rows);
  }

  // The next row is on its way to shared memory while one is computed: each thread waits for what it asked for itself.
  std::string prefetch() const {
    std::string text;
    for (int a : kept_)
      text += fmt::format("  __shared__ {} next{}[2][{}];\n", vector_type(a), a, shape_.kept * shape_.threads());
    text += fmt::format(
        "  int stage = 0;\n  const auto fetch = [&](Index first, int to) {{\n    const Index row = first{};\n"
        "    if (row < a.rows) {{\n",
        several_rows() ? fmt::format(" + threadIdx.x / {}", shape_.lanes) : "");
    text += decompose("o", "row", "outer", space_.outer.size(), "      ") +
            bases("      ", [&](int a) { return kept_.count(a) > 0; });
    std::string copies;
    for (int a : kept_)
      copies += fmt::format("        copy_async(&next{}[to][v * {} + threadIdx.x], {});\n", a, shape_.threads(),
                            vector_address(a));
    text += fmt::format(
        "#pragma unroll\n      for (int v = 0; v < {}; ++v) {{\n        const Index c = {} + v * {};\n"
        "        if (c >= a.vectors) break;\n{}      }}\n    }}\n    copies_asked();\n  }};\n",
        shape_.kept, lane(), shape_.lanes, copies);
    return text + fmt::format("  fetch(blockIdx.x * Index({}), 0);\n", shape_.rows);
  }

  std::string load_row() const {
    std::string text, loads;
    for (int a : kept_) {
      text += fmt::format("    {} x{}[{}];\n", vector_type(a), a, shape_.kept);
      if (prefetched_)
        loads += fmt::format("      x{0}[v] = next{0}[stage][v * {1} + threadIdx.x];\n", a, shape_.threads());
      else loads += fmt::format("      x{}[v] = load<{}, {}>({});\n", a, type_of(a), width_, vector_address(a));
    }
    if (prefetched_) text += fmt::format("    fetch({}, stage ^ 1);\n    copies_there<1>();\n", next_row());
    if (!kept_.empty()) text += vector_loop(loads, "    ");
    if (prefetched_) text += "    stage ^= 1;\n";
    return text;
  }

  std::vector<int> reduces(int depth) const {
    std::vector<int> list;
    for (size_t k = 0; k < p_.code.size(); ++k)
      if (p_.code[k].op == PwOp::Reduce && p_.code[k].depth == depth) list.push_back(int(k));
    return list;
  }

  // Values of the whole row, as soon as what they need is there.
  std::string row_values(int depth) {
    std::vector<bool> now(p_.code.size(), false);
    for (size_t k = 0; k < p_.code.size(); ++k) {
      const Instr& i = p_.code[k];
      now[k] =
          !known_[k] && i.op != PwOp::Reduce && i.op != PwOp::Store && i.depth <= depth && !instr_varies_inside(int(k));
    }
    PointText point = point_of_row();
    const auto load = point.load;
    point.load = [&](const Instr& i) {
      const int k = int(&i - p_.code.data());
      return asked_.count(k) ? fmt::format("n{}", k) : load(i);
    };
    std::string text = emit_.statements(
        point, [&](int k) { return now[size_t(k)]; }, [&](int k) { return bool(known_[size_t(k)]); }, "    ");
    for (size_t k = 0; k < now.size(); ++k) known_[k] = known_[k] || now[k];
    for (int k : divisors_)
      if (known_[size_t(k)] && p_.code[size_t(k)].depth == depth)
        text += fmt::format("    const Divisor<F> {}({});\n", emit_.divisor(k), emit_.value(k));
    return text;
  }

  // The statements of a pass: what `roots` need. Dear values that a later pass needs again are kept; `pass`: at which
  // depth this one is.
  std::string pass_body(const std::vector<bool>& need, int pass, std::string& declared) {
    const std::string in = "        ";
    const std::string k_at = width_ > 1 ? "k" : "0";
    std::string text;
    const auto there = [&](int k) { return known_[size_t(k)] || at_hand_[size_t(k)]; };
    for (size_t k = 0; k < p_.code.size(); ++k) {
      if (!at_hand_[k]) continue;
      bool used = false;
      for (size_t j = 0; j < need.size(); ++j)
        used = used || (need[j] && std::count(p_.code[j].arg.begin(), p_.code[j].arg.end(), int(k)) > 0);
      for (int r : roots_) used = used || r == int(k);
      if (used) text += fmt::format("{}const F {} = z{}[v][{}];\n", in, emit_.value(int(k)), k, k_at);
    }
    text += emit_.statements(
        point(), [&](int k) { return need[size_t(k)]; }, there, in);
    if (pass > p_.depth() || shape_.kept == 0 || shape_.kept * width_ > 32) return text;
    const std::vector<bool> later = needed_after(pass);
    for (size_t k = 0; k < p_.code.size(); ++k) {
      if (!need[k] || !is_dear(p_.code[k]) || !instr_varies_inside(int(k)) || !later[k]) continue;
      declared += fmt::format("    F z{}[{}][{}];\n", k, shape_.kept, width_);
      text += fmt::format("{}z{}[v][{}] = {};\n", in, k, k_at, emit_.value(int(k)));
      fresh_.push_back(int(k));
    }
    return text;
  }
  // By instruction: whether a pass after the one at this depth reads it.
  std::vector<bool> needed_after(int pass) const {
    std::vector<bool> later(p_.code.size(), false);
    for (const SideReduction& s : region_.side) later[size_t(s.value)] = true;
    for (size_t j = p_.code.size(); j-- > 0;) {
      const Instr& i = p_.code[j];
      const bool reads = i.op == PwOp::Reduce ? i.depth > pass : i.op == PwOp::Store || i.depth >= pass || later[j];
      for (int a : i.arg)
        if (a >= 0 && reads) later[size_t(a)] = true;
    }
    return later;
  }

  std::string reduction_pass(int depth) {
    const std::vector<int> folds = reduces(depth);
    roots_.clear(), fresh_.clear();
    for (int k : folds) roots_.push_back(p_.code[size_t(k)].arg[0]);
    const std::vector<bool> need =
        emit_.needed(roots_, [&](int k) { return known_[size_t(k)] || at_hand_[size_t(k)]; });
    std::string text, body = pass_body(need, depth, text);
    for (int k : folds) {
      const char* r = reduction_type(p_.code[size_t(k)].reduce);
      text += fmt::format("    F r{} = {}::start<F>();\n", k, r);
      body += fmt::format("        r{0} = {1}::join(r{0}, {1}::element({2}));\n", k, r,
                          emit_.value(p_.code[size_t(k)].arg[0]));
    }
    text += row_loop(need, body, "    ") + join(folds);
    for (int k : folds) known_[size_t(k)] = true;
    for (int k : fresh_) at_hand_[size_t(k)] = true;
    return text;
  }

  // All threads of a row get its results; those that wait for each other do so once.
  std::string join(const std::vector<int>& folds) const {
    const bool warps = shape_.lanes > 32;
    std::string text, give;
    for (size_t n = 0; n < folds.size(); ++n) {
      const int k = folds[n];
      text += fmt::format("    r{0} = lanes_reduce<{1}, {2}>(r{0});\n", k, reduction_type(p_.code[size_t(k)].reduce),
                          std::min(shape_.lanes, 32));
      give += fmt::format("      shared[turn][{}][threadIdx.x / 32] = r{};\n", n, k);
    }
    if (warps) text += "    turn ^= 1;\n    if (threadIdx.x % 32 == 0) {\n" + give + "    }\n    __syncthreads();\n";
    for (size_t n = 0; n < folds.size(); ++n) {
      const int k = folds[n];
      const char* r = reduction_type(p_.code[size_t(k)].reduce);
      const std::string all = warps ? fmt::format("warps_reduce<{}, {}>(shared[turn][{}])", r, shape_.lanes / 32, n)
                                    : fmt::format("r{}", k);
      text += fmt::format("    const F {} = {}::finish({}, double(a.vectors) * {});\n", emit_.value(k), r, all, width_);
    }
    return text;
  }

  std::string last_pass() {
    std::vector<int> once;
    roots_.clear(), fresh_.clear();
    for (size_t k = 0; k < p_.code.size(); ++k)
      if (p_.code[k].op == PwOp::Store) (instr_varies_inside(int(k)) ? roots_ : once).push_back(int(k));
    for (const SideReduction& s : region_.side) roots_.push_back(s.value);
    std::string text;
    if (!roots_.empty()) {
      const std::vector<bool> need =
          emit_.needed(roots_, [&](int k) { return known_[size_t(k)] || at_hand_[size_t(k)]; });
      std::string body = pass_body(need, p_.depth() + 1, text);
      for (size_t s = 0; s < region_.side.size(); ++s) body += side_point(s);
      text += row_loop(need, body, "    ");
    }
    if (once.empty()) return text;
    text += fmt::format("    if ({} == 0{}) {{\n", lane(), several_rows() ? " && live" : "");
    for (int k : once) {
      const Instr& i = p_.code[size_t(k)];
      text += fmt::format("      a.{}[b{}] = {}::set({});\n", pointer(i.access), i.access, type_of(i.access),
                          emit_.value(i.arg[0]));
    }
    return text + "    }\n";
  }

  // --- side reductions ---------------------------------------------------------------------------------------------
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
  std::string side_variable(size_t s) const {
    return fmt::format("  F w{} = {}::start<F>();\n", s, reduction_type(region_.side[s].mode));
  }
  // What the block has of it goes where `at` says.
  std::string side_of_block(size_t s, const std::string& at, const std::string& in) const {
    return fmt::format(
        "{0}w{1} = block_reduce<{2}>(w{1}, shared[turn ^= 1][0]);\n{0}if (threadIdx.x == 0) a.fold{1}[{3}] = w{1};\n",
        in, s, reduction_type(region_.side[s].mode), at);
  }
  std::string side_start(size_t s) const {
    const std::string r = reduction_type(region_.side[s].mode);
    if (side_kind_[s] == SideKind::Whole) return side_variable(s);
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
      case SideKind::Whole:
      case SideKind::Chunks: return fmt::format("        w{0} = {1}::join(w{0}, {2});\n", s, r, element);
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
    if (side_kind_[s] == SideKind::Whole) return side_of_block(s, "blockIdx.x", "  ");
    if (side_kind_[s] != SideKind::Columns) return "";
    return several_rows() ? columns_of_rows(s, r) : columns_of_row(s);
  }
  std::string columns_of_row(size_t s) const {
    return fmt::format(
        "#pragma unroll\n  for (int v = 0; v < {1}; ++v) {{\n    const Index c = threadIdx.x + v * {3};\n"
        "    if (c >= a.vectors) break;\n    put(a.fold{0} + (blockIdx.x * a.vectors + c) * {2}, w{0}[v]);\n  }}\n",
        s, shape_.kept, width_, shape_.lanes);
  }
  // Of a block's rows, first together.
  std::string columns_of_rows(size_t s, const std::string& r) const {
    return fmt::format(
        "  {{\n    __shared__ F columns[{2}][{5} + {6}];\n#pragma unroll\n    for (int v = 0; v < {1}; ++v) {{\n      "
        "__syncthreads();\n"
        "#pragma unroll\n      for (int k = 0; k < {2}; ++k) columns[k][threadIdx.x] = w{0}[v][k];\n      "
        "__syncthreads();\n"
        "      for (int i = threadIdx.x; i < {3} * {2}; i += {5}) {{\n        const int t = i / {2}, k = i % {2};\n"
        "        const Index c = t + v * {3};\n        if (c >= a.vectors) break;\n        F x = columns[k][t];\n"
        "        for (int j = 1; j < {4}; ++j) x = {7}::join(x, columns[k][t + j * {3}]);\n"
        "        a.fold{0}[(blockIdx.x * a.vectors + c) * {2} + k] = x;\n      }}\n    }}\n  }}\n",
        s, shape_.kept, width_, shape_.lanes, shape_.rows, shape_.threads(), std::max(1, 32 / width_), r);
  }

  // Along the dims that a side reduction keeps.
  Launch result_launch(size_t s) const {
    std::vector<int64_t> extents, stride, all = space_.outer;
    all.insert(all.end(), space_.inner.begin(), space_.inner.end());
    for (size_t d = 0; d < all.size(); ++d)
      if (!reduced_in_space(s, d)) extents.push_back(all[d]), stride.push_back(space_.side[s][d]);
    return side_launch(fused_, region_, s, emit_.wide(), extents, stride, scratch_);
  }
  // Of side reductions of one kind, whose parts are joined in order.
  Launch joined_result(SideKind kind, const std::vector<size_t>& sides) const {
    const size_t outer = space_.outer.size();
    Partials partials;
    Region only = region_;
    only.side.clear();
    std::vector<std::vector<int64_t>> stride;
    for (size_t s : sides) {
      only.side.push_back(region_.side[s]);
      partials.offset.push_back(fold_at(s));
      const auto& of = space_.side[s];
      if (kind == SideKind::Columns) stride.emplace_back(of.begin() + long(outer), of.end());
      else if (kind == SideKind::Chunks) stride.emplace_back(of.begin(), of.begin() + long(outer));
      else stride.emplace_back();
    }
    const bool columns = kind == SideKind::Columns, whole = kind == SideKind::Whole;
    partials.count = whole ? 1 : columns ? space_.row_size() : space_.rows();
    partials.parts = kind == SideKind::Chunks ? chunks() : std::max<int64_t>(1, grid());
    const std::vector<int64_t> extents = whole ? std::vector<int64_t>{} : columns ? space_.inner : space_.outer;
    return partials_launch(fused_, only, emit_.wide(), partials, extents, stride);
  }

  int64_t chunks() const { return (space_.row_size() / width_ + kChunk - 1) / kChunk; }

  KernelOptions options_;
  int64_t scratch_;
  RowShape shape_{256, 0, 1};
  int shape_count_ = 1;
  bool columns_ = false, chunked_ = false, prefetched_ = false;
  std::vector<SideKind> side_kind_;
  std::set<int> kept_, parameters_;  // accesses in registers: of the row; of all rows
  std::set<int> divisors_, asked_;   // instructions
  // While the body is written: instructions whose values the row has; those that threads keep by element.
  std::vector<bool> known_, at_hand_;
  std::vector<int> roots_, fresh_;
};

bool is_map(const Region& r) { return r.program.inner == 0; }

// A region that is one kernel, and what joins its side reductions.
std::vector<Launch> part_launches(const fuse::FusedGraph& fused, const Region& region, const KernelOptions& options,
                                  int64_t scratch, bool moments = false) {
  if (is_map(region) && columns_take(region)) return columns_launches(fused, region, options, scratch, moments);
  if (is_map(region) && region.side.empty()) return {map_launch(fused, region, options)};
  return RowsKernel(fused, region, options, scratch).launches();
}
int64_t part_scratch_bytes(const Region& region, const KernelOptions& options) {
  if (is_map(region) && columns_take(region)) return columns_scratch_bytes(region, options);
  return RowsKernel::scratch_bytes(region, options);
}

}  // namespace

Result<std::vector<Launch>> rows_launches(const fuse::FusedGraph& fused, const Region& region,
                                          const KernelOptions& options, int64_t scratch_offset) {
  TW_RETURN_IF_BAD(check_types(region.program));
  TW_RETURN_IF_BAD(check_sides(region));
  if (!wants_split(region, options)) return part_launches(fused, region, options, scratch_offset);
  fuse::FusedGraph split = fused;
  std::vector<Launch> all;
  int64_t at = scratch_offset + split_scratch_bytes(region);
  for (const SplitPart& part : split_rows(split, region, scratch_offset)) {
    const std::vector<Launch> list = part_launches(split, part.region, options, at, part.moments);
    at += part_scratch_bytes(part.region, options);
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

int rows_shapes(const fuse::FusedGraph& fused, const Region& region, const KernelOptions& options) {
  return is_map(region) || wants_split(region, options) ? 1 : RowsKernel(fused, region, options, 0).shape_count();
}

int64_t rows_scratch_bytes(const Region& region, const KernelOptions& options) {
  if (!wants_split(region, options)) return part_scratch_bytes(region, options);
  fuse::FusedGraph unused;
  int64_t bytes = split_scratch_bytes(region);
  for (const SplitPart& part : split_rows(unused, region, 0)) bytes += part_scratch_bytes(part.region, options);
  return bytes;
}

}  // namespace tilewright::cuda
