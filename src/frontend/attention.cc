// Attention as Graph methods. A score_mod cannot live inside a node (it is a program of the caller's), so attention
// with one is written out: scores, the caller's nodes, softmax, weighted sum.
#include "frontend/builder.h"
#include "layout/view.h"

namespace tilewright::graph {
namespace {

using T = TensorPtr;

// The row statistics are FLOAT unless the caller says otherwise, whatever the graph's io type is.
void default_to_float(const T& t) {
  if (t && t->get_data_type() == DataType_t::NOT_SET) t->set_data_type(DataType_t::FLOAT);
}

void default_outputs_to_float(const std::map<std::string, T>& outputs) {
  for (const auto& [port, t] : outputs)
    if (port != "dBias") default_to_float(t);
}

bool is_on(const Attributes_base& attr, const char* key) {
  auto it = attr.values.find(key);
  const bool* on = it == attr.values.end() ? nullptr : std::get_if<bool>(&it->second);
  return on && *on;
}

class ScoreModComposite {
 public:
  ScoreModComposite(Graph& graph, const SDPA_attributes& attr) : graph_(graph), attr_(attr) {}

  // What the plain node offers but a composite does not.
  Status unsupported() const {
    for (const char* key : {"alibi_mask", "padding_mask"})
      if (is_on(attr_, key)) return refused(key);
    for (const char* key : {"left_bound", "right_bound", "max_seq_len_kv", "dropout_probability"})
      if (attr_.values.count(key)) return refused(key);
    for (const char* port :
         {"SEQ_LEN_Q", "SEQ_LEN_KV", "Seed", "Offset", "SINK_TOKEN", "Page_table_K", "Page_table_V", "Block_mask"})
      if (attr_.inputs.count(port)) return refused(port);
    for (const auto& [port, t] : attr_.outputs)
      if (t) return refused(port.c_str());
    if (attr_.inputs.count("Attn_scale") && attr_.values.count("attn_scale_value"))
      return not_set("sdpa \"{}\": the scale is given twice, as a tensor and as a value; give one of them", attr_.name);
    return {};
  }

  std::array<T, 2> build(T q, T k, T v) {
    const std::vector<int64_t> dq = q->get_dim(), dk = k->get_dim(), dv = v->get_dim();
    T scores = grouped_matmul(q, transposed(k), dq, dk, "scores");
    if (attr_.inputs.count("Attn_scale")) scores = multiplied(scores, attr_.inputs.at("Attn_scale"), "scale");
    if (auto it = attr_.values.find("attn_scale_value"); it != attr_.values.end())
      if (const double* value = std::get_if<double>(&it->second))
        scores = multiplied(scores, graph_.tensor(Tensor_attributes(float(*value))), "scale");
    // The caller's function wants an owner; this one owns nothing, the nodes go straight into the graph.
    scores = attr_.score_mod(std::shared_ptr<Graph>(&graph_, [](Graph*) {}), scores);
    if (attr_.inputs.count("Bias")) scores = pointwise(PointwiseMode_t::ADD, scores, attr_.inputs.at("Bias"), "bias");
    auto softmax = Softmax_attributes().set_name(name("softmax")).set_compute_data_type(attr_.compute_data_type);
    T p, stats;
    if (is_on(attr_, "generate_stats")) {
      auto both = graph_.softmax_with_stats(scores, softmax);
      p = both[0], stats = both[1];
      default_to_float(stats);
    } else {
      p = graph_.softmax(scores, softmax);
    }
    for (const char* port : {"Dropout_scale", "Dropout_mask"})
      if (attr_.inputs.count(port)) p = multiplied(p, attr_.inputs.at(port), port);
    same_type(v, p);  // the factors of a product on matrix units
    T o = grouped_matmul(p, v, {dq[0], dq[1], dq[2], dv[2]}, dv, "O");
    if (dq[1] != dv[1])  // O may have another type than the sums, which a reshape cannot convert
      o = graph_.pointwise(o, Pointwise_attributes().set_mode(PointwiseMode_t::IDENTITY).set_name(name("O_type")));
    return {o, stats};
  }

