#include "support/recording_cudnn.h"

#include <algorithm>
#include <cstring>

namespace tilewright::testing {

using cudnn::Attr;
using cudnn::AttrType;
using cudnn::Kind;
using cudnn::RawDescriptor;
using cudnn::StatusCode;

namespace {

RecordingCudnn* current = nullptr;
constexpr StatusCode kBadParam = StatusCode(2000), kNotSupported = StatusCode(3000);

RecordedDescriptor* at(RawDescriptor raw) { return static_cast<RecordedDescriptor*>(raw); }

template <class T>
std::vector<T> elements(int64_t count, const void* data) {
  const T* first = static_cast<const T*>(data);
  return {first, first + count};
}

// A tensor by its uid: "t4"; anything else by its kind.
std::string name_of(const RecordedDescriptor& d) {
  const RecordedAttribute* uid = d.find(Attr::TENSOR_UNIQUE_ID);
  return uid ? "t" + uid->text : to_text(d.kind);
}

RecordedAttribute record(Attr name, AttrType type, int64_t count, const void* data) {
  RecordedAttribute a{name, "", {}, {}};
  switch (type) {
    case AttrType::INT64:
      a.numbers = elements<int64_t>(count, data);
      a.text = count == 1 ? std::to_string(a.numbers[0]) : fmt::format("[{}]", fmt::join(a.numbers, ","));
      break;
    case AttrType::FLOAT: a.text = fmt::format("{}", *static_cast<const float*>(data)); break;
    case AttrType::DOUBLE: a.text = fmt::format("{}", *static_cast<const double*>(data)); break;
    case AttrType::BOOLEAN: a.text = *static_cast<const bool*>(data) ? "yes" : "no"; break;
    case AttrType::CHAR: a.text = std::string(static_cast<const char*>(data), size_t(count)); break;
    case AttrType::HANDLE:
    case AttrType::VOID_PTR: a.pointers = elements<void*>(count, data); break;
    case AttrType::BACKEND_DESCRIPTOR:
      a.pointers = elements<void*>(count, data);
      for (void* p : a.pointers) a.text += (a.text.empty() ? "" : " ") + name_of(*at(p));
      break;
    default: a.numbers = {*static_cast<const int*>(data)}; a.text = std::to_string(a.numbers[0]);
  }
  return a;
}

StatusCode create(Kind kind, RawDescriptor* raw) {
  current->made.push_back(std::make_unique<RecordedDescriptor>());
  RecordedDescriptor& d = *current->made.back();
  d.kind = kind;
  *raw = &d;
  ++current->alive;
  return cudnn::kSuccess;
}

StatusCode destroy(RawDescriptor raw) {
  at(raw)->destroyed = true;
  --current->alive;
  return cudnn::kSuccess;
}

StatusCode set_attribute(RawDescriptor raw, Attr name, AttrType type, int64_t count, const void* data) {
  if (current->set_fails == name || at(raw)->finalized) return kBadParam;
  at(raw)->attributes.push_back(record(name, type, count, data));
  return cudnn::kSuccess;
}

StatusCode finalize(RawDescriptor raw) {
  if (current->finalize_fails == at(raw)->kind) return kNotSupported;
  at(raw)->finalized = true;
  return cudnn::kSuccess;
}

void give(RawDescriptor raw, Attr name, int64_t value) {
  at(raw)->attributes.push_back({name, std::to_string(value), {}, {value}});
  at(raw)->finalized = true;
}

void give_config(RawDescriptor raw, const cudnn::Config& c) {
  RecordedAttribute knobs{Attr::ENGINECFG_KNOB_CHOICES, "", {}, {}};
  for (const auto& [type, value] : c.knobs) knobs.numbers.insert(knobs.numbers.end(), {type, value});
  at(raw)->attributes.push_back(knobs);
  give(raw, Attr::ENGINECFG_ENGINE, c.engine);
}

// The knobs of an engine configuration, whether the heuristics or the caller made it: type, value, ...
std::vector<int64_t> knobs_of(const RecordedDescriptor& config) {
  const RecordedAttribute* a = config.find(Attr::ENGINECFG_KNOB_CHOICES);
  if (!a || a->pointers.empty()) return a ? a->numbers : std::vector<int64_t>{};
  std::vector<int64_t> list;
  for (void* p : a->pointers)
    list.insert(list.end(), {at(p)->find(Attr::KNOB_CHOICE_KNOB_TYPE)->numbers[0],
                             at(p)->find(Attr::KNOB_CHOICE_KNOB_VALUE)->numbers[0]});
  return list;
}

int64_t engine_of(const RecordedDescriptor& config) {
  const RecordedAttribute* a = config.find(Attr::ENGINECFG_ENGINE);
  return a->pointers.empty() ? a->numbers[0] : at(a->pointers[0])->find(Attr::ENGINE_GLOBAL_INDEX)->numbers[0];
}

std::vector<cudnn::Config> heuristics(const RecordedDescriptor& d) {
  const RecordedDescriptor& graph = *at(d.find(Attr::ENGINEHEUR_OPERATION_GRAPH)->pointers[0]);
  if (graph.find(Attr::OPERATIONGRAPH_OPS)->pointers.size() > current->most_operations) return {};
  return current->listed[int(d.find(Attr::ENGINEHEUR_MODE)->numbers[0])];
}

StatusCode get_attribute(RawDescriptor raw, Attr name, AttrType type, int64_t asked, int64_t* there, void* out) {
  RecordedDescriptor& d = *at(raw);
  if (!d.finalized) return kBadParam;
  const auto number = [&](int64_t v) {
    *there = 1;
    if (type == AttrType::INT64) *static_cast<int64_t*>(out) = v;
    else *static_cast<int*>(out) = int(v);
    return cudnn::kSuccess;
  };
  const auto descriptor = [&](int64_t i) { return static_cast<RawDescriptor*>(out)[i]; };
  switch (name) {
    case Attr::ENGINEHEUR_RESULTS: {
      const std::vector<cudnn::Config> list = heuristics(d);
      *there = int64_t(list.size());
      for (int64_t i = 0; i < std::min(asked, *there); ++i) give_config(descriptor(i), list[size_t(i)]);
      return cudnn::kSuccess;
    }
    case Attr::ENGINECFG_ENGINE:
      *there = 1;
      give(descriptor(0), Attr::ENGINE_GLOBAL_INDEX, engine_of(d));
      return cudnn::kSuccess;
    case Attr::ENGINECFG_KNOB_CHOICES: {
      const std::vector<int64_t> knobs = knobs_of(d);
      *there = int64_t(knobs.size() / 2);
      for (int64_t i = 0; i < *there; ++i) {
        give(descriptor(i), Attr::KNOB_CHOICE_KNOB_TYPE, knobs[size_t(2 * i)]);
        give(descriptor(i), Attr::KNOB_CHOICE_KNOB_VALUE, knobs[size_t(2 * i + 1)]);
      }
      return cudnn::kSuccess;
    }
    case Attr::EXECUTION_PLAN_ENGINE_CONFIG: {
      const RecordedAttribute* config = d.find(name);
      *there = config ? 1 : 0;
      if (config) give_config(descriptor(0), {engine_of(*at(config->pointers[0])), {}});
      return cudnn::kSuccess;
    }
    case Attr::ENGINE_NUMERICAL_NOTE: return number(0);  // TENSOR_CORE
    case Attr::ENGINE_BEHAVIOR_NOTE: return number(current->behavior_note);
    case Attr::ENGINECFG_WORKSPACE_SIZE: return current->tells_workspace ? number(current->plan_workspace) : kBadParam;
    case Attr::EXECUTION_PLAN_WORKSPACE_SIZE: return number(current->plan_workspace);
    case Attr::OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: return number(current->engine_count);
    case Attr::EXECUTION_PLAN_JSON_REPRESENTATION: {
      const RecordedAttribute* config = d.find(Attr::EXECUTION_PLAN_ENGINE_CONFIG);
      const RecordedAttribute* loaded = d.find(Attr::EXECUTION_PLAN_JSON_REPRESENTATION);
      const std::string text = config ? fmt::format("plan of {}", engine_of(*at(config->pointers[0]))) : loaded->text;
      *there = int64_t(text.size());
      if (out) std::memcpy(out, text.data(), size_t(std::min(asked, *there)));
      return cudnn::kSuccess;
    }
    default: break;
  }
  const RecordedAttribute* a = d.find(name);
  return a && !a->numbers.empty() ? number(a->numbers[0]) : kBadParam;
}

StatusCode execute(cudnn::Handle, RawDescriptor plan, RawDescriptor pack) {
  if (!at(plan)->finalized || !at(pack)->finalized) return kBadParam;
  current->packs.push_back(*at(pack));
  return cudnn::kSuccess;
}

StatusCode on_graph(cudnn::Handle handle, RawDescriptor plan, RawDescriptor pack, cudnn::CudaGraph) {
  return execute(handle, plan, pack);
}

void last_error(char* text, size_t size) { std::snprintf(text, size, "%s", current->pages.c_str()); }

const char* error_string(StatusCode code) {
  return code == kBadParam ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS_NOT_SUPPORTED";
}

}  // namespace

const RecordedAttribute* RecordedDescriptor::find(Attr name) const {
  for (const RecordedAttribute& a : attributes)
    if (a.name == name) return &a;
  return nullptr;
}

std::string RecordedDescriptor::text() const {
  std::string s = to_text(kind);
  for (const RecordedAttribute& a : attributes) s += fmt::format(" {}={}", to_text(a.name), a.text);
  return finalized ? s : s + " (not finalized)";
}

RecordingCudnn::RecordingCudnn(int64_t version) {
  TW_CHECK(!current);
  current = this;
  listed[3] = {{41, {{2, 0}, {13, 1}}}};
  calls.get_version = [] { return size_t(91900); };
  calls.get_error_string = error_string;
  calls.get_last_error_string = last_error;
  calls.backend_create_descriptor = create;
  calls.backend_destroy_descriptor = destroy;
  calls.backend_set_attribute = set_attribute;
  calls.backend_get_attribute = get_attribute;
  calls.backend_finalize = finalize;
  calls.backend_execute = execute;
  calls.backend_populate_cuda_graph = on_graph;
  calls.backend_update_cuda_graph = on_graph;
  scope_ = std::make_unique<cudnn::ScopedLibrary>(calls, version);
}

RecordingCudnn::~RecordingCudnn() { current = nullptr; }

std::vector<const RecordedDescriptor*> RecordingCudnn::of_kind(Kind kind) const {
  std::vector<const RecordedDescriptor*> list;
  for (const auto& d : made)
    if (d->kind == kind) list.push_back(d.get());
  return list;
}

std::string RecordingCudnn::operations() const {
  std::string s;
  for (const auto& d : made)
    if (d->kind != Kind::DEVICEPROP) s += d->text() + "\n";
  return s;
}

}  // namespace tilewright::testing
