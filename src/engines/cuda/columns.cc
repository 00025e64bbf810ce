#include "engines/cuda/columns.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/numeric_types.h"
#include "engines/cuda/partials.h"
#include "engines/cuda/space_text.h"

namespace tilewright::cuda {
namespace {

using fuse::Instr;
using fuse::PwOp;
using fuse::Region;

constexpr int kThreads = 256;
constexpr int kRowsInFlight = 4, kFoldedInFlight = 8;  // of each thread

int64_t product(const std::vector<int64_t>& v, size_t first, size_t last) {
  int64_t n = 1;
  for (size_t d = first; d < last; ++d) n *= v[d];
  return n;
}

// A map's space with the outer dims that are not walked over in front: they and the inner dim make columns.
struct ColumnSpace {
  Space space;
  size_t groups = 0;  // outer dims in front
  bool found = false;

  int64_t group_count() const { return product(space.outer, 0, groups); }
  int64_t group_rows() const { return product(space.outer, groups, space.outer.size()); }
  bool walks(const std::vector<int64_t>& stride) const {
    return std::any_of(stride.begin() + long(groups), stride.begin() + long(space.outer.size()),
                       [](int64_t s) { return s != 0; });
  }
};

// Along which outer dims a stride is 0.
uint32_t zeros(const Space& space, const std::vector<int64_t>& stride) {
  uint32_t mask = 0;
  for (size_t d = 0; d < space.outer.size(); ++d)
    if (stride[d] == 0) mask |= 1u << d;
  return mask;
}

// Which outer dims are walked over: those that the side reductions fold, or that the parameters are the same along.
uint32_t walked(const Region& region, const Space& space) {
  uint32_t mask = (1u << space.outer.size()) - 1;
  if (!region.side.empty()) {
    for (const auto& side : space.side)
      if (side.back() == 0 || zeros(space, side) != zeros(space, space.side[0])) return 0;
    return zeros(space, space.side[0]);
  }
  int64_t parameters = 0, streams = 0;  // bytes of each point
  for (const Instr& i : region.program.code) {
    if (i.op != PwOp::Load && i.op != PwOp::Store) continue;
    const auto& stride = space.stride[size_t(i.access)];
    const int64_t bytes = element_bits(region.program.access[size_t(i.access)].type) / 8;
    if (stride.back() == 0) continue;
    if (const uint32_t along = zeros(space, stride); along != 0) mask &= along, parameters += bytes;
    else streams += bytes;
  }
  return parameters * 2 > streams ? mask : 0;
}

ColumnSpace column_space(const Region& region) {
  ColumnSpace c;
  c.space = make_space(region);
  Space& s = c.space;
  if (s.inner.size() != 1 || s.outer.empty() || region.program.inner != 0) return c;
  const uint32_t mask = walked(region, s);
  if (mask == 0) return c;
  std::vector<size_t> order;
  for (const bool walk : {false, true})
    for (size_t d = 0; d < s.outer.size(); ++d)
      if (bool(mask >> d & 1) == walk) order.push_back(d);
  const auto permute = [&](std::vector<int64_t>& v) {
    const std::vector<int64_t> before = v;
    for (size_t d = 0; d < order.size(); ++d) v[d] = before[order[d]];
  };
  permute(s.outer);
  for (auto* list : {&s.stride, &s.side})
    for (auto& stride : *list) permute(stride);
  c.groups = s.outer.size() - size_t(__builtin_popcount(mask));
  c.found = c.group_rows() >= 32;
  return c;
}

// Into how many parts, each of its own blocks, the rows of a group are cut where they are folded.
int64_t folding_slabs(const ColumnSpace& c, const KernelOptions& options) {
  const int64_t beside = c.group_count() * ((c.space.row_size() + 255) / 256);
  return std::clamp<int64_t>(options.sms * int64_t(2) / beside, 1, (c.group_rows() + 63) / 64);
}

class ColumnsKernel : SpaceText {
 public:
  ColumnsKernel(const fuse::FusedGraph& fused, const Region& region, const KernelOptions& options, int64_t scratch,
                bool moments, ColumnSpace columns)
      : SpaceText(fused, region, columns.space), columns_(std::move(columns)), scratch_(scratch), moments_(moments) {
    const int64_t vectors = space_.row_size() / width_;
    while (lanes_ < 32 && lanes_ < vectors) lanes_ *= 2;
    rows_ = kThreads / lanes_;
    chunks_ = (vectors + lanes_ - 1) / lanes_;
    each_ = region.side.empty() ? kRowsInFlight : kFoldedInFlight;
    const int64_t step = int64_t(rows_) * each_;
    slabs_ = (columns_.group_rows() + step - 1) / step;
    if (!region.side.empty()) slabs_ = std::min(slabs_, folding_slabs(columns_, options));
    find_columns();
  }

