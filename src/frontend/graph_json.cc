#include "frontend/graph_json.h"

#include <strings.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/numeric_types.h"

namespace tilewright::graph {
namespace {

using nlohmann::json;
using PassByValue = Tensor_attributes::pass_by_values_t;

Status malformed(const std::string& where, const std::string& what) {
  return error(error_code_t::UNSUPPORTED_GRAPH_FORMAT, "{}: {}", where, what);
}

// --- writing -------------------------------------------------------------------------------------------------------

std::string hex_float(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  return fmt::format("{:08X}", bits);
}

json number(double v, const JsonStyle& style) {
  if (style.hex_floats) return hex_float(float(v));
  if (std::isfinite(v)) return v;
  return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";  // JSON has no numbers for these
}

json attribute(const AttrValue& value, ir::AttrKind kind, const JsonStyle& style) {
  if (std::holds_alternative<bool>(value)) return std::get<bool>(value);
  if (std::holds_alternative<int64_t>(value)) return std::get<int64_t>(value);
  if (std::holds_alternative<double>(value)) return number(std::get<double>(value), style);
  if (std::holds_alternative<std::string>(value)) return std::get<std::string>(value);
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value)) {
    if (kind != ir::AttrKind::IntPairs) return *v;
    json pairs = json::array();
    for (size_t i = 0; i + 1 < v->size(); i += 2) pairs.push_back({(*v)[i], (*v)[i + 1]});
    return pairs;
  }
  return nullptr;
}

json type_name(DataType_t t) { return t == DataType_t::NOT_SET ? json(nullptr) : json(to_string(t)); }

json scalar_json(const PassByValue& value, const JsonStyle& style) {
  const double v = ir::scalar_value(value);
  json n;
  if (std::holds_alternative<int64_t>(value)) n = std::get<int64_t>(value);
  else if (std::holds_alternative<int32_t>(value)) n = std::get<int32_t>(value);
  else n = number(v, std::holds_alternative<double>(value) ? JsonStyle{} : style);
  return {{"index", value.index()}, {"value", n}};
}

// How nodes refer to a tensor, and its key in "tensors": its uid, else its name.
json reference(const Tensor_attributes& t) { return t.has_uid() ? json(t.get_uid()) : json(t.get_name()); }
std::string reference_key(const Tensor_attributes& t) {
  return t.has_uid() ? std::to_string(t.get_uid()) : t.get_name();
}

// --- reading -------------------------------------------------------------------------------------------------------

// A number, or one of the text forms: 8 hex digits, nan, inf, -inf.
bool read_number(const json& j, double& v) {
  if (j.is_number()) return v = j.get<double>(), true;
  if (!j.is_string()) return false;
  std::string s = j.get<std::string>();
  if (s == "nan") return v = std::nan(""), true;
  if (s == "inf" || s == "-inf") return v = s[0] == '-' ? -HUGE_VAL : HUGE_VAL, true;
  if (s.rfind("0x", 0) == 0 || s.rfind("0X", 0) == 0) s = s.substr(2);
  if (s.size() != 8 || s.find_first_not_of("0123456789abcdefABCDEF") != s.npos) return false;
  const uint32_t bits = uint32_t(std::stoul(s, nullptr, 16));
  float f;
  std::memcpy(&f, &bits, 4);
  return v = f, true;
}

bool read_ints(const json& j, std::vector<int64_t>& v) {
  if (!j.is_array()) return false;
  v.clear();
  for (const json& e : j) {
    if (e.is_array()) {  // pairs are kept flat
      std::vector<int64_t> inner;
      if (!read_ints(e, inner)) return false;
      v.insert(v.end(), inner.begin(), inner.end());
    } else if (e.is_number_integer()) {
      v.push_back(e.get<int64_t>());
    } else {
      return false;
    }
  }
  return true;
}

template <class E>
bool read_enum(const json& j, E& e) {
  return j.is_string() && from_string(j.get<std::string>(), e);
}

Status read_type(const json& object, const char* key, const std::string& where, DataType_t& type) {
  if (!object.contains(key) || object[key].is_null()) return {};
  if (read_enum(object[key], type)) return {};
  return malformed(where, fmt::format("\"{}\" is {}, no data type", key, object[key].dump()));
}

