// OpDef: all that the library knows of one op. The type lives here; the rows live in ops/, one file each.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace tilewright {
class RefContext;  // ops/reference.h
class Rewriter;    // ops/rewriter.h
}  // namespace tilewright

namespace tilewright::ir {

enum class AttrKind { Bool, Int, Float, Ints, IntPairs, Enum };

struct AttrSpec {
  const char* key;  // as in the field's JSON
  AttrKind kind;
  bool required = false;                        // ATTRIBUTE_NOT_SET when missing
  bool (*is_name)(std::string_view) = nullptr;  // Enum: accepts a value's text
};
// The check of an enum attribute's text.
template <class E>
bool is_name_of(std::string_view text) {
  E e;
  return from_string(text, e);
}

enum class PortKind { Required, Optional, Variadic };

struct Port {
  const char* name;
  PortKind kind = PortKind::Required;
  // Outputs: whether the node has it. Null: always. (An output that an attribute object carries, such as sdpa's Max,
  // is Optional: present when the caller gave a tensor.)
  bool (*wanted)(const AttrMap&, const std::vector<std::string>& given_ports) = nullptr;
};

// What infer() may read and fill. Types were filled from the graph's defaults already where they could be.
class InferContext {
 public:
  InferContext(Graph& graph, Node& node) : graph(graph), node(node) {}
  Graph& graph;
  Node& node;
  bool has_in(size_t port) const { return port < node.in.size() && node.in[port] != kNone; }
  bool has_out(size_t port) const { return port < node.out.size() && node.out[port] != kNone; }
  const Tensor& in(size_t port) const { return graph.tensors[size_t(node.in[port])]; }
  Tensor& mutable_in(size_t port) { return graph.tensors[size_t(node.in[port])]; }
  Tensor& out(size_t port) { return graph.tensors[size_t(node.out[port])]; }
  // Sets dims / strides that the caller left open. Never overwrites.
  void set_dim(Tensor& t, const Dims& dim) {
    if (t.dim.empty()) t.dim = dim;
  }
  void set_stride(Tensor& t, const Dims& stride) {
    if (t.stride.empty()) t.stride = stride;
  }
};

// Work of one node: multiply-adds count two; bytes are each real tensor once.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

struct OpDef {
  const char* name;  // "rmsnorm": the Graph method
  const char* tag;   // "RMS_NORM": the JSON tag
  std::vector<Port> inputs, outputs;
  std::vector<AttrSpec> attrs;
  // Fills the outputs' dims and strides (and types where the op fixes them); says what is missing.
  Status (*infer)(InferContext&);
  // After inference: the op's rules, each with a sentence naming the tensor, what was found, what would be right.
  Status (*verify)(const Graph&, const Node&) = nullptr;
  // The op's meaning in double precision, with error bounds. Plain loops; shares nothing with the engines.
  void (*reference)(RefContext&) = nullptr;
  // The same meaning in pointwise, reduction, matmul ... nodes. Null: the op is itself a primitive.
  void (*decompose)(Rewriter&) = nullptr;
  double (*flops)(const Graph&, const Node&) = nullptr;  // null: one per output element

  int input_port(std::string_view port) const;  // -1 when there is none
  int output_port(std::string_view port) const;
};

// The one table (ops/op_list.cc). Null when there is no such op.
const OpDef* find_op(std::string_view name_or_tag);
const std::vector<const OpDef*>& all_ops();

Cost cost(const Graph&, const Node&);
Cost cost(const Graph&);

}  // namespace tilewright::ir
