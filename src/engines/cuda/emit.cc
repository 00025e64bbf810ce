#include "engines/cuda/emit.h"

#include <fmt/format.h>

#include <cmath>

#include "base/numeric_types.h"
#include "engines/cuda/launch.h"

namespace tilewright::cuda {

using fuse::Instr;
using fuse::PwOp;

std::string element_type(DataType_t type) {
  switch (type) {
    case DataType_t::FLOAT: return "f32";
    case DataType_t::DOUBLE: return "f64";
    case DataType_t::HALF: return "f16";
    case DataType_t::BFLOAT16: return "bf16";
    case DataType_t::FP8_E4M3: return "e4m3";
    case DataType_t::FP8_E5M2: return "e5m2";
    case DataType_t::INT8: return "s8";
    case DataType_t::UINT8: return "uint8";
    case DataType_t::INT32: return "s32";
    case DataType_t::INT64: return "s64";
    case DataType_t::BOOLEAN: return "boolean";
    default: return "";
  }
}

const char* reduction_type(ReductionMode_t mode) {
  switch (mode) {
    case ReductionMode_t::AVG: return "Average";
    case ReductionMode_t::NORM1: return "AbsoluteSum";
    case ReductionMode_t::NORM2: return "Norm2";
    case ReductionMode_t::MUL: return "Product";
    case ReductionMode_t::MUL_NO_ZEROS: return "ProductNoZeros";
    case ReductionMode_t::MAX: return "Max";
    case ReductionMode_t::MIN: return "Min";
    case ReductionMode_t::AMAX: return "AbsoluteMax";
    default: return "Sum";
  }
}

std::string number(double x, bool wide) {
  if (std::isnan(x)) return wide ? "double(from_bits(0x7fc00000u))" : "from_bits(0x7fc00000u)";
  if (std::isinf(x)) {
    const std::string inf = fmt::format("{}from_bits(0x7f800000u)", x < 0 ? "-" : "");
    return wide ? "double(" + inf + ")" : inf;
  }
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return wide ? text : "float(" + text + ")";
}

Status check_type(DataType_t type) {
  if (!element_type(type).empty()) return {};
  return not_supported("elements of type {} are not taken by our kernels",
                       type == kBitBoolean ? "BOOLEAN in bits" : to_string(type));
}

Status check_types(const fuse::PwProgram& p) {
  for (const fuse::Access& a : p.access)
    if (a.tensor != ir::kNone) TW_RETURN_IF_BAD(check_type(a.type));
  return {};
}

std::string decompose(const char* prefix, const char* from, const char* extents, size_t rank,
                      const std::string& indent) {
  if (rank == 0) return "";
  if (rank == 1) return fmt::format("{}const Index {}0 = {};\n", indent, prefix, from);
  std::string text = fmt::format("{}Index {}_rest = {};\n", indent, prefix, from);
  for (size_t d = rank; d-- > 1;)
    text += fmt::format("{0}const Index {1}{2} = {1}_rest % a.{3}[{2}]; {1}_rest /= a.{3}[{2}];\n", indent, prefix, d,
                        extents);
  return text + fmt::format("{0}const Index {1}0 = {1}_rest;\n", indent, prefix);
}

namespace {

// A kernel's text is of a class of shapes: of "stride [4096, 1] + 12" nothing stays.
std::string without_strides(std::string text) {
  constexpr std::string_view kStride = " stride [";
  for (size_t at = text.find(kStride); at != text.npos; at = text.find(kStride, at)) {
    size_t end = text.find(']', at) + 1;
    if (text.compare(end, 3, " + ") == 0) end = text.find_first_not_of("0123456789", end + 3);
    text.erase(at, std::min(text.find_first_not_of(' ', end), text.size()) - at);
    text.insert(at, " ");
  }
  return text;
}

// A name as an identifier.
std::string identifier(const std::string& name) {
  std::string s;
  for (char c : name) s += isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return s;
}

}  // namespace

std::string page_title(const std::string& name, const std::vector<const fuse::PwProgram*>& programs,
                       const ir::Graph& graph) {
  std::string text = "// " + printable(name) + "\n";
  for (const fuse::PwProgram* p : programs) {
    const std::string lines = without_strides(program_text(*p, graph));
    for (size_t at = 0; at < lines.size();) {
      const size_t end = std::min(lines.find('\n', at), lines.size());
      text += "//   " + printable(lines.substr(at, end - at)) + "\n";
      at = end + 1;
    }
  }
  return text;
}

Emitter::Emitter(const fuse::PwProgram& program, const ir::Graph& graph, const std::string& prefix)
    : Emitter(program, graph, prefix, program.needs_double()) {}
Emitter::Emitter(const fuse::PwProgram& program, const ir::Graph& graph, const std::string& prefix, bool wide)
    : program_(program), graph_(graph), prefix_(prefix), wide_(wide) {}

std::string Emitter::value(int k) const { return fmt::format("{}v{}", prefix_, k); }
std::string Emitter::scalar(int k) const { return fmt::format("{}s{}", prefix_, k); }

std::vector<int> Emitter::scalars() const {
  std::vector<int> list;
  for (size_t k = 0; k < program_.code.size(); ++k)
    if (program_.code[k].op == PwOp::Scalar) list.push_back(int(k));
  return list;
}

std::string Emitter::function_name(int k) const {
  return fmt::format("{}f{}_{}", prefix_, k, identifier(to_string(program_.code[size_t(k)].mode)));
}

std::string Emitter::functions() const {
  std::string text;
  for (size_t k = 0; k < program_.code.size(); ++k) {
    const Instr& i = program_.code[k];
    if (i.op != PwOp::Pointwise) continue;
    const PwParams& p = i.params;
    std::string parameters;
    const std::string formula = pointwise_formula(i.mode);
    if (formula.find("p.") != formula.npos)
      parameters = fmt::format("const Params p = {{{}, {}, {}, {}, {}, {}}}; ", number(p.lower, true),
                               number(p.upper, true), number(p.slope, true), number(p.swish_beta, true),
                               number(p.elu_alpha, true), number(p.softplus_beta, true));
    const int arity = pointwise_arity(i.mode);
    text += fmt::format("DEV F {}(F x{}{}) {{ {}return {}; }}", function_name(int(k)), arity > 1 ? ", F y" : "",
                        arity > 2 ? ", F m" : "", parameters, formula);
    if (i.origin >= 0) text += fmt::format("  // {}", printable(graph_.nodes[size_t(i.origin)].name));
    text += '\n';
  }
  return text;
}

std::string Emitter::expression(int k, const PointText& point) const {
  const Instr& i = program_.code[size_t(k)];
  const auto arg = [&](int a) { return value(i.arg[size_t(a)]); };
  switch (i.op) {
    case PwOp::Load: return point.load(i);
    case PwOp::Index: return point.index(i);
    case PwOp::In: return point.in(i);
    case PwOp::Scalar: return fmt::format("F(a.{})", scalar(k));
    case PwOp::Const: return number(i.value, wide_);
    case PwOp::Cast:
      return fmt::format("F({0}::get({0}::set({1})))", i.type == DataType_t::INT4 ? "s4" : element_type(i.type),
                         arg(0));
    case PwOp::Pointwise: {
      if (i.mode == PointwiseMode_t::DIV && divisors_.count(i.arg[1]))
        return fmt::format("divided({}, {})", arg(0), divisor(i.arg[1]));
      std::string args = arg(0);
      for (int a = 1; a < pointwise_arity(i.mode); ++a) args += ", " + arg(a);
      return fmt::format("{}({})", function_name(k), args);
    }
    default: return "";
  }
}

std::vector<bool> Emitter::needed(const std::vector<int>& roots, const std::function<bool(int)>& known) const {
  std::vector<bool> need(program_.code.size(), false);
  for (int r : roots) need[size_t(r)] = true;
  for (size_t k = program_.code.size(); k-- > 0;)
    if (need[k] && !known(int(k)))
      for (int a : program_.code[k].arg)
        if (a >= 0) need[size_t(a)] = true;
  for (size_t k = 0; k < need.size(); ++k)
    if (known(int(k))) need[k] = false;
  return need;
}

std::string Emitter::statements(const PointText& point, const std::function<bool(int)>& wanted,
                                const std::function<bool(int)>& known, const std::string& indent) const {
  std::string text;
  for (size_t k = 0; k < program_.code.size(); ++k) {
    if (!wanted(int(k)) || known(int(k))) continue;
    const Instr& i = program_.code[k];
    if (i.op == PwOp::Store) text += indent + point.store(i, value(i.arg[0])) + "\n";
    else text += fmt::format("{}const F {} = {};\n", indent, value(int(k)), expression(int(k), point));
  }
  return text;
}

}  // namespace tilewright::cuda
