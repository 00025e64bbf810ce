#include "engines/cudnn/engine.h"

#include <algorithm>
#include <optional>

#include "engines/cudnn/program.h"
#include "fuse/regions.h"
#include "ir/op_def.h"
#include "plan/judge.h"
#include "plan/rates.h"

namespace tilewright {
namespace {

using namespace cudnn;

constexpr const char* kSplit = "split";
constexpr HeurMode_t kModes[] = {HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK};

// What share of the memory's rate cuDNN's engines reach (docs/performance.md). Its fast engines of normalisations take
// a scale of X's type only; those of instance normalisation and of statistics alone are slow.
double memory_share(const ir::Graph& g) {
  double share = 0.88;
  for (const ir::Node& n : g.nodes) {
    const std::string_view op = n.op->name;
    const int scale = op == "layernorm" || op == "rmsnorm" ? n.op->input_port("SCALE") : -1;
    const bool other_type =
        scale >= 0 && n.in[size_t(scale)] != ir::kNone && g.tensor(n.in[size_t(scale)]).type != g.tensor(n.in[0]).type;
    if (other_type || op.substr(0, 12) == "instancenorm" || (op == "genstats" && g.nodes.size() == 1)) return 0.22;
    if (op == "batchnorm") share = 0.56;
  }
  return share;
}

// Convolutions of few channels fill a part of what tensor cores multiply at once.
double flops_share(const ir::Graph& g) {
  for (const ir::Node& n : g.nodes) {
    const bool forward = n.op == ir::find_op("conv_fprop");
    if (forward && g.tensor(n.in[0]).dim[1] % 8 != 0 && g.tensor(n.in[1]).dim[1] == g.tensor(n.in[0]).dim[1])
      return 0.1;
  }
  return 1;
}

// cuDNN's order is kept by a thousandth per place in its list.
double estimate_ms(const ir::Graph& g, const Target& target, int64_t rank) {
  const Rates peak = peak_rates(target);
  const ir::Cost cost = ir::cost(g);
  const double memory = cost.bytes / peak.bytes_per_ms / memory_share(g);
  return (0.003 + std::max(memory, cost.flops / peak.flops_per_ms / flops_share(g))) * (1 + 1e-3 * double(rank));
}

// Whether attention drops by probability.
bool drops(const ir::Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(),
                     [](const ir::Node& n) { return n.attr<double>("dropout_probability") > 0; });
}

// FLOAT operands that tensor cores multiply are rounded to 10 bits of fraction.
// What cuBLASLt does it does not say.
bool may_use_tf32(const ir::Graph& g, const Listed& l) {
  const auto has = [](const auto& notes, auto n) { return std::find(notes.begin(), notes.end(), n) != notes.end(); };
  if (!has(l.numerical_notes, NumericalNote_t::TENSOR_CORE) &&
      !has(l.numerical_notes, NumericalNote_t::DOWN_CONVERT_INPUTS) &&
      !has(l.behavior_notes, BehaviorNote_t::CUBLASLT_DEPENDENCY))
    return false;
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const ir::Node& n) {
    return fuse::is_contraction(n) && g.tensor(n.in[0]).type == DataType_t::FLOAT;
  });
}

// Tensor cores add products of FP8 numbers in fewer bits than FLOAT has.
bool multiplies_fp8(const ir::Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const ir::Node& n) {
    if (!fuse::is_contraction(n)) return false;
    const DataType_t t = g.tensor(n.in[0]).type;
    return t == DataType_t::FP8_E4M3 || t == DataType_t::FP8_E5M2;
  });
}

class CudnnProposal : public Proposal {
 public:
  // `segments`: one, of all nodes, or those of a split.
  CudnnProposal(Prepared prepared, std::vector<Segment> segments, const Target& target)
      : prepared_(std::move(prepared)), segments_(std::move(segments)), target_(target) {}

  std::vector<Candidate> candidates() const override { return candidates_in({}); }

  std::vector<Candidate> candidates_in(const std::vector<HeurMode_t>& modes) const override {
    if (segments_.size() > 1) return {split_candidate()};
    std::vector<Candidate> list;
    for (HeurMode_t mode : kModes)
      if (modes.empty() || std::find(modes.begin(), modes.end(), mode) != modes.end())
        for (const Listed& l : segments_[0].operations->heuristics(mode).configs) add(list, l, mode);
    return list.empty() && !modes.empty() ? candidates_in({}) : list;
  }

  Result<Artifact> compile(const std::string& config, KernelCache* cache) const override {
    std::optional<Config> parsed;
    if (segments_.size() > 1) {
      if (config != kSplit) return invalid("cudnn: the graph runs in parts only, as configuration \"{}\"", kSplit);
    } else {
      TW_ASSIGN_OR_RETURN(parsed, Config::parse(config));
    }
    TW_ASSIGN_OR_RETURN(std::shared_ptr<const Program> program,
                        make_program(prepared_, segments_, parsed ? &*parsed : nullptr, cache));
    return Artifact{"cudnn", config, {}, std::const_pointer_cast<Program>(program)};
  }

