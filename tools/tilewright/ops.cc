// tilewright ops: the ops of graph files, with their ports and attributes, straight from the op table.
#include <algorithm>
#include <iostream>

#include "ir/op_def.h"
#include "table.h"
#include "terminal.h"
#include "verbs.h"

namespace tilewright::tool {

namespace {

const char* kind_name(ir::AttrKind kind) {
  switch (kind) {
    case ir::AttrKind::Bool: return "true or false";
    case ir::AttrKind::Int: return "integer";
    case ir::AttrKind::Float: return "number";
    case ir::AttrKind::Ints: return "list of integers";
    case ir::AttrKind::IntPairs: return "list of [begin, end]";
    case ir::AttrKind::Enum: return "name";
  }
  return "?";
}

const char* need(const ir::Port& port, bool output) {
  if (port.kind == ir::PortKind::Variadic) return "any number, called 0, 1, ...";
  if (output && port.wanted) return "when the attributes ask for it";
  return port.kind == ir::PortKind::Required ? "" : "optional";
}

std::string port_names(const std::vector<ir::Port>& ports) {
  std::string names;
  for (const ir::Port& p : ports) {
    const bool optional = p.kind != ir::PortKind::Required || p.wanted;
    names += (names.empty() ? "" : ", ") + (optional ? fmt::format("[{}]", p.name) : std::string(p.name));
  }
  return names;
}

// The names that an enum attribute accepts, found by asking it.
#define TOOL_NAME(name) #name,
#define TOOL_LIST(type, list) list(TOOL_NAME)
std::string accepted_names(const ir::AttrSpec& spec) {
  static const char* const kAll[] = {TILEWRIGHT_ENUMS(TOOL_LIST)};
  std::string names;
  std::vector<std::string> seen;
  for (const char* name : kAll) {
    if (std::string(name) == "NOT_SET" || !spec.is_name(name)) continue;
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
    seen.push_back(name);
    names += (names.empty() ? "" : " ") + std::string(name);
  }
  return names;
}

std::string wrapped(const std::string& text, size_t indent, size_t width) {
  std::string out, line;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && indent + line.size() + 1 + word.size() > width)
      out += std::string(indent, ' ') + line + '\n', line.clear();
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return line.empty() ? out : out + std::string(indent, ' ') + line + '\n';
}

}  // namespace

int ops(const OpsOptions& options) {
  if (options.op.empty()) {
    Table table;
    table.column("op").column("tag").column("inputs").column("outputs");
    for (const ir::OpDef* op : ir::all_ops()) {
      std::string inputs = port_names(op->inputs);
      constexpr size_t kMost = 60;
      if (inputs.size() > kMost) inputs = inputs.substr(0, inputs.rfind(',', kMost)) + ", ...";
      table.row({op->name, op->tag, inputs, port_names(op->outputs)});
    }
    std::cout << table.text() << "\n[optional]. `tilewright ops OP` tells more of one.\n";
    return 0;
  }
  const ir::OpDef* op = ir::find_op(options.op);
  if (!op) fail("there is no op \"{}\"; `tilewright ops` lists them", options.op);
  std::cout << bold(op->name) << fmt::format("  (\"tag\": \"{}\" or \"{}\")\n\n", op->name, op->tag);
  Table ports;
  ports.column("").column("port").column("");
  for (const ir::Port& p : op->inputs) ports.row({"input", p.name, need(p, false)});
  for (const ir::Port& p : op->outputs) ports.row({"output", p.name, need(p, true)});
  std::cout << ports.text(2);
  if (!op->attrs.empty()) {
    std::cout << '\n';
    Table attributes;
    attributes.column("attribute").column("value").column("");
    for (const ir::AttrSpec& a : op->attrs) attributes.row({a.key, kind_name(a.kind), a.required ? "required" : ""});
    std::cout << attributes.text(2);
    for (const ir::AttrSpec& a : op->attrs)
      if (a.kind == ir::AttrKind::Enum && a.is_name)
        std::cout << "\n  " << a.key << " is one of\n" << wrapped(accepted_names(a), 4, 110);
  }
  return 0;
}

}  // namespace tilewright::tool
