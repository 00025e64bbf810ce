#include "plan/harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/hash.h"
#include "plan/device_copy.h"
#include "plan/harness_fill.h"

namespace tilewright {

namespace {

constexpr uint8_t kGap = 0xa5;        // what an output holds between its elements
constexpr uint8_t kUnwritten = 0x5a;  // bytes of an integer output that nothing wrote yet
constexpr uint8_t kNan = 0xff;        // such bytes are a NaN in every floating-point type

uint8_t guard_byte(int64_t i) { return uint8_t(0xc3 + 29 * i); }

bool has_gaps(const ir::Tensor& t) { return storage_elements(t.view()) != volume(t.dim); }
bool whole_bytes(const ir::Tensor& t) { return element_bits(t.storage_type()) % 8 == 0; }

// body(row-major index, storage offset) for every element; in parallel unless elements share bytes.
template <class Body>
void for_each_element(const ir::Tensor& t, const Body& body) {
  const View view = t.view();
  const int64_t count = volume(t.dim);
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i, offset_of_linear(i, view));
  };
  constexpr int64_t kBlock = 4096;
  if (!whole_bytes(t) || self_overlaps(view)) return range(0, count);
  parallel_for((count + kBlock - 1) / kBlock,
               [&](int64_t block) { range(block * kBlock, std::min(count, (block + 1) * kBlock)); });
}

// Ops that move, add, multiply or select: integers in, integers out, whatever the order of the sums.
bool keeps_integers(const ir::Node& node) {
  const std::string_view op = node.op->name;
  for (const char* name :
       {"matmul", "conv_fprop", "conv_dgrad", "conv_wgrad", "reshape", "transpose", "slice", "concatenate", "genstats"})
    if (op == name) return true;
  if (op == "pointwise") {
    using M = PointwiseMode_t;
    const M mode = node.attr_enum("mode", M::NOT_SET);
    for (M m : {M::ADD,        M::SUB,         M::MUL,           M::MAX,      M::MIN,        M::RELU_FWD,
                M::RELU_BWD,   M::NEG,         M::ABS,           M::IDENTITY, M::ADD_SQUARE, M::CMP_EQ,
                M::CMP_NEQ,    M::CMP_GT,      M::CMP_GE,        M::CMP_LT,   M::CMP_LE,     M::LOGICAL_AND,
                M::LOGICAL_OR, M::LOGICAL_NOT, M::BINARY_SELECT, M::GEN_INDEX})
      if (mode == m) return true;
  }
  if (op == "reduction") {
    using R = ReductionMode_t;
    const R mode = node.attr_enum("mode", R::NOT_SET);
    for (R m : {R::ADD, R::MAX, R::MIN, R::AMAX, R::NORM1})
      if (mode == m) return true;
  }
  return op == "resample" && node.attr_enum("resample_mode", ResampleMode_t::NOT_SET) == ResampleMode_t::MAXPOOL;
}

std::string label(const ir::Tensor& t) { return fmt::format("tensor \"{}\"", t.name); }

}  // namespace

GuardedBuffer::GuardedBuffer(int64_t bytes, int64_t alignment, bool tight) : bytes_(bytes) {
  const int64_t base = std::max<int64_t>(64, alignment);  // a power of two, at least a cache line
  raw_.reset(new uint8_t[size_t(bytes + 2 * kGuardBytes + 2 * base)]);
  const auto start = uintptr_t(raw_.get()) + kGuardBytes;
  data_ = raw_.get() + kGuardBytes + (base - int64_t(start % uintptr_t(base))) % base;
  if (tight && alignment < base) data_ += alignment;
  for (int64_t i = 0; i < kGuardBytes; ++i) data_[i - kGuardBytes] = data_[bytes + i] = guard_byte(i);
}

