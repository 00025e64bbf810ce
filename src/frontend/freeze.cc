#include <set>

#include "base/numeric_types.h"
#include "frontend/builder.h"

namespace tilewright::graph {
namespace {

using ir::kNone;
using ir::OpDef;
using ir::Role;
using ir::TensorId;

const char* kind_name(ir::AttrKind kind) {
  switch (kind) {
    case ir::AttrKind::Bool: return "a boolean";
    case ir::AttrKind::Int: return "an integer";
    case ir::AttrKind::Float: return "a number";
    case ir::AttrKind::Ints: return "a list of integers";
    case ir::AttrKind::IntPairs: return "a list of integer pairs";
    default: return "the name of a value";
  }
}

bool is_kind(const AttrValue& v, const ir::AttrSpec& spec) {
  switch (spec.kind) {
    case ir::AttrKind::Bool: return std::holds_alternative<bool>(v);
    case ir::AttrKind::Int: return std::holds_alternative<int64_t>(v);
    case ir::AttrKind::Float: return std::holds_alternative<double>(v);
    case ir::AttrKind::Ints: return std::holds_alternative<std::vector<int64_t>>(v);
    case ir::AttrKind::IntPairs:
      return std::holds_alternative<std::vector<int64_t>>(v) && std::get<std::vector<int64_t>>(v).size() % 2 == 0;
    default: return std::holds_alternative<std::string>(v) && spec.is_name(std::get<std::string>(v));
  }
}

Status check_attributes(const BuilderNode& n) {
  for (const auto& [key, value] : n.attrs) {
    if (std::holds_alternative<std::monostate>(value)) continue;
    const ir::AttrSpec* spec = nullptr;
    for (const auto& s : n.op->attrs)
      if (key == s.key) spec = &s;
    if (!spec) return invalid("{} \"{}\": there is no attribute \"{}\"", n.op->name, n.name, key);
    if (!is_kind(value, *spec))
      return invalid("{} \"{}\": attribute \"{}\" must be {}", n.op->name, n.name, key, kind_name(spec->kind));
  }
  for (const auto& spec : n.op->attrs) {
    auto it = n.attrs.find(spec.key);
    if (spec.required && (it == n.attrs.end() || std::holds_alternative<std::monostate>(it->second)))
      return not_set("{} \"{}\": attribute \"{}\" is not set", n.op->name, n.name, spec.key);
  }
  return {};
}

// Size, stride and overlap rules that hold for every tensor.
Status check_tensor(const ir::Tensor& t, std::vector<std::string>& warnings) {
  if (t.type == DataType_t::NOT_SET)
    return not_set("tensor \"{}\": data type is not set, and the graph has no {} data type to fall back on", t.name,
                   t.role == Role::Virtual ? "intermediate" : "io");
  if (!is_float_type(t.type) && !is_integer_type(t.type))  // complex and vectorised types
    return not_supported("tensor \"{}\": data type {} is not available in this version", t.name, to_string(t.type));
  if (t.dim.empty()) return not_set("tensor \"{}\": dims are not set and could not be inferred", t.name);
  if (t.dim.size() != t.stride.size())
    return not_set("tensor \"{}\": dims {} and strides {} differ in rank", t.name, to_text(t.dim), to_text(t.stride));
  for (size_t d = 0; d < t.dim.size(); ++d) {
    if (t.dim[d] < 0) return invalid("tensor \"{}\": dim {} is {}, it must not be negative", t.name, d, t.dim[d]);
    if (t.stride[d] < 0)
      return invalid("tensor \"{}\": stride {} is {}, it must not be negative", t.name, d, t.stride[d]);
  }
  double reach = 0;
  for (size_t d = 0; d < t.dim.size(); ++d) reach += double(std::max<int64_t>(t.dim[d] - 1, 0)) * double(t.stride[d]);
  if (!volume_checked(t.dim) || reach * 16 > 9e18)
    return invalid("tensor \"{}\": {} with strides {} does not fit 63-bit addresses", t.name, to_text(t.dim),
                   to_text(t.stride));
  if (t.role == Role::Virtual || t.role == Role::Scalar || t.role == Role::Constant) return {};
  if (!self_overlaps(t.view())) return {};
  if (t.role == Role::Output)
    return invalid("tensor \"{}\": strides {} put two elements of {} at one address; an output must not overlap itself",
                   t.name, to_text(t.stride), to_text(t.dim));
  bool broadcast_only = true;  // plain stride-0 dims are deliberate
  Dims dim = t.dim;
  for (size_t d = 0; d < dim.size(); ++d)
    if (t.stride[d] == 0) dim[d] = 1;
  broadcast_only = !self_overlaps({dim, t.stride});
  if (!broadcast_only)
    warnings.push_back(fmt::format("tensor \"{}\": strides {} make elements of {} overlap; it is read as written",
                                   t.name, to_text(t.stride), to_text(t.dim)));
  return {};
}

// The role follows from who makes the tensor and from its flags.
Result<Role> role_of(const Tensor_attributes& t, bool produced) {
  if (t.get_has_compile_time_constant() || t.get_is_pass_by_value()) {
    if (produced) return invalid("tensor \"{}\" is made by an op and cannot be passed by value", t.get_name());
    return t.get_has_compile_time_constant() ? Role::Constant : Role::Scalar;
  }
  if (produced) return t.get_is_virtual() ? Role::Virtual : Role::Output;
  if (t.get_is_virtual())
    return invalid("tensor \"{}\" is virtual, but no op makes it; inputs must be real", t.get_name());
  return Role::Input;
}

class Freezer {
 public:
  explicit Freezer(const Description& d) : d_(d), g_(std::make_shared<ir::Graph>()) {}

