#include "engines/cuda/map.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/numeric_types.h"
#include "engines/cuda/space_text.h"

namespace tilewright::cuda {
namespace {

using fuse::Instr;
using fuse::PwOp;

class MapKernel : SpaceText {
 public:
  MapKernel(const fuse::FusedGraph& fused, const fuse::Region& region) : SpaceText(fused, region, make_space(region)) {}

  Launch launch() {
    Launch launch;
    launch.name = region_.name;
    launch.block = kThreads;
    // What computes much for each element has two vectors in flight.
    const int each = is_heavy() ? 2 : 1;
    Arguments args;
    declare_pointers(args), declare_scalars(args), declare_places(args);
    launch.text = page(args, std::to_string(kThreads), body(each));
    args.finish(launch);
    const int64_t vectors = space_.rows() * space_.row_size() / width_;
    launch.grid = std::max<int64_t>(1, (vectors + kThreads * each - 1) / (kThreads * each));
    return launch;
  }

 private:
  static constexpr int kThreads = 256;
  std::string slot(int) const override { return "[v]"; }

  bool is_heavy() const {
    using P = PointwiseMode_t;
    return std::any_of(p_.code.begin(), p_.code.end(), [](const Instr& i) {
      return i.op == PwOp::Pointwise &&
             (i.mode == P::GELU_FWD || i.mode == P::GELU_BWD || i.mode == P::ERF || i.mode == P::TANH_FWD ||
              i.mode == P::TANH_BWD || i.mode == P::GELU_APPROX_TANH_FWD || i.mode == P::GELU_APPROX_TANH_BWD);
    });
  }

  // All loads come before the first store, so that an output may be in an input's place.
  std::string body(int each) const {
    std::set<int> loads, stores;
    for (const Instr& i : p_.code) {
      if (i.op == PwOp::Load && in_vector(i.access)) loads.insert(i.access);
      if (i.op == PwOp::Store && in_vector(i.access)) stores.insert(i.access);
    }
    std::string text = fmt::format("  const Index start = blockIdx.x * Index({}) + threadIdx.x;\n", kThreads * each);
    for (int a : loads) text += fmt::format("  {} x{}[{}];\n", vector_type(a), a, each);
    const auto loop = [&](const std::string& inside) {
      text += fmt::format(
          "#pragma unroll\n  for (int v = 0; v < {}; ++v) {{\n    const Index at = start + v * {};\n"
          "    if (at >= a.rows * a.vectors) break;\n",
          each, kThreads);
      if (space_.outer.empty()) text += "    const Index c = at;\n";
      else text += "    const Index row = at / a.vectors, c = at - row * a.vectors;\n";
      text += decompose("o", "row", "outer", space_.outer.size(), "    ") + inside + "  }\n";
    };
    if (!loads.empty()) {
      std::string inside = bases("    ", [&](int a) { return loads.count(a) > 0; });
      for (int a : loads)
        inside += fmt::format("    x{}[v] = load<{}, {}>({});\n", a, type_of(a), width_, vector_address(a));
      loop(inside);
    }
    const auto all = [](int) { return true; };
    const auto none = [](int) { return false; };
    loop(bases("    ") + stores_before(stores, "    ") +
         element_loop(emit_.statements(point(), all, none, "      "), "    ") + stores_behind(stores, "    "));
    return text;
  }
};

// --- tiles -----------------------------------------------------------------------------------------------------------

// Two dims of the space: `fast` is the last, along which stores are contiguous; along `other` some accesses are. Tiles
// of both are crossed in shared memory, so that every access moves 16 bytes and neighbours lie side by side.
class TileKernel : SpaceText {
 public:
  // Nothing where the accesses agree, or where one is contiguous along neither.
  static std::optional<Launch> launch(const fuse::FusedGraph& fused, const fuse::Region& region) {
    const Space space = make_space(region);
    if (space.inner.size() != 1 || space.outer.empty()) return std::nullopt;
    for (size_t d = 0; d < space.outer.size(); ++d) {
      TileKernel kernel(fused, region, space, d);
      if (kernel.fits()) return kernel.make();
    }
    return std::nullopt;
  }

 private:
  TileKernel(const fuse::FusedGraph& fused, const fuse::Region& region, const Space& space, size_t other)
      : SpaceText(fused, region, space), other_(other) {
    for (const Instr& i : p_.code)
      if (i.op == PwOp::Load || i.op == PwOp::Store) largest_ = std::max(largest_, bytes_of(i.access));
    const int64_t extent = space_.outer[other_];
    other_size_ = crossed_bytes() > 4 || (extent % 128 != 0 && extent % 64 == 0) ? 64 : 128;
    width_ = 16 / largest_;
    while (width_ > 1 && !wide_enough(width_)) width_ /= 2;
  }