Result<PassByValue> read_scalar(const json& j, DataType_t type, const std::string& where) {
  const json& value = j.is_object() && j.contains("value") ? j["value"] : j;
  size_t index = 4;  // double
  if (j.is_object() && j.contains("index") && j["index"].is_number_unsigned()) {
    index = j["index"].get<size_t>();
  } else {
    switch (type) {
      case DataType_t::INT64: index = 0; break;
      case DataType_t::INT32: index = 1; break;
      case DataType_t::HALF: index = 2; break;
      case DataType_t::FLOAT:
      case DataType_t::NOT_SET: index = 3; break;
      case DataType_t::BFLOAT16: index = 5; break;
      default: break;
    }
  }
  double v = 0;
  if (!read_number(value, v)) return malformed(where, fmt::format("{} is no number", value.dump()));
  const bool integer = value.is_number_integer();
  switch (index) {
    case 0: return PassByValue(integer ? value.get<int64_t>() : int64_t(v));
    case 1: return PassByValue(integer ? value.get<int32_t>() : int32_t(v));
    case 2: return PassByValue(half(float(v)));
    case 3: return PassByValue(float(v));
    case 4: return PassByValue(v);
    case 5: return PassByValue(bfloat16(float(v)));
    default: return malformed(where, fmt::format("scalar type index {} is not between 0 and 5", index));
  }
}

Result<AttrValue> read_attribute(const json& j, const ir::AttrSpec& spec, const std::string& where) {
  auto bad = [&](const char* expected) {
    return malformed(where, fmt::format("\"{}\" is {}, expected {}", spec.key, j.dump(), expected));
  };
  if (j.is_null()) return AttrValue();
  switch (spec.kind) {
    case ir::AttrKind::Bool: return j.is_boolean() ? Result<AttrValue>(AttrValue(j.get<bool>())) : bad("true or false");
    case ir::AttrKind::Int:
      return j.is_number_integer() ? Result<AttrValue>(AttrValue(j.get<int64_t>())) : bad("an integer");
    case ir::AttrKind::Float: {
      double v;
      return read_number(j, v) ? Result<AttrValue>(AttrValue(v)) : bad("a number");
    }
    case ir::AttrKind::Ints:
    case ir::AttrKind::IntPairs: {
      std::vector<int64_t> v;
      return read_ints(j, v) ? Result<AttrValue>(AttrValue(v)) : bad("a list of integers");
    }
    default:
      if (j.is_string() && (j == "NOT_SET" || spec.is_name(j.get<std::string>())))
        return j == "NOT_SET" ? AttrValue() : AttrValue(j.get<std::string>());
      return bad("the name of a value");
  }
}

class Reader {
 public:
  explicit Reader(const json& j) : j_(j) {}

  Result<Description> run() {
    if (!j_.is_object()) return malformed("graph", "the JSON is no object");
    TW_RETURN_IF_BAD(context());
    if (j_.contains("tensors") && j_["tensors"].is_object()) tensors_ = j_["tensors"];
    if (j_.contains("nodes") && j_["nodes"].is_array())
      for (const json& n : j_["nodes"]) TW_RETURN_IF_BAD(node(n));
    // Tensors that no node uses are part of the description too.
    for (const auto& [key, entry] : tensors_.items()) {
      auto t = tensor(key, "tensors");
      if (!t) return t.status();
    }
    std::set<const Tensor_attributes*> made;
    for (const BuilderNode& n : d_.nodes)
      for (const TensorPtr& t : n.out) made.insert(t.get());
    for (const TensorPtr& t : order_) {
      if (made.count(t.get())) continue;
      if (t->get_stride().empty() && !t->get_dim().empty()) t->set_stride(row_major_strides(t->get_dim()));
      d_.tensors.push_back(t);
    }
    return std::move(d_);
  }

 private:
  Status context() {
    const json c = j_.contains("context") && j_["context"].is_object() ? j_["context"] : json::object();
    if (c.contains("name") && c["name"].is_string()) d_.name = c["name"];
    TW_RETURN_IF_BAD(read_type(c, "io_data_type", "context", d_.io));
    TW_RETURN_IF_BAD(read_type(c, "intermediate_data_type", "context", d_.intermediate));
    TW_RETURN_IF_BAD(read_type(c, "compute_data_type", "context", d_.compute));
    auto flag = [&](const char* key, bool& v) {
      if (c.contains(key) && c[key].is_boolean()) v = c[key];
    };
    flag("is_dynamic_shape_enabled", d_.dynamic_shapes);
    flag("is_override_shape_enabled", d_.override_shapes);
    if (c.contains("sm_count") && c["sm_count"].is_number_integer()) d_.sm_count = c["sm_count"];
    return {};
  }