  std::string explain() const override {
    std::string s = fmt::format(
        "cuDNN {} takes {}:\n", version_text(lookup().version),
        segments_.size() == 1 ? "the graph as one operation graph" : fmt::format("{} parts", segments_.size()));
    for (const Segment& part : segments_) s += "  " + segment_name(prepared_.graph, part.nodes) + "\n";
    if (segments_.size() > 1) return s;
    for (HeurMode_t mode : kModes)
      s += fmt::format("heuristics {} list {} configurations of engines\n", to_string(mode),
                       segments_[0].operations->heuristics(mode).count);
    return s;
  }

  std::vector<RegionInfo> regions() const override {
    std::vector<RegionInfo> list;
    for (const Segment& s : segments_) {
      RegionInfo r{segment_name(prepared_.graph, s.nodes), {}};
      for (ir::NodeId id : s.nodes) r.nodes.push_back(prepared_.origin[size_t(id)]);
      r.nodes.erase(std::unique(r.nodes.begin(), r.nodes.end()), r.nodes.end());
      list.push_back(std::move(r));
    }
    return list;
  }

  int64_t engine_count() const override {
    if (segments_.size() > 1) return 0;
    const Result<int64_t> count = segments_[0].operations->engine_count();
    return count ? *count : 0;
  }
  Result<std::vector<Knob>> knobs(int64_t engine) const override { return segments_[0].operations->knobs(engine); }

  Result<Candidate> candidate(int64_t engine, const std::unordered_map<KnobType_t, int64_t>& knobs) const override {
    Config config{engine, {}};
    for (const auto& [type, value] : knobs) {
      if (number(type) < 0) return invalid("cuDNN has no knob {}", to_string(type));
      config.knobs.emplace_back(number(type), value);
    }
    std::sort(config.knobs.begin(), config.knobs.end());
    TW_ASSIGN_OR_RETURN(const Listed l, segments_[0].operations->listed(config));
    std::vector<Candidate> list;
    add(list, l, HeurMode_t::A);
    list[0].modes.clear();
    return list[0];
  }

 private:
  void add(std::vector<Candidate>& list, const Listed& l, HeurMode_t mode) const {
    const std::string text = l.config.text();
    for (Candidate& c : list)
      if (c.config == text) return c.modes.push_back(mode);
    Candidate c;
    c.config = text;
    c.workspace_bytes = segments_[0].lowered->workspace_bytes + l.workspace_bytes;
    c.kernel_count = 1;
    c.estimated_ms = estimate_ms(prepared_.graph, target_, int64_t(list.size()));
    c.modes = {mode};
    c.behavior_notes = l.behavior_notes;
    c.numerical_notes = l.numerical_notes;
    if (may_use_tf32(prepared_.graph, l)) c.notes.push_back(kTf32Note);
    if (multiplies_fp8(prepared_.graph)) {
      c.notes.push_back("adds FP8 products in fewer bits than FLOAT");
      c.numerical_notes.push_back(NumericalNote_t::REDUCED_PRECISION_REDUCTION);
    }
    note_graph(c);
    std::vector<std::string> ops;
    for (const ir::Node& n : prepared_.graph.nodes) ops.push_back(n.op->name);
    if (const KnownBad* bad = find_known_bad(known_bad(), l.config, ops, lookup().version))
      c.reasons.push_back({Why::Policy, -1, ir::kNone,
                           fmt::format("{} of cuDNN {} is known to be bad: {}", bad->config,
                                       version_text(lookup().version), bad->reason)});
    list.push_back(std::move(c));
  }

  Candidate split_candidate() const {
    Candidate c;
    c.config = kSplit;
    c.kernel_count = int(segments_.size());
    c.estimated_ms = estimate_ms(prepared_.graph, target_, 0) + 0.005 * double(segments_.size() - 1);
    c.modes = {HeurMode_t::A, HeurMode_t::B, HeurMode_t::FALLBACK};
    c.notes.push_back(fmt::format("{} cuDNN plans", segments_.size()));
    note_graph(c);
    return c;
  }

  // What holds for every plan of this graph.
  void note_graph(Candidate& c) const {
    if (has_tanh(prepared_.graph)) c.notes.push_back(kTanhNote);
    if (has_dbias(prepared_.graph)) c.notes.push_back(kDbiasNote);
    if (drops(prepared_.graph)) c.notes.push_back("draws cuDNN's own random numbers");
  }

  Prepared prepared_;
  std::vector<Segment> segments_;
  Target target_;
};

// Of two refusals: "engine 4: ...".
bool same_engine(const std::string& a, const std::string& b) {
  return a.substr(0, a.find(':')) == b.substr(0, b.find(':'));
}