  int bytes_of(int access) const { return std::max(1, element_bits(p_.access[size_t(access)].type) / 8); }
  int64_t along_fast(int access) const { return space_.stride[size_t(access)].back(); }
  int64_t along_other(int access) const { return space_.stride[size_t(access)][other_]; }
  // Contiguous along `other` and not along `fast`: through shared memory.
  bool crossed(int access) const {
    return along_other(access) == 1 && along_fast(access) != 0 && along_fast(access) != 1;
  }

  int crossed_bytes() const {
    int bytes = 0;
    for (const Instr& i : p_.code)
      if ((i.op == PwOp::Load || i.op == PwOp::Store) && crossed(i.access)) bytes += bytes_of(i.access);
    return bytes;
  }

  bool fits() const {
    for (const Instr& i : p_.code) {
      if (i.op != PwOp::Load && i.op != PwOp::Store) continue;
      const int64_t fast = along_fast(i.access);
      if (!crossed(i.access) && fast != 0 && fast != 1) return false;
    }
    const int64_t shared = int64_t(crossed_bytes()) * kFast * other_size_;
    return shared > 0 && shared <= 48 << 10 && space_.inner[0] >= 16 && space_.outer[other_] >= 16;
  }

  // Whether all accesses can be moved `width` elements at a time.
  bool wide_enough(int width) const {
    if (space_.inner[0] % width != 0 || space_.outer[other_] % width != 0) return false;
    for (const Instr& i : p_.code) {
      if (i.op != PwOp::Load && i.op != PwOp::Store) continue;
      const fuse::Access& access = p_.access[size_t(i.access)];
      const auto& stride = space_.stride[size_t(i.access)];
      const size_t contiguous = crossed(i.access) ? other_ : stride.size() - 1;
      if (stride[contiguous] == 0) continue;
      const bool ours = fused_.place[size_t(access.tensor)].workspace >= 0;
      const int64_t alignment = ours ? 16 : fused_.graph.tensor(access.tensor).alignment;
      if (access.offset % width != 0 || alignment % (width * bytes_of(i.access)) != 0) return false;
      for (size_t d = 0; d < stride.size(); ++d)
        if (d != contiguous && stride[d] % width != 0) return false;
    }
    return true;
  }

  std::string slot(int) const override { return ""; }

