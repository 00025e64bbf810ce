#include "engines/cudnn/lowering.h"

#include <algorithm>

#include "ir/op_def.h"

namespace tilewright::cudnn {

using ir::kNone;
using ir::NodeId;
using ir::Role;
using ir::TensorId;

namespace {

bool ranks_must_agree(const ir::Node& n) {
  const std::string_view op = n.op->name;
  return op == "pointwise" || op == "matmul" || op == "reduction";
}

// INT8x4 in the old vocabulary is INT8 with vectors along dim 1.
DataType_t element_type(DataType_t type) {
  if (type == DataType_t::INT8x4 || type == DataType_t::INT8x32) return DataType_t::INT8;
  return type == DataType_t::UINT8x4 ? DataType_t::UINT8 : type;
}
int64_t vector_count(DataType_t type) { return type == DataType_t::INT8x32 ? 32 : type == element_type(type) ? 1 : 4; }

}  // namespace

Lowering::Lowering(const ir::Graph& graph, const std::vector<NodeId>& nodes, const Target& target,
                   std::vector<bool> real)
    : graph_(graph),
      nodes_(nodes),
      target_(target),
      real_(std::move(real)),
      made_(graph.tensors.size(), nullptr),
      next_uid_(int64_t(graph.tensors.size()) + 1) {
  real_.resize(graph.tensors.size(), false);
  for (const ir::Tensor& t : graph.tensors) views_.push_back(t.view());
  even_ranks(nodes);
}

// Widening one operand widens those of the neighbours, so until nothing changes.
void Lowering::even_ranks(const std::vector<NodeId>& nodes) {
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId id : nodes) {
      const ir::Node& n = node(id);
      if (!ranks_must_agree(n)) continue;
      size_t rank = 3;
      const auto each = [&](auto visit) {
        for (TensorId t : n.in)
          if (t != kNone) visit(t);
        for (TensorId t : n.out)
          if (t != kNone) visit(t);
      };
      each([&](TensorId t) { rank = std::max(rank, view(t).dim.size()); });
      each([&](TensorId t) {
        if (view(t).dim.size() == rank) return;
        views_[size_t(t)] = widened(view(t), rank);
        changed = true;
      });
    }
  }
}

View Lowering::widened(const View& v, size_t rank) {
  if (v.dim.size() >= rank) return v;
  int64_t outer = 1;
  for (size_t i = 0; i < v.dim.size(); ++i) outer = std::max(outer, v.dim[i] * v.stride[i]);
  View wide = v;
  wide.dim.insert(wide.dim.begin(), rank - v.dim.size(), 1);
  wide.stride.insert(wide.stride.begin(), rank - v.stride.size(), outer);
  return wide;
}

Lowered Lowering::run() {
  arrange(*this, nodes_);
  if (!ok()) return std::move(lowered_);
  place_moved(*this, nodes_);
  for (NodeId id : nodes_) {
    current_ = id;
    const ir::Node& n = node(id);
    if (const LowerOp lower = find_lower_op(n.op->name)) lower(*this, id);
    else refuse(Why::Op, fmt::format("node \"{}\": cuDNN has no operation for {}", n.name, n.op->name));
    if (!ok()) break;
    const auto in_memory = [&](TensorId t) {
      const Role role = t == kNone ? Role::Constant : graph_.tensor(t).role;
      return role == Role::Input || role == Role::Output || (role == Role::Virtual && real_[size_t(t)]);
    };
    std::copy_if(n.in.begin(), n.in.end(), std::back_inserter(lowered_.reads), in_memory);
    std::copy_if(n.out.begin(), n.out.end(), std::back_inserter(lowered_.writes), in_memory);
  }
  return std::move(lowered_);
}

void Lowering::refuse(Why why, std::string text, TensorId tensor) {
  lowered_.reasons.push_back({why, current_, tensor, std::move(text)});
}

RawDescriptor Lowering::make(int64_t uid, const Spec& s) {
  Descriptor d(Kind::TENSOR);
  d.type(Attr::TENSOR_DATA_TYPE, element_type(s.type))
      .integers(Attr::TENSOR_DIMENSIONS, s.view.dim)
      .integers(Attr::TENSOR_STRIDES, s.view.stride)
      .integer(Attr::TENSOR_UNIQUE_ID, uid)
      .integer(Attr::TENSOR_BYTE_ALIGNMENT, s.alignment);
  if (s.is_virtual) d.boolean(Attr::TENSOR_IS_VIRTUAL, true);
  if (s.by_value) d.boolean(Attr::TENSOR_IS_BY_VALUE, true);
  if (vector_count(s.type) > 1)
    d.integer(Attr::TENSOR_VECTOR_COUNT, vector_count(s.type)).integer(Attr::TENSOR_VECTORIZED_DIMENSION, 1);
  if (s.reordering != TensorReordering_t::NONE)
    d.value(Attr::TENSOR_REORDERING_MODE, AttrType::TENSOR_REORDERING_MODE, number(s.reordering));
  if (s.ragged_offset) d.descriptor(Attr::TENSOR_RAGGED_OFFSET_DESC, s.ragged_offset);
  return keep(std::move(d));
}

// Constants of a decomposition are DOUBLE whatever the graph computes in; as values passed to cuDNN they are FLOAT.
DataType_t Lowering::type_of(const ir::Tensor& t) const {
  return t.role == Role::Constant && t.type == DataType_t::DOUBLE && graph_.compute_type != DataType_t::DOUBLE
             ? DataType_t::FLOAT
             : t.type;
}