  Status node(const json& j) {
    const std::string where = fmt::format("node {}", d_.nodes.size());
    if (!j.is_object() || !j.contains("tag") || !j["tag"].is_string()) return malformed(where, "it has no \"tag\"");
    BuilderNode n;
    n.op = ir::find_op(j["tag"].get<std::string>());
    if (!n.op) return malformed(where, fmt::format("there is no op \"{}\"", j["tag"].get<std::string>()));
    n.name = j.contains("name") && j["name"].is_string() && j["name"] != "" ? j["name"].get<std::string>()
                                                                            : std::to_string(d_.nodes.size());
    const std::string here = fmt::format("{} \"{}\"", n.op->name, n.name);
    TW_RETURN_IF_BAD(read_type(j, "compute_data_type", here, n.compute));
    for (const ir::AttrSpec& spec : n.op->attrs) {
      if (!j.contains(spec.key)) continue;
      TW_ASSIGN_OR_RETURN(AttrValue v, read_attribute(j[spec.key], spec, here));
      if (!std::holds_alternative<std::monostate>(v)) n.attrs[spec.key] = std::move(v);
    }
    TW_RETURN_IF_BAD(ports(j, "inputs", n.op->inputs, here, n.in));
    TW_RETURN_IF_BAD(ports(j, "outputs", n.op->outputs, here, n.out));
    // A file of the field leaves "has_dbias" out: it lists the output DBIAS, or does not.
    for (const ir::AttrSpec& spec : n.op->attrs) {
      if (std::string_view(spec.key).substr(0, 4) != "has_" || n.attrs.count(spec.key)) continue;
      for (size_t i = 0; i < n.out.size(); ++i)
        if (strcasecmp(spec.key + 4, n.op->outputs[i].name) == 0) n.attrs[spec.key] = n.out[i] != nullptr;
    }
    std::vector<std::string> given;
    for (size_t i = 0; i < n.in.size(); ++i)
      if (n.in[i] && i < n.op->inputs.size()) given.push_back(n.op->inputs[i].name);
    for (size_t i = 0; i < n.out.size(); ++i) {
      const ir::Port& port = n.op->outputs[i];
      if (n.out[i] || port.kind == ir::PortKind::Optional || (port.wanted && !port.wanted(n.attrs, given))) continue;
      n.out[i] = std::make_shared<Tensor_attributes>();
      n.out[i]->set_name(fmt::format("{}::{}", n.name, port.name)).set_is_virtual(true);
    }
    d_.nodes.push_back(std::move(n));
    return {};
  }

  Status ports(const json& j, const char* key, const std::vector<ir::Port>& ports, const std::string& where,
               std::vector<TensorPtr>& out) {
    out.resize(ports.size());
    if (!j.contains(key) || j[key].is_null()) return {};
    if (!j[key].is_object()) return malformed(where, fmt::format("\"{}\" is no object", key));
    for (const auto& [port, value] : j[key].items()) {
      size_t index = ports.size();
      for (size_t i = 0; i < ports.size(); ++i)
        if (port == ports[i].name) index = i;
      if (index == ports.size() && !ports.empty() && ports.back().kind == ir::PortKind::Variadic &&
          port.find_first_not_of("0123456789") == port.npos)
        index = ports.size() - 1 + std::stoul(port);
      if (index >= ports.size() && !(index < 4096 && !ports.empty() && ports.back().kind == ir::PortKind::Variadic))
        return malformed(where, fmt::format("there is no port \"{}\" among its {}", port, key));
      std::string name;
      if (value.is_number_integer()) name = std::to_string(value.get<int64_t>());
      else if (value.is_string()) name = value.get<std::string>();
      else
        return malformed(where, fmt::format("port \"{}\" is {}, expected a tensor's name or uid", port, value.dump()));
      TW_ASSIGN_OR_RETURN(TensorPtr t, tensor(name, where));
      if (out.size() <= index) out.resize(index + 1);
      out[index] = t;
    }
    return {};
  }

