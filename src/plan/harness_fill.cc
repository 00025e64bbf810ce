#include "plan/harness_fill.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

namespace tilewright {

namespace {

constexpr auto kUniform = FillRange::Uniform;
constexpr auto kInteger = FillRange::Integer;

// Ports whose values cannot be just any number. A null op means every op that has such a port.
struct PortRow {
  const char *op, *port;
  FillRange range;
};
constexpr PortRow kPorts[] = {
    {nullptr, "EPSILON", {kUniform, 1e-3, 1e-2}},
    {nullptr, "MOMENTUM", {kUniform, 0.05, 0.5}},
    {nullptr, "INV_VARIANCE", {kUniform, 0.5, 2}},
    {nullptr, "PREV_RUNNING_VAR", {kUniform, 0.5, 2}},
    {nullptr, "SCALE", {kUniform, 0.5, 1.5}},
    // A mean within +-1/4 and a mean square of at least 1: the variance that bn_finalize derives is positive.
    {"bn_finalize", "SUM", {kUniform, -16, 16}},
    {"bn_finalize", "SQ_SUM", {kUniform, 64, 128}},
    {"bn_finalize", "ACCUM_COUNT", {kInteger, 64, 64}},
    {nullptr, "Seed", {kInteger, 0, 1000}},
    {nullptr, "Offset", {kInteger, 0, 1000}},
    {nullptr, "Attn_scale", {kUniform, 0.1, 0.3}},
    {nullptr, "Dropout_mask", {kInteger, 0, 1}},
    {nullptr, "Dropout_scale", {kUniform, 1, 2}},
    {nullptr, "Dropout_scale_inv", {kUniform, 0.5, 1}},
};

// Pointwise modes with a bounded domain, or where a narrow one tests more (equal values for comparisons).
struct ModeRow {
  PointwiseMode_t mode;
  int port;  // -1: all
  FillRange range;
};
constexpr ModeRow kModes[] = {
    {PointwiseMode_t::SQRT, -1, {kUniform, 0.25, 4}},     {PointwiseMode_t::RSQRT, -1, {kUniform, 0.25, 4}},
    {PointwiseMode_t::LOG, -1, {kUniform, 0.25, 4}},      {PointwiseMode_t::RECIPROCAL, -1, {kUniform, 0.25, 4}},
    {PointwiseMode_t::DIV, 1, {kUniform, 0.5, 2}},        {PointwiseMode_t::MOD, 1, {kUniform, 0.5, 2}},
    {PointwiseMode_t::POW, 0, {kUniform, 0.5, 2}},        {PointwiseMode_t::POW, 1, {kUniform, -2, 2}},
    {PointwiseMode_t::EXP, -1, {kUniform, -2, 2}},        {PointwiseMode_t::TAN, -1, {kUniform, -1, 1}},
    {PointwiseMode_t::CMP_EQ, -1, {kInteger, -2, 2}},     {PointwiseMode_t::CMP_NEQ, -1, {kInteger, -2, 2}},
    {PointwiseMode_t::CMP_GT, -1, {kInteger, -2, 2}},     {PointwiseMode_t::CMP_GE, -1, {kInteger, -2, 2}},
    {PointwiseMode_t::CMP_LT, -1, {kInteger, -2, 2}},     {PointwiseMode_t::CMP_LE, -1, {kInteger, -2, 2}},
    {PointwiseMode_t::LOGICAL_AND, -1, {kInteger, 0, 1}}, {PointwiseMode_t::LOGICAL_OR, -1, {kInteger, 0, 1}},
    {PointwiseMode_t::LOGICAL_NOT, -1, {kInteger, 0, 1}}, {PointwiseMode_t::BINARY_SELECT, 2, {kInteger, 0, 1}},
};

double dim_from_end(const ir::Graph& graph, const ir::Node& node, size_t port, size_t from_end) {
  if (port >= node.in.size() || node.in[port] == ir::kNone) return 1;
  const Dims& dim = graph.tensor(node.in[port]).dim;
  return dim.size() < from_end ? 1 : double(dim[dim.size() - from_end]);
}

std::optional<FillRange> range_at_port(const ir::Graph& graph, const ir::Node& node, int port) {
  const std::string_view op = node.op->name;
  const auto& ports = node.op->inputs;
  const std::string_view name = ports[std::min(size_t(port), ports.size() - 1)].name;
  if (op == "pointwise") {
    const auto mode = node.attr_enum("mode", PointwiseMode_t::NOT_SET);
    for (const ModeRow& row : kModes)
      if (row.mode == mode && (row.port < 0 || row.port == port)) return row.range;
    return std::nullopt;
  }
  if (op == "reduction") {  // a product of many factors stays a number when they are near 1
    const auto mode = node.attr_enum("mode", ReductionMode_t::NOT_SET);
    if (mode == ReductionMode_t::MUL || mode == ReductionMode_t::MUL_NO_ZEROS) return FillRange{kUniform, 0.8, 1.25};
    return std::nullopt;
  }
  if (name == "SEQ_LEN_Q") return FillRange{kInteger, 1, dim_from_end(graph, node, 0, 2)};
  if (name == "SEQ_LEN_KV") return FillRange{kInteger, 1, dim_from_end(graph, node, 1, 2)};
  if (name == "M_override") return FillRange{kInteger, 1, dim_from_end(graph, node, 0, 2)};
  if (name == "N_override") return FillRange{kInteger, 1, dim_from_end(graph, node, 1, 1)};
  if (name == "K_override") return FillRange{kInteger, 1, dim_from_end(graph, node, 0, 1)};
  if (op == "resample_backward" && name == "Index") {
    int64_t window = 1;
    for (int64_t w : node.attr<std::vector<int64_t>>("window")) window *= w;
    return FillRange{kInteger, 0, double(window - 1)};
  }
  for (const PortRow& row : kPorts)
    if (name == row.port && (!row.op || op == row.op)) return row.range;
  return std::nullopt;
}

// SplitMix64's finaliser over seed and counter.
uint64_t mix(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

FillRange fill_range(const ir::Graph& graph, ir::TensorId id) {
  const ir::Tensor& tensor = graph.tensor(id);
  if (tensor.type == DataType_t::BOOLEAN) return {kInteger, 0, 1};
  FillRange range;
  bool found = false;
  for (const ir::Node& node : graph.nodes)
    for (size_t port = 0; port < node.in.size() && !found; ++port)
      if (node.in[port] == id)
        if (auto r = range_at_port(graph, node, int(port))) range = *r, found = true;
  if (!is_integer_type(tensor.type) || range.kind == kInteger) return range;
  if (range.kind == kUniform && range.a > 0) return {kInteger, 1, std::max(1., std::floor(range.b))};
  return tensor.type == DataType_t::UINT8 ? FillRange{kInteger, 0, 8} : FillRange{kInteger, -8, 8};
}

FillRange integer_range(const FillRange& range) {
  if (range.kind == kInteger) return range;
  if (range.kind == FillRange::Normal) return {kInteger, -3, 3};
  if (range.a > 0) {  // the power of two nearest to the middle of the range, in logarithm
    const double middle = std::exp2(std::round((std::log2(range.a) + std::log2(range.b)) / 2));
    return {kUniform, middle, middle};
  }
  return {kInteger, std::ceil(range.a), std::floor(range.b)};
}

double fill_value(const FillRange& range, uint64_t seed, uint64_t index) {
  const uint64_t bits = mix(seed, index);
  switch (range.kind) {
    case FillRange::Uniform: return range.a + (range.b - range.a) * (double(bits >> 11) * 0x1p-53);
    case FillRange::Integer: return range.a + double(bits % uint64_t(range.b - range.a + 1));
    case FillRange::Normal: break;
  }
  // The sum of four uniform numbers has the shape of a normal one; the factor makes its deviation 1.
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += double((bits >> (16 * i)) & 0xffff) + 0.5;
  return range.a + range.b * (sum * 0x1p-16 - 2) * 1.7320508075688772;
}

}  // namespace tilewright