  std::vector<Launch> launches() {
    Launch launch;
    launch.name = region_.name;
    launch.block = kThreads;
    Arguments args;
    declare_pointers(args);
    for (size_t s = 0; s < region_.side.size(); ++s) args.workspace("F", fmt::format("fold{}", s), offset(s));
    declare_scalars(args), declare_places(args);
    args.integer("groups", columns_.group_count(), space_.wide);
    args.integer("group_rows", columns_.group_rows(), space_.wide);
    args.integer("chunks", chunks_, space_.wide);
    args.integer("slabs", slabs_, space_.wide);
    launch.text = page(args, std::to_string(kThreads) + ", 2", body());
    args.finish(launch);
    launch.grid = columns_.group_count() * slabs_ * chunks_;
    std::vector<Launch> list = {launch};
    if (!region_.side.empty()) list.push_back(result());
    return list;
  }

 private:
  std::string slot(int access) const override { return streaming(access) ? "[u]" : ""; }
  bool streaming(int access) const { return columns_.walks(space_.stride[size_t(access)]); }
  int64_t kept() const { return columns_.group_count() * space_.row_size(); }
  int64_t offset(size_t side) const {
    return scratch_ + int64_t(side) * ((slabs_ * kept() * (emit_.wide() ? 8 : 4) + 255) / 256 * 256);
  }

  // Which instructions are the same for all rows of a group; and which of those the walk over rows needs.
  void find_columns() {
    const size_t n = p_.code.size();
    of_column_.assign(n, false), handed_on_.assign(n, false);
    for (size_t k = 0; k < n; ++k) {
      const Instr& i = p_.code[k];
      of_column_[k] = (i.access < 0 || !streaming(i.access)) &&
                      std::all_of(i.arg.begin(), i.arg.end(), [&](int a) { return a < 0 || of_column_[size_t(a)]; });
    }
    const auto hand_on = [&](int a) {
      if (a < 0 || !of_column_[size_t(a)]) return;
      const PwOp op = p_.code[size_t(a)].op;
      handed_on_[size_t(a)] = op != PwOp::Const && op != PwOp::Scalar;
    };
    for (size_t k = 0; k < n; ++k)
      if (!of_column_[k])
        for (int a : p_.code[k].arg) hand_on(a);
    for (const fuse::SideReduction& s : region_.side) hand_on(s.value);
  }

  // --- text ----------------------------------------------------------------------------------------------------------
  // o0, o1, ... of the group, and of a row of it.
  std::string dims(size_t first, size_t last, const std::string& from, const std::string& in) const {
    std::string text;
    if (first == last) return text;
    if (last - first == 1) return fmt::format("{}const Index o{} = {};\n", in, first, from);
    text += fmt::format("{}Index rest{} = {};\n", in, first, from);
    for (size_t d = last; d-- > first;)
      text += fmt::format("{0}const Index o{1} = rest{2} % a.outer[{1}]; rest{2} /= a.outer[{1}];\n", in, d, first);
    return text;
  }

  std::set<int> vectors(PwOp op, bool of_column) const {
    std::set<int> list;
    for (size_t k = 0; k < p_.code.size(); ++k)
      if (p_.code[k].op == op && of_column_[k] == of_column && in_vector(p_.code[k].access))
        list.insert(p_.code[k].access);
    return list;
  }

