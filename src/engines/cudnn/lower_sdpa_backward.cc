// sdpa_backward, as the pattern that cuDNN recognises: D = sum dO O first, then P and dV, then dS with dBias, dK and
// dQ.
#include "engines/cudnn/lower_sdpa.h"

namespace tilewright::cudnn {

using ir::NodeId;
using P = PointwiseMode_t;
using namespace ops;

namespace {

void add_reshape(Lowering& l, RawDescriptor x, RawDescriptor y) {
  Descriptor op(Kind::OPERATION_RESHAPE);
  op.descriptor(Attr::OPERATION_RESHAPE_XDESC, x).descriptor(Attr::OPERATION_RESHAPE_YDESC, y);
  l.operation(std::move(op));
}

class Backward : public AttentionPattern {
 public:
  using AttentionPattern::AttentionPattern;

  void lower() {
    if (!takes() || !takes_backward()) return;
    // Up to 9.15.0 the kernels read keys beyond the last whole tile unless lengths say where they end.
    if (o.skv % 128 != 0 && !o.padding && l.version() <= 91500) give_full_lengths();
    find_dropout();
    if (!l.ok()) return;
    kt_ = transposed(kK), vt_ = transposed(kV);
    const RawDescriptor d = row_products();
    const RawDescriptor p = probabilities();
    RawDescriptor kept = p;
    if (mask_) kept = pointwise(P::MUL, kept, mask_);
    if (keep_scale_) kept = pointwise(P::MUL, kept, keep_scale_);
    gradient_of_keys(kept, kDO, kOutDV, o.hv, o.dv);
    const RawDescriptor ds = gradient_of_scores(p, d);
    gradient_of_keys(ds, kQ, kOutDK, o.hk, o.dqk);
    gradient_of_queries(ds);
  }

 private:
  bool takes_backward() {
    if (o.sq == 1 && o.skv == 1) refuse(Why::Shape, "the gradient for one query and one key is not served");
    const int64_t most = arch() / 10 == 9 ? 256 : 128;
    for (const auto& [port, size] : {std::pair{size_t(kQ), o.dqk}, {size_t(kV), o.dv}})
      if (size > most && !(arch() / 10 == 10 && o.dqk == 192 && o.dv == 128))
        refuse(Why::Shape,
               fmt::format("{} \"{}\" has head size {}; at most {} serves on sm_{}", n.op->inputs[port].name,
                           tensor(port).name, size, most, arch()),
               n.in[port]);
    for (size_t port : {size_t(kO), size_t(kDO)}) unit_stride(n.op->inputs[port].name, n.in[port]);
    for (size_t port : {size_t(kOutDQ), size_t(kOutDK), size_t(kOutDV)})
      unit_stride(n.op->outputs[port].name, n.out[port]);
    if (wants_dbias()) {  // a dBias summed over queries or keys is written beyond its end
      const ir::Tensor& t = l.graph().tensor(n.out[kOutDBias]);
      if (t.dim[2] != o.sq || t.dim[3] != o.skv)
        refuse(Why::Shape,
               fmt::format("dBias \"{}\" {} is summed over queries or keys, which cuDNN computes wrongly; [.., {}, {}] "
                           "serves",
                           t.name, tilewright::to_text(t.dim), o.sq, o.skv),
               n.out[kOutDBias]);
    }
    if (has(kDropoutMask) || has(kDropoutScale))
      refuse(Why::Library,
             "cuDNN's gradient with a dropout mask is less exact than its types; dropout by probability is served");
    if (deterministic() && arch() / 10 == 10)
      refuse(Why::Arch, fmt::format("no deterministic gradient is lowered for sm_{}", arch()));
    return l.ok();
  }

  void unit_stride(const char* port, ir::TensorId id) {
    const ir::Tensor& t = l.graph().tensor(id);
    if (t.stride[3] != 1)
      refuse(Why::Stride, fmt::format("{} \"{}\" has stride {} in its last dim; 1 serves", port, t.name, t.stride[3]),
             id);
  }

  bool deterministic() const { return n.attr("is_deterministic_algorithm", false); }
  bool wants_dbias() const { return n.out.size() > kOutDBias && n.out[kOutDBias] != ir::kNone; }

  void find_dropout() {
    keep_scale_inverse_ = number(o.philox ? 1 - o.drop_probability : 1);
    if (!o.philox) return;
    mask_ = random_mask(out(kOutRngDumpBackward));
    keep_scale_ = number(o.keep_scale());
  }