 private:
  Status refused(const char* what) const {
    return not_supported("sdpa \"{}\": {} cannot be combined with a score_mod; apply it inside the score_mod",
                         attr_.name, what);
  }
  std::string name(const std::string& part) const { return attr_.name + "::" + part; }

  T pointwise(PointwiseMode_t mode, T a, T b, const char* part) {
    return graph_.pointwise(
        a, b,
        Pointwise_attributes().set_mode(mode).set_name(name(part)).set_compute_data_type(attr_.compute_data_type));
  }
  T multiplied(T a, T b, const char* part) { return pointwise(PointwiseMode_t::MUL, a, b, part); }

  // Keys as columns: the same memory read with its last dims swapped.
  T transposed(const T& k) {
    return same_type(k, graph_.transpose(k, Transpose_attributes().set_permutation({0, 1, 3, 2}).set_name(name("K"))));
  }

  T reshaped(const T& x, const std::vector<int64_t>& dim, const std::string& part) {
    auto attr = Reshape_attributes().set_dim(dim).set_reshape_mode(ReshapeMode_t::LOGICAL).set_name(name(part));
    return same_type(x, graph_.reshape(x, attr));
  }

  // Moving data does not convert it.
  T same_type(const T& from, T to) {
    DataType_t type = from->get_data_type();
    if (type == DataType_t::NOT_SET && !from->get_is_virtual()) type = graph_.impl().description.io;
    to->set_data_type(type);
    return to;
  }

  // a [b, heads, m, k] times x [b, heads_x, k, n], each head of x serving heads / heads_x heads of a.
  T grouped_matmul(const T& a, const T& x, const std::vector<int64_t>& da, const std::vector<int64_t>& operand,
                   const std::string& part) {
    auto matmul = Matmul_attributes().set_name(name(part)).set_compute_data_type(attr_.compute_data_type);
    const int64_t heads = da[1], heads_x = operand[1];
    if (heads == heads_x) return graph_.matmul(a, x, matmul);
    const bool keys = part == "scores";  // x is the transposed K
    const int64_t group = heads / heads_x, k = keys ? operand[3] : operand[2], n = keys ? operand[2] : operand[3];
    T wide = reshaped(a, {da[0], heads_x, group, da[2], k}, part + "_groups");
    T shared = reshaped(x, {da[0], heads_x, 1, k, n}, part + "_heads");
    return reshaped(graph_.matmul(wide, shared, matmul), {da[0], heads, da[2], n}, part + "_flat");
  }