std::string GuardedBuffer::damage() const {
  if (!raw_) return {};
  for (int64_t i = 0; i < kGuardBytes; ++i)
    if (data_[bytes_ + i] != guard_byte(i)) return fmt::format("byte {} after the end was overwritten", i);
  for (int64_t i = kGuardBytes; i-- > 0;)
    if (data_[i - kGuardBytes] != guard_byte(i))
      return fmt::format("byte {} before the start was overwritten", kGuardBytes - i);
  return {};
}

Harness::Harness(const ir::Graph& graph, HarnessOptions options)
    : graph_(graph),
      options_(options),
      buffers_(graph.tensors.size()),
      bindings_(graph.tensors.size(), nullptr),
      input_hash_(graph.tensors.size(), 0),
      covered_(graph.tensors.size()) {
  for (size_t id = 0; id < graph.tensors.size(); ++id) {
    const ir::Tensor& t = graph.tensors[id];
    if (!t.bound_by_caller()) continue;
    buffers_[id] = GuardedBuffer(t.storage_bytes(), t.alignment, options.tight_alignment);
    bindings_[id] = buffers_[id].data();
    if (t.role != ir::Role::Output || !has_gaps(t) || !whole_bytes(t)) continue;
    covered_[id].resize(size_t(storage_elements(t.view())));
    const View view = t.view();
    for (int64_t i = 0, n = volume(t.dim); i < n; ++i) covered_[id][size_t(offset_of_linear(i, view))] = true;
  }
  if (options.fill != Fill::None) fill_inputs();
  inputs_changed();
  poison_outputs();
}

std::unordered_map<int64_t, void*> Harness::variant_pack() const {
  std::unordered_map<int64_t, void*> pack;
  for (size_t id = 0; id < graph_.tensors.size(); ++id)
    if (bindings_[id]) pack[graph_.tensors[id].uid] = bindings_[id];
  return pack;
}

void* Harness::workspace(int64_t bytes) {
  if (bytes != workspace_.bytes() || !workspace_.data()) workspace_ = GuardedBuffer(bytes, 256);
  std::memset(workspace_.data(), kNan, size_t(bytes));
  return workspace_.data();
}

void Harness::fill_inputs() {
  for (size_t id = 0; id < graph_.tensors.size(); ++id) {
    const ir::Tensor& t = graph_.tensors[id];
    if (!bindings_[id] || t.role == ir::Role::Output) continue;
    FillRange range = fill_range(graph_, ir::TensorId(id));
    if (options_.fill == Fill::Integers) range = integer_range(range);
    const uint64_t stream = hash_bytes(&id, sizeof id, options_.seed);
    if (has_gaps(t)) std::memset(bindings_[id], kNan, size_t(t.storage_bytes()));
    for_each_element(t, [&, type = t.storage_type(), memory = bindings_[id]](int64_t i, int64_t offset) {
      store_element(memory, type, offset, fill_value(range, stream, uint64_t(i)));
    });
  }
  for (const ir::Node& node : graph_.nodes)
    if (std::string_view(node.op->name) == "sdpa_backward") fill_attention_forward(node);
}

// The backward pass is only meaningful with the O and Stats of its forward pass: the reference computes them.
void Harness::fill_attention_forward(const ir::Node& backward) {
  const ir::OpDef* forward = ir::find_op("sdpa");
  const auto input = [&](const char* port) {
    const int p = backward.op->input_port(port);
    return p < 0 || size_t(p) >= backward.in.size() ? ir::kNone : backward.in[size_t(p)];
  };
  const ir::TensorId o = input("O"), stats = input("Stats");
  if (!forward || o == ir::kNone || stats == ir::kNone || !bindings_[size_t(o)] || !bindings_[size_t(stats)]) return;
  ir::Graph g = graph_;
  ir::Node node;
  node.op = forward;
  node.name = backward.name;
  node.compute = backward.compute;
  for (const ir::AttrSpec& spec : forward->attrs)
    if (auto it = backward.attrs.find(spec.key); it != backward.attrs.end()) node.attrs.insert(*it);
  node.attrs["generate_stats"] = true;
  for (const ir::Port& port : forward->inputs) {
    node.in.push_back(input(port.name));
    // A value that another node makes is not there yet.
    const ir::TensorId id = node.in.back();
    if (id != ir::kNone && g.tensor(id).role == ir::Role::Virtual) return;
  }
  node.out.assign(forward->outputs.size(), ir::kNone);
  node.out[size_t(forward->output_port("O"))] = o;
  node.out[size_t(forward->output_port("Stats"))] = stats;
  g.nodes = {node};
  Bindings pointers = bindings_;
  for (ir::TensorId made : {o, stats})
    g.tensors[size_t(made)].role = ir::Role::Output, pointers[size_t(made)] = nullptr;
  auto values = evaluate_reference(g, pointers);
  if (!values) return;
  for (ir::TensorId made : {o, stats}) store_reference((*values)[size_t(made)], bindings_[size_t(made)]);
}