  Result<Frozen> run() {
    if (d_.deferred.is_bad()) return d_.deferred;
    if (d_.cache && !d_.dynamic_shapes)
      return not_supported("graph \"{}\": a kernel cache needs dynamic shapes: call set_dynamic_shape_enabled(true)",
                           d_.name);
    for (const BuilderNode& n : d_.nodes)
      for (const TensorPtr& t : n.out)
        if (t) {
          if (!produced_.insert(t.get()).second)
            return invalid("tensor \"{}\" is made by two ops; the second is \"{}\"", t->get_name(), n.name);
        }
    for (const TensorPtr& t : d_.tensors)
      if (!produced_.count(t.get())) TW_RETURN_IF_BAD(t->validate());
    g_->name = d_.name;
    g_->io_type = d_.io, g_->intermediate_type = d_.intermediate, g_->compute_type = d_.compute;
    g_->dynamic_shapes = d_.dynamic_shapes;
    for (const BuilderNode& n : d_.nodes) TW_RETURN_IF_BAD(add(n));
    TW_RETURN_IF_BAD(check_uids());
    mark_bit_packed();
    return Frozen{g_, tensors_, warnings_};
  }

 private:
  ir::Tensor& tensor(TensorId id) { return g_->tensors[size_t(id)]; }

  Result<TensorId> id_of(const TensorPtr& p) {
    if (auto it = ids_.find(p.get()); it != ids_.end()) return it->second;
    ir::Tensor t;
    t.name = p->get_name();
    t.uid = p->get_uid();
    t.type = p->get_data_type();
    t.dim = p->get_dim();
    t.stride = p->get_stride();
    if (auto it = d_.inferred.find(p.get()); it != d_.inferred.end()) {
      if (t.dim == it->second.dim) t.dim.clear();
      if (t.stride == it->second.stride) t.stride.clear();
      if (t.type == it->second.type) t.type = DataType_t::NOT_SET;
    }
    TW_ASSIGN_OR_RETURN(t.role, role_of(*p, produced_.count(p.get()) != 0));
    t.value = t.role == Role::Constant ? p->get_compile_time_constant() : p->get_pass_by_value();
    t.constant = p->get_is_constant();
    if (t.constant && t.role != Role::Input)
      return invalid("tensor \"{}\" is marked constant, which only inputs can be; it is {}", t.name,
                     produced_.count(p.get()) ? "made by an op" : "a scalar");
    t.alignment = p->get_alignment();
    if (t.alignment < 1)
      return invalid("tensor \"{}\" has an alignment of {} bytes; at least 1 is expected", t.name, t.alignment);
    t.reordering = p->get_reordering_type();
    if (t.type == DataType_t::NOT_SET) t.type = t.role == Role::Virtual ? d_.intermediate : d_.io;
    if (p->get_ragged_offset()) {
      TW_ASSIGN_OR_RETURN(t.ragged_offset, id_of(p->get_ragged_offset()));
    }
    g_->tensors.push_back(std::move(t));
    tensors_.push_back(p);
    return ids_[p.get()] = TensorId(g_->tensors.size() - 1);
  }

