#include "import_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "ir/op_def.h"

namespace tilewright::tool {

namespace {

bool is_graph(const ordered_json& j) {
  return j.is_object() && j.contains("nodes") && (j["nodes"].is_array() || j["nodes"].is_null());
}

// The end of the JSON object that begins at `begin`, one past its brace; npos when its braces do not close.
size_t object_end(const std::string& text, size_t begin) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return std::string::npos;
}

// Spellings of older logs. Names are compared without case and underscores.
struct Spelling {
  const char *old, *now;
};
constexpr Spelling kTags[] = {{"SDPA_FWD", "SDPA"}, {"LAYERNORM", "LAYER_NORM"}, {"RMSNORM", "RMS_NORM"}};
constexpr Spelling kTypes[] = {{"FLOAT16", "HALF"}, {"FLOAT32", "FLOAT"}, {"FLOAT64", "DOUBLE"}, {"BF16", "BFLOAT16"},
                               {"FP16", "HALF"},    {"FP32", "FLOAT"},    {"FP64", "DOUBLE"},    {"BOOL", "BOOLEAN"}};
constexpr Spelling kPorts[] = {{"PAGED_ATTENTION_K_TABLE", "Page_table_K"},
                               {"PAGED_ATTENTION_V_TABLE", "Page_table_V"},
                               {"PAGED_ATTENTION_K", "Page_table_K"},
                               {"PAGED_ATTENTION_V", "Page_table_V"},
                               {"SEQ_LENGTH_Q", "SEQ_LEN_Q"},
                               {"SEQ_LENGTH_KV", "SEQ_LEN_KV"},
                               {"SOFTMAX_STATS", "Stats"}};
// Fields that the log writes and that mean nothing here.
constexpr const char* kIgnored[] = {
    "tag",       "name", "inputs", "outputs", "compute_data_type", "is_mxfp8", "mma_core_mode", "rescale_threshold",
    "peer_stats"};

std::string plain(const std::string& name) {
  std::string out;
  for (char c : name)
    if (c != '_') out += char(std::toupper(uint8_t(c)));
  return out;
}

template <size_t N>
std::string renamed(const std::string& name, const Spelling (&table)[N]) {
  for (const Spelling& s : table)
    if (plain(name) == plain(s.old)) return s.now;
  return name;
}

// "3DFBE76D", with or without 0x: the bits of a float.
std::optional<double> float_of_bits(const std::string& text) {
  std::string digits = text.rfind("0x", 0) == 0 || text.rfind("0X", 0) == 0 ? text.substr(2) : text;
  if (digits.size() != 8 ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return std::isxdigit(uint8_t(c)); }))
    return std::nullopt;
  const auto bits = uint32_t(std::stoul(digits, nullptr, 16));
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return double(value);
}

ordered_json number(const ordered_json& j) {
  if (j.is_string())
    if (auto value = float_of_bits(j.get<std::string>())) {
      // The shortest text that gives the same float: 0.1 rather than 0.10000000149011612.
      const std::string text = fmt::format("{}", float(*value));
      return std::isfinite(*value) ? ordered_json::parse(text) : j;
    }
  return j;
}

class Converter {
 public:
  explicit Converter(const ordered_json& logged) : in_(logged) {}

  Imported run() {
    out_.graph["context"] = context();
    out_.graph["nodes"] = ordered_json::array();
    out_.graph["tensors"] = ordered_json::object();
    if (in_["nodes"].is_array())
      for (const ordered_json& node : in_["nodes"]) add_node(node);
    if (in_.contains("tensors") && in_["tensors"].is_object())
      for (const auto& [key, tensor] : in_["tensors"].items())
        if (!names_.count(key)) note("tensor \"{}\" belongs to no op and was left out", tensor.value("name", key));
    for (const auto& [name, tensor] : tensors_) out_.graph["tensors"][name] = tensor;
    return std::move(out_);
  }

 private:
  template <class... Args>
  void note(fmt::format_string<Args...> text, Args&&... args) {
    std::string n = fmt::format(text, std::forward<Args>(args)...);
    if (std::find(out_.notes.begin(), out_.notes.end(), n) == out_.notes.end()) out_.notes.push_back(std::move(n));
  }