  Graph& graph_;
  const SDPA_attributes& attr_;
};

}  // namespace

std::array<T, 2> Graph::sdpa(T q, T k, T v, SDPA_attributes attr) {
  default_outputs_to_float(attr.outputs);
  if (!attr.score_mod) {
    auto out = add("sdpa", attr, {{"Q", q}, {"K", k}, {"V", v}});
    default_to_float(out[1]);
    return {out[0], out[1]};
  }
  ScoreModComposite composite(*this, attr);
  Status status = composite.unsupported();
  // The dims decide how heads are grouped, so they must be there at the call.
  for (const auto& [port, t] : {std::pair<const char*, T>{"Q", q}, {"K", k}, {"V", v}})
    if (status.is_good() && (!t || t->get_dim().size() != 4))
      status = not_set("sdpa \"{}\": with a score_mod, {} needs its four dims before the call", attr.name, port);
  if (status.is_good())
    for (const auto& [port, t] : {std::pair<const char*, T>{"K", k}, {"V", v}})
      if (t->get_dim()[1] <= 0 || q->get_dim()[1] % t->get_dim()[1] != 0)
        status = not_supported("sdpa \"{}\": Q has {} heads, not a multiple of the {} heads of {}", attr.name,
                               q->get_dim()[1], t->get_dim()[1], port);
  if (status.is_good()) return composite.build(q, k, v);
  if (impl().description.deferred.is_good()) impl().description.deferred = status;
  auto out = add("sdpa", attr, {{"Q", q}, {"K", k}, {"V", v}});
  return {out[0], out[1]};
}

std::array<T, 3> Graph::sdpa_backward(T q, T k, T v, T o, T d_o, T stats, SDPA_backward_attributes attr) {
  default_outputs_to_float(attr.outputs);
  if ((attr.score_mod || attr.score_mod_bprop) && impl().description.deferred.is_good())
    impl().description.deferred = not_supported(
        "sdpa_backward \"{}\": score_mod is not available in this version's backward; write the gradient out of matmul "
        "and "
        "pointwise nodes",
        attr.name);
  return pack<3>(
      add("sdpa_backward", std::move(attr), {{"Q", q}, {"K", k}, {"V", v}, {"O", o}, {"dO", d_o}, {"Stats", stats}}));
}

std::array<T, 4> Graph::sdpa_fp8(T q, T k, T v, T descale_q, T descale_k, T descale_v, T descale_s, T scale_s,
                                 T scale_o, SDPA_fp8_attributes attr) {
  auto out = add("sdpa_fp8", std::move(attr),
                 {{"Q", q},
                  {"K", k},
                  {"V", v},
                  {"Descale_Q", descale_q},
                  {"Descale_K", descale_k},
                  {"Descale_V", descale_v},
                  {"Descale_S", descale_s},
                  {"Scale_S", scale_s},
                  {"Scale_O", scale_o}});
  return {out[0], out[1], out[5], out[6]};
}

std::array<T, 3> Graph::sdpa_fp8(T q, T k, T v, T descale_q, T descale_k, T descale_v, SDPA_fp8_attributes attr) {
  auto out =
      add("sdpa_mxfp8", std::move(attr),
          {{"Q", q}, {"K", k}, {"V", v}, {"Descale_Q", descale_q}, {"Descale_K", descale_k}, {"Descale_V", descale_v}});
  return {out[0], out[1], out[5]};
}

std::array<T, 7> Graph::sdpa_fp8_backward(T q, T k, T v, T o, T d_o, T stats, T descale_q, T descale_k, T descale_v,
                                          T descale_o, T descale_do, T descale_s, T descale_dp, T scale_s, T scale_dq,
                                          T scale_dk, T scale_dv, T scale_dp, SDPA_fp8_backward_attributes attr) {
  return pack<7>(add("sdpa_fp8_backward", std::move(attr),
                     {{"Q", q},
                      {"K", k},
                      {"V", v},
                      {"O", o},
                      {"dO", d_o},
                      {"Stats", stats},
                      {"Descale_Q", descale_q},
                      {"Descale_K", descale_k},
                      {"Descale_V", descale_v},
                      {"Descale_O", descale_o},
                      {"Descale_dO", descale_do},
                      {"Descale_S", descale_s},
                      {"Descale_dP", descale_dp},
                      {"Scale_S", scale_s},
                      {"Scale_dQ", scale_dq},
                      {"Scale_dK", scale_dk},
                      {"Scale_dV", scale_dv},
                      {"Scale_dP", scale_dp}}));
}

std::array<T, 6> Graph::sdpa_fp8_backward(T q, T q_t, T k, T k_t, T v, T o_f16, T do_f16, T d_o, T do_t, T stats,
                                          T descale_q, T descale_q_t, T descale_k, T descale_k_t, T descale_v,
                                          T descale_do, T descale_do_t, SDPA_fp8_backward_attributes attr) {
  return pack<6>(add("sdpa_mxfp8_backward", std::move(attr),
                     {{"Q", q},
                      {"Q_T", q_t},
                      {"K", k},
                      {"K_T", k_t},
                      {"V", v},
                      {"O", o_f16},
                      {"dO_f16", do_f16},
                      {"dO", d_o},
                      {"dO_T", do_t},
                      {"Stats", stats},
                      {"Descale_Q", descale_q},
                      {"Descale_Q_T", descale_q_t},
                      {"Descale_K", descale_k},
                      {"Descale_K_T", descale_k_t},
                      {"Descale_V", descale_v},
                      {"Descale_dO", descale_do},
                      {"Descale_dO_T", descale_do_t}}));
}

}  // namespace tilewright::graph
