#include "fuse/program.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/numeric_types.h"
#include "layout/view.h"

namespace tilewright::fuse {

int PwProgram::depth() const {
  int depth = 0;
  for (const Instr& i : code) depth = std::max(depth, i.depth);
  return depth;
}

bool PwProgram::needs_double() const {
  auto wide = [](DataType_t t) { return t == DataType_t::DOUBLE || t == DataType_t::INT32 || t == DataType_t::INT64; };
  for (const Access& a : access)
    if (a.tensor != ir::kNone && wide(a.type)) return true;
  for (const Instr& i : code)
    if ((i.op == PwOp::Cast || i.op == PwOp::Pointwise || i.op == PwOp::Reduce) && wide(i.type)) return true;
  // Indices beyond 2^24 are not exact in float.
  for (const Instr& i : code)
    if (i.op == PwOp::Index)
      for (size_t d = 0; d < domain.size(); ++d)
        if (access[size_t(i.access)].stride[d] * domain[d] > (int64_t(1) << 24)) return true;
  return false;
}

int64_t PwProgram::inner_size() const {
  int64_t n = 1;
  for (size_t d = 0; d < domain.size(); ++d)
    if (inner >> d & 1) n *= domain[d];
  return n;
}

int append(PwProgram& p, Instr i) {
  i.dims = 0, i.depth = 0;
  if (i.op == PwOp::In) i.dims = (DimMask(1) << p.domain.size()) - 1;
  if (i.op == PwOp::Load || i.op == PwOp::Index || i.op == PwOp::Store) {
    const Dims& stride = p.access[size_t(i.access)].stride;
    for (size_t d = 0; d < stride.size(); ++d)
      if (stride[d] != 0 && p.domain[d] != 1) i.dims |= DimMask(1) << d;
  }
  for (int a : i.arg) {
    if (a < 0) continue;
    const Instr& arg = p.code[size_t(a)];
    i.dims |= arg.dims;
    i.depth = std::max(i.depth, arg.depth);
  }
  if (i.op == PwOp::Reduce) i.dims &= ~p.inner, ++i.depth;
  p.code.push_back(i);
  return int(p.code.size()) - 1;
}

std::string program_text(const PwProgram& p, const ir::Graph& g) {
  auto name = [&](ir::TensorId t) { return t == ir::kNone ? std::string() : fmt::format("\"{}\"", g.tensor(t).name); };
  auto dims_text = [&](DimMask m) {
    std::string s = "{";
    for (size_t d = 0; d < p.domain.size(); ++d)
      if (m >> d & 1) s += fmt::format("{}{}", s.size() > 1 ? "," : "", d);
    return s + "}";
  };
  std::string text;
  for (size_t k = 0; k < p.code.size(); ++k) {
    const Instr& i = p.code[k];
    std::string line = i.op == PwOp::Store ? std::string("      ") : fmt::format("%{:<3} = ", k);
    auto args = [&] {
      std::string s;
      for (int a : i.arg)
        if (a >= 0) s += fmt::format(" %{}", a);
      return s;
    };
    auto where = [&](const Access& a) {
      const std::string type = a.type == kBitBoolean ? "BOOLEAN in bits" : to_string(a.type);
      return fmt::format("{} stride {}{}", a.tensor == ir::kNone ? "" : name(a.tensor) + " " + type, to_text(a.stride),
                         a.offset ? fmt::format(" + {}", a.offset) : "");
    };
    switch (i.op) {
      case PwOp::Load: line += "load " + where(p.access[size_t(i.access)]); break;
      case PwOp::Store: line += "store" + args() + " -> " + where(p.access[size_t(i.access)]); break;
      case PwOp::Index: line += "index" + where(p.access[size_t(i.access)]); break;
      case PwOp::Scalar: line += "scalar " + name(i.tensor); break;
      case PwOp::Const: line += fmt::format("const {}", i.value); break;
      case PwOp::In: line += "in"; break;
      case PwOp::Cast: line += "cast " + to_string(i.type) + args(); break;
      case PwOp::Pointwise: line += to_string(i.mode) + args(); break;
      case PwOp::Reduce: line += "reduce " + to_string(i.reduce) + args(); break;
    }
    text += fmt::format("{:<60} ; {} {}\n", line, dims_text(i.dims),
                        i.op == PwOp::Pointwise || i.op == PwOp::Reduce ? name(i.tensor) : "");
  }
  return text;
}

// --- reductions
// -------------------------------------------------------------------------------------------------------
double reduction_start(ReductionMode_t mode) {
  switch (mode) {
    case ReductionMode_t::MUL:
    case ReductionMode_t::MUL_NO_ZEROS: return 1;
    case ReductionMode_t::MIN: return std::numeric_limits<double>::infinity();
    case ReductionMode_t::MAX: return -std::numeric_limits<double>::infinity();
    default: return 0;
  }
}

bool reduction_is_sum(ReductionMode_t mode) {
  return mode == ReductionMode_t::ADD || mode == ReductionMode_t::AVG || mode == ReductionMode_t::NORM1 ||
         mode == ReductionMode_t::NORM2;
}

double reduction_element(ReductionMode_t mode, double x) {
  switch (mode) {
    case ReductionMode_t::NORM1:
    case ReductionMode_t::AMAX: return std::fabs(x);
    case ReductionMode_t::NORM2: return x * x;
    case ReductionMode_t::MUL_NO_ZEROS: return x == 0 ? 1 : x;
    default: return x;
  }
}

double reduction_join(ReductionMode_t mode, double a, double b) {
  switch (mode) {
    case ReductionMode_t::MUL:
    case ReductionMode_t::MUL_NO_ZEROS: return a * b;
    case ReductionMode_t::MIN: return pw::min(a, b);
    case ReductionMode_t::MAX:
    case ReductionMode_t::AMAX: return pw::max(a, b);
    default: return a + b;
  }
}

double reduction_finish(ReductionMode_t mode, double total, int64_t count) {
  if (mode == ReductionMode_t::AVG) return total / double(count);
  if (mode == ReductionMode_t::NORM2) return std::sqrt(total);
  return total;
}

// --- the walker
// -------------------------------------------------------------------------------------------------------
namespace {

double pointwise(const Instr& i, double x, double y, double m) {
  switch (i.mode) {
#define PW(MODE, ...) \
  case PointwiseMode_t::MODE: \
    return pointwise_value<PointwiseMode_t::MODE>(x, y, m, i.params);
#include "ops/pw_ops.def"
#undef PW
    default: return x;
  }
}

}  // namespace

void walk(const PwProgram& p, const ElementIo& memory, const std::function<double(const int64_t* index)>& in,
          const Visit& visit) {
  const size_t rank = p.domain.size();
  Dims outer = p.domain, inner(rank, 1);
  for (size_t d = 0; d < rank; ++d)
    if (p.inner >> d & 1) inner[d] = p.domain[d], outer[d] = 1;
  const int64_t rows = volume(outer), columns = volume(inner);
  std::vector<double> value(p.code.size());
  Dims index(rank), step(rank);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> total(p.code.size());
    for (size_t k = 0; k < p.code.size(); ++k) total[k] = reduction_start(p.code[k].reduce);
    for (int pass = 0; pass <= p.depth(); ++pass)
      for (int64_t column = 0; column < columns; ++column) {
        unravel(row, outer, index.data());
        unravel(column, inner, step.data());
        for (size_t d = 0; d < rank; ++d) index[d] += step[d];
        for (size_t k = 0; k < p.code.size(); ++k) {
          const Instr& i = p.code[k];
          auto arg = [&](int a) { return i.arg[size_t(a)] < 0 ? 0 : value[size_t(i.arg[size_t(a)])]; };
          const Access* a = i.access < 0 ? nullptr : &p.access[size_t(i.access)];
          const int64_t at = a ? a->offset + offset_of(a->stride, index.data()) : 0;
          switch (i.op) {
            case PwOp::Load: value[k] = load_element(memory(a->tensor), a->type, at); break;
            case PwOp::Scalar: value[k] = load_element(memory(i.tensor), i.type, 0); break;
            case PwOp::Const: value[k] = i.value; break;
            case PwOp::In: value[k] = in(index.data()); break;
            case PwOp::Index: value[k] = double(at); break;
            case PwOp::Pointwise: value[k] = pointwise(i, arg(0), arg(1), arg(2)); break;
            case PwOp::Cast: value[k] = round_to_type(i.type, arg(0)); break;
            case PwOp::Reduce:
              if (pass == i.depth - 1)
                total[k] = reduction_join(i.reduce, total[k], reduction_element(i.reduce, arg(0)));
              value[k] = reduction_finish(i.reduce, total[k], columns);
              break;
            case PwOp::Store:
              if (pass == p.depth()) store_element(memory(a->tensor), a->type, at, arg(0));
              break;
          }
        }
        if (visit && pass == p.depth()) visit(index.data(), value);
      }
  }
}

}  // namespace tilewright::fuse
