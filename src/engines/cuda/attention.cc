#include "engines/cuda/attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "engines/cuda/emit.h"
#include "fuse/attention_problem.h"

namespace tilewright::cuda {
namespace {

using fuse::AttentionOperand;
using fuse::AttentionProblem;

// Positions and bounds are 32-bit numbers in the kernels, with room for sums of a few.
constexpr int64_t kLongest = int64_t{1} << 28;

// Columns of a result that one block makes: of the sizes that kernels come in, the smallest that holds them all.
int64_t width_class(int64_t columns, bool wide) { return columns <= 64 ? 64 : columns <= 128 || wide ? 128 : 256; }

int64_t blocks_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

class AttentionKernels {
 public:
  AttentionKernels(const fuse::FusedGraph& fused, const fuse::Region& region, const KernelOptions& options,
                   int64_t scratch)
      : fused_(fused),
        node_(fused.graph.nodes[size_t(region.heavy)]),
        p_(fused.graph, node_),
        o_(p_.o),
        wide_(p_.in_double),
        mma_(options.tensor_cores && options.arch >= 80 && serves_tensor_cores()),
        scratch_(scratch) {}

  Result<std::vector<Launch>> launches() {
    TW_RETURN_IF_BAD(check_sizes());
    TW_RETURN_IF_BAD(describe());
    const double pairs = 2 * ops::visible_pairs(o_), heads = double(o_.b * o_.hq);
    const int64_t q_tiles = blocks_of(o_.sq, tile()), k_tiles = blocks_of(o_.skv, tile());
    if (!p_.backward()) {
      const double waste = double(q_tiles * tile()) / double(std::max<int64_t>(o_.sq, 1));  // of a last, partial tile
      const double flops = pairs * double(o_.dqk + o_.dv) * waste;
      if (mma_) add_mma("attention_forward_mma", "attention_mma", o_.b * o_.hq * q_tiles, flops);
      else add("attention_forward", "", o_.dv, o_.b * o_.hq * q_tiles, flops);
    } else {
      add("attention_row_sums", "", 0, blocks_of(o_.b * o_.hq * o_.sq, 8), heads * double(2 * o_.sq * o_.dv));
      const double scores = pairs * double(o_.dqk + o_.dv);
      if (mma_) {
        add_mma("attention_dq_mma", "attention_backward_mma", o_.b * o_.hq * q_tiles, scores + pairs * double(o_.dqk));
      } else {
        add("attention_dq", "", o_.dqk, o_.b * o_.hq * q_tiles, scores + pairs * double(o_.dqk));
      }
      if (mma_ && o_.hk == o_.hv) {
        add_mma("attention_dkv_mma", "attention_backward_mma", o_.b * o_.hk * k_tiles, 2 * scores);
      } else {
        add("attention_dkv", "Gradient::K, ", o_.dqk, o_.b * o_.hk * k_tiles, scores + pairs * double(o_.dqk));
        add("attention_dkv", "Gradient::V, ", o_.dv, o_.b * o_.hv * k_tiles, scores);
      }
      if (p_.has_out(ops::kOutDBias)) {
        const Dims& d = p_.dbias_dim;
        add("attention_dbias", "", 0, d[0] * d[1] * blocks_of(d[2], tile()) * blocks_of(d[3], tile()),
            pairs * double(o_.dqk + o_.dv));
      }
      if (p_.has_out(ops::kOutDSink)) add("attention_dsink", "", 0, o_.hq, 0);
    }
    if (dump()) add("attention_dump", "", 0, blocks_of(volume(o_.score_dims()), 256), 0);
    return std::move(launches_);
  }

 private:
  int tile() const { return wide_ ? 32 : 64; }
  const AttentionOperand* dump() const {
    const size_t port = p_.backward() ? size_t(ops::kOutRngDumpBackward) : size_t(ops::kOutRngDump);
    return p_.has_out(port) ? &p_.out[port] : nullptr;
  }
  const char* number_type() const { return wide_ ? "double" : "float"; }

  Status check_sizes() const {
    for (int64_t n : {o_.b, o_.hq, o_.sq, o_.skv, o_.dqk, o_.dv})
      if (n > kLongest) return not_supported("a size of {} is beyond what the kernels count to, {}", n, kLongest);
    return {};
  }