  // D over the scale of dropout, in memory: the kernels come back to it.
  RawDescriptor row_products() {
    const RawDescriptor products =
        l.scratch(DataType_t::FLOAT, {o.b, o.hq, o.sq, o.dv}, {o.hq * o.sq * o.dv, o.sq * o.dv, o.hq * o.dv, 1});
    pointwise(P::MUL, in(kDO), in(kO), nullptr, products);
    const RawDescriptor sum = rows();
    add_reduction(l, ReductionMode_t::ADD, products, sum, DataType_t::FLOAT);
    if (const RawDescriptor d_sink = out(kOutDSink)) {
      const RawDescriptor below = pointwise(P::SUB, in(kSinkToken), in(kStatsIn), nullptr, rows());
      const RawDescriptor weight = pointwise(P::EXP, below, nullptr, nullptr, rows());
      add_reduction(l, ReductionMode_t::ADD, pointwise(P::MUL, weight, sum, nullptr, rows()), d_sink,
                    DataType_t::FLOAT);
    }
    const RawDescriptor d = l.workspace(DataType_t::FLOAT, {o.b, o.hq, o.sq, 1});
    return pointwise(P::MUL, sum, keep_scale_inverse_, nullptr, d);
  }

  RawDescriptor probabilities() {
    const RawDescriptor s = padded(biased_scores(kt_));
    return pointwise(P::EXP, banded(pointwise(P::SUB, s, in(kStatsIn))));
  }

  // factor^T times dO or Q, summed over the query heads that share a head.
  void gradient_of_keys(RawDescriptor factor, size_t of, size_t port, int64_t heads, int64_t head_size) {
    const RawDescriptor turned =
        l.scratch(type, {o.b, o.hq, o.skv, o.sq}, {o.hq * o.sq * o.skv, o.sq * o.skv, 1, o.skv});
    add_reshape(l, factor, turned);
    const RawDescriptor result = l.out(id, port);
    const Sizes sizes = {lengths_kv(), nullptr, lengths_q()};
    if (heads == o.hq) return matmul(turned, in(of), result, sizes);
    const RawDescriptor of_each_head = l.scratch(type, {o.b, o.hq, o.skv, head_size});
    matmul(turned, in(of), of_each_head, sizes);
    add_reduction(l, ReductionMode_t::ADD, of_each_head, result, DataType_t::FLOAT);
  }

  RawDescriptor gradient_of_scores(RawDescriptor p, RawDescriptor d) {
    RawDescriptor ds = scores();
    matmul(in(kDO), vt_, ds, {lengths_q(), lengths_kv()});
    if (mask_) ds = pointwise(P::MUL, ds, mask_);
    ds = pointwise(P::MUL, pointwise(P::SUB, ds, d), p);
    if (keep_scale_) ds = pointwise(P::MUL, ds, keep_scale_);
    if (wants_dbias()) add_reduction(l, ReductionMode_t::ADD, ds, l.out(id, kOutDBias), DataType_t::FLOAT);
    if (scale()) return pointwise(P::MUL, ds, scale());
    // With dBias the pattern has a scale.
    return wants_dbias() ? pointwise(P::MUL, ds, number(1)) : ds;
  }

  // Summed in FLOAT in the workspace, by several blocks at once, unless the order of the sums, or dBias, asks for
  // kernels that write dQ themselves.
  void gradient_of_queries(RawDescriptor ds) {
    const View k = view(kK);
    const RawDescriptor turned = l.scratch(DataType_t::FLOAT, k.dim, k.stride);
    add_reshape(l, kt_, turned);
    const Sizes sizes = {lengths_q(), nullptr, lengths_kv()};
    const RawDescriptor dq = l.out(id, kOutDQ);
    if (deterministic() || wants_dbias()) return matmul(ds, turned, dq, sizes);
    const RawDescriptor sums = l.workspace(DataType_t::FLOAT, {o.b, o.hq, o.sq, o.dqk});
    matmul(ds, turned, sums, sizes);
    pointwise(P::IDENTITY, sums, nullptr, nullptr, dq);
  }

  RawDescriptor kt_ = nullptr, vt_ = nullptr;
  // What dropout multiplies P with (null: there is none), and the inverse of the scale in it.
  RawDescriptor mask_ = nullptr, keep_scale_ = nullptr, keep_scale_inverse_ = nullptr;
};

}  // namespace

void lower_sdpa_backward(Lowering& l, NodeId id) { Backward(l, id).lower(); }

}  // namespace tilewright::cudnn
