#include "engines/cuda/split_rows.h"

#include <algorithm>

#include "engines/cuda/columns.h"
#include "engines/cuda/space.h"
#include "layout/view.h"

namespace tilewright::cuda {

using fuse::Access;
using fuse::Instr;
using fuse::PwOp;
using fuse::PwProgram;
using fuse::Region;
using fuse::SideReduction;

namespace {

int64_t rows_of(const PwProgram& p) { return volume(p.domain) / std::max<int64_t>(1, p.inner_size()); }
int64_t value_bytes(const PwProgram& p) { return (rows_of(p) * (p.needs_double() ? 8 : 4) + 255) / 256 * 256; }

// Whether all that streams along rows does so with strides: a block for each row would fetch much and use little.
bool crosses_memory(const Region& region) {
  const Space space = make_space(region);
  if (space.inner.empty()) return false;
  const size_t last = space.outer.size() + space.inner.size() - 1;
  bool any = false;
  for (const Instr& i : region.program.code) {
    if (i.op != PwOp::Load && i.op != PwOp::Store) continue;
    const int64_t along = space.stride[size_t(i.access)][last];
    if (along == 1) return false;
    any = any || along != 0;
  }
  return any;
}

// A value per row in the workspace, as an access over the whole domain.
struct RowValue {
  ir::TensorId tensor;
  Access access;
};
RowValue add_row_value(fuse::FusedGraph& fused, const PwProgram& p, int64_t offset) {
  ir::Tensor t;
  t.name = "row values";
  t.type = p.needs_double() ? DataType_t::DOUBLE : DataType_t::FLOAT;
  t.dim = {rows_of(p)}, t.stride = {1};
  fused.graph.tensors.push_back(t);
  const auto id = ir::TensorId(fused.graph.tensors.size() - 1);
  fused.place.push_back({id, 0, offset});
  RowValue v{id, {id, t.type, Dims(p.domain.size(), 0), 0}};
  int64_t step = 1;
  for (size_t d = p.domain.size(); d-- > 0;)
    if (!(p.inner >> d & 1)) v.access.stride[d] = p.domain[d] == 1 ? 0 : step, step *= p.domain[d];
  return v;
}

// Copies into a map what some instructions need; reductions that were folded before are loads.
class Part {
 public:
  Part(const PwProgram& from, std::vector<RowValue> folded)
      : from_(from), folded_(std::move(folded)), copied_(from.code.size(), -1) {
    map_.domain = from.domain;
  }
  int copy(int k) {
    if (copied_[size_t(k)] >= 0) return copied_[size_t(k)];
    Instr i = from_.code[size_t(k)];
    if (i.op == PwOp::Reduce) {
      i.op = PwOp::Load;
      i.arg = {-1, -1, -1};
      map_.access.push_back(folded_[size_t(k)].access);
      i.access = int(map_.access.size()) - 1;
    } else {
      for (int& a : i.arg)
        if (a >= 0) a = copy(a);
      if (i.access >= 0) {
        map_.access.push_back(from_.access[size_t(i.access)]);
        i.access = int(map_.access.size()) - 1;
      }
    }
    return copied_[size_t(k)] = fuse::append(map_, i);
  }
  PwProgram& map() { return map_; }