  // --- the arguments, and how the kernels read them
  bool by_value(const AttentionOperand& x) const {
    const ir::Role role = fused_.graph.tensor(x.id).role;
    return role == ir::Role::Scalar || role == ir::Role::Constant;
  }
  // An operand in memory.
  Status tensor(const AttentionOperand& x, const char* name, bool output = false) {
    const ir::Tensor& t = fused_.graph.tensor(x.id);
    const std::string type = element_type(t.storage_type());
    if (type.empty() || t.reordering != TensorReordering_t::NONE || t.ragged_offset != ir::kNone)
      return not_supported("attention's {} \"{}\" is {}, which its kernels do not take", name, t.name,
                           type.empty() ? to_string(t.type) : "laid out in a special order");
    if (by_value(x)) return not_supported("attention's {} \"{}\" is given by value, not in memory", name, t.name);
    const fuse::Place& place = fused_.place[size_t(x.id)];
    args_.tensor((output ? "" : "const ") + type, name, fused_, place.root, place.offset * element_bits(t.type) / 8,
                 x.stride);
    return {};
  }
  // An optional factor or number, as a function of where it is read.
  Status factor(const AttentionOperand& x, const char* name, const char* flag) {
    option(flag, bool(x));
    if (!x) return {};
    std::string value = fmt::format("F(a.{}.get(b, h, i, j))", name);
    if (by_value(x)) {
      args_.scalar(name, fused_.graph, x.id, wide_);
      value = fmt::format("a.{}", name);
    } else {
      TW_RETURN_IF_BAD(tensor(x, name));
    }
    spec_ += fmt::format("  DEV F {}(const Args& a, i64 b, i64 h, i64 i, i64 j) {{ return {}; }}\n", name, value);
    return {};
  }
  void option(const char* flag, bool on) { spec_ += fmt::format("  static constexpr bool {} = {};\n", flag, on); }
  Result<std::string> key(const AttentionOperand& x, const char* name) {
    if (by_value(x)) {
      args_.key(name, fused_.graph, x.id);
      return fmt::format("a.{}", name);
    }
    TW_RETURN_IF_BAD(tensor(x, name));
    return fmt::format("u64(i64(a.{}.data->v))", name);
  }

