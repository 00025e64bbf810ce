#include "tensors.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "plan/harness_fill.h"

namespace tilewright::bench {
namespace {

double available_bytes() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("MemAvailable:", 0) == 0) return std::stod(line.substr(13)) * 1024;
  return 1e9;
}

// Values repeat after about a million elements: random enough, and quick to make.
void fill_tensor(const ir::Graph& graph, ir::TensorId id, const Tensors::Fill& fill, void* memory) {
  const ir::Tensor& t = graph.tensor(id);
  const FillRange range = fill_range(graph, id);
  const std::string name = memory_name(t);
  const uint64_t stream = hash_bytes(name.data(), name.size(), 7);
  const int64_t count = storage_elements(t.view()), period = (1 << 20) + 7;
  parallel_for((count + 4095) / 4096, [&](int64_t block) {
    for (int64_t i = block * 4096; i < std::min(count, (block + 1) * 4096); ++i) {
      float value = i < period ? float(fill_value(range, stream, uint64_t(i))) : 0;
      if (fill) fill(name, i, value);
      if (i < period || value != 0 || name == "mask") store_element(memory, t.storage_type(), i, value);
    }
  });
  const size_t size = size_t(element_bits(t.storage_type()) / 8);
  if (name != "mask")
    for (int64_t i = period; i < count; i += period)
      std::memcpy(static_cast<char*>(memory) + size_t(i) * size, memory, size_t(std::min(period, count - i)) * size);
}

}  // namespace

std::string memory_name(const ir::Tensor& t) { return t.name.substr(0, t.name.find(' ')); }

std::unique_ptr<char, void (*)(void*)> allocate_pages(size_t bytes) {
  bytes = (bytes + 4095) / 4096 * 4096;
  return {static_cast<char*>(std::aligned_alloc(4096, bytes)), std::free};
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double last_level_cache_bytes() {
  double largest = 1 << 20;
  for (int index = 0; index < 8; ++index) {
    std::ifstream in("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    double size = 0;
    char unit = 0;
    if (in >> size >> unit) largest = std::max(largest, size * (unit == 'M' ? 1 << 20 : 1 << 10));
  }
  return largest;
}

double bytes_of(const ir::Graph& g) {
  double bytes = 0;
  for (const ir::Tensor& t : g.tensors)
    if (t.bound_by_caller()) bytes += double(t.storage_bytes());
  return bytes;
}

int Tensors::sets_for(double bytes) {
  // A virtual machine may hide how large the cache is.
  const double past = std::max(2 * last_level_cache_bytes(), 256e6);
  const double wanted = past / bytes + 1, fits = available_bytes() / 5 / bytes;
  return int(std::clamp(std::min(wanted, fits), 2.0, 8.0));
}

void Tensors::add(const ir::Graph& g) {
  for (size_t id = 0; id < g.tensors.size(); ++id) {
    const ir::Tensor& t = g.tensors[id];
    if (!t.bound_by_caller()) continue;
    auto [it, fresh] = buffers_.try_emplace(memory_name(t));
    if (!fresh) continue;
    it->second.bytes = size_t(t.storage_bytes());
    // Constants stay where they are.
    for (int s = 0; s < (t.constant ? 1 : sets_); ++s) it->second.set.push_back(allocate_pages(it->second.bytes));
    char* first = it->second.set[0].get();
    if (t.role == ir::Role::Output) std::memset(first, 0xff, it->second.bytes);
    else fill_tensor(g, ir::TensorId(id), fill_, first);
  }
}

void Tensors::spread() {
  for (auto& [name, buffer] : buffers_)
    for (size_t s = 1; s < buffer.set.size(); ++s) std::memcpy(buffer.set[s].get(), buffer.set[0].get(), buffer.bytes);
}

void Tensors::poison(const ir::Graph& g) {
  for (const ir::Tensor& t : g.tensors)
    if (t.role == ir::Role::Output) std::memset(at(memory_name(t), 0), 0xff, size_t(t.storage_bytes()));
}

void* Tensors::at(const std::string& name, int set) const {
  auto it = buffers_.find(name);
  return it == buffers_.end() ? nullptr : it->second.set[size_t(set) % it->second.set.size()].get();
}

Bindings Tensors::bindings(const ir::Graph& g, int set) const {
  Bindings b(g.tensors.size(), nullptr);
  for (size_t id = 0; id < g.tensors.size(); ++id)
    if (g.tensors[id].bound_by_caller()) b[id] = at(memory_name(g.tensors[id]), set);
  return b;
}

std::unordered_map<int64_t, void*> Tensors::pack(const ir::Graph& g, int set) const {
  std::unordered_map<int64_t, void*> pack;
  for (const ir::Tensor& t : g.tensors)
    if (t.bound_by_caller()) pack[t.uid] = at(memory_name(t), set);
  return pack;
}

}  // namespace tilewright::bench
