#include "engines/cpu/attention.h"

#include "engines/cpu/attention_problem.h"

namespace tilewright::cpu {
bool is_attention(const ir::Node& n) {
  const std::string_view name = n.op->name;
  return name == "sdpa" || name == "sdpa_backward";
}

Result<AttentionStep> make_attention_step(const ir::Graph& g, const ir::Node& n, AddressOf address) {
  if (!is_attention(n)) return not_supported("{} \"{}\" is not an attention op", n.op->name, n.name);
  auto problem = std::make_shared<const AttentionProblem>(g, n, std::move(address));
  const bool wide = problem->in_double;
  if (problem->o_in)
    return AttentionStep{
        "attention backward",
        (wide ? attention_backward_scratch<double> : attention_backward_scratch<float>)(problem->o),
        [problem, run = wide ? attention_backward<double> : attention_backward<float>](
            const Bindings& b, void* workspace, char* scratch) { run(*problem, b, workspace, scratch); }};
  return AttentionStep{
      "attention forward", (wide ? attention_forward_scratch<double> : attention_forward_scratch<float>)(problem->o),
      [problem, run = wide ? attention_forward<double> : attention_forward<float>](
          const Bindings& b, void* workspace, char* scratch) { run(*problem, b, workspace, scratch); }};
}

}  // namespace tilewright::cpu