  ordered_json type(const ordered_json& j) {
    if (!j.is_string()) return j;
    const std::string old = j.get<std::string>(), now = renamed(old, kTypes);
    if (old != now) note("data type {} is written {} here", old, now);
    return now;
  }

  ordered_json context() {
    ordered_json c = ordered_json::object();
    if (!in_.contains("context") || !in_["context"].is_object()) return c;
    for (const auto& [key, value] : in_["context"].items()) {
      const bool is_default = value.is_null() || value == false || value == -1 || value == "" || value == "NOT_SET";
      if (is_default) continue;
      if (key == "sm_count") {
        note("sm_count {} was left out: it belongs to the GPU that the log is from", value.dump());
        continue;
      }
      c[key] = key.find("data_type") != std::string::npos ? type(value) : value;
    }
    return c;
  }

  // The key in "tensors" of what a port names: a uid or a name, by every rule that readers of these logs know.
  std::optional<std::string> find_tensor(const ordered_json& ref, const std::string& node, const std::string& port) {
    if (!in_.contains("tensors") || !in_["tensors"].is_object()) return std::nullopt;
    const ordered_json& all = in_["tensors"];
    const std::string key = ref.is_string() ? ref.get<std::string>() : ref.dump();
    for (const std::string& k : {key, node + "::" + port, port})
      if (all.contains(k)) return k;
    for (const auto& [k, tensor] : all.items())
      if (ref.is_number_integer() && tensor.is_object() && tensor.contains("uid") && tensor["uid"] == ref) return k;
    for (const auto& [k, tensor] : all.items())
      if (k.size() > port.size() + 2 && k.compare(k.size() - port.size() - 2, std::string::npos, "::" + port) == 0)
        return k;
    return std::nullopt;
  }

  // Adds the tensor with this key, and gives its name in the graph file.
  std::string tensor(const std::string& key) {
    if (auto it = names_.find(key); it != names_.end()) return it->second;
    const ordered_json& t = in_["tensors"][key];
    std::string name = t.value("name", "");
    const bool has_uid = t.contains("uid") && t["uid"].is_number_integer() && t.value("uid_assigned", t["uid"] != 0);
    if (name.empty()) name = key.empty() ? "tensor" : std::isdigit(uint8_t(key[0])) ? "t" + key : key;
    const std::string wanted = name;
    for (int i = 2; tensors_index_.count(name); ++i) name = fmt::format("{}_{}", wanted, i);
    if (name != wanted) note("a second tensor named \"{}\" became \"{}\"", wanted, name);
    names_[key] = name;
    tensors_index_.insert(name);

    ordered_json out = ordered_json::object();
    if (t.contains("data_type") && !t["data_type"].is_null() && t["data_type"] != "NOT_SET")
      out["data_type"] = type(t["data_type"]);
    for (const char* field : {"dim", "stride"})
      if (t.contains(field) && t[field].is_array() && !t[field].empty()) out[field] = t[field];
    if (has_uid) out["uid"] = t["uid"];
    if (t.value("is_virtual", false)) out["is_virtual"] = true;
    if (t.contains("reordering_type") && t["reordering_type"].is_string() && t["reordering_type"] != "NONE")
      out["reordering_type"] = t["reordering_type"];
    if (t.value("is_pass_by_value", false)) out["is_pass_by_value"] = true;
    if (t.contains("pass_by_value") && !t["pass_by_value"].is_null()) {
      const ordered_json& v = t["pass_by_value"];
      out["pass_by_value"] = number(v.is_object() && v.contains("value") ? v["value"] : v);
    } else if (t.value("is_pass_by_value", false)) {
      note("the value of scalar \"{}\" is given at execute and not in the log", name);
    }
    if (t.contains("ragged_offset_uid") && !t["ragged_offset_uid"].is_null()) {
      if (auto offset = find_tensor(t["ragged_offset_uid"], "", t.value("ragged_offset_name", "")))
        out["ragged_offset_name"] = tensor(*offset), out["ragged_offset_uid"] = t["ragged_offset_uid"];
    }
    tensors_.emplace_back(name, std::move(out));
    return name;
  }

  ordered_json& tensor_entry(const std::string& name) {
    for (auto& [n, t] : tensors_)
      if (n == name) return t;
    return tensors_.back().second;
  }