  // Parameters, what is computed of them alone, and results that are theirs alone.
  std::string column_part() const {
    const std::string in = "    ";
    std::string text = dims(0, columns_.groups, "group", in) + bases(in, [&](int a) { return !streaming(a); });
    for (int a : vectors(PwOp::Load, true))
      text += fmt::format("{}const {} x{} = load<{}, {}>({});\n", in, vector_type(a), a, type_of(a), width_,
                          vector_address(a));
    std::vector<int> roots, stores;
    std::string body;
    for (size_t k = 0; k < p_.code.size(); ++k) {
      if (handed_on_[k]) roots.push_back(int(k)), text += fmt::format("{}F h{}[{}];\n", in, k, width_);
      if (of_column_[k] && p_.code[k].op == PwOp::Store) stores.push_back(int(k));
    }
    const auto none = [](int) { return false; };
    const auto loop = [&](const std::vector<int>& of, const std::string& indent, bool hand_on) {
      const std::vector<bool> need = emit_.needed(of, none);
      std::string inside = emit_.statements(
          point(), [&](int k) { return need[size_t(k)]; }, none, indent + "  ");
      if (hand_on)
        for (int k : of) inside += fmt::format("{}  h{}[{}] = {};\n", indent, k, element(), emit_.value(k));
      return element_loop(inside, indent);
    };
    if (!roots.empty()) text += loop(roots, in, true);
    if (!stores.empty()) {
      const std::set<int> to = vectors(PwOp::Store, true);
      text += in + "if (slab == 0 && threadIdx.x < " + std::to_string(lanes_) + ") {\n" + stores_before(to, in + "  ") +
              loop(stores, in + "  ", false) + stores_behind(to, in + "  ") + in + "}\n";
    }
    return text;
  }
  std::string element() const { return width_ > 1 ? "k" : "0"; }

  // A loop over the rows that a thread has in flight.
  std::string rows_loop(const std::string& inside) const {
    const std::string in = "        ";
    return fmt::format(
               "#pragma unroll\n      for (int u = 0; u < {}; ++u) {{\n{}const Index row = first + u * {};\n"
               "{}if (row >= a.group_rows) break;\n",
               each_, in, rows_, in) +
           dims(columns_.groups, space_.outer.size(), "row", in) + inside + "      }\n";
  }

  // What is computed of each row: the statements of `roots`, and `more` of an element.
  std::string point_loop(const std::vector<int>& roots, const std::string& more, const std::set<int>& stores) const {
    const std::string in = "        ";
    const auto known = [&](int k) { return bool(handed_on_[size_t(k)]); };
    const std::vector<bool> need = emit_.needed(roots, known);
    std::string inside;
    for (size_t k = 0; k < p_.code.size(); ++k) {
      if (!handed_on_[k]) continue;
      bool used = std::count(roots.begin(), roots.end(), int(k)) > 0;
      for (size_t j = 0; j < need.size(); ++j)
        used = used || (need[j] && std::count(p_.code[j].arg.begin(), p_.code[j].arg.end(), int(k)) > 0);
      if (used) inside += fmt::format("{}  const F {} = h{}[{}];\n", in, emit_.value(int(k)), k, element());
    }
    inside += emit_.statements(
        point(), [&](int k) { return need[size_t(k)]; }, known, in + "  ");
    return rows_loop(bases(in, [&](int a) { return streaming(a); }) + stores_before(stores, in) +
                     element_loop(inside + more, in) + stores_behind(stores, in));
  }

