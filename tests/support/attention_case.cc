#include "support/attention_case.h"

#include <fmt/format.h>

namespace tilewright::testing {
namespace {

// A graph of one node, its tensors laid out at random.
class OneNode {
 public:
  OneNode(const AttentionCase& c, const char* op) : c_(c), random_(c.layout_seed) {
    graph_.io_type = c.type;
    node_.op = ir::find_op(op);
    node_.name = "attention";
    node_.compute = c.compute;
    node_.in.assign(node_.op->inputs.size(), ir::kNone);
    node_.out.assign(node_.op->outputs.size(), ir::kNone);
  }

  void input(const char* port, const Dims& dim, DataType_t type, bool broadcast = true) {
    node_.in[size_t(node_.op->input_port(port))] = tensor(port, dim,
                                                          c_.plain    ? row_major_strides(dim)
                                                          : broadcast ? random_.input_strides(dim)
                                                                      : random_.strides(dim),
                                                          type, ir::Role::Input);
  }
  void scalar(const char* port, graph::Tensor_attributes::pass_by_values_t value, DataType_t type) {
    const ir::TensorId id = tensor(port, {1, 1, 1, 1}, {1, 1, 1, 1}, type, ir::Role::Scalar);
    graph_.tensors[size_t(id)].value = value;
    node_.in[size_t(node_.op->input_port(port))] = id;
  }
  // Strides are inferred now and then.
  void output(const char* port, const Dims& dim, DataType_t type) {
    node_.out[size_t(node_.op->output_port(port))] =
        tensor(port, dim, c_.plain || random_.one_in(4) ? Dims{} : random_.strides(dim), type, ir::Role::Output);
  }

  void common() {
    input("Q", {c_.b, c_.hq, c_.sq, c_.dqk}, c_.type);
    input("K", {c_.b, c_.hk, c_.skv, c_.dqk}, c_.type);
    input("V", {c_.b, c_.hv, c_.skv, c_.dv}, c_.type);
    auto& a = node_.attrs;
    if (c_.scale_tensor) scalar("Attn_scale", float(c_.scale.value_or(0.5)), DataType_t::FLOAT);
    else if (c_.scale) a["attn_scale_value"] = *c_.scale;
    if (c_.left) a["left_bound"] = *c_.left;
    if (c_.right) a["right_bound"] = *c_.right;
    if (c_.bottom_right) a["diagonal_alignment"] = std::string("BOTTOM_RIGHT");
    if (c_.alibi) a["alibi_mask"] = true;
    if (c_.padding) {
      a["padding_mask"] = true;
      input("SEQ_LEN_Q", {c_.b, 1, 1, 1}, DataType_t::INT32, false);
      input("SEQ_LEN_KV", {c_.b, 1, 1, 1}, DataType_t::INT32, false);
    }
    if (!c_.bias.empty()) input("Bias", c_.bias, random_.one_in(2) ? c_.type : c_.statistic());
    if (c_.sink) input("SINK_TOKEN", {1, c_.hq, 1, 1}, c_.statistic());
    if (c_.custom_dropout) {
      input("Dropout_mask", {c_.b, c_.hq, c_.sq, c_.skv}, DataType_t::FLOAT);
      scalar("Dropout_scale", 1.25f, DataType_t::FLOAT);
    }
    if (c_.dropout > 0) {
      a["dropout_probability"] = c_.dropout;
      scalar("Seed", int64_t(1234 + c_.layout_seed), DataType_t::INT64);
      scalar("Offset", int32_t(5), DataType_t::INT32);
      if (c_.dump) output("RNG_DUMP", {c_.b, c_.hq, c_.sq, c_.skv}, DataType_t::FLOAT);
    }
  }

  AttrMap& attrs() { return node_.attrs; }

  ir::Graph done() {
    ir::InferContext context(graph_, node_);
    Status status = node_.op->infer(context);
    if (status.is_good()) status = node_.op->verify(graph_, node_);
    if (status.is_bad()) throw std::runtime_error(c_.text() + ": " + status.err_msg);
    graph_.nodes.push_back(node_);
    return graph_;
  }

 private:
  ir::TensorId tensor(const char* name, const Dims& dim, const Dims& stride, DataType_t type, ir::Role role) {
    ir::Tensor t;
    t.name = name, t.dim = dim, t.stride = stride, t.type = type, t.role = role;
    t.uid = int64_t(graph_.tensors.size()) + 1;
    graph_.tensors.push_back(t);
    return ir::TensorId(graph_.tensors.size() - 1);
  }

