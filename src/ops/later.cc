// Ops of the vocabulary that this version can describe, write and read, but not run: validation says so and names what
// to use instead.
#include "ops/attention_common.h"

namespace tilewright::ops {
namespace {

using namespace ir;

constexpr PortKind kOptional = PortKind::Optional;

const char* instead(const Node& n) {
  const std::string_view tag = n.op->tag;
  if (tag.find("SDPA") != tag.npos)
    return "dequantise the operands (pointwise MUL by their descales) and use sdpa or sdpa_backward on HALF, BFLOAT16 "
           "or "
           "FLOAT tensors";
  if (tag.find("BLOCK_SCALE") != tag.npos) return "expand the scales to one per element and use pointwise MUL";
  return "use one matmul per expert on a slice of the tokens";
}

Status unavailable(const Node& n) {
  return not_supported("{}: the op {} is not available in this version; {}", node_label(n), n.op->tag, instead(n));
}
Status infer(InferContext& c) { return unavailable(c.node); }
Status verify(const Graph&, const Node& n) { return unavailable(n); }

std::vector<Port> optional_ports(std::vector<const char*> names) {
  std::vector<Port> ports;
  for (const char* name : names) ports.push_back({name, kOptional});
  return ports;
}
std::vector<Port> joined(std::vector<Port> a, const std::vector<Port>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Forward with narrow operands: descales are one factor per tensor, or (MXFP8) one per 32 elements.
OpDef attention_forward(const char* name, const char* tag, std::vector<Port> scales, std::vector<Port> amax) {
  OpDef op;
  op.name = name, op.tag = tag;
  op.inputs = attention_inputs(joined(optional_ports({"Page_table_K", "Page_table_V", "Block_mask"}), scales));
  op.outputs = joined({{"O"},
                       {"Stats", PortKind::Required, wants_stats},
                       {"Max", kOptional},
                       {"Sum_exp", kOptional},
                       {"RNG_DUMP", kOptional}},
                      amax);
  op.attrs = attention_attrs({{"generate_stats", AttrKind::Bool},
                              {"implementation", AttrKind::Enum, false, is_name_of<AttentionImplementation_t>},
                              {"is_mxfp8", AttrKind::Bool},
                              {"max_seq_len_kv", AttrKind::Int},
                              {"mma_core_mode", AttrKind::Enum, false, is_name_of<DataType_t>},
                              {"rescale_threshold", AttrKind::Float},
                              {"unfuse_fma", AttrKind::Bool}});
  op.infer = infer, op.verify = verify;
  return op;
}

OpDef attention_backward(const char* name, const char* tag, std::vector<Port> scales, std::vector<Port> amax) {
  OpDef op;
  op.name = name, op.tag = tag;
  op.inputs = attention_inputs(joined({{"O"}, {"dO"}, {"Stats"}, {"Dropout_scale_inv", kOptional}}, scales));
  op.outputs = joined({{"dQ"}, {"dK"}, {"dV"}}, joined(amax, optional_ports({"DSINK_TOKEN"})));
  op.attrs = attention_attrs({{"is_deterministic_algorithm", AttrKind::Bool}, {"is_mxfp8", AttrKind::Bool}});
  op.infer = infer, op.verify = verify;
  return op;
}

}  // namespace

extern const OpDef kSdpaFp8, kSdpaMxfp8, kSdpaFp8Backward, kSdpaMxfp8Backward;
const OpDef kSdpaFp8 = attention_forward(
    "sdpa_fp8", "SDPA_FP8_FWD", {{"Descale_Q"}, {"Descale_K"}, {"Descale_V"}, {"Descale_S"}, {"Scale_S"}, {"Scale_O"}},
    {{"Amax_S"}, {"Amax_O"}});
const OpDef kSdpaMxfp8 =
    attention_forward("sdpa_mxfp8", "SDPA_MXFP8_FWD", {{"Descale_Q"}, {"Descale_K"}, {"Descale_V"}}, {{"Amax_O"}});
// Amax_d is the field's name for the largest dP.
const OpDef kSdpaFp8Backward = attention_backward("sdpa_fp8_backward", "SDPA_FP8_BWD",
                                                  {{"Descale_Q"},
                                                   {"Descale_K"},
                                                   {"Descale_V"},
                                                   {"Descale_O"},
                                                   {"Descale_dO"},
                                                   {"Descale_S"},
                                                   {"Descale_dP"},
                                                   {"Scale_S"},
                                                   {"Scale_dQ"},
                                                   {"Scale_dK"},
                                                   {"Scale_dV"},
                                                   {"Scale_dP"}},
                                                  {{"Amax_dQ"}, {"Amax_dK"}, {"Amax_dV"}, {"Amax_d"}});
// O is given in 16 bits as dO is (dO_f16), besides the narrow dO; *_T are quantised along the other axis.
const OpDef kSdpaMxfp8Backward = attention_backward("sdpa_mxfp8_backward", "SDPA_MXFP8_BWD",
                                                    {{"Q_T"},
                                                     {"K_T"},
                                                     {"dO_T"},
                                                     {"dO_f16"},
                                                     {"Descale_Q"},
                                                     {"Descale_Q_T"},
                                                     {"Descale_K"},
                                                     {"Descale_K_T"},
                                                     {"Descale_V"},
                                                     {"Descale_dO"},
                                                     {"Descale_dO_T"}},
                                                    {{"Amax_dQ"}, {"Amax_dK"}, {"Amax_dV"}});

extern const OpDef kBlockScaleQuantize, kBlockScaleDequantize;
const OpDef kBlockScaleQuantize = {
    .name = "block_scale_quantize",
    .tag = "BLOCK_SCALE_QUANTIZE",
    .inputs = {{"X"}},
    .outputs = {{"Y"}, {"scale"}},
    .attrs = {{"axis", AttrKind::Int}, {"block_size", AttrKind::Int, true}, {"transpose", AttrKind::Bool}},
    .infer = infer,
    .verify = verify,
};
const OpDef kBlockScaleDequantize = {
    .name = "block_scale_dequantize",
    .tag = "BLOCK_SCALE_DEQUANTIZE",
    .inputs = {{"X"}, {"scale"}},
    .outputs = {{"Y"}},
    .attrs = {{"block_size", AttrKind::Ints, true}, {"is_negative_scale", AttrKind::Bool}},
    .infer = infer,
    .verify = verify,
};

extern const OpDef kMoeGroupedMatmul, kMoeGroupedMatmulBwd;
const OpDef kMoeGroupedMatmul = {
    .name = "moe_grouped_matmul",
    .tag = "MOE_GROUPED_MATMUL",
    .inputs = {{"Token"}, {"Weight"}, {"FirstTokenOffset"}, {"TokenIndex", kOptional}, {"TokenKs", kOptional}},
    .outputs = {{"Output"}},
    .attrs = {{"mode", AttrKind::Enum, false, is_name_of<MoeGroupedMatmulMode_t>}, {"top_k", AttrKind::Int}},
    .infer = infer,
    .verify = verify,
};
const OpDef kMoeGroupedMatmulBwd = {
    .name = "moe_grouped_matmul_bwd",
    .tag = "MOE_GROUPED_MATMUL_BWD",
    .inputs = {{"DOutput"}, {"Token"}, {"FirstTokenOffset"}},
    .outputs = {{"DWeight"}},
    .attrs = {},
    .infer = infer,
    .verify = verify,
};

}  // namespace tilewright::ops
