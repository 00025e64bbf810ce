#include "engines/cuda/launch.h"

#include <fmt/format.h>

#include <cstring>

namespace tilewright::cuda {

std::string printable(const std::string& name) {
  std::string s;
  for (char c : name)
    if (c >= ' ' && c <= '~' && c != '\\') s += c;
  return s;
}

uint32_t Arguments::reserve(size_t bytes) {
  const size_t at = (bytes_.size() + bytes - 1) / bytes * bytes;
  bytes_.resize(at + bytes);
  return uint32_t(at);
}

void Arguments::pointer(const std::string& type, const std::string& name, const fuse::FusedGraph& fused,
                        ir::TensorId root, int64_t offset) {
  const int64_t workspace = fused.place[size_t(root)].workspace;
  const std::string& title = fused.graph.tensor(root).name;
  declaration_ += fmt::format("  {}* {};{}\n", type, name, title.empty() ? "" : "  // " + printable(title));
  const uint32_t at = reserve(8);
  if (workspace >= 0) patches_.push_back({Patch::Workspace, at, ir::kNone, workspace + offset});
  else patches_.push_back({Patch::Memory, at, root, offset});
}

void Arguments::tensor(const std::string& type, const std::string& name, const fuse::FusedGraph& fused,
                       ir::TensorId root, int64_t offset, const std::array<int64_t, 4>& stride) {
  const std::string before = declaration_;
  pointer(type, name, fused, root, offset);
  for (int64_t s : stride) integer(name, s, true);
  const std::string& title = fused.graph.tensor(root).name;
  declaration_ =
      before + fmt::format("  Tensor<{}> {};{}\n", type, name, title.empty() ? "" : "  // " + printable(title));
}

void Arguments::workspace(const std::string& type, const std::string& name, int64_t offset) {
  declaration_ += fmt::format("  {}* {};\n", type, name);
  patches_.push_back({Patch::Workspace, reserve(8), ir::kNone, offset});
}

void Arguments::scalar(const std::string& name, const ir::Graph& graph, ir::TensorId id, bool wide) {
  const ir::Tensor& t = graph.tensor(id);
  declaration_ +=
      fmt::format("  {} {};{}\n", wide ? "double" : "float", name, t.name.empty() ? "" : "  // " + printable(t.name));
  const uint32_t at = reserve(wide ? 8 : 4);
  if (!t.value) return patches_.push_back({wide ? Patch::Double : Patch::Float, at, id, 0});
  store(at, ir::scalar_value(*t.value), wide);
}

void Arguments::number(const std::string& name, double value, bool wide) {
  declaration_ += fmt::format("  {} {};\n", wide ? "double" : "float", name);
  store(reserve(wide ? 8 : 4), value, wide);
}

void Arguments::store(uint32_t at, double value, bool wide) {
  const float narrow = float(value);
  std::memcpy(&bytes_[at], wide ? static_cast<const void*>(&value) : &narrow, wide ? 8 : 4);
}

void Arguments::key(const std::string& name, const ir::Graph& graph, ir::TensorId id) {
  const ir::Tensor& t = graph.tensor(id);
  declaration_ += fmt::format("  u64 {};\n", name);
  const uint32_t at = reserve(8);
  if (!t.value) return patches_.push_back({Patch::Integer, at, id, 0});
  const int64_t* whole = std::get_if<int64_t>(&*t.value);
  const int64_t value = whole ? *whole : int64_t(ir::scalar_value(*t.value));
  std::memcpy(&bytes_[at], &value, sizeof value);
}

void Arguments::bits(const std::string& name, uint64_t value) {
  declaration_ += fmt::format("  u64 {};\n", name);
  const uint32_t at = reserve(8);
  std::memcpy(&bytes_[at], &value, sizeof value);
}

void Arguments::integer(const std::string& name, int64_t value, bool wide) {
  declaration_ += fmt::format("  {} {};\n", wide ? "i64" : "int", name);
  const uint32_t at = reserve(wide ? 8 : 4);
  const int narrow = int(value);
  std::memcpy(&bytes_[at], wide ? static_cast<const void*>(&value) : &narrow, wide ? 8 : 4);
}

void Arguments::integers(const std::string& name, const std::vector<int64_t>& values, bool wide) {
  if (values.empty()) return;
  const std::string before = declaration_;
  for (int64_t v : values) integer(name, v, wide);
  declaration_ = before + fmt::format("  {} {}[{}];\n", wide ? "i64" : "int", name, values.size());
}

// Of x < 2^31 the quotient is (high word of x * multiplier + x) >> shift.
void Arguments::dividers(const std::string& name, const std::vector<int64_t>& divisors, bool wide) {
  if (wide) return integers(name, divisors, true);
  if (divisors.empty()) return;
  const std::string before = declaration_;
  for (int64_t d : divisors) {
    int64_t shift = 0;
    while ((int64_t{1} << shift) < d) ++shift;
    const uint64_t multiplier = ((((uint64_t{1} << shift) - uint64_t(d)) << 32) / uint64_t(d)) + 1;
    for (int64_t v : {d, int64_t(multiplier), shift}) integer("", v, false);
  }
  declaration_ = before + fmt::format("  Divider {}[{}];\n", name, divisors.size());
}

void Arguments::finish(Launch& launch) const {
  launch.arguments = bytes_;
  launch.arguments.resize((bytes_.size() + 7) / 8 * 8);
  launch.patches = patches_;
}

}  // namespace tilewright::cuda
