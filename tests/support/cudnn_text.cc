#include "support/cudnn_text.h"

#include <fmt/format.h>

#include <map>

namespace tilewright::testing {

using cudnn::Attr;
using cudnn::Kind;
using cudnn::RawDescriptor;

namespace {

// An enum's text by cuDNN's number.
template <class E>
std::string name_of(int64_t number) {
  for (int i = 0; i < 64; ++i)
    if (cudnn::number(E(i)) == number) return to_string(E(i));
  return "?";
}

// Texts of the tensors of one lowering.
class Names {
 public:
  Names(const cudnn::Lowered& l, const ir::Graph& g) : lowered_(l), graph_(g) {}

  std::string of(const RecordedDescriptor& t) {
    const int64_t uid = t.find(Attr::TENSOR_UNIQUE_ID)->numbers[0];
    for (const cudnn::Bound& b : lowered_.bound)
      if (b.uid == uid) return placed(t, b.place);
    auto [it, fresh] = numbers_.try_emplace(uid, numbers_.size());
    return fmt::format("%{}{}", it->second, fresh ? type_and_layout(t) : "");
  }

 private:
  std::string placed(const RecordedDescriptor& t, const cudnn::Place& place) {
    if (place.where == cudnn::Place::Constant) return fmt::format("{}{}", constant(t, place), type(t));
    if (place.where == cudnn::Place::Workspace) {
      auto [it, fresh] = workspace_.try_emplace(place.offset, workspace_.size());
      return fmt::format("ws{}{}", it->second, fresh ? type_and_layout(t) : "");
    }
    const ir::Tensor& of = graph_.tensor(place.tensor);
    const auto dim = t.find(Attr::TENSOR_DIMENSIONS)->numbers;
    return of.name + (dim == of.dim ? "" : ":" + to_text(dim));
  }
  double constant(const RecordedDescriptor& t, const cudnn::Place& place) const {
    const DataType_t type = data_type(t);
    return load_element(lowered_.constants[size_t(place.offset)].data(), type, 0);
  }
  static DataType_t data_type(const RecordedDescriptor& t) {
    DataType_t type = DataType_t::NOT_SET;
    from_string(name_of<DataType_t>(t.find(Attr::TENSOR_DATA_TYPE)->numbers[0]), type);
    return type;
  }
  static std::string type(const RecordedDescriptor& t) {
    return data_type(t) == DataType_t::FLOAT ? "" : fmt::format(":{}", to_string(data_type(t)));
  }
  // The layout where it is not row-major.
  static std::string type_and_layout(const RecordedDescriptor& t) {
    const auto dim = t.find(Attr::TENSOR_DIMENSIONS)->numbers, stride = t.find(Attr::TENSOR_STRIDES)->numbers;
    return type(t) + to_text(dim) + (stride == row_major_strides(dim) ? "" : "/" + to_text(stride));
  }

  const cudnn::Lowered& lowered_;
  const ir::Graph& graph_;
  std::map<int64_t, size_t> numbers_, workspace_;
};

struct Port {
  Attr attribute;
  const char* label;  // before the operand; empty: none
};
struct Row {
  Kind kind;
  Attr result;
  std::vector<Port> operands;
};
const std::vector<Row>& rows() {
  static const std::vector<Row> list = {
      {Kind::OPERATION_MATMUL,
       Attr::OPERATION_MATMUL_CDESC,
       {{Attr::OPERATION_MATMUL_ADESC, ""},
        {Attr::OPERATION_MATMUL_BDESC, ""},
        {Attr::OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, "m="},
        {Attr::OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, "n="},
        {Attr::OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, "k="}}},
      {Kind::OPERATION_POINTWISE,
       Attr::OPERATION_POINTWISE_YDESC,
       {{Attr::OPERATION_POINTWISE_XDESC, ""},
        {Attr::OPERATION_POINTWISE_BDESC, ""},
        {Attr::OPERATION_POINTWISE_TDESC, "where "}}},
      {Kind::OPERATION_REDUCTION, Attr::OPERATION_REDUCTION_YDESC, {{Attr::OPERATION_REDUCTION_XDESC, ""}}},
      {Kind::OPERATION_RESHAPE, Attr::OPERATION_RESHAPE_YDESC, {{Attr::OPERATION_RESHAPE_XDESC, ""}}},
      {Kind::OPERATION_RNG,
       Attr::OPERATION_RNG_YDESC,
       {{Attr::OPERATION_RNG_SEED, ""}, {Attr::OPERATION_RNG_OFFSET_DESC, ""}}},
      {Kind::OPERATION_SDPA_FWD,
       Attr::OPERATION_SDPA_FWD_ODESC,
       {{Attr::OPERATION_SDPA_FWD_QDESC, ""},
        {Attr::OPERATION_SDPA_FWD_KDESC, ""},
        {Attr::OPERATION_SDPA_FWD_VDESC, ""},
        {Attr::OPERATION_SDPA_FWD_SCALEDESC, "scale="},
        {Attr::OPERATION_SDPA_FWD_STATSDESC, "stats="},
        {Attr::OPERATION_SDPA_FWD_SEQ_LEN_QDESC, "q="},
        {Attr::OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, "kv="}}},
  };
  return list;
}

const RecordedDescriptor& referred(const RecordedDescriptor& r, Attr a) {
  return *static_cast<const RecordedDescriptor*>(r.find(a)->pointers[0]);
}

std::string mode(const RecordedDescriptor& op) {
  switch (op.kind) {
    case Kind::OPERATION_MATMUL: return "matmul";
    case Kind::OPERATION_RESHAPE: return "reshape";
    case Kind::OPERATION_SDPA_FWD: return "sdpa";
    case Kind::OPERATION_RNG:
      return fmt::format("bernoulli({})",
                         referred(op, Attr::OPERATION_RNG_DESC).find(Attr::RNG_BERNOULLI_DIST_PROBABILITY)->text);
    case Kind::OPERATION_REDUCTION:
      return "reduce_" + name_of<ReductionMode_t>(
                             referred(op, Attr::OPERATION_REDUCTION_DESC).find(Attr::REDUCTION_OPERATOR)->numbers[0]);
    case Kind::OPERATION_POINTWISE: {
      const RecordedDescriptor& d = referred(op, Attr::OPERATION_POINTWISE_PW_DESCRIPTOR);
      const auto* axis = d.find(Attr::POINTWISE_AXIS);
      return name_of<PointwiseMode_t>(d.find(Attr::POINTWISE_MODE)->numbers[0]) +
             (axis ? fmt::format("({})", axis->numbers[0]) : "");
    }
    default: return cudnn::to_text(op.kind);
  }
}

}  // namespace

std::string operations_text(const cudnn::Lowered& lowered, const ir::Graph& graph) {
  Names names(lowered, graph);
  std::string text;
  for (RawDescriptor raw : lowered.operations) {
    const RecordedDescriptor& op = *static_cast<const RecordedDescriptor*>(raw);
    for (const Row& row : rows()) {
      if (row.kind != op.kind) continue;
      std::string operands;
      for (const Port& p : row.operands)
        if (op.find(p.attribute)) operands += fmt::format(" {}{}", p.label, names.of(referred(op, p.attribute)));
      text += fmt::format("{} = {}{}\n", names.of(referred(op, row.result)), mode(op), operands);
    }
  }
  return text;
}

}  // namespace tilewright::testing