  Status describe() {
    TW_RETURN_IF_BAD(tensor(p_.q, "q"));
    TW_RETURN_IF_BAD(tensor(p_.k, "k"));
    TW_RETURN_IF_BAD(tensor(p_.v, "v"));
    TW_RETURN_IF_BAD(factor(p_.bias, "bias", "kBias"));
    TW_RETURN_IF_BAD(factor(p_.drop_mask, "drop_mask", "kDropMask"));
    TW_RETURN_IF_BAD(factor(p_.drop_scale, "drop_scale", "kDropScale"));
    TW_RETURN_IF_BAD(factor(p_.sink, "sink", "kSink"));
    option("kDropout", o_.philox || p_.drop_mask || p_.drop_scale);
    option("kAlibi", o_.alibi);
    option("kLengths", bool(p_.seq_q));
    if (p_.seq_q) {
      TW_RETURN_IF_BAD(tensor(p_.seq_q, "seq_q"));
      TW_RETURN_IF_BAD(tensor(p_.seq_kv, "seq_kv"));
    }
    TW_RETURN_IF_BAD(describe_scale());
    TW_RETURN_IF_BAD(describe_dropout());
    TW_RETURN_IF_BAD(p_.backward() ? describe_gradients() : describe_results());
    if (dump()) TW_RETURN_IF_BAD(tensor(*dump(), "dump", true));
    for (const auto& [name, value] : {std::pair{"b", o_.b},
                                      {"hq", o_.hq},
                                      {"hk", o_.hk},
                                      {"hv", o_.hv},
                                      {"sq", o_.sq},
                                      {"skv", o_.skv},
                                      {"dqk", o_.dqk},
                                      {"dv", o_.dv}})
      args_.integer(name, value, false);
    // Keys from i - left on and before i + right; what is not bounded lies beyond all of them.
    args_.integer("left", std::min(o_.left.value_or(kLongest + 1) - 1, kLongest), false);
    args_.integer("right", std::min(o_.right.value_or(2 * kLongest - 1), 2 * kLongest - 1) + 1, false);
    args_.integer("bottom_right", o_.bottom_right, false);
    args_.integer("q_tiles", blocks_of(o_.sq, tile()), false);
    return {};
  }
  Status describe_scale() {
    std::string value = "a.scale";
    if (!p_.scale) {
      args_.number("scale", o_.scale.value_or(1), wide_);
    } else if (by_value(p_.scale)) {
      args_.scalar("scale", fused_.graph, p_.scale.id, wide_);
    } else {
      TW_RETURN_IF_BAD(tensor(p_.scale, "scale"));
      value = "F(a.scale.get(0, 0, 0, 0))";
    }
    spec_ += fmt::format("  DEV F scale(const Args& a) {{ return {}; }}\n", value);
    return {};
  }
  Status describe_dropout() {
    option("kPhilox", o_.philox);
    if (!o_.philox) return {};
    TW_ASSIGN_OR_RETURN(const std::string seed, key(p_.seed, "seed"));
    TW_ASSIGN_OR_RETURN(const std::string offset, key(p_.offset, "offset"));
    spec_ += fmt::format("  DEV Philox philox(const Args& a) {{ return {{{}, {}}}; }}\n", seed, offset);
    args_.integer("keep_below", int64_t(Philox::threshold(1 - o_.drop_probability)), true);
    args_.number("keep_scale", o_.keep_scale(), wide_);
    return {};
  }
  Status describe_results() {
    TW_RETURN_IF_BAD(tensor(p_.out[ops::kOutO], "o", true));
    const std::tuple<size_t, const char*, const char*> list[] = {
        {ops::kOutStats, "stats", "kStats"}, {ops::kOutMax, "max", "kMax"}, {ops::kOutSumExp, "sum_exp", "kSumExp"}};
    for (const auto& [port, name, flag] : list) {
      option(flag, p_.has_out(port));
      if (p_.has_out(port)) TW_RETURN_IF_BAD(tensor(p_.out[port], name, true));
    }
    return {};
  }
  Status describe_gradients() {
    TW_RETURN_IF_BAD(tensor(p_.o_in, "o_in"));
    TW_RETURN_IF_BAD(tensor(p_.d_out, "d_out"));
    TW_RETURN_IF_BAD(tensor(p_.stats_in, "stats_in"));
    args_.workspace(number_type(), "delta", scratch_);
    const std::pair<size_t, const char*> list[] = {{ops::kOutDQ, "dq"},
                                                   {ops::kOutDK, "dk"},
                                                   {ops::kOutDV, "dv_out"},
                                                   {ops::kOutDBias, "dbias"},
                                                   {ops::kOutDSink, "dsink"}};
    for (const auto& [port, name] : list)
      if (p_.has_out(port)) TW_RETURN_IF_BAD(tensor(p_.out[port], name, true));
    if (p_.has_out(ops::kOutDBias)) {
      std::vector<int64_t> dim(p_.dbias_dim.begin(), p_.dbias_dim.end());
      args_.integers("bias_dim", dim, false);
    }
    return {};
  }