  ordered_json ports(const ordered_json& node, const char* field, const ir::OpDef* op,
                     const std::vector<ir::Port>* declared) {
    ordered_json out = ordered_json::object();
    if (!node.contains(field) || !node[field].is_object()) return out;
    const std::string node_name = node.value("name", "");
    for (const auto& [old, ref] : node[field].items()) {
      if (ref.is_null()) continue;
      std::string port = renamed(old, kPorts);
      if (declared && declared->size() && declared->front().kind != ir::PortKind::Variadic)
        for (const ir::Port& p : *declared)
          if (plain(p.name) == plain(port)) port = p.name;
      if (port != old) note("{}: port {} is called {} here", op ? op->tag : "?", old, port);
      const auto key = find_tensor(ref, node_name, old);
      if (!key) {
        note("{} \"{}\": nothing describes {}, which port {} names; it was left out", op ? op->tag : "?", node_name,
             ref.dump(), old);
        continue;
      }
      out[port] = tensor(*key);
    }
    return out;
  }

  void add_node(const ordered_json& node) {
    const std::string old_tag = node.value("tag", ""), tag = renamed(old_tag, kTags);
    if (tag != old_tag) note("{} is called {} now", old_tag, tag);
    const ir::OpDef* op = ir::find_op(tag);
    if (!op) note("op {} is not known here; the graph will not load", tag);
    ordered_json out{{"tag", tag}};
    if (const std::string name = node.value("name", ""); !name.empty()) out["name"] = name;
    if (node.contains("compute_data_type") && node["compute_data_type"].is_string() &&
        node["compute_data_type"] != "NOT_SET")
      out["compute_data_type"] = type(node["compute_data_type"]);
    attributes(node, op, out);
    out["inputs"] = ports(node, "inputs", op, op ? &op->inputs : nullptr);
    out["outputs"] = ports(node, "outputs", op, op ? &op->outputs : nullptr);
    if (tag.rfind("SDPA", 0) == 0) attention(node, out);
    out_.graph["nodes"].push_back(std::move(out));
  }

  void attributes(const ordered_json& node, const ir::OpDef* op, ordered_json& out) {
    for (const auto& [key, value] : node.items()) {
      if (value.is_null() || std::find_if(std::begin(kIgnored), std::end(kIgnored),
                                          [&, k = key](const char* i) { return k == i; }) != std::end(kIgnored))
        continue;
      if (key.rfind("causal_mask", 0) == 0 || key == "sliding_window_length") continue;  // attention() reads them
      const ir::AttrSpec* spec = nullptr;
      if (op)
        for (const ir::AttrSpec& s : op->attrs)
          if (key == s.key) spec = &s;
      if (!spec && op) {
        if (value != false && value != 0 && value != "" && value != "AUTO" && value != "NOT_SET")
          note("{}: {} = {} means nothing here and was left out", op->tag, key, value.dump());
        continue;
      }
      out[key] = spec && spec->kind == ir::AttrKind::Float ? number(value) : value;
    }
  }

  void attention(const ordered_json& node, ordered_json& out) {
    for (const char* flag : {"causal_mask", "causal_mask_bottom_right"}) {
      if (!node.value(flag, false)) continue;
      out["right_bound"] = 0;
      out["diagonal_alignment"] = std::string(flag) == "causal_mask" ? "TOP_LEFT" : "BOTTOM_RIGHT";
      note("{} became right_bound 0, diagonal_alignment {}", flag, out["diagonal_alignment"].get<std::string>());
    }
    if (node.contains("sliding_window_length") && node["sliding_window_length"].is_number()) {
      out["left_bound"] = node["sliding_window_length"];
      note("sliding_window_length became left_bound");
    }
    transpose_k(out);
    for (const char* port : {"SEQ_LEN_Q", "SEQ_LEN_KV"})
      if (out["inputs"].contains(port)) note("the values of {} are not in a log: `run` makes some up", port);
    for (const char* port : {"Page_table_K", "Page_table_V"})
      if (out["inputs"].contains(port)) note("the contents of {} are not in a log", port);
  }

