#include "engines/reference/engine.h"

#include "ops/reference.h"

namespace tilewright {
namespace {

// The evaluator's double-precision intermediates are its own memory; the plan needs no workspace.
class ReferenceRun : public Executable {
 public:
  explicit ReferenceRun(const ir::Graph& graph) : graph_(graph) {
    steps_.push_back({fmt::format("reference, {} nodes", graph_.nodes.size()),
                      [this](const Bindings& b, void*) { status_of_last_step() = evaluate(b); }});
  }
  Status run(const Bindings& b, void*) const override { return evaluate(b); }
  int64_t workspace_bytes() const override { return 0; }
  const std::vector<Step>& steps() const override { return steps_; }

 private:
  static Status& status_of_last_step() {
    static thread_local Status status;
    return status;
  }
  Status evaluate(const Bindings& bindings) const {
    // Nothing is written before everything is read, so outputs may share memory with inputs.
    auto tensors = evaluate_reference(graph_, bindings);
    if (!tensors) return tensors.status();
    for (size_t i = 0; i < graph_.tensors.size(); ++i)
      if (graph_.tensors[i].role == ir::Role::Output) store_reference((*tensors)[i], bindings[i]);
    return {};
  }
  const ir::Graph graph_;
  std::vector<Step> steps_;
};

class ReferenceProposal : public Proposal {
 public:
  explicit ReferenceProposal(const ir::Graph& g) : graph_(g) {}
  std::vector<Candidate> candidates() const override {
    Candidate c;
    c.kernel_count = 1;
    // About 2 GFLOP/s of Bounded arithmetic.
    c.estimated_ms = 0.05 + ir::cost(graph_).flops / 2e6 + ir::cost(graph_).bytes / 1e6;
    c.everything = c.last_resort = true;
    c.notes = {"exact: double precision", "deterministic"};
    c.numerical_notes = {NumericalNote_t::STRICT_NAN_PROP};
    return {c};
  }
  Result<Artifact> compile(const std::string&) const override { return Artifact{"reference", "", {}}; }
  std::string explain() const override {
    return fmt::format("evaluates {} nodes one by one in double precision; intermediates are never rounded\n",
                       graph_.nodes.size());
  }

 private:
  const ir::Graph graph_;
};

class ReferenceEngine : public Engine {
 public:
  const char* name() const override { return "reference"; }
  const char* summary() const override { return "every op in double precision, node by node: slow, exact, any graph"; }
  int version() const override { return 1; }
  std::vector<Reason> unavailable(const Target& t) const override {
    if (t.device == "cpu") return {};
    return {{Why::Arch, -1, ir::kNone, fmt::format("runs on the CPU, the target is {}", t.text())}};
  }
  Verdict propose(const ir::Graph& g, const Target& t) const override {
    if (auto reasons = unavailable(t); !reasons.empty()) return {nullptr, reasons};
    return {std::make_unique<ReferenceProposal>(g), {}};
  }
  Result<std::unique_ptr<Executable>> load(const ir::Graph& g, const Artifact&, const Target&) const override {
    return std::unique_ptr<Executable>(std::make_unique<ReferenceRun>(g));
  }
};

}  // namespace

const Engine& reference_engine() {
  static const ReferenceEngine engine;
  return engine;
}

}  // namespace tilewright
