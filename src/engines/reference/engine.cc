#include "engines/reference/engine.h"

#include "ops/reference.h"

namespace tilewright {
namespace {

// The evaluator's double-precision intermediates are its own memory; the plan needs no workspace.
Step evaluate_step(const ir::Graph& graph) {
  return {fmt::format("reference, {} nodes", graph.nodes.size()), [graph](const Bindings& bindings, void*) {
            // Nothing is written before everything is read, so outputs may share memory with inputs.
            auto tensors = evaluate_reference(graph, bindings);
            TW_CHECK(tensors);  // it misses only pointers, and those were checked
            for (size_t i = 0; i < graph.tensors.size(); ++i)
              if (graph.tensors[i].role == ir::Role::Output) store_reference((*tensors)[i], bindings[i]);
          }};
}

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
  Result<Artifact> compile(const std::string&, KernelCache*) const override {
    return Artifact{"reference", "", {}, nullptr};
  }
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
  Result<std::unique_ptr<Executable>> load(const ir::Graph& g, const Artifact&, const Target&,
                                           KernelCache*) const override {
    return std::unique_ptr<Executable>(std::make_unique<StepList>(std::vector<Step>{evaluate_step(g)}, 0));
  }
};

}  // namespace

const Engine& reference_engine() {
  static const ReferenceEngine engine;
  return engine;
}

}  // namespace tilewright
