// 3. Every plan for the convolution of example 2: built, timed, and each result checked.
#include <iomanip>

#include "conv_bias_relu.h"

using namespace example;

int all_plans(Tour& tour) {
  ConvBiasRelu conv(tour);
  tour.begin(3, "All plans of the convolution", conv.problem());
  fe::Graph& graph = conv.graph;

  EXAMPLE_OK(graph.build(tour.device, {tw::HeurMode_t::A, tw::HeurMode_t::B, tw::HeurMode_t::FALLBACK},
                         tw::BuildPlanPolicy_t::ALL));
  tw::ExactReference reference;
  EXAMPLE_OK(reference.evaluate(graph, conv.data.host));
  void* workspace = conv.data.workspace(graph.get_autotune_workspace_size());

  bool all_right = true;
  Timing best;
  int64_t best_index = 0;
  for (const tw::PlanInfo& plan : graph.plans()) {
    if (plan.state != tw::PlanState::Built) {
      for (const std::string& reason : plan.reasons)
        std::cout << "   " << plan.name << " does not serve: " << reason << '\n';
      continue;
    }
    std::fill(conv.y.begin(), conv.y.end(), tw::half(std::numeric_limits<float>::quiet_NaN()));
    EXAMPLE_OK(conv.data.upload());
    const Timing t = time_runs(
        tour.device, [&] { (void)graph.execute_plan_at_index(tour.device, conv.data.device, workspace, plan.index); });
    EXAMPLE_OK(conv.data.download());
    const tw::error_t judgement = reference.judge(conv.data.host);
    all_right = all_right && judgement.is_good();
    std::cout << "   " << std::left << std::setw(34) << plan.name << std::right << std::setw(11) << time_text(t.median)
              << "  spread " << std::setw(5) << text("%.0f %%", 100 * (t.max - t.min) / t.median) << "  "
              << std::setw(14) << text("%.1f GFLOP/s", conv.flops() / t.median / 1e6) << "  " << plan.kernel_count
              << " kernels  " << (judgement.is_good() ? "right" : judgement.get_message()) << std::endl;
    if (best.runs == 0 || t.median < best.median) best = t, best_index = plan.index;
  }

  // The library does the same by itself, and keeps the fastest plan; here it is chosen by hand.
  EXAMPLE_OK(graph.build_plan_at_index(best_index));
  EXAMPLE_OK(graph.execute_plan_at_index(tour.device, conv.data.device, workspace, best_index));
  return tour.finish(graph, conv.data, best, conv.flops(), &reference) && all_right ? 0 : 1;
}

EXAMPLE_MAIN(all_plans)