// The graph as one segment where cuDNN takes it so, else as few as it takes it in.
Split divide(const ir::Graph& graph, const Target& target) {
  Prepared prepared = prepare(graph);
  std::vector<Reason> reasons;
  Result<Segment> s = make_segment(prepared.graph, all_nodes(prepared.graph), target, reasons);
  if (s && s->operations->supported()) return {std::move(prepared), {std::move(*s)}, {}};
  if (s)
    for (HeurMode_t mode : {HeurMode_t::A, HeurMode_t::FALLBACK})
      for (const std::string& text : s->operations->heuristics(mode).refusals)
        if (std::none_of(reasons.begin(), reasons.end(), [&](const Reason& r) { return same_engine(r.text, text); }))
          reasons.push_back({why_of(text), -1, ir::kNone, text});
  for (Reason& r : reasons)
    if (r.node >= 0) r.node = prepared.origin[size_t(r.node)];
  const bool single = prepared.graph.nodes.size() == 1 && !prepared.graph.nodes[0].op->decompose;
  if (single) return {std::move(prepared), {}, std::move(reasons)};
  Split parts = split(std::move(prepared), target);
  if (parts.segments.empty()) parts.reasons.insert(parts.reasons.begin(), reasons.begin(), reasons.end());
  return parts;
}

class CudnnEngine : public Engine {
 public:
  const char* name() const override { return "cudnn"; }
  const char* summary() const override { return "cuDNN 9's engines, where that library is installed"; }
  int version() const override { return int(lookup().version); }

  std::vector<Reason> unavailable(const Target& target) const override {
    if (!target.is_gpu())
      return {{Why::Arch, -1, ir::kNone, fmt::format("runs on an NVIDIA GPU, not on \"{}\"", target.device)}};
    if (target.gpu->ptx)
      return {{Why::Policy, -1, ir::kNone,
               fmt::format("the target asks for kernels as PTX ({}), and cuDNN brings its own", target.arch)}};
    if (!lookup().calls)
      return {{Why::Library, -1, ir::kNone, fmt::format("{}; to mend it: {}", lookup().problem, lookup().mend)}};
    if (target.ordinal < 0 && lookup().version < 90800)
      return {{Why::Library, -1, ir::kNone,
               fmt::format("cuDNN {} plans for no GPU that is not there; 9.8 and later do",
                           version_text(lookup().version))}};
    return {};
  }

  Verdict propose(const ir::Graph& graph, const Target& target) const override {
    if (auto reasons = unavailable(target); !reasons.empty()) return {nullptr, reasons};
    for (size_t t = 0; t < graph.tensors.size(); ++t)  // cuDNN's pattern matchers divide by their sizes
      if (volume(graph.tensors[t].dim) == 0)
        return {nullptr,
                {{Why::Shape, -1, ir::TensorId(t),
                  fmt::format("tensor \"{}\" {} has no elements, which cuDNN does not take", graph.tensors[t].name,
                              to_text(graph.tensors[t].dim))}}};
    Split parts = divide(graph, target);
    if (parts.segments.empty()) return {nullptr, std::move(parts.reasons)};
    return {std::make_unique<CudnnProposal>(std::move(parts.prepared), std::move(parts.segments), target), {}};
  }

  Result<std::unique_ptr<Executable>> load(const ir::Graph& graph, const Artifact& artifact, const Target& target,
                                           KernelCache* cache) const override {
    if (auto reasons = unavailable(target); !reasons.empty()) return not_supported("cudnn: {}", reasons[0].text);
    if (artifact.made) return make_executable(std::static_pointer_cast<const Program>(artifact.made));
    if (!artifact.bytes.empty()) {
      TW_ASSIGN_OR_RETURN(std::shared_ptr<const Program> program, from_bytes(graph, artifact.bytes, target));
      return make_executable(std::move(program));
    }
    TW_ASSIGN_OR_RETURN(std::shared_ptr<const Program> program, from_config(graph, artifact.config, target, cache));
    return make_executable(std::move(program));
  }

  std::vector<std::string> plan_names(const std::string& config) const override {
    const Result<Config> c = Config::parse(config);
    if (!c) return {config.empty() ? name() : fmt::format("cudnn.{}", config)};
    return {"cudnn." + c->plan_name(), c->tag()};
  }

 private:
  static Result<std::shared_ptr<const Program>> from_config(const ir::Graph& graph, const std::string& config,
                                                            const Target& target, KernelCache* cache) {
    std::optional<Config> parsed;
    if (config != kSplit) {
      TW_ASSIGN_OR_RETURN(parsed, Config::parse(config));
      Prepared prepared = prepare(graph);
      std::vector<Reason> reasons;
      if (Result<Segment> s = make_segment(prepared.graph, all_nodes(prepared.graph), target, reasons))
        if (auto program = make_program(std::move(prepared), {std::move(*s)}, &*parsed, cache)) return program;
    }
    Split parts = divide(graph, target);
    if (parts.segments.empty()) return not_supported("cudnn: {}", parts.reasons[0].text);
    if (parsed.has_value() != (parts.segments.size() == 1))
      return not_supported("cudnn: cuDNN takes this graph in {} parts, not as \"{}\"", parts.segments.size(), config);
    return make_program(std::move(parts.prepared), std::move(parts.segments), parsed ? &*parsed : nullptr, cache);
  }
};

}  // namespace

const Engine& cudnn_engine() {
  static const CudnnEngine engine;
  return engine;
}

}  // namespace tilewright