void Harness::inputs_changed() {
  reference_.reset();
  for (size_t id = 0; id < graph_.tensors.size(); ++id)
    if (bindings_[id] && graph_.tensors[id].role != ir::Role::Output)
      input_hash_[id] = hash_bytes(bindings_[id], size_t(buffers_[id].bytes()));
}

void Harness::copy_inputs(const Bindings& from) {
  for (size_t id = 0; id < graph_.tensors.size(); ++id)
    if (bindings_[id] && graph_.tensors[id].role != ir::Role::Output && from[id])
      std::memcpy(bindings_[id], from[id], size_t(buffers_[id].bytes()));
  inputs_changed();
}

void Harness::poison_outputs() {
  for (size_t id = 0; id < graph_.tensors.size(); ++id) {
    const ir::Tensor& t = graph_.tensors[id];
    if (!bindings_[id] || t.role != ir::Role::Output) continue;
    const uint8_t poison = is_float_type(t.type) ? kNan : kUnwritten;
    auto* memory = static_cast<uint8_t*>(bindings_[id]);
    if (covered_[id].empty()) {
      std::memset(memory, poison, size_t(t.storage_bytes()));
      continue;
    }
    const size_t size = size_t(element_bits(t.storage_type()) / 8);
    for (size_t i = 0; i < covered_[id].size(); ++i)
      std::memset(memory + i * size, covered_[id][i] ? poison : kGap, size);
  }
}

Status Harness::check_memory() const {
  for (size_t id = 0; id < graph_.tensors.size(); ++id) {
    const ir::Tensor& t = graph_.tensors[id];
    if (!bindings_[id]) continue;
    if (const std::string damage = buffers_[id].damage(); !damage.empty())
      return error(error_code_t::GRAPH_EXECUTION_FAILED, "{}: {}", label(t), damage);
    if (t.role != ir::Role::Output) {
      if (hash_bytes(bindings_[id], size_t(buffers_[id].bytes())) != input_hash_[id])
        return error(error_code_t::GRAPH_EXECUTION_FAILED, "{} is an input and was written to", label(t));
      continue;
    }
    const auto* memory = static_cast<const uint8_t*>(bindings_[id]);
    const size_t size = size_t(element_bits(t.storage_type()) / 8);
    for (size_t i = 0; i < covered_[id].size(); ++i)
      for (size_t b = 0; !covered_[id][i] && b < size; ++b)
        if (memory[i * size + b] != kGap)
          return error(error_code_t::GRAPH_EXECUTION_FAILED,
                       "{}: storage element {}, in a gap between its elements, was written to", label(t), i);
  }
  if (const std::string damage = workspace_.damage(); !damage.empty())
    return error(error_code_t::GRAPH_EXECUTION_FAILED, "workspace of {} bytes: {}", workspace_.bytes(), damage);
  return {};
}