  Result<TensorPtr> tensor(const std::string& key, const std::string& where) {
    if (auto it = made_.find(key); it != made_.end()) return it->second;
    auto t = std::make_shared<Tensor_attributes>();
    made_[key] = t;
    if (tensors_.contains(key)) {
      TW_ASSIGN_OR_RETURN(*t, tensor_from_json(tensors_[key]));
      if (t->get_name().empty() && !t->has_uid()) t->set_name(key);
      const json& j = tensors_[key];
      for (const char* ragged : {"ragged_offset_uid", "ragged_offset_name"}) {
        if (t->get_ragged_offset() || !j.contains(ragged) || j[ragged].is_null()) continue;
        const std::string other = j[ragged].is_number_integer() ? std::to_string(j[ragged].get<int64_t>())
                                  : j[ragged].is_string()       ? j[ragged].get<std::string>()
                                                                : "";
        if (!tensors_.contains(other)) continue;
        TW_ASSIGN_OR_RETURN(TensorPtr offset, tensor(other, where));
        t->set_ragged_offset(offset);
      }
    } else {
      t->set_name(key).set_is_virtual(true);
    }
    order_.push_back(t);
    return t;
  }

  const json& j_;
  json tensors_ = json::object();
  Description d_;
  std::map<std::string, TensorPtr> made_;
  std::vector<TensorPtr> order_;
};

}  // namespace

json attributes_to_json(const Attributes_base& a, const JsonStyle& style) {
  json j = {{"name", a.name}, {"compute_data_type", type_name(a.compute_data_type)}};
  for (const auto& [key, value] : a.values) j[key] = attribute(value, ir::AttrKind::Ints, style);
  return j;
}

json tensor_to_json(const Tensor_attributes& t, const JsonStyle& style) {
  json j = {{"name", t.get_name()},
            {"data_type", type_name(t.get_data_type())},
            {"dim", t.get_dim()},
            {"stride", t.get_stride()},
            {"is_virtual", t.get_is_virtual()},
            {"pass_by_value", nullptr},
            {"is_pass_by_value", t.get_is_pass_by_value()},
            {"reordering_type", to_string(t.get_reordering_type())},
            {"uid", t.get_uid()},
            {"uid_assigned", t.has_uid()}};
  if (auto v = t.get_pass_by_value()) j["pass_by_value"] = scalar_json(*v, style);
  if (auto v = t.get_compile_time_constant()) j["compile_time_constant"] = scalar_json(*v, style);
  if (t.get_is_constant()) j["is_constant"] = true;
  if (t.get_alignment() != 16) j["alignment"] = t.get_alignment();
  if (auto ragged = t.get_ragged_offset()) {
    j["ragged_offset_uid"] = ragged->get_uid();
    j["ragged_offset_name"] = ragged->get_name();
  }
  if (!style.defaults) {
    for (const char* key : {"pass_by_value", "data_type"})
      if (j[key].is_null()) j.erase(key);
    for (const char* key : {"is_virtual", "is_pass_by_value"})
      if (j[key] == false) j.erase(key);
    if (!t.has_uid()) j.erase("uid");
    j.erase("uid_assigned");
    if (t.get_reordering_type() == TensorReordering_t::NONE) j.erase("reordering_type");
    for (const char* key : {"dim", "stride"})
      if (j[key].empty()) j.erase(key);
  }
  return j;
}

