// A softmax, which cuDNN has between the matrix products of attention only.
#include <algorithm>

#include "engines/cudnn/lower_sdpa.h"
#include "ir/op_def.h"

namespace tilewright::cudnn {

using P = PointwiseMode_t;

void add_softmax(Lowering& l, const Dims& dim, RawDescriptor s, RawDescriptor p, const SoftmaxOptions& options) {
  const auto scores = [&] { return l.scratch(DataType_t::FLOAT, dim); };
  const auto rows = [&] { return l.scratch(DataType_t::FLOAT, {dim[0], dim[1], dim[2], 1}); };
  const auto pointwise = [&](P mode, RawDescriptor a, RawDescriptor b, RawDescriptor y) {
    add_pointwise(l, mode, a, b, y, DataType_t::FLOAT);
    return y;
  };
  const RawDescriptor sink = options.sink;
  const RawDescriptor max = options.max ? options.max : rows(), sum = options.sum_exp ? options.sum_exp : rows();
  const RawDescriptor key_max = sink ? rows() : max;
  add_reduction(l, ReductionMode_t::MAX, s, key_max, DataType_t::FLOAT);
  if (sink) pointwise(P::MAX, key_max, sink, max);
  const RawDescriptor below = pointwise(P::SUB, s, max, scores());
  const RawDescriptor e = pointwise(P::EXP, below, nullptr, scores());
  if (sink) {
    const RawDescriptor sink_below = pointwise(P::SUB, sink, max, rows());
    const RawDescriptor sink_weight = pointwise(P::EXP, sink_below, nullptr, rows());
    const RawDescriptor key_sum = rows();
    add_reduction(l, ReductionMode_t::ADD, e, key_sum, DataType_t::FLOAT);
    pointwise(P::ADD, key_sum, sink_weight, sum);
  } else {
    add_reduction(l, ReductionMode_t::ADD, e, sum, DataType_t::FLOAT);
  }
  if (!options.max) {
    const RawDescriptor log_sum = pointwise(P::LOG, sum, nullptr, rows());
    pointwise(P::ADD, max, log_sum, options.stats ? options.stats : rows());
  }
  pointwise(P::DIV, e, sum, p);
}

void lower_softmax(Lowering& l, ir::NodeId id) {
  const ir::Node& n = l.node(id);
  const ir::Tensor& x = l.graph().tensor(n.in[0]);
  const int64_t rank = int64_t(x.dim.size()), axis = n.attr<int64_t>("axis", rank - 1);
  const auto& nodes = l.nodes();
  const bool with_products = std::any_of(nodes.begin(), nodes.end(), [&](ir::NodeId other) {
    return std::string_view(l.node(other).op->name) == "matmul";
  });
  if (rank != 4 || axis != 3 || !with_products)
    return l.refuse(Why::Op,
                    fmt::format("node \"{}\": cuDNN computes a softmax inside attention only, over the last of "
                                "four dims between two products; this one is over dim {} of {}",
                                n.name, axis, rank));
  add_softmax(l, x.dim, l.in(id, 0), l.out(id, 0), {l.out(id, 1)});
}

}  // namespace tilewright::cudnn