 private:
  const PwProgram& from_;
  std::vector<RowValue> folded_;
  std::vector<int> copied_;
  PwProgram map_;
};

Region map_region(const Region& of, PwProgram program, const char* what) {
  Region r;
  r.name = of.name + what;
  r.nodes = of.nodes;
  r.program = std::move(program);
  return r;
}

// A reduction that is the average of values' squared distances from their average: which reduction that one is; or -1.
int average_of(const PwProgram& p, int k) {
  const Instr& variance = p.code[size_t(k)];
  if (variance.op != PwOp::Reduce || variance.reduce != ReductionMode_t::AVG) return -1;
  const Instr& square = p.code[size_t(variance.arg[0])];
  if (square.op != PwOp::Pointwise || square.mode != PointwiseMode_t::MUL || square.arg[0] != square.arg[1]) return -1;
  const Instr& distance = p.code[size_t(square.arg[0])];
  if (distance.op != PwOp::Pointwise || distance.mode != PointwiseMode_t::SUB) return -1;
  const Instr& average = p.code[size_t(distance.arg[1])];
  const bool fits =
      average.op == PwOp::Reduce && average.reduce == ReductionMode_t::AVG && average.arg[0] == distance.arg[0];
  return fits ? distance.arg[1] : -1;
}

// Whether all that a region stores are its reductions, as they are.
bool only_folds(const Region& region) {
  const PwProgram& p = region.program;
  if (!region.side.empty() || p.depth() != 1) return false;
  std::vector<int> readers(p.code.size(), 0);
  for (const Instr& i : p.code)
    for (int a : i.arg)
      if (a >= 0) ++readers[size_t(a)];
  return std::all_of(p.code.begin(), p.code.end(), [&](const Instr& i) {
    if (i.op == PwOp::Reduce) return readers[size_t(&i - p.code.data())] == 1;
    return i.op != PwOp::Store || p.code[size_t(i.arg[0])].op == PwOp::Reduce;
  });
}
Region folds_as_stored(const Region& region) {
  const PwProgram& p = region.program;
  Part part(p, {});
  std::vector<SideReduction> side;
  for (const Instr& i : p.code) {
    if (i.op != PwOp::Store) continue;
    const Instr& fold = p.code[size_t(i.arg[0])];
    side.push_back({part.copy(fold.arg[0]), fold.reduce, p.inner, p.inner_size(), p.access[size_t(i.access)]});
  }
  Region r = map_region(region, std::move(part.map()), "");
  r.side = std::move(side);
  return r;
}

}  // namespace

bool wants_split(const Region& region, const KernelOptions& options) {
  const PwProgram& p = region.program;
  if (p.inner == 0 || volume(p.domain) < (int64_t{1} << 18)) return false;
  for (const Instr& i : p.code)
    if (i.op == PwOp::Reduce && (i.reduce == ReductionMode_t::MUL || i.reduce == ReductionMode_t::MUL_NO_ZEROS))
      return false;
  constexpr int64_t kLongRow = 1 << 15;  // elements that a block does not keep
  return (rows_of(p) < options.sms && p.inner_size() > kLongRow) || crosses_memory(region);
}

int64_t split_scratch_bytes(const Region& region) {
  int64_t bytes = 0;
  for (const Instr& i : region.program.code) bytes += i.op == PwOp::Reduce ? value_bytes(region.program) : 0;
  return bytes;
}

std::vector<SplitPart> split_rows(fuse::FusedGraph& fused, const Region& region, int64_t scratch_offset) {
  const PwProgram& p = region.program;
  if (only_folds(region)) return {{folds_as_stored(region)}};
  std::vector<RowValue> folded(p.code.size());
  for (size_t k = 0; k < p.code.size(); ++k)
    if (p.code[k].op == PwOp::Reduce) {
      folded[k] = add_row_value(fused, p, scratch_offset);
      scratch_offset += value_bytes(p);
    }
  std::vector<SplitPart> parts;
  std::vector<bool> done(p.code.size(), false);
  // An average and a variance, in one walk over the rows.
  const auto moments = [&](int average, int variance) {
    Part part(p, folded);
    const int value = part.copy(p.code[size_t(average)].arg[0]);
    Region both = map_region(region, std::move(part.map()), ": average and variance");
    for (int k : {average, variance})
      both.side.push_back({value, ReductionMode_t::AVG, p.inner, p.inner_size(), folded[size_t(k)].access});
    if (!columns_take(both)) return;
    parts.push_back({std::move(both), true});
    done[size_t(average)] = done[size_t(variance)] = true;
  };
  for (int depth = 1; depth <= p.depth(); ++depth) {
    for (size_t k = 0; k < p.code.size(); ++k)
      if (const int average = average_of(p, int(k)); average >= 0 && p.code[size_t(average)].depth == depth)
        if (!done[k] && !done[size_t(average)]) moments(average, int(k));
    Part part(p, folded);
    std::vector<SideReduction> side;
    for (size_t k = 0; k < p.code.size(); ++k) {
      const Instr& i = p.code[k];
      if (i.op == PwOp::Reduce && i.depth == depth && !done[k])
        side.push_back({part.copy(i.arg[0]), i.reduce, p.inner, p.inner_size(), folded[k].access});
    }
    if (side.empty()) continue;
    parts.push_back({map_region(region, std::move(part.map()), ": reductions")});
    parts.back().region.side = std::move(side);
  }
  // Stores along rows, with the region's own side reductions; and stores of one value for each row, over the rows
  // alone.
  const bool sides = !region.side.empty();
  Part inside(p, folded), rows(p, folded), both(p, folded);
  bool any_inside = sides, any_rows = false;
  for (size_t k = 0; k < p.code.size(); ++k) {
    const Instr& i = p.code[k];
    if (i.op != PwOp::Store) continue;
    fuse::DimMask varies = p.code[size_t(i.arg[0])].dims;
    for (size_t d = 0; d < p.domain.size(); ++d)
      if (p.access[size_t(i.access)].stride[d] != 0) varies |= fuse::DimMask(1) << d;
    const bool along = varies & p.inner;
    (along ? inside : rows).copy(int(k));
    both.copy(int(k));
    (along ? any_inside : any_rows) = true;
  }
  if (any_inside && any_rows && !sides) {
    Region whole = map_region(region, std::move(both.map()), "");
    if (columns_take(whole)) {
      parts.push_back({std::move(whole)});
      return parts;
    }
  }
  if (any_inside) {
    std::vector<SideReduction> side = region.side;
    for (SideReduction& s : side) s.value = inside.copy(s.value);
    parts.push_back({map_region(region, std::move(inside.map()), "")});
    parts.back().region.side = std::move(side);
  }
  if (any_rows) {
    PwProgram& program = rows.map();
    for (size_t d = 0; d < p.domain.size(); ++d)
      if (p.inner >> d & 1) program.domain[d] = 1;
    parts.push_back({map_region(region, std::move(program), ": row values")});
  }
  return parts;
}

}  // namespace tilewright::cuda