  const AttentionCase& c_;
  Random random_;
  ir::Graph graph_;
  ir::Node node_;
};

}  // namespace

std::string AttentionCase::text() const {
  std::string t = fmt::format("b{} hq{} hk{} hv{} sq{} skv{} dqk{} dv{} {} compute {} layout {}", b, hq, hk, hv, sq,
                              skv, dqk, dv, to_string(type), to_string(compute), layout_seed);
  if (scale) t += fmt::format(" scale {}{}", *scale, scale_tensor ? " (tensor)" : "");
  if (left) t += fmt::format(" left {}", *left);
  if (right) t += fmt::format(" right {}", *right);
  if (dropout > 0) t += fmt::format(" dropout {}", dropout);
  for (const auto& [on, name] : {std::pair{padding, " padding"},
                                 {alibi, " alibi"},
                                 {bottom_right, " bottom-right"},
                                 {stats, " stats"},
                                 {max, " max"},
                                 {sum_exp, " sum_exp"},
                                 {sink, " sink"},
                                 {dump, " dump"},
                                 {custom_dropout, " custom-dropout"}})
    if (on) t += name;
  if (!bias.empty()) t += " bias " + to_text(bias);
  if (!dbias.empty()) t += " dbias " + to_text(dbias);
  return t;
}

ir::Graph AttentionCase::forward() const {
  OneNode g(*this, "sdpa");
  g.common();
  g.output("O", {b, hq, sq, dv}, type);
  if (stats) g.attrs()["generate_stats"] = true, g.output("Stats", {b, hq, sq, 1}, statistic());
  if (max) g.output("Max", {b, hq, sq, 1}, statistic());
  if (sum_exp) g.output("Sum_exp", {b, hq, sq, 1}, statistic());
  return g.done();
}

ir::Graph AttentionCase::backward() const {
  OneNode g(*this, "sdpa_backward");
  g.common();
  g.input("O", {b, hq, sq, dv}, type, false);
  g.input("dO", {b, hq, sq, dv}, type);
  g.input("Stats", {b, hq, sq, 1}, statistic(), false);
  g.output("dQ", {b, hq, sq, dqk}, type);
  g.output("dK", {b, hk, skv, dqk}, type);
  g.output("dV", {b, hv, skv, dv}, type);
  if (!dbias.empty()) g.output("dBias", dbias, statistic());
  if (sink) g.output("DSINK_TOKEN", {1, hq, 1, 1}, statistic());
  return g.done();
}

AttentionCase random_attention(Random& r, int64_t longest, bool backward) {
  AttentionCase c;
  c.layout_seed = r.bits() % 100000;
  const int64_t groups = r.between(1, 2), group = r.between(1, 3);
  c.b = r.between(1, 3), c.hq = groups * group;
  c.hk = r.one_in(2) ? groups : c.hq, c.hv = r.one_in(3) ? groups : c.hk;
  if (r.one_in(6)) c.hk = 1;
  c.sq = r.between(1, longest), c.skv = r.between(1, longest);
  if (r.one_in(3)) c.skv = c.sq;
  c.dqk = r.between(1, 40), c.dv = r.one_in(2) ? c.dqk : r.between(1, 40);
  c.type = r.of({DataType_t::FLOAT, DataType_t::FLOAT, DataType_t::HALF, DataType_t::BFLOAT16, DataType_t::DOUBLE});
  if (c.type == DataType_t::DOUBLE && r.one_in(2)) c.compute = DataType_t::DOUBLE;
  if (!r.one_in(5)) c.scale = r.of({0.125, 0.25, 0.3535, 1.0});
  c.scale_tensor = r.one_in(4);
  c.padding = r.one_in(3);
  c.bottom_right = r.one_in(3);
  if (r.one_in(2)) c.right = r.one_in(2) ? 0 : r.between(0, longest);
  if (r.one_in(4)) c.left = r.between(1, longest);
  c.alibi = c.right == 0 && r.one_in(3);
  c.sink = r.one_in(5);
  if (r.one_in(3))
    c.bias = {r.one_in(2) ? 1 : c.b, r.one_in(2) ? 1 : c.hq, r.one_in(2) ? 1 : c.sq, r.one_in(2) ? 1 : c.skv};
  const int64_t drop = r.between(0, 5);
  if (drop == 0) c.dropout = r.of({0.1, 0.5, 0.9}), c.dump = r.one_in(2);
  if (drop == 1) c.custom_dropout = true;
  if (backward) {
    if (r.one_in(3))
      c.dbias = {r.one_in(2) ? 1 : c.b, r.one_in(2) ? 1 : c.hq, r.one_in(2) ? 1 : c.sq, r.one_in(2) ? 1 : c.skv};
  } else {
    c.stats = r.one_in(2), c.max = r.one_in(3), c.sum_exp = r.one_in(3);
  }
  return c;
}

}  // namespace tilewright::testing