  // Older logs hold K as [b,h,d,s]: its dims 2 and 3 are swapped back.
  void transpose_k(ordered_json& node) {
    const ordered_json& inputs = node["inputs"];
    if (!inputs.contains("K") || !inputs.contains("Q")) return;
    ordered_json& k = tensor_entry(inputs["K"]);
    const ordered_json& q = tensor_entry(inputs["Q"]);
    const auto rank4 = [](const ordered_json& t) { return t.contains("dim") && t["dim"].size() == 4; };
    if (!rank4(k) || !rank4(q) || !k.contains("stride") || k["stride"].size() != 4) return;
    if (k["stride"][2] != 1 || k["stride"][3] == 1) return;
    const bool fits_swapped = k["dim"][2] == q["dim"][3], fits = k["dim"][3] == q["dim"][3];
    if (fits && !fits_swapped) return;  // [b,h,s,d] with s fastest: unusual, and right as it is
    std::swap(k["dim"][2], k["dim"][3]);
    std::swap(k["stride"][2], k["stride"][3]);
    note("K was stored as [b,h,d,s]; its last two dims were swapped back");
  }

  const ordered_json& in_;
  Imported out_;
  std::map<std::string, std::string> names_;  // key in the log -> name in the graph file
  std::set<std::string> tensors_index_;
  std::vector<std::pair<std::string, ordered_json>> tensors_;
};

void write_pretty(const ordered_json& j, size_t indent, size_t used, size_t width, std::string& out) {
  const auto flat = [](const auto& self, const ordered_json& v) -> std::string {
    std::string text;
    if (v.is_object()) {
      for (const auto& [key, value] : v.items())
        text += (text.empty() ? "" : ", ") + ordered_json(key).dump() + ": " + self(self, value);
      return "{" + text + "}";
    }
    if (v.is_array()) {
      for (const auto& value : v) text += (text.empty() ? "" : ", ") + self(self, value);
      return "[" + text + "]";
    }
    return v.dump();
  };
  const std::string line = flat(flat, j);
  if (!j.is_structured() || j.empty() || (indent > 0 && used + line.size() <= width)) {
    out += line;
    return;
  }
  const std::string pad(indent + 2, ' ');
  out += j.is_object() ? "{\n" : "[\n";
  size_t left = j.size();
  for (const auto& [key, value] : j.items()) {
    out += pad;
    size_t at = indent + 2;
    if (j.is_object()) {
      const std::string k = ordered_json(key).dump() + ": ";
      out += k;
      at += k.size();
    }
    write_pretty(value, indent + 2, at + 1, width, out);
    out += --left ? ",\n" : "\n";
  }
  out += std::string(indent, ' ') + (j.is_object() ? "}" : "]");
}

}  // namespace

std::vector<ordered_json> find_graphs(const std::string& text) {
  std::vector<ordered_json> graphs;
  // A whole file of JSON: one graph, or a list of them.
  if (const ordered_json whole = ordered_json::parse(text, nullptr, false); !whole.is_discarded()) {
    if (is_graph(whole)) graphs.push_back(whole);
    if (whole.is_array())
      for (const ordered_json& j : whole)
        if (is_graph(j)) graphs.push_back(j);
    return graphs;
  }
  // A log: objects that begin with "context" (keys are sorted); else any object that has nodes.
  for (const bool begins_with_context : {true, false}) {
    for (size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at)) {
      const size_t key = text.find_first_not_of(" \t\r\n", at + 1);
      const bool context = key != std::string::npos && text.compare(key, 9, "\"context\"") == 0;
      const size_t end = context == begins_with_context ? object_end(text, at) : std::string::npos;
      ordered_json j;
      if (end != std::string::npos) j = ordered_json::parse(text.substr(at, end - at), nullptr, false);
      if (end != std::string::npos && !j.is_discarded() && is_graph(j)) {
        graphs.push_back(std::move(j));
        at = end;
      } else {
        ++at;
      }
    }
    if (!graphs.empty()) break;
    if (text.size() > (size_t(4) << 20)) break;  // the second search is slow, and large logs are one-line entries
  }
  return graphs;
}

Result<Imported> convert_graph(const ordered_json& logged) {
  try {
    return Converter(logged).run();
  } catch (const ordered_json::exception& e) {
    return error(error_code_t::UNSUPPORTED_GRAPH_FORMAT, "not a graph as cuDNN Frontend writes it: {}", e.what());
  }
}

std::string pretty(const ordered_json& json, size_t width) {
  std::string out;
  write_pretty(json, 0, 0, width, out);
  return out + '\n';
}

}  // namespace tilewright::tool
