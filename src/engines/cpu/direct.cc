// Which convolutions run straight from the definition: those of many small groups, depthwise ones above all, whose
// matrix products of a few channels would leave most lanes idle.
#include "engines/cpu/direct.h"

namespace tilewright::cpu {
namespace {

constexpr int64_t kLargestGroup = 16;      // channels; beyond, a matrix product is better
constexpr int64_t kLargestGroupAlong = 8;  // the same for lanes along a spatial dim

// What a lane costs in memory: the operands' and the result's loads and stores along one of their dims.
double memory_cost(const std::vector<const fuse::PwProgram*>& programs, size_t dim) {
  double cost = 0;
  for (const fuse::PwProgram* p : programs)
    for (const fuse::Access& a : p->access)
      if (a.tensor != ir::kNone && dim < a.stride.size()) cost += lane_cost(a.stride[dim]);
  return cost;
}

template <class T>
std::unique_ptr<Kernel> make(const fuse::Region& region, const ops::Convolution& c, std::string_view op) {
  const int64_t vector = direct_loops<T>().vector, k = c.k_per_group(), per_group = std::max(k, c.c_per_group());
  const bool dgrad = op == "conv_dgrad", wgrad = op == "conv_wgrad";
  std::vector<const fuse::PwProgram*> programs = {&region.operand[0]};
  if (wgrad) programs.push_back(&region.operand[1]);
  else programs.push_back(&region.program);
  const int64_t width = dgrad ? c.in.back() : c.out.back();
  const auto idle = [&](int64_t lanes) { return double(vector) / double(std::clamp<int64_t>(lanes, 1, vector)); };
  const bool groups_fit = k == c.c_per_group() && (k & (k - 1)) == 0 && k <= vector;
  const bool by_channels =
      groups_fit && memory_cost(programs, 1) * idle(c.k) < memory_cost(programs, c.rank() + 1) * idle(width);
  if (per_group > (by_channels ? kLargestGroup : wgrad ? 1 : kLargestGroupAlong)) return nullptr;
  if (wgrad) return direct::make_filter_gradient<T>(region, c, by_channels);
  return direct::make_convolution<T>(region, c, dgrad, by_channels);
}

}  // namespace

std::unique_ptr<Kernel> make_direct(const fuse::FusedGraph& fused, const fuse::Region& region) {
  const ir::Node& node = fused.graph.nodes[size_t(region.heavy)];
  const std::string_view op = node.op->name;
  if (op == "matmul") return nullptr;
  const ops::Convolution conv = ops::convolution_of(fused.graph, node);
  if (conv.groups == 1) return nullptr;
  const bool wide =
      node.compute == DataType_t::DOUBLE || node.compute == DataType_t::INT32 || node.compute == DataType_t::INT64;
  if (wide || region.program.needs_double() || region.operand[0].needs_double() || region.operand[1].needs_double())
    return make<double>(region, conv, op);
  return make<float>(region, conv, op);
}

}  // namespace tilewright::cpu