bool Harness::exact_by_integers(const std::vector<RefTensor>& values) const {
  if (options_.fill != Fill::Integers) return false;
  for (const ir::Node& node : graph_.nodes) {
    if (!keeps_integers(node)) return false;
    // Partial sums may be larger than their total: leave six bits.
    const double limit = 1 / (64 * rounding_of(node.compute).u);
    for (ir::TensorId id : node.out) {
      if (id == ir::kNone) continue;
      const ir::Tensor& t = graph_.tensor(id);
      for (const Bounded& x : values[size_t(id)].values)
        if (!(std::fabs(x.v) < limit) || x.v != std::nearbyint(x.v) || round_to_type(t.type, x.v) != x.v) return false;
    }
  }
  for (size_t id = 0; id < graph_.tensors.size(); ++id) {  // scalars that carry their own value
    const ir::Tensor& t = graph_.tensors[id];
    if (t.value && ir::scalar_value(*t.value) != std::nearbyint(ir::scalar_value(*t.value))) return false;
  }
  return true;
}

Result<const std::vector<RefTensor>*> Harness::reference() {
  if (!reference_) {
    Bindings inputs = bindings_;
    for (size_t id = 0; id < graph_.tensors.size(); ++id)
      if (graph_.tensors[id].role == ir::Role::Output) inputs[id] = nullptr;
    auto values = evaluate_reference(graph_, inputs);
    if (!values) return values.status();
    reference_ = std::make_unique<std::vector<RefTensor>>(std::move(*values));
    exact_ = exact_by_integers(*reference_);
  }
  return static_cast<const std::vector<RefTensor>*>(reference_.get());
}

Result<std::vector<Harness::Output>> Harness::compare_outputs() {
  TW_ASSIGN_OR_RETURN(const std::vector<RefTensor>* values, reference());
  std::vector<Output> outputs;
  for (size_t id = 0; id < graph_.tensors.size(); ++id) {
    const ir::Tensor& t = graph_.tensors[id];
    if (t.role != ir::Role::Output) continue;
    Output out;
    out.tensor = ir::TensorId(id);
    const RefTensor& expected = (*values)[id];
    out.comparison = compare(expected, bindings_[id]);
    out.must_be_exact = exact_;
    for (int64_t i = 0, n = exact_ ? volume(t.dim) : 0; i < n; ++i) {
      const double want = expected.values[size_t(i)].v;
      const double got = load_element(bindings_[id], t.storage_type(), offset_of_linear(i, t.view()));
      if (got == want) continue;
      if (out.inexact++ == 0)
        out.inexact_text = fmt::format("element {} is {}, and the integers in give exactly {}", i, got, want);
    }
    outputs.push_back(std::move(out));
  }
  return outputs;
}

Status Harness::check() {
  TW_RETURN_IF_BAD(check_memory());
  TW_ASSIGN_OR_RETURN(const std::vector<Output> outputs, compare_outputs());
  for (const Output& out : outputs) {
    const std::string name = label(graph_.tensor(out.tensor));
    if (!out.comparison.ok()) return error(error_code_t::GRAPH_EXECUTION_FAILED, "{}: {}", name, out.comparison.text());
    if (out.inexact)
      return error(error_code_t::GRAPH_EXECUTION_FAILED, "{}: {} elements are inexact; {}", name, out.inexact,
                   out.inexact_text);
  }
  return {};
}

Status Harness::check_run(const Executable& executable, const Queue& queue) {
  poison_outputs();
  void* const memory = workspace(executable.workspace_bytes());
  if (queue.ordinal < 0) {
    TW_RETURN_IF_BAD(executable.run(bindings_, memory, queue));
    return check();
  }
  TW_ASSIGN_OR_RETURN(DeviceCopy copy, DeviceCopy::make(graph_, *this, queue.ordinal));
  TW_RETURN_IF_BAD(copy.upload());
  TW_RETURN_IF_BAD(executable.run(copy.bindings(), copy.workspace(), queue));
  TW_RETURN_IF_BAD(copy.download());
  return check();
}

}  // namespace tilewright