json to_json(const Description& d, const JsonStyle& style) {
  json j;
  j["context"] = {{"name", d.name},
                  {"io_data_type", type_name(d.io)},
                  {"intermediate_data_type", type_name(d.intermediate)},
                  {"compute_data_type", type_name(d.compute)},
                  {"sm_count", d.sm_count},
                  {"is_dynamic_shape_enabled", d.dynamic_shapes},
                  {"is_override_shape_enabled", d.override_shapes}};
  if (!style.defaults) {
    for (const char* key : {"is_dynamic_shape_enabled", "is_override_shape_enabled"})
      if (j["context"][key] == false) j["context"].erase(key);
    for (const char* key : {"io_data_type", "intermediate_data_type", "compute_data_type"})
      if (j["context"][key].is_null()) j["context"].erase(key);
    if (d.sm_count == -1) j["context"].erase("sm_count");
  }
  j["json_version"] = "1.0";
  json nodes = json::array(), tensors = json::object();
  auto add_tensor = [&](const TensorPtr& p) {
    Tensor_attributes t = *p;
    if (!style.inferred)
      if (auto it = d.inferred.find(p.get()); it != d.inferred.end()) {
        if (t.get_dim() == it->second.dim) t.set_dim({});
        if (t.get_stride() == it->second.stride) t.set_stride({});
        if (t.get_data_type() == it->second.type) t.set_data_type(DataType_t::NOT_SET);
      }
    tensors[reference_key(t)] = tensor_to_json(t, style);
    if (TensorPtr ragged = p->get_ragged_offset())
      if (!tensors.contains(reference_key(*ragged))) tensors[reference_key(*ragged)] = tensor_to_json(*ragged, style);
  };
  for (const BuilderNode& n : d.nodes) {
    json node = {{"tag", n.op->tag}, {"name", n.name}};
    if (style.defaults || n.compute != DataType_t::NOT_SET) node["compute_data_type"] = type_name(n.compute);
    for (const ir::AttrSpec& spec : n.op->attrs) {
      auto it = n.attrs.find(spec.key);
      const bool set = it != n.attrs.end() && !std::holds_alternative<std::monostate>(it->second);
      if (set) node[spec.key] = attribute(it->second, spec.kind, style);
      else if (style.defaults) node[spec.key] = nullptr;
    }
    auto add_ports = [&](const char* key, const std::vector<ir::Port>& ports, const std::vector<TensorPtr>& list) {
      node[key] = json::object();
      for (size_t i = 0; i < list.size(); ++i) {
        if (!list[i]) continue;
        const bool variadic = !ports.empty() && ports.back().kind == ir::PortKind::Variadic && i >= ports.size() - 1;
        node[key][variadic ? std::to_string(i - (ports.size() - 1)) : ports[i].name] = reference(*list[i]);
        add_tensor(list[i]);
      }
    };
    add_ports("inputs", n.op->inputs, n.in);
    add_ports("outputs", n.op->outputs, n.out);
    nodes.push_back(std::move(node));
  }
  j["nodes"] = nodes.empty() ? json(nullptr) : nodes;
  j["tensors"] = tensors.empty() ? json(nullptr) : tensors;
  return j;
}

Result<Tensor_attributes> tensor_from_json(const json& j) {
  if (!j.is_object()) return malformed("tensor", fmt::format("{} is no object", j.dump()));
  Tensor_attributes t;
  if (j.contains("name") && j["name"].is_string()) t.set_name(j["name"]);
  const std::string where = fmt::format("tensor \"{}\"", t.get_name());
  DataType_t type = DataType_t::NOT_SET;
  TW_RETURN_IF_BAD(read_type(j, "data_type", where, type));
  t.set_data_type(type);
  for (const char* key : {"dim", "stride"}) {
    if (!j.contains(key) || j[key].is_null()) continue;
    std::vector<int64_t> v;
    if (!read_ints(j[key], v))
      return malformed(where, fmt::format("\"{}\" is {}, expected integers", key, j[key].dump()));
    key[0] == 'd' ? t.set_dim(v) : t.set_stride(v);
  }
  auto flag = [&](const char* key) { return j.contains(key) && j[key].is_boolean() && j[key].get<bool>(); };
  t.set_is_virtual(flag("is_virtual"));
  t.set_is_pass_by_value(flag("is_pass_by_value"));
  t.set_is_constant(flag("is_constant"));
  if (j.contains("pass_by_value") && !j["pass_by_value"].is_null()) {
    TW_ASSIGN_OR_RETURN(PassByValue v, read_scalar(j["pass_by_value"], type, where));
    t.set_pass_by_value(v).set_is_pass_by_value(true);
  }
  if (j.contains("compile_time_constant") && !j["compile_time_constant"].is_null()) {
    TW_ASSIGN_OR_RETURN(PassByValue v, read_scalar(j["compile_time_constant"], type, where));
    t.set_compile_time_constant(v);
  }
  if (t.get_is_pass_by_value() || t.get_has_compile_time_constant()) {
    if (t.get_dim().empty()) t.set_dim({1}).set_stride({1});
    if (type == DataType_t::NOT_SET) t.set_data_type(DataType_t::FLOAT);
  }
  TensorReordering_t reordering = TensorReordering_t::NONE;
  if (j.contains("reordering_type") && read_enum(j["reordering_type"], reordering)) t.set_reordering_type(reordering);
  if (j.contains("alignment") && j["alignment"].is_number_integer()) t.set_alignment(j["alignment"]);
  if (j.contains("uid") && j["uid"].is_number_integer() && (!j.contains("uid_assigned") || j["uid_assigned"] == true))
    t.set_uid(j["uid"]);
  return t;
}

Result<Description> description_from_json(const json& j) { return Reader(j).run(); }

}  // namespace tilewright::graph
