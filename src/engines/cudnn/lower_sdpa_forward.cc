// sdpa: as one operation where cuDNN has that for what is asked, else as the pattern.
#include "engines/cudnn/lower_sdpa.h"

namespace tilewright::cudnn {

using ir::NodeId;
using P = PointwiseMode_t;
using namespace ops;

namespace {

struct Outputs {
  RawDescriptor o, stats, max, sum_exp, rng_dump;
};

class Forward : public AttentionPattern {
 public:
  using AttentionPattern::AttentionPattern;

  void lower() {
    if (!takes() || !takes_forward()) return;
    const std::string only_pattern = needs_pattern();
    const auto wanted = n.attr_enum("implementation", AttentionImplementation_t::AUTO);
    if (wanted == AttentionImplementation_t::UNIFIED && !only_pattern.empty())
      return refuse(Why::Feature, fmt::format("as one operation, cuDNN {} does not serve {}", version_text(l.version()),
                                              only_pattern));
    out_ = {out(kOutO), out(kOutStats), out(kOutMax), out(kOutSumExp), out(kOutRngDump)};
    if (only_pattern.empty() && wanted != AttentionImplementation_t::COMPOSITE) operation();
    else pattern();
  }

 private:
  bool drops_by_mask() const { return has(kDropoutMask) || has(kDropoutScale); }

  bool takes_forward() {
    const ir::Tensor& t = l.graph().tensor(n.out[kOutO]);
    if (t.stride[3] != 1)
      refuse(Why::Stride, fmt::format("O \"{}\" has stride {} in its last dim; 1 serves", t.name, t.stride[3]),
             n.out[kOutO]);
    if (o.sq == 1 && has(kSinkToken)) refuse(Why::Feature, "a sink token is not served with one query");
    if (has(kPageTableK) || has(kPageTableV) || has(kBlockMask))
      refuse(Why::Feature, "paged keys and values and block masks are not lowered");
    if (has(kDropoutScale) && !has(kDropoutMask))
      refuse(Why::Feature, "a dropout scale is not served without a dropout mask", n.in[kDropoutScale]);
    return l.ok();
  }

  // What stands against the one operation; empty: nothing.
  std::string needs_pattern() const {
    const int64_t version = l.version();
    const auto asked = [&](size_t port) { return port < n.out.size() && n.out[port] != ir::kNone; };
    if (version < 91301) return "attention";
    if (l.graph().dynamic_shapes) return "dynamic shapes";
    if (o.padding && version < 91500) return "a padding mask";
    if (has(kBias)) return "a bias";
    if (o.alibi) return "alibi";
    if (o.left || o.right) return "diagonal bounds";
    if (o.philox || drops_by_mask() || asked(kOutRngDump)) return "dropout";
    if (has(kSinkToken)) return "a sink token";
    if (asked(kOutMax) || asked(kOutSumExp)) return "Max and Sum_exp";
    return "";
  }

  void operation() {
    Descriptor op(Kind::OPERATION_SDPA_FWD);
    op.descriptor(Attr::OPERATION_SDPA_FWD_QDESC, in(kQ))
        .descriptor(Attr::OPERATION_SDPA_FWD_KDESC, in(kK))
        .descriptor(Attr::OPERATION_SDPA_FWD_VDESC, in(kV))
        .descriptor(Attr::OPERATION_SDPA_FWD_ODESC, out_.o);
    if (out_.stats) op.descriptor(Attr::OPERATION_SDPA_FWD_STATSDESC, out_.stats);
    if (const RawDescriptor s = scale()) op.descriptor(Attr::OPERATION_SDPA_FWD_SCALEDESC, s);
    if (lengths_q()) op.descriptor(Attr::OPERATION_SDPA_FWD_SEQ_LEN_QDESC, lengths_q());
    if (lengths_kv()) op.descriptor(Attr::OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, lengths_kv());
    l.operation(std::move(op));
  }

  void pattern() {
    if (out_.stats && (out_.max || out_.sum_exp))
      return refuse(Why::Feature, fmt::format("cuDNN {} gives Stats, or Max and Sum_exp, but not both at once",
                                              version_text(l.version())));
    if (out_.sum_exp && (lengths_q() || lengths_kv()))
      return refuse(Why::Feature, "cuDNN's Sum_exp of rows that keep no key is -inf, where the sum of nothing is 0");
    const bool drops = o.philox || drops_by_mask();
    const RawDescriptor s = banded(padded(biased_scores(transposed(kK))));
    RawDescriptor p = softmax(s, scores(drops ? DataType_t::FLOAT : type));
    if (drops) p = dropped(p);
    matmul(p, in(kV), out_.o, {lengths_q(), nullptr, lengths_kv()});
  }

  RawDescriptor softmax(RawDescriptor s, RawDescriptor p) {
    // Max and Sum_exp come in pairs.
    if (out_.max && !out_.sum_exp) out_.sum_exp = l.workspace(DataType_t::FLOAT, {o.b, o.hq, o.sq, 1});
    if (out_.sum_exp && !out_.max) out_.max = l.workspace(DataType_t::FLOAT, {o.b, o.hq, o.sq, 1});
    const RawDescriptor sink = has(kSinkToken) ? in(kSinkToken) : nullptr;
    add_softmax(l, o.score_dims(), s, p, {out_.stats, out_.max, out_.sum_exp, sink});
    return p;
  }

  RawDescriptor dropped(RawDescriptor p) {
    if (drops_by_mask()) {
      p = pointwise(P::MUL, p, has(kDropoutScale) ? in(kDropoutScale) : number(1));
      return pointwise(P::MUL, p, in(kDropoutMask), nullptr, scores(type));
    }
    p = pointwise(P::MUL, p, random_mask(out_.rng_dump));
    return pointwise(P::MUL, p, number(o.keep_scale()), nullptr, scores(type));
  }

  Outputs out_ = {};
};

}  // namespace

void lower_sdpa(Lowering& l, NodeId id) { Forward(l, id).lower(); }

}  // namespace tilewright::cudnn