  // Kernels that fold nothing walk from the end to the start: what the launch before read last may still be in the L2.
  std::string body() const {
    std::string text = fmt::format(
        "  const int lane = threadIdx.x % {0};\n  Index rest = {1};\n"
        "  const Index chunk = rest % a.chunks;\n  rest /= a.chunks;\n"
        "  const Index slab = rest % a.slabs, group = rest / a.slabs;\n  const Index c = chunk * {0} + lane;\n",
        lanes_, region_.side.empty() ? "gridDim.x - 1 - blockIdx.x" : "blockIdx.x");
    const size_t sides = region_.side.size();
    for (size_t s = 0; s < sides; ++s)
      text +=
          fmt::format("  F w{0}[{1}];\n#pragma unroll\n  for (int k = 0; k < {1}; ++k) w{0}[k] = {2}::start<F>();\n", s,
                      width_, reduction_type(region_.side[s].mode));
    if (moments_) text += "  F count = F(0);\n";
    text += "  if (c < a.vectors) {\n" + column_part() + walk() + "  }\n";
    if (sides > 0) text += fmt::format("  __shared__ F columns[{}][{}];\n", width_, kThreads + 32 / width_);
    if (moments_) return text + moments_end();
    for (size_t s = 0; s < sides; ++s) text += side_end(s);
    return text;
  }

  std::string walk() const {
    std::string text = fmt::format(
        "    for (Index first = slab * {0} + threadIdx.x / {1}; first < a.group_rows; first += a.slabs * {0}) {{\n",
        rows_ * each_, lanes_);
    const std::set<int> loads = vectors(PwOp::Load, false), stores = vectors(PwOp::Store, false);
    if (!loads.empty()) {
      for (int a : loads) text += fmt::format("      {} x{}[{}];\n", vector_type(a), a, each_);
      std::string inside = bases("        ", [&](int a) { return loads.count(a) > 0; });
      for (int a : loads)
        inside += fmt::format("        x{}[u] = load<{}, {}>({});\n", a, type_of(a), width_, vector_address(a));
      text += rows_loop(inside);
    }
    std::vector<int> roots;
    for (size_t k = 0; k < p_.code.size(); ++k)
      if (p_.code[k].op == PwOp::Store && !of_column_[k]) roots.push_back(int(k));
    if (moments_) return text + moments_walk(roots, stores) + "    }\n";
    std::string more;
    for (size_t s = 0; s < region_.side.size(); ++s) {
      roots.push_back(region_.side[s].value);
      more += fmt::format("          w{0}[{1}] = {2}::join(w{0}[{1}], {2}::element({3}));\n", s, element(),
                          reduction_type(region_.side[s].mode), emit_.value(region_.side[s].value));
    }
    return text + point_loop(roots, more, stores) + "    }\n";
  }

  // The rows in flight first make an average and a sum of squared distances of their own: as exact as two passes over
  // all. Those join what the thread has.
  std::string moments_walk(std::vector<int> roots, const std::set<int>& stores) const {
    const int value = region_.side[0].value;
    const std::string v = emit_.value(value), k = element();
    std::string text = fmt::format(
        "      F sum[{0}], squares[{0}], here = F(0);\n#pragma unroll\n      for (int k = 0; k < {0}; ++k) sum[k] = "
        "squares[k]"
        " = F(0);\n",
        width_);
    text += "#pragma unroll\n      for (int u = 0; u < " + std::to_string(each_) + "; ++u) here += F(first + u * " +
            std::to_string(rows_) + " < a.group_rows);\n";
    text += point_loop({value}, fmt::format("          sum[{0}] += {1};\n", k, v), {});
    text += fmt::format(
        "      const F each = F(1) / here, share = here / (count + here);\n#pragma unroll\n"
        "      for (int k = 0; k < {}; ++k) sum[k] *= each;\n",
        width_);
    roots.push_back(value);
    text += point_loop(roots, fmt::format("          squares[{0}] += ({1} - sum[{0}]) * ({1} - sum[{0}]);\n", k, v),
                       stores);
    return text +
           fmt::format(
               "#pragma unroll\n      for (int k = 0; k < {}; ++k) {{\n        const F apart = sum[k] - w0[k];\n"
               "        w0[k] += apart * share;\n        w1[k] += squares[k] + apart * apart * (count * share);\n"
               "      }}\n      count += here;\n",
               width_);
  }

