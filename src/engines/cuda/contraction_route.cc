#include "engines/cuda/contraction_route.h"

#include <algorithm>
#include <cstdlib>

#include "engines/cuda/emit.h"

namespace tilewright::cuda {

using fuse::PwOp;
using fuse::PwProgram;
using fuse::Region;
using D = DataType_t;

namespace {

int64_t cuts(int64_t n, int64_t by) { return (n + by - 1) / by; }

bool is_plain(const PwProgram& p) { return p.code[size_t(p.result)].op == PwOp::Load; }

// The type whose values the operand has: that of memory, or that of the tensor that a program makes.
D operand_type(const fuse::FusedGraph& fused, const Region& region, size_t operand) {
  const PwProgram& p = region.operand[operand];
  if (is_plain(p)) return p.access[size_t(p.code[size_t(p.result)].access)].type;
  const ir::Node& node = fused.graph.nodes[size_t(region.heavy)];
  return fused.graph.tensor(node.in[operand]).storage_type();
}

bool is_small(D t) { return t == D::FP8_E4M3 || t == D::FP8_E5M2 || t == D::INT8 || t == D::UINT8 || t == D::BOOLEAN; }
bool is_byte(D t) { return t == D::INT8 || t == D::UINT8; }

bool is_wide_type(D t) { return t == D::DOUBLE || t == D::INT32 || t == D::INT64; }

// What both operands are exactly representable in, of the types that tensor cores take; empty: nothing.
void choose_elements(ContractionRoute& r, const fuse::FusedGraph& fused, const Region& region, const OrderedProblem& o,
                     int64_t sums, const KernelOptions& options) {
  const bool wide_compute = is_wide_type(fused.graph.nodes[size_t(region.heavy)].compute);
  const bool wide_operand = region.operand[0].needs_double() || region.operand[1].needs_double();
  r.wide = wide_operand || wide_compute || region.program.needs_double();
  const size_t first = o.exchanged ? 1 : 0;
  const D a = operand_type(fused, region, first), b = operand_type(fused, region, 1 - first);
  const bool padded = o.problem.padding != 0 &&
                      (o.problem.m_end != ir::kNone || o.problem.n_end != ir::kNone || o.problem.k_end != ir::kNone);
  const auto cores = [&](ContractionRoute::Kind kind, const std::string& of_a, const std::string& of_b,
                         const char* sum) {
    r.kind = kind, r.element = {of_a, of_b}, r.sum = sum;
  };
  constexpr int64_t kMostByteSums = 32768;  // of products below 2^16 in 31 bits
  const bool may = options.tensor_cores && !padded;
  const bool plain = is_plain(region.operand[0]) && is_plain(region.operand[1]);
  if (may && options.arch >= 80 && is_byte(a) && is_byte(b) && plain && sums <= kMostByteSums)
    return cores(ContractionRoute::TensorCores, element_type(a), element_type(b), "int");
  if (may && !wide_compute && !wide_operand) {
    const auto fits = [&](D type) { return (a == type || is_small(a)) && (b == type || is_small(b)); };
    if (options.arch >= 75 && fits(D::HALF)) return cores(ContractionRoute::TensorCores, "f16", "f16", "float");
    if (options.arch >= 80 && fits(D::BFLOAT16)) return cores(ContractionRoute::TensorCores, "bf16", "bf16", "float");
  }
  const bool wide_sums = wide_compute || wide_operand;
  const std::string element = wide_sums ? "f64" : "f32";
  cores(ContractionRoute::Cores, element, element, wide_sums ? "double" : "float");
}

void choose_tile(ContractionRoute& r, const ContractionSpace& s, const KernelOptions& options) {
  const int64_t m = s.size('m'), n = s.size('n'), b = s.size('b');
  const auto tile = [&](int rows, int columns, int across_m, int across_n) {
    r.rows = rows, r.columns = columns, r.across_m = across_m, r.across_n = across_n;
  };
  const bool large = m > 64 && n > 64 && cuts(m, 128) * cuts(n, 128) * b >= options.sms;
  if (r.kind == ContractionRoute::TensorCores) {
    if (m <= 16) tile(16, 128, 1, 4);
    else if (n <= 16) tile(128, 16, 4, 1);
    else if (large) tile(128, 128, 2, 4);
    else tile(64, 64, 2, 2);
  } else if (r.sum == "double") {
    if (m <= 16) tile(16, 64, 8, 16);
    else if (n <= 16) tile(64, 16, 16, 8);
    else tile(64, 64, 16, 16);
  } else {
    if (m <= 16) tile(16, 128, 4, 32);
    else if (n <= 16) tile(128, 16, 32, 4);
    else if (large) tile(128, 128, 16, 16);
    else tile(64, 64, 16, 16);
  }
}

// Few tiles or points, or one channel per group, where tiles would be empty.
bool wants_points(ContractionRoute& r, const Region& region, const ContractionSpace& s) {
  const int64_t m = s.size('m'), n = s.size('n'), b = s.size('b'), k = s.size('k');
  const int batch = s.last('b');
  for (const fuse::Instr& i : region.program.code)
    if (i.op == PwOp::Store && batch >= 0 && std::abs(s.result[size_t(i.access)].step[size_t(batch)]) == 1)
      r.batch_fastest = true;
  if (m <= 8 && n <= 8) return true;
  return std::min(m, n) == 1 && b > 1 && (r.batch_fastest || k <= 64);
}

void choose_parts(ContractionRoute& r, const ContractionSpace& s, const KernelOptions& options) {
  const int64_t m = s.size('m'), n = s.size('n'), b = s.size('b'), k = s.size('k');
  const bool points = r.kind == ContractionRoute::Points;
  const int64_t stage = points                                    ? 1
                        : r.kind == ContractionRoute::TensorCores ? (r.sum == "int" ? 64 : 32)
                        : r.sum == "double"                       ? 8
                                                                  : 16;
  r.part_sums = std::max<int64_t>(cuts(k, stage) * stage, stage);
  if (b * m * n == 0) return;  // there is nothing to compute
  const int64_t blocks = points ? cuts(b * m * n, 256) : cuts(m, r.rows) * cuts(n, r.columns) * b;
  const int64_t wanted = points ? 8 * options.sms : 2 * options.sms;
  constexpr int64_t kMostBytes = int64_t{1} << 28, kMostParts = 256;
  int64_t parts = std::min(
      {wanted / blocks, cuts(k, stage) / (points ? 64 : 4), kMostParts, kMostBytes / (b * m * n * r.sum_bytes())});
  if (s.wide || 2 * blocks > wanted || parts < 2) parts = 1;
  r.part_sums = std::max<int64_t>(cuts(cuts(k, parts), stage) * stage, stage);
  r.parts = std::max<int64_t>(1, cuts(k, r.part_sums));
}

// As a share of the tensor cores' rate for HALF.
double flops_share(const ContractionRoute& r, const KernelOptions& options) {
  if (r.kind == ContractionRoute::TensorCores) return r.rows * r.columns > 64 * 64 ? 0.4 : 0.25;
  const bool small = options.arch % 10 != 0 || options.arch == 120;  // parts for graphics and embedded ones
  const double cores = options.arch >= 100 && !small ? 1 / 32. : options.arch == 75 ? 1 / 8. : small ? 1 / 4. : 1 / 16.;
  const double share = r.sum == "double" ? cores * (small || options.arch == 75 ? 1 / 32. : 1 / 2.) : cores;
  return share * (r.kind == ContractionRoute::Points ? 0.1 : 0.4);
}

}  // namespace

ContractionRoute choose_route(const fuse::FusedGraph& fused, const Region& region, const OrderedProblem& o,
                              const ContractionSpace& space, const KernelOptions& options) {
  ContractionRoute r;
  r.copies = options.arch >= 80;
  choose_elements(r, fused, region, o, space.size('k'), options);
  if (wants_points(r, region, space)) {
    const bool wide = r.sum == "double" || r.sum == "int";
    r.kind = ContractionRoute::Points;
    r.sum = wide ? "double" : "float", r.element = {wide ? "f64" : "f32", wide ? "f64" : "f32"};
  } else {
    choose_tile(r, space, options);
  }
  choose_parts(r, space, options);
  r.flops_share = flops_share(r, options);
  return r;
}

}  // namespace tilewright::cuda
