// Graph: the description and the build steps. Execution is in execute.cc.
#include "tilewright/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "base/environment.h"
#include "base/result.h"
#include "frontend/builder.h"
#include "frontend/graph_json.h"
#include "frontend/handle.h"
#include "frontend/json_value.h"

namespace tilewright::graph {

Graph::Graph() : impl_(std::make_unique<Impl>()) {}
Graph::~Graph() = default;
Graph::Graph(Graph&& other) noexcept : impl_(std::move(other.impl_)) { other.impl_ = std::make_unique<Impl>(); }
Graph::Graph(const Graph& other) : Graph() {
  impl_->description = other.impl_->description;
  impl_->frozen = other.impl_->frozen;
  impl_->lowered = other.impl_->lowered;
  impl_->plans = other.impl_->plans;
}
Graph& Graph::operator=(Graph other) { return impl_.swap(other.impl_), *this; }

// --- properties ------------------------------------------------------------------------------------------------------

Graph& Graph::set_name(const std::string& v) { return impl_->description.name = v, *this; }
Graph& Graph::set_io_data_type(DataType_t v) { return impl_->description.io = v, *this; }
Graph& Graph::set_intermediate_data_type(DataType_t v) { return impl_->description.intermediate = v, *this; }
Graph& Graph::set_compute_data_type(DataType_t v) { return impl_->description.compute = v, *this; }
Graph& Graph::set_dynamic_shape_enabled(bool v) { return impl_->description.dynamic_shapes = v, *this; }
Graph& Graph::set_override_shape_enabled(bool v) { return impl_->description.override_shapes = v, *this; }
Graph& Graph::set_kernel_cache(std::shared_ptr<KernelCache> v) {
  return impl_->description.cache = std::move(v), *this;
}
Graph& Graph::set_device_properties(std::shared_ptr<const DeviceProperties> v) {
  return impl_->description.device_properties = std::move(v), *this;
}
Graph& Graph::set_sm_count(int32_t v) { return impl_->description.sm_count = v, *this; }
Graph& Graph::set_sm_version(int32_t v) { return impl_->description.sm_version = v, *this; }
Graph& Graph::set_verify_enabled(bool v) { return impl_->description.verify = v, *this; }

// --- tensors and ops -------------------------------------------------------------------------------------------------

TensorPtr Graph::tensor(const Tensor_attributes& t) {
  return impl_->description.tensors.emplace_back(std::make_shared<Tensor_attributes>(t));
}

TensorPtr Graph::tensor(const Tensor_attributes& scalar, ScalarType type) {
  TensorPtr t = tensor(scalar);
  if (type == ScalarType::COMPILE_TIME_CONST && t->get_pass_by_value())
    t->set_compile_time_constant(*t->get_pass_by_value());
  return t;
}

TensorPtr Graph::tensor_like(const TensorPtr& like, const std::string& name) {
  TensorPtr t = tensor(*like);
  t->clear_uid().set_name(name);
  return t;
}

error_t Graph::query_tensor_attributes_of_uid(int64_t uid, Tensor_attributes& out) const {
  const Description& d = impl_->description;
  auto matches = [&](const TensorPtr& t) { return t && t->has_uid() && t->get_uid() == uid; };
  for (bool outputs : {true, false})
    for (const BuilderNode& n : d.nodes)
      for (const TensorPtr& t : outputs ? n.out : n.in)
        if (matches(t)) return out = *t, error_t{};
  for (const TensorPtr& t : d.tensors)
    if (matches(t)) return out = *t, error_t{};
  return invalid("no tensor of the graph has uid {}", uid);
}

std::vector<TensorPtr> Graph::add(const std::string& op, Attributes_base attr,
                                  const std::vector<std::pair<std::string, TensorPtr>>& inputs) {
  Description& d = impl_->description;
  auto fail = [&](Status s) {
    if (d.deferred.is_good()) d.deferred = std::move(s);
  };
  BuilderNode n;
  n.op = ir::find_op(op);
  if (!n.op) {
    fail(invalid("there is no op \"{}\"", op));
    return std::vector<TensorPtr>(16);  // as many nulls as any op has outputs
  }
  n.name = attr.name.empty() ? std::to_string(d.nodes.size()) : attr.name;
  n.compute = attr.compute_data_type;
  n.attrs = std::move(attr.values);
  n.in.resize(n.op->inputs.size());
  n.out.resize(n.op->outputs.size());
  auto put = [&](const std::string& port, const TensorPtr& t) {
    if (!t) return;
    int index = n.op->input_port(port);
    if (index < 0 && n.op->inputs.back().kind == ir::PortKind::Variadic &&
        port.find_first_not_of("0123456789") == port.npos)
      index = int(n.op->inputs.size()) - 1 + std::stoi(port);
    if (index < 0) return fail(invalid("{} \"{}\": there is no input \"{}\"", n.op->name, n.name, port));
    if (size_t(index) >= n.in.size()) n.in.resize(size_t(index) + 1);
    n.in[size_t(index)] = t;
    if (t->get_name().empty()) t->set_name(fmt::format("{}::{}", n.name, port));
  };
  for (const auto& [port, t] : attr.inputs) put(port, t);
  for (const auto& [port, t] : inputs) put(port, t);

  std::vector<std::string> given;
  for (size_t i = 0; i < n.op->inputs.size(); ++i)
    if (n.in[i]) given.push_back(n.op->inputs[i].name);
  for (const auto& [port, t] : attr.outputs) {
    const int index = n.op->output_port(port);
    if (index < 0) fail(invalid("{} \"{}\": there is no output \"{}\"", n.op->name, n.name, port));
    else n.out[size_t(index)] = t;
  }
  for (size_t i = 0; i < n.out.size(); ++i) {
    const ir::Port& port = n.op->outputs[i];
    if (!n.out[i] && port.kind != ir::PortKind::Optional && (!port.wanted || port.wanted(n.attrs, given)))
      (n.out[i] = std::make_shared<Tensor_attributes>())->set_is_virtual(true);
    if (n.out[i] && n.out[i]->get_name().empty()) n.out[i]->set_name(fmt::format("{}::{}", n.name, port.name));
  }
  d.nodes.push_back(n);
  return d.nodes.back().out;
}

TensorPtr Graph::concatenate(const std::vector<TensorPtr>& x, Concatenate_attributes attr) {
  std::vector<std::pair<std::string, TensorPtr>> inputs;
  for (size_t i = 0; i < x.size(); ++i) inputs.emplace_back(std::to_string(i), x[i]);
  return add("concatenate", std::move(attr), inputs)[0];
}

std::array<TensorPtr, 5> Graph::batchnorm(TensorPtr x, TensorPtr scale, TensorPtr bias, Batchnorm_attributes attr) {
  auto& peers = impl_->description.peer_stats;
  peers.insert(peers.end(), attr.peer_stats.begin(), attr.peer_stats.end());
  return pack<5>(add("batchnorm", std::move(attr), {{"X", x}, {"SCALE", scale}, {"BIAS", bias}}));
}

std::array<TensorPtr, 3> Graph::batchnorm_backward(TensorPtr dy, TensorPtr x, TensorPtr scale,
                                                   Batchnorm_backward_attributes attr) {
  auto& peers = impl_->description.peer_stats;
  peers.insert(peers.end(), attr.peer_stats.begin(), attr.peer_stats.end());
  return pack<3>(add("batchnorm_backward", std::move(attr), {{"DY", dy}, {"X", x}, {"SCALE", scale}}));
}

// --- build -----------------------------------------------------------------------------------------------------------

error_t Graph::validate() {
  auto frozen = freeze(impl_->description);
  if (!frozen) return frozen.status();
  write_back(impl_->description, *frozen);
  impl_->frozen = std::move(*frozen);
  impl_->lowered = false;
  return {};
}

error_t Graph::build_operation_graph() { return build_operation_graph(Handle{}); }

error_t Graph::build_operation_graph(Handle handle) { return impl_->lower(handle); }

Status Graph::Impl::lower(Handle handle) {
  TW_ASSIGN_OR_RETURN(const Queue queue, queue_of(handle));
  auto fresh = freeze(description);
  if (!fresh) return fresh.status();
  write_back(description, *fresh);
  assign_uids(*fresh);
  int64_t next = 1;
  for (const TensorPtr& t : fresh->tensors) next = std::max(next, t->get_uid() + 1);
  for (const TensorPtr& t : description.peer_stats)
    if (t && !t->has_uid()) t->set_uid(next++);
  frozen = std::move(*fresh);
  lowered = true;
  this->queue = queue;
  PlanFilters filters = plans.filters;
  plans = PlanList{};
  plans.filters = std::move(filters);
  std::lock_guard lock(overrides_mutex);
  overrides.clear();
  return {};
}

namespace {

Result<Target> gpu_target(const std::string& json) {
  TW_ASSIGN_OR_RETURN(cuda::GpuProperties properties, cuda::GpuProperties::from_json(json));
  return Target::of_gpu(std::move(properties));
}

// A handle of a GPU counts before a description of one.
Result<Target> target_of(const Graph::Impl& impl) {
  if (impl.queue.ordinal >= 0) return Target::of_gpu(impl.queue.ordinal, impl.queue.ptx);
  if (const auto& properties = impl.description.device_properties; properties && !properties->target().empty())
    return properties->gpu().empty() ? Target::parse(properties->target()) : gpu_target(properties->gpu());
  return Target::this_machine();
}

Status need_lowered(const Graph::Impl& impl, const char* step) {
  if (impl.lowered) return {};
  return error(error_code_t::HEURISTIC_QUERY_FAILED, "{}: the operation graph is not built; call build_operation_graph",
               step);
}

}  // namespace

error_t Graph::create_execution_plans(const std::vector<HeurMode_t>& modes) {
  TW_RETURN_IF_BAD(need_lowered(*impl_, "create_execution_plans"));
  TW_ASSIGN_OR_RETURN(Target target, target_of(*impl_));
  KernelCache* cache = impl_->description.dynamic_shapes ? impl_->description.cache.get() : nullptr;
  return impl_->plans.create(impl_->frozen.graph, target, modes, cache);
}

error_t Graph::create_execution_plan(int64_t engine_id, const std::unordered_map<KnobType_t, int64_t>& knobs) {
  TW_RETURN_IF_BAD(need_lowered(*impl_, "create_execution_plan"));
  TW_ASSIGN_OR_RETURN(Target target, target_of(*impl_));
  return impl_->plans.create_one(impl_->frozen.graph, target, engine_id, knobs);
}

error_t Graph::check_support() { return impl_->plans.check_support(); }

error_t Graph::build_plans(BuildPlanPolicy_t policy, bool) { return impl_->plans.build(policy); }

error_t Graph::build_plan_at_index(int64_t index) { return impl_->plans.build_at(index); }

error_t Graph::build(Handle handle, const std::vector<HeurMode_t>& modes, BuildPlanPolicy_t policy, bool mt) {
  TW_RETURN_IF_BAD(validate());
  TW_RETURN_IF_BAD(build_operation_graph(handle));
  TW_RETURN_IF_BAD(create_execution_plans(modes));
  TW_RETURN_IF_BAD(check_support());
  return build_plans(policy, mt);
}

// --- the plan list ---------------------------------------------------------------------------------------------------

std::vector<PlanInfo> Graph::plans() const { return impl_->plans.infos(); }

std::string Graph::explain() const {
  if (!impl_->frozen.graph) return "the graph is not validated yet\n";
  std::string s = ir::describe(*impl_->frozen.graph);
  for (const std::string& w : impl_->frozen.warnings) s += "warning: " + w + "\n";
  if (!impl_->loaded_note.empty()) s += impl_->loaded_note + "\n";
  if (!impl_->tuned_note.empty()) s += impl_->tuned_note + "\n";
  if (!impl_->plans.empty()) {
    const PlanRow& first = impl_->plans.at(0);
    s += fmt::format("plan 0 is {}: {}\n", first.name(), fmt::join(first.candidate.notes, ", "));
  }
  const Proposal* last = nullptr;
  for (int64_t i = 0; i < impl_->plans.count(); ++i) {
    const PlanRow& row = impl_->plans.at(i);
    if (!row.proposal || row.proposal.get() == last) continue;
    last = row.proposal.get();
    s += fmt::format("\nengine {}: yes\n{}", row.engine->name(), last->explain());
  }
  for (const PlanRow& row : impl_->plans.rejected()) {
    s += fmt::format("\nengine {}: no\n", row.name());
    for (const Reason& r : row.reasons) s += "  " + tilewright::describe(*impl_->frozen.graph, r) + "\n";
  }
  return s;
}

int64_t Graph::get_execution_plan_count() const { return impl_->plans.count(); }

error_t Graph::get_engine_count(int64_t& count) {
  TW_RETURN_IF_BAD(need_lowered(*impl_, "get_engine_count"));
  TW_ASSIGN_OR_RETURN(Target target, target_of(*impl_));
  count = impl_->plans.engine_count(impl_->frozen.graph, target);
  return {};
}

error_t Graph::get_knobs_for_engine(int64_t engine_id, std::vector<Knob>& knobs) {
  TW_RETURN_IF_BAD(need_lowered(*impl_, "get_knobs_for_engine"));
  TW_ASSIGN_OR_RETURN(Target target, target_of(*impl_));
  TW_ASSIGN_OR_RETURN(knobs, impl_->plans.knobs(impl_->frozen.graph, target, engine_id));
  return {};
}

namespace {

Status check_index(const PlanList& plans, int64_t index) {
  if (index >= 0 && index < plans.count()) return {};
  return error(error_code_t::GRAPH_EXECUTION_FAILED, "Plan index {} is invalid. The list has {} plans.", index,
               plans.count());
}

Status check_built(const PlanList& plans, int64_t index) {
  TW_RETURN_IF_BAD(check_index(plans, index));
  if (plans.at(index).executable) return {};
  return error(error_code_t::GRAPH_EXECUTION_FAILED, "Plan at index {} ({}) did not build.", index,
               plans.at(index).name());
}

int64_t chosen_index(const PlanList& plans) { return plans.chosen().value_or(-1); }

}  // namespace

error_t Graph::get_plan_name(std::string& name) const {
  return get_plan_name_at_index(chosen_index(impl_->plans), name);
}

error_t Graph::get_plan_name_at_index(int64_t index, std::string& name) const {
  TW_RETURN_IF_BAD(check_index(impl_->plans, index));
  name = impl_->plans.at(index).name();
  return {};
}

error_t Graph::get_workspace_size(int64_t& bytes) const {
  return get_workspace_size_plan_at_index(chosen_index(impl_->plans), bytes);
}

int64_t Graph::get_workspace_size() const {
  int64_t bytes = 0;
  return get_workspace_size(bytes).is_good() ? bytes : 0;
}

error_t Graph::get_workspace_size_plan_at_index(int64_t index, int64_t& bytes) const {
  TW_RETURN_IF_BAD(check_built(impl_->plans, index));
  bytes = impl_->plans.at(index).executable->workspace_bytes();
  return {};
}

int64_t Graph::get_workspace_size_plan_at_index(int64_t index) const {
  int64_t bytes = 0;
  return get_workspace_size_plan_at_index(index, bytes).is_good() ? bytes : 0;
}

int64_t Graph::get_autotune_workspace_size() const {
  int64_t most = 0;
  for (int64_t i = 0; i < impl_->plans.count(); ++i)
    if (const auto& e = impl_->plans.at(i).executable) most = std::max(most, e->workspace_bytes());
  return most;
}

error_t Graph::get_behavior_notes(std::vector<BehaviorNote_t>& notes) const {
  if (!impl_->plans.chosen())
    return error(error_code_t::GRAPH_EXECUTION_FAILED, "No plan is built yet; its notes cannot be told.");
  return get_behavior_notes_for_plan_at_index(*impl_->plans.chosen(), notes);
}

error_t Graph::get_behavior_notes_for_plan_at_index(int64_t index, std::vector<BehaviorNote_t>& notes) const {
  TW_RETURN_IF_BAD(check_index(impl_->plans, index));
  notes = impl_->plans.at(index).candidate.behavior_notes;
  return {};
}

Graph& Graph::deselect_workspace_greater_than(int64_t bytes) {
  return impl_->plans.filters.max_workspace_bytes = bytes, *this;
}
Graph& Graph::deselect_shared_mem_greater_than(int64_t bytes) {
  return impl_->plans.filters.max_shared_memory_bytes = bytes, *this;
}
Graph& Graph::deselect_engines(const std::vector<std::string>& names) {
  return impl_->plans.filters.barred_names = names, *this;
}
Graph& Graph::select_behavior_notes(const std::vector<BehaviorNote_t>& v) {
  return impl_->plans.filters.required_behavior = v, *this;
}
Graph& Graph::deselect_behavior_notes(const std::vector<BehaviorNote_t>& v) {
  return impl_->plans.filters.barred_behavior = v, *this;
}
Graph& Graph::select_numeric_notes(const std::vector<NumericalNote_t>& v) {
  return impl_->plans.filters.required_numerical = v, *this;
}
Graph& Graph::deselect_numeric_notes(const std::vector<NumericalNote_t>& v) {
  return impl_->plans.filters.barred_numerical = v, *this;
}

// --- text, keys, files -----------------------------------------------------------------------------------------------

size_t Graph::key() {
  auto frozen = freeze(impl_->description);
  // A graph that does not validate has a key too: of what was said.
  if (!frozen) return std::hash<std::string>()(to_json(impl_->description, {}).dump());
  return size_t(ir::content_key(*frozen->graph, !impl_->description.dynamic_shapes));
}

std::string Graph::print() const { return to_json(impl_->description, {.hex_floats = true}).dump(); }

std::ostream& operator<<(std::ostream& out, const Graph& g) { return out << g.print(); }

Graph::operator Json() const {
  Json j;
  serialize(j);
  return j;
}

void Graph::serialize(Json& out) const {
  out = Json(std::make_unique<Json::Rep>(Json::Rep{to_json(impl_->description, {.hex_floats = true})}));
}

error_t Graph::serialize(std::vector<uint8_t>& bytes) const { return save_plan_file(*impl_, bytes); }

error_t Graph::deserialize(const Json& json) {
  auto d = description_from_json(json.rep().value);
  if (!d) return d.status();
  Impl& impl = *impl_;
  d->cache = impl.description.cache;
  d->device_properties = impl.description.device_properties;
  d->verify = impl.description.verify;
  impl.description = std::move(*d);
  impl.frozen = Frozen{};
  impl.lowered = false;
  impl.plans = PlanList{};
  return {};
}

error_t Graph::deserialize(Handle handle, const std::vector<uint8_t>& bytes) {
  TW_ASSIGN_OR_RETURN(const Queue queue, queue_of(handle));
  return load_plan_file(*impl_, bytes, kStrictPlans.is_one() ? Loading::Strict : Loading::Lenient, queue);
}

}  // namespace tilewright::graph