  std::string shared_loop(const std::string& inside) const {
    return fmt::format(
        "  for (int i = threadIdx.x; i < {0}; i += {1}) {{\n    const int t = i / {2}, k = i % {2};\n{3}"
        "    const Index at = chunk * {0} + i;\n",
        lanes_ * width_, kThreads, width_, inside);
  }
  std::string give(size_t s) const {
    return fmt::format(
        "  __syncthreads();\n#pragma unroll\n  for (int k = 0; k < {}; ++k) columns[k][threadIdx.x] = w{}[k];\n"
        "  __syncthreads();\n",
        width_, s);
  }
  std::string partial(size_t s) const {
    return fmt::format(
        "    if (at < a.vectors * {0}) a.fold{1}[(slab * a.groups + group) * (a.vectors * {0}) + at] = x;\n", width_,
        s);
  }
  // The block's rows join, column by column.
  std::string side_end(size_t s) const {
    return give(s) +
           shared_loop(fmt::format(
               "    F x = columns[k][t];\n    for (int j = 1; j < {}; ++j) x = {}::join(x, columns[k][t + j * "
               "{}]);\n",
               rows_, reduction_type(region_.side[s].mode), lanes_)) +
           partial(s) + "  }\n";
  }
  std::string moments_end() const {
    const std::string sum = fmt::format("for (int j = 0; j < {}; ++j)", rows_),
                      other = fmt::format("[t + j * {}]", lanes_);
    std::string text = fmt::format(
        "  __shared__ F counts[{0}], means[{1}][{2}];\n  if (lane == 0) counts[threadIdx.x / {3}] = count;\n", rows_,
        width_, kThreads + 32 / width_, lanes_);
    text += fmt::format("#pragma unroll\n  for (int k = 0; k < {}; ++k) means[k][threadIdx.x] = w0[k];\n", width_) +
            give(1);
    text += shared_loop("    F all = F(0), mean = F(0), squares = F(0);\n    " + sum +
                        " all += counts[j], mean += counts[j] * means[k]" + other + ";\n    mean /= all;\n    " + sum +
                        " {\n      const F apart = means[k]" + other + " - mean;\n      squares += columns[k]" + other +
                        " + counts[j] * apart * apart;\n    }\n");
    text += "    F x = mean;\n" + partial(0) + "    x = squares;\n" + partial(1) + "  }\n";
    return text;
  }

  Launch result() const {
    Partials partials;
    std::vector<std::vector<int64_t>> stride;
    std::vector<int64_t> extents(space_.outer.begin(), space_.outer.begin() + long(columns_.groups));
    extents.push_back(space_.inner[0]);
    for (size_t s = 0; s < region_.side.size(); ++s) {
      partials.offset.push_back(offset(s));
      stride.emplace_back(space_.side[s].begin(), space_.side[s].begin() + long(columns_.groups));
      stride.back().push_back(space_.side[s].back());
    }
    partials.count = kept(), partials.parts = slabs_, partials.moments = moments_;
    partials.rows = columns_.group_rows(), partials.step = int64_t(rows_) * each_;
    return partials_launch(fused_, region_, emit_.wide(), partials, extents, stride);
  }

  ColumnSpace columns_;
  int64_t scratch_;
  bool moments_;
  int lanes_ = 1, rows_ = 1, each_ = 1;  // threads beside each other; rows of a block; rows of a thread in flight
  int64_t chunks_ = 1, slabs_ = 1;
  std::vector<bool> of_column_, handed_on_;
};

}  // namespace

bool columns_take(const Region& region) { return column_space(region).found; }

std::vector<Launch> columns_launches(const fuse::FusedGraph& fused, const Region& region, const KernelOptions& options,
                                     int64_t scratch_offset, bool moments) {
  return ColumnsKernel(fused, region, options, scratch_offset, moments, column_space(region)).launches();
}

int64_t columns_scratch_bytes(const Region& region, const KernelOptions& options) {
  const ColumnSpace c = column_space(region);
  const int64_t kept = c.group_count() * c.space.row_size(), slabs = folding_slabs(c, options);
  const int64_t bytes = (slabs * kept * (region.program.needs_double() ? 8 : 4) + 255) / 256 * 256;
  return int64_t(region.side.size()) * bytes;
}

}  // namespace tilewright::cuda
