// tilewright tour: the examples as eight sections, and a summary. It fails when any result is wrong.
#include <algorithm>
#include <iostream>

#include "../../examples/common.h"
#include "chosen_device.h"
#include "table.h"
#include "terminal.h"
#include "verbs.h"

// The examples' entry points (examples/0*.cc, built without their main).
int environment(example::Tour&);
int conv_bias_relu(example::Tour&);
int all_plans(example::Tour&);
int matmul_gelu_amax(example::Tour&);
int causal_attention(example::Tour&);
int serialize(example::Tour&);
int kernel_cache(example::Tour&);
int capture_and_replay(example::Tour&);

namespace tilewright::tool {

int tour(const TourOptions& options) {
  using Section = int (*)(example::Tour&);
  constexpr Section kSections[] = {environment,      conv_bias_relu, all_plans,    matmul_gelu_amax,
                                   causal_attention, serialize,      kernel_cache, capture_and_replay};
  const auto wanted = [&](int number) {
    return options.sections.empty() ||
           std::find(options.sections.begin(), options.sections.end(), number) != options.sections.end();
  };
  const ChosenDevice device(options.device);
  device.must_run();
  example::Tour tour;
  tour.quick = options.quick;
  tour.device = device.handle();
  const auto start = std::chrono::steady_clock::now();
  int number = 0, right = 0, run = 0;
  for (const Section section : kSections) {
    if (!wanted(++number)) continue;
    if (number == 1) {
      doctor({});
      std::cout << '\n';
    }
    const size_t before = tour.rows.size();
    const bool ok = section(tour) == 0 && tour.rows.size() == before + 1 && tour.rows.back().ok;
    if (tour.rows.size() > before) tour.rows.back().ok = ok;
    std::cout << std::endl;
    ++run;
    right += ok;
  }

  Table table;
  table.column("").column("section").column("plan").column("time", Table::Right).column("rate", Table::Right);
  table.column("max error", Table::Right).column("of bound", Table::Right).column("");
  for (const auto& row : tour.rows) {
    const bool timed = row.ms > 0;
    table.row({std::to_string(row.section), row.title, row.plan, timed ? human_time(row.ms) : "-",
               timed ? human_rate(row.flops / row.ms * 1e3, "FLOP/s") : "-", fmt::format("{:.2e}", row.error),
               fmt::format("{:.0f} %", 100 * row.of_bound), yes_no(row.ok)});
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cout << table.text() << '\n'
            << (right == run ? green(fmt::format("{}/{}", right, run)) : red(fmt::format("{}/{}", right, run)))
            << fmt::format(" sections right, each against the exact reference; {:.1f} s in all\n", seconds);
  if (right == run) return 0;
  fail("{} of {} sections are wrong", run - right, run);
}

}  // namespace tilewright::tool