  Status add(const BuilderNode& n) {
    TW_RETURN_IF_BAD(check_attributes(n));
    ir::Node node;
    node.op = n.op;
    node.name = n.name;
    node.attrs = n.attrs;
    node.compute = n.compute != DataType_t::NOT_SET ? n.compute : d_.compute;
    for (size_t i = 0; i < n.in.size(); ++i) {
      const ir::Port& port = n.op->inputs[std::min(i, n.op->inputs.size() - 1)];
      if (!n.in[i]) {
        if (port.kind == ir::PortKind::Required)
          return not_set("{} \"{}\": input {} is not set", n.op->name, n.name, port.name);
        node.in.push_back(kNone);
        continue;
      }
      TW_ASSIGN_OR_RETURN(TensorId id, id_of(n.in[i]));
      const ir::Tensor& t = tensor(id);
      if (produced_.count(n.in[i].get()) && !made_.count(id))
        return invalid("{} \"{}\": its input \"{}\" is made by a later op; ops must come in order", n.op->name, n.name,
                       t.name);
      if (t.role == Role::Scalar && !t.value && volume(t.dim) != 1)
        return invalid("tensor \"{}\": passed by value, but its dims {} hold more than one element", t.name,
                       to_text(t.dim));
      if (!made_.count(id)) TW_RETURN_IF_BAD(check_tensor(t, warnings_));
      node.in.push_back(id);
    }
    for (const TensorPtr& p : n.out) {
      if (!p) {
        node.out.push_back(kNone);
        continue;
      }
      TW_ASSIGN_OR_RETURN(TensorId id, id_of(p));
      node.out.push_back(id);
    }
    extend_scalars(node);
    ir::InferContext context(*g_, node);
    TW_RETURN_IF_BAD(n.op->infer(context));
    for (TensorId id : node.out) {
      if (id == kNone) continue;
      ir::Tensor& t = tensor(id);
      if (t.type == DataType_t::NOT_SET && t.role == Role::Virtual) t.type = node.compute;
      TW_RETURN_IF_BAD(check_tensor(t, warnings_));
      made_.insert(id);
    }
    if (n.op->verify) TW_RETURN_IF_BAD(n.op->verify(*g_, node));
    g_->nodes.push_back(std::move(node));
    return {};
  }

  // A scalar's dims become as many ones as the rank of the node's first tensor operand.
  void extend_scalars(const ir::Node& node) {
    size_t rank = 0;
    for (TensorId id : node.in)
      if (id != kNone && rank == 0 && tensor(id).role != Role::Scalar && tensor(id).role != Role::Constant)
        rank = tensor(id).dim.size();
    for (TensorId id : node.in) {
      if (id == kNone) continue;
      ir::Tensor& t = tensor(id);
      if ((t.role == Role::Scalar || t.role == Role::Constant) && t.dim.size() < rank && volume(t.dim) == 1)
        t.dim = t.stride = Dims(rank, 1);
    }
  }

  // Inputs first, then outputs: of a clash between them, the output is the second user of the uid.
  Status check_uids() const {
    std::set<int64_t> seen;
    for (bool produced : {false, true})
      for (size_t i = 0; i < tensors_.size(); ++i) {
        const Tensor_attributes& t = *tensors_[i];
        if (!t.has_uid() || (produced_.count(&t) != 0) != produced) continue;
        if (!seen.insert(t.get_uid()).second)
          return invalid("uid {} of tensor \"{}\" is taken by another tensor of the graph", t.get_uid(), t.get_name());
      }
    return {};
  }

