#include "sampling.h"

#include <algorithm>

#include "frontend/builder.h"

namespace tilewright::bench {

Result<std::shared_ptr<const ir::Graph>> frozen(const GraphPtr& graph) {
  TW_RETURN_IF_BAD(graph->validate());
  TW_RETURN_IF_BAD(graph->build_operation_graph());
  return graph->impl().frozen.graph;
}

void plant(const GpuRow& row, const ir::Graph& graph, const Tensors& inputs) {
  for (const ir::Tensor& t : graph.tensors)
    for (const Plant& p : row.planted)
      if (t.role == ir::Role::Input && t.name == p.tensor)
        store_element(inputs.at(p.tensor, 0), t.storage_type(), p.index, p.value);
}

Result<SampledReference> SampledReference::make(const GpuRow& row, const ir::Graph& whole, const Tensors& inputs,
                                                uint64_t seed) {
  SampledReference reference;
  for (const Sample& sample : row.samples(seed)) {
    TW_ASSIGN_OR_RETURN(const std::shared_ptr<const ir::Graph> part, frozen(sample.graph));
    const auto offset_of_tensor = [&](const ir::Tensor& t) {
      const auto at = sample.offsets.find(t.name);
      return at == sample.offsets.end() ? 0 : at->second * element_bits(t.storage_type()) / 8;
    };
    Bindings memory(part->tensors.size(), nullptr);
    for (size_t id = 0; id < part->tensors.size(); ++id) {
      const ir::Tensor& t = part->tensors[id];
      if (t.bound_by_caller() && t.role != ir::Role::Output)
        memory[id] = static_cast<char*>(inputs.at(memory_name(t), 0)) + offset_of_tensor(t);
    }
    TW_ASSIGN_OR_RETURN(std::vector<RefTensor> values, evaluate_reference(*part, memory));
    for (size_t id = 0; id < part->tensors.size(); ++id) {
      const ir::Tensor& t = part->tensors[id];
      const bool judged = t.role == ir::Role::Output &&
                          std::any_of(whole.tensors.begin(), whole.tensors.end(), [&](const ir::Tensor& o) {
                            return o.role == ir::Role::Output && o.name == t.name;
                          });
      if (judged) reference.parts_.push_back({part, std::move(values[id]), offset_of_tensor(t)});
    }
  }
  return reference;
}

Result<SampledReference::Judgement> SampledReference::judge(const Read& read) const {
  Judgement judgement;
  for (const Part& part : parts_) {
    const ir::Tensor& t = *part.expected.tensor;
    std::vector<char> piece(size_t(t.storage_bytes()));
    TW_RETURN_IF_BAD(read(t.name, part.offset, t.storage_bytes(), piece.data()));
    const Comparison c = compare(part.expected, piece.data());
    judgement.elements += c.elements;
    judgement.worst_error = std::max(judgement.worst_error, c.worst_error);
    judgement.worst_ratio = std::max(judgement.worst_ratio, c.worst_ratio);
    if (!c.ok() && judgement.wrong.empty())
      judgement.wrong = fmt::format("\"{}\" from byte {} on: {}", t.name, part.offset, c.text());
  }
  return judgement;
}

}  // namespace tilewright::bench