  Launch make() {
    Launch launch;
    launch.name = region_.name;
    launch.block = kThreads;
    Arguments args;
    declare_pointers(args), declare_scalars(args), declare_places(args);
    const int64_t fast = tiles(space_.inner[0], kFast), other = tiles(space_.outer[other_], other_size_);
    args.integer("fast_tiles", fast, space_.wide);
    args.integer("other_tiles", other, space_.wide);
    launch.text = page(args, std::to_string(kThreads), body());
    args.finish(launch);
    launch.grid = fast * other * (space_.rows() / space_.outer[other_]);
    return launch;
  }
  static int64_t tiles(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

  // Which tile; next comes the one beside it along `fast`, so that what is stored at one time lies together. Of the
  // remaining dims o0, o1, ...
  std::string place() const {
    std::string text = fmt::format(
        "  Index rest = blockIdx.x;\n  const Index fast = rest % a.fast_tiles * {};\n  rest /= a.fast_tiles;\n"
        "  const Index other = rest % a.other_tiles * {};\n  rest /= a.other_tiles;\n",
        kFast, other_size_);
    for (size_t d = space_.outer.size(); d-- > 0;)
      if (d != other_) text += fmt::format("  const Index o{0} = rest % a.outer[{0}]; rest /= a.outer[{0}];\n", d);
    return text;
  }

  // A loop over the tile's vectors along `other`, of `f` along `fast` and `o` along `other`.
  std::string across(const std::string& inside) const {
    return fmt::format(
        "#pragma unroll 4\n  for (int v = 0; v < {0}; ++v) {{\n    const int at = threadIdx.x + v * {1};\n"
        "    const int f = at / {2}, o = at % {2};\n"
        "    if (fast + f < a.inner[0] && other + o * {3} < a.outer[{4}]) {{\n{5}    }}\n  }}\n",
        kFast * other_size_ / width_ / kThreads, kThreads, other_size_ / width_, width_, other_, inside);
  }
  // Where element (f, o) of a tile lies: vectors are moved about so that those of neighbouring f, which are read
  // together, lie in different banks.
  std::string vector_of_tile(int access) const {
    return fmt::format("&tile{}[f * {} + (o ^ (f / {} % {})) * {}]", access, other_size_, width_, other_size_ / width_,
                       width_);
  }
  std::string element_of_tile(int access) const {
    return fmt::format("tile{0}[(f * {1} + k) * {2} + ((o / {1}) ^ (f % {3})) * {1} + o % {1}]", access, width_,
                       other_size_, other_size_ / width_);
  }
  std::string crossed_place(int access) const {
    return fmt::format("a.{0} + b{1} + (fast + f) * a.{0}_stride[{2}]", pointer(access), access, space_.outer.size());
  }
  std::string crossed_bases(const std::set<int>& of) const {
    return fmt::format("      const Index o{} = other + o * {};\n", other_, width_) +
           bases("      ", [&](int a) { return of.count(a) > 0; });
  }

  std::string body() const {
    std::set<int> loads, stores, in, out;  // vectors along `fast`; crossed ones
    for (const Instr& i : p_.code) {
      if (i.op == PwOp::Load && crossed(i.access)) in.insert(i.access);
      else if (i.op == PwOp::Store && crossed(i.access)) out.insert(i.access);
      else if (i.op == PwOp::Load && in_vector(i.access)) loads.insert(i.access);
      else if (i.op == PwOp::Store && in_vector(i.access)) stores.insert(i.access);
    }
    std::string text;
    for (const auto* crossings : {&in, &out})
      for (int a : *crossings)
        text += fmt::format("  __shared__ __align__(16) {} tile{}[{}];\n", type_of(a), a, kFast * other_size_);
    text += place();
    if (!in.empty()) {
      std::string inside = crossed_bases(in);
      for (int a : in)
        inside += fmt::format("      *reinterpret_cast<{}*>({}) = load<{}, {}>({});\n", vector_type(a),
                              vector_of_tile(a), type_of(a), width_, crossed_place(a));
      text += across(inside) + "  __syncthreads();\n";
    }
    text += along_fast_text(loads, stores, in, out);
    if (!out.empty()) {
      std::string inside = crossed_bases(out);
      for (int a : out)
        inside += fmt::format("      *reinterpret_cast<{}*>({}) = load<{}, {}>({});\n", vector_type(a),
                              crossed_place(a), type_of(a), width_, vector_of_tile(a));
      text += "  __syncthreads();\n" + across(inside);
    }
    return text;
  }

  // Each thread's vectors along `fast`: f counts vectors, o elements along `other`.
  std::string along_fast_text(const std::set<int>& loads, const std::set<int>& stores, const std::set<int>& in,
                              const std::set<int>& out) const {
    std::string text = fmt::format(
        "#pragma unroll 2\n  for (int v = 0; v < {0}; ++v) {{\n    const int at = threadIdx.x + v * {1};\n"
        "    const int f = at % {2}, o = at / {2};\n"
        "    const Index c = fast / {3} + f, o{4} = other + o;\n"
        "    if (c * {3} < a.inner[0] && o{4} < a.outer[{4}]) {{\n",
        kFast * other_size_ / width_ / kThreads, kThreads, kFast / width_, width_, other_);
    text += bases("      ");
    for (int a : loads)
      text += fmt::format("      const {} x{} = load<{}, {}>({});\n", vector_type(a), a, type_of(a), width_,
                          vector_address(a));
    PointText at = point();
    const auto load = at.load;
    const auto store = at.store;
    at.load = [&](const Instr& i) {
      if (in.count(i.access)) return fmt::format("F({}::get({}))", type_of(i.access), element_of_tile(i.access));
      return load(i);
    };
    at.store = [&](const Instr& i, const std::string& value) {
      if (out.count(i.access))
        return fmt::format("{} = {}::set({});", element_of_tile(i.access), type_of(i.access), value);
      return store(i, value);
    };
    const auto all = [](int) { return true; };
    const auto none = [](int) { return false; };
    std::string body = emit_.statements(at, all, none, "        ");
    if (width_ == 1) body = "        constexpr int k = 0;\n" + body;
    return text + stores_before(stores, "      ") + element_loop(body, "      ") + stores_behind(stores, "      ") +
           "    }\n  }\n";
  }

  static constexpr int kThreads = 256, kFast = 64;
  size_t other_;
  int largest_ = 1;
  int other_size_ = 128;  // elements of a tile along `other`
};

}  // namespace

Launch map_launch(const fuse::FusedGraph& fused, const fuse::Region& region, const KernelOptions&) {
  if (auto tiles = TileKernel::launch(fused, region)) return *tiles;
  return MapKernel(fused, region).launch();
}

}  // namespace tilewright::cuda
