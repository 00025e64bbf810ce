#include "tilewright/exact_reference.h"

#include "frontend/builder.h"
#include "ops/reference.h"

namespace tilewright {

struct ExactReference::Impl {
  std::shared_ptr<const ir::Graph> graph;
  std::vector<RefTensor> outputs;
};

ExactReference::ExactReference() = default;
ExactReference::~ExactReference() = default;
ExactReference::ExactReference(ExactReference&&) noexcept = default;
ExactReference& ExactReference::operator=(ExactReference&&) noexcept = default;

namespace {

ExactReference::UidMap by_uid(const ExactReference::TensorMap& pack) {
  ExactReference::UidMap uids;
  for (const auto& [tensor, pointer] : pack)
    if (tensor && tensor->has_uid()) uids[tensor->get_uid()] = pointer;
  return uids;
}

}  // namespace

error_t ExactReference::evaluate(const graph::Graph& graph, const TensorMap& pack) {
  return evaluate(graph, by_uid(pack));
}

error_t ExactReference::evaluate(const graph::Graph& graph, const UidMap& pack) {
  const graph::Graph::Impl& of = graph.impl();
  auto impl = std::make_unique<Impl>();
  impl->graph = of.plans.graph() ? of.plans.graph() : of.frozen.graph;
  if (!impl->graph) return invalid("reference: the graph is not built yet; call build_operation_graph");
  std::vector<void*> pointers(impl->graph->tensors.size(), nullptr);
  for (size_t id = 0; id < pointers.size(); ++id) {
    const ir::Tensor& t = impl->graph->tensors[id];
    auto it = pack.find(t.uid);
    if (t.bound_by_caller() && t.role != ir::Role::Output && it != pack.end()) pointers[id] = it->second;
  }
  auto values = evaluate_reference(*impl->graph, pointers);
  if (!values) return values.status();
  for (RefTensor& t : *values)
    if (t.tensor->role == ir::Role::Output) impl->outputs.push_back(std::move(t));
  impl_ = std::move(impl);
  return {};
}

error_t ExactReference::judge(const TensorMap& pack, std::vector<JudgedOutput>* outputs) const {
  return judge(by_uid(pack), outputs);
}

error_t ExactReference::judge(const UidMap& pack, std::vector<JudgedOutput>* outputs) const {
  if (!impl_) return invalid("reference: call evaluate first");
  if (outputs) outputs->clear();
  Status status;
  for (const RefTensor& expected : impl_->outputs) {
    const ir::Tensor& t = *expected.tensor;
    auto it = pack.find(t.uid);
    if (it == pack.end() || (!it->second && expected.volume() > 0))
      return error(error_code_t::INVALID_VARIANT_PACK, "output \"{}\" (uid {}) has no memory", t.name, t.uid);
    const Comparison c = compare(expected, it->second);
    if (outputs) outputs->push_back({t.name, c.elements, c.wrong, c.worst_error, c.worst_ratio});
    if (!c.ok() && status.is_good())
      status = error(error_code_t::GRAPH_EXECUTION_FAILED, "output \"{}\": {}", t.name, c.text());
  }
  return status;
}

}  // namespace tilewright