void Lowering::add_constant(int64_t uid, double value, DataType_t type) {
  std::array<uint8_t, 8> bytes = {};
  store_element(bytes.data(), type, 0, value);
  lowered_.bound.push_back({uid, {Place::Constant, kNone, int64_t(lowered_.constants.size())}});
  lowered_.constants.push_back(bytes);
}

RawDescriptor Lowering::tensor(TensorId id) {
  if (id == kNone || !ok()) return nullptr;
  RawDescriptor& made = made_[size_t(id)];
  if (made) return made;
  if (const auto it = put_.find(id); it != put_.end())
    return made = part(it->second.root, it->second.offset, widened(it->second.view, view(id).dim.size()));
  const ir::Tensor& t = graph_.tensor(id);
  const bool by_value = t.role == Role::Scalar || t.role == Role::Constant;
  Spec s{type_of(t), view(id), t.alignment, t.role == Role::Virtual && !real_[size_t(id)], by_value, t.reordering};
  if (t.role != Role::Virtual && t.type == DataType_t::BOOLEAN && !t.bit_packed) {
    refuse(Why::Dtype, fmt::format("tensor \"{}\" has a byte per BOOLEAN; cuDNN packs eight of them into one", t.name),
           id);
    return nullptr;
  }
  if (t.ragged_offset != kNone && !(s.ragged_offset = tensor(t.ragged_offset))) return nullptr;
  if (by_value && t.value) add_constant(id + 1, ir::scalar_value(*t.value), s.type);
  else if (!s.is_virtual) lowered_.bound.push_back({id + 1, {Place::Tensor, id, 0}});
  return made = make(id + 1, s);
}

RawDescriptor Lowering::in(NodeId id, size_t port) {
  const std::vector<TensorId>& list = node(id).in;
  return port < list.size() ? tensor(list[port]) : nullptr;
}

RawDescriptor Lowering::out(NodeId id, size_t port) {
  const std::vector<TensorId>& list = node(id).out;
  return port < list.size() ? tensor(list[port]) : nullptr;
}

void Lowering::set_view(TensorId id, View v) {
  TW_CHECK(!made_[size_t(id)]);
  views_[size_t(id)] = std::move(v);
}

std::optional<Lowering::Part> Lowering::memory(TensorId id) const {
  if (const auto it = put_.find(id); it != put_.end()) return it->second;
  const ir::Tensor& t = graph_.tensor(id);
  if (t.role == Role::Input || t.role == Role::Output || (t.role == Role::Virtual && real_[size_t(id)]))
    return Part{id, 0, t.view()};
  return std::nullopt;
}

void Lowering::put(TensorId id, Part part) {
  TW_CHECK(!made_[size_t(id)]);
  put_[id] = std::move(part);
}

RawDescriptor Lowering::part(TensorId of, int64_t byte_offset, const View& v) {
  if (!ok()) return nullptr;
  const ir::Tensor& t = graph_.tensor(of);
  if (t.role == Role::Virtual && !real_[size_t(of)]) {
    refuse(Why::Fusion, fmt::format("a part of tensor \"{}\" is wanted, which is in no memory", t.name), of);
    return nullptr;
  }
  Spec s{t.type, v, t.alignment};
  while (byte_offset % s.alignment != 0) s.alignment /= 2;
  const int64_t uid = new_uid();
  lowered_.bound.push_back({uid, {Place::Tensor, of, byte_offset}});
  return make(uid, s);
}

RawDescriptor Lowering::scratch(DataType_t type, const Dims& dim, Dims stride) {
  Spec s{type, {dim, stride.empty() ? row_major_strides(dim) : std::move(stride)}};
  s.is_virtual = true;
  return make(new_uid(), s);
}

RawDescriptor Lowering::constant(double value, DataType_t type, size_t rank) {
  Spec s{type, {Dims(rank, 1), Dims(rank, 1)}};
  s.by_value = true;
  const int64_t uid = new_uid();
  add_constant(uid, value, type);
  return make(uid, s);
}

RawDescriptor Lowering::workspace(DataType_t type, const Dims& dim, Dims stride, bool zeroed,
                                  std::vector<uint8_t> data) {
  const Spec s{type, {dim, stride.empty() ? row_major_strides(dim) : std::move(stride)}};
  const int64_t bytes = storage_bytes(type, storage_elements(s.view)), uid = new_uid();
  const int64_t offset = lowered_.workspace_bytes;
  lowered_.bound.push_back({uid, {Place::Workspace, kNone, offset}});
  if (zeroed || !data.empty()) lowered_.fills.push_back({offset, bytes, std::move(data)});
  lowered_.workspace_bytes += (bytes + 255) / 256 * 256;
  return make(uid, s);
}

RawDescriptor Lowering::keep(Descriptor d) {
  if (!ok()) return nullptr;
  const Status s = d.finalize();
  if (s.is_bad()) {
    const std::string where = current_ >= 0 ? fmt::format("node \"{}\": ", node(current_).name) : "";
    refuse(Why::Library, where + s.err_msg);
    return nullptr;
  }
  lowered_.kept.push_back(std::move(d));
  return lowered_.kept.back().raw();
}

void Lowering::operation(Descriptor d) {
  if (const RawDescriptor raw = keep(std::move(d))) lowered_.operations.push_back(raw);
}

}  // namespace tilewright::cudnn