  // Masks that travel between norm fusions are kept as one bit per element, as the field's norm engines do.
  void mark_bit_packed() {
    bool norms = false;
    for (const ir::Node& n : g_->nodes) {
      const std::string_view tag = n.op->tag;
      norms |= tag.find("NORM") != tag.npos || tag.substr(0, 3) == "DBN" || tag == "BN_FINALIZE" || tag == "GENSTATS";
    }
    if (!norms) return;
    for (ir::Tensor& t : g_->tensors)
      if (t.type == DataType_t::BOOLEAN && (t.role == Role::Input || t.role == Role::Output)) t.bit_packed = true;
  }

  const Description& d_;
  std::shared_ptr<ir::Graph> g_;
  std::vector<TensorPtr> tensors_;
  std::vector<std::string> warnings_;
  std::unordered_map<const Tensor_attributes*, TensorId> ids_;
  std::set<const Tensor_attributes*> produced_;
  std::set<TensorId> made_;
};

}  // namespace

Result<Frozen> freeze(const Description& d) { return Freezer(d).run(); }

void write_back(Description& d, const Frozen& f) {
  for (size_t i = 0; i < f.tensors.size(); ++i) {
    Tensor_attributes& p = *f.tensors[i];
    const ir::Tensor& t = f.graph->tensors[i];
    Inferred& mark = d.inferred[&p];
    if (p.get_data_type() == DataType_t::NOT_SET || p.get_data_type() == mark.type)
      p.set_data_type(t.type), mark.type = t.type;
    if (p.get_dim().empty() || p.get_dim() == mark.dim) p.set_dim(t.dim), mark.dim = t.dim;
    if (p.get_stride().empty() || p.get_stride() == mark.stride) p.set_stride(t.stride), mark.stride = t.stride;
    if (p.get_name().empty()) p.set_name(t.name);
  }
}

void assign_uids(Frozen& f) {
  std::set<int64_t> taken;
  for (const TensorPtr& p : f.tensors)
    if (p->has_uid()) taken.insert(p->get_uid());
  auto graph = std::make_shared<ir::Graph>(*f.graph);
  int64_t next = 1;
  for (size_t i = 0; i < f.tensors.size(); ++i) {
    Tensor_attributes& p = *f.tensors[i];
    if (!p.has_uid()) {
      while (taken.count(next)) ++next;
      p.set_uid(next++);
    }
    graph->tensors[i].uid = p.get_uid();
  }
  f.graph = std::move(graph);
}

Description clone(const Description& d) {
  Description c = d;
  c.inferred.clear();
  std::unordered_map<const Tensor_attributes*, TensorPtr> copies;
  auto copy = [&](TensorPtr& p) {
    if (!p) return;
    TensorPtr& mine = copies[p.get()];
    if (!mine) {
      mine = std::make_shared<Tensor_attributes>(*p);
      if (auto it = d.inferred.find(p.get()); it != d.inferred.end()) {
        if (mine->get_dim() == it->second.dim) mine->set_dim({});
        if (mine->get_stride() == it->second.stride) mine->set_stride({});
        if (mine->get_data_type() == it->second.type) mine->set_data_type(DataType_t::NOT_SET);
      }
    }
    p = mine;
  };
  for (TensorPtr& t : c.tensors) copy(t);
  for (TensorPtr& t : c.peer_stats) copy(t);
  for (BuilderNode& n : c.nodes) {
    for (TensorPtr& t : n.in) copy(t);
    for (TensorPtr& t : n.out) copy(t);
  }
  std::vector<TensorPtr> made;
  for (const auto& entry : copies) made.push_back(entry.second);
  for (const TensorPtr& mine : made)
    if (TensorPtr ragged = mine->get_ragged_offset()) copy(ragged), mine->set_ragged_offset(ragged);
  return c;
}

}  // namespace tilewright::graph