  // --- tensor cores: 16-bit operands of one type, their rows in aligned pieces of 16 bytes
  bool serves_tensor_cores() const {
    if (p_.in_double || node_.compute != DataType_t::FLOAT) return false;
    if (p_.q.type != DataType_t::HALF && p_.q.type != DataType_t::BFLOAT16) return false;
    const int64_t most = p_.backward() ? 128 : 256;
    if (o_.dqk % 8 != 0 || o_.dv % 8 != 0 || o_.dqk > most || o_.dv > most) return false;
    return in_pieces(p_.q) && in_pieces(p_.k) && in_pieces(p_.v) && (!p_.backward() || in_pieces(p_.d_out));
  }
  bool in_pieces(const AttentionOperand& x) const {
    const ir::Tensor& t = fused_.graph.tensor(x.id);
    const fuse::Place& place = fused_.place[size_t(x.id)];
    if (x.type != p_.q.type || x.stride[3] != 1 || place.offset % 8 != 0) return false;
    for (size_t d = 0; d < 3; ++d)
      if (t.dim[d] > 1 && x.stride[d] % 8 != 0) return false;
    return place.workspace >= 0 || fused_.graph.tensor(place.root).alignment % 16 == 0;
  }
  void add_mma(const std::string& function, const char* header, int64_t blocks, double flops) {
    const auto padded = [](int64_t n) { return blocks_of(n, 32) * 32; };
    // Blocks of a multiprocessor, as far as registers last.
    const int together = o_.dqk <= 64 && o_.dv <= 64 && !o_.philox && !p_.bias && !p_.backward() ? 3 : 1;
    Launch l;
    l.name = fmt::format("{}: {}", node_.name, function.substr(std::string("attention_").size()));
    l.text = text(args_, header,
                  fmt::format("  typedef {} T;\n  static constexpr int kHead = {}, kWidth = {};\n",
                              element_type(p_.q.type), padded(o_.dqk), padded(o_.dv)),
                  function + "<Spec>", 128, together);
    args_.finish(l);
    l.block = 128;
    l.grid = std::max<int64_t>(1, blocks);
    l.flops = flops, l.flops_share = p_.backward() ? 0.16 : 0.2;
    l.tensor_cores = true;
    launches_.push_back(std::move(l));
  }

  // --- a kernel
  std::string text(const Arguments& args, const char* header, const std::string& sizes, const std::string& call,
                   int threads, int blocks) const {
    return fmt::format(
        "// {} \"{}\"\n#include \"tilewright/{}.cuh\"\nnamespace tw {{\ntypedef {} F;\n\nstruct Args {{\n{}}};\n\n"
        "struct Spec {{\n  typedef tw::F F;\n{}{}}};\n\n"
        "extern \"C\" __global__ __launch_bounds__({}, {}) void tw_kernel(const __grid_constant__ Args a) {{\n"
        "  {}(a);\n}}\n}}  // namespace tw\n",
        node_.op->name, printable(node_.name), header, number_type(), args.declaration(), sizes, spec_, threads, blocks,
        call);
  }
  void add(const std::string& function, const std::string& what, int64_t columns, int64_t blocks, double flops) {
    const int64_t width = width_class(columns, wide_), chunks = std::max<int64_t>(1, blocks_of(columns, width));
    // Blocks of a multiprocessor, as far as registers last.
    const int together = wide_ || o_.philox || width > 128 ? 1 : 2;
    Arguments args = args_;
    args.integer("chunks", chunks, false);
    Launch l;
    l.name = fmt::format("{}: {}", node_.name, function.substr(std::string("attention_").size()));
    if (!what.empty()) l.name += what.find("K") != what.npos ? " (dK)" : " (dV)";
    l.text = text(args, p_.backward() ? "attention_backward" : "attention",
                  fmt::format("  static constexpr int kTile = {}, kWidth = {};\n", tile(), width),
                  fmt::format("{}<{}Spec>", function, what), 256, together);
    args.finish(l);
    l.block = 256;
    l.grid = std::max<int64_t>(1, blocks * chunks);
    l.flops = flops;
    l.flops_share = wide_ ? 0.006 : 0.018;
    launches_.push_back(std::move(l));
  }

  const fuse::FusedGraph& fused_;
  const ir::Node& node_;
  const AttentionProblem p_;
  const ops::AttentionOptions& o_;
  const bool wide_, mma_;
  const int64_t scratch_;
  Arguments args_;
  std::string spec_;
  std::vector<Launch> launches_;
};

}  // namespace

Result<std::vector<Launch>> attention_launches(const fuse::FusedGraph& fused, const fuse::Region& region,
                                               const KernelOptions& options, int64_t scratch_offset) {
  return AttentionKernels(fused, region, options, scratch_offset).launches();
}

int64_t attention_scratch_bytes(const fuse::FusedGraph& fused, const fuse::Region& region) {
  const AttentionProblem p(fused.graph, fused.graph.nodes[size_t(region.heavy)]);
  return p.backward() ? p.o.b * p.o.hq * p.o.sq * (p.in_double ? 8 : 4) : 0;
}

}  // namespace tilewright::cuda
